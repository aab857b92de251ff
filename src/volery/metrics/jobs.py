"""Measures of jobs (response time, ideal, delay) and of workflows.

Measures of workflows have the names of the reference architecture's experiments (SC 2018, section V-A6).
"""

from __future__ import annotations

from array import array

import msgspec
import numpy as np

from volery.core.model import NEVER, SECOND
from volery.core.records import Records
from volery.core.trace import Trace
from volery.core.workflows import comes_in_parts, critical_paths_us, has_workflows, spans_us
from volery.metrics.columns import Flags, Longs, arrival_of_task_us, largest_per_job, tasks_per_job, view
from volery.metrics.distribution import Distribution, distribution
from volery.metrics.windows import Window

LATEST = np.iinfo(np.int64).max


class JobTable(msgspec.Struct, frozen=True, eq=False):
    """One row per job of the trace, as columns of equal length; `NEVER` (-1) stands for what did not happen.

    Args:
        job: number of the job.
        submit_us: when it was submitted.
        tasks: how many tasks it has.
        unsatisfiable: how many of them fit no machine, as answered to the submitter.
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
        cutoff_us: jobs with a larger estimate are long; None without classes.
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


class WorkflowSummary(msgspec.Struct, frozen=True):
    """A run of which some jobs are workflows; all its jobs count that ran a task and were answered.

    Args:
        workflows: jobs in which some task waits for another.
        task_response_s: TRT, per task: its finish - its submission, or its job's where the trace has none per task.
        makespan_s: JMS, per job: its last finish - its submission.
        schedule_length: NJSL, per job: JMS / critical path at the reference speed (no unit), where that is above zero.
        waiting_s: JWT, per job: its first start - its submission.
        published_length: NJSL, per job, as the published code of the experiments has it (no unit): JMS // (last finish
            - first start), where one second is the least to divide by; None in runs kept by earlier versions.
    """

    workflows: int
    task_response_s: Distribution
    makespan_s: Distribution
    schedule_length: Distribution
    waiting_s: Distribution
    published_length: Distribution | None = None


def ideal_of_workflows_us(trace: Trace, ran: Flags, *, at_once: bool = False) -> Longs:
    """Per job, its critical path among the tasks that ran, at the reference speed; `NEVER` where none did.

    Where tasks are submitted later than their jobs, it is what they could not have been faster than.

    A task that fits no machine holds nothing up: what waits for it did not run either.

    Args:
        trace: of the run.
        ran: per task, whether it finished.
        at_once: the critical path alone, whenever tasks were submitted.
    """
    durations = array("q")
    durations.frombytes(np.where(ran, view(trace.duration_us), 0).tobytes())
    some = largest_per_job(ran.astype(np.int64), trace, 0) > 0
    return np.where(some, view((critical_paths_us if at_once else spans_us)(trace, durations)), NEVER)


def workflow_summary(records: Records, ideal_us: Longs, measured: Flags) -> WorkflowSummary:
    """Measures of a run's workflows, and of jobs that are none.

    Args:
        records: of the run.
        ideal_us: per job, its ideal response time.
        measured: which jobs ran a task and were answered.
    """
    trace = records.trace
    submit, finish, start = view(trace.arrival_us), view(records.finish_us), view(records.start_us)
    came = view(trace.submit_us) if trace.submit_us else arrival_of_task_us(trace)
    response = (finish - came)[finish != NEVER]
    began = -largest_per_job(np.where(start == NEVER, -LATEST, -start), trace, -LATEST)
    spans = (largest_per_job(finish, trace, NEVER) - submit)[measured]
    paths_us = ideal_of_workflows_us(trace, finish != NEVER, at_once=True) if trace.submit_us else ideal_us
    ideal, idle = paths_us[measured], (began - submit)[measured]
    counts = np.diff(view(trace.parent_first)) if has_workflows(trace) else np.zeros(trace.task_count, dtype=np.int64)
    return WorkflowSummary(
        int((largest_per_job(counts, trace, 0) > 0).sum()),
        distribution(response, unit=SECOND, overwrite=True),
        distribution(spans, unit=SECOND),
        distribution(spans[ideal > 0] / ideal[ideal > 0], overwrite=True),
        distribution(idle, unit=SECOND),
        distribution(spans // np.maximum(spans - idle, SECOND), overwrite=True),
    )
