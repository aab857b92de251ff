"""The sentences about a study that has added seeds until its comparisons were decided, or a limit came first."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from volery.report.units import confidence
from volery.statistics import CONFIDENCE

Reason = Literal["decided", "limit", "budget"]
DECIDED: Final = "decided"
LIMIT: Final = "limit"
BUDGET: Final = "budget"
JUDGED: Final = "median, mean and p99 delay of all jobs"


class Look(msgspec.Struct, frozen=True):
    """One judgement of the comparisons of a study that adds seeds.

    Args:
        seeds: that each comparison has.
        confidence: of each interval at this look; all looks together keep 95 %.
        undecided: number of comparisons that are not decided.
    """

    seeds: int
    confidence: float
    undecided: int


class Stopping(msgspec.Struct, frozen=True):
    """The end of a study that adds seeds.

    Args:
        reason: "decided" (every comparison), "limit" (of seeds) or "budget".
        baseline: label of the architecture that the others were compared with.
        comparisons: number of those that decide: each other architecture, each setting, median, mean and p99 delay of
            all jobs.
        looks: in the order of seeds.
        seeds_max: limit of the seeds.
        budget_s: limit of the CPU seconds of all runs together; None: none.
    """

    reason: Reason
    baseline: str
    comparisons: int
    looks: tuple[Look, ...]
    seeds_max: int
    budget_s: float | None = None


def sentence(stopping: Stopping) -> str:
    """The number of seeds, the looks at which they were judged, and the reason of the end."""
    counts = [str(look.seeds) for look in stopping.looks]
    at = f"one look at {counts[0]}" if len(counts) == 1 else f"looks at {', '.join(counts[:-1])} and {counts[-1]}"
    drawn = f"{_count(stopping.looks[-1].seeds, 'seed')} drawn ({at})"
    compared, undecided = stopping.comparisons, stopping.looks[-1].undecided
    if stopping.reason == DECIDED:
        return f"{drawn}: every comparison with {stopping.baseline} is decided."
    end = f"{stopping.seeds_max} seeds are the limit"
    if stopping.reason == BUDGET:
        end = f"the budget of {stopping.budget_s:g} CPU seconds is used up"
    left = f"{undecided} of {_count(compared, 'comparison')} with {stopping.baseline}"
    return f"{drawn}: {end}, and {left} {'is' if undecided == 1 else 'are'} not decided."


def explanation(stopping: Stopping) -> str:
    """The comparisons that decide the end of the study, and the confidence of the intervals."""
    last = stopping.looks[-1]
    return (
        f"{JUDGED.capitalize()} decide. Each paired interval has {confidence(last.confidence)} "
        f"confidence at the last look, so that all looks together keep {confidence(CONFIDENCE)}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
