"""The pictures of a study that stand in its report and can be had as files, and time per stage.

Time per stage is drawn as in figures 9 and 10 of Andreadis et al., SC18: calls on a log axis, and shares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from volery.core.errors import InputError
from volery.core.stages import Stage
from volery.look.text import LINE_MAX, duration, percent, shortened
from volery.report import plots
from volery.report.axes import HEADLINE, MEASURES, axis_svg, numeric_axes, panels, slug
from volery.report.columns import PARTS
from volery.report.folder import StoredResults, read_results
from volery.report.groups import JobClass, RunGroup, by_setting, group_runs, methods
from volery.report.plots import GRID, PALETTE, blank_figure, literal, style, svg_text, tick
from volery.report.schema import MethodTime, StageProfile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURES_MAX = 12
"""Settings with pictures of their own; the tables hold all."""
CLASS_TITLES: Final[dict[JobClass, str]] = {"all": "all jobs", "short": "short jobs", "long": "long jobs"}


class DelaySamples(Protocol):
    """The delays of the jobs of a study, as those of `StoredResults`."""

    def delays_s(self, label: str, jobs: JobClass) -> plots.Series:
        """The delays of a class of jobs per seed, without seeds that measured none."""


class CaptionedPicture(NamedTuple):
    """A picture as SVG, under a name that no other picture of the report has, with what it shows."""

    name: str
    svg: str
    caption: str


def write_pictures(folder: Path, into: Path) -> list[Path]:
    """Write the pictures of a results folder as SVG files; the folder for them is made.

    Raises:
        InputError: a file of the folder is missing or damaged, or a picture cannot be written.
    """
    results = read_results(folder)
    groups = group_runs(results.summary.runs)

    written = []
    try:
        into.mkdir(parents=True, exist_ok=True)
        for picture in itertools.chain(
            axis_pictures(results),
            delay_pictures(results, groups),
            utilisation_pictures(results, groups),
            allocation_pictures(groups),
            load_pictures(results),
            conflict_pictures(results),
        ):
            path = into / f"{picture.name}.svg"
            path.write_text(picture.svg, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise InputError(str(into), f"cannot be written: {error.strerror}") from None
    return written


def axis_pictures(results: StoredResults) -> Iterator[CaptionedPicture]:
    """The measures that matter most over each axis of numbers, as the load."""
    runs = results.summary.runs
    measures = [measure for measure in MEASURES if measure.name in HEADLINE]

    for axis in numeric_axes(runs):
        for panel in itertools.islice(panels(runs, axis, measures), FIGURES_MAX):
            jobs = CLASS_TITLES[panel.measure.jobs]
            setting_note = f", {shortened(panel.setting)}" if panel.setting else ""
            interval_methods = methods(point.interval for line in panel.lines for point in line.points)
            note = (
                f"; the band is the 95 % interval of the mean over seeds ({interval_methods})."
                if interval_methods
                else "; one seed, no interval."
            )
            yield CaptionedPicture(
                panel.name, axis_svg(panel), f"{panel.measure.title} of {jobs} over {axis}{setting_note}{note}"
            )


def delay_pictures(results: StoredResults, groups: Sequence[RunGroup]) -> Iterator[CaptionedPicture]:
    """Distributions of delay, per class of jobs."""
    classes: list[JobClass] = list(dict.fromkeys(jobs for group in groups for jobs in group.classes()))
    for setting, members in settings(groups):
        for jobs in classes:
            series = delay_series(results, setting, members, jobs)
            if series:
                title = f"Delay of {CLASS_TITLES[jobs]}" + (f", {shortened(setting)}" if setting else "")

                has_many_seeds = any(len(drawn_series.per_seed) > 1 for drawn_series in series)
                note = ": share of jobs that are delayed by at most so much" + (
                    "; thin lines are seeds." if has_many_seeds else "."
                )
                yield CaptionedPicture(
                    slug(f"delay-{jobs}", setting), plots.delay_cdf(series, title=setting), title + note
                )


def delay_series(
    results: DelaySamples, setting: str, members: Sequence[RunGroup], jobs: JobClass
) -> list[plots.Series]:
    """Delays of a class of jobs in one setting, per architecture that has any."""
    all_series = [results.delays_s(group.label, jobs) for group in members]
    return [_renamed(drawn_series, setting) for drawn_series in all_series if drawn_series.per_seed]


def utilisation_pictures(results: StoredResults, groups: Sequence[RunGroup]) -> Iterator[CaptionedPicture]:
    """Busy slots over time."""
    for setting, members in settings(groups):
        label_curves = [results.curves.get(group.label) for group in members]
        curves = [
            plots.SeedCurves(_without(c.label, setting), c.times_s, c.values) for c in label_curves if c is not None
        ]
        if curves:
            has_many_seeds = any(len(curve.values) > 1 for curve in curves)
            caption = "Utilisation over time" + (f", {shortened(setting)}" if setting else "")
            caption += "; the band is the range over seeds." if has_many_seeds else "."
            yield CaptionedPicture(
                slug("utilisation", setting), plots.utilisation_curves(curves, title=setting), caption
            )


def allocation_pictures(groups: Sequence[RunGroup]) -> Iterator[CaptionedPicture]:
    """Pictures of the parts of the allocation time."""
    for setting, members in settings(groups):
        allocations = [[run.allocation_s for run in group.runs] for group in members]
        parts = {part.head: [part.mean(of_runs) or 0.0 for of_runs in allocations] for part in PARTS}
        labels = [_without(group.label, setting) for group in members]
        caption = "Parts of the mean allocation time" + (f", {shortened(setting)}." if setting else ".")
        yield CaptionedPicture(
            slug("allocation", setting), plots.allocation_bars(parts, labels, title=setting), caption
        )


def load_pictures(results: StoredResults) -> Iterator[CaptionedPicture]:
    """Pictures of the load per placement constraint."""
    for load in results.loads[:FIGURES_MAX]:
        caption = "Load per constraint" + (f", {shortened(load.title)}." if load.title else ".")
        yield CaptionedPicture(slug("constraint-load", load.title), plots.constraint_load_bars(load.loads), caption)


def conflict_pictures(results: StoredResults) -> Iterator[CaptionedPicture]:
    """Pictures of scheduling conflicts, second by second."""
    for conflict_table in results.conflicts[:FIGURES_MAX]:
        caption = "Scheduling conflicts per second" + (
            f", {shortened(conflict_table.title)}" if conflict_table.title else ""
        )
        name = slug("conflicts", conflict_table.title)
        yield CaptionedPicture(
            name, plots.conflict_curves(conflict_table), f"{caption}; the band reaches to the largest."
        )


def _renamed(series: plots.Series, setting: str) -> plots.Series:
    return plots.Series(_without(series.label, setting), series.per_seed)


def _without(label: str, setting: str) -> str:
    return label.removesuffix(f" [{setting}]") if setting else label


def settings(groups: Sequence[RunGroup]) -> list[tuple[str, list[RunGroup]]]:
    """Groups by setting; at most so many as have pictures."""
    return by_setting(groups)[:FIGURES_MAX]


ROW_INCHES, HEAD_INCHES, FOOT_INCHES = 0.4, 0.42, 0.95
BOX, LEAST_S = 0.34, 1e-8
"""Height of a box in rows; shorter times than that stand there."""
ORDER: Final = {stage: place for place, stage in enumerate(Stage)}
NEEDED: Final = (5, 25, 50, 75, 95)


def stage_times(profiles: Sequence[StageProfile], *, title: str = "") -> str:
    """A panel per architecture, a row per method: CPU time of a call as a box, its share of all of them as a bar.

    The box is the middle half of the calls, its mark the median, the line 90 % of them, the dot the longest.
    """
    shown = [profile for profile in profiles if _entered(profile)]
    if not shown:
        return ""

    rows = [len(_entered(profile)) for profile in shown]
    height = ROW_INCHES * sum(rows) + HEAD_INCHES * len(rows) + FOOT_INCHES

    with style():
        figure = blank_figure(height, title)
        panels = figure.subplots(
            len(shown),
            2,
            squeeze=False,
            sharex="col",
            width_ratios=(3, 1.15),
            height_ratios=[count + HEAD_INCHES / ROW_INCHES for count in rows],
        )

        for (calls, shares), profile in zip(panels, shown, strict=True):
            _draw_calls(calls, profile)
            _draw_shares(shares, profile)
        _log_axis(panels[-1][0], shown)
        _share_axis(panels[-1][1], shown)
        return svg_text(figure, 0)


def _entered(profile: StageProfile) -> list[MethodTime]:
    """The methods that were called, in the order of the stages; none where the percentiles are not those we draw."""
    if not set(NEEDED) <= set(profile.percentiles):
        return []
    times = (time for time in profile.times if time.calls and len(time.call_s) == len(profile.percentiles))
    return sorted(times, key=lambda time: min(ORDER.get(stage, len(ORDER)) for stage in time.stages))


def _whole_s(profile: StageProfile) -> float:
    return sum(time.cpu_s for time in profile.times)


def _draw_calls(axes: Axes, profile: StageProfile) -> None:
    for place, time in enumerate(_entered(profile)):
        at = {p: max(LEAST_S, s) for p, s in zip(profile.percentiles, time.call_s, strict=True)}
        middle = place + 0.2
        axes.plot([at[5], at[95]], [middle, middle], color=PALETTE[0], linewidth=1.2)
        right = max(at[75], at[25] * 1.07)  # a class of times is that wide
        axes.barh(middle, right - at[25], left=at[25], height=BOX, color=PALETTE[5])
        axes.plot([at[50]] * 2, [middle - BOX / 2, middle + BOX / 2], color=PALETTE[1], linewidth=2)
        axes.plot([at[max(at)]], [middle], marker="o", markersize=3.2, color=PALETTE[0])
        name = f"{' '.join(time.stages)}  {time.method}"
        axes.text(
            0, middle - BOX / 2 - 0.06, literal(name), fontsize=10, va="bottom", transform=axes.get_yaxis_transform()
        )

    axes.axvline(
        max(LEAST_S, profile.own_costs_s[0]),
        color=PALETTE[6],
        linewidth=0.8,
        alpha=0.7,
        zorder=0.6,
        linestyle=(0, (3, 2)),
    )

    axes.set_title(literal(shortened(profile.label, LINE_MAX)), loc="left", fontsize=10.5, fontweight="bold", pad=3)
    _rows(axes, profile)


def _draw_shares(axes: Axes, profile: StageProfile) -> None:
    whole_s = _whole_s(profile)
    for place, time in enumerate(_entered(profile)):
        share = time.cpu_s / whole_s if whole_s else 0.0
        axes.barh(place + 0.2, share, height=BOX, color=PALETTE[0])
        axes.text(0, place + 0.2 - BOX / 2 - 0.06, percent(share), fontsize=10, va="bottom")

    axes.set_title(f"of {duration(whole_s)}", loc="left", fontsize=10, pad=3)
    _rows(axes, profile)


def _rows(axes: Axes, profile: StageProfile) -> None:
    axes.patch.set_visible(False)
    axes.set_yticks([])
    axes.set_ylim(len(_entered(profile)) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_color(GRID)


def _log_axis(axes: Axes, profiles: Sequence[StageProfile]) -> None:
    every = [s for profile in profiles for time in _entered(profile) for s in time.call_s]
    low = 10.0 ** np.floor(np.log10(max(LEAST_S, min(every))))
    # At least a decade, so that an axis of equal values is one, too.
    high = max(low * 10, *every) * 1.5

    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decades = np.arange(round(np.log10(low)), np.floor(np.log10(high)) + 1)
    axes.set_xticks([float(10.0**decade) for decade in decades[:: -(-len(decades) // 6)]])

    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: tick(value))
    axes.set_xlabel("CPU time of a call (log scale)")


def _share_axis(axes: Axes, profiles: Sequence[StageProfile]) -> None:
    largest = max(time.cpu_s / (_whole_s(profile) or 1.0) for profile in profiles for time in profile.times)
    top = next(bound for bound in (0.25, 0.5, 1.0) if largest <= bound or bound == 1.0)
    axes.set_xlim(0, top)
    axes.set_xticks([0, top], ["0", f"{100 * top:.0f} %"])
    axes.set_xlabel("share")
