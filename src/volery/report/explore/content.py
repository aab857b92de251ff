"""The content that a report's scripts read: labels, settings, delays, courses, pairs and reasons, within bounds.

The bounds keep a page of ten architectures on 300,000 tasks well below 5 MB; the same page, served, asks for the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from volery.look.text import shortened
from volery.report.explore.course import ConflictCourse, Course, conflicts_of, course
from volery.report.explore.delays import DelayCounts, Rows, counted, kept_rows
from volery.report.explore.pairs import Pair, pair
from volery.report.explore.ranked import CELLS, DelayGrid, RankedJobs, rank
from volery.report.folder import StoredResults
from volery.report.groups import by_setting, group_runs
from volery.report.parquet import under_label

SETTINGS_MAX: Final = 12
ROWS_MAX, ROWS_PER_LABEL_MAX = 30_000, 2_000
PAIRS_MAX: Final = 150


class TaskExplanation(msgspec.Struct, frozen=True, array_like=True):
    """The course of a task and the decisions about it; times in seconds, None where it did not happen.

    Args:
        job, place: the task is the one at this place of the job, from 0.
        submitted_s, started_s, finished_s, machine: of the attempt that counts; machine -1 where it never ran.
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
        serves: whether a server answers further questions.
        seeds: how many.
        conflicts: what the workloads ask for, over time.
        cells: on each side of a density of pairs.
        edition: of a folder that is served, which state of it this is.
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
    """The content, and the jobs behind it for what a server is asked.

    Args:
        content: what the page embeds.
        ranked: the jobs of each label.
    """

    content: Content
    ranked: list[RankedJobs]


def explored(results: StoredResults, why: Sequence[RunExplanation] = (), *, serves: bool = False) -> ExploredContent:
    """Everything that the page holds of a results folder.

    Args:
        results: as read from the folder.
        why: of runs that explain themselves.
        serves: whether a server answers what the page does not hold.
    """
    settings = by_setting(group_runs(results.summary.runs))[:SETTINGS_MAX]
    labels = [group.label for _, members in settings for group in members]
    number = {label: place for place, label in enumerate(labels)}
    grid, ranked = rank([under_label(results.jobs, label) for label in labels])
    groups = [ComparedLabels(shortened(name), [number[group.label] for group in members]) for name, members in settings]
    most = min(ROWS_PER_LABEL_MAX, ROWS_MAX // max(1, len(labels)))
    curves, waiting, refused = results.curves, results.waiting, results.refused
    found = Content(
        serves=serves,
        labels=list(map(shortened, labels)),
        seeds=len({run.seed for run in results.summary.runs}),
        settings=groups,
        grid=grid,
        counted=list(map(counted, ranked)),
        rows=[kept_rows(of, grid, 0 if serves else most) for of in ranked],
        courses=[
            course(curves[label], waiting.get(label), of.runs, refused.get(label)) if label in curves else None
            for label, of in zip(labels, ranked, strict=True)
        ],
        cells=CELLS,
        pairs=[pair(a, b, ranked[a], ranked[b], grid) for a, b in _pairs(groups, everything=not serves)],
        why=[msgspec.structs.replace(run, label=shortened(run.label)) for run in why],
        conflicts=[conflicts_of(one) for one in results.conflicts[:SETTINGS_MAX]],
    )
    return ExploredContent(found, ranked)


def _pairs(settings: Sequence[ComparedLabels], *, everything: bool) -> list[tuple[int, int]]:
    """As many as a page bears: of each setting first those with its first label, and no others where a server can."""
    first = [(one.members[0], other) for one in settings for other in one.members[1:]]
    others = [both for one in settings for both in itertools.combinations(one.members[1:], 2)]
    return (first + others * everything)[:PAIRS_MAX]


def as_json(content: Any) -> bytes:
    """JSON that may stand inside a script element: no character of it can end that."""
    found: bytes = msgspec.json.encode(content)
    for character in b"<>&":
        found = found.replace(bytes((character,)), b"\\u%04x" % character)
    return found.replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")
