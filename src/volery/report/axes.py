"""Measures over an axis of a study, a line per architecture; pictures of them, and of theory beside simulation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.look.text import UNIT_S, split_duration
from volery.metrics import RunSummary
from volery.report.groups import CLASSES, JobClass, class_summary, file_names, label_of, setting_of
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
from volery.statistics import Interval, interval_of_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SLUG_MAX: Final = 120
Quantity = Callable[[RunSummary], float | None]


class Measure(msgspec.Struct, frozen=True):
    """A quantity of a run that tables and pictures show over an axis.

    Args:
        name: the name in file names and heads of columns.
        unit: "s", or empty for a fraction.
        of: the value of the quantity in a run; None where the run has no such job.
    """

    name: str
    title: str
    unit: str
    jobs: JobClass
    of: Quantity


class AxisPoint(msgspec.Struct, frozen=True):
    """A mean over seeds with its 95 % interval, which one seed does not have."""

    x: float
    mean: float
    interval: Interval | None
    seeds: int


class AxisLine(msgspec.Struct, frozen=True):
    """An architecture with its parameters over an axis, in order of the axis."""

    label: str
    points: tuple[AxisPoint, ...]


class Panel(msgspec.Struct, frozen=True):
    """One measure over one axis, at one point of all other axes.

    Args:
        axis: name of the axis: a key of a study file, or `design.parameter`.
        setting: the values of the other axes that vary, as `constraints=none`; empty where none does.
        lines: per architecture, in the order of the study.
    """

    axis: str
    setting: str
    measure: Measure
    lines: tuple[AxisLine, ...]

    @property
    def name(self) -> str:
        """A name for files: measure, jobs, axis and setting."""
        return slug(f"{self.measure.name}-{self.measure.jobs}-over-{self.axis}", self.setting)


def slug(name: str, setting: str) -> str:
    """A file name that tells the setting."""
    file_name = "-".join(re.sub(r"[^A-Za-z0-9.=_+]+", "-", part).strip("-") for part in (name, *setting.split()))

    if len(file_name) <= SLUG_MAX:
        return file_name
    # Cut names of two settings could be equal; the digest tells them apart.
    digest = hashlib.sha256(f"{name} {setting}".encode()).hexdigest()[:8]

    return f"{file_name[: SLUG_MAX - 9]}-{digest}"


def delay_of(jobs: JobClass, statistic: str) -> Quantity:
    """A statistic of the delay of a class of jobs, seconds."""

    def of(run: RunSummary) -> float | None:
        summary = class_summary(run, jobs)
        return None if summary is None else float(getattr(summary.delay_s, statistic))

    return of


MEASURES: Final[tuple[Measure, ...]] = (
    *(
        Measure(f"{name}-delay", f"{name} delay", "s", jobs, delay_of(jobs, statistic))
        for jobs in CLASSES
        for name, statistic in (("mean", "mean"), ("median", "p50"), ("p99", "p99"))
    ),
    Measure("utilisation", "mean utilisation", "", "all", lambda run: run.utilisation_mean),
)
HEADLINE: Final = ("mean-delay", "p99-delay")
"""Measures that the report draws; `volery export` draws all."""


def varying(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """The axes with more than one value, and their values in the order of the study."""
    values_of: dict[str, list[Any]] = {}
    for run in runs:
        for name, value in run.axes.items():
            values = values_of.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    return {name: values for name, values in values_of.items() if len(values) > 1}


def numeric_axes(runs: Sequence[RunSummary]) -> list[str]:
    """The axes that a picture can have as its x: all values are numbers."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    return [name for name, values in varying(runs).items() if all(map(is_number, values))]


def panels(runs: Sequence[RunSummary], axis: str, measures: Sequence[Measure] = MEASURES) -> Iterator[Panel]:
    """The measures over an axis, per setting of the other axes; a measure that no run has is left out.

    An architecture that does not have the axis (another design's parameter) is the same at every value.
    """
    axes = varying(runs)
    # A parameter of a design is part of the architecture's label, and not of the setting.
    other_axes = {name: file_names(values) for name, values in axes.items() if name != axis and "." not in name}

    settings: dict[str, list[RunSummary]] = {}
    for run in runs:
        setting = " ".join(f"{name}={short.get(run.axes[name], run.axes[name])}" for name, short in other_axes.items())
        settings.setdefault(setting, []).append(run)

    values = sorted(axes[axis])

    for measure in measures:
        for setting, members in settings.items():
            lines = tuple(_lines(members, axis, values, measure))
            if lines:
                yield Panel(axis, setting, measure, lines)


def _lines(runs: Sequence[RunSummary], axis: str, values: Sequence[float], measure: Measure) -> Iterator[AxisLine]:
    families: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        quantity = measure.of(run)

        if quantity is None:
            continue
        family = families.setdefault(family_of(run, axis), {})
        own = run.axes.get(axis)
        # A design that does not have the axis has one value for all of it: a level line.
        for x in values if own is None else [own]:
            family.setdefault(x, []).append(quantity)

    for label, at in families.items():
        points = (AxisPoint(x, sum(at[x]) / len(at[x]), interval_of_mean(at[x]), len(at[x])) for x in sorted(at))
        yield AxisLine(label, tuple(points))


def family_of(run: RunSummary, axis: str = "") -> str:
    """The architecture of a run with its parameters, without its setting and the parameter that is the axis."""
    label = bare_label(run)
    design, _, parameter = axis.partition(".")
    if not parameter or run.architecture != design:
        return label
    name, _, parameters = label.partition(":")
    other_parameters = [part for part in parameters.split(",") if not part.startswith(f"{parameter}=")]
    return f"{name}:{','.join(other_parameters)}" if other_parameters else name


def bare_label(run: RunSummary) -> str:
    """The label of a run without its setting in square brackets."""
    label = label_of(run)
    return label.removesuffix(f" [{setting_of(label)}]")


LOG_FROM: Final = 20.0
"""The ratio of the largest to the smallest mean from which on the axis of durations is logarithmic."""
FEW_DECADES: Final = 300.0
"""Up to this ratio 2 and 5 are marked beside the powers of ten."""


def axis_svg(panel: Panel) -> str:
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
            x,
            [point.mean for point in line.points],
            color=colour(place),
            linestyle=dash(place),
            marker=MARKERS[place % len(MARKERS)],
            markersize=5 * size.scale,
            linewidth=1.6 * size.scale,
            label=in_legend(line.label),
        )

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
        is_few_decades = max(means) < FEW_DECADES * min(means)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_few_decades else (1,)))
        axes.set_ylabel(f"{panel.measure.title}{jobs} (log scale)")
    else:
        # From zero, so that heights can be compared; a logarithmic axis has no zero.
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
        analysis: points of the curve, x and y.
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

    lines = sum(len(drawn_lines) for drawn_lines in panels.values())
    height = HEIGHT_INCHES * len(panels) + LEGEND_LINE_INCHES * lines
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    rows = figure.subplots(len(panels), squeeze=False)[:, 0]

    for axes, (y_label, drawn_lines) in zip(rows, panels.items(), strict=True):
        for place, line in enumerate(drawn_lines):
            axes.plot(*_xy(line.analysis), color=colour(place), linestyle=dash(place), label=literal(line.label))
            if line.simulated:
                axes.plot(*_xy(line.simulated), color=colour(place), linestyle="", marker="o", markerfacecolor="none")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        add_legend(axes, 1)
    return figure


def _xy(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
