"""Claims of papers as inequalities with tolerances, and their verdicts on measured values.

A claim says: left RELATION factor x right, give or take a tolerance, where left is a metric of an architecture on a
workload and right is another one or a number. It is judged once per workload, pair of architectures and machine
population (a case), on values paired by seed:

    <= >=    how far the claim holds, with its tolerance, must not be negative
    < >      it must be positive
    within   both bounds of the tolerance must hold

The right side may also be what theory expects (see `volery.study.analysis`), of the very run that is judged.

The 95 % bootstrap interval of that distance over seeds decides: all of it on the right side: reproduced; all of it on
the wrong side: differs; the bound inside: not decidable. A claim that speaks of several cases is reproduced when all
are, and differs when one clearly does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec

from volery.statistics import paired_difference
from volery.study.analysis import parse_analysis
from volery.study.measures import unit

Relation = Literal["<", "<=", ">", ">=", "within", "about"]
STRICT: Final = ("<", ">")
EFFECT_PERCENT: Final = 5.0
"""What a strict order must show, unless the claim's own size is smaller."""
Verdict = Literal["reproduced", "differs", "not decidable"]
REPRODUCED: Final[Verdict] = "reproduced"
DIFFERS: Final[Verdict] = "differs"
UNDECIDED: Final[Verdict] = "not decidable"
VERDICTS: Final = (REPRODUCED, DIFFERS, UNDECIDED)

THEORY: Final = "theory"
"""Stands for the architecture where a closed form gives the values."""

EVERY: Final = "average"
"""Stands for the population of a case whose values are averages over all of them."""

Name = Annotated[str, msgspec.Meta(min_length=1)]
AtLeastZero = Annotated[float, msgspec.Meta(ge=0)]

ROUNDING: Final = 1e-9
"""Relative slack of the relations that allow equality: the same number, reached by two sums, is equal."""


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A measured quantity of a claim.

    Args:
        metric: path in the measures of a run, as `delay_s.p50`, or of an input, as `load.p99`.
        of: label of the architecture, or several; empty for a metric of the input.
        on: label of the workload; empty: whichever the case is about.
    """

    metric: Name
    of: str | tuple[Name, ...] = ""
    on: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The architectures as a tuple; one empty label for a metric of the input."""
        return (self.of,) if isinstance(self.of, str) else self.of


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a paper says, as a test.

    Args:
        id: unique in its experiment.
        section: where the paper says it.
        says: our reading of the statement, as a test.
        published: the published value as printed in tables.
        left: what is measured.
        relation: left RELATION factor x right.
        right: what it is held against: a number, another measured quantity, or the text of a closed form.
        factor: of the right side.
        percent: tolerance, relative to the right side.
        margin: tolerance in the metric's own unit.
        on: labels of the workloads it speaks of; empty: all of the experiment.
        populations: labels of the machine populations it speaks of; empty: all of the experiment.
        averaged: whether the published value is an average over machine populations; then so is ours, seed by seed.
        note: what a reader must know about the statement.
        sentence: the statement as the source prints it; None in a file that predates the demand for it.
        quoted: false where the source is not at hand, and the sentence is empty.
        printed: the number of an "about" as the source prints it, without its unit; its precision is read from it.
        tolerance: where the percent or margin of a "within" comes from.
        effect: percent of the right side that a strict order must exceed.
        input: the chosen input that sets the outcome; the verdict is then "by construction".
        changed: why the tested form is not the first one that was committed.
    """

    id: Name
    section: Name
    says: Name
    published: Name
    left: Side
    relation: Relation
    right: float | str | Side
    factor: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    percent: AtLeastZero = 0.0
    margin: AtLeastZero = 0.0
    on: tuple[Name, ...] = ()
    populations: tuple[Name, ...] = ()
    averaged: bool = False
    note: str = ""
    sentence: str | None = None
    quoted: bool = True
    printed: str = ""
    tolerance: str = ""
    effect: Annotated[float, msgspec.Meta(gt=0, lt=100)] = EFFECT_PERCENT
    input: str = ""
    changed: str = ""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The measured sides."""
        return (self.left, self.right) if isinstance(self.right, Side) else (self.left,)

    @property
    def is_share(self) -> bool:
        """True if what is measured is a fraction, which tables and papers print in percent."""
        return unit(self.left.metric) == "%"

    def pairs(self) -> list[tuple[str, str]]:
        """The architectures that are held against each other, one by one; a single one stands for all of a side."""
        left = self.left.labels
        right = self.right.labels if isinstance(self.right, Side) else ("",)
        length = max(len(left), len(right))
        return list(zip(left * (length // len(left)), right * (length // len(right)), strict=True))


class Missing(msgspec.Struct, frozen=True):
    """Why a quantity could not be measured."""

    why: str


Lookup = Callable[[str, str, str, str], "Sequence[float] | Missing"]
"""From metric, architecture, workload and population to one value per seed."""


class Quantity(msgspec.Struct, frozen=True):
    """A measured side of a case.

    Args:
        of, on: architecture and workload.
        mean, low, high: mean and range over the seeds.
    """

    of: str
    on: str
    mean: float
    low: float
    high: float


class Case(msgspec.Struct, frozen=True):
    """A claim on one workload, pair of architectures and population.

    Args:
        left: what was measured; None when it could not be.
        right: what it was held against, where that was measured too.
        why: what stands in the way of a decision.
        stand_in: whether the workload stands for another, which is not here.
    """

    workload: str
    population: str
    verdict: Verdict
    left: Quantity | None = None
    right: Quantity | None = None
    why: str = ""
    stand_in: bool = False


class Judgement(msgspec.Struct, frozen=True):
    """A claim and its verdict.

    Args:
        claim: which.
        reading: of its architectures, where they have several.
        why: of a verdict that is not simply "reproduced".
    """

    claim: str
    reading: str
    verdict: Verdict
    why: str
    cases: tuple[Case, ...]


def judge(
    claim: Claim,
    workloads: Sequence[str],
    populations: Sequence[str],
    lookup: Lookup,
    *,
    reading: str = "",
    stand_ins: Mapping[str, str] | None = None,
) -> Judgement:
    """Judge a claim.

    Args:
        claim: what is said.
        workloads: those of the experiment, for claims that name none.
        populations: machine populations; the claim must hold on each.
        lookup: gives the values.
        reading: under which the architectures were run.
        stand_ins: workload -> what it stands for; a claim that fails on a stand-in alone is not refuted.
    """
    fixed = all(side.on for side in claim.sides)
    places = (claim.left.on,) if fixed else claim.on or workloads
    populations = claim.populations or populations
    if claim.averaged and populations:
        lookup, populations = _averaging(lookup, populations), [EVERY]
    cases = tuple(_cases(claim, places, populations, lookup, stand_ins or {}))
    verdict, why = _together(cases, stand_ins or {})
    return Judgement(claim.id, reading, verdict, why, cases)


def _averaging(lookup: Lookup, populations: Sequence[str]) -> Lookup:
    """A lookup that averages over the populations, seed by seed."""

    def found(metric: str, of: str, on: str, _: str) -> Sequence[float] | Missing:
        values = []
        for population in populations:
            one = lookup(metric, of, on, population)
            if isinstance(one, Missing):
                return one
            values.append(one)
        return [sum(seed) / len(seed) for seed in zip(*values, strict=True)]

    return found


def _cases(
    claim: Claim,
    workloads: Sequence[str],
    populations: Sequence[str],
    lookup: Lookup,
    stand_ins: Mapping[str, str],
) -> Iterator[Case]:
    for workload in workloads:
        for left_of, right_of in claim.pairs():
            for population in populations:
                yield _case(claim, workload, population, (left_of, right_of), lookup, stand_ins)


def _case(
    claim: Claim,
    workload: str,
    population: str,
    pair: tuple[str, str],
    lookup: Lookup,
    stand_ins: Mapping[str, str],
) -> Case:
    places = [side.on or workload for side in claim.sides]
    found = [lookup(side.metric, of, on, population) for side, of, on in zip(claim.sides, pair, places, strict=False)]
    missing = next((values for values in found if isinstance(values, Missing)), None)
    stand_in = any(on in stand_ins for on in places)
    if missing is not None:
        return Case(workload, population, UNDECIDED, why=missing.why, stand_in=stand_in)
    values = [list(one) for one in found if not isinstance(one, Missing)]
    left = values[0]
    against = _quantity(pair[1], places[1], values[1]) if len(values) > 1 else None
    if isinstance(claim.right, float):
        right = [claim.right] * len(left)
    elif isinstance(claim.right, str):
        right = _analysed(claim.right, len(left), lambda metric: lookup(metric, pair[0], places[0], population))
        against = _quantity(THEORY, "", right)
    else:
        right = values[1]
    verdict = decide(left, right, claim)
    return Case(
        workload,
        population,
        verdict,
        _quantity(pair[0], places[0], left),
        against,
        "the interval over seeds spans the bound" if verdict == UNDECIDED else "",
        stand_in,
    )


def _analysed(text: str, runs: int, measured: Callable[[str], Sequence[float] | Missing]) -> list[float]:
    """What theory expects of each run."""
    analysis = parse_analysis(text, THEORY)
    metrics = {metric: measured(metric) for metric in analysis.measured.values()}
    columns = {metric: values for metric, values in metrics.items() if not isinstance(values, Missing)}
    assert columns.keys() == metrics.keys(), "measures of a run are there together, or not at all"
    return [analysis.expected({metric: values[place] for metric, values in columns.items()}) for place in range(runs)]


def _quantity(of: str, on: str, values: Sequence[float]) -> Quantity:
    return Quantity(of, on, sum(values) / len(values), min(values), max(values))


def decide(left: Sequence[float], right: Sequence[float], claim: Claim) -> Verdict:
    """The verdict on values that are paired by seed; one seed decides by its value alone."""
    verdicts = {_side(slack, claim.relation in ("<", ">")) for slack in _slacks(left, right, claim)}
    if DIFFERS in verdicts:
        return DIFFERS
    return UNDECIDED if UNDECIDED in verdicts else REPRODUCED


def _slacks(left: Sequence[float], right: Sequence[float], claim: Claim) -> Iterator[list[float]]:
    """How far the claim holds, per seed: from the lower bound, from the upper bound, or both."""
    targets = [claim.factor * value for value in right]
    strict = claim.relation in ("<", ">")
    allowed = [
        claim.percent / 100 * abs(target) + claim.margin + (0.0 if strict else ROUNDING * abs(target))
        for target in targets
    ]
    if claim.relation in (">", ">=", "within"):
        yield [value - target + room for value, target, room in zip(left, targets, allowed, strict=True)]
    if claim.relation in ("<", "<=", "within"):
        yield [target + room - value for value, target, room in zip(left, targets, allowed, strict=True)]


def _side(slack: Sequence[float], strict: bool) -> Verdict:
    """On which side of zero the mean lies, with its interval over seeds."""
    interval = paired_difference(slack, [0.0] * len(slack))
    assert interval.low is not None
    assert interval.high is not None
    if interval.low > 0 or (interval.low == 0 and not strict):
        return REPRODUCED
    return DIFFERS if interval.high < 0 or (interval.high == 0 and strict) else UNDECIDED


def _together(cases: Sequence[Case], stand_ins: Mapping[str, str]) -> tuple[Verdict, str]:
    """The verdict over all cases and the reason for it."""
    if not cases:
        return UNDECIDED, "nothing was measured"
    firm = [case for case in cases if case.verdict == DIFFERS and not case.stand_in]
    if firm:
        return DIFFERS, _where(firm, cases)
    for case in cases:
        if case.verdict == UNDECIDED:
            return UNDECIDED, case.why
    weak = next((case for case in cases if case.verdict == DIFFERS), None)
    if weak is not None:
        name = _stand_in(weak, stand_ins)
        return UNDECIDED, f"{stand_ins[name]} is not here, and it does not hold on {name}"
    absent = next((_stand_in(case, stand_ins) for case in cases if case.stand_in), None)
    return REPRODUCED, "" if absent is None else f"on {absent} in place of {stand_ins[absent]}"


def _stand_in(case: Case, stand_ins: Mapping[str, str]) -> str:
    """The workload of the case that stands for another."""
    named = [side.on for side in (case.left, case.right) if side is not None]
    return next(name for name in (*named, case.workload) if name in stand_ins)


def _where(failed: Sequence[Case], cases: Sequence[Case]) -> str:
    """Which workloads, and how many populations, when it is not all of them."""
    if len(failed) == len(cases):
        return ""
    names = list(dict.fromkeys(case.workload for case in failed))
    return f"in {len(failed)} of {len(cases)} cases ({', '.join(names)})"
