"""The comparisons of a study on a page: drawn, in a table, and for many pairs in a line each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from volery.look.html import EMPTY, Markup, escaped, folded, joined, paragraph
from volery.look.text import MINUS, confidence, shortened
from volery.report.groups import setting_of
from volery.report.page import TableRow, figure, table
from volery.report.plots import GRID, INK, PAGE, PALETTE
from volery.report.svg import drawing, plain_text
from volery.report.verdict import (
    PAIRS_TOLD_WHOLE,
    against,
    by_quantity,
    comparison_columns,
    confidence_of,
    effect,
    factor,
    interval,
    rule,
)
from volery.statistics import ComparedMeans

WIDTH, LEFT, RIGHT = 446.0, 8.0, 12.0
"""In the picture's own units; a page scales it, and its letters stay readable on a telephone."""
LETTER, ROW, TITLE, GAP, LABEL = 10.5, 27.0, 18.0, 12.0, 46
ROWS_MAX: Final = 40
GREY: Final = PALETTE[6]


def _caption(differences: Sequence[ComparedMeans]) -> str:
    return (
        f"Ratios b / a on a logarithmic scale, the stroke is 1; differences b {MINUS} a, the stroke is 0. Each "
        f"quantity has a scale of its own, lines are {confidence(confidence_of(differences))} intervals. Grey and "
        "hollow: the corrected verdict shows no difference."
    )


def _against(differences: Sequence[ComparedMeans]) -> Markup:
    """A line per pair and class of jobs: b beside a in every quantity."""
    quantities, lines = by_quantity(differences)

    def rows() -> Iterator[TableRow]:
        before = ("", "")
        for (a, b, jobs), known in lines.items():
            first = (a, b) != before
            before = (a, b)
            name = f"{b} against {a}" if first else ""
            yield TableRow([name, jobs, *(against(d) if d else "" for d in known)], "first" if first else "part")

    return table(["architecture", "jobs", *quantities], rows(), text_columns=2)


def _table(differences: Sequence[ComparedMeans]) -> Markup:
    columns = comparison_columns(differences)
    chosen = [columns[name] for name in ("quantity", "verdict", "a", "b", "effect", "interval", "method")]

    def rows() -> Iterator[TableRow]:
        before, jobs_before = None, ""
        for d in differences:
            pair = (d.a, d.b)
            jobs = d.jobs if (pair, d.jobs) != (before, jobs_before) else ""
            name = f"a: {d.a}, b: {d.b}" if pair != before else ""
            cells = [name, jobs, *(text(d) for _, text in chosen)]
            yield TableRow(cells, "first " * (pair != before) + "part" * (not d.difference.is_shown))
            before, jobs_before = pair, d.jobs

    return table(["pair", "jobs", *(head for head, _ in chosen)], rows(), text_columns=4, names={8})


def comparisons_part(differences: Sequence[ComparedMeans], name: str, said: str) -> Markup:
    """The caption of comparisons, their picture and their table; empty where nothing was compared.

    Args:
        differences: over seeds, or of single runs job by job.
        name: of the pictures, unlike that of any other of the page.
        said: which chance they are about.
    """
    if not differences:
        return EMPTY
    drawn = [d for d in differences if d.jobs == "all"]
    pictures = [figure(interval_picture(drawn), name, _caption(drawn))]
    classes = [d for d in differences if d.jobs != "all"]
    if classes:
        of_classes = figure(interval_picture(classes), f"{name}-classes", _caption(classes))
        pictures.append(folded("Short and long jobs, drawn", of_classes))
    told = paragraph(f"{said} {rule(differences)}")
    pairs = len({(d.a, d.b) for d in differences})
    if pairs <= PAIRS_TOLD_WHOLE:
        return joined((told, *pictures, _table(differences)))
    everything = folded(f"The {len(differences)} comparisons of {pairs} pairs", _table(differences))
    return joined((told, _against(differences), *pictures, everything))


def interval_picture(differences: Sequence[ComparedMeans]) -> str:
    """One panel per quantity and setting, each on a scale of its own; empty where there is nothing to draw.

    A common scale would shrink what is small at a low load to nothing.
    """

    def kind_of(one: ComparedMeans) -> tuple[str, str, str]:
        return one.jobs, one.quantity, setting_of(one.a)

    kinds = list(dict.fromkeys(map(kind_of, differences)))
    panels = [[one for one in differences if kind_of(one) == kind][:ROWS_MAX] for kind in kinds]
    parts: list[str] = []
    y = 0.0
    for panel in panels:
        parts += _panel(panel, y)
        y += TITLE + ROW * len(panel) + GAP
    return drawing(WIDTH, y, parts) if parts else ""


def _panel(panel: Sequence[ComparedMeans], top: float) -> Iterator[str]:
    places = [_places(one, ratios=all(factor(one) is not None for one in panel)) for one in panel]
    low, high = min(0.0, *(begin for begin, _, _ in places)), max(0.0, *(end for _, _, end in places))
    per_unit = (WIDTH - LEFT - RIGHT) / ((high - low) or 1.0)

    def x(value: float) -> float:
        return LEFT + (value - low) * per_unit

    jobs = "" if panel[0].jobs == "all" else f" of {panel[0].jobs} jobs"
    setting = setting_of(panel[0].a)
    where = f", {shortened(setting, LABEL)}" if setting else ""
    yield plain_text(0, top + LETTER, f"{panel[0].quantity}{jobs}{where}", size=LETTER, more=' font-weight="bold"')
    for row, (one, (begin, middle, end)) in enumerate(zip(panel, places, strict=True)):
        y = top + TITLE + ROW * row
        found = one.difference
        shade = PALETTE[0] if found.is_shown else GREY
        sign = MINUS if factor(one) is None else "/"
        a, b = (shortened(label.removesuffix(f" [{setting}]")) for label in (one.a, one.b))
        yield f'<path d="M{LEFT:.1f} {y + 19:.1f}H{WIDTH - RIGHT:.1f}" stroke="{GRID}" stroke-width="0.6" fill="none"/>'
        yield f'<path d="M{x(0):.1f} {y + 13:.1f}v12" stroke="{INK}" stroke-width="0.9" fill="none"/>'
        yield plain_text(0, y + LETTER, _names(b, a, sign), size=LETTER)
        yield plain_text(WIDTH, y + LETTER, effect(one), "end", LETTER)
        if begin < end:
            yield (
                f'<path d="M{x(begin):.1f} {y + 19:.1f}H{x(end):.1f}" stroke="{shade}" stroke-width="2.4" '
                f'stroke-linecap="round" fill="none"><title>{escaped(interval(found, one.unit))}</title></path>'
            )
        fill = shade if found.is_shown else PAGE
        yield (
            f'<circle cx="{x(middle):.1f}" cy="{y + 19:.1f}" r="4" fill="{fill}" stroke="{shade}" stroke-width="1.6"/>'
        )


def _places(one: ComparedMeans, *, ratios: bool) -> tuple[float, float, float]:
    """Beginning of the interval, dot and end: of b - a, or of the logarithm of b / a; three equal ones without."""
    found, of_b = one.difference, factor(one)
    if not ratios:
        low, high = found.mean if found.low is None else found.low, found.mean if found.high is None else found.high
        return -high, -found.mean, -low
    assert of_b is not None, "a panel of ratios has one in every line"
    middle = math.log(of_b)
    if found.ratio_low is None or found.ratio_high is None:
        return middle, middle, middle
    return -math.log(found.ratio_high), middle, -math.log(found.ratio_low)


def _names(b: str, a: str, sign: str) -> str:
    """Both, as far as there is room; all others are compared with a, so that b matters more."""
    whole = f"{b} {sign} {a}"
    if len(whole) <= LABEL:
        return whole
    room = LABEL - len(a) - 3 if len(a) < LABEL // 2 else LABEL - 4
    kept = b if len(b) <= room else f"{b[: room - 1]}\u2026"
    return f"{kept} {sign} {a}" if len(a) < LABEL // 2 else f"{kept} {sign} \u2026"
