"""A page that plays a kept run: the cluster as a field of cells coloured by state, with its queues below."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from volery.report import gantt
from volery.report.elements import figure, section, shown
from volery.report.explore import embed
from volery.report.explore.content import Setting
from volery.report.explore.course import Course, course
from volery.report.folder import KeptTimeline, Results, Timeline, read_timeline
from volery.report.page import page
from volery.report.plots import Curve
from volery.report.rows import under_label

SCRIPTS: Final = ("core.js", "tables.js", "course.js", "watch.js")
SECOND_US: Final = 1e6


class PlayedTasks(msgspec.Struct, frozen=True):
    """Task runs as columns, by start: cell, numbers of job and task, begin and end, whether it was killed."""

    cell: list[int]
    job: list[int]
    task: list[int]
    start_s: list[float]
    end_s: list[float]
    killed: list[bool]


class Played(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run to be played.

    Args:
        machines: how many there are.
        begin_s, end_s: seconds since the run began.
        cells: of a small run, machine and lane of each cell; a machine that ran nothing has one.
        tasks: of a small run.
        groups: of a larger run, the first machine and the number of machines in each cell.
        edges_s: of a larger run, the bounds of its intervals.
        percent: of a larger run, how busy each group was in each interval.
    """

    machines: int
    begin_s: float
    end_s: float
    cells: list[tuple[int, int]] = []
    tasks: PlayedTasks | None = None
    groups: list[tuple[int, int]] = []
    edges_s: list[float] = []
    percent: list[list[int]] = []


class Film(msgspec.Struct, frozen=True):
    """What the page embeds: the run, and its course in the form of a report's."""

    run: Played
    labels: list[str]
    seeds: int
    settings: list[Setting]
    courses: list[Course | None]


def watch_page(results: Results, kept: KeptTimeline) -> str:
    """The page of one run that the folder has kept, as text.

    Raises:
        InputError: when a file of the folder is missing or damaged.
    """
    one = read_timeline(results.path, kept)
    film = Film(played(one), [shown(kept.label)], 1, [Setting("", [0])], [_course(results, kept)])
    script = embed.script(SCRIPTS)
    picture = figure(gantt.picture(one), "run", "What ran where and when.")
    sections = (
        section("The cluster", embed.mount("watch"), embed.still("watch", picture)),
        section("Over time", embed.mount("course")),
    )
    title = f"{shown(kept.label)}, seed {kept.seed}"
    return page(
        title,
        f"{kept.machines:,} machines, Volery {results.manifest.volery_version}",
        sections,
        embed.STYLE,
        head=embed.head(script),
        tail=embed.scripted(film, script),
    )


def played(one: Timeline) -> Played:
    """The run as the script reads it."""
    return _small(one) if one.is_small else _large(one)


def _small(one: Timeline) -> Played:
    runs = one.columns
    lanes = np.ones(one.machines, dtype=np.int64)
    lanes[runs["machine"]] = runs["lanes"]
    first = np.cumsum(lanes) - lanes
    order = np.lexsort((runs["task"], runs["start_us"]))
    seconds = {name: np.round(runs[f"{name}_us"][order] / SECOND_US, 6) for name in ("start", "finish")}
    cells = (first[runs["machine"]] + runs["lane"])[order]
    submitted = [float(one.submit_s.min())] if one.submit_s.size else []
    return Played(
        one.machines,
        min(*submitted, float(seconds["start"].min())) if submitted else float(seconds["start"].min()),
        float(seconds["finish"].max()),
        cells=[(machine, lane) for machine in range(one.machines) for lane in range(int(lanes[machine]))],
        tasks=PlayedTasks(
            cells.tolist(),
            runs["job"][order].tolist(),
            runs["task"][order].tolist(),
            seconds["start"].tolist(),
            seconds["finish"].tolist(),
            runs["killed"][order].tolist(),
        ),
    )


def _large(one: Timeline) -> Played:
    heat: dict[str, Any] = one.columns
    first, rows = np.unique(heat["machine"], return_index=True)
    bins = heat["percent"].size // first.size
    begin, end = heat["begin_us"][rows[0] : rows[0] + bins], heat["end_us"][rows[0] : rows[0] + bins]
    edges = np.round(np.append(begin, end[-1]) / SECOND_US, 6).tolist()
    return Played(
        one.machines,
        edges[0],
        edges[-1],
        groups=list(zip(first.tolist(), heat["machines"][rows].tolist(), strict=True)),
        edges_s=edges,
        percent=[heat["percent"][row : row + bins].tolist() for row in rows.tolist()],
    )


def _course(results: Results, kept: KeptTimeline) -> Course | None:
    """Of this run alone; curves and jobs of a label stand in the order of their seeds."""
    runs = under_label(results.jobs, kept.label)
    place = next((at for at, run in enumerate(runs) if run.seed == kept.seed), None)
    curve, queue = results.curves.get(kept.label), results.waiting.get(kept.label)
    if place is None or curve is None or place >= len(curve.values):
        return None
    alone = [
        Curve(found.label, found.times_s[place : place + 1], found.values[place : place + 1]) if found else None
        for found in (curve, queue)
    ]
    assert alone[0] is not None
    return course(alone[0], alone[1], [runs[place]])
