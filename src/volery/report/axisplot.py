"""Pictures with a line per architecture: a measure over an axis of a study, and theory beside simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.look.text import UNIT_S, split_duration
from volery.report.axes import AxisPoint, Panel
from volery.report.plots import (
    HEIGHT_INCHES,
    LEGEND_LINE_INCHES,
    MARKERS,
    SCREEN,
    UNDATED,
    WIDTH_INCHES,
    Size,
    add_legend,
    colour,
    dash,
    in_legend,
    legend_size,
    literal,
    new_figure,
    style,
    svg_text,
    tick,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG_FROM: Final = 20.0
"""From this ratio of the largest to the smallest mean on, the axis of durations is logarithmic."""
FEW_DECADES: Final = 300.0
"""Up to this ratio 2 and 5 are marked beside the powers of ten."""


def axis_svg(panel: Panel) -> str:
    """The picture as SVG text."""
    with style():
        return svg_text(axis_figure(panel, panel.setting), 0)


def _bounds(point: AxisPoint) -> tuple[float, float]:
    return (point.mean, point.mean) if point.interval is None else (point.interval.low, point.interval.high)


def axis_figure(panel: Panel, title: str = "", size: Size = SCREEN) -> Figure:
    """The picture; it is made, and written, within `volery.report.plots.style`."""
    columns, rows = legend_size([line.label for line in panel.lines], size)
    figure, axes = new_figure(rows, title, size)
    for place, line in enumerate(panel.lines):
        x = [point.x for point in line.points]
        if any(point.interval for point in line.points):
            bounds = np.array([_bounds(point) for point in line.points])
            axes.fill_between(x, bounds[:, 0], bounds[:, 1], color=colour(place), alpha=0.13, linewidth=0)
        axes.plot(
            x, [point.mean for point in line.points], color=colour(place), linestyle=dash(place),
            marker=MARKERS[place % len(MARKERS)], markersize=5 * size.scale, linewidth=1.6 * size.scale,
            label=in_legend(line.label),
        )  # fmt: skip
    _scales(axes, panel)
    add_legend(axes, columns)
    return figure


def _scales(axes: Axes, panel: Panel) -> None:
    values = sorted({point.x for line in panel.lines for point in line.points})
    means = [point.mean for line in panel.lines for point in line.points]
    if len(values) <= 10:
        axes.set_xticks(values, [f"{value:g}" for value in values])
    jobs = "" if panel.measure.jobs == "all" else f" of {panel.measure.jobs} jobs"
    axes.set_xlabel(panel.axis.replace("_", " ").replace(".", ": "))
    if panel.measure.unit != "s":
        axes.set_ylabel(panel.measure.title + jobs)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        return
    positive = [mean for mean in means if mean > 0]
    if len(positive) == len(means) and max(means) > LOG_FROM * min(means):
        from matplotlib.ticker import LogLocator

        axes.set_yscale("log")
        few = max(means) < FEW_DECADES * min(means)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        axes.set_ylabel(f"{panel.measure.title}{jobs} (log scale)")
    else:
        axes.set_ylim(bottom=0)
        unit = split_duration(max(means))[1]
        unit_s = UNIT_S[unit]
        axes.set_ylabel(f"{panel.measure.title}{jobs} ({unit})")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value / unit_s:.3g}")
        return
    axes.yaxis.set_major_formatter(lambda value, _: tick(value))
    axes.yaxis.set_minor_formatter(lambda _value, _: "")


class AnalysisLine(msgspec.Struct, frozen=True):
    """A quantity as theory gives it, with simulated values beside it.

    Args:
        label: in the legend.
        analysis: points of the curve, x and y.
        simulated: points that are marked.
    """

    label: str
    analysis: tuple[tuple[float, float], ...]
    simulated: tuple[tuple[float, float], ...] = ()


def draw_analysis(
    panels: Mapping[str, Sequence[AnalysisLine]], path: Path, *, title: str = "", x_label: str = "load"
) -> None:
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


def analysis_curves(panels: Mapping[str, Sequence[AnalysisLine]], *, title: str = "", x_label: str = "load") -> str:
    """The picture of `draw_analysis` as SVG text."""
    with style():
        return svg_text(_analysis_figure(panels, title, x_label), 0)


def _analysis_figure(panels: Mapping[str, Sequence[AnalysisLine]], title: str, x_label: str) -> Figure:
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
