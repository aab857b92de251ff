"""A page that plays a run: the cluster as a field of cells, messages, queues, what schedulers believe.

A folder keeps what ran where; the rest is there where a camera has looked on (`volery.metrics.filming`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.core.film import KILLED, Filmed
from volery.metrics import busy_time_us
from volery.metrics.timeline import TASK_RUNS, laid_out
from volery.report import gantt
from volery.report.elements import figure, section, shown
from volery.report.explore import embed
from volery.report.explore.content import Setting
from volery.report.explore.course import Course, course
from volery.report.explore.roles import Said, said, still_roles
from volery.report.folder import KeptTimeline, Results, Timeline, read_timeline
from volery.report.page import page
from volery.report.plots import Curve
from volery.report.rows import under_label

SCRIPTS: Final = ("core.js", "tables.js", "field.js", "course.js", "roles.js", "watch.js")
SECOND_US: Final = 1e6
MOMENTS_MAX: Final = 60
Bounds = Callable[[int, int], tuple[int, int]]
"""Of the whole run -> of what is shown of it, microseconds."""


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


class Film(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the page embeds: the run, its course in the form of a report's, and what a camera saw.

    Args:
        moments: seconds, and what is of interest then.
    """

    run: Played
    labels: list[str]
    seeds: int
    settings: list[Setting]
    courses: list[Course | None]
    moments: list[tuple[float, str]] = []
    said: Said | None = None


def watch_page(
    results: Results, kept: KeptTimeline, filmed: Filmed | None = None, bounds: Bounds | None = None
) -> str:  # fmt: skip
    """The page of one run that the folder has kept, as text.

    Args:
        results: the folder.
        kept: the run.
        filmed: what a camera has seen of it.
        bounds: of the part that is shown.

    Raises:
        InputError: when a file of the folder is missing or damaged.
    """
    one = read_timeline(results.path, kept)
    machines = f"{kept.machines:,} machines, Volery {results.manifest.volery_version}"
    return _page(f"{shown(kept.label)}, seed {kept.seed}", machines, one, _course(results, kept), filmed, bounds)


def journal_page(title: str, subtitle: str, filmed: Filmed, slots: Sequence[int]) -> str:
    """The page of what a federation has lived through, as text.

    Args:
        title, subtitle: of the page.
        filmed: what a camera has seen while its journals were played.
        slots: per machine.

    Raises:
        InputError: no task has run.
    """
    ran = {name: np.array(column, dtype=np.int64) for name, column in filmed.attempts.items()}
    ran["killed"] = ran.pop("outcome") == KILLED
    laid = laid_out(ran, slots, filmed.begin_us)
    if not laid:
        raise InputError(title, "no task has run in it; there is nothing to play")
    edges = filmed.begin_us + filmed.step_us * np.arange(len(filmed.sent[0]) + 1)
    busy = busy_time_us(ran["start_us"], ran["finish_us"], edges, None) / (filmed.step_us * sum(slots))
    waiting = np.sum([role.waiting for role in filmed.roles], axis=0)
    curve = (edges[:-1] / SECOND_US, busy)
    one = Timeline(title, 0, len(slots), TASK_RUNS in laid, next(iter(laid.values())), np.zeros(0), curve)
    told = Course(
        filmed.begin_us / SECOND_US, float(edges[-1]) / SECOND_US, np.rint(1000 * busy).astype(int).tolist(), [], [],
        waiting.tolist(), [],
    )  # fmt: skip
    return _page(
        title, subtitle, one, told, filmed, lambda first, last: (max(first, filmed.begin_us), min(last, filmed.end_us))
    )


def _page(
    title: str, subtitle: str, one: Timeline, along: Course | None, filmed: Filmed | None, bounds: Bounds | None = None
) -> str:  # fmt: skip
    run = played(one)
    if bounds is not None:
        begin_us, end_us = bounds(int(run.begin_s * SECOND_US), round(run.end_s * SECOND_US))
        run = msgspec.structs.replace(run, begin_s=begin_us / SECOND_US, end_s=end_us / SECOND_US)
    told = None if filmed is None else said(filmed)
    film = Film(run, [title], 1, [Setting("", [0])], [along], _moments(run, along, filmed), told)
    script = embed.script(SCRIPTS)
    picture = figure(gantt.picture(one), "run", "What ran where and when.")
    sections = [section("The cluster", embed.mount("watch"), embed.still("watch", picture))]
    if told is not None:
        sections.append(section("Messages", embed.mount("roles"), embed.still("roles", still_roles(told))))
    sections.append(section("Over time", embed.mount("course")))
    return page(title, subtitle, sections, embed.STYLE, head=embed.head(script), tail=embed.scripted(film, script))


def _moments(run: Played, along: Course | None, filmed: Filmed | None) -> list[tuple[float, str]]:
    """What a viewer would look for: the fullest queue, the first task that was killed, and what a camera noticed."""
    found = [] if filmed is None else [(at / SECOND_US, shown(what)) for at, what in filmed.moments]
    if along is not None and along.waiting and max(along.waiting) > 0:
        most = max(along.waiting)
        step_s = (along.end_s - along.begin_s) / len(along.waiting)
        found.append((along.begin_s + along.waiting.index(most) * step_s, f"most tasks wait: {most:,.0f}"))
    if run.tasks is not None and any(run.tasks.killed):
        first = min(end for end, killed in zip(run.tasks.end_s, run.tasks.killed, strict=True) if killed)
        found.append((first, "first task that is killed"))
    found = [(at, what) for at, what in found if run.begin_s <= at <= run.end_s]
    if len(found) > MOMENTS_MAX:
        found = found[:: -(-len(found) // MOMENTS_MAX)]
    return sorted(found)


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
