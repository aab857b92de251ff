"""A timeline as SVG text: jobs, machines and utilisation on one axis of time.

A small run is a Gantt chart: a machine is a row of lanes (a lane per slot; where tasks ask for amounts, as many as ran
there at once), a task run is a bar in the colour of its job. Nine colours return in the order of the jobs; where there
is room a bar holds its job's number, and pointing at it tells the rest. A larger run is a heat map of its machines.
The same run gives the same bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from volery.look.html import escaped
from volery.look.text import broken_label, digits, duration, percent, shortened
from volery.metrics.arrays import Floats, Longs
from volery.report.folder import Timeline
from volery.report.plots import GRID, INK, PAGE, PALETTE, time_unit

WIDTH, LEFT, RIGHT = 446.0, 38.0, 14.0
"""Sizes of the picture in its own units; a page scales it, and its letters stay readable on a telephone."""
GAP, TITLE, LETTER, LINE = 13.0, 14.0, 11.0, 58
JOBS_HEIGHT, JOB_MAX, JOB_LEAST = 150.0, 10.0, 0.5
LANES_HEIGHT, LANE_MIN, LANE_MAX = 420.0, 2.2, 12.0
HEAT_HEIGHT, HEAT_ROW_MAX = 300.0, 12.0
CURVE_HEIGHT, CURVE_POINTS = 56.0, 250
LEVELS: Final = 10
"""The number of shades of a heat map; each stands for 100 / LEVELS percent."""
JOB_COLOURS: Final = tuple(one for place, one in enumerate(PALETTE) if place != 6)
"""All but the grey one."""
ON_BAR: Final = dict.fromkeys(PALETTE[1:6], "#111111")
"""Colours that take dark letters on a light and on a dark page alike; the others take the page's own."""
LEAST_WIDTH, BETWEEN = 0.4, 0.25
SECOND_US: Final = 1e6
ROUND: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""A small run has no more rows than that."""


def picture(timeline: Timeline) -> str:
    """The Gantt chart of a small run, the heat map of a larger one."""
    return gantt(timeline) if timeline.is_small else heat_map(timeline)


def gantt(timeline: Timeline) -> str:
    """Jobs, machines and utilisation of a small run; one `rect` in the group "taskruns" per task run."""
    runs = timeline.columns
    scale = _Scale(_begin_s(timeline), float(runs["finish_us"].max()) / SECOND_US)
    sheet = _Sheet(scale, f"{shortened(timeline.label)}, seed {timeline.seed}")

    jobs = list(_jobs(timeline))
    pitch = min(JOB_MAX, JOBS_HEIGHT / len(jobs))
    with_names = f"Jobs ({len(jobs):,}): thin while the first task waits, thick until the last ends"
    sheet.panel(with_names, pitch * len(jobs), _job_lines(jobs, pitch, scale))

    lanes = _Lanes(timeline)
    sheet.panel(
        f"Tasks on {timeline.machines:,} machines, in the colours of their jobs", lanes.height, lanes.drawn(scale)
    )
    _curve(sheet, timeline)

    count = len(runs["task"])
    killed = int(runs["killed"].sum())
    description = (
        f"Gantt chart: {count:,} task runs of {len(jobs):,} jobs on {timeline.machines:,} machines"
        + (f", {killed:,} of them killed (dashed frames)" if killed else "")
        + f", from {duration(scale.begin_s)} to {duration(scale.end_s)}."
    )
    return sheet.svg(description)


def heat_map(timeline: Timeline) -> str:
    """Utilisation of groups of machines over time, and of all below."""
    cells = timeline.columns
    scale = _Scale(float(cells["begin_us"].min()) / SECOND_US, float(cells["end_us"].max()) / SECOND_US)
    sheet = _Sheet(scale, f"{shortened(timeline.label)}, seed {timeline.seed}")

    first = np.unique(cells["machine"])
    height = min(HEAT_ROW_MAX, HEAT_HEIGHT / first.size)
    group = int(cells["machines"].max())
    machines = f"{timeline.machines:,} machines" + (f", up to {group:,} in a row" if group > 1 else "")

    sheet.panel(f"Utilisation of {machines}", height * first.size, _heat(cells, first, height, scale))
    sheet.legend()
    _curve(sheet, timeline)
    description = (
        f"Heat map: utilisation of {machines}, in {cells['percent'].size // first.size} intervals from "
        f"{duration(scale.begin_s)} to {duration(scale.end_s)}; the deeper, the busier."
    )
    return sheet.svg(description)


def _begin_s(timeline: Timeline) -> float:
    return min(
        float(timeline.submit_s.min()) if timeline.submit_s.size else 0.0,
        float(timeline.columns["start_us"].min()) / SECOND_US,
    )


class _Scale:
    """Seconds to units of the picture."""

    def __init__(self, begin_s: float, end_s: float) -> None:
        self.begin_s, self.end_s = begin_s, max(end_s, begin_s + 1e-6)
        self._per_s = (WIDTH - LEFT - RIGHT) / (self.end_s - self.begin_s)

    def x(self, at_s: float) -> float:
        return LEFT + (at_s - self.begin_s) * self._per_s

    def ticks(self) -> tuple[list[tuple[float, str]], str]:
        """Moments with their labels, and the unit of these."""
        divisor, unit = time_unit(self.end_s)
        low, high = self.begin_s / divisor, self.end_s / divisor
        step = 10.0 ** math.floor(math.log10((high - low) / 4))
        step *= next(factor for factor in (10, 5, 2, 1) if (high - low) / (step * factor) >= 4 or factor == 1)
        places = max(0, -math.floor(math.log10(step) + 1e-9))
        numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        return [(number * step * divisor, f"{number * step:,.{places}f}") for number in numbers], unit


class _Sheet:
    """Panels one below the other."""

    def __init__(self, scale: _Scale, title: str) -> None:
        self.scale = scale
        self._title = title
        self._parts = [
            plain_text(0, LETTER + TITLE * place, line, attributes=' font-weight="bold"')
            for place, line in enumerate(broken_label(shortened(title), LINE))
        ]
        self._y = TITLE * len(self._parts) + 4

    def panel(self, title: str, height: float, content: Iterable[str]) -> None:
        """A title, and what is drawn from y = 0 to the height."""
        self._parts.append(plain_text(0, self._y + LETTER, title))
        self._y += TITLE + 3
        lines = "".join(f"M{short(self.scale.x(at))} 0v{short(height)}" for at, _ in self.scale.ticks()[0])
        self._parts.append(f'<g transform="translate(0 {short(self._y)})">')
        self._parts.append(f'<path d="{lines}" stroke="{GRID}" stroke-width="0.6" fill="none"/>')
        self._parts += content
        self._parts.append("</g>")
        self._y += height + GAP

    def legend(self) -> None:
        side = 16.0
        for level in range(1, LEVELS + 1):
            self._parts.append(
                f'<rect x="{short(LEFT + side * (level - 1))}" y="{short(self._y - 6)}" width="{short(side)}" '
                f'height="8" fill="{PALETTE[0]}" fill-opacity="{short(level / LEVELS)}"/>'
            )
        end = LEFT + side * LEVELS + 5
        self._parts.append(plain_text(end, self._y + 2, "0 % to 100 % in use", size=LETTER - 1))
        self._y += 8 + GAP

    def axis(self) -> None:
        """The labels of the axis of time, below the last panel."""
        ticks, unit = self.scale.ticks()
        self._y -= GAP
        for at, label in ticks:
            self._parts.append(plain_text(self.scale.x(at), self._y + LETTER + 2, label, "middle"))
        self._y += 2 * LETTER + 6
        middle = (LEFT + WIDTH - RIGHT) / 2
        self._parts.append(plain_text(middle, self._y, f"time since the run began ({unit})", "middle"))
        self._y += 5

    def svg(self, description: str) -> str:
        """The picture, with what a reader who does not see it is told."""
        texts = f"<title>{escaped(self._title)}</title>\n<desc>{escaped(description)}</desc>"
        size = f'width="{short(WIDTH)}pt" height="{short(self._y)}pt" viewBox="0 0 {short(WIDTH)} {short(self._y)}"'
        frame = f'<svg {size} version="1.1" xmlns="http://www.w3.org/2000/svg" font-family="DejaVu Sans, sans-serif">'
        return "\n".join((frame, texts, *self._parts, "</svg>\n"))


def short(value: float) -> str:
    """A coordinate to a hundredth, as short as it is."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def plain_text(
    x: float, y: float, words: str, anchor: str = "start", size: float = 11.0, fill: str = INK, attributes: str = ""
) -> str:
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    at = f'x="{short(x)}" y="{short(y)}" font-size="{short(size)}"'
    return f'<text {at} fill="{fill}"{placed}{attributes}>{escaped(words)}</text>'


def _row_label(y: float, text: str) -> str:
    return plain_text(LEFT - 4, y + 3.5, text, "end", LETTER - 1)


def _colour(place: int) -> str:
    return JOB_COLOURS[place % len(JOB_COLOURS)]


def _jobs(timeline: Timeline) -> Iterator[tuple[int, float, float, float, int]]:
    """Per job that ran: its number, submission, first start, last end (seconds) and number of task runs."""
    runs = timeline.columns
    numbers, place, counts = np.unique(runs["job"], return_inverse=True, return_counts=True)

    start, end = np.full(numbers.size, np.inf), np.zeros(numbers.size)
    np.minimum.at(start, place, runs["start_us"] / SECOND_US)
    np.maximum.at(end, place, runs["finish_us"] / SECOND_US)
    for job, first, last, count in zip(numbers.tolist(), start.tolist(), end.tolist(), counts.tolist(), strict=True):
        submitted = float(timeline.submit_s[job]) if job < timeline.submit_s.size else first
        yield job, submitted, first, last, count


def _job_lines(jobs: list[tuple[int, float, float, float, int]], pitch: float, scale: _Scale) -> Iterator[str]:
    thick = max(JOB_LEAST, pitch * 0.75)
    thin = min(1.0, pitch * 0.3)
    yield '<g class="jobs">'
    for place, (job, submitted, first, last, count) in enumerate(jobs):
        middle = (place + 0.5) * pitch
        x, width = scale.x(first), max(LEAST_WIDTH, scale.x(last) - scale.x(first))
        waited = f"M{short(scale.x(submitted))} {short(middle)}H{short(x)}"
        description = (
            f"job {job}: submitted at {_s(submitted)}, first start after {duration(max(0.0, first - submitted))}, "
            f"{count} task runs until {_s(last)}"
        )
        yield (
            f"<g><title>{description}</title>"
            f'<path d="{waited}" stroke="{_colour(place)}" stroke-width="{short(thin)}"/>'
            f'<rect x="{short(x)}" y="{short(middle - thick / 2)}" width="{short(width)}" height="{short(thick)}" '
            f'fill="{_colour(place)}"/></g>'
        )
    yield "</g>"

    stride = _stride(len(jobs), pitch)
    yield from (_row_label((place + 0.5) * pitch, f"{jobs[place][0]}") for place in range(0, len(jobs), stride))


def _s(seconds: float) -> str:
    return f"{seconds:,.3f} s"


def _stride(rows: int, pitch: float) -> int:
    """Every so manieth row has room for its label; a round number."""
    least = min(rows, math.ceil(LETTER / pitch))
    return next(number for number in ROUND if number >= least)


class _Lanes:
    """The rows of the machines."""

    def __init__(self, timeline: Timeline) -> None:
        self._runs = timeline.columns
        self._per_machine: Longs = np.ones(timeline.machines, dtype=np.int64)
        self._per_machine[self._runs["machine"]] = self._runs["lanes"]
        total = int(self._per_machine.sum())
        self._lane = min(LANE_MAX, max(LANE_MIN, LANES_HEIGHT / total))

        gap = min(2.0, 0.25 * self._lane) if total > timeline.machines else 0.0
        heights = self._per_machine * self._lane + gap
        self._top: Floats = np.concatenate(([0.0], np.cumsum(heights)))
        self.height = float(self._top[-1])

    def drawn(self, scale: _Scale) -> Iterator[str]:
        machines = self._per_machine.size
        stripes = "".join(
            f"M{short(LEFT)} {short(self._top[m])}H{short(WIDTH - RIGHT)}V{short(self._top[m + 1])}H{short(LEFT)}z"
            for m in range(1, machines, 2)
        )
        yield f'<path d="{stripes}" fill="{GRID}" fill-opacity="0.35"/>'

        stride = _stride(machines, self.height / machines)
        last = -math.inf
        for m in range(0, machines, stride):
            middle = float(self._top[m] + self._top[m + 1]) / 2
            if middle >= last + LETTER - 1:  # rows of one lane lie closer than the mean
                yield _row_label(middle, f"{m}")
                last = middle

        yield '<g class="taskruns">'
        runs = self._runs
        for place, job in enumerate(np.unique(runs["job"]).tolist()):
            colour = _colour(place)
            yield f'<g fill="{colour}">'
            yield from (self._bar(row, scale, colour) for row in np.flatnonzero(runs["job"] == job).tolist())
            yield "</g>"
        yield "</g>"

    def _bar(self, row: int, scale: _Scale, colour: str) -> str:
        of = {name: column[row].item() for name, column in self._runs.items()}
        start, finish = of["start_us"] / SECOND_US, of["finish_us"] / SECOND_US
        x, inset = scale.x(start), 0.08 * self._lane
        y, height = self._top[of["machine"]] + of["lane"] * self._lane + inset, self._lane - 2 * inset
        width = max(LEAST_WIDTH, scale.x(finish) - x - BETWEEN)

        description = f"job {of['job']}, task {of['task']}, machine {of['machine']}: {_s(start)} to {_s(finish)}"
        description += f", {percent(of['share'])} of it" if of["share"] < 1 else ""
        description += f", attempt {of['attempt']}" if of["attempt"] else ""
        description += ", killed" if of["killed"] else ""

        look = f' fill="none" stroke="{colour}" stroke-dasharray="2 1" stroke-width="0.8"' if of["killed"] else ""
        bar = (
            f'<rect x="{short(x)}" y="{short(y)}" width="{short(width)}" height="{short(height)}"{look}>'
            f"<title>{description}</title></rect>"
        )

        letters = f"{of['job']}"
        if not of["killed"] and height >= 7.5 and width >= 5 * len(letters) + 3:
            ink = ON_BAR.get(colour, PAGE)
            bar += plain_text(x + width / 2, y + height / 2 + 2.6, letters, "middle", 7.5, ink)
        return bar


def _heat(cells: dict[str, Longs], first: Longs, height: float, scale: _Scale) -> Iterator[str]:
    """A path per shade; neighbours in time of one shade are one stretch."""
    # Rounded up: a machine that was used at all has the lightest shade, not none.
    table = -(-cells["percent"].astype(np.int64) * LEVELS // 100).reshape(first.size, -1)
    bins = table.shape[1]
    edges = [scale.x(float(at) / SECOND_US) for at in (*cells["begin_us"][:bins], cells["end_us"][bins - 1])]

    paths: dict[int, list[str]] = {}
    for row in range(first.size):
        changes = np.flatnonzero(np.diff(table[row])) + 1
        bounds = [0, *changes.tolist(), bins]
        for low, high in itertools.pairwise(bounds):
            stretch = (
                f"M{short(edges[low])} {short(row * height)}H{short(edges[high])}v{short(height)}H{short(edges[low])}z"
            )
            paths.setdefault(int(table[row, low]), []).append(stretch)

    for level in sorted(paths.keys() - {0}):
        shade = short(level / LEVELS)
        yield f'<path d="{"".join(paths[level])}" fill="{PALETTE[0]}" fill-opacity="{shade}" class="heat"/>'
    yield (
        f'<rect x="{short(LEFT)}" y="0" width="{short(WIDTH - LEFT - RIGHT)}" height="{short(height * first.size)}" '
        f'fill="none" stroke="{GRID}" stroke-width="0.6"/>'
    )

    for row in range(0, first.size, _stride(first.size, height)):
        yield _row_label((row + 0.5) * height, f"{int(first[row]):,}")


def _curve(sheet: _Sheet, timeline: Timeline) -> None:
    """The last panel: utilisation of the whole cluster, averaged over equal intervals."""
    scale = sheet.scale
    times, values = timeline.curve
    points_per_step = max(1, -(-times.size // CURVE_POINTS))

    begins = times[::points_per_step]
    means = np.add.reduceat(values, np.arange(0, values.size, points_per_step)) / np.diff(
        [*range(0, values.size, points_per_step), values.size]
    )
    ends = [*begins[1:].tolist(), scale.end_s]

    line = [f"M{short(scale.x(scale.begin_s))} {short(CURVE_HEIGHT)}"]
    for begin, end, mean in zip(begins.tolist(), ends, means.tolist(), strict=True):
        line.append(f"H{short(scale.x(begin))}V{short(CURVE_HEIGHT * (1 - min(1.0, mean)))}H{short(scale.x(end))}")
    line.append(f"V{short(CURVE_HEIGHT)}")

    drawn = [
        f'<path d="{"".join(line)}z" fill="{PALETTE[0]}" fill-opacity="0.25"/>',
        f'<path d="{"".join(line[:-1])}" fill="none" stroke="{PALETTE[0]}" stroke-width="1"/>',
        f'<path d="M{short(LEFT)} {short(CURVE_HEIGHT)}H{short(WIDTH - RIGHT)}" stroke="{GRID}" stroke-width="0.8"/>',
        *(_row_label(CURVE_HEIGHT * (1 - share / 100), f"{share} %") for share in (0, 50, 100)),
    ]

    mean = float(values.mean()) if values.size else 0.0
    sheet.panel(f"Utilisation: {digits(100 * mean)} % on average", CURVE_HEIGHT, drawn)
    sheet.axis()
