"""How busy schedulers were and how long jobs waited for them, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.metrics import RunSummary, WorkloadWaits
from volery.report import means
from volery.report.groups import RunGroup
from volery.report.means import Column
from volery.report.units import NOTHING, digits, duration, percent

TRANSACTION_HEADS: Final = ("jobs", "busyness", "wasted", "no room", "conflicts", "first try", "placed", "given up")
TRANSACTION_NOTE: Final = (
    "Busyness: share of time in which a scheduler decides, median over ten periods (days in long runs) \u00b1 median "
    "absolute deviation; wasted: for attempts with a conflict; no room: beside it, for attempts that found none. "
    "Conflicts: attempts with one per successful one. First try, placed: mean wait from submission to the first "
    "attempt, and until all tasks were placed. Given up: jobs."
)


def transaction_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `TRANSACTION_HEADS`, a row per type of job; means over the seeds."""
    rows = []
    for group, runs in means.having(groups, lambda run: run.transactions):
        for name in sorted({name for run in runs for name in run.workloads}):
            found = [run.workloads[name] for run in runs if name in run.workloads]
            rows.append([group.label, name, *_cells(found)])
    return rows


_WAITS: Final[Sequence[Column[WorkloadWaits]]] = (
    (lambda one: one.busyness, percent),
    (lambda one: one.busyness_mad, percent),
    (lambda one: one.wasted, percent),
    (lambda one: one.fruitless, percent),
    (lambda one: one.conflict_fraction, digits),
    (lambda one: one.wait_first_s.mean, duration),
    (lambda one: one.abandoned_jobs, digits),
)
_PLACED: Final[Sequence[Column[WorkloadWaits]]] = ((lambda one: one.wait_full_s.mean, duration),)


def _cells(found: Sequence[WorkloadWaits]) -> list[str]:
    busyness, deviation, *others, given_up = means.cells(found, _WAITS)
    full = [one for one in found if one.wait_full_s.count]
    placed = means.cells(full, _PLACED) if full else [NOTHING]
    return [f"{busyness} \u00b1 {deviation}", *others, *placed, given_up]


def abandoned_tasks(run: RunSummary) -> int:
    """Tasks that schedulers gave up."""
    return 0 if run.transactions is None else run.transactions.abandoned_tasks
