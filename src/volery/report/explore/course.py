"""Courses over time as a page holds them: utilisation, waiting tasks, unfinished jobs, conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from volery.look.text import shortened
from volery.metrics import busy_time_us
from volery.metrics.columns import Floats
from volery.report.demand import ConflictTable
from volery.report.parquet import RunJobs
from volery.report.plots import SeedCurves, over_seeds

POINTS: Final = 1000
"""As many as a run keeps."""
SECOND_US: Final = 1e6


class Course(msgspec.Struct, frozen=True):
    """One label over time, at moments evenly spaced from begin_s to (but without) end_s.

    Args:
        permille: of the slots that are busy, mean over seeds.
        low, high: the range over seeds; empty with one seed.
        waiting: tasks that could start and have not; empty where the runs have not kept them.
        refused: placements that were refused, per second; empty where the runs report none.
        unfinished: jobs that are submitted and not answered.
    """

    begin_s: float
    end_s: float
    permille: list[int]
    low: list[int]
    high: list[int]
    waiting: list[float]
    unfinished: list[float]
    refused: list[float] = []


def course(
    curve: SeedCurves, waiting: SeedCurves | None, runs: Sequence[RunJobs], refused: SeedCurves | None = None
) -> Course | None:
    """One label over time; None where its runs have no curve.

    Args:
        curve: utilisation per seed.
        waiting: tasks that wait, at the same times; None where it is not known.
        runs: the jobs of the same runs.
        refused: placements that were refused per second, likewise.
    """
    times, low, mean, high = over_seeds(curve)
    if not times.size:
        return None
    step = float(times[1] - times[0]) if times.size > 1 else 1.0
    many = len(curve.values) > 1
    return Course(
        round(float(times[0]), 6),
        round(float(times[-1]) + step, 6),
        _permille(mean),
        _permille(low) if many else [],
        _permille(high) if many else [],
        _mean(waiting),
        short(unfinished(runs, times, step)),
        _mean(refused),
    )


def _mean(curve: SeedCurves | None) -> list[float]:
    """Over seeds; empty where it is not known of all."""
    mean = over_seeds(curve)[2] if curve is not None else np.zeros(0)
    return short(mean) if np.isfinite(mean).all() else []


def unfinished(runs: Sequence[RunJobs], times_s: Floats, step_s: float) -> Floats:
    """Jobs that are submitted and not answered, as averages of the intervals, and over the runs."""
    edges = np.round(np.append(times_s, times_s[-1] + step_s) * SECOND_US).astype(np.int64)
    if not runs or not bool((np.diff(edges) > 0).all()):
        return np.zeros(0)
    total = np.zeros(times_s.size)
    for run in runs:
        known = (run.jrt_s >= 0) & (run.submit_s >= 0)
        begin = np.round(run.submit_s[known] * SECOND_US).astype(np.int64)
        end = begin + np.round(run.jrt_s[known] * SECOND_US).astype(np.int64)
        total += busy_time_us(begin, end, edges) / np.diff(edges)
    return total / len(runs)


def _permille(values: Floats) -> list[int]:
    return np.rint(1000 * values).astype(np.int64).tolist()  # type: ignore[no-any-return]  # numpy's lists


def short(values: Floats) -> list[float]:
    """Numbers of three digits; whole numbers stay whole."""
    found: list[Any] = [float(f"{value:.3g}") for value in values.tolist()]
    return [int(value) if value == int(value) else value for value in found]


class ConflictCourse(msgspec.Struct, frozen=True):
    """Conflicts per second of one workload, in intervals evenly spaced from begin_s to (but without) end_s.

    Args:
        name: of workload and cluster.
        waiting, collisions: mean of the interval, mean over seeds.
        waiting_max, collisions_max: of the worst second, of any seed.
    """

    name: str
    begin_s: float
    end_s: float
    waiting: list[float]
    waiting_max: list[float]
    collisions: list[float]
    collisions_max: list[float]


def conflicts_of(found: ConflictTable) -> ConflictCourse:
    """As the page's script reads them; the last interval may end before the place that its width gives it."""
    begin = float(found.begin_s[0])
    width = float(found.end_s[0]) - begin
    return ConflictCourse(
        shortened(found.title),
        begin,
        begin + width * len(found.begin_s),
        short(found.mean["waiting"]),
        short(found.largest["waiting"]),
        short(found.mean["collisions"]),
        short(found.largest["collisions"]),
    )
