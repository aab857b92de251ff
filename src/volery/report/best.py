"""The lowest of each quantity, and the designs that corrected comparisons do not tell apart from it.

The data choose the lowest, so that any pair of the k designs may be the one that is compared: verdicts are corrected
for all k (k - 1) / 2 pairs of a quantity in a setting (`volery.statistics.differences`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from volery.look.text import NOTHING, digits, duration, shortened
from volery.report.axes import Quantity, delay_of
from volery.report.groups import CLASSES, JobClass, RunGroup, by_setting
from volery.statistics import CONFIDENCE, HIGHER, SEEDS_MIN, holm, paired_difference, paired_ratio

RIVALS_MIN = 3
"""Two architectures need no ranking: their paired differences say it all."""
MESSAGES: Final = "messages"


class Best(msgspec.Struct, frozen=True):
    """The lowest of one quantity in one setting.

    Args:
        setting: the text in square brackets at the end of the labels; empty where the study has one setting.
        quantity: "median delay", "mean delay", "p99 delay" or "messages per task".
        unit: "s" or "messages".
        label: whose mean over the seeds is the lowest.
        level: the others that no corrected comparison shows to be higher, by their means.
        next: labels with the lowest mean that is shown to be higher; empty where there is none.
        next_mean: mean of the labels in `next`; 0 where there is none.
    """

    setting: str
    jobs: str
    quantity: str
    unit: str
    label: str
    mean: float
    level: tuple[str, ...]
    next: tuple[str, ...]
    next_mean: float

    @property
    def amounts(self) -> tuple[str, str]:
        """The lowest mean and the next one with their unit; a dash where there is none."""
        return written(self.mean, self.unit), written(self.next_mean, self.unit) if self.next else NOTHING


_STATISTICS: Final = (("median delay", "p50"), ("mean delay", "mean"), ("p99 delay", "p99"))
_QUANTITIES: Final[tuple[tuple[JobClass, str, str, Quantity], ...]] = (
    *((jobs, name, "s", delay_of(jobs, statistic)) for jobs in CLASSES for name, statistic in _STATISTICS),
    ("all", "messages per task", MESSAGES, lambda run: run.messages_per_task),
)


def best(groups: Sequence[RunGroup], confidence: float = CONFIDENCE) -> list[Best]:
    """Rank within each setting that has three architectures or more, and two seeds that all of them share.

    Args:
        confidence: confidence that all differences of one quantity in one setting have together.
    """
    ranking: list[Best] = []
    for setting, members in by_setting(groups):
        seeds = set.intersection(*({run.seed for run in group.runs} for group in members))
        if len(members) < RIVALS_MIN or len(seeds) < SEEDS_MIN:
            continue

        for jobs, name, unit, quantity in _QUANTITIES:
            values = {group.label: _values(group, seeds, quantity) for group in members}
            ranked = _ranked({label: means for label, means in values.items() if len(means) == len(seeds)})
            if len(ranked) >= RIVALS_MIN:
                ranking.append(_lowest(setting, jobs, name, unit, ranked, confidence))
    return ranking


def _values(group: RunGroup, seeds: set[int], quantity: Quantity) -> list[float]:
    quantities = (quantity(run) for run in group.runs if run.seed in seeds)
    return [value for value in quantities if value is not None]


def _ranked(values: dict[str, list[float]]) -> list[tuple[str, float, list[float]]]:
    means = [(label, sum(quantities) / len(quantities), quantities) for label, quantities in values.items()]
    return sorted(means, key=lambda mean: mean[1])


def _lowest(
    setting: str,
    jobs: str,
    quantity: str,
    unit: str,
    ranked: Sequence[tuple[str, float, list[float]]],
    confidence: float = CONFIDENCE,
) -> Best:
    def bare(labels: Sequence[str]) -> tuple[str, ...]:
        return tuple(label.removesuffix(f" [{setting}]") for label in labels)

    label, mean, values = ranked[0]
    compare = paired_ratio if unit == "s" else paired_difference

    def excludes(quantities: Sequence[float]) -> Callable[[float], bool]:
        single = compare(quantities, values).verdict == HIGHER  # the ratio may be below 1 where the mean is above
        return lambda level: single and compare(quantities, values, confidence=level).verdict == HIGHER

    # All pairs count, not those with the lowest alone: which architecture is lowest was seen in the same numbers.
    shown = holm(
        [excludes(quantities) for _, _, quantities in ranked[1:]], confidence, len(ranked) * (len(ranked) - 1) // 2
    )
    higher = [
        (label_b, other_mean) for (label_b, other_mean, _), is_shown in zip(ranked[1:], shown, strict=True) if is_shown
    ]
    names = {label_b for label_b, _ in higher}

    level = [label_b for label_b, _, _ in ranked[1:] if label_b not in names]
    next_mean = higher[0][1] if higher else 0.0
    following = [label_b for label_b, other_mean in higher if other_mean == next_mean]
    return Best(setting, jobs, quantity, unit, bare([label])[0], mean, bare(level), bare(following), next_mean)


def told(groups: Sequence[RunGroup]) -> str:
    """The caption of a ranking: what is compared, and by which rule two are not told apart."""
    alike = sum(group.is_alike for group in groups)
    if alike == len(groups):
        return "Nothing is random here: the values are exact for this trace, and those not told apart are equal."
    rule = (
        "Not told apart: the paired comparison with the lowest (ratios of delays) shows no difference after the "
        "correction for all pairs of designs (Holm)."
    )
    exact = " Where neither of the two is random, they are equal." if alike > 1 else ""
    return f"By the mean over seeds. {rule}{exact}"


def written(value: float, unit: str) -> str:
    """A ranked quantity with its unit."""
    return duration(value) if unit == "s" else digits(value)


def sentences(ranking: Sequence[Best]) -> Iterator[str]:
    """The medians and tails of all jobs, in words."""
    for ranked in ranking:
        if ranked.jobs != "all" or ranked.quantity not in ("median delay", "p99 delay"):
            continue

        setting_note = f" ({ranked.setting})" if ranked.setting else ""
        level = f", not told apart from {_listed(ranked.level)}" if ranked.level else ""
        next_note = f"; next is {_listed(ranked.next)}, {written(ranked.next_mean, ranked.unit)}" if ranked.next else ""

        lowest = f"{_listed([ranked.label])}, {written(ranked.mean, ranked.unit)}"
        yield f"The lowest {ranked.quantity}{setting_note} is that of {lowest}{level}{next_note}."


def _listed(labels: Sequence[str]) -> str:
    labels = list(map(shortened, labels))
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
