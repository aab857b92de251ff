"""Measures over an axis of a study: a line per architecture, with its mean and interval at each value of the axis."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from volery.metrics import RunSummary
from volery.report.groups import CLASSES, JobClass, file_names, label_of, setting_of
from volery.statistics import Interval, interval_of_mean

SLUG_MAX: Final = 120
Quantity = Callable[[RunSummary], float | None]


class Measure(msgspec.Struct, frozen=True):
    """A quantity of a run that tables and pictures show over an axis.

    Args:
        name: as in file names and heads of columns.
        title: in words.
        unit: "s", or empty for a fraction.
        jobs: the class of jobs that it is of.
        of: its value in a run; None where the run has no such job.
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
        measure: what is shown.
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
    found = "-".join(re.sub(r"[^A-Za-z0-9.=_+]+", "-", part).strip("-") for part in (name, *setting.split()))
    if len(found) <= SLUG_MAX:
        return found
    digest = hashlib.sha256(f"{name} {setting}".encode()).hexdigest()[:8]
    return f"{found[: SLUG_MAX - 9]}-{digest}"


def _delay(jobs: JobClass, statistic: str) -> Quantity:
    def of(run: RunSummary) -> float | None:
        members = {"all": run, "short": run.short, "long": run.long}[jobs]
        known = members is not None and members.delay_s.count
        return float(getattr(members.delay_s, statistic)) if members is not None and known else None

    return of


MEASURES: Final[tuple[Measure, ...]] = (
    *(
        Measure(f"{name}-delay", f"{name} delay", "s", jobs, _delay(jobs, statistic))
        for jobs in CLASSES
        for name, statistic in (("mean", "mean"), ("median", "p50"), ("p99", "p99"))
    ),
    Measure("utilisation", "mean utilisation", "", "all", lambda run: run.utilisation_mean),
)
HEADLINE: Final = ("mean-delay", "p99-delay")
"""Measures that the report draws; `volery export` draws all."""


def varying(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """The axes with more than one value, and their values in the order of the study."""
    found: dict[str, list[Any]] = {}
    for run in runs:
        for name, value in run.axes.items():
            values = found.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    return {name: values for name, values in found.items() if len(values) > 1}


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
    others = {name: file_names(values) for name, values in axes.items() if name != axis and "." not in name}
    settings: dict[str, list[RunSummary]] = {}
    for run in runs:
        where = " ".join(f"{name}={short.get(run.axes[name], run.axes[name])}" for name, short in others.items())
        settings.setdefault(where, []).append(run)
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
    name, _, rest = label.partition(":")
    kept = [part for part in rest.split(",") if not part.startswith(f"{parameter}=")]
    return f"{name}:{','.join(kept)}" if kept else name


def bare_label(run: RunSummary) -> str:
    """The label of a run without its setting in square brackets."""
    label = label_of(run)
    return label.removesuffix(f" [{setting_of(label)}]")
