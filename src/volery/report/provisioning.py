"""What machines that come and go have cost, and how well there were as many as were needed, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.metrics import ProvisioningSummary
from volery.report import means
from volery.report.groups import RunGroup
from volery.report.means import Column
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


_PROVISIONING: Final[Sequence[Column[ProvisioningSummary]]] = (
    (lambda one: one.machine_h, digits),
    (lambda one: one.used_machine_h, digits),
    (lambda one: one.paid_machine_h, digits),
    (lambda one: one.cost, digits),
    (lambda one: one.boots, digits),
    (lambda one: one.supply_mean, digits),
    (lambda one: one.demand_mean, digits),
    (lambda one: one.under_accuracy, percent),
    (lambda one: one.over_accuracy, percent),
    (lambda one: one.under_share, percent),
    (lambda one: one.over_share, percent),
)


def provisioning_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `PROVISIONING_HEADS`, of the groups whose machines come and go; means over the seeds."""
    return means.rows(groups, lambda run: run.provisioning, _PROVISIONING)
