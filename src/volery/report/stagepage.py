"""The page of `volery stages --html`: heat maps of which stages are there, as in figures 5 and 6 of Andreadis et al."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from volery.core.stages import BY_GROUP, GROUPS, POLICIES, STAGES, Stage
from volery.report.mappings import CLASSES, Mark, Row, class_means, cut, mean_bounds, paper, whole
from volery.report.page import Row as TableRow
from volery.report.page import escaped, page, paragraph, section, table

SHOWN: Final[dict[Mark, str]] = {"full": "✓", "partial": "~", "none": "", "undetermined": "?"}
LEGEND: Final[dict[Mark, str]] = {
    "full": "full match",
    "partial": "partial match",
    "none": "no match",
    "undetermined": "undetermined: columns are lost in the text that is to be had",
}
Bounds = Mapping[Stage, tuple[float, float]]


def render(ours: Sequence[Row], theirs: Sequence[Row]) -> str:
    """The page as text; `theirs` is empty where the paper's mappings are not wanted."""
    boxes = [_panel("Volery", {stage: mean_bounds(ours, stage) for stage in Stage}, frozenset())]
    classes = CLASSES if theirs else ()
    boxes += [_panel(name.capitalize(), class_means(name), frozenset(paper().means[name])) for name in classes]
    return page(
        "Stages of schedulers",
        "The reference architecture of Andreadis, Versluis, Mastenbroek, Iosup, SC18: 33 stages in four groups",
        (
            section("Who has which stage", _legend(theirs), _matrix(ours, theirs), *map(_note, _remarks(theirs))),
            section("How often a stage is there", *map(_note, _about_means(theirs)), _panels(boxes)),
            section("Which methods do the work", _methods(ours)),
            section("The stages", _stages()),
            section("Sources", _sources([*ours, *theirs])),
        ),
        "stages.css",
    )


def _note(text: str) -> str:
    return paragraph(text, "note")


def _remarks(theirs: Sequence[Row]) -> Iterator[str]:
    yield "Percentages: means over a group's stages; a full match counts 100, a partial one 50. Ours rate the code."
    if theirs:
        yield (
            "Theirs are the paper's, which rates what publications describe. Their percentages are exact, for the "
            "symbols of a row are known even where their columns are not. Its table II cuts what it rounds elsewhere: "
            + ", ".join(cut())
            + "."
        )


def _about_means(theirs: Sequence[Row]) -> Iterator[str]:
    yield "Mean match in per cent over the schedulers of a class: the deeper the colour, the more have the stage."
    if theirs:
        yield (
            "A box with two colours is known to lie between two values. A box with a frame has the value that the "
            "paper's tables III and VIII print, where the classes differ most."
        )


def _legend(theirs: Sequence[Row]) -> str:
    marks = [mark for mark in LEGEND if theirs or mark != "undetermined"]
    entries = (f'<span><i class="{mark}">{SHOWN[mark]}</i>{escaped(LEGEND[mark])}</span>' for mark in marks)
    return f'<div class="legend">{"".join(entries)}</div>'


def _matrix(ours: Sequence[Row], theirs: Sequence[Row]) -> str:
    head = "<th></th>" + "".join(
        f'<th{_opens(place)} title="{escaped(STAGES[stage].name)}">{stage.value}</th>'
        for stages in BY_GROUP.values()
        for place, stage in enumerate(stages)
    )
    head += "".join(f'<th title="{escaped(GROUPS[group])}">{group} %</th>' for group in BY_GROUP)
    span = 1 + len(Stage) + len(BY_GROUP)
    body = [*map(_line, ours)]
    if theirs:
        body.insert(0, f'<tr class="head"><th colspan="{span}">Volery</th></tr>')
        body += [f'<tr class="head"><th colspan="{span}">as the paper maps them</th></tr>', *map(_line, theirs)]
    return (
        f'<div class="scroll"><table class="matrix"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _opens(place: int) -> str:
    return "" if place else ' class="opens"'


def _line(row: Row) -> str:
    cells = [
        f'<td class="cell {row.marks[stage]}{"" if place else " opens"}" title="{escaped(_said(row, stage))}">'
        f"{SHOWN[row.marks[stage]]}</td>"
        for stages in BY_GROUP.values()
        for place, stage in enumerate(stages)
    ]
    cells += [f'<td class="percent">{whole(row.percent[group])}</td>' for group in BY_GROUP]
    return f"<tr><th>{escaped(row.name)}</th>{''.join(cells)}</tr>"


def _said(row: Row, stage: Stage) -> str:
    said = f"{row.name}, {stage.value} {STAGES[stage].name}: {row.marks[stage]}"
    found = row.methods.get(stage)
    if found is None:
        return said
    when = f" (with {found.when})" if found.when else ""
    return f"{said} by {found.method}{when}" + (f": {found.how}" if found.how else "")


def _panels(boxes: Iterable[str]) -> str:
    return f'<div class="panels">{"".join(boxes)}</div>'


def _panel(title: str, means: Bounds, printed: frozenset[Stage]) -> str:
    groups = []
    for stages in BY_GROUP.values():
        cells = "".join(_box(stage, means[stage], stage in printed) for stage in stages)
        groups.append(f'<div class="boxes">{cells}</div>')
    return f'<div class="panel"><h3>{escaped(title)}</h3>{"".join(groups)}</div>'


def _box(stage: Stage, bounds: tuple[float, float], printed: bool) -> str:
    low, high = (f"{bound:.0f}" for bound in bounds)
    shown = low if low == high else f"{low}\u2013{high}"
    kind = "box printed" if printed else "box"
    style = f"--low: {low}%; --high: {high}%"
    name = escaped(STAGES[stage].name)
    return f'<div class="{kind}" style="{style}" title="{name}"><b>{stage.value}</b>{shown}</div>'


def _methods(ours: Sequence[Row]) -> str:
    rows = []
    for row in ours:
        found_of = [(stage, row.methods[stage]) for stage in Stage if stage in row.methods]
        for place, (stage, found) in enumerate(found_of):
            cells = (row.name if not place else "", stage.value, found.extent, found.method, found.how, found.when)
            rows.append(TableRow(cells, "" if place else "first"))
    return table(("architecture", "stage", "match", "method", "how", "only with"), rows, text_columns=6)


def _stages() -> str:
    rows = []
    for group, stages in BY_GROUP.items():
        for place, stage in enumerate(stages):
            said = STAGES[stage]
            policies = ", ".join(POLICIES.get(stage, ()))
            first = GROUPS[group] if not place else ""
            cells = (first, stage.value, said.name, said.mode, said.takes, said.gives, policies)
            rows.append(TableRow(cells, "" if place else "first"))
    return table(("group", "id", "stage", "mode", "takes", "gives", "policies named"), rows, text_columns=7)


def _sources(rows: Iterable[Row]) -> str:
    return table(("scheduler", "source"), [TableRow((row.name, row.source)) for row in rows], text_columns=2)
