"""Busyness of schedulers, its part in vain, and waits of jobs for schedulers (Omega, EuroSys 2013, section 4).

Only designs that report `Transaction` facts have these measures. Busyness is the time in which a scheduler was deciding
over the time in which jobs were submitted; attempts that found no room for any task are counted apart, as in the public
simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from volery.core.events import Transaction
from volery.core.model import NEVER, SECOND, JobId, Time
from volery.core.records import Records
from volery.metrics.arrays import Floats, view
from volery.metrics.distribution import Distribution, distribution

DAY_US: Final = 86_400 * SECOND
DAYS_MIN: Final = 3
"""Days of the shortest run whose periods are days, as in the paper; shorter runs are cut into `PERIODS`."""
PERIODS: Final = 10


class SchedulerLoad(msgspec.Struct, frozen=True):
    """One scheduler.

    Args:
        busyness: Median over the periods of the share of time in which it was deciding (0 to 1).
        busyness_mad: Median absolute deviation over the periods.
        useful, wasted: Mean shares of time for attempts without and with a conflict; they sum to the mean busyness.
        fruitless: Mean share of time for attempts that found no room for any task.
        attempts: Count of transactions, of all kinds.
        machine_time: Share of the machine time of all tasks that the tasks of its jobs took (0 to 1).
        tasks_most: Largest count of tasks of its jobs that ran at once.
    """

    busyness: float
    busyness_mad: float
    useful: float
    wasted: float
    fruitless: float
    attempts: int
    machine_time: float = 0.0
    tasks_most: int = 0


class WorkloadWaits(msgspec.Struct, frozen=True):
    """The jobs of one type, for example batch or service.

    Args:
        schedulers: Count of schedulers that have served them.
        busyness, busyness_mad, useful, wasted, fruitless: Mean over these schedulers of theirs (0 to 1).
        wait_first_s: Time from submission to the beginning of the first attempt.
        wait_full_s: Time from submission to the moment at which all tasks were placed, of jobs of which that is true.
        conflict_fraction: Attempts with a conflict / attempts without one that placed something (may exceed 1).
        attempts, conflicted, fruitless_attempts: Counts of transactions.
        abandoned_jobs, abandoned_tasks: Counts of jobs and tasks that were given up.
    """

    schedulers: int
    busyness: float
    busyness_mad: float
    useful: float
    wasted: float
    fruitless: float
    wait_first_s: Distribution
    wait_full_s: Distribution
    conflict_fraction: float
    attempts: int
    conflicted: int
    fruitless_attempts: int
    abandoned_jobs: int
    abandoned_tasks: int


class TransactionSummary(msgspec.Struct, frozen=True):
    """The transactions of a run whose schedulers reported them.

    Args:
        workloads: Waits by type of job.
        schedulers: Loads by address.
        conflict_fraction: Conflict fraction of all attempts, as in `WorkloadWaits`.
        abandoned_jobs, abandoned_tasks: Counts of jobs and tasks that were given up.
    """

    workloads: dict[str, WorkloadWaits]
    schedulers: dict[str, SchedulerLoad]
    conflict_fraction: float
    abandoned_jobs: int
    abandoned_tasks: int


def transaction_summary(records: Records) -> TransactionSummary | None:
    """The transactions of a run, added up; None where no scheduler reported any."""
    transactions = records.transactions
    if not transactions:
        return None

    edges = _edges(records)
    by_scheduler: dict[str, list[Transaction]] = {}
    by_workload: dict[str, list[Transaction]] = {}

    for transaction in transactions:
        by_scheduler.setdefault(transaction.scheduler, []).append(transaction)
        by_workload.setdefault(transaction.workload, []).append(transaction)

    loads = {name: _load(by_scheduler[name], edges, records) for name in sorted(by_scheduler)}
    workloads = {name: _waits(by_workload[name], loads, records) for name in sorted(by_workload)}
    return TransactionSummary(
        workloads,
        loads,
        conflict_fraction(transactions),
        sum(waits.abandoned_jobs for waits in workloads.values()),
        sum(waits.abandoned_tasks for waits in workloads.values()),
    )


def conflict_fraction(transactions: Sequence[Transaction]) -> float:
    """Attempts with a conflict over successful ones: 0 none, 3 four attempts on average."""
    conflicted = sum(transaction.refused > 0 for transaction in transactions)
    return conflicted / max(1, sum(transaction.placed > 0 and not transaction.refused for transaction in transactions))


def _edges(records: Records) -> Floats:
    """Edges of the periods, between first and last submission; to the last attempt where all jobs came at once."""
    begin, end = records.trace.arrival_us[0], records.trace.arrival_us[-1]
    if end == begin:
        end = max(begin + 1, *(transaction.ended_us for transaction in records.transactions))

    span = end - begin
    count = span // DAY_US if span >= DAYS_MIN * DAY_US else PERIODS
    return np.linspace(begin, end, count + 1)


def _load(transactions: Sequence[Transaction], edges: Floats, records: Records) -> SchedulerLoad:
    kinds: tuple[list[Transaction], ...] = ([], [], [])
    for transaction in transactions:
        # In the order of the line below: useful, wasted, fruitless.
        kinds[1 if transaction.refused else 0 if transaction.placed else 2].append(transaction)
    useful, wasted, fruitless = (_shares(kind, edges) for kind in kinds)

    busy = useful + wasted
    median = float(np.median(busy))
    return SchedulerLoad(
        median,
        float(np.median(np.abs(busy - median))),
        float(useful.mean()),
        float(wasted.mean()),
        float(fruitless.mean()),
        len(transactions),
        *_machine_share({transaction.job for transaction in transactions}, records),
    )


def _machine_share(jobs: set[JobId], records: Records) -> tuple[float, int]:
    """The share of the machine time of all tasks that these jobs took, and their tasks at once, at most."""
    first, starts, finishes = view(records.trace.first), view(records.start_us), view(records.finish_us)
    ran = finishes != NEVER
    all_machine_time = int((finishes - starts)[ran].sum())

    is_of_jobs = np.zeros(len(first) - 1, dtype=np.bool_)
    is_of_jobs[sorted(jobs)] = True
    has_run = ran & np.repeat(is_of_jobs, np.diff(first))
    begin, end = np.sort(starts[has_run]), np.sort(finishes[has_run])
    # At each begin: tasks that have begun, less those that have ended by then.
    at_once = np.arange(1, begin.size + 1) - np.searchsorted(end, begin, side="right")
    return float((end - begin).sum()) / max(1, all_machine_time), int(at_once.max(initial=0))


def _shares(transactions: Sequence[Transaction], edges: Floats) -> Floats:
    """The share of each period in which these transactions were decided on."""
    began_us = np.array([transaction.began_us for transaction in transactions], dtype=np.float64)
    decision_us = np.array([transaction.decision_us for transaction in transactions], dtype=np.float64)
    # Time spent before each edge; the difference of neighbours is the time spent between them.
    spent_before = np.array([np.clip(edge - began_us, 0.0, decision_us).sum() for edge in edges])
    return np.asarray(np.diff(spent_before) / np.diff(edges))


def _waits(transactions: Sequence[Transaction], loads: dict[str, SchedulerLoad], records: Records) -> WorkloadWaits:
    serving = [loads[name] for name in dict.fromkeys(transaction.scheduler for transaction in transactions)]
    arrival_us = records.trace.arrival_us

    first_attempt_us: dict[int, Time] = {}
    placed_us: dict[int, Time] = {}
    for transaction in transactions:
        first_attempt_us[transaction.job] = min(
            first_attempt_us.get(transaction.job, transaction.began_us), transaction.began_us
        )
        if transaction.placed and not transaction.left:
            placed_us[transaction.job] = transaction.ended_us

    given_up = [transaction for transaction in transactions if transaction.abandoned]

    def waits_s(moments: dict[int, Time]) -> Distribution:
        return distribution(np.array([at - arrival_us[job] for job, at in moments.items()]), unit=SECOND)

    def mean(measure: Callable[[SchedulerLoad], float]) -> float:
        return sum(map(measure, serving)) / len(serving)

    return WorkloadWaits(
        len(serving),
        mean(lambda load: load.busyness),
        mean(lambda load: load.busyness_mad),
        mean(lambda load: load.useful),
        mean(lambda load: load.wasted),
        mean(lambda load: load.fruitless),
        waits_s(first_attempt_us),
        waits_s(placed_us),
        conflict_fraction(transactions),
        len(transactions),
        sum(transaction.refused > 0 for transaction in transactions),
        sum(not transaction.placed and not transaction.refused for transaction in transactions),
        len(given_up),
        sum(transaction.abandoned for transaction in given_up),
    )
