"""One run in one JSON-able record."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from volery.core.events import GANG_TASKS_REFUSED, TAG_TASKS_GIVEN_UP
from volery.core.limits import LimitSummary
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.omissions import Omissions, misses
from volery.core.records import Records
from volery.core.workflows import comes_in_parts
from volery.metrics.arrays import Flags, view
from volery.metrics.devices import DeviceSummary, device_summary
from volery.metrics.distribution import Distribution, Slowdown, distribution, slowdown
from volery.metrics.gangs import GangSummary, gang_summary
from volery.metrics.jobs import (
    AllotmentSummary,
    DeadlineSummary,
    JobTable,
    WorkflowSummary,
    allotment_summary,
    deadline_summary,
    job_table,
    limit_summary,
    workflow_summary,
)
from volery.metrics.occupancy import utilisation_by_resource
from volery.metrics.preemption import PreemptionSummary, preemption_summary, user_shares
from volery.metrics.provisioning import ProvisioningSummary, provisioning_summary
from volery.metrics.tasks import LocalitySummary, allocation_parts, locality_summary
from volery.metrics.transactions import TransactionSummary, transaction_summary
from volery.metrics.windows import Window, WindowSummary, measured_whole

MISSES_MAX = 3
"""Kinds of tasks that fit no machine, for which the reason is stated."""
SLOWDOWN_BOUND_US: Final = 10 * SECOND
"""Run time below which jobs count as this long in the bounded slowdown (Feitelson et al., JSSPP 1997)."""
MESSAGES = "messages"
"""The counter in which the driver adds up what components sent each other."""


class ClassSummary(msgspec.Struct, frozen=True):
    """The short or the long jobs of a run.

    Args:
        jobs: Count of jobs that were measured (ran a task and were answered).
        delay_s: JRT - ideal JRT.
        jrt_s: Time from submission to answer.
        ideal_s: Longest task, or the critical path.
        slowdown: Ratio of percentiles, JRT over ideal (no unit).
        slowdown_per_job: Distribution of each job's own JRT / ideal (no unit), where the ideal is above zero.
        bounded_slowdown: Distribution of each job's JRT / the larger of its ideal and 10 s, at least 1 (no unit); None
            in runs kept by earlier versions.
    """

    jobs: int
    delay_s: Distribution
    jrt_s: Distribution
    ideal_s: Distribution
    slowdown: Slowdown
    slowdown_per_job: Distribution
    bounded_slowdown: Distribution | None = None


class AllocationSummary(msgspec.Struct, frozen=True):
    """Allocation time per task that started, in seconds; the means of the parts sum to the mean of the total.

    Args:
        total: Task start - task arrival (arXiv 2103.08413); a task of a workflow arrives when it was submitted and the
            last of its parents has ended.
        communication: Time on the wire along the chain of messages that led to the start, at most the total.
        processing: Time in service of roles that were given a processing cost, along the same chain.
        worker_queueing: Time in the worker's own queue, as the worker reports it.
        framework_queueing: Total - communication - processing - worker queueing.
    """

    total: Distribution
    framework_queueing: Distribution
    processing: Distribution
    worker_queueing: Distribution
    communication: Distribution


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture, under one seed.

    Args:
        label: Name in reports of runs that differ in the seed alone; empty: architecture and parameters.
        architecture: Registry name of the architecture.
        parameters: Parameters of the architecture.
        seed: Seed of all random streams.
        trace: Name of the trace.
        workers, slots: Size of the cluster.
        axes: Values of the study's axes by name: the trace as it was given, the workers, and all that vary.
        cutoff_s: Estimate above which jobs are long; None without classes.
        cutoff_from_trace_s: Cutoff of a design that was given none, as its trace gives it; None for other designs.
        jobs, tasks: Counts of the trace.
        unsatisfiable_tasks: Count of tasks that never ran, because they fit no machine or were given up
            (`transactions`).
        delay_s: JRT - ideal JRT (IoT 2023, equation 1) of the jobs that ran a task and were answered (the count may be
            below `jobs`).
        short, long: Measures by class; None without a cutoff or without such a job.
        jrt_s: Job response time: answer to the submitter - submission.
        worker_jrt_s: Last finish of its tasks at a worker - submission.
        ideal_s: Ideal JRT: the longest task of a job, or its critical path where the trace has workflows; at the
            reference speed where machines have speeds, and on a machine that holds the input where tasks have any.
        slowdown: Ratio of percentiles, JRT over ideal (no unit; Pigeon, SoCC 2019).
        slowdown_per_job: Distribution of each job's own JRT / ideal (no unit), where the ideal is above zero.
        bounded_slowdown: Distribution of each job's JRT / the larger of its ideal and 10 s, at least 1 (no unit;
            Feitelson et al., JSSPP 1997); None in runs kept by earlier versions.
        allocation_s: Time from task arrival (or the end of the last task that it waits for) to task start, and where it
            went.
        utilisation_mean: Busy slot time / slot time, first submit to last finish (0 to 1; IoT 2023, equation 2); of the
            resource that is used most where machines offer several.
        utilisation: Amount in use x time / amount offered x time, by resource, "slots" where there are no others.
        user_shares: Dominant share of the cluster of each user on average from the first to the last submission, or
            over the window; empty where the trace names no users, or all jobs are submitted at once.
        misses: Reasons of some tasks that fit no machine.
        preemption: Losses between users; None where nothing was preempted.
        transactions: Busyness of schedulers, conflicts and waits; None where no scheduler reports its attempts.
        workflows: Measures of workflows; None where no task waits for another and all machines are of one speed.
        locality: Tasks on, near and far from the machines with their input; None where no task has input.
        limits: Wall-clock limits of jobs, and the work that exceeded them; None where the workload states none.
        devices: Devices that no task had, and those in pieces; None where no task asks for devices.
        ignores: Features of the workload that the design does not decide by.
        kept_by_driver: Features that the driver enforces, because the design does not.
        gangs: Measures of gangs; None where no job of the trace is one.
        are_gangs_tasks: True if jobs whose tasks run only together are read as one task each, as not all designs of the
            comparison start them whole.
        starts_gangs: True if the design starts gangs whole.
        declares: True if the design declares the features that it uses.
        left_out: Omissions of the trace file, by effect and reason; None where there was no such file.
        history_left_out: Omissions of the trace file of earlier runs.
        unheeded_resources: Resources that tasks of the file ask for, and that did not count.
        never_ran: Tasks that never started; None where all did.
        in_one_slot: Tasks that took one slot though they ask for more; None where none did.
        makespan_s: Time from first submit to last answer or finish.
        messages: Count of messages sent between components (to and from the submitter not among them).
        messages_per_task: Messages / tasks.
        counters: Counts of the components; a measured fact x gives x_count, x_mean and x_max.
        deadlines: Counts of jobs that had one, and met it; None where no job has one.
        allotments: Slots guaranteed to jobs, against an oracle; None where no design reports guarantees.
        provisioning: Cost of machines that come and go, supply against demand; None where all are always on.
        compute_s: Processor time of each problem that was solved apart from messages; None: there were none.
        load: Work offered / (slots x span of arrivals); None where all jobs arrive at once (see the page on workloads).
        load_by: Quantity that was scaled to set the load, "arrivals" or "machines"; empty where it is the trace's own.
        estimates: Model of the durations that schedulers see.
        window: Jobs that count, and the time over which utilisation is taken; None: all of the run. Delay, response
            times, slowdown, allocation time, workflows, deadlines and utilisation heed it; all else is of the run.
        digest: SHA-256 of the records.
        wall_s, cpu_s: Real and processor time of the run itself.
        tasks_per_cpu_s: Tasks / cpu_s.
        peak_rss_mb: Largest resident memory of the process that ran it, in MB.
    """

    architecture: str
    parameters: dict[str, Any]
    seed: int
    jobs: int
    tasks: int
    unsatisfiable_tasks: int
    delay_s: Distribution
    short: ClassSummary | None
    long: ClassSummary | None
    jrt_s: Distribution
    worker_jrt_s: Distribution
    ideal_s: Distribution
    slowdown: Slowdown
    slowdown_per_job: Distribution
    allocation_s: AllocationSummary
    utilisation_mean: float
    makespan_s: float
    messages: int
    messages_per_task: float
    counters: dict[str, float]
    digest: str
    wall_s: float
    cpu_s: float
    tasks_per_cpu_s: float
    peak_rss_mb: float
    trace: str = ""
    workers: int = 0
    slots: int = 0
    cutoff_s: float | None = None
    label: str = ""
    axes: dict[str, Any] = {}
    utilisation: dict[str, float] = {}
    misses: tuple[str, ...] = ()
    user_shares: dict[str, float] = {}
    preemption: PreemptionSummary | None = None
    transactions: TransactionSummary | None = None
    workflows: WorkflowSummary | None = None
    locality: LocalitySummary | None = None
    gangs: GangSummary | None = None
    are_gangs_tasks: bool = False
    starts_gangs: bool = False
    ignores: tuple[str, ...] = ()
    kept_by_driver: tuple[str, ...] = ()
    declares: bool = True
    deadlines: DeadlineSummary | None = None
    compute_s: Distribution | None = None
    allotments: AllotmentSummary | None = None
    provisioning: ProvisioningSummary | None = None
    left_out: Omissions | None = None
    history_left_out: Omissions | None = None
    never_ran: Omissions | None = None
    in_one_slot: Omissions | None = None
    unheeded_resources: tuple[str, ...] = ()
    cutoff_from_trace_s: float | None = None
    load: float | None = None
    load_by: str = ""
    estimates: str = "mean"
    window: WindowSummary | None = None
    bounded_slowdown: Distribution | None = None
    limits: LimitSummary | None = None
    devices: DeviceSummary | None = None

    @property
    def abandoned_tasks(self) -> int:
        """Tasks that schedulers gave up after too many attempts."""
        return 0 if self.transactions is None else self.transactions.abandoned_tasks

    @property
    def unplaceable_tasks(self) -> int:
        """Tasks that fit no machine: neither given up nor of an impossible gang."""
        other_tasks = sum([self.counters.get(name, 0) for name in (GANG_TASKS_REFUSED, TAG_TASKS_GIVEN_UP)])
        return self.unsatisfiable_tasks - self.abandoned_tasks - int(other_tasks)


def summarise(
    records: Records,
    cluster: Cluster,
    *,
    architecture: str,
    parameters: Mapping[str, Any],
    seed: int,
    cutoff_us: int | None,
    wall_s: float,
    cpu_s: float,
    peak_rss_mb: float,
    label: str = "",
    window: Window | None = None,
) -> RunSummary:
    """Boil a run down to what is reported about it.

    Args:
        cutoff_us: Largest estimate of a short job; None without classes.
        window: Jobs that count, and the time over which utilisation is taken; None: all of the run.
        architecture, parameters, seed, wall_s, cpu_s, peak_rss_mb, label: Values carried over (see `RunSummary`).
    """
    table = job_table(records, cutoff_us, is_paced=bool(cluster.speeds or records.trace.replicas), window=window)
    all_jobs = _class_summary(table, table.measured)
    used = utilisation_by_resource(records, cluster, window)
    tasks, message_count = records.trace.task_count, records.counters.get(MESSAGES, 0)
    return RunSummary(
        label=label,
        architecture=architecture,
        parameters=dict(parameters),
        seed=seed,
        trace=records.trace.name,
        workers=len(cluster.slots),
        slots=cluster.slot_count,
        cutoff_s=None if cutoff_us is None else cutoff_us / SECOND,
        jobs=records.trace.job_count,
        tasks=tasks,
        unsatisfiable_tasks=int(table.unsatisfiable.sum()),
        delay_s=all_jobs.delay_s,
        short=None if cutoff_us is None else _class_or_none(table, table.measured & table.is_short),
        long=None if cutoff_us is None else _class_or_none(table, table.measured & ~table.is_short),
        jrt_s=all_jobs.jrt_s,
        worker_jrt_s=distribution(_worker_jrt_us(table), unit=SECOND, overwrite=True),
        ideal_s=all_jobs.ideal_s,
        slowdown=all_jobs.slowdown,
        slowdown_per_job=all_jobs.slowdown_per_job,
        bounded_slowdown=all_jobs.bounded_slowdown,
        allocation_s=_allocation(records, table, window),
        utilisation_mean=max(used.values()),
        utilisation=used,
        misses=_misses(records, cluster) if table.unsatisfiable.any() else (),
        user_shares=_shares_meanwhile(records, cluster, window),
        preemption=preemption_summary(records, cluster),
        transactions=transaction_summary(records),
        workflows=_workflows(records, cluster, table),
        locality=locality_summary(records, cluster),
        gangs=gang_summary(records, cluster),
        limits=limit_summary(records),
        devices=device_summary(records, cluster),
        deadlines=deadline_summary(records, None if window is None else table.counted),
        allotments=allotment_summary(records),
        provisioning=provisioning_summary(records, cluster),
        compute_s=distribution(view(records.compute_us), unit=SECOND) if records.compute_us else None,
        makespan_s=_makespan_s(table),
        messages=message_count,
        messages_per_task=message_count / tasks if tasks else 0.0,
        counters=_counters(records),
        digest=records.digest(),
        wall_s=wall_s,
        cpu_s=cpu_s,
        tasks_per_cpu_s=tasks / cpu_s if cpu_s > 0 else 0.0,
        peak_rss_mb=peak_rss_mb,
    )


def _allocation(records: Records, table: JobTable, window: Window | None) -> AllocationSummary:
    of_tasks = None if window is None else np.repeat(table.counted, table.tasks)
    parts = allocation_parts(records, of_tasks)
    return AllocationSummary(**{name: distribution(part, unit=SECOND, overwrite=True) for name, part in parts})


def _shares_meanwhile(records: Records, cluster: Cluster, window: Window | None) -> dict[str, float]:
    trace = records.trace
    if not trace.user:
        return {}
    measured = window or measured_whole(view(trace.arrival_us))
    return (
        user_shares(records, cluster, measured.begin_us, measured.end_us) if measured.end_us > measured.begin_us else {}
    )


def _workflows(records: Records, cluster: Cluster, table: JobTable) -> WorkflowSummary | None:
    # Machines of several speeds are those of the same experiments, some of whose jobs have one task.
    if comes_in_parts(records.trace) or cluster.speeds:
        return workflow_summary(records, table.ideal_us, table.measured)
    return None


def _misses(records: Records, cluster: Cluster) -> tuple[str, ...]:
    never = np.flatnonzero(view(records.start_us) == NEVER).tolist()
    first_misses = itertools.islice(misses(records.trace, cluster, never), MISSES_MAX)
    return tuple(f"task {task} {problem}" for task, problem in first_misses)


def _class_or_none(table: JobTable, members: Flags) -> ClassSummary | None:
    return _class_summary(table, members) if members.any() else None


def _class_summary(table: JobTable, members: Flags) -> ClassSummary:
    jrt_us, ideal_us = table.jrt_us[members], table.ideal_us[members]
    runs = ideal_us > 0

    per_job = distribution(jrt_us[runs] / ideal_us[runs], overwrite=True)
    bounded = distribution(np.maximum(jrt_us / np.maximum(ideal_us, SLOWDOWN_BOUND_US), 1), overwrite=True)
    jrt = distribution(jrt_us, unit=SECOND, overwrite=True)
    ideal = distribution(ideal_us, unit=SECOND, overwrite=True)
    delay = distribution(table.delay_us[members], unit=SECOND, overwrite=True)

    return ClassSummary(int(members.sum()), delay, jrt, ideal, slowdown(jrt, ideal), per_job, bounded)


def _worker_jrt_us(table: JobTable) -> NDArray[np.int64]:
    return table.worker_jrt_us[table.counted & (table.worker_jrt_us >= 0)]


def _makespan_s(table: JobTable) -> float:
    # A job without an answer counts until its last finish.
    ends = table.submit_us + np.maximum(np.maximum(table.jrt_us, table.worker_jrt_us), 0)
    return float(ends.max() - table.submit_us[0]) / SECOND if ends.size else 0.0


def _counters(records: Records) -> dict[str, float]:
    counters: dict[str, float] = {name: float(value) for name, value in records.counters.items() if name != MESSAGES}

    if records.lost:
        counters["attempts_lost"] = float(len(records.lost))

    for name, tally in records.tallies.items():
        counters[f"{name}_count"] = float(tally.count)
        counters[f"{name}_mean"] = tally.total / tally.count if tally.count else 0.0
        counters[f"{name}_max"] = float(tally.largest)

    if records.rejections:
        counters["submissions_rejected"] = float(records.rejections)
    return dict(sorted(counters.items()))
