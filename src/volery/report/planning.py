"""Deadlines, what was guaranteed to meet them, and what planners spent on them: rows under the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.report.groups import RunGroup
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


def deadline_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `DEADLINE_HEADS`, of the groups with deadlines; means over the seeds."""
    rows = []
    for group in groups:
        found = [run.deadlines for run in group.runs if run.deadlines is not None]
        if found:
            columns = [
                (one.jobs, one.attainment, one.best_effort_jrt_s.mean, one.best_effort_jrt_s.p90) for one in found
            ]
            jobs, met, mean, p90 = (sum(column) / len(found) for column in zip(*columns, strict=True))
            latest = max([one.relative.max for one in found if one.relative is not None], default=0.0)
            rows.append([group.label, digits(jobs), percent(met), percent(latest), duration(mean), duration(p90)])
    return rows


def guarantee_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `GUARANTEE_HEADS`, of the groups whose designs guarantee slots; means over the seeds."""
    rows = []
    for group in groups:
        found = [run.allotments for run in group.runs if run.allotments is not None]
        if found:
            columns = [
                (one.jobs, one.slot_hours, one.of_oracle, one.above_oracle, one.changes_per_job) for one in found
            ]
            jobs, hours, of, above, changes = (sum(column) / len(found) for column in zip(*columns, strict=True))
            rows.append([group.label, digits(jobs), digits(hours), percent(of), percent(above), digits(changes)])
    return rows


def plan_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `PLAN_HEADS`, of the groups whose designs ask a solver; means over the seeds."""
    rows = []
    for group in groups:
        runs = [run for run in group.runs if run.compute_s is not None and "plan_jobs_count" in run.counters]
        found = [run.compute_s for run in runs if run.compute_s is not None]
        if not found:
            continue
        columns = [(one.count, one.mean, one.p90, one.max) for one in found]
        plans, mean, p90, longest = (sum(column) / len(found) for column in zip(*columns, strict=True))
        asked = [run.counters for run in runs if "plan_variables_max" in run.counters]
        cells = [NOTHING] * 3
        if asked:
            gap = sum(counters["plan_gap_per_mille_mean"] for counters in asked) / len(asked) / 1000
            cells = [
                digits(max(c["plan_variables_max"] for c in asked)),
                digits(max(c["plan_rows_max"] for c in asked)),
            ]
            cells.append(percent(gap))
        rows.append([group.label, digits(plans), duration(mean), duration(p90), duration(longest), *cells])
    return rows
