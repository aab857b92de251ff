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
"""Sizes in the picture's own units; a page scales it, and its letters stay readable on a telephone."""
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
        pair_before = ("", "")
        for (a, b, jobs), comparisons in lines.items():
            first = (a, b) != pair_before
            pair_before = (a, b)
            name = f"{b} against {a}" if first else ""
            yield TableRow([name, jobs, *(against(d) if d else "" for d in comparisons)], "first" if first else "part")

    return table(["architecture", "jobs", *quantities], rows(), text_columns=2)


def _table(differences: Sequence[ComparedMeans]) -> Markup:
    columns = comparison_columns(differences)
    columns_shown = [columns[name] for name in ("quantity", "verdict", "a", "b", "effect", "interval", "method")]

    def rows() -> Iterator[TableRow]:
        pair_before, jobs_before = None, ""
        for d in differences:
            pair = (d.a, d.b)
            jobs = d.jobs if (pair, d.jobs) != (pair_before, jobs_before) else ""
            name = f"a: {d.a}, b: {d.b}" if pair != pair_before else ""
            cells = [name, jobs, *(text(d) for _, text in columns_shown)]
            yield TableRow(cells, "first " * (pair != pair_before) + "part" * (not d.difference.is_shown))
            pair_before = pair
            jobs_before = d.jobs

    return table(["pair", "jobs", *(head for head, _ in columns_shown)], rows(), text_columns=4, names={8})


def comparisons_part(differences: Sequence[ComparedMeans], name: str, chance: str) -> Markup:
    """The caption of comparisons, their picture and their table; empty where nothing was compared.

    Args:
        differences: comparisons over seeds, or of single runs job by job.
        name: name of the pictures, unlike that of any other of the page.
        chance: the chance that they are about, as a sentence.
    """
    if not differences:
        return EMPTY

    drawn = [d for d in differences if d.jobs == "all"]
    pictures = [figure(interval_picture(drawn), name, _caption(drawn))]

    classes = [d for d in differences if d.jobs != "all"]
    if classes:
        of_classes = figure(interval_picture(classes), f"{name}-classes", _caption(classes))
        pictures.append(folded("Short and long jobs, drawn", of_classes))

    caption = paragraph(f"{chance} {rule(differences)}")
    pairs = len({(d.a, d.b) for d in differences})

    if pairs <= PAIRS_TOLD_WHOLE:
        return joined((caption, *pictures, _table(differences)))

    # The short table stands above; the long one is for those who look something up.
    all_comparisons = folded(f"The {len(differences)} comparisons of {pairs} pairs", _table(differences))
    return joined((caption, _against(differences), *pictures, all_comparisons))


def interval_picture(differences: Sequence[ComparedMeans]) -> str:
    """One panel per quantity and setting, each on a scale of its own; empty where there is nothing to draw.

    A common scale would shrink what is small at a low load to nothing.
    """

    def kind_of(compared: ComparedMeans) -> tuple[str, str, str]:
        return compared.jobs, compared.quantity, setting_of(compared.a)

    kinds = list(dict.fromkeys(map(kind_of, differences)))
    panels = [[compared for compared in differences if kind_of(compared) == kind][:ROWS_MAX] for kind in kinds]

    parts: list[str] = []
    y = 0.0
    for panel in panels:
        parts += _panel(panel, y)
        y += TITLE + ROW * len(panel) + GAP
    return drawing(WIDTH, y, parts) if parts else ""


def _panel(panel: Sequence[ComparedMeans], top: float) -> Iterator[str]:
    places = [_places(compared, ratios=all(factor(compared) is not None for compared in panel)) for compared in panel]

    # Zero, where nothing differs, is on every scale.
    low, high = min(0.0, *(begin for begin, _, _ in places)), max(0.0, *(end for _, _, end in places))
    per_unit = (WIDTH - LEFT - RIGHT) / ((high - low) or 1.0)

    def x(value: float) -> float:
        return LEFT + (value - low) * per_unit

    jobs = "" if panel[0].jobs == "all" else f" of {panel[0].jobs} jobs"
    setting = setting_of(panel[0].a)
    setting_note = f", {shortened(setting, LABEL)}" if setting else ""
    yield plain_text(
        0, top + LETTER, f"{panel[0].quantity}{jobs}{setting_note}", size=LETTER, attributes=' font-weight="bold"'
    )

    for row, (compared, (begin, middle, end)) in enumerate(zip(panel, places, strict=True)):
        y = top + TITLE + ROW * row
        difference = compared.difference

        shade = PALETTE[0] if difference.is_shown else GREY
        sign = MINUS if factor(compared) is None else "/"
        a, b = (shortened(label.removesuffix(f" [{setting}]")) for label in (compared.a, compared.b))

        yield f'<path d="M{LEFT:.1f} {y + 19:.1f}H{WIDTH - RIGHT:.1f}" stroke="{GRID}" stroke-width="0.6" fill="none"/>'
        yield f'<path d="M{x(0):.1f} {y + 13:.1f}v12" stroke="{INK}" stroke-width="0.9" fill="none"/>'
        yield plain_text(0, y + LETTER, _names(b, a, sign), size=LETTER)
        yield plain_text(WIDTH, y + LETTER, effect(compared), "end", LETTER)

        if begin < end:
            bounds = escaped(interval(difference, compared.unit))
            yield (
                f'<path d="M{x(begin):.1f} {y + 19:.1f}H{x(end):.1f}" stroke="{shade}" stroke-width="2.4" '
                f'stroke-linecap="round" fill="none"><title>{bounds}</title></path>'
            )

        fill = shade if difference.is_shown else PAGE
        yield (
            f'<circle cx="{x(middle):.1f}" cy="{y + 19:.1f}" r="4" fill="{fill}" stroke="{shade}" stroke-width="1.6"/>'
        )


def _places(compared: ComparedMeans, *, ratios: bool) -> tuple[float, float, float]:
    """Beginning of the interval, dot and end: of b - a, or of the logarithm of b / a; three equal ones without."""
    difference, of_b = compared.difference, factor(compared)
    if not ratios:
        low, high = (
            difference.mean if difference.low is None else difference.low,
            difference.mean if difference.high is None else difference.high,
        )
        return -high, -difference.mean, -low

    assert of_b is not None, "a panel of ratios has one in every line"

    middle = math.log(of_b)
    if difference.ratio_low is None or difference.ratio_high is None:
        return middle, middle, middle
    return -math.log(difference.ratio_high), middle, -math.log(difference.ratio_low)


def _names(b: str, a: str, sign: str) -> str:
    """Both, as far as there is room; all others are compared with a, so that b matters more."""
    both_names = f"{b} {sign} {a}"
    if len(both_names) <= LABEL:
        return both_names

    room = LABEL - len(a) - 3 if len(a) < LABEL // 2 else LABEL - 4
    shortened_b = b if len(b) <= room else f"{b[: room - 1]}\u2026"
    return f"{shortened_b} {sign} {a}" if len(a) < LABEL // 2 else f"{shortened_b} {sign} \u2026"
