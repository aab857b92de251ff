"""Measures of jobs (response time, ideal, delay), of workflows, and of deadlines.

Measures of workflows have the names of the reference architecture's experiments (SC 2018, section V-A6), those of
deadlines are TetriSched's (EuroSys 2016). Guaranteed slots are held against those of an oracle.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from hashlib import sha256

import msgspec
import numpy as np

from volery.core.limits import LimitSummary
from volery.core.model import NEVER, SECOND, JobId, Time
from volery.core.records import Records
from volery.core.trace import Trace
from volery.core.workflows import comes_in_parts, critical_paths_us, has_workflows, spans_us
from volery.metrics.arrays import (
    Flags,
    Floats,
    Longs,
    arrival_of_task_us,
    largest_per_job,
    ready_us,
    tasks_per_job,
    view,
)
from volery.metrics.distribution import Distribution, Histogram, distribution, histogram
from volery.metrics.windows import Window

LATEST = np.iinfo(np.int64).max


class JobTable(msgspec.Struct, frozen=True, eq=False):
    """One row per job of the trace, as columns of equal length; `NEVER` (-1) stands for what did not happen.

    Args:
        unsatisfiable: Count of its tasks that fit no machine, as answered to the submitter.
        ideal_us: Ideal JRT: its longest task that ran, or the critical path of those that ran where the trace has
            workflows; `NEVER` when none did.
        jrt_us: Job response time as the submitter sees it: answer - submission; `NEVER` where not measured.
        delay_us: Delay: jrt_us - ideal_us; `NEVER` where not measured.
        worker_jrt_us: Last finish at a worker - submission, the completion time of Sparrow's and Eagle's simulators.
        is_short: True if the mean estimate of its tasks is at most the cutoff; all jobs are short without a cutoff.
        counted: True if it was submitted within the measurement window; all were where there is none.
        measured: True if it counts, ran a task and was answered; other jobs are left out of delay statistics.
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
    records: Records, cutoff_us: int | None = None, *, is_paced: bool = False, window: Window | None = None
) -> JobTable:
    """Work out the job table of a run.

    Args:
        cutoff_us: Largest estimate of short jobs; None without classes.
        is_paced: True if a task's duration depends on its machine, so that ideals are those of the trace: at the
            reference speed, and where the input lies.
        window: Window in which jobs that count were submitted; None: all count.
    """
    trace = records.trace
    submit, answered = view(trace.arrival_us), view(records.answered_us)
    finish = view(records.finish_us)
    if comes_in_parts(trace):
        ideal = ideal_of_workflows_us(trace, finish >= 0, _durations_us(records))
    else:
        # A run time holds for one machine alone, and ideals are at the reference speed: the durations are the trace's.
        run_us = _durations_us(records).copy() if is_paced else finish - view(records.start_us)
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


def tasks_over_limit(records: Records) -> Longs:
    """The tasks that the driver has ended at the limits of their jobs, in order."""
    tasks = sorted([task for task, attempt in records.over_limit if records.attempt[task] == attempt])
    return np.array(tasks, dtype=np.int64)


def limit_summary(records: Records) -> LimitSummary | None:
    """The limits in force, and the work that they have ended; None where there are none."""
    trace = records.trace
    if not trace.limit_us:
        return None
    tasks = tasks_over_limit(records)
    jobs = np.unique(np.searchsorted(view(trace.first), tasks, side="right"))
    return LimitSummary(True, int(np.count_nonzero(view(trace.limit_us) != NEVER)), jobs.size, tasks.size)


def _durations_us(records: Records) -> Longs:
    """The durations of the trace, those of tasks that a limit has ended up to that."""
    trace = records.trace
    durations_us, tasks = view(trace.duration_us), tasks_over_limit(records)
    if tasks.size:
        durations_us = durations_us.copy()
        jobs = np.searchsorted(view(trace.first), tasks, side="right") - 1
        durations_us[tasks] = np.minimum(durations_us[tasks], view(trace.limit_us)[jobs])
    return durations_us


def longest_wait_us(records: Records) -> Longs:
    """The longest time for which a task of each job was ready and had not started; `NEVER` where none started."""
    start_us = view(records.start_us)
    waits_us = np.where(start_us == NEVER, NEVER, start_us - ready_us(records))
    return largest_per_job(waits_us, records.trace, NEVER)


class WorkflowSummary(msgspec.Struct, frozen=True):
    """A run of which some jobs are workflows; all its jobs count that ran a task and were answered.

    Args:
        workflows: Count of jobs in which some task waits for another.
        task_response_s: TRT, per task: its finish - its submission, or its job's where the trace has none per task.
        makespan_s: JMS, per job: its last finish - its submission.
        schedule_length: NJSL, per job: JMS / critical path at the reference speed (no unit), where that is above zero.
        waiting_s: JWT, per job: its first start - its submission.
        published_length: NJSL, per job, as the published code of the experiments has it (no unit): JMS // (last finish
            - first start), where one second is the least to divide by; None in runs kept by earlier versions.
        response_bins, makespan_bins: Distributions of TRT and JMS; None in runs kept by earlier versions.
    """

    workflows: int
    task_response_s: Distribution
    makespan_s: Distribution
    schedule_length: Distribution
    waiting_s: Distribution
    published_length: Distribution | None = None
    response_bins: Histogram | None = None
    makespan_bins: Histogram | None = None


def ideal_of_workflows_us(trace: Trace, has_finished: Flags, durations_us: Longs, *, at_once: bool = False) -> Longs:
    """The critical path of each job among its tasks that ran, at the reference speed; `NEVER` where none did.

    Where tasks are submitted later than their jobs, it is what they could not have been faster than.

    A task that fits no machine holds nothing up: what waits for it did not run either.

    Args:
        has_finished: True for tasks that finished.
        durations_us: Duration of each task, at most its limit.
        at_once: True for the critical path alone, whenever tasks were submitted.
    """
    durations = array("q")
    durations.frombytes(np.where(has_finished, durations_us, 0).tobytes())
    has_run = largest_per_job(has_finished.astype(np.int64), trace, 0) > 0
    return np.where(has_run, view((critical_paths_us if at_once else spans_us)(trace, durations)), NEVER)


def workflow_summary(records: Records, ideal_us: Longs, measured: Flags) -> WorkflowSummary:
    """Measures of a run's workflows, and of jobs that are none."""
    trace = records.trace
    submit, finish, start = view(trace.arrival_us), view(records.finish_us), view(records.start_us)

    submitted_us = view(trace.submit_us) if trace.submit_us else arrival_of_task_us(trace)
    response = (finish - submitted_us)[finish != NEVER]
    # The first start of a job is its largest negative start.
    first_start = -largest_per_job(np.where(start == NEVER, -LATEST, -start), trace, -LATEST)
    spans = (largest_per_job(finish, trace, NEVER) - submit)[measured]
    paths_us = ideal_us
    if trace.submit_us:
        paths_us = ideal_of_workflows_us(trace, finish != NEVER, _durations_us(records), at_once=True)

    ideal, idle = paths_us[measured], (first_start - submit)[measured]
    response_bins, makespan_bins = histogram(response, unit=SECOND), histogram(spans, unit=SECOND)
    counts = np.diff(view(trace.parent_first)) if has_workflows(trace) else np.zeros(trace.task_count, dtype=np.int64)
    return WorkflowSummary(
        int((largest_per_job(counts, trace, 0) > 0).sum()),
        distribution(response, unit=SECOND, overwrite=True),
        distribution(spans, unit=SECOND),
        distribution(spans[ideal > 0] / ideal[ideal > 0], overwrite=True),
        distribution(idle, unit=SECOND),
        distribution(spans // np.maximum(spans - idle, SECOND), overwrite=True),
        response_bins,
        makespan_bins,
    )


HOUR_US = 3600 * SECOND


class DeadlineSummary(msgspec.Struct, frozen=True):
    """Deadlines of a run that were met and missed.

    Args:
        jobs: Count of jobs that had one.
        met: Count of these that were answered by then.
        attainment: Share that were (0 to 1).
        best_effort_jrt_s: Response time of the jobs without one that were answered.
        relative: Time to the answer / time to the deadline, of the jobs with one that were answered (no unit).
        spread: Longest of these / the shortest, over the runs of a recurring job: they have its name as their user,
            and the same graph. Jobs whose tasks wait for none are not known to recur.
    """

    jobs: int
    met: int
    attainment: float
    best_effort_jrt_s: Distribution
    relative: Distribution | None = None
    spread: Distribution | None = None


def deadline_summary(records: Records, among: Flags | None = None) -> DeadlineSummary | None:
    """The deadlines of a run; None where no job has one. A job that was never answered has missed its own.

    `among` marks the jobs that count; all do by default.
    """
    trace = records.trace
    if not trace.deadline_us:
        return None
    due_us, answered_us = view(trace.deadline_us), view(records.answered_us)
    counted = np.ones(due_us.size, dtype=np.bool_) if among is None else among
    has_deadline, is_answered = counted & (due_us != NEVER), answered_us != NEVER
    if not has_deadline.any():
        return None
    met = int(np.count_nonzero(has_deadline & is_answered & (answered_us <= due_us)))
    without_deadline = counted & ~has_deadline & is_answered
    best_effort_us = (answered_us - view(trace.arrival_us))[without_deadline]

    submit_us = view(trace.arrival_us)
    # A deadline at or before the submission leaves no time to compare with.
    is_comparable = has_deadline & is_answered & (due_us > submit_us)
    relative = (answered_us - submit_us)[is_comparable] / (due_us - submit_us)[is_comparable]

    jobs = int(np.count_nonzero(has_deadline))
    return DeadlineSummary(
        jobs,
        met,
        met / jobs,
        distribution(best_effort_us, unit=SECOND),
        distribution(relative),
        _spread(trace, np.flatnonzero(is_comparable), relative),
    )


def _spread(trace: Trace, jobs: Longs, relative: Floats) -> Distribution | None:
    """The longest / the shortest run of each recurring job with several; None where there is none."""
    runs: dict[tuple[str, bytes], list[float]] = {}
    for job, ratio in zip(jobs.tolist(), relative.tolist(), strict=True) if trace.user and trace.parents else ():
        graph = _graph(trace, job)
        if trace.user[job] and graph:
            runs.setdefault((trace.user[job], graph), []).append(ratio)
    spreads = [max(ratios) / min(ratios) for ratios in runs.values() if len(ratios) > 1 and min(ratios) > 0]
    return distribution(np.array(spreads)) if spreads else None


def _graph(trace: Trace, job: JobId) -> bytes:
    """A digest of which tasks of a job wait for which; nothing where none waits."""
    low, high = trace.first[job], trace.first[job + 1]
    edges = view(trace.parent_first)[low : high + 1]
    parents = view(trace.parents)[edges[0] : edges[-1]]
    return sha256((edges - edges[0]).tobytes() + (parents - low).tobytes()).digest() if parents.size else b""


class AllotmentSummary(msgspec.Struct, frozen=True):
    """Slots guaranteed to jobs in a run, against an oracle.

    Args:
        jobs: Count of jobs with a deadline that ever had a guarantee.
        slot_hours: Guaranteed slots, summed over these jobs and time.
        of_oracle: The same / slot hours of the oracle (no unit).
        above_oracle: Share of the slot hours that lie above what the oracle guarantees (0 to 1).
        excess_slot_hours: Slot hours above it.
        changes_per_job: Count of changes of a job's guarantee, its first and its end not among them.
    """

    jobs: int
    slot_hours: float
    of_oracle: float
    above_oracle: float
    excess_slot_hours: float
    changes_per_job: float


def allotment_summary(records: Records) -> AllotmentSummary | None:
    """The guarantees of a run; None where no design reported any for a job with a deadline."""
    trace = records.trace
    steps = dict[JobId, list[tuple[Time, int]]]()
    for fact in records.allotments:
        due = trace.deadline_us[fact.job] if trace.deadline_us else NEVER
        if due > trace.arrival_us[fact.job]:
            steps.setdefault(fact.job, []).append((fact.at_us, fact.slots))
    if not steps:
        return None

    total = above_oracle = oracle_total = changes = 0
    for job, job_steps in steps.items():
        time_to_deadline_us = trace.deadline_us[job] - trace.arrival_us[job]

        # The oracle gives a job at all times the fewest slots with which all its work ends at its deadline.
        oracle = -(-sum(trace.duration_us[trace.first[job] : trace.first[job + 1]]) // time_to_deadline_us)
        total += _slot_us(job_steps, 0)
        above_oracle += _slot_us(job_steps, oracle)
        oracle_total += oracle * time_to_deadline_us
        # The first guarantee and the end are no changes.
        changes += max(0, len(job_steps) - 2)
    return AllotmentSummary(
        jobs=len(steps),
        slot_hours=total / HOUR_US,
        of_oracle=total / oracle_total if oracle_total else 0.0,
        above_oracle=above_oracle / total if total else 0.0,
        excess_slot_hours=above_oracle / HOUR_US,
        changes_per_job=changes / len(steps),
    )


def _slot_us(steps: Sequence[tuple[Time, int]], beyond: int) -> int:
    """Slots beyond so many, times microseconds: each step lasts until the next; the last one is the end."""
    return sum([max(0, slots - beyond) * (until - at) for (at, slots), (until, _) in itertools.pairwise(steps)])
