"""Schedulers mapped to the reference architecture as a picture, as figure 4 of Andreadis et al. (SC18) has Borg.

Boxes are stages, arrows the flow of figures 2 and 3: on the left the global scheduler's, on the right the local one's.
A box has a square per scheduler, by its match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from volery.core.stages import STAGES, Stage
from volery.report.mappings import LEGEND, SHOWN, MappingRow, Mark
from volery.report.plots import GRID, INK, PAGE, PALETTE
from volery.report.svg import picture, text

WIDTH, HEIGHT, ACROSS, DOWN = 215, 30, 265, 46
"""The size of a box, and the distances from box to box, pixels."""
MARGIN, SQUARE, LINE, LETTER = 20, 16, 20, 8
COLUMNS: Final = (
    (Stage.J1, Stage.J2, Stage.J3, Stage.J4, Stage.J5, Stage.T1, Stage.T2, Stage.T3),
    (Stage.M1, Stage.M2, Stage.M3, Stage.M4, Stage.M5, Stage.M6, Stage.B),
    (
        Stage.R1,
        Stage.R2,
        Stage.R3,
        Stage.R4,
        Stage.R5,
        Stage.T4,
        Stage.T5,
        Stage.T6,
        Stage.T7,
        Stage.T8,
        Stage.J6,
        Stage.J7,
    ),
    (Stage.R6, Stage.R7, Stage.T9, Stage.T10, Stage.T11, Stage.T12),
)
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
COLOURS: Final[dict[Mark, str]] = {
    "full": PALETTE[2],
    "partial": PALETTE[1],
    "none": PAGE,
    "undetermined": GRID,
}


def stages_svg(rows: Sequence[MappingRow]) -> str:
    """The picture as a file of its own.

    Args:
        rows: the schedulers, in the order of the squares.
    """
    places = {stage: (column, row) for column, own in enumerate(COLUMNS) for row, stage in enumerate(own)}

    head = MARGIN + LINE * (len(rows) + 1)
    at = {stage: (MARGIN + ACROSS * column, head + LINE + DOWN * row) for stage, (column, row) in places.items()}
    width = 2 * MARGIN + ACROSS * (len(COLUMNS) - 1) + WIDTH
    bottom = head + LINE + DOWN * max(map(len, COLUMNS))

    parts = [*_legend(rows)]
    parts += [text(MARGIN + ACROSS * n, head + 8, title, "start", 12, bold=True) for n, title in enumerate(TITLES)]
    for own in COLUMNS:
        parts += [_arrow(at[box], at[next_box]) for box, next_box in pairwise(own) if next_box not in APART]
    parts += [_arrow(at[box], at[next_box]) for box, next_box in LINKS]
    parts += [part for stage, place in at.items() for part in _box(stage, place, rows)]

    return picture(width, bottom, parts, alone=True)


def _legend(rows: Sequence[MappingRow]) -> Iterator[str]:
    for number, row in enumerate(rows):
        origin = "as the paper maps it" if row.published else "as the code declares it"
        yield text(MARGIN, MARGIN + LINE * number, f"square {number + 1}: {row.name}, {origin}", "start", 12)

    x, y = MARGIN, MARGIN + LINE * len(rows)
    for mark, words in LEGEND.items():
        match = words.partition(":")[0]
        yield from _square(x, y - 12, mark)
        yield text(x + SQUARE + 4, y, match, "start", 12)
        x += SQUARE + 24 + LETTER * len(match)


def _square(x: int, y: int, mark: Mark) -> Iterator[str]:
    yield (
        f'<rect x="{x}" y="{y}" width="{SQUARE}" height="{SQUARE}" fill="{COLOURS[mark]}" stroke="{INK}" '
        'stroke-width="0.8"/>'
    )
    if SHOWN[mark]:
        yield text(x + SQUARE // 2, y + 12, SHOWN[mark], "middle", 11)


def _box(stage: Stage, place: tuple[int, int], rows: Sequence[MappingRow]) -> Iterator[str]:
    x, y = place
    dashes = "" if any(row.marks[stage] != "none" for row in rows) else ' stroke-dasharray="4 3"'
    yield (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{PAGE}" stroke="{INK}" '
        f'stroke-width="1.2"{dashes}/>'
    )
    for number, row in enumerate(rows):
        yield from _square(x + 7 + number * (SQUARE + 3), y + 7, row.marks[stage])
    text_x = x + 11 + len(rows) * (SQUARE + 3)
    yield text(text_x, y + 19, f"{stage.value} {STAGES[stage].name}", "start", 11)


def _arrow(start_box: tuple[int, int], end_box: tuple[int, int]) -> str:
    """An arrow from a box to one below it, or to one in another column."""
    (x, y), (to_x, to_y) = start_box, end_box
    middle, to_middle = y + HEIGHT // 2, to_y + HEIGHT // 2

    if x == to_x and to_y == y + DOWN:
        path = f"M{x + WIDTH // 2} {y + HEIGHT}V{to_y - 3}l-4 -5h8l-4 5"
    elif x == to_x:
        path = f"M{x + WIDTH} {middle}h14V{to_middle}h-11l5 -4v8l-5 -4"
    elif to_x > x:
        turn = to_x - (ACROSS - WIDTH) // 2
        path = f"M{x + WIDTH} {middle}H{turn}V{to_middle}H{to_x - 3}l-5 -4v8l5 -4"
    else:
        turn = x - (ACROSS - WIDTH) // 2 + 8
        path = f"M{x} {middle}H{turn}V{to_middle}H{to_x + WIDTH + 3}l5 -4v8l-5 -4"
    return f'<path d="{path}" fill="none" stroke="{PALETTE[0]}" stroke-width="1.4"/>'
