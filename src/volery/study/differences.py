"""Comparisons of a study's baseline with the others, per setting, corrected for their number.

The comparisons of one quantity in one setting are a family (Holm): the readers of a table ask of one quantity which
designs differ from the baseline. Quantities of the same runs are not corrected for each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from volery.metrics import Distribution, RunSummary
from volery.statistics import (
    CONFIDENCE,
    CORRECTED,
    ComparedJobs,
    ComparedMeans,
    Difference,
    holm,
    paired_difference,
    paired_ratio,
    seeded_difference,
)
from volery.statistics.workload import JobsDifference, jobs_difference

Quantity = Callable[[RunSummary], float | None]
CLASSES: Final = ("all", "short", "long")
JOBS_MIN: Final = 30
"""Fewer jobs of a class say nothing of other days."""


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
        seed: of the run.
        submit_s: submission, seconds since the run began.
        delay_s: seconds; not a number where it was not measured, or the job is outside of the measurement window.
        is_short: true for short jobs.
    """

    seed: int
    submit_s: Any
    delay_s: Any
    is_short: Any

    @classmethod
    def of(cls, seed: int, columns: Mapping[str, Any]) -> JobTimes:
        """From the columns of a run's jobs."""
        import numpy as np

        measured = columns.get("counted", True) & (columns["jrt_s"] >= 0)
        return cls(seed, columns["submit_s"], np.where(measured, columns["delay_s"], np.nan), columns["is_short"])


def differences(
    settings: Sequence[Mapping[str, Sequence[RunSummary]]], baselines: Collection[str] = ()
) -> list[ComparedMeans]:
    """Compare over seeds within each setting.

    Args:
        settings: per setting, label -> its runs.
        baselines: labels that others are compared with; the first label in a setting that has none of them.
    """
    return [found for groups in settings for found in _over_seeds(_baseline(groups, baselines), groups)]


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


def _over_seeds(a: str, groups: Mapping[str, Sequence[RunSummary]]) -> list[ComparedMeans]:
    families = [list(_of_quantity(a, groups, *quantity)) for quantity in _QUANTITIES]
    return [one for b in groups for family in families for one in family if one.b == b]


def _of_quantity(
    a: str, groups: Mapping[str, Sequence[RunSummary]], name: str, jobs: str, unit: str, quantity: Quantity
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
    single = {
        b: seeded_difference(*pair, random=_is_random(groups[a]) or _is_random(groups[b]), skewed=unit == "s")
        for b, pair in values.items()
    }

    def is_shown(b: str, confidence: float) -> bool:
        return compare(*values[b], confidence=confidence).is_shown

    for b, difference in _corrected(single, is_shown).items():
        means = [sum(one) / len(one) for one in values[b]]
        yield ComparedMeans(a, b, jobs, name, unit, *means, difference, len(single))


def _is_random(runs: Sequence[RunSummary]) -> bool:
    return len({run.digest for run in runs}) > 1


def _corrected(single: Mapping[str, Difference], is_shown: Callable[[str, float], bool]) -> dict[str, Difference]:
    """A family of comparisons with the verdicts that Holm's correction leaves.

    Args:
        single: label -> the comparison, as if it were the only one.
        is_shown: from a label and a confidence to true if a difference is shown with this confidence.
    """

    def of(label: str) -> Callable[[float], bool]:
        return lambda confidence: single[label].is_shown and is_shown(label, confidence)

    if len(single) < 2:
        return dict(single)
    kept = dict(zip(single, holm([of(label) for label in single]), strict=True))
    return {
        label: one if kept[label] or not one.is_shown else msgspec.structs.replace(one, verdict=CORRECTED)
        for label, one in single.items()
    }


def _of_class(name: str, a: str, jobs: Mapping[str, JobTimes]) -> Iterator[ComparedJobs]:
    """The comparisons of a class of jobs with those of a."""
    import numpy as np

    base = jobs[a]
    members = {"all": np.ones(len(base.is_short), bool), "short": base.is_short, "long": ~base.is_short}[name]
    others = [label for label in jobs if label != a]
    if not members.any() or (name != "all" and members.all()):
        return
    rows = {b: np.flatnonzero(members & ~np.isnan(base.delay_s) & ~np.isnan(jobs[b].delay_s)) for b in others}
    rows = {b: found[np.argsort(base.submit_s[found], kind="stable")] for b, found in rows.items()}

    @functools.cache
    def at(b: str, confidence: float) -> dict[str, JobsDifference]:
        delays = (jobs[label].delay_s[rows[b]] for label in (a, b))
        return {one.statistic: one for one in jobs_difference(base.submit_s[rows[b]], *delays, confidence=confidence)}

    def of(b: str, confidence: float, statistic: str) -> Difference:
        one = at(b, confidence)[statistic]
        return Difference(
            one.difference, one.low, one.high, 1, one.verdict, one.method, one.ratio, one.ratio_low, one.ratio_high
        )

    compared = [b for b in others if len(rows[b]) >= JOBS_MIN]
    for quantity in _STATISTICS:
        which = functools.partial(of, statistic=quantity.removesuffix(" delay"))
        single = {b: which(b, CONFIDENCE) for b in compared}
        for b, difference in _corrected(single, lambda b, level, which=which: which(b, level).is_shown).items():
            one = at(b, CONFIDENCE)[quantity.removesuffix(" delay")]
            yield ComparedJobs(
                a, b, name, quantity, "s", one.a, one.b, difference, len(compared),
                seed=base.seed, job_count=one.jobs, block=one.block,
            )  # fmt: skip
