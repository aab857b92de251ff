"""What became of every job: response time, ideal, delay."""

from __future__ import annotations

import msgspec
import numpy as np

from volery.core.model import NEVER
from volery.core.records import Records
from volery.core.workflows import comes_in_parts
from volery.metrics.columns import Flags, Longs, largest_per_job, tasks_per_job, view
from volery.metrics.windows import Window
from volery.metrics.workflows import ideal_of_workflows_us


class JobTable(msgspec.Struct, frozen=True, eq=False):
    """One row per job of the trace, as columns of equal length; `NEVER` (-1) stands for what did not happen.

    Args:
        job: number of the job.
        submit_us: when it was submitted.
        tasks: how many tasks it has.
        unsatisfiable: how many of them fit no machine, as the submitter was told.
        ideal_us: the ideal JRT: its longest task that ran, or the critical path of those that ran where the trace has
            workflows; `NEVER` when none did.
        jrt_us: job response time as the submitter sees it: answer - submission; `NEVER` where not measured.
        delay_us: jrt_us - ideal_us; `NEVER` where not measured.
        worker_jrt_us: last finish at a worker - submission, the completion time of Sparrow's and Eagle's simulators.
        is_short: whether the mean estimate of its tasks is at most the cutoff; all jobs are short without a cutoff.
        counted: whether it was submitted within the measurement window; all were where there is none.
        measured: whether it counts, ran a task and was answered; other jobs are left out of delay statistics.
    """

    job: Longs
    submit_us: Longs
    tasks: Longs
    unsatisfiable: Longs
    ideal_us: Longs
    jrt_us: Longs
    delay_us: Longs
    worker_jrt_us: Longs
    is_short: Flags
    counted: Flags
    measured: Flags


def job_table(
    records: Records, cutoff_us: int | None = None, *, paced: bool = False, window: Window | None = None
) -> JobTable:
    """Work out the job table of a run.

    Args:
        records: of the run.
        cutoff_us: jobs with a larger estimate are long; None when short and long are not told apart.
        paced: how long a task lasts depends on its machine, so that ideals are those of the trace: at the reference
            speed, and where the input lies.
        window: jobs that count were submitted within it; None: all count.
    """
    trace = records.trace
    submit, answered = view(trace.arrival_us), view(records.answered_us)
    finish = view(records.finish_us)
    if comes_in_parts(trace):
        ideal = ideal_of_workflows_us(trace, finish >= 0)
    else:
        run_us = view(trace.duration_us).copy() if paced else finish - view(records.start_us)
        run_us[finish < 0] = NEVER
        ideal = largest_per_job(run_us, trace, NEVER)
        del run_us
    last = largest_per_job(finish, trace, NEVER)
    measured = (ideal >= 0) & (answered >= 0)
    jrt = np.where(measured, answered - submit, NEVER)
    counted = np.ones(trace.job_count, dtype=np.bool_) if window is None else window.holds(submit)
    largest_short_us = np.iinfo(np.int64).max if cutoff_us is None else cutoff_us
    return JobTable(
        job=np.arange(trace.job_count, dtype=np.int64),
        submit_us=submit,
        tasks=tasks_per_job(trace),
        unsatisfiable=view(records.unsatisfiable),
        ideal_us=ideal,
        jrt_us=jrt,
        delay_us=np.where(measured, jrt - ideal, NEVER),
        worker_jrt_us=np.where(last >= 0, last - submit, NEVER),
        is_short=view(trace.estimate_us) <= largest_short_us,
        counted=counted,
        measured=measured & counted,
    )
