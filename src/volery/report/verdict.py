"""What the differences say, in sentences that claim no more than the interval shows."""

from __future__ import annotations

from collections.abc import Sequence

from volery.report.groups import Compared, shortened
from volery.report.units import MINUS, NOTHING, digits, duration, percent, ratio
from volery.statistics import NOT_RANDOM, SEEDS_MIN, Difference

PAIRS_FOR_A_SIGN_TEST = 6
"""With fewer pairs that all agree, a two-sided sign test cannot reach 5 % (2 / 2**6 = 3 %, 2 / 2**5 = 6 %)."""

PAIRS_TOLD_WHOLE = 3
LEAST_FRACTION = 5e-6
"""A smaller difference of fractions is written as 0.000 pp: no reader gains from its exponent."""


def amount(value: float, unit: str) -> str:
    """A compared quantity with its unit."""
    return duration(value) if unit == "s" else percent(value)


def interval(difference: Difference, unit: str) -> str:
    """The interval of a difference: low … high, a fraction in percentage points; a dash where there is none."""
    if difference.low is None or difference.high is None or difference.seeds < SEEDS_MIN:
        return NOTHING
    if unit == "s":
        return f"{signed(difference.low, unit)} … {signed(difference.high, unit)}"
    return f"{signed(difference.low, unit).removesuffix(' pp')} … {signed(difference.high, unit)}"


def signed(value: float, unit: str) -> str:
    """A difference with its sign."""
    size = (
        duration(abs(value))
        if unit == "s"
        else f"{digits(abs(value) * 100) if abs(value) >= LEAST_FRACTION else '0.000'} pp"
    )
    return size if value == 0 else f"{'+' if value > 0 else MINUS}{size}"


def reading(compared: Compared) -> str:
    """The verdict on one difference in a few words: "a lower" and how many times, or that nothing is shown."""
    difference = compared.difference
    if difference.seeds < SEEDS_MIN:
        return NOTHING
    if not difference.is_shown:
        return difference.verdict.partition(":")[0]
    return f"a {difference.verdict}, {ratio(compared.a_mean, compared.b_mean)}"


def against(compared: Compared) -> str:
    """How b stands to a: so many times higher or lower (a fraction: by how much), or that nothing is shown."""
    difference = compared.difference
    if difference.seeds < SEEDS_MIN:
        return NOTHING
    if not difference.is_shown and not is_exact(difference):
        return "no diff. shown" if difference.verdict != "identical" else "identical"
    if compared.unit != "s":
        return signed(-difference.mean, compared.unit)
    times = ratio(compared.a_mean, compared.b_mean)
    way = "lower" if difference.mean > 0 else "higher"
    return way if times == NOTHING else f"{times} {way}"


def is_exact(difference: Difference) -> bool:
    """Whether nothing is random in a difference that is not zero: every seed gave the same two runs."""
    return difference.verdict == NOT_RANDOM


def sentence(compared: Compared) -> str:
    """The verdict on one difference as a sentence with its numbers."""
    difference, unit = compared.difference, compared.unit
    jobs = "" if compared.jobs == "all" else f" of {compared.jobs} jobs"
    quantity = f"{compared.quantity}{jobs}"
    a, b = shortened(compared.a), shortened(compared.b)
    numbers = f"{amount(compared.a_mean, unit)} against {amount(compared.b_mean, unit)}"
    seeds = f"{difference.seeds} seed{'s' if difference.seeds != 1 else ''}"
    if difference.is_shown:
        return (
            f"The {quantity} is {difference.verdict} under {a} than under {b}: {numbers} "
            f"(difference {signed(difference.mean, unit)}, 95 % interval {interval(difference, unit)}, {seeds})."
        )
    if difference.verdict == "identical":
        return f"The {quantity} is identical under {a} and {b}: {numbers} ({seeds})."
    if is_exact(difference) or difference.seeds < SEEDS_MIN:
        why = "one seed, which cannot tell it from chance"
        if is_exact(difference):
            why = f"nothing is random here: {seeds} gave the same run"
        return f"The {quantity} is {numbers} under {a} and {b} (difference {signed(difference.mean, unit)}; {why})."
    why = difference.verdict.partition(": ")[2]
    return f"No difference shown in the {quantity} between {a} and {b}: {numbers} ({seeds}; {why})."


def headline(differences: Sequence[Compared]) -> list[str]:
    """Sentences about the median delay of all jobs, pair by pair, and about the tail while there are few pairs."""
    pairs = {(d.a, d.b) for d in differences}
    told = ("median delay", "p99 delay") if len(pairs) <= PAIRS_TOLD_WHOLE else ("median delay",)
    return [sentence(d) for d in differences if d.jobs == "all" and d.quantity in told]


def caution(differences: Sequence[Compared]) -> str:
    """What the number of seeds does not allow to say; empty when there is nothing to warn of."""
    if not differences:
        return ""
    seeds = min(d.difference.seeds for d in differences)
    if seeds < SEEDS_MIN:
        return "One seed cannot tell a difference from chance: use --seeds 3 or more."
    if all(d.difference.low is None for d in differences):
        return (
            f"Nothing is random here: {seeds} seeds gave the same run. The differences are exact for this trace, "
            "and say nothing of other workloads."
        )
    if seeds < PAIRS_FOR_A_SIGN_TEST:
        return (
            f"{seeds} seeds: the interval is hardly more than the range of what was seen; "
            f"{PAIRS_FOR_A_SIGN_TEST} seeds that agree would make it firm."
        )
    return ""
