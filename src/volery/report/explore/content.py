"""The content that a report's scripts read, within bounds; and the scripts, inline, under a policy.

The bounds keep a page of ten architectures on 300,000 tasks well below 5 MB; the same page, served, asks for the rest.
A browser runs these scripts and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import msgspec
import numpy as np

from volery.look.html import EMPTY, Markup, joined, tag
from volery.look.text import shortened
from volery.metrics import busy_time_us
from volery.metrics.arrays import Floats
from volery.report.explore.delays import (
    CELLS,
    DelayCounts,
    DelayGrid,
    Pair,
    RankedJobs,
    Rows,
    counted,
    kept_rows,
    pair,
    rank,
)
from volery.report.folder import StoredResults
from volery.report.groups import by_setting, group_runs
from volery.report.parquet import ConflictTable, RunJobs, under_label
from volery.report.plots import SeedCurves, over_seeds

SETTINGS_MAX: Final = 12
ROWS_MAX, ROWS_PER_LABEL_MAX = 30_000, 2_000
PAIRS_MAX: Final = 150


class TaskExplanation(msgspec.Struct, frozen=True, array_like=True):
    """The course of a task and the decisions about it; times in seconds, None where it did not happen.

    Args:
        job, place: the task is the one at this place of the job, from 0.
        submitted_s, started_s, finished_s, machine: facts of the attempt that counts; machine -1 where it never ran.
        steps: at_s, by, chosen, machine, asked, view_age_s, passed over as (scope, reason, units), decisions omitted.
    """

    job: int
    place: int
    submitted_s: float
    started_s: float | None
    finished_s: float | None
    machine: int
    steps: list[tuple[float, str, str, int, str, float, list[tuple[str, str, int]], int]]


class RunExplanation(msgspec.Struct, frozen=True):
    """A run that explains itself: its tasks that waited longest, of so many."""

    label: str
    seed: int
    total: int
    tasks: list[TaskExplanation]


class ComparedLabels(msgspec.Struct, frozen=True):
    """Labels, by number, that were run on the same workload and cluster."""

    name: str
    members: list[int]


class Content(msgspec.Struct, frozen=True):
    """All that a page embeds; lists run parallel to `labels`.

    Args:
        serves: true where a server answers further questions.
        conflicts: conflicts of the workloads over time.
        cells: number of cells on each side of a density of pairs.
        edition: the state of the folder that the page shows, where a server answers.
    """

    serves: bool
    labels: list[str]
    seeds: int
    settings: list[ComparedLabels]
    grid: DelayGrid
    counted: list[dict[str, DelayCounts]]
    rows: list[Rows]
    courses: list[Course | None]
    cells: int
    pairs: list[Pair]
    why: list[RunExplanation]
    conflicts: list[ConflictCourse] = []
    edition: str = ""


class ExploredContent(msgspec.Struct, frozen=True, eq=False):
    """The content, and the jobs behind it for what a server is asked."""

    content: Content
    ranked: list[RankedJobs]


def explored(
    results: StoredResults, explanations: Sequence[RunExplanation] = (), *, serves: bool = False
) -> ExploredContent:
    """Everything that the page holds of a results folder.

    Args:
        explanations: explanations of the runs that explain themselves.
        serves: true where a server answers what the page does not hold.
    """
    settings = by_setting(group_runs(results.summary.runs))[:SETTINGS_MAX]
    labels = [group.label for _, members in settings for group in members]
    number = {label: place for place, label in enumerate(labels)}

    grid, ranked = rank([under_label(results.jobs, label) for label in labels])
    groups = [ComparedLabels(shortened(name), [number[group.label] for group in members]) for name, members in settings]
    # A page without a server bears so many rows in all, which the labels share.
    rows_max = min(ROWS_PER_LABEL_MAX, ROWS_MAX // max(1, len(labels)))
    curves, waiting, refused = results.curves, results.waiting, results.refused

    content = Content(
        serves=serves,
        labels=list(map(shortened, labels)),
        seeds=len({run.seed for run in results.summary.runs}),
        settings=groups,
        grid=grid,
        counted=list(map(counted, ranked)),
        rows=[kept_rows(ranked_jobs, grid, 0 if serves else rows_max) for ranked_jobs in ranked],
        courses=[
            course(curves[label], waiting.get(label), ranked_jobs.runs, refused.get(label)) if label in curves else None
            for label, ranked_jobs in zip(labels, ranked, strict=True)
        ],
        cells=CELLS,
        pairs=[pair(a, b, ranked[a], ranked[b], grid) for a, b in _pairs(groups, with_others=not serves)],
        why=[msgspec.structs.replace(run, label=shortened(run.label)) for run in explanations],
        conflicts=[conflicts_of(conflict_table) for conflict_table in results.conflicts[:SETTINGS_MAX]],
    )

    return ExploredContent(content, ranked)


def _pairs(settings: Sequence[ComparedLabels], *, with_others: bool) -> list[tuple[int, int]]:
    """As many as a page bears: of each setting first those with its first label, and no others where a server can."""
    first = [(compared.members[0], other_label) for compared in settings for other_label in compared.members[1:]]
    other_pairs = [
        label_pair for compared in settings for label_pair in itertools.combinations(compared.members[1:], 2)
    ]
    return (first + other_pairs * with_others)[:PAIRS_MAX]


def as_json(content: Any) -> bytes:
    """JSON that may stand inside a script element: no character of it can end that."""
    encoded: bytes = msgspec.json.encode(content)

    for character in b"<>&":
        encoded = encoded.replace(bytes((character,)), b"\\u%04x" % character)
    return encoded.replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")


SCRIPTS: Final = ("core.js", "tables.js", "delays.js", "course.js", "conflicts.js", "pairs.js", "why.js")
STYLE: Final = "explore/explore.css"
CONTENT_ID: Final = "volery-content"


def script() -> str:
    """The scripts as one, which nothing outside it can reach."""
    files = resources.files("volery.report.explore")
    text = "\n".join(files.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{text}\nstart();\n}})();'


def policy(text: str, *, serves: bool = False) -> str:
    """The content security policy of a page with this script: no network but, where there is one, its own server."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    connect = "connect-src 'self'; " if serves else ""
    return (
        f"default-src 'none'; {connect}script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def head(text: str, *, serves: bool = False) -> Markup:
    """The element that states the policy."""
    return tag("meta", http_equiv="Content-Security-Policy", content=policy(text, serves=serves))


def scripted(content: Any, text: str) -> Markup:
    """The content and the script that reads it, for the end of a page."""
    content_element = tag("script", Markup(as_json(content).decode()), type="application/json", id=CONTENT_ID)
    return joined((content_element, tag("script", Markup(text))))


def mount(view: str) -> Markup:
    """The element in which a script draws a view; empty without scripts."""
    return tag("div", data_view=view)


def still(view: str, *pictures: Markup) -> Markup:
    """Pictures that stand for a view where no script draws it."""
    return tag("div", *pictures, data_still=view) if pictures else EMPTY


SECOND_US: Final = 1e6


class Course(msgspec.Struct, frozen=True):
    """One label over time, at moments evenly spaced from begin_s to (but without) end_s.

    Args:
        permille: busy slots per 1,000 slots, mean over seeds.
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
        refused: placements that were refused per second, at the same times; None where it is not known.
    """
    times, low, mean, high = over_seeds(curve)
    if not times.size:
        return None

    step = float(times[1] - times[0]) if times.size > 1 else 1.0
    has_many_seeds = len(curve.values) > 1
    return Course(
        round(float(times[0]), 6),
        round(float(times[-1]) + step, 6),
        _permille(mean),
        _permille(low) if has_many_seeds else [],
        _permille(high) if has_many_seeds else [],
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
        is_answered = (run.jrt_s >= 0) & (run.submit_s >= 0)
        begin = np.round(run.submit_s[is_answered] * SECOND_US).astype(np.int64)
        end = begin + np.round(run.jrt_s[is_answered] * SECOND_US).astype(np.int64)
        total += busy_time_us(begin, end, edges) / np.diff(edges)
    return total / len(runs)


def _permille(values: Floats) -> list[int]:
    return np.rint(1000 * values).astype(np.int64).tolist()  # type: ignore[no-any-return]  # numpy's lists


def short(values: Floats) -> list[float]:
    """Numbers of three digits; whole numbers stay whole."""
    numbers: list[Any] = [float(f"{value:.3g}") for value in values.tolist()]
    return [int(value) if value == int(value) else value for value in numbers]


class ConflictCourse(msgspec.Struct, frozen=True):
    """Conflicts per second of one workload, in intervals evenly spaced from begin_s to (but without) end_s.

    Args:
        waiting, collisions: means of the interval, averaged over seeds.
        waiting_max, collisions_max: values of the worst second of any seed.
    """

    name: str
    begin_s: float
    end_s: float
    waiting: list[float]
    waiting_max: list[float]
    collisions: list[float]
    collisions_max: list[float]


def conflicts_of(table: ConflictTable) -> ConflictCourse:
    """The conflicts for the script of the page; the last interval may end before the place that its width gives it."""
    begin = float(table.begin_s[0])
    width = float(table.end_s[0]) - begin
    return ConflictCourse(
        shortened(table.title),
        begin,
        begin + width * len(table.begin_s),
        short(table.mean["waiting"]),
        short(table.largest["waiting"]),
        short(table.mean["collisions"]),
        short(table.largest["collisions"]),
    )
