"""Comparisons of a study's baseline with the others, per setting, corrected for their number.

The comparisons of one quantity in one setting are a family (Holm): the readers of a table ask of one quantity which
designs differ from the baseline. Quantities of the same runs are not corrected for each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from volery.metrics import Distribution, RunSummary
from volery.statistics import (
    CONFIDENCE,
    CORRECTED,
    ComparedJobs,
    ComparedMeans,
    Difference,
    JobsDifference,
    holm,
    jobs_difference,
    paired_difference,
    paired_ratio,
    seeded_difference,
)

Quantity = Callable[[RunSummary], float | None]
CLASSES: Final = ("all", "short", "long")


def _delay(jobs: str, statistic: Callable[[Distribution], float]) -> Quantity:
    def of(run: RunSummary) -> float | None:
        members = {"all": run, "short": run.short, "long": run.long}[jobs]
        return statistic(members.delay_s) if members is not None and members.delay_s.count else None

    return of


_STATISTICS: Final[dict[str, Callable[[Distribution], float]]] = {
    "median delay": lambda delay: delay.p50,
    "mean delay": lambda delay: delay.mean,
    "p99 delay": lambda delay: delay.p99,
}
_QUANTITIES: Final[tuple[tuple[str, str, str, Quantity], ...]] = (
    *((name, jobs, "s", _delay(jobs, of)) for jobs in CLASSES for name, of in _STATISTICS.items()),
    ("mean utilisation", "all", "", lambda run: run.utilisation_mean),
)


class JobTimes(msgspec.Struct, frozen=True, eq=False):
    """The jobs of one run, in the order of the trace.

    Args:
        submit_s: submission, seconds since the run began.
        delay_s: seconds; not a number where it was not measured, or the job is outside of the measurement window.
    """

    seed: int
    submit_s: Any
    delay_s: Any
    is_short: Any

    @classmethod
    def of(cls, seed: int, columns: Mapping[str, Any]) -> JobTimes:
        """From the columns of a run's jobs."""
        measured = columns.get("counted", True) & (columns["jrt_s"] >= 0)
        return cls(seed, columns["submit_s"], np.where(measured, columns["delay_s"], np.nan), columns["is_short"])


def differences(
    settings: Sequence[Mapping[str, Sequence[RunSummary]]],
    baselines: Collection[str] = (),
    confidence: float = CONFIDENCE,
) -> list[ComparedMeans]:
    """Compare over seeds within each setting.

    Args:
        settings: per setting, label -> its runs.
        baselines: labels that others are compared with; the first label in a setting that has none of them.
        confidence: of each interval, and of each family of verdicts.
    """
    return [found for groups in settings for found in _over_seeds(_baseline(groups, baselines), groups, confidence)]


def on_days_like_this(jobs: Mapping[str, JobTimes], baselines: Collection[str] = ()) -> list[ComparedJobs]:
    """Compare single runs of one setting job by job; the chance is which jobs came.

    Args:
        jobs: label -> jobs of one run, all of the same workload.
        baselines: as for `differences`.
    """
    first = _baseline(jobs, baselines)
    found = [one for name in CLASSES for one in _of_class(name, first, jobs)]
    order = list(jobs)
    return sorted(found, key=lambda one: order.index(one.b))


def _baseline(groups: Mapping[str, Any], baselines: Collection[str]) -> str:
    return next((label for label in groups if label in baselines), next(iter(groups)))


def _over_seeds(a: str, groups: Mapping[str, Sequence[RunSummary]], confidence: float) -> list[ComparedMeans]:
    families = [list(_of_quantity(a, groups, confidence, *quantity)) for quantity in _QUANTITIES]
    return [one for b in groups for family in families for one in family if one.b == b]


def _of_quantity(
    a: str,
    groups: Mapping[str, Sequence[RunSummary]],
    confidence: float,
    name: str,
    jobs: str,
    unit: str,
    quantity: Quantity,
) -> Iterator[ComparedMeans]:
    """The comparisons of one quantity with that of a."""
    values: dict[str, tuple[list[float], list[float]]] = {}
    for b in groups:
        runs_a, runs_b = ({run.seed: run for run in groups[label]} for label in (a, b))
        pairs = [(quantity(runs_a[seed]), quantity(runs_b[seed])) for seed in sorted(runs_a.keys() & runs_b.keys())]
        whole = [(x, y) for x, y in pairs if x is not None and y is not None]
        if whole and b != a:
            values[b] = [x for x, _ in whole], [y for _, y in whole]
    compare = paired_ratio if unit == "s" else paired_difference
    random = {b: _is_random(groups[a]) or _is_random(groups[b]) for b in values}
    single = {
        b: seeded_difference(*pair, random=random[b], skewed=unit == "s", confidence=confidence)
        for b, pair in values.items()
    }

    def is_shown(b: str, level: float) -> bool:
        return compare(*values[b], confidence=level).is_shown

    for b, difference in _corrected(single, is_shown, confidence).items():
        a_mean, b_mean = (sum(one) / len(one) for one in values[b])
        told = msgspec.UNSET if confidence == CONFIDENCE else confidence
        yield ComparedMeans(a, b, jobs, name, unit, a_mean, b_mean, difference, len(_told(single)) or 1, told)


def _is_random(runs: Sequence[RunSummary]) -> bool:
    return len({run.digest for run in runs}) > 1


def _corrected(
    single: Mapping[str, Difference], is_shown: Callable[[str, float], bool], confidence: float = CONFIDENCE
) -> dict[str, Difference]:
    """A family of comparisons with the verdicts that Holm's correction leaves.

    Args:
        single: label -> the comparison, as if it were the only one.
        is_shown: from a label and a confidence to true if a difference is shown with this confidence.
    """

    def of(label: str) -> Callable[[float], bool]:
        return lambda level: single[label].is_shown and is_shown(label, level)

    told = _told(single)
    if len(told) < 2:
        return dict(single)
    kept = dict(zip(told, holm([of(label) for label in told], confidence), strict=True))
    return {
        label: msgspec.structs.replace(one, verdict=CORRECTED) if one.is_shown and not kept[label] else one
        for label, one in single.items()
    }


def _told(single: Mapping[str, Difference]) -> list[str]:
    """The comparisons of a family that have an interval."""
    return [label for label, one in single.items() if one.method]


def _of_class(name: str, a: str, jobs: Mapping[str, JobTimes]) -> Iterator[ComparedJobs]:
    """The comparisons of a class of jobs with those of a."""
    base = jobs[a]
    members = {"all": np.ones(len(base.is_short), bool), "short": base.is_short, "long": ~base.is_short}[name]
    others = [label for label in jobs if label != a]
    names = [quantity.removesuffix(" delay") for quantity in _STATISTICS]
    if not members.any() or (name != "all" and members.all()):
        return
    submit_s, base_s = base.submit_s[members], base.delay_s[members]
    by_label = {
        b: dict(zip(_STATISTICS, jobs_difference(submit_s, base_s, jobs[b].delay_s[members], names), strict=True))
        for b in others
    }
    for quantity in _STATISTICS:
        family = {b: found[quantity] for b, found in by_label.items()}
        single = {b: _as_difference(one) for b, one in family.items()}
        for b, difference in _corrected(single, functools.partial(_is_shown_at, family)).items():
            one = family[b]
            yield ComparedJobs(
                a,
                b,
                name,
                quantity,
                "s",
                one.a,
                one.b,
                difference,
                len(_told(single)) or 1,
                seed=base.seed,
                job_count=one.jobs,
                block=one.block,
            )


def _is_shown_at(family: Mapping[str, JobsDifference], label: str, confidence: float) -> bool:
    return family[label].is_shown_at(confidence)


def _as_difference(one: JobsDifference) -> Difference:
    """The comparison by its ratio, unless only the difference has an interval."""
    ratio = None if one.method and one.ratio_low is None else one.ratio
    return Difference(
        one.difference, one.low, one.high, 1, one.verdict, one.method, ratio, one.ratio_low, one.ratio_high
    )
