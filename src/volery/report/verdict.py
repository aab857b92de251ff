"""Comparisons in words: cells, sentences and captions that claim no more than the corrected verdict shows.

Readers see b against a, the baseline: the ratio b / a, the difference b - a. The data hold a / b and a - b.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from volery.look.text import MINUS, NOTHING, TIMES, confidence, digits, duration, percent, ratio, shortened
from volery.statistics import (
    CONFIDENCE,
    CORRECTED,
    IDENTICAL,
    NOT_RANDOM,
    SEEDS_MIN,
    ComparedJobs,
    ComparedMeans,
    Difference,
)
from volery.statistics.block_bootstrap import NO_STATEMENT

PAIRS_TOLD_WHOLE = 3
LEAST_FRACTION = 5e-6
"""A smaller difference of fractions is written as 0.000 pp: no reader gains from its exponent."""
MARK: Final = "*"
"""The sign beside a comparison whose own interval shows a difference that the correction takes away."""
ON_DAYS: Final = "on days like this (chance: workload)"
CHOICES: Final = (
    "Seeds tell the chance of choices (random choices of the schedulers, drawn constraints) for exactly these jobs; "
    "where every seed draws a workload of its own, that of the workload, too."
)
WORKLOAD: Final = "Which jobs came is chance, too: other days like this one would have brought others of the same kind."
DRAWN_ANEW: Final = (
    "Every seed draws a workload of its own, so that seeds cover both kinds of chance: choices and workload."
)


def confidence_of(comparisons: Sequence[ComparedMeans]) -> float:
    """The confidence of the intervals of comparisons of one kind."""
    return next((compared.confidence or CONFIDENCE for compared in comparisons), CONFIDENCE)


def amount(value: float, unit: str) -> str:
    """A compared quantity with its unit."""
    return duration(value) if unit == "s" else percent(value)


def signed(value: float, unit: str) -> str:
    size = (
        duration(abs(value))
        if unit == "s"
        else f"{digits(abs(value) * 100) if abs(value) >= LEAST_FRACTION else '0.000'} pp"
    )
    return size if value == 0 else f"{'+' if value > 0 else MINUS}{size}"


def times(factor: float) -> str:
    return f"{_factor(factor)}{TIMES}"


def _factor(value: float) -> str:
    """Three significant digits, of small ratios too: 0.00165."""
    return f"{value:.3g}" if 0 < value < 0.1 else digits(value)


def factor(compared: ComparedMeans) -> float | None:
    """The ratio b / a of durations; None for all else, and where durations were compared by their difference."""
    difference = compared.difference
    if difference.ratio is not None:
        return 1 / difference.ratio

    if compared.unit == "s" and not difference.method and min(compared.a_mean, compared.b_mean) > 0:
        return compared.b_mean / compared.a_mean
    return None


def effect(compared: ComparedMeans) -> str:
    """The ratio b / a of durations, the difference b - a of all else."""
    b_over_a = factor(compared)
    return signed(-compared.difference.mean, compared.unit) if b_over_a is None else times(b_over_a)


def interval(difference: Difference, unit: str) -> str:
    """The interval of b / a, or of b - a (of a fraction in percentage points); a dash where none is."""
    if difference.ratio_low is not None and difference.ratio_high is not None:
        return f"{_factor(1 / difference.ratio_high)} \u2026 {times(1 / difference.ratio_low)}"
    if difference.low is None or difference.high is None or not difference.method:
        return NOTHING

    low, high = signed(-difference.high, unit), signed(-difference.low, unit)
    return f"{low.removesuffix(' pp')} \u2026 {high}"


def is_exact(difference: Difference) -> bool:
    """True for a difference without chance that is not zero: every seed gave the same two runs."""
    return difference.verdict == NOT_RANDOM


def reading(compared: ComparedMeans) -> str:
    """The verdict in a few words: "a lower" and how many times, or that nothing is shown; a dash for a single value."""
    difference = compared.difference
    if interval(difference, compared.unit) == NOTHING and difference.seeds < SEEDS_MIN:
        return NOTHING

    if not difference.is_shown:
        return difference.verdict.partition(":")[0] + MARK * (difference.verdict == CORRECTED)

    of_a = difference.ratio
    size = ratio(compared.a_mean, compared.b_mean) if of_a is None else times(max(of_a, 1 / of_a))
    return f"a {difference.verdict}, {size}"


def against(compared: ComparedMeans) -> str:
    """The cell that compares b with a: the ratio of durations, the difference of all else, and the interval."""
    difference = compared.difference
    if difference.verdict == IDENTICAL:
        return IDENTICAL

    bounds = _of_b(difference, compared.unit)
    if not bounds and not is_exact(difference):
        # An exact difference has no interval, and is a result all the same: every seed gave the same two runs.
        return NOTHING
    if not difference.is_shown and not is_exact(difference):
        return f"no diff.{MARK * (difference.verdict == CORRECTED)} ({bounds})"
    return f"{effect(compared)} ({bounds})" if bounds else effect(compared)


def by_quantity(
    differences: Sequence[ComparedMeans],
) -> tuple[list[str], dict[tuple[str, str, str], list[ComparedMeans | None]]]:
    """The quantities, and by pair and class of jobs the comparison of each quantity, where there is one."""
    quantities = list(dict.fromkeys(compared.quantity for compared in differences))
    comparisons = {(compared.a, compared.b, compared.jobs, compared.quantity): compared for compared in differences}
    lines = dict.fromkeys((compared.a, compared.b, compared.jobs) for compared in differences)
    return quantities, {line: [comparisons.get((*line, quantity)) for quantity in quantities] for line in lines}


def _of_b(difference: Difference, unit: str, between: str = "\u2013") -> str:
    """The interval of b / a, or of b - a; empty where there is none."""
    if difference.ratio_low is not None and difference.ratio_high is not None:
        return f"{_factor(1 / difference.ratio_high)}{between}{_factor(1 / difference.ratio_low)}"
    if difference.low is None or difference.high is None or not difference.method:
        return ""
    return f"{signed(-difference.high, unit)} to {signed(-difference.low, unit)}"


def sentence(compared: ComparedMeans) -> str:
    """The verdict on one difference as a sentence with its numbers."""
    if isinstance(compared, ComparedJobs):
        return _on_days(compared)
    difference, unit = compared.difference, compared.unit

    quantity = _quantity(compared)
    a, b = shortened(compared.a), shortened(compared.b)
    numbers = f"{amount(compared.a_mean, unit)} against {amount(compared.b_mean, unit)}"
    seeds = f"{difference.seeds} seed{'s' if difference.seeds != 1 else ''}"
    size = f"{b} {MINUS if factor(compared) is None else '/'} {a} {effect(compared)}"
    evidence = f"{size}, {confidence(confidence_of([compared]))} interval {interval(difference, unit)}"
    evidence += f", {difference.method} over {seeds}"

    # From here on one return per kind of verdict, the strongest claim first.
    if difference.is_shown:
        return f"The {quantity} is {difference.verdict} under {a} than under {b}: {numbers} ({evidence})."

    if difference.verdict == IDENTICAL:
        return f"The {quantity} is identical under {a} and {b}: {numbers} ({seeds})."

    if is_exact(difference) or difference.seeds < SEEDS_MIN:
        reason = (
            f"nothing is random here: {seeds} gave the same run" if is_exact(difference) else "one seed, no interval"
        )
        return f"The {quantity} is {numbers} under {a} and {b} ({size}; {reason})."

    reason = difference.verdict.partition(": ")[2]
    return f"No difference shown in the {quantity} between {a} and {b}: {numbers} ({evidence}; {reason})."


def _on_days(compared: ComparedJobs) -> str:
    """The verdict on single runs, job by job: how b stands to a on other days like this one."""
    difference, quantity = compared.difference, _quantity(compared)
    a, b = shortened(compared.a), shortened(compared.b)
    method = f"{difference.method}, blocks of {compared.block:,} jobs"
    bounds = _of_b(difference, compared.unit, " to ")

    if difference.verdict == IDENTICAL:
        mean = amount(compared.a_mean, compared.unit)
        return f"The {quantity} is identical under {a} and {b}: {mean} (seed {compared.seed})."

    if not bounds:
        values = (
            f"{amount(compared.a_mean, compared.unit)} under {a} and {amount(compared.b_mean, compared.unit)} under {b}"
        )
        return f"The {quantity} of this day is {values}; {difference.verdict}."

    if not difference.is_shown:
        reason = difference.verdict.partition(": ")[2]
        claim = f"no difference shown in the {quantity} between {a} and {b}: {reason}"
        return f"On days like this one, {claim} ({bounds}; {method})."

    of_b = factor(compared)
    if of_b is None:
        size = f"{effect(compared)} ({bounds}) against that of {a}"
    else:
        size = f"{_factor(of_b)} times ({bounds}) that of {a}"
    return f"On days like this one, the {quantity} of {b} is {size}; {method}."


def _quantity(compared: ComparedMeans) -> str:
    return compared.quantity + ("" if compared.jobs == "all" else f" of {compared.jobs} jobs")


def headline(
    differences: Sequence[ComparedMeans], quantities: Sequence[str] = ("median delay", "p99 delay")
) -> list[str]:
    """Sentences about all jobs, pair by pair: of these quantities, of the first alone where there are many pairs."""
    pairs = {(d.a, d.b) for d in differences}
    shown_quantities = quantities if len(pairs) <= PAIRS_TOLD_WHOLE else quantities[:1]
    return [sentence(d) for d in differences if d.jobs == "all" and d.quantity in shown_quantities]


def rule(differences: Sequence[ComparedMeans]) -> str:
    """The caption of a table of comparisons: what is compared, by which method, and the correction; empty for none."""
    if not differences:
        return ""

    methods = _listed(d.difference.method for d in differences)
    blocks = sorted({d.block for d in differences if isinstance(d, ComparedJobs) and d.block})
    if blocks:
        several = f"{blocks[0]:,}" + (f" to {blocks[-1]:,}" if len(blocks) > 1 else "")
        paired = "job by job in single runs of one seed"
        details = f": {methods}, blocks of {several} jobs"
    else:
        paired = "paired by seed"
        details = f" over seeds: {methods}"

    procedure = f"{paired}, with {confidence(confidence_of(differences))} intervals{details}"
    subject = "Delays are compared as ratios b / a"
    # A comparison job by job has no means over seeds: its quantities are those of single runs.
    by_job = any(isinstance(d, ComparedJobs) for d in differences)
    subject += "" if by_job else f" (geometric mean over seeds), fractions as differences b {MINUS} a"

    unstated = sorted({d.difference.verdict for d in differences if d.difference.verdict.startswith(NO_STATEMENT)})
    remark = f" A dash: {'; '.join(unstated)}." if unstated else ""

    if not methods:
        return f"{subject}.{remark}"

    most = max(d.comparisons for d in differences)
    corrected = (
        f" Verdicts are corrected for the {most} comparisons of each quantity (Holm); {MARK}: the interval alone "
        "would show a difference."
    )
    spans = "Nothing is called lower or higher where the interval spans 1 (of a difference: 0)."
    return f"{subject}, {procedure}. {spans}{corrected if most > 1 else ''}{remark}"


def _listed(methods: Iterable[str]) -> str:
    return " and ".join(sorted(set(filter(None, methods))))


def over_seeds(on_days: Sequence[ComparedMeans] | None) -> str:
    """The chance that differences over seeds are about, in a few words.

    Args:
        on_days: comparisons job by job; empty where every seed draws the workload, None where that is not known.
    """
    if on_days is None:
        return "over seeds"
    return f"over seeds (chance: choices{'' if on_days else ' and workload'})"


def is_of_one_seed(differences: Sequence[ComparedMeans]) -> bool:
    """True if no comparison has a second seed."""
    return all(d.difference.seeds < SEEDS_MIN for d in differences)


def caution(differences: Sequence[ComparedMeans], on_days: Sequence[ComparedMeans] | None = None) -> str:
    """A warning of what the seeds do not show; empty where there is none.

    Args:
        on_days: comparisons of single runs, job by job; None where that is not known.
    """
    if not differences:
        return ""

    seeds = min(d.difference.seeds for d in differences)
    if seeds < SEEDS_MIN:
        workload_note = (
            " The intervals tell of the workload alone." if any(d.difference.method for d in on_days or ()) else ""
        )
        return (
            "One seed does not tell how much random choices of the schedulers matter; --seeds 3 or more does."
            f"{workload_note}"
        )

    if all(d.difference.low is None for d in differences):
        scope = "; what other days may bring is told job by job" if on_days else ", and say nothing of other workloads"
        return (
            f"Nothing is random here: {seeds} seeds gave the same run. The differences are exact for this trace{scope}."
        )
    return DRAWN_ANEW if on_days is not None and not on_days else ""
