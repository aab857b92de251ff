"""Deadlines, what was guaranteed to meet them, and what planners spent on them: rows under the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.metrics import AllotmentSummary, DeadlineSummary, Distribution
from volery.report import means
from volery.report.groups import RunGroup
from volery.report.means import Column
from volery.report.units import NOTHING, digits, duration, percent

DEADLINE_HEADS: Final = ("with a deadline", "met", "latest", "best effort: mean", "p90")
DEADLINE_NOTE: Final = (
    "Deadlines: jobs that have one, the share of them that were answered by then, the longest time to an answer as a "
    "share of the time to the deadline, and response times of the others."
)
GUARANTEE_HEADS: Final = ("jobs", "slot hours", "of the oracle's", "above it", "changes per job")
GUARANTEE_NOTE: Final = (
    "Guarantees: slots that were guaranteed to jobs with a deadline, over time; the oracle guarantees a job its work / "
    "its time to the deadline, rounded up, until its deadline. Above it: share of the guarantees above the oracle's."
)
PLAN_HEADS: Final = ("plans", "CPU: mean", "p90", "longest", "variables", "rows", "gap")
PLAN_NOTE: Final = (
    "Plans: problems that schedulers solved apart from their messages, and processor time of each on one core. "
    "Variables and rows: the most of any integer program; gap: mean over those that a solver was asked about."
)
_DEADLINES: Final[Sequence[Column[DeadlineSummary]]] = (
    (lambda one: one.jobs, digits),
    (lambda one: one.attainment, percent),
    (lambda one: one.best_effort_jrt_s.mean, duration),
    (lambda one: one.best_effort_jrt_s.p90, duration),
)
_GUARANTEES: Final[Sequence[Column[AllotmentSummary]]] = (
    (lambda one: one.jobs, digits),
    (lambda one: one.slot_hours, digits),
    (lambda one: one.of_oracle, percent),
    (lambda one: one.above_oracle, percent),
    (lambda one: one.changes_per_job, digits),
)
_PLANS: Final[Sequence[Column[Distribution]]] = (
    (lambda one: one.count, digits),
    (lambda one: one.mean, duration),
    (lambda one: one.p90, duration),
    (lambda one: one.max, duration),
)


def deadline_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `DEADLINE_HEADS`, of the groups with deadlines; means over the seeds."""
    rows = []
    for group, found in means.having(groups, lambda run: run.deadlines):
        jobs, met, *others = means.cells(found, _DEADLINES)
        latest = max([one.relative.max for one in found if one.relative is not None], default=0.0)
        rows.append([group.label, jobs, met, percent(latest), *others])
    return rows


def guarantee_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `GUARANTEE_HEADS`, of the groups whose designs guarantee slots; means over the seeds."""
    return means.rows(groups, lambda run: run.allotments, _GUARANTEES)


def plan_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `PLAN_HEADS`, of the groups whose designs ask a solver; means over the seeds."""
    rows = []
    for group in groups:
        runs = [run for run in group.runs if run.compute_s is not None and "plan_jobs_count" in run.counters]
        found = [run.compute_s for run in runs if run.compute_s is not None]
        if not found:
            continue
        plans, *cpu = means.cells(found, _PLANS)
        asked = [run.counters for run in runs if "plan_variables_max" in run.counters]
        cells = [NOTHING] * 3
        if asked:
            gap = sum(counters["plan_gap_per_mille_mean"] for counters in asked) / len(asked) / 1000
            cells = [
                digits(max(c["plan_variables_max"] for c in asked)),
                digits(max(c["plan_rows_max"] for c in asked)),
            ]
            cells.append(percent(gap))
        rows.append([group.label, plans, *cpu, *cells])
    return rows
