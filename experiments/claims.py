"""Claims of papers as inequalities with tolerances, and the words of their verdicts.

A claim says: left RELATION factor x right, where left is a metric of an architecture on a workload, and right is
another one, a number, or what theory expects of the same run (see `closed_forms.py`). A claim is judged once per
workload, pair of architectures and machine population (a case); `judgement.py` judges.

    < >       an order. It must show an effect: at least `effect` percent of the right side (5 unless the claim's own
              size is smaller). Where the right side is zero the sign decides.
    <= >=     a bound that the source names; no tolerance of ours.
    about     a published number, within the tolerance of the rule below.
    within    within a percent or margin that the source itself names, or around a closed form.

Each case is judged on values that are paired by seed:

- A duration or a count, where all its values are positive, is judged on the logarithm of left / (factor x right).
- A fraction, and whatever is zero somewhere, is judged on the difference left - factor x right.
- The interval over seeds is Student's below 15 seeds and the BCa bootstrap from there on (`volery.statistics`). All of
  it beyond the bound: the case holds; all of it on the other side of the bound: the case fails; else it is open.
- A single seed of something random leaves the case open. What draws nothing decides by its one value.

A claim over several cases holds where every case holds. It fails where one case fails at a confidence that Holm's
procedure corrects for their number: each further case is one more chance to fail by accident, while to hold by
accident all of them would have to.

Where seeds were added until the claim was decided, each look at the values has a confidence of its own, so that all
looks together keep 95 % (`volery.statistics.Looks`). The last look that has all values of a case decides it: seeds that
were drawn for other claims count, also against what fewer seeds decided.

Cases on workloads that stand for another one (`stands_for`) are judged apart from the others: a claim that speaks of
both gets two judgements. Orders count there, and bounds that a mechanism keeps. A number that a source prints of its
own workload does not: a workload made here can neither confirm nor refute it, so that it is shown beside ours, and
counted nowhere. So it is with a bound that is such a number (`measured`): "within 14 % of optimal" was measured, too. A
claim whose number the source prints of any workload, as a guarantee of its mechanism, says so (`any_workload`), and
counts.

A question of ours, of which the source says nothing, says so (`ours`). It has no sentence, and its verdict is shown and
counted nowhere, on whatever workload.

A number that a source prints ("about") is reproduced within 20 % of it, or within half a unit of its last printed
digit, whichever is larger. The precision is read from the number as the source prints it. The unit may differ from the
one that is measured in: 25 % may be tested as 0.25, and 8.5 minutes as 510 s. A factor between two measured quantities
claims a change. Of a factor of 1.03 the 20 % are of the change of 0.03: 20 % of the factor would reproduce the opposite
order too. A factor below a half is closer to zero than to one, and the 20 % are of the factor, so that they reach
neither. Where the source prints a change in percent ("15 % shorter"), the tested factor is 1 - 0.15 or 1 + 0.15, and
the 20 % are of the printed percent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, get_args

import msgspec

from experiments.measures import is_share
from volery.core.errors import InputError

Relation = Literal["<", "<=", ">", ">=", "within", "about"]
STRICT: Final = ("<", ">")
EFFECT_PERCENT: Final = 5.0
"""What a strict order must show, unless the claim's own size is smaller."""
Verdict = Literal[
    "reproduced", "differs", "holds on a stand-in", "fails on a stand-in", "of the program, not of the text",
    "not decided", "not decidable", "not tried", "number on a stand-in", "our question", "by construction",
]  # fmt: skip
REPRODUCED: Final[Verdict] = "reproduced"
DIFFERS: Final[Verdict] = "differs"
STAND_IN_HOLDS: Final[Verdict] = "holds on a stand-in"
STAND_IN_FAILS: Final[Verdict] = "fails on a stand-in"
OF_THE_PROGRAM: Final[Verdict] = "of the program, not of the text"
UNDECIDED: Final[Verdict] = "not decided"
UNDECIDABLE: Final[Verdict] = "not decidable"
NOT_TRIED: Final[Verdict] = "not tried"
STAND_IN_NUMBER: Final[Verdict] = "number on a stand-in"
OUR_QUESTION: Final[Verdict] = "our question"
BY_CONSTRUCTION: Final[Verdict] = "by construction"
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
HOLDING: Final = frozenset({REPRODUCED, STAND_IN_HOLDS})
FAILING: Final = frozenset({DIFFERS, STAND_IN_FAILS, OF_THE_PROGRAM})
"""Verdicts against the words of a source; its program may do what they say."""
SHOWN_ALONE: Final = frozenset({STAND_IN_NUMBER, OUR_QUESTION})
"""Verdicts whose cases tell beside them whether ours agrees."""
UNCOUNTED: Final = SHOWN_ALONE | {BY_CONSTRUCTION}
"""Verdicts that speak neither for a claim nor against it; all others count, and those that are neither holding nor
failing leave the claim open."""
PROGRAM: Final = "published-code"
"""The reading that is the public program of a source; the first reading of a claim is that of its text."""

THEORY: Final = "theory"
"""Stands for the architecture where a closed form gives the values."""

EVERY: Final = "average"
"""Stands for the population of a case whose values are averages over all of them."""

Name = Annotated[str, msgspec.Meta(min_length=1)]
AtLeastZero = Annotated[float, msgspec.Meta(ge=0)]


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
    """A statement of a paper as a test.

    Args:
        id: unique in its experiment.
        section: where the paper says it.
        says: our reading of the statement, as a test.
        published: the published value as printed in tables.
        left: what is measured.
        relation: left RELATION factor x right.
        right: what it is held against: a number, another measured quantity, or the text of a closed form.
        factor: Factor of the right side.
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
        effect: percent of the right side that a strict order must exceed; 0 in a first form older than this rule.
        measured: whether the bound is a number that the source measured itself, on its own workload.
        ours: whether the source says nothing of it, and the question is ours; then there is no sentence.
        any_workload: why the source prints a number of any workload, so that a stand-in can refute it.
        input: the chosen input that sets the outcome; the verdict is then "by construction".
        program_of: id of the claim that tests the words of the source, where this one tests what its program does in
            place of them; "EXPERIMENT/ID" for one of another experiment.
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
    effect: Annotated[float, msgspec.Meta(ge=0, lt=100)] = EFFECT_PERCENT
    measured: bool = False
    ours: bool = False
    any_workload: str = ""
    input: str = ""
    program_of: str = ""
    changed: str = ""

    @property
    def is_number(self) -> bool:
        """True if it holds a measure against a number that the source prints of its own workload."""
        is_printed = self.relation == "about" or (self.relation == "within" and isinstance(self.right, float))
        return (is_printed or self.measured) and not self.any_workload

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of a claim that are measured."""
        return (self.left, self.right) if isinstance(self.right, Side) else (self.left,)

    @property
    def goal(self) -> float:
        """The number that an "about" tests: factor x right where the right side is a number, else the factor."""
        return self.factor if isinstance(self.right, Side | str) else self.factor * self.right

    @property
    def is_share(self) -> bool:
        """True if what is measured is a fraction, which tables and papers print in percent."""
        return is_share(self.left.metric)

    def pairs(self) -> list[tuple[str, str]]:
        """The architectures that are held against each other, one by one; a single one stands for all of a side."""
        sides = self.left.labels, self.right.labels if isinstance(self.right, Side) else ("",)
        length = max(map(len, sides))
        left_labels, right_labels = (labels * (length // len(labels)) for labels in sides)
        return list(zip(left_labels, right_labels, strict=True))


class Quantity(msgspec.Struct, frozen=True):
    """A measured side of a case.

    Args:
        mean, low, high: mean and range over the seeds.
    """

    of: str
    on: str
    mean: float
    low: float
    high: float


class ClaimCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim on one workload, pair of architectures and population.

    Args:
        left: what was measured; None when it could not be.
        right: what it was held against, where that was measured too.
        why: what stands in the way of a decision.
        stand_in: whether the workload stands for another, which is not here.
        seeds: how many pairs of values were judged.
        method: Method of the interval over the values; empty where there is no interval.
        is_ratio: whether the interval is of left / (factor x right), else of left - factor x right.
        low, high: the interval, at the confidence of the last look that has all values.
        agrees: whether a number on a stand-in is the printed one; None where that is open, and for all other cases.
    """

    workload: str
    population: str
    verdict: Verdict
    left: Quantity | None = None
    right: Quantity | None = None
    why: str = ""
    stand_in: bool = False
    seeds: int = 0
    method: str = ""
    is_ratio: bool = False
    low: float | None = None
    high: float | None = None
    agrees: bool | None = None


class Judgement(msgspec.Struct, frozen=True):
    """A claim and its verdict.

    Args:
        reading: Reading of the architectures, where they have several.
        why: Reason of a verdict that is not simply "reproduced".
        stand_in: whether its cases are those on stand-ins.
    """

    claim: str
    reading: str
    verdict: Verdict
    why: str
    cases: tuple[ClaimCase, ...]
    stand_in: bool = False


SHARE: Final = 0.2
"""Of the published number, or of the change that a published factor claims."""
AGREEMENT: Final = 2e-3
"""Relative distance up to which the tested number may be the printed one: 1/3 is printed as 0.333."""
_NUMBER: Final = re.compile(r"(?P<digits>[+-]?\d[\d,]*(?:\.(?P<decimals>\d+))?)(?:e(?P<power>[+-]?\d+))?\Z")
_POWER_OF_TEN: Final = re.compile(r"10\^(-?\d+)\Z")
_UNITS: Final = (1.0, 60.0, 3600.0, 86400.0, *(10.0**power for power in (-9, -6, -3, 3, 6, 9)))
"""Minutes, hours, days, milli to nano, thousands to billions. No other power of ten is the size of a unit: 10^6 that is
tested as 10^5 is an error."""
_PERCENT: Final = 0.01
"""The further unit of fractions and of factors."""


class Printed(msgspec.Struct, frozen=True):
    """A number as a source prints it.

    Args:
        half_unit: half a unit of its last printed digit.
    """

    value: float
    half_unit: float

    def room(self, claimed: float) -> float:
        """The distance that is allowed in the printed unit, where the source claims a size of `claimed`."""
        return max(SHARE * abs(claimed), self.half_unit)


class Tolerance(msgspec.Struct, frozen=True):
    """The distance that is allowed: `share` of the target, and `margin` in the metric's own unit."""

    share: float
    margin: float = 0.0


def read_printed(text: str, place: str) -> Printed:
    """Read a printed number, as "1.003", "12,000", "2.3e5" or "10^6".

    Raises:
        InputError: at `place`, when the text is no number.
    """
    power_of_ten = _POWER_OF_TEN.match(text)
    match = _NUMBER.match(f"1e{power_of_ten.group(1)}" if power_of_ten else text)
    if match is None:
        raise InputError(
            place, f"{text!r} is no number; give it as the source prints it, without its unit: 1.003, 12,000 or 2.3e5"
        )
    power = int(match["power"] or 0)
    value = float(f"{match['digits'].replace(',', '')}e{power}")
    return Printed(value, 0.5 * 10.0 ** (power - len(match["decimals"] or "")))


def tolerance_of(
    printed: Printed, goal: float, place: str, *, is_share: bool = False, is_factor: bool = False
) -> Tolerance:
    """Work out the tolerance of a tested number from the printed one.

    Args:
        is_share: true for a fraction, which a source prints in percent.
        is_factor: true where the right side is measured, so that the tested number is a factor.

    Raises:
        InputError: at `place`, when the tested number is not the printed one in any unit.
    """
    if not printed.value and not goal:
        return Tolerance(0.0, printed.half_unit * (0.01 if is_share else 1.0))
    for change in _changes(printed.value):
        if _agree(goal, change, printed.half_unit / 100):
            return Tolerance(printed.room(printed.value) / 100 / abs(change))
    for unit in (*_UNITS, *([_PERCENT] if is_share or is_factor else [])):
        if printed.value and _agree(goal, printed.value * unit, printed.half_unit * unit):
            value = abs(printed.value)
            change = min(value, abs(value - 1 / unit)) if is_factor else value
            return Tolerance(printed.room(change) / value)
    raise InputError(
        place, f"{printed.value:g} is printed and {goal:g} is tested; make factor x right the printed number"
    )


def tolerance_of_claim(claim: Claim, place: str) -> Tolerance:
    """Work out the tolerance of a claim with relation "about".

    Raises:
        InputError: at `place`, as `read_printed` and `tolerance_of` do.
    """
    printed, is_factor = read_printed(claim.printed, place), isinstance(claim.right, Side)
    return tolerance_of(printed, claim.goal, place, is_share=claim.is_share, is_factor=is_factor)


def _changes(percent: float) -> Iterator[float]:
    """The factors of a change in percent; none of them is zero."""
    for factor in (1 - percent / 100, 1 + percent / 100):
        if factor and percent:
            yield factor


def _agree(goal: float, printed: float, half_unit: float) -> bool:
    """Return true if a tested number is the printed one, within its last digit and within AGREEMENT."""
    room = min(AGREEMENT * abs(printed), half_unit)
    return math.isclose(goal, printed, abs_tol=room)


FIRST: Final = "-first"
"""Ends the id of a claim that came back in its first committed form; the demands on tolerances are younger."""


def check_demands(claim: Claim, place: str) -> None:
    """Check that a claim quotes its source, and that its tolerance comes from the source or from the ledger's rule.

    Raises:
        InputError: naming the place of the first demand that it does not meet.
    """
    _check_sentence(claim, place)
    if claim.relation == "about":
        _check_about(claim, place)
    if not claim.id.endswith(FIRST):
        _check_tolerance(claim, place)


def _check_sentence(claim: Claim, place: str) -> None:
    if claim.sentence is None:
        raise InputError(
            f"{place}.sentence",
            'is missing; give the sentence as the source prints it, or sentence = "" with quoted = false',
        )
    if claim.quoted and not claim.sentence:
        raise InputError(
            f"{place}.sentence", "is empty; give the sentence as the source prints it, or quoted = false without it"
        )
    if claim.ours and claim.quoted:
        raise InputError(f"{place}.ours", "is true, but the source says it; leave one of ours and the sentence out")
    if claim.sentence and not claim.quoted:
        raise InputError(
            f"{place}.quoted", 'is false, but a sentence is given; our own words go to says, with sentence = ""'
        )


def _check_tolerance(claim: Claim, place: str) -> None:
    relation = claim.relation
    if claim.measured and relation in ("about", "within"):
        raise InputError(f"{place}.measured", f"goes with a bound or an order, not with {relation!r}; leave it out")
    if relation != "about" and claim.printed:
        raise InputError(f"{place}.printed", f"goes with relation 'about', not with {relation!r}; leave it out")
    if relation == "within":
        if not claim.tolerance:
            raise InputError(
                f"{place}.tolerance",
                "is missing: 'within' needs the source of its percent or margin; a published number takes 'about'",
            )
        return
    if claim.tolerance:
        raise InputError(f"{place}.tolerance", f"goes with relation 'within', not with {relation!r}; leave it out")
    for name in ("percent", "margin"):
        if getattr(claim, name):
            raise InputError(
                f"{place}.{name}",
                f"{relation!r} has no tolerance of its own; leave it out, or write what the source allows as factor",
            )
    if claim.any_workload and relation not in ("about", "within"):
        raise InputError(f"{place}.any_workload", f"goes with a printed number, not with {relation!r}; leave it out")
    if relation not in STRICT and claim.effect != EFFECT_PERCENT:
        raise InputError(f"{place}.effect", f"goes with relation '<' or '>', not with {relation!r}; leave it out")
    if not claim.effect:
        raise InputError(f"{place}.effect", f"0 belongs to first forms that came back, whose ids end in {FIRST!r}")
    if claim.effect < EFFECT_PERCENT and not re.search(r"\d", claim.published):
        raise InputError(
            f"{place}.effect",
            f"{claim.effect:g} % is below the {EFFECT_PERCENT:g} % of every order, and published names no size; "
            "leave it out, or give the published size that it is",
        )


def _check_about(claim: Claim, place: str) -> None:
    if not claim.printed:
        raise InputError(
            f"{place}.printed", "is missing: 'about' needs the number as the source prints it, without its unit"
        )
    if isinstance(claim.right, str):
        raise InputError(f"{place}.right", "is a closed form; hold it with relation 'within', percent and tolerance")
    tolerance_of_claim(claim, f"{place}.printed")
