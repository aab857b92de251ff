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
from volery.metrics.columns import Floats, view
from volery.metrics.distribution import Distribution, distribution

DAY_US: Final = 86_400 * SECOND
DAYS_MIN: Final = 3
"""From so many days on, a period is a day, as in the paper; shorter runs are cut into `PERIODS`."""
PERIODS: Final = 10


class SchedulerLoad(msgspec.Struct, frozen=True):
    """One scheduler.

    Args:
        busyness: median over the periods of the share of time in which it was deciding (0 to 1).
        busyness_mad: median absolute deviation over the periods.
        useful, wasted: mean shares of time for attempts without and with a conflict; they sum to the mean busyness.
        fruitless: likewise for attempts that found no room for any task.
        attempts: transactions, of all kinds.
        machine_time: share of the machine time of all tasks that the tasks of its jobs took (0 to 1).
        tasks_most: tasks of its jobs that ran at once, at most.
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
        schedulers: that have served them.
        busyness, busyness_mad, useful, wasted, fruitless: mean over these schedulers of theirs (0 to 1).
        wait_first_s: submission to the beginning of the first attempt.
        wait_full_s: submission to the moment at which all tasks were placed, of jobs of which that is true.
        conflict_fraction: attempts with a conflict / attempts without one that placed something (may exceed 1).
        attempts, conflicted, fruitless_attempts: counts.
        abandoned_jobs, abandoned_tasks: that were given up.
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
    """Of a run in which schedulers reported their transactions.

    Args:
        workloads: by type of job.
        schedulers: by address.
        conflict_fraction: of all attempts, as in `WorkloadWaits`.
        abandoned_jobs, abandoned_tasks: that were given up.
    """

    workloads: dict[str, WorkloadWaits]
    schedulers: dict[str, SchedulerLoad]
    conflict_fraction: float
    abandoned_jobs: int
    abandoned_tasks: int


def transaction_summary(records: Records) -> TransactionSummary | None:
    """The transactions of a run, added up; None where no scheduler reported any."""
    all_of_them = records.transactions
    if not all_of_them:
        return None
    edges = _edges(records)
    by_scheduler: dict[str, list[Transaction]] = {}
    by_workload: dict[str, list[Transaction]] = {}
    for one in all_of_them:
        by_scheduler.setdefault(one.scheduler, []).append(one)
        by_workload.setdefault(one.workload, []).append(one)
    loads = {name: _load(by_scheduler[name], edges, records) for name in sorted(by_scheduler)}
    workloads = {name: _waits(by_workload[name], loads, records) for name in sorted(by_workload)}
    return TransactionSummary(
        workloads,
        loads,
        conflict_fraction(all_of_them),
        sum(one.abandoned_jobs for one in workloads.values()),
        sum(one.abandoned_tasks for one in workloads.values()),
    )


def conflict_fraction(transactions: Sequence[Transaction]) -> float:
    """Attempts with a conflict over successful ones: 0 none, 3 four attempts on average."""
    conflicted = sum(one.refused > 0 for one in transactions)
    return conflicted / max(1, sum(one.placed > 0 and not one.refused for one in transactions))


def _edges(records: Records) -> Floats:
    """Of the periods, between first and last submission; to the last attempt where all jobs came at once."""
    begin, end = records.trace.arrival_us[0], records.trace.arrival_us[-1]
    if end == begin:
        end = max(begin + 1, *(one.ended_us for one in records.transactions))
    span = end - begin
    count = span // DAY_US if span >= DAYS_MIN * DAY_US else PERIODS
    return np.linspace(begin, end, count + 1)


def _load(transactions: Sequence[Transaction], edges: Floats, records: Records) -> SchedulerLoad:
    kinds: tuple[list[Transaction], ...] = ([], [], [])
    for one in transactions:
        kinds[1 if one.refused else 0 if one.placed else 2].append(one)
    useful, wasted, fruitless = (_shares(kind, edges) for kind in kinds)
    busy = useful + wasted
    middle = float(np.median(busy))
    return SchedulerLoad(
        middle,
        float(np.median(np.abs(busy - middle))),
        float(useful.mean()),
        float(wasted.mean()),
        float(fruitless.mean()),
        len(transactions),
        *_taken({one.job for one in transactions}, records),
    )


def _taken(jobs: set[JobId], records: Records) -> tuple[float, int]:
    """The share of the machine time of all tasks that these jobs took, and their tasks at once, at most."""
    first, starts, finishes = view(records.trace.first), view(records.start_us), view(records.finish_us)
    ran = finishes != NEVER
    whole = int((finishes - starts)[ran].sum())
    mine = np.zeros(len(first) - 1, dtype=np.bool_)
    mine[sorted(jobs)] = True
    of_mine = ran & np.repeat(mine, np.diff(first))
    begin, end = np.sort(starts[of_mine]), np.sort(finishes[of_mine])
    at_once = np.arange(1, begin.size + 1) - np.searchsorted(end, begin, side="right")
    return float((end - begin).sum()) / max(1, whole), int(at_once.max(initial=0))


def _shares(transactions: Sequence[Transaction], edges: Floats) -> Floats:
    """Per period, the share of time in which these were decided on."""
    begun = np.array([one.began_us for one in transactions], dtype=np.float64)
    took = np.array([one.decision_us for one in transactions], dtype=np.float64)
    before = np.array([np.clip(edge - begun, 0.0, took).sum() for edge in edges])
    return np.asarray(np.diff(before) / np.diff(edges))


def _waits(transactions: Sequence[Transaction], loads: dict[str, SchedulerLoad], records: Records) -> WorkloadWaits:
    serving = [loads[name] for name in dict.fromkeys(one.scheduler for one in transactions)]
    arrival_us = records.trace.arrival_us
    first: dict[int, Time] = {}
    full: dict[int, Time] = {}
    for one in transactions:
        first[one.job] = min(first.get(one.job, one.began_us), one.began_us)
        if one.placed and not one.left:
            full[one.job] = one.ended_us
    given_up = [one for one in transactions if one.abandoned]

    def waits_s(moments: dict[int, Time]) -> Distribution:
        return distribution(np.array([at - arrival_us[job] for job, at in moments.items()]), unit=SECOND)

    def mean(of: Callable[[SchedulerLoad], float]) -> float:
        return sum(map(of, serving)) / len(serving)

    return WorkloadWaits(
        len(serving),
        mean(lambda load: load.busyness),
        mean(lambda load: load.busyness_mad),
        mean(lambda load: load.useful),
        mean(lambda load: load.wasted),
        mean(lambda load: load.fruitless),
        waits_s(first),
        waits_s(full),
        conflict_fraction(transactions),
        len(transactions),
        sum(one.refused > 0 for one in transactions),
        sum(not one.placed and not one.refused for one in transactions),
        len(given_up),
        sum(one.abandoned for one in given_up),
    )
