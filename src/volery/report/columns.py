"""The columns of the tables of a report: one list for the terminal, the page, and the files of `volery export`.

A cell is a mean over seeds, unless its column says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from volery.look.text import MINUS, NOTHING, confidence, digits, duration, percent
from volery.metrics import (
    AllocationSummary,
    AllotmentSummary,
    ClassSummary,
    DeadlineSummary,
    DeviceSummary,
    GangSummary,
    LocalitySummary,
    ProvisioningSummary,
    RunSummary,
    WorkflowSummary,
    WorkloadWaits,
)
from volery.report.verdict import amount, confidence_of, effect, interval, reading
from volery.statistics import ComparedMeans

Part = TypeVar("Part")


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


class SummaryColumn(NamedTuple, Generic[Part]):
    """A column of a table of runs.

    Args:
        of: the quantity of one run, or of a part of its summary; None where it has none.
        text: its text with the unit.
        brief: the head in a terminal of 80 columns; empty: the column is not shown there.
        over: takes the values of all seeds together.
    """

    head: str
    of: Callable[[Part], float | None]
    text: Callable[[float], str]
    brief: str = ""
    over: Callable[[Sequence[float]], float] = mean

    def mean(self, parts: Iterable[Part]) -> float | None:
        """The mean, or what stands for it, over the seeds that have the quantity."""
        values = [value for value in map(self.of, parts) if value is not None]
        return self.over(values) if values else None

    def cell(self, parts: Iterable[Part]) -> str:
        """The text of a cell; a dash where no seed has the quantity."""
        value = self.mean(parts)
        return NOTHING if value is None else self.text(value)


def heads(columns: Iterable[SummaryColumn[Part]]) -> list[str]:
    """The heads of columns."""
    return [column.head for column in columns]


def cells(columns: Iterable[SummaryColumn[Part]], parts: Sequence[Part]) -> list[str]:
    """The cells of a row."""
    return [column.cell(parts) for column in columns]


# Tables of every report.

STATISTICS: Final = {"median": "p50", "mean": "mean", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
"""The statistics of delay, with their names in `Distribution`."""
MEAN_PLACE: Final = 1
"""The place of the mean among the statistics."""
BRIEF_STATISTICS: Final = {head: name for head, name in STATISTICS.items() if head != "p95"}
"""Those of ratios to a baseline, and of tables for a paper."""
COSTS: Final[Sequence[SummaryColumn[RunSummary]]] = (
    SummaryColumn("mean utilisation", lambda run: run.utilisation_mean, percent, "util."),
    SummaryColumn("makespan", lambda run: run.makespan_s, duration),
    SummaryColumn("messages per task", lambda run: run.messages_per_task, digits, "msg/task"),
    SummaryColumn("wall time", lambda run: run.wall_s, duration, "wall"),
    SummaryColumn("CPU time", lambda run: run.cpu_s, duration),
    SummaryColumn("tasks per CPU s", lambda run: run.tasks_per_cpu_s, "{:,.0f}".format, "tasks/s"),
    SummaryColumn("peak memory", lambda run: run.peak_rss_mb, "{:,.0f} MB".format),
)


def bounded_slowdown(summary: RunSummary | ClassSummary, statistic: str) -> float | None:
    """A statistic of the bounded slowdown; None in runs kept by earlier versions."""
    bounded = summary.bounded_slowdown
    return None if bounded is None else getattr(bounded, statistic)


SLOWDOWN: Final[Sequence[SummaryColumn[RunSummary | ClassSummary]]] = (
    SummaryColumn("p50", lambda summary: summary.slowdown.p50, digits),
    SummaryColumn("p90", lambda summary: summary.slowdown.p90, digits),
    SummaryColumn("p95", lambda summary: summary.slowdown.p95, digits),
    SummaryColumn("p99", lambda summary: summary.slowdown.p99, digits),
    SummaryColumn("per job: p50", lambda summary: summary.slowdown_per_job.p50, digits),
    SummaryColumn("per job: p99", lambda summary: summary.slowdown_per_job.p99, digits),
    SummaryColumn("bounded: mean", lambda summary: bounded_slowdown(summary, "mean"), digits),
)
ALLOCATION: Final[Sequence[SummaryColumn[AllocationSummary]]] = (
    SummaryColumn("mean", lambda allocation: allocation.total.mean, duration),
    SummaryColumn("p99", lambda allocation: allocation.total.p99, duration),
    SummaryColumn("communication", lambda allocation: allocation.communication.mean, duration),
    SummaryColumn("processing", lambda allocation: allocation.processing.mean, duration),
    SummaryColumn("worker queueing", lambda allocation: allocation.worker_queueing.mean, duration),
    SummaryColumn("framework queueing", lambda allocation: allocation.framework_queueing.mean, duration),
)
PARTS: Final = ALLOCATION[2:]
"""The parts of the allocation time."""
BEST: Final = ("jobs", "quantity", "lowest", "mean", "not told apart from it", "next", "its mean")
PAIRS: Final = ("a", "b", "jobs", "less delay under a", "less under b", "equal")
CONFLICTS: Final = ("workload", "kind", "mean", "median", "p95", "p99", "max")


def comparison_columns(differences: Sequence[ComparedMeans]) -> dict[str, tuple[str, Callable[[ComparedMeans], str]]]:
    """The columns of a table of comparisons by name: the head, and the text of a cell."""
    return {
        "quantity": ("quantity", lambda compared: compared.quantity),
        "a": ("a", lambda compared: amount(compared.a_mean, compared.unit)),
        "b": ("b", lambda compared: amount(compared.b_mean, compared.unit)),
        "effect": (f"b / a, b {MINUS} a", effect),
        "interval": (
            f"{confidence(confidence_of(differences))} interval",
            lambda compared: interval(compared.difference, compared.unit),
        ),
        "verdict": ("verdict", reading),
        "method": ("method", lambda compared: compared.difference.method),
    }


PAGE_COMPARISON: Final = ("quantity", "verdict", "a", "b", "effect", "interval", "method")
WIDE_COMPARISON: Final = ("quantity", "a", "b", "effect", "interval", "verdict")
NARROW_COMPARISON: Final = ("quantity", "effect", "interval", "verdict")
"""The columns of comparisons on a page, in a wide terminal, and in one of 80 columns."""
CSV_DIFFERENCE: Final = {
    "jobs": "jobs",
    "quantity": "quantity",
    "unit": "unit",
    "a_mean": "a_mean",
    "b_mean": "b_mean",
    "difference": "difference.mean",
    "low": "difference.low",
    "high": "difference.high",
    "ratio": "difference.ratio",
    "ratio_low": "difference.ratio_low",
    "ratio_high": "difference.ratio_high",
    "method": "difference.method",
    "seeds": "difference.seeds",
    "comparisons": "comparisons",
    "verdict": "difference.verdict",
}
"""The heads of comparisons in a CSV file, with the attributes of `ComparedMeans`."""

# Tables of studies that have what they show.

WORK: Final = ("msg/task", "probes", "stolen", "queue", "queue max", "blocked")
LOSSES: Final = ("loser", "winner", "tasks", "run in vain")
DEVIATION: Final[SummaryColumn[WorkloadWaits]] = SummaryColumn("deviation", lambda waits: waits.busyness_mad, percent)
"""Stands behind the busyness, in one cell."""
DECISIONS: Final[Sequence[SummaryColumn[WorkloadWaits]]] = (
    SummaryColumn("busyness", lambda waits: waits.busyness, percent),
    SummaryColumn("wasted", lambda waits: waits.wasted, percent),
    SummaryColumn("no room", lambda waits: waits.fruitless, percent),
    SummaryColumn("conflicts", lambda waits: waits.conflict_fraction, digits),
    SummaryColumn("first try", lambda waits: waits.wait_first_s.mean, duration),
    SummaryColumn("placed", lambda waits: waits.wait_full_s.mean if waits.wait_full_s.count else None, duration),
    SummaryColumn("given up", lambda waits: waits.abandoned_jobs, digits),
)
DEADLINES: Final[Sequence[SummaryColumn[DeadlineSummary]]] = (
    SummaryColumn("with a deadline", lambda deadlines: deadlines.jobs, digits),
    SummaryColumn("met", lambda deadlines: deadlines.attainment, percent),
    SummaryColumn("latest", lambda deadlines: deadlines.relative.max if deadlines.relative else 0.0, percent, over=max),
    SummaryColumn("best effort: mean", lambda deadlines: deadlines.best_effort_jrt_s.mean, duration),
    SummaryColumn("p90", lambda deadlines: deadlines.best_effort_jrt_s.p90, duration),
)


def _plan_gap(run: RunSummary) -> float | None:
    """The gap of problems that a solver was asked about."""
    return run.counters["plan_gap_per_mille_mean"] if "plan_variables_max" in run.counters else None


GUARANTEES: Final[Sequence[SummaryColumn[AllotmentSummary]]] = (
    SummaryColumn("jobs", lambda allotments: allotments.jobs, digits),
    SummaryColumn("slot hours", lambda allotments: allotments.slot_hours, digits),
    SummaryColumn("of the oracle's", lambda allotments: allotments.of_oracle, percent),
    SummaryColumn("above it", lambda allotments: allotments.above_oracle, percent),
    SummaryColumn("changes per job", lambda allotments: allotments.changes_per_job, digits),
)
PLANS: Final[Sequence[SummaryColumn[RunSummary]]] = (
    SummaryColumn("plans", lambda run: run.compute_s.count if run.compute_s else None, digits),
    SummaryColumn("CPU: mean", lambda run: run.compute_s.mean if run.compute_s else None, duration),
    SummaryColumn("p90", lambda run: run.compute_s.p90 if run.compute_s else None, duration),
    SummaryColumn("longest", lambda run: run.compute_s.max if run.compute_s else None, duration),
    SummaryColumn("variables", lambda run: run.counters.get("plan_variables_max"), digits, over=max),
    SummaryColumn("rows", lambda run: run.counters.get("plan_rows_max"), digits, over=max),
    SummaryColumn("gap", _plan_gap, lambda gap: percent(gap / 1000)),
)


def _ended_tasks(run: RunSummary) -> float | None:
    limits = run.limits
    return None if limits is None else limits.over_tasks * limits.enforced


LIMITS: Final[Sequence[SummaryColumn[RunSummary]]] = (
    SummaryColumn("with a limit", lambda run: run.limits.jobs if run.limits else None, "{:,.0f}".format),
    SummaryColumn("exceeded it", lambda run: run.limits.over_jobs if run.limits else None, "{:,.0f}".format),
    SummaryColumn("ended tasks", _ended_tasks, "{:,.0f}".format),
    SummaryColumn("bounded slowdown", lambda run: bounded_slowdown(run, "mean"), digits),
    SummaryColumn("its median", lambda run: bounded_slowdown(run, "p50"), digits),
    SummaryColumn("its p99", lambda run: bounded_slowdown(run, "p99"), digits),
)
DEVICES: Final[Sequence[SummaryColumn[DeviceSummary]]] = (
    SummaryColumn("devices", lambda devices: devices.devices, digits),
    SummaryColumn("idle", lambda devices: devices.idle_mean, digits),
    SummaryColumn("in pieces", lambda devices: devices.in_pieces_mean, digits),
)
LOCALITY: Final[Sequence[SummaryColumn[LocalitySummary]]] = (
    SummaryColumn("node", lambda locality: locality.node, percent),
    SummaryColumn("rack", lambda locality: locality.rack, percent),
    SummaryColumn("any", lambda locality: locality.any, percent),
    SummaryColumn("node, by job", lambda locality: locality.node_by_job, percent),
)
GANGS: Final[Sequence[SummaryColumn[GangSummary]]] = (
    SummaryColumn("gangs", lambda gangs: gangs.gangs, digits),
    SummaryColumn("ran", lambda gangs: gangs.ran, digits),
    SummaryColumn("largest", lambda gangs: gangs.largest, digits, over=max),
    SummaryColumn("held: gangs", lambda gangs: gangs.held, digits),
    SummaryColumn("machine h", lambda gangs: gangs.held_machine_h, digits),
    SummaryColumn("of all", lambda gangs: gangs.held_share, percent),
    SummaryColumn("machines", lambda gangs: gangs.machines_mean, digits),
    SummaryColumn("racks", lambda gangs: gangs.racks_mean, digits),
    SummaryColumn("one rack", lambda gangs: gangs.one_rack, percent),
)
PROVISIONING: Final[Sequence[SummaryColumn[ProvisioningSummary]]] = (
    SummaryColumn("machine h", lambda provisioning: provisioning.machine_h, digits),
    SummaryColumn("used", lambda provisioning: provisioning.used_machine_h, digits),
    SummaryColumn("paid", lambda provisioning: provisioning.paid_machine_h, digits),
    SummaryColumn("cost", lambda provisioning: provisioning.cost, digits),
    SummaryColumn("boots", lambda provisioning: provisioning.boots, digits),
    SummaryColumn("supply", lambda provisioning: provisioning.supply_mean, digits),
    SummaryColumn("demand", lambda provisioning: provisioning.demand_mean, digits),
    SummaryColumn("missing", lambda provisioning: provisioning.under_accuracy, percent),
    SummaryColumn("too much", lambda provisioning: provisioning.over_accuracy, percent),
    SummaryColumn("time missing", lambda provisioning: provisioning.under_share, percent),
    SummaryColumn("time too much", lambda provisioning: provisioning.over_share, percent),
)
WORKFLOWS: Final[Sequence[SummaryColumn[WorkflowSummary]]] = (
    SummaryColumn("task response", lambda workflows: workflows.task_response_s.mean, duration),
    SummaryColumn("job makespan", lambda workflows: workflows.makespan_s.mean, duration),
    SummaryColumn("schedule length", lambda workflows: workflows.schedule_length.mean, digits),
    SummaryColumn("job waiting", lambda workflows: workflows.waiting_s.mean, duration),
)
