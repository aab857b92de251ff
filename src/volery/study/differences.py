"""Which is better, and is it more than chance: the baseline of a study against each other, per setting."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from volery.metrics import Distribution, RunSummary
from volery.statistics import CONFIDENCE, ComparedMeans, seeded_difference

Quantity = Callable[[RunSummary], float | None]


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
    *((name, jobs, "s", _delay(jobs, of)) for jobs in ("all", "short", "long") for name, of in _STATISTICS.items()),
    ("mean utilisation", "all", "", lambda run: run.utilisation_mean),
)


def differences(
    settings: Sequence[Mapping[str, Sequence[RunSummary]]],
    baselines: Collection[str] = (),
    confidence: float = CONFIDENCE,
) -> list[ComparedMeans]:
    """Compare within each setting.

    Args:
        settings: per setting, label -> its runs.
        baselines: labels that others are compared with; the first label in a setting that has none of them.
        confidence: of each interval.
    """
    return [
        found
        for groups in settings
        for first in [next((label for label in groups if label in baselines), next(iter(groups)))]
        for label in groups
        if label != first
        for found in _between(first, label, groups, confidence)
    ]


def _between(a: str, b: str, groups: Mapping[str, Sequence[RunSummary]], confidence: float) -> Iterator[ComparedMeans]:
    runs_a = {run.seed: run for run in groups[a]}
    runs_b = {run.seed: run for run in groups[b]}
    random = len({run.digest for run in runs_a.values()}) > 1 or len({run.digest for run in runs_b.values()}) > 1
    for name, jobs, unit, quantity in _QUANTITIES:
        pairs = [(quantity(runs_a[seed]), quantity(runs_b[seed])) for seed in sorted(runs_a.keys() & runs_b.keys())]
        whole = [(x, y) for x, y in pairs if x is not None and y is not None]
        if whole:
            values_a, values_b = [x for x, _ in whole], [y for _, y in whole]
            yield ComparedMeans(
                a, b, jobs, name, unit, sum(values_a) / len(whole), sum(values_b) / len(whole),
                seeded_difference(values_a, values_b, random=random, confidence=confidence),
            )  # fmt: skip
