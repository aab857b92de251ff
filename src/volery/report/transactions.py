"""How busy schedulers were and how long jobs waited for them, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from volery.metrics import RunSummary, WorkloadWaits
from volery.report.groups import RunGroup
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
    for group in groups:
        runs = [run.transactions for run in group.runs if run.transactions is not None]
        for name in sorted({name for run in runs for name in run.workloads}):
            found = [run.workloads[name] for run in runs if name in run.workloads]
            rows.append([group.label, name, *_cells(found)])
    return rows


def _cells(found: Sequence[WorkloadWaits]) -> list[str]:
    def mean(of: Callable[[WorkloadWaits], float]) -> float:
        return sum(map(of, found)) / len(found)

    full = [one for one in found if one.wait_full_s.count]
    placed_s = sum(one.wait_full_s.mean for one in full) / len(full) if full else None
    return [
        f"{percent(mean(lambda one: one.busyness))} \u00b1 {percent(mean(lambda one: one.busyness_mad))}",
        percent(mean(lambda one: one.wasted)),
        percent(mean(lambda one: one.fruitless)),
        digits(mean(lambda one: one.conflict_fraction)),
        duration(mean(lambda one: one.wait_first_s.mean)),
        NOTHING if placed_s is None else duration(placed_s),
        digits(mean(lambda one: one.abandoned_jobs)),
    ]


def abandoned_tasks(run: RunSummary) -> int:
    """Tasks that schedulers gave up."""
    return 0 if run.transactions is None else run.transactions.abandoned_tasks
