"""Judges claims on values per seed; the rules stand in `experiments.claims`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from experiments.claims import (
    BY_CONSTRUCTION,
    DIFFERS,
    EVERY,
    NOT_TRIED,
    OUR_QUESTION,
    REPRODUCED,
    SHOWN_ALONE,
    STAND_IN_FAILS,
    STAND_IN_HOLDS,
    STAND_IN_NUMBER,
    STRICT,
    THEORY,
    UNDECIDABLE,
    UNDECIDED,
    Claim,
    ClaimCase,
    Judgement,
    Quantity,
    Side,
    Tolerance,
    Verdict,
    tolerance_of_claim,
)
from experiments.closed_forms import parse_analysis
from experiments.measures import is_share
from volery.look.text import digits
from volery.statistics import CONFIDENCE, InterimLook, Interval, holm, interval_of_mean

ROUNDING: Final = 1e-9
"""Relative slack of the relations that allow equality: the same number, reached by two sums, is equal."""

Outcome = Literal["holds", "fails", "open"]
HOLDS: Final[Outcome] = "holds"
FAILS: Final[Outcome] = "fails"
OPEN: Final[Outcome] = "open"


UNFINISHED: Final = "not all runs are finished"


class Missing(msgspec.Struct, frozen=True):
    """Why a quantity could not be measured; `UNFINISHED` where nothing but runs is missing."""

    why: str


class Values(msgspec.Struct, frozen=True):
    """A metric in one place.

    Args:
        by_seed: seed -> value, in the order in which the seeds were drawn.
        is_random: false where nothing is drawn, and the one value stands for every seed.
    """

    by_seed: Mapping[int, float]
    is_random: bool = True


Lookup = Callable[[str, str, str, str], "Values | Missing"]
"""From metric, architecture, workload and population to the values."""


class Scope(msgspec.Struct, frozen=True):
    """The workloads, populations, seeds and looks on which the claims of an experiment are judged.

    Args:
        workloads: those of the experiment, for claims that name none.
        populations: machine populations; a claim must hold on each.
        looks: Looks at the values; the seeds of the first one were given beforehand.
        seeds: Seeds in the order in which they were drawn.
        stand_ins: workload -> what it stands for.
    """

    workloads: Sequence[str]
    populations: Sequence[str]
    seeds: Sequence[int]
    looks: Sequence[InterimLook]
    stand_ins: Mapping[str, str] = {}


def judge(claim: Claim, scope: Scope, lookup: Lookup, *, reading: str = "") -> list[Judgement]:
    """Judge a claim: on workloads of the source, and apart from these on those that stand in for one."""
    fixed = all(side.on for side in claim.sides)
    workloads = (claim.left.on,) if fixed else claim.on or scope.workloads
    populations: Sequence[str] = claim.populations or scope.populations
    if claim.averaged and populations:
        lookup, populations = _averaging(lookup, populations), [EVERY]
    trials = [
        _Trial(claim, scope, workload, population, pair, lookup)
        for workload in workloads
        for pair in claim.pairs()
        for population in populations
    ]
    judgements = []
    for stand_in in (False, True):
        group = [trial for trial in trials if trial.stand_in == stand_in]
        if group or not (trials or stand_in):
            judgements.append(_judged(claim, group, reading, stand_in, scope))
    return judgements


def _averaging(lookup: Lookup, populations: Sequence[str]) -> Lookup:
    """A lookup that averages over the populations, seed by seed."""

    def averaged_values(metric: str, of: str, on: str, _: str) -> Values | Missing:
        values = []
        for population in populations:
            of_population = lookup(metric, of, on, population)
            if isinstance(of_population, Missing):
                return of_population
            values.append(of_population)
        common = [seed for seed in values[0].by_seed if all(seed in of_population.by_seed for of_population in values)]
        means = {seed: sum(of_population.by_seed[seed] for of_population in values) / len(values) for seed in common}
        return Values(means, any(of_population.is_random for of_population in values))

    return averaged_values


class _Trial:
    """One case of a claim: its values at the last look that has all of them, and what they say."""

    def __init__(
        self, claim: Claim, scope: Scope, workload: str, population: str, pair: tuple[str, str], lookup: Lookup
    ) -> None:
        self.claim, self.workload, self.population, self.pair = claim, workload, population, pair
        self.places = [side.on or workload for side in claim.sides]
        self.stand_in = any(on in scope.stand_ins for on in self.places)
        self.look: InterimLook | None = None
        self.left: list[float] = []
        self.right: list[float] = []
        self.is_random = True
        measured = self._measure(lookup)
        self.missing = measured if isinstance(measured, Missing) else self._pair(*measured, scope)

    def _measure(self, lookup: Lookup) -> tuple[Values, Values] | Missing:
        claim, population = self.claim, self.population
        left = lookup(claim.left.metric, self.pair[0], self.places[0], population)
        if isinstance(left, Missing):
            return left
        right: Values | Missing
        if isinstance(claim.right, Side):
            right = lookup(claim.right.metric, self.pair[1], self.places[1], population)
        elif isinstance(claim.right, str):
            right = _expected(claim.right, lambda name: lookup(name, self.pair[0], self.places[0], population))
        else:
            right = Values({0: claim.right}, is_random=False)
        return right if isinstance(right, Missing) else (left, right)

    def _pair(self, left: Values, right: Values, scope: Scope) -> Missing | None:
        """Pair the values by seed, up to the last look; a look whose values are not all there ends the looking."""
        self.is_random = left.is_random or right.is_random
        looks = scope.looks if self.is_random else (InterimLook(1),)
        for look in looks:
            seeds = scope.seeds[: look.seeds]
            if len(seeds) < look.seeds or any(
                one.is_random and seed not in one.by_seed for one in (left, right) for seed in seeds
            ):
                break
            self.look, self.left, self.right = look, _at(left, seeds), _at(right, seeds)
        return None if self.look else Missing(UNFINISHED)

    @functools.cached_property
    def _is_ratio(self) -> bool:
        """True if the case is judged on the logarithm of left / (factor x right)."""
        if any(is_share(side.metric) for side in self.claim.sides):
            return False
        return min(*self.left, *self.right, *(bound for side in self._sides for bound in self._bounds(side))) > 0

    @property
    def _sides(self) -> tuple[int, ...]:
        """+1 for an upper bound, -1 for a lower one."""
        return {"<": (1,), "<=": (1,), ">": (-1,), ">=": (-1,)}.get(self.claim.relation, (-1, 1))

    @property
    def _targets(self) -> list[float]:
        return [self.claim.factor * value for value in self.right]

    def _bounds(self, side: int) -> list[float]:
        room = allowed(self.claim)
        return [target + side * (room.share * abs(target) + room.margin) for target in self._targets]

    def _slack(self, side: int) -> tuple[float, ...]:
        """Return the distance from the bound per seed; negative where the claim does not hold."""
        pairs = list(zip(self.left, self._bounds(side), strict=True))
        rounding = 0.0 if self.claim.relation in STRICT else ROUNDING
        if self._is_ratio:
            return tuple(side * (math.log(bound) - math.log(value)) + rounding for value, bound in pairs)
        return tuple(side * (bound - value) + rounding * abs(bound) for value, bound in pairs)

    def _outcome(self, confidence: float) -> Outcome:
        outcomes = [_beyond(self._slack(side), self.claim, self.is_random, confidence) for side in self._sides]
        if FAILS in outcomes:
            return FAILS
        return OPEN if OPEN in outcomes else HOLDS

    @functools.cached_property
    def outcome(self) -> Outcome:
        """The side of the bound on which the values lie, at the confidence of their look."""
        return OPEN if self.look is None else self._outcome(self.look.confidence)

    def fails(self, confidence: float) -> bool:
        """Return true if the case fails at a confidence of all looks together."""
        if self.look is None:
            return False
        spent = (1 - self.look.confidence) * (1 - confidence) / (1 - CONFIDENCE)
        return self._outcome(1 - spent) == FAILS

    def case(self, failed: bool, cases: int) -> ClaimCase:
        """The case with its verdict.

        Args:
            failed: whether it fails at the corrected confidence.
            cases: how many the claim has.
        """
        if isinstance(self.missing, Missing) or self.look is None:
            why = self.missing.why if self.missing else ""
            verdict = NOT_TRIED if why == UNFINISHED else UNDECIDABLE
            return ClaimCase(self.workload, self.population, verdict, why=why, stand_in=self.stand_in)
        outcome = FAILS if failed else HOLDS if self.outcome == HOLDS else OPEN
        is_shown = self.claim.ours or (self.stand_in and self.claim.is_number)
        shown = OUR_QUESTION if self.claim.ours else STAND_IN_NUMBER
        verdict = shown if is_shown else _word(outcome, self.stand_in)
        interval = self._interval(self.look.confidence)
        against = None
        if isinstance(self.claim.right, Side):
            against = _quantity(self.pair[1], self.places[1], self.right)
        elif isinstance(self.claim.right, str):
            against = _quantity(THEORY, "", self.right)
        return ClaimCase(
            self.workload,
            self.population,
            verdict,
            _quantity(self.pair[0], self.places[0], self.left),
            against,
            self._why(interval, cases) if verdict == UNDECIDED else "",
            self.stand_in,
            len(self.left),
            interval.method if interval else "",
            self._is_ratio,
            interval.low if interval else None,
            interval.high if interval else None,
            outcome == HOLDS if is_shown and outcome != OPEN else None,
        )

    def _interval(self, confidence: float) -> Interval | None:
        """The interval of left / (factor x right), or of their difference."""
        pairs = list(zip(self.left, self._targets, strict=True))
        if not self._is_ratio:
            return _interval(tuple(value - target for value, target in pairs), confidence)
        interval = _interval(tuple(math.log(value) - math.log(target) for value, target in pairs), confidence)
        return interval and Interval(_exp(interval.low), _exp(interval.high), interval.method)

    def _why(self, interval: Interval | None, cases: int) -> str:
        if interval is None:
            return "one seed cannot tell it from chance"
        if self.outcome == FAILS:
            return f"it fails here alone, but not at the confidence that {cases} cases need together"
        measure = "the ratio to it" if self._is_ratio else "the difference from it"
        low, high = (_number(value) for value in (interval.low, interval.high))
        return f"{len(self.left)} seeds leave {measure} between {low} and {high}, and {self._needed()} is needed"

    def _needed(self) -> str:
        """The bounds of the interval in words; of the mean over seeds where they differ."""
        needed = []
        for side in self._sides:
            bounds = list(zip(self._bounds(side), self._targets, strict=True))
            values = [bound / target if self._is_ratio else bound - target for bound, target in bounds]
            needed.append(_number(sum(values) / len(values)))
        if len(needed) > 1:
            return " to ".join(needed)
        return ("at most " if self._sides == (1,) else "at least ") + needed[0]


def _exp(value: float) -> float:
    """The exponential, within what a float and a JSON file can hold."""
    return math.exp(min(max(value, -700.0), 700.0))


def _number(value: float) -> str:
    return f"-{digits(-value)}" if value < 0 else digits(value)


def allowed(claim: Claim) -> Tolerance:
    """The distance of the bounds from the target; the bound of an order lies on the near side of the target."""
    if claim.relation in STRICT:
        return Tolerance(-claim.effect / 100)
    if claim.relation != "about":
        return Tolerance(claim.percent / 100, claim.margin)
    assert not isinstance(claim.right, str), "a closed form is held with 'within'"
    return tolerance_of_claim(claim, claim.id)


def _beyond(slack: tuple[float, ...], claim: Claim, is_random: bool, confidence: float) -> Outcome:
    """On which side of a bound the values lie; a single one decides only where nothing is random."""
    interval = Interval(slack[0], slack[0], "") if not is_random else _interval(slack, confidence)
    if interval is None:
        return OPEN
    strict = claim.relation in STRICT
    if interval.low > 0 or (interval.low == 0 and not strict):
        return HOLDS
    return FAILS if interval.high < 0 or (interval.high == 0 and strict) else OPEN


@functools.lru_cache(maxsize=4096)
def _interval(values: tuple[float, ...], confidence: float) -> Interval | None:
    return interval_of_mean(values, confidence)


def _at(values: Values, seeds: Sequence[int]) -> list[float]:
    """The values of these seeds; what draws nothing has one for all."""
    if values.is_random:
        return [values.by_seed[seed] for seed in seeds]
    return [next(iter(values.by_seed.values()))] * len(seeds)


def _expected(text: str, measured: Callable[[str], Values | Missing]) -> Values | Missing:
    analysis = parse_analysis(text, THEORY)
    columns: dict[str, Values] = {}
    for metric in analysis.measured.values():
        values = measured(metric)
        if isinstance(values, Missing):
            return values
        columns[metric] = values
    if not columns:
        return Values({0: analysis.expected({})}, is_random=False)
    first_values = next(iter(columns.values()))
    expected = {
        seed: analysis.expected({metric: values.by_seed[seed] for metric, values in columns.items()})
        for seed in first_values.by_seed
    }
    return Values(expected, first_values.is_random)


def _quantity(of: str, on: str, values: Sequence[float]) -> Quantity:
    return Quantity(of, on, sum(values) / len(values), min(values), max(values))


def _word(outcome: Outcome, stand_in: bool) -> Verdict:
    if outcome == OPEN:
        return UNDECIDED
    if stand_in:
        return STAND_IN_HOLDS if outcome == HOLDS else STAND_IN_FAILS
    return REPRODUCED if outcome == HOLDS else DIFFERS


def _judged(claim: Claim, trials: Sequence[_Trial], reading: str, stand_in: bool, scope: Scope) -> Judgement:
    """The verdict over all cases of a claim, of one kind of workload."""
    measured = [trial for trial in trials if trial.missing is None]
    shown = holm([trial.fails for trial in measured]) if measured else []
    failed = dict(zip(map(id, measured), shown, strict=True))
    cases = tuple(trial.case(failed.get(id(trial), False), len(measured)) for trial in trials)
    verdict, reason = _together(cases, stand_in)
    if claim.input:
        verdict, reason = BY_CONSTRUCTION, claim.input
    elif claim.ours:
        verdict = OUR_QUESTION
    elif stand_in and verdict not in (UNDECIDED, UNDECIDABLE, NOT_TRIED):
        reason = "; ".join(part for part in (reason, _stand_ins_text(trials, scope.stand_ins)) if part)
    return Judgement(claim.id, reading, verdict, reason, cases, stand_in)


def _together(cases: Sequence[ClaimCase], stand_in: bool) -> tuple[Verdict, str]:
    """The verdict over cases of one kind, and the reason for it."""
    if not cases:
        return UNDECIDABLE, "nothing was measured"
    shown = [case for case in cases if case.verdict in SHOWN_ALONE]
    if shown:
        return shown[0].verdict, _agreement(shown)
    failed = [case for case in cases if case.verdict in (DIFFERS, STAND_IN_FAILS)]
    if failed:
        return _word(FAILS, stand_in), _where(failed, cases)
    by_verdict = ([case for case in cases if case.verdict == word] for word in (UNDECIDABLE, NOT_TRIED, UNDECIDED))
    undecided = next(filter(None, by_verdict), [])
    if not undecided:
        return _word(HOLDS, stand_in), ""
    first = undecided[0]
    place = _name(first, cases)
    further = f" (and {len(undecided) - 1} more of {len(cases)} cases)" if len(undecided) > 1 else ""
    return first.verdict, f"{place}: {first.why}{further}" if place else f"{first.why}{further}"


def _agreement(shown: Sequence[ClaimCase]) -> str:
    """In how many cases ours is the printed number, or what we asked is so, and in how many that is open."""
    agreeing, is_open = (sum(case.agrees is word for case in shown) for word in (True, None))
    what = "so" if shown[0].verdict == OUR_QUESTION else "the printed number"
    if len(shown) == 1:
        return f"{'maybe ' if is_open else '' if agreeing else 'not '}{what}"
    return f"{what} in {agreeing} of {len(shown)} cases" + (f", open in {is_open}" if is_open else "")


def _stand_ins_text(trials: Sequence[_Trial], stand_ins: Mapping[str, str]) -> str:
    """Name the workloads that are stand-ins, and what the first one stands for."""
    names = list(dict.fromkeys(on for trial in trials for on in trial.places if on in stand_ins))
    first = names[0]
    further = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{first} stands for {stand_ins[first]}{further}"


def _name(case: ClaimCase, cases: Sequence[ClaimCase]) -> str:
    """Name the workload, architectures and population by which a case differs from the others."""
    parts = [case.workload] if len({other_case.workload for other_case in cases}) > 1 else []
    pairs = {(other_case.left and other_case.left.of, other_case.right and other_case.right.of) for other_case in cases}
    if case.left is not None and case.left.of and len(pairs) > 1:
        against = f" against {case.right.of}" if case.right is not None and case.right.of else ""
        parts.append(case.left.of + against)
    if len({other_case.population for other_case in cases}) > 1:
        parts.append(f"population {case.population}")
    return ", ".join(parts)


def _where(failed: Sequence[ClaimCase], cases: Sequence[ClaimCase]) -> str:
    """Name the workloads of the failed cases and count these; empty where all cases failed."""
    if len(failed) == len(cases):
        return ""
    names = list(dict.fromkeys(case.workload for case in failed))
    return f"in {len(failed)} of {len(cases)} cases ({', '.join(names)})"
