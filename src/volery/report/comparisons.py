"""The comparisons of a study on a page: drawn, in a table, and for many pairs in a line each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from volery.look.html import EMPTY, Markup, folded, joined, paragraph
from volery.look.text import MINUS, confidence, shortened
from volery.report.columns import PAGE_COMPARISON, comparison_columns
from volery.report.groups import setting_of
from volery.report.page import TableRow, figure, table
from volery.report.plots import GRID, INK, PAGE, PALETTE, blank_figure, literal, style, svg_text
from volery.report.verdict import PAIRS_TOLD_WHOLE, against, by_quantity, confidence_of, effect, factor, rule
from volery.statistics import ComparedMeans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_INCHES, TITLE_ROWS = 0.38, 0.95
"""Height of a comparison in a picture, and of the title of a panel in such rows."""
LETTER, LABEL = 10.5, 46
"""Size of letters in points, and letters of a name that fit beside the effect."""
ROWS_MAX: Final = 40


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
    columns_shown = [columns[name] for name in PAGE_COMPARISON]

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
    if not panels:
        return ""

    rows = sum(len(panel) + TITLE_ROWS for panel in panels)
    with style():
        figure = blank_figure(ROW_INCHES * rows, "")
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_xlim(-0.01, 1.01)
        axes.set_ylim(rows, 0)

        top = 0.0
        for panel in panels:
            _draw_panel(axes, panel, top)
            top += len(panel) + TITLE_ROWS
        return svg_text(figure, 0)


def _draw_panel(axes: Axes, panel: Sequence[ComparedMeans], top: float) -> None:
    """Draw comparisons from this row of the picture on; their scale reaches from 0 to 1 on the axis."""
    ratios = all(factor(compared) is not None for compared in panel)
    places = [_places(compared, ratios=ratios) for compared in panel]

    # Zero, where nothing differs, is on every scale.
    low, high = min(0.0, *(begin for begin, _, _ in places)), max(0.0, *(end for _, _, end in places))
    per_unit = 1.0 / ((high - low) or 1.0)

    jobs = "" if panel[0].jobs == "all" else f" of {panel[0].jobs} jobs"
    setting = setting_of(panel[0].a)
    title = f"{panel[0].quantity}{jobs}" + (f", {shortened(setting, LABEL)}" if setting else "")
    axes.text(0, top + 0.4, literal(title), fontsize=LETTER, fontweight="bold")

    for row, (compared, place) in enumerate(zip(panel, places, strict=True), 1):
        begin, middle, end, zero = ((value - low) * per_unit for value in (*place, 0.0))
        y = top + row + 0.3
        is_shown = compared.difference.is_shown
        shade = PALETTE[0] if is_shown else PALETTE[6]
        sign = MINUS if factor(compared) is None else "/"
        a, b = (shortened(label.removesuffix(f" [{setting}]")) for label in (compared.a, compared.b))

        axes.plot([0, 1], [y, y], color=GRID, linewidth=0.6)
        axes.plot([zero, zero], [y - 0.16, y + 0.16], color=INK, linewidth=0.9)
        axes.plot([begin, end], [y, y], color=shade, linewidth=2.4, solid_capstyle="round")
        axes.plot(middle, y, "o", markersize=7, color=shade, markerfacecolor=shade if is_shown else PAGE)
        axes.text(0, y - 0.28, literal(_names(b, a, sign)), fontsize=LETTER)
        axes.text(1, y - 0.28, effect(compared), fontsize=LETTER, ha="right")


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
