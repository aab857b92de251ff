"""A measure over an axis of a study as a picture: a line per architecture, its 95 % interval over seeds as a band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from volery.report.axes import Panel, Point
from volery.report.plots import (
    MARKERS,
    SCREEN,
    Size,
    add_legend,
    colour,
    dash,
    in_legend,
    legend_size,
    new_figure,
    style,
    svg_text,
    tick,
)
from volery.report.units import UNIT_S, split_duration

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


def _bounds(point: Point) -> tuple[float, float]:
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
