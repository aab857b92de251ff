"""Runs that differ in the seed alone belong together; what is said about a group is the mean over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from volery.metrics import ClassSummary, Distribution, RunSummary
from volery.statistics import EXACT, PAIRED_T, Interval, interval_of_mean

JobClass = Literal["all", "short", "long"]
CLASSES: Final[tuple[JobClass, ...]] = ("all", "short", "long")


def class_summary(run: RunSummary, jobs: JobClass) -> RunSummary | ClassSummary | None:
    """The summary of a class of jobs; None where the run has measured none of it."""
    summary = {"all": run, "short": run.short, "long": run.long}[jobs]
    return summary if summary is not None and summary.delay_s.count else None


class RunGroup(msgspec.Struct, frozen=True):
    """Runs under one label, in order of their seeds."""

    label: str
    runs: tuple[RunSummary, ...]

    @property
    def is_alike(self) -> bool:
        """True where nothing is random: the runs of two seeds or more are the same run."""
        return len(self.runs) > 1 and len({run.digest for run in self.runs}) == 1

    def mean(self, quantity: Callable[[RunSummary], float]) -> float:
        """The mean of a quantity over the seeds."""
        return sum(quantity(run) for run in self.runs) / len(self.runs)

    def members(self, jobs: JobClass) -> list[RunSummary | ClassSummary]:
        """The summaries of a class of jobs, one per seed that has measured jobs of it."""
        return [summary for run in self.runs if (summary := class_summary(run, jobs)) is not None]

    def delay_s(self, jobs: JobClass) -> Distribution | None:
        """The delay of a class of jobs, each statistic averaged over the seeds; None where there is none."""
        return mean_distribution([summary.delay_s for summary in self.members(jobs)])

    def interval_s(self, jobs: JobClass) -> Interval | None:
        """The 95 % interval of the mean delay over seeds; None where seeds tell nothing."""
        summaries = [] if self.is_alike else self.members(jobs)
        return interval_of_mean([summary.delay_s.mean for summary in summaries]) if summaries else None

    def half_width_s(self, jobs: JobClass) -> float | None:
        """Half the width of that interval."""
        interval = self.interval_s(jobs)
        if interval is None:
            return None
        return 0.0 if interval.method == EXACT else (interval.high - interval.low) / 2

    def classes(self) -> Iterator[JobClass]:
        """All, and short and long where both occur."""
        yield "all"
        if self.members("short") and self.members("long"):
            yield "short"
            yield "long"


def methods(intervals: Iterable[Interval | None]) -> str:
    """The methods of intervals of means, for captions; without pairs, "paired t" is Student's t."""
    names = {interval.method for interval in intervals if interval is not None}
    return " or ".join(sorted("Student's t" if method == PAIRED_T else method for method in names))


def mean_distribution(distributions: Sequence[Distribution]) -> Distribution | None:
    """Each statistic averaged (the count is the sum); None when there is nothing to average."""
    if not distributions:
        return None
    averages = {
        name: sum(getattr(d, name) for d in distributions) / len(distributions)
        for name in Distribution.__struct_fields__[1:]
        if all(getattr(d, name) is not None for d in distributions)
    }
    return Distribution(count=sum(d.count for d in distributions), **averages)


def label_of(run: RunSummary) -> str:
    """The name of a run: its label, or architecture and parameters."""
    parameters = ",".join(f"{name}={value}" for name, value in run.parameters.items())
    return run.label or (f"{run.architecture}:{parameters}" if parameters else run.architecture)


def group_runs(runs: Sequence[RunSummary]) -> list[RunGroup]:
    """Gather the runs that share a label, in order of first appearance."""
    members: dict[str, list[RunSummary]] = {}
    for run in runs:
        members.setdefault(label_of(run), []).append(run)
    return [
        RunGroup(label, tuple(sorted(runs_of_label, key=lambda run: run.seed)))
        for label, runs_of_label in members.items()
    ]


def by_setting(groups: Sequence[RunGroup]) -> list[tuple[str, list[RunGroup]]]:
    """Groups by the setting that their label ends with in square brackets; empty where it ends otherwise."""
    groups_of: dict[str, list[RunGroup]] = {}
    for group in groups:
        groups_of.setdefault(setting_of(group.label), []).append(group)
    return list(groups_of.items())


def file_names(values: Iterable[Any]) -> dict[Any, str]:
    """Path -> name, of each file among the values of an axis whose name no other value has."""
    paths = [value for value in values if isinstance(value, str)]
    names = [value.rsplit("/", 1)[-1] for value in paths]
    pairs = zip(paths, names, strict=True)
    # Two files of one name in different folders keep their paths: labels must tell them apart.
    return {value: name for value, name in pairs if value.startswith("/") and name and names.count(name) == 1}


def setting_of(label: str) -> str:
    """The setting that a label ends with in square brackets; empty where it ends otherwise."""
    _, bracket, setting = label.rpartition(" [")
    return setting.removesuffix("]") if bracket and setting.endswith("]") else ""
