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
        """The times of the jobs of a run, from its columns."""
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
        confidence: confidence of each interval, and of each family of verdicts.
    """
    return [
        compared for groups in settings for compared in _over_seeds(_baseline(groups, baselines), groups, confidence)
    ]


def on_days_like_this(jobs: Mapping[str, JobTimes], baselines: Collection[str] = ()) -> list[ComparedJobs]:
    """Compare single runs of one setting job by job; the chance is which jobs came.

    Args:
        jobs: label -> jobs of one run, all of the same workload.
        baselines: see `differences`.
    """
    first = _baseline(jobs, baselines)
    comparisons = [compared for name in CLASSES for compared in _of_class(name, first, jobs)]
    # In the order of the study, as the tables over seeds are, and not class by class.
    order = list(jobs)
    return sorted(comparisons, key=lambda compared: order.index(compared.b))


def _baseline(groups: Mapping[str, Any], baselines: Collection[str]) -> str:
    return next((label for label in groups if label in baselines), next(iter(groups)))


def _over_seeds(a: str, groups: Mapping[str, Sequence[RunSummary]], confidence: float) -> list[ComparedMeans]:

    families = [list(_of_quantity(a, groups, confidence, *quantity)) for quantity in _QUANTITIES]
    return [compared for b in groups for family in families for compared in family if compared.b == b]


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
        complete_pairs = [(x, y) for x, y in pairs if x is not None and y is not None]
        if complete_pairs and b != a:
            values[b] = [x for x, _ in complete_pairs], [y for _, y in complete_pairs]

    compare = paired_ratio if unit == "s" else paired_difference

    random = {b: _is_random(groups[a]) or _is_random(groups[b]) for b in values}
    single = {
        b: seeded_difference(*pair, random=random[b], skewed=unit == "s", confidence=confidence)
        for b, pair in values.items()
    }

    def is_shown(b: str, level: float) -> bool:
        return compare(*values[b], confidence=level).is_shown

    for b, difference in _corrected(single, is_shown, confidence).items():
        a_mean, b_mean = (sum(quantities) / len(quantities) for quantities in values[b])
        stated_confidence = msgspec.UNSET if confidence == CONFIDENCE else confidence
        yield ComparedMeans(
            a, b, jobs, name, unit, a_mean, b_mean, difference, len(_told(single)) or 1, stated_confidence
        )


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

    judged = _told(single)

    if len(judged) < 2:
        return dict(single)

    is_kept = dict(zip(judged, holm([of(label) for label in judged], confidence), strict=True))
    return {
        label: msgspec.structs.replace(difference, verdict=CORRECTED)
        if difference.is_shown and not is_kept[label]
        else difference
        for label, difference in single.items()
    }


def _told(single: Mapping[str, Difference]) -> list[str]:
    """The comparisons of a family that have an interval."""
    return [label for label, difference in single.items() if difference.method]


def _of_class(name: str, a: str, jobs: Mapping[str, JobTimes]) -> Iterator[ComparedJobs]:
    """The comparisons of a class of jobs with those of a."""
    base = jobs[a]
    members = {"all": np.ones(len(base.is_short), bool), "short": base.is_short, "long": ~base.is_short}[name]
    other_labels = [label for label in jobs if label != a]
    names = [quantity.removesuffix(" delay") for quantity in _STATISTICS]
    # A class with all jobs would repeat the comparison of all.
    if not members.any() or (name != "all" and members.all()):
        return

    submit_s, base_s = base.submit_s[members], base.delay_s[members]
    by_label = {
        b: dict(zip(_STATISTICS, jobs_difference(submit_s, base_s, jobs[b].delay_s[members], names), strict=True))
        for b in other_labels
    }

    for quantity in _STATISTICS:
        family = {b: by_quantity[quantity] for b, by_quantity in by_label.items()}
        single = {b: _as_difference(compared) for b, compared in family.items()}

        for b, difference in _corrected(single, functools.partial(_is_shown_at, family)).items():
            compared = family[b]
            yield ComparedJobs(
                a,
                b,
                name,
                quantity,
                "s",
                compared.a,
                compared.b,
                difference,
                len(_told(single)) or 1,
                seed=base.seed,
                job_count=compared.jobs,
                block=compared.block,
            )


def _is_shown_at(family: Mapping[str, JobsDifference], label: str, confidence: float) -> bool:
    return family[label].is_shown_at(confidence)


def _as_difference(compared: JobsDifference) -> Difference:
    """The comparison by its ratio, unless only the difference has an interval."""
    ratio = None if compared.method and compared.ratio_low is None else compared.ratio
    return Difference(
        compared.difference,
        compared.low,
        compared.high,
        1,
        compared.verdict,
        compared.method,
        ratio,
        compared.ratio_low,
        compared.ratio_high,
    )
