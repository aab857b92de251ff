"""What machines that come and go have cost, and how well there were as many as were needed, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from volery.metrics import ProvisioningSummary
from volery.report.groups import RunGroup
from volery.report.units import digits, percent

PROVISIONING_HEADS: Final = (
    "machine h", "used", "paid", "cost", "boots", "supply", "demand", "missing", "too much", "time missing",
    "time too much",
)  # fmt: skip
PROVISIONING_NOTE: Final = (
    "Provisioning: hours for which machines were provisioned, ran something, and were paid for. Supply, demand: "
    "processors, or slots, on average: of machines that are on, and asked for by tasks that are ready or run. Missing, "
    "too much: of all that could be there, on average (under- and over-provisioning accuracy), and the shares of time "
    "with less, or more, than was asked for."
)


def provisioning_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `PROVISIONING_HEADS`, of the groups whose machines come and go; means over the seeds."""
    rows = []
    for group in groups:
        runs = [run.provisioning for run in group.runs if run.provisioning is not None]
        if runs:
            rows.append([group.label, *_cells(runs)])
    return rows


def _cells(runs: Sequence[ProvisioningSummary]) -> list[str]:
    def mean(of: Callable[[ProvisioningSummary], float]) -> float:
        return sum(map(of, runs)) / len(runs)

    amounts: tuple[Callable[[ProvisioningSummary], float], ...] = (
        lambda one: one.machine_h,
        lambda one: one.used_machine_h,
        lambda one: one.paid_machine_h,
        lambda one: one.cost,
        lambda one: one.boots,
        lambda one: one.supply_mean,
        lambda one: one.demand_mean,
    )
    shares: tuple[Callable[[ProvisioningSummary], float], ...] = (
        lambda one: one.under_accuracy,
        lambda one: one.over_accuracy,
        lambda one: one.under_share,
        lambda one: one.over_share,
    )
    return [*[digits(mean(of)) for of in amounts], *[percent(mean(of)) for of in shares]]
