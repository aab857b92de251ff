"""Mappings of schedulers to the stages of the reference architecture, and their page (`volery stages --html`).

Andreadis et al., SC18, section IV: full matches count 100 %, partial ones 50 %, no match 0 %, and a group of stages has
their mean. Ours are rated by what the code does, theirs by what their publications describe: figures of the two kinds
stand beside each other, they do not compete. The page has heat maps as in figures 5 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from volery.core.component import Architecture
from volery.core.stages import BY_GROUP, GROUPS, POLICIES, STAGES, Group, Realisation, Stage
from volery.look.html import Markup, paragraph, scrolled_table, section, tag
from volery.report.page import TableRow, page, table
from volery.report.plots import GRID, INK, PAGE, PALETTE, Size, blank_figure, style, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Mark = Literal["full", "partial", "none", "undetermined"]
MARKS: Final[dict[str, Mark]] = {"F": "full", "~": "partial", ".": "none", "?": "undetermined"}
SYMBOLS: Final[dict[Mark, str]] = {mark: symbol for symbol, mark in MARKS.items()}
RATINGS: Final[dict[Mark, float]] = {"full": 100.0, "partial": 50.0, "none": 0.0}
CLASSES: Final = ("academia", "industry", "before 2010", "since 2010")
SHOWN: Final[dict[Mark, str]] = {"full": "✓", "partial": "~", "none": "", "undetermined": "?"}
LEGEND: Final[dict[Mark, str]] = {
    "full": "full match",
    "partial": "partial match",
    "none": "no match",
    "undetermined": "undetermined: columns are lost in the text that is to be had",
}
Bounds = Mapping[Stage, tuple[float, float]]


class PublishedMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scheduler of the paper's; the fields are explained in published_stages.toml."""

    name: str
    source: str
    designed: Literal["academia", "industry"]
    published: Literal["before 2010", "since 2010"]
    clusters: Literal["single", "multi"]
    percent: dict[Group, int]
    selected: str
    printed: dict[Group, str]
    cells: dict[Group, str]


class PublishedMappings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The paper's mappings, and mean matches by class and stage.

    Args:
        scheduler: the schedulers in the order of the paper's tables.
        means: means as the paper's tables III and VIII print them, per cent.
        ranges: the least and the greatest mean that the stages can have which those tables leave out.
    """

    scheduler: tuple[PublishedMapping, ...]
    means: dict[str, dict[Stage, int]]
    ranges: dict[str, dict[Stage, tuple[float, float]]]


class MappingRow(msgspec.Struct, frozen=True):
    """A scheduler in the matrix.

    Args:
        name: name of the architecture, or of the published scheduler.
        source: the publication that describes it.
        marks: one per stage.
        percent: mean match per group; for published ones from all symbols of the row, so that it is exact even where
            it is not known in which column a symbol stands.
        bounds: the least and the greatest rating that each stage may have, in per cent.
        methods: methods that realise the stages, of our architectures alone.
    """

    name: str
    source: str
    marks: Mapping[Stage, Mark]
    percent: Mapping[Group, float]
    bounds: Mapping[Stage, tuple[float, float]]
    methods: Mapping[Stage, Realisation] = {}

    @property
    def published(self) -> bool:
        """True for a mapping of the paper, false for ours."""
        return not self.methods

    def symbols(self, group: Group) -> str:
        """The group's marks as one character each."""
        return "".join(SYMBOLS[self.marks[stage]] for stage in BY_GROUP[group])


@cache
def paper() -> PublishedMappings:
    """The paper's tables as far as they can be known."""
    text = resources.files("volery.report").joinpath("published_stages.toml").read_bytes()
    return msgspec.toml.decode(text, type=PublishedMappings)


def declared(architecture: Architecture) -> MappingRow:
    """The mapping that a registry entry declares."""
    methods = architecture.stages
    marks: dict[Stage, Mark] = {stage: methods[stage].extent if stage in methods else "none" for stage in Stage}
    percent = {group: mean(RATINGS[marks[stage]] for stage in stages) for group, stages in BY_GROUP.items()}
    bounds = {stage: (RATINGS[mark], RATINGS[mark]) for stage, mark in marks.items()}
    return MappingRow(architecture.name, architecture.source, marks, percent, bounds, methods)


def from_paper() -> list[MappingRow]:
    """The fourteen schedulers in the paper's order."""
    return [_row(scheduler) for scheduler in paper().scheduler]


def _row(scheduler: PublishedMapping) -> MappingRow:
    marks: dict[Stage, Mark] = {}
    bounds: dict[Stage, tuple[float, float]] = {}
    percent: dict[Group, float] = {}
    for group, stages in BY_GROUP.items():
        printed, cells = scheduler.printed[group], scheduler.cells[group]
        percent[group] = sum(RATINGS[MARKS[symbol]] for symbol in printed) / len(stages)

        # The paper prints marks per group, and names the stage of some alone: the remaining marks belong to unknown
        # stages. The bounds of these stages are the least and the greatest of the marks that are left.
        unplaced = [symbol for symbol in "F~" for _ in range(printed.count(symbol) - cells.count(symbol))]
        ratings = [RATINGS[MARKS[symbol]] for symbol in unplaced]
        least = min(ratings) if ratings and len(ratings) == cells.count("?") else 0.0

        for stage, symbol in zip(stages, cells, strict=True):
            mark = marks[stage] = MARKS[symbol]
            rating = RATINGS.get(mark)
            bounds[stage] = (least, max(ratings)) if rating is None else (rating, rating)
    return MappingRow(scheduler.name, scheduler.source, marks, percent, bounds)


def of_class(name: str) -> list[MappingRow]:
    """The published schedulers of one of `CLASSES`."""
    members = [scheduler.name for scheduler in paper().scheduler if name in (scheduler.designed, scheduler.published)]
    return [row for row in from_paper() if row.name in members]


def mean_bounds(rows: Sequence[MappingRow], stage: Stage) -> tuple[float, float]:
    """The least and the greatest mean match of a stage, in per cent: equal where every row is determined."""
    return mean(row.bounds[stage][0] for row in rows), mean(row.bounds[stage][1] for row in rows)


def class_means(name: str) -> dict[Stage, tuple[float, float]]:
    """Mean match of each stage in one of `CLASSES`, per cent: as the paper prints it, else between two bounds."""
    printed = {stage: (float(mean), float(mean)) for stage, mean in paper().means[name].items()}
    return printed | paper().ranges[name]


def cut() -> list[str]:
    """The cells of the paper's table II that print less than the rounded percentage, in words."""
    return [
        f"{scheduler.name} {group} {scheduler.percent[group]} for {row.percent[group]:.1f}"
        for scheduler, row in zip(paper().scheduler, from_paper(), strict=True)
        for group in BY_GROUP
        if scheduler.percent[group] != whole(row.percent[group])
    ]


def whole(percent: float) -> int:
    """A percentage as the paper rounds most of them: halves go up."""
    return math.floor(percent + 0.5)


def mean(values: Iterable[float]) -> float:
    """The mean of at least one value."""
    numbers = list(values)
    return sum(numbers) / len(numbers)


def render(ours: Sequence[MappingRow], theirs: Sequence[MappingRow]) -> str:
    """The page as text; `theirs` is empty where the paper's mappings are not wanted."""
    boxes = [_panel("Volery", {stage: mean_bounds(ours, stage) for stage in Stage}, frozenset())]

    classes = CLASSES if theirs else ()
    boxes += [_panel(name.capitalize(), class_means(name), frozenset(paper().means[name])) for name in classes]
    return page(
        "Stages of schedulers",
        "The reference architecture of Andreadis, Versluis, Mastenbroek, Iosup, SC18: 33 stages in four groups",
        (
            section("Who has which stage", _legend(theirs), _matrix(ours, theirs), *map(_note, _remarks(theirs))),
            section(
                "How often a stage is there", *map(_note, _about_means(theirs)), tag("div", *boxes, class_="panels")
            ),
            section("Which methods do the work", _methods(ours)),
            section("The stages", _stages()),
            section("Sources", _sources([*ours, *theirs])),
        ),
        "stages.css",
    )


def _note(text: str) -> Markup:
    return paragraph(text, "note")


def _remarks(theirs: Sequence[MappingRow]) -> Iterator[str]:
    yield "Percentages: means over a group's stages; a full match counts 100, a partial one 50. Ours rate the code."
    if theirs:
        yield (
            "Theirs are the paper's, which rates what publications describe. Their percentages are exact, for the "
            "symbols of a row are known even where their columns are not. Its table II cuts what it rounds elsewhere: "
            + ", ".join(cut())
            + "."
        )


def _about_means(theirs: Sequence[MappingRow]) -> Iterator[str]:
    yield "Mean match in per cent over the schedulers of a class: the deeper the colour, the more have the stage."
    if theirs:
        yield (
            "A box with two colours is known to lie between two values. A box with a frame has the value that the "
            "paper's tables III and VIII print, where the classes differ most."
        )


def _legend(theirs: Sequence[MappingRow]) -> Markup:
    marks = [mark for mark in LEGEND if theirs or mark != "undetermined"]
    entries = (tag("span", tag("i", SHOWN[mark], class_=mark), LEGEND[mark]) for mark in marks)
    return tag("div", *entries, class_="legend")


def _matrix(ours: Sequence[MappingRow], theirs: Sequence[MappingRow]) -> Markup:
    heads = [tag("th")]
    heads += [
        tag("th", stage.value, class_=None if place else "opens", title=STAGES[stage].name)
        for stages in BY_GROUP.values()
        for place, stage in enumerate(stages)
    ]
    heads += [tag("th", f"{group} %", title=GROUPS[group]) for group in BY_GROUP]

    body = [*map(_line, ours)]
    if theirs:
        titles = ("Volery", "as the paper maps them")
        own, paper_s = (tag("tr", tag("th", title, colspan=len(heads)), class_="head") for title in titles)
        body = [own, *body, paper_s, *map(_line, theirs)]
    return scrolled_table(heads, body, "matrix")


def _line(row: MappingRow) -> Markup:
    cells = [
        tag(
            "td",
            SHOWN[row.marks[stage]],
            class_=f"cell {row.marks[stage]}{'' if place else ' opens'}",
            title=_said(row, stage),
        )
        for stages in BY_GROUP.values()
        for place, stage in enumerate(stages)
    ]

    cells += [tag("td", whole(row.percent[group]), class_="percent") for group in BY_GROUP]
    return tag("tr", tag("th", row.name), *cells)


def _said(row: MappingRow, stage: Stage) -> str:
    description = f"{row.name}, {stage.value} {STAGES[stage].name}: {row.marks[stage]}"
    method = row.methods.get(stage)
    if method is None:
        return description
    condition = f" (with {method.when})" if method.when else ""
    return f"{description} by {method.method}{condition}" + (f": {method.how}" if method.how else "")


def _panel(title: str, means: Bounds, printed: frozenset[Stage]) -> Markup:
    groups = (
        tag("div", *(_box(stage, means[stage], stage in printed) for stage in stages), class_="boxes")
        for stages in BY_GROUP.values()
    )
    return tag("div", tag("h3", title), *groups, class_="panel")


def _box(stage: Stage, bounds: tuple[float, float], printed: bool) -> Markup:
    low, high = (f"{bound:.0f}" for bound in bounds)
    shown = low if low == high else f"{low}\u2013{high}"
    kind = "box printed" if printed else "box"
    style = f"--low: {low}%; --high: {high}%"
    return tag("div", tag("b", stage.value), shown, class_=kind, style=style, title=STAGES[stage].name)


def _methods(ours: Sequence[MappingRow]) -> Markup:
    rows = []
    for row in ours:
        methods_of_row = [(stage, row.methods[stage]) for stage in Stage if stage in row.methods]
        for place, (stage, method) in enumerate(methods_of_row):
            cells = (row.name if not place else "", stage.value, method.extent, method.method, method.how, method.when)
            rows.append(TableRow(cells, "" if place else "first"))
    return table(("architecture", "stage", "match", "method", "how", "only with"), rows, text_columns=6)


def _stages() -> Markup:
    rows = []
    for group, stages in BY_GROUP.items():
        for place, stage in enumerate(stages):
            description = STAGES[stage]
            policies = ", ".join(POLICIES.get(stage, ()))
            first = GROUPS[group] if not place else ""
            cells = (
                first,
                stage.value,
                description.name,
                description.mode,
                description.takes,
                description.gives,
                policies,
            )
            rows.append(TableRow(cells, "" if place else "first"))
    return table(("group", "id", "stage", "mode", "takes", "gives", "policies named"), rows, text_columns=7)


def _sources(rows: Iterable[MappingRow]) -> Markup:
    return table(("scheduler", "source"), [TableRow((row.name, row.source)) for row in rows], text_columns=2)


COLUMNS: Final = (
    (Stage.J1, Stage.J2, Stage.J3, Stage.J4, Stage.J5, Stage.T1, Stage.T2, Stage.T3),
    (Stage.M1, Stage.M2, Stage.M3, Stage.M4, Stage.M5, Stage.M6, Stage.B),
    (*BY_GROUP["R"][:5], Stage.T4, Stage.T5, Stage.T6, Stage.T7, Stage.T8, Stage.J6, Stage.J7),
    (Stage.R6, Stage.R7, Stage.T9, Stage.T10, Stage.T11, Stage.T12),
)
"""The boxes of the picture, column by column."""
TITLES: Final = ("jobs and tasks", "hierarchy", "machines and the life of a task", "changes while tasks run")
LINKS: Final = (
    (Stage.T3, Stage.M1),
    (Stage.M1, Stage.B),
    (Stage.M6, Stage.R1),
    (Stage.R5, Stage.R6),
    (Stage.T6, Stage.T10),
    (Stage.T6, Stage.T11),
    (Stage.T6, Stage.T12),
    (Stage.T9, Stage.R5),
)
"""Arrows beside those from each box to the next of its column."""
APART: Final = frozenset({Stage.B, Stage.R6, Stage.R7, Stage.T9, Stage.T10, Stage.T11, Stage.T12})
"""Boxes to which no arrow leads from the box above."""
COLOURS: Final[dict[Mark, str]] = {"full": PALETTE[2], "partial": PALETTE[1], "none": PAGE, "undetermined": GRID}


ACROSS, DOWN, WIDTH, HEIGHT = 2.75, 0.46, 2.25, 0.3
"""Distances from box to box and the size of a box, inches."""
SQUARE: Final = 0.17
HEAD_LINES: Final = 0.22
GAP_POINTS: Final = 36 * (ACROSS - WIDTH)
"""Half of the gap between two columns, points."""


def stages_svg(rows: Sequence[MappingRow]) -> str:
    """Schedulers mapped to the stages as a picture, as figure 4 of Andreadis et al. (SC18) has Borg.

    Boxes are stages, arrows the flow of figures 2 and 3: on the left the global scheduler's, on the right the local
    one's. A box has a square per scheduler, by its match.

    Args:
        rows: the schedulers, in the order of the squares.
    """
    head = 0.2 + HEAD_LINES * (len(rows) + 2)
    places = {
        stage: (0.2 + ACROSS * column, head + DOWN * row)
        for column, stages in enumerate(COLUMNS)
        for row, stage in enumerate(stages)
    }
    arrows = [pair for stages in COLUMNS for pair in pairwise(stages) if pair[1] not in APART]

    with style():
        height = head + DOWN * max(map(len, COLUMNS))
        figure = blank_figure(height, "", Size(0.2 + ACROSS * len(COLUMNS)))
        figure.set(layout_engine="none", facecolor=PAGE)
        figure.patch.set_visible(True)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 0.2 + ACROSS * len(COLUMNS)), ylim=(height, 0))
        axes.set_axis_off()

        for number, row in enumerate(rows, 1):
            origin = "as the paper maps it" if row.published else "as the code declares it"
            axes.text(0.2, HEAD_LINES * number, f"square {number}: {row.name}, {origin}", fontsize=9)
        for number, (mark, words) in enumerate(LEGEND.items()):
            x, y = 0.2 + 1.4 * number, HEAD_LINES * (len(rows) + 1)
            _draw_square(axes, x, y - 0.13, mark)
            axes.text(x + 0.22, y, words.partition(":")[0], fontsize=9)
        for column, title in enumerate(TITLES):
            axes.text(0.2 + ACROSS * column, head - 0.1, title, fontsize=9, fontweight="bold")

        for start, end in (*arrows, *LINKS):
            _draw_arrow(axes, places[start], places[end])
        for stage, place in places.items():
            _draw_box(axes, stage, place, rows)
        return svg_text(figure, 0)


def _draw_square(axes: Axes, x: float, y: float, mark: Mark) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), SQUARE, SQUARE, facecolor=COLOURS[mark], edgecolor=INK, linewidth=0.6))
    axes.text(x + SQUARE / 2, y + 0.13, SHOWN[mark], fontsize=8, ha="center")


def _draw_box(axes: Axes, stage: Stage, place: tuple[float, float], rows: Sequence[MappingRow]) -> None:
    from matplotlib.patches import Rectangle

    x, y = place
    dashes = "-" if any(row.marks[stage] != "none" for row in rows) else "--"
    box = Rectangle(place, WIDTH, HEIGHT, facecolor=PAGE, edgecolor=INK, linewidth=0.9, linestyle=dashes)
    axes.add_patch(box)
    for number, row in enumerate(rows):
        _draw_square(axes, x + 0.07 + number * 0.2, y + 0.065, row.marks[stage])
    axes.text(x + 0.12 + len(rows) * 0.2, y + 0.19, f"{stage.value} {STAGES[stage].name}", fontsize=8.25)


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from a box to the one below it, or around boxes to one further down or in another column."""
    (x, y), (to_x, to_y) = start, end
    look = {"arrowstyle": "->", "color": PALETTE[0], "linewidth": 1.1, "shrinkA": 0, "shrinkB": 1}

    if x == to_x and to_y - y < 1.5 * DOWN:
        axes.annotate("", (x + WIDTH / 2, to_y), (x + WIDTH / 2, y + HEIGHT), arrowprops=look)
        return

    # Arms leave and reach boxes level: on the side of the other column, on the right within one.
    leaves, reaches = (0, 180) if to_x > x else (180, 0) if to_x < x else (0, 0)
    arms, level = (GAP_POINTS, GAP_POINTS), HEIGHT / 2
    if to_x == x:
        arms = (GAP_POINTS / 2, GAP_POINTS / 2)
    elif to_x < x:
        # An arrow back runs beside those of the other way, not on them: it would seem to begin at their ends.
        arms, level = (1.5 * GAP_POINTS, 0.5 * GAP_POINTS), 0.8 * HEIGHT

    look["connectionstyle"] = f"arc,angleA={leaves},angleB={reaches},armA={arms[0]},armB={arms[1]}"
    begin = (x + WIDTH * (leaves == 0), y + level)
    axes.annotate("", (to_x + WIDTH * (reaches == 0), to_y + level), begin, arrowprops=look)
