"""The pictures of a study that stand in its report and can be had as files: delay, utilisation, allocation, load."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from volery.core.errors import InputError
from volery.look.text import shortened
from volery.metrics import AllocationSummary
from volery.report import plots
from volery.report.axes import HEADLINE, MEASURES, numeric_axes, panels, slug
from volery.report.axisplot import axis_svg
from volery.report.folder import StoredResults, read_results
from volery.report.groups import JobClass, RunGroup, by_setting, group_runs, methods

PARTS: Final[tuple[tuple[str, Callable[[AllocationSummary], float]], ...]] = (
    ("communication", lambda a: a.communication.mean),
    ("processing", lambda a: a.processing.mean),
    ("worker queueing", lambda a: a.worker_queueing.mean),
    ("framework queueing", lambda a: a.framework_queueing.mean),
)
FIGURES_MAX = 12
"""Settings with pictures of their own; the tables hold all."""
CLASS_TITLES: Final[dict[JobClass, str]] = {"all": "all jobs", "short": "short jobs", "long": "long jobs"}


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
            axis_pictures(results), delay_pictures(results, groups), utilisation_pictures(results, groups),
            allocation_pictures(groups), load_pictures(results), conflict_pictures(results),
        ):  # fmt: skip
            path = into / f"{picture.name}.svg"
            path.write_text(picture.svg, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise InputError(str(into), f"cannot be written: {error.strerror}") from None
    return written


def axis_pictures(results: StoredResults) -> Iterator[CaptionedPicture]:
    """The measures that matter most over each axis of numbers, as the load."""
    runs = results.summary.runs
    measures = [one for one in MEASURES if one.name in HEADLINE]
    for axis in numeric_axes(runs):
        for panel in itertools.islice(panels(runs, axis, measures), FIGURES_MAX):
            jobs = CLASS_TITLES[panel.measure.jobs]
            where = f", {shortened(panel.setting)}" if panel.setting else ""
            how = methods(point.interval for line in panel.lines for point in line.points)
            note = (
                f"; the band is the 95 % interval of the mean over seeds ({how})."
                if how
                else "; one seed, no interval."
            )
            yield CaptionedPicture(
                panel.name, axis_svg(panel), f"{panel.measure.title} of {jobs} over {axis}{where}{note}"
            )


def delay_pictures(results: StoredResults, groups: Sequence[RunGroup]) -> Iterator[CaptionedPicture]:
    """Distributions of delay, per class of jobs."""
    classes: list[JobClass] = list(dict.fromkeys(jobs for group in groups for jobs in group.classes()))
    for setting, members in settings(groups):
        for jobs in classes:
            series = delay_series(results, setting, members, jobs)
            if series:
                what = f"Delay of {CLASS_TITLES[jobs]}" + (f", {shortened(setting)}" if setting else "")
                many = any(len(one.per_seed) > 1 for one in series)
                note = ": share of jobs that are delayed by at most so much" + (
                    "; thin lines are seeds." if many else "."
                )
                yield CaptionedPicture(
                    slug(f"delay-{jobs}", setting), plots.delay_cdf(series, title=setting), what + note
                )


def delay_series(
    results: StoredResults, setting: str, members: Sequence[RunGroup], jobs: JobClass
) -> list[plots.Series]:
    """Delays of a class of jobs in one setting, per architecture that has any."""
    found = [results.delays_s(group.label, jobs) for group in members]
    return [_renamed(one, setting) for one in found if one.per_seed]


def utilisation_pictures(results: StoredResults, groups: Sequence[RunGroup]) -> Iterator[CaptionedPicture]:
    """Busy slots over time."""
    for setting, members in settings(groups):
        found = [results.curves.get(group.label) for group in members]
        curves = [plots.SeedCurves(_without(c.label, setting), c.times_s, c.values) for c in found if c is not None]
        if curves:
            many = any(len(one.values) > 1 for one in curves)
            caption = "Utilisation over time" + (f", {shortened(setting)}" if setting else "")
            caption += "; the band is the range over seeds." if many else "."
            yield CaptionedPicture(
                slug("utilisation", setting), plots.utilisation_curves(curves, title=setting), caption
            )


def allocation_pictures(groups: Sequence[RunGroup]) -> Iterator[CaptionedPicture]:
    """Pictures of the parts of the allocation time."""
    for setting, members in settings(groups):
        parts = {name: [mean_part_s(group, of) for group in members] for name, of in PARTS}
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
    for one in results.conflicts[:FIGURES_MAX]:
        caption = "Scheduling conflicts per second" + (f", {shortened(one.title)}" if one.title else "")
        name = slug("conflicts", one.title)
        yield CaptionedPicture(name, plots.conflict_curves(one), f"{caption}; the band reaches to the largest.")


def _renamed(one: plots.Series, setting: str) -> plots.Series:
    return plots.Series(_without(one.label, setting), one.per_seed)


def mean_part_s(group: RunGroup, part: Callable[[AllocationSummary], float]) -> float:
    """The mean of a part of the allocation time, seconds."""
    return group.mean(lambda run: part(run.allocation_s))


def _without(label: str, setting: str) -> str:
    return label.removesuffix(f" [{setting}]") if setting else label


def settings(groups: Sequence[RunGroup]) -> list[tuple[str, list[RunGroup]]]:
    """Groups by setting; at most so many as have pictures."""
    return by_setting(groups)[:FIGURES_MAX]
