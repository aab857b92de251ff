"""Theory as lines and simulation as circles, a panel per quantity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from volery.core.errors import InputError
from volery.report.plots import (
    HEIGHT_INCHES,
    LEGEND_LINE_INCHES,
    UNDATED,
    WIDTH_INCHES,
    add_legend,
    colour,
    dash,
    literal,
    style,
    svg_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Line(msgspec.Struct, frozen=True):
    """A quantity as theory gives it, with simulated values beside it.

    Args:
        label: in the legend.
        analysis: points of the curve, x and y.
        simulated: points that are marked.
    """

    label: str
    analysis: tuple[tuple[float, float], ...]
    simulated: tuple[tuple[float, float], ...] = ()


def draw_analysis(panels: Mapping[str, Sequence[Line]], path: Path, *, title: str = "", x_label: str = "load") -> None:
    """Write a picture, theory as lines and simulation as circles; the same values give the same bytes.

    Args:
        panels: label of the y axis -> what is drawn on it; one panel below the other.
        path: its ending says the format, .svg, .png or .pdf.

    Raises:
        InputError: another ending, or the file cannot be written.
    """
    if path.suffix not in UNDATED:
        raise InputError(str(path), "a picture's name must end in .png, .svg or .pdf")
    with style():
        figure = _analysis_figure(panels, title, x_label)
        try:
            figure.savefig(path, dpi=120, metadata=UNDATED[path.suffix])
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror or error}; choose another place") from None


def analysis_curves(panels: Mapping[str, Sequence[Line]], *, title: str = "", x_label: str = "load") -> str:
    """The picture of `draw_analysis` as SVG text."""
    with style():
        return svg_text(_analysis_figure(panels, title, x_label), 0)


def _analysis_figure(panels: Mapping[str, Sequence[Line]], title: str, x_label: str) -> Figure:
    from matplotlib.figure import Figure

    lines = sum(len(shown) for shown in panels.values())
    height = HEIGHT_INCHES * len(panels) + LEGEND_LINE_INCHES * lines
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    rows = figure.subplots(len(panels), squeeze=False)[:, 0]
    for axes, (y_label, shown) in zip(rows, panels.items(), strict=True):
        for place, line in enumerate(shown):
            axes.plot(*_xy(line.analysis), color=colour(place), linestyle=dash(place), label=literal(line.label))
            if line.simulated:
                axes.plot(*_xy(line.simulated), color=colour(place), linestyle="", marker="o", markerfacecolor="none")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        add_legend(axes, 1)
    return figure


def _xy(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
