"""How schedulers map to the stages of the reference architecture: ours as declared, fourteen others as published.

Andreadis et al., SC18, section IV: full matches count 100 %, partial ones 50 %, no match 0 %, and a group of stages has
their mean. Ours are rated by what the code does, theirs by what their publications describe: figures of the two kinds
stand beside each other, they do not compete.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final, Literal

import msgspec

from volery.core.component import Architecture
from volery.core.stages import BY_GROUP, Group, Realisation, Stage

Mark = Literal["full", "partial", "none", "undetermined"]
MARKS: Final[dict[str, Mark]] = {"F": "full", "~": "partial", ".": "none", "?": "undetermined"}
SYMBOLS: Final[dict[Mark, str]] = {mark: symbol for symbol, mark in MARKS.items()}
RATINGS: Final[dict[Mark, float]] = {"full": 100.0, "partial": 50.0, "none": 0.0}
CLASSES: Final = ("academia", "industry", "before 2010", "since 2010")


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The paper's mappings, and mean matches by class and stage.

    Args:
        scheduler: in the order of its tables.
        means: as its tables III and VIII print them, per cent.
        ranges: the least and the greatest mean that the stages can have which those tables leave out.
    """

    scheduler: tuple[Published, ...]
    means: dict[str, dict[Stage, int]]
    ranges: dict[str, dict[Stage, tuple[float, float]]]


class Row(msgspec.Struct, frozen=True):
    """A scheduler in the matrix.

    Args:
        name: of the architecture, or of the published scheduler.
        source: where it was described.
        marks: one per stage.
        percent: mean match per group; for published ones from all symbols of the row, so that it is exact even where
            it is not known in which column a symbol stands.
        bounds: the least and the greatest rating that each stage may have, in per cent.
        methods: what realises the stages of ours.
    """

    name: str
    source: str
    marks: Mapping[Stage, Mark]
    percent: Mapping[Group, float]
    bounds: Mapping[Stage, tuple[float, float]]
    methods: Mapping[Stage, Realisation] = {}

    @property
    def published(self) -> bool:
        """Whether the paper has mapped it, not we."""
        return not self.methods

    def symbols(self, group: Group) -> str:
        """The group's marks as one character each."""
        return "".join(SYMBOLS[self.marks[stage]] for stage in BY_GROUP[group])


@cache
def paper() -> Paper:
    """The paper's tables as far as they can be known."""
    text = resources.files("volery.report").joinpath("published_stages.toml").read_bytes()
    return msgspec.toml.decode(text, type=Paper)


def declared(architecture: Architecture) -> Row:
    """What a registry entry says of itself."""
    methods = architecture.stages
    marks: dict[Stage, Mark] = {stage: methods[stage].extent if stage in methods else "none" for stage in Stage}
    percent = {group: mean(RATINGS[marks[stage]] for stage in stages) for group, stages in BY_GROUP.items()}
    bounds = {stage: (RATINGS[mark], RATINGS[mark]) for stage, mark in marks.items()}
    return Row(architecture.name, architecture.source, marks, percent, bounds, methods)


def from_paper() -> list[Row]:
    """The fourteen schedulers in the paper's order."""
    return [_row(scheduler) for scheduler in paper().scheduler]


def _row(scheduler: Published) -> Row:
    marks: dict[Stage, Mark] = {}
    bounds: dict[Stage, tuple[float, float]] = {}
    percent: dict[Group, float] = {}
    for group, stages in BY_GROUP.items():
        printed, cells = scheduler.printed[group], scheduler.cells[group]
        percent[group] = sum(RATINGS[MARKS[symbol]] for symbol in printed) / len(stages)
        unplaced = [symbol for symbol in "F~" for _ in range(printed.count(symbol) - cells.count(symbol))]
        ratings = [RATINGS[MARKS[symbol]] for symbol in unplaced]
        least = min(ratings) if ratings and len(ratings) == cells.count("?") else 0.0
        for stage, symbol in zip(stages, cells, strict=True):
            mark = marks[stage] = MARKS[symbol]
            known = RATINGS.get(mark)
            bounds[stage] = (least, max(ratings)) if known is None else (known, known)
    return Row(scheduler.name, scheduler.source, marks, percent, bounds)


def of_class(name: str) -> list[Row]:
    """The published schedulers of one of `CLASSES`."""
    members = [found.name for found in paper().scheduler if name in (found.designed, found.published)]
    return [row for row in from_paper() if row.name in members]


def mean_bounds(rows: Sequence[Row], stage: Stage) -> tuple[float, float]:
    """The least and the greatest mean match of a stage, in per cent: equal where every row is determined."""
    return mean(row.bounds[stage][0] for row in rows), mean(row.bounds[stage][1] for row in rows)


def class_means(name: str) -> dict[Stage, tuple[float, float]]:
    """Mean match of each stage in one of `CLASSES`, per cent: as the paper prints it, else between two bounds."""
    printed = {stage: (float(mean), float(mean)) for stage, mean in paper().means[name].items()}
    return printed | paper().ranges[name]


def cut() -> list[str]:
    """Where the paper's table II prints less than the rounded percentage, in words: it cuts some and rounds others."""
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
    """Of at least one."""
    found = list(values)
    return sum(found) / len(found)
