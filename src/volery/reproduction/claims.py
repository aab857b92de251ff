"""Claims of papers as inequalities with tolerances, and the words of their verdicts.

A claim says: left RELATION factor x right, where left is a metric of an architecture on a workload, and right is
another one, a number, or what theory expects of the same run (see `analysis.py`). A claim is judged once per
workload, pair of architectures and machine population (a case); `judging.py` judges.

    < >       an order. It must show an effect: at least `effect` percent of the right side (5 unless the claim's own
              size is smaller). Where the right side is zero the sign decides.
    <= >=     a bound that the source names; no tolerance of ours.
    about     a published number, within the tolerance of `volery.reproduction.tolerance`.
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
looks together keep 95 % (`volery.statistics.looks`); the first look that decides a case is final.

Cases on workloads that stand for another one (`stands_for`) are judged apart from the others: a claim that speaks of
both gets two judgements.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from volery.reproduction.measures import is_share

Relation = Literal["<", "<=", ">", ">=", "within", "about"]
STRICT: Final = ("<", ">")
EFFECT_PERCENT: Final = 5.0
"""What a strict order must show, unless the claim's own size is smaller."""
Verdict = Literal[
    "reproduced", "differs", "holds on a stand-in", "fails on a stand-in", "by construction", "not decidable",
    "not tried",
]  # fmt: skip
REPRODUCED: Final[Verdict] = "reproduced"
DIFFERS: Final[Verdict] = "differs"
STAND_IN_HOLDS: Final[Verdict] = "holds on a stand-in"
STAND_IN_FAILS: Final[Verdict] = "fails on a stand-in"
BY_CONSTRUCTION: Final[Verdict] = "by construction"
UNDECIDED: Final[Verdict] = "not decidable"
NOT_TRIED: Final[Verdict] = "not tried"
VERDICTS: Final = (
    REPRODUCED, DIFFERS, STAND_IN_HOLDS, STAND_IN_FAILS, BY_CONSTRUCTION, UNDECIDED, NOT_TRIED,
)  # fmt: skip

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
        effect: percent of the right side that a strict order must exceed; 0 in a first form older than this rule.
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
    effect: Annotated[float, msgspec.Meta(ge=0, lt=100)] = EFFECT_PERCENT
    input: str = ""
    changed: str = ""

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
        left = self.left.labels
        right = self.right.labels if isinstance(self.right, Side) else ("",)
        length = max(len(left), len(right))
        return list(zip(left * (length // len(left)), right * (length // len(right)), strict=True))


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


class ClaimCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim on one workload, pair of architectures and population.

    Args:
        left: what was measured; None when it could not be.
        right: what it was held against, where that was measured too.
        why: what stands in the way of a decision.
        stand_in: whether the workload stands for another, which is not here.
        seeds: how many pairs of values were judged.
        method: of the interval over them; empty where there is none.
        is_ratio: whether the interval is of left / (factor x right), else of left - factor x right.
        low, high: the interval, at the confidence of the look that was the last.
        wants_seeds: whether more seeds may decide it.
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
    wants_seeds: bool = False


class Judgement(msgspec.Struct, frozen=True):
    """A claim and its verdict.

    Args:
        claim: which.
        reading: of its architectures, where they have several.
        why: of a verdict that is not simply "reproduced".
        stand_in: whether its cases are those on stand-ins.
    """

    claim: str
    reading: str
    verdict: Verdict
    why: str
    cases: tuple[ClaimCase, ...]
    stand_in: bool = False

    @property
    def wants_seeds(self) -> bool:
        """True if nothing but more seeds is needed to decide it."""
        undecided = [case for case in self.cases if case.verdict == UNDECIDED]
        return self.verdict == UNDECIDED and bool(undecided) and all(case.wants_seeds for case in undecided)
