"""Utility expressions: what a job is worth by which machines it is given, when and for how long.

The primitives and operators of alsched (Tumanov et al., SoCC 2012) with the time dimension of TetriSched's STRL (the
same, EuroSys 2016): a leaf asks for machines of an equivalence set, from a quantum of time for so many quanta. Machines
are named by sets whose members stand elsewhere (`Sets`), so that an expression is small, readable and portable.

`worth` says what a tree is worth when machines are given here and now; `milp.py` finds what to give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from volery.core.errors import InputError, suggestion

Sets = Mapping[str, int]
"""The members of each named set, as a bit vector of machines."""
NOW: Final = 0
DEPTH_MAX: Final = 64
"""Levels of an expression; far more than people or wizards write, and few enough for any stack."""


class _Node(msgspec.Struct, frozen=True, tag_field="op", forbid_unknown_fields=True):
    """A node of an expression."""


class _Leaf(_Node, frozen=True):
    """Machines of one equivalence set, the same number throughout."""

    where: tuple[str, ...]
    k: int
    value: float
    start: int = NOW
    duration: int = 1

    def __post_init__(self) -> None:
        """Refuse what no machine could ever satisfy."""
        if not self.where or not all(self.where):
            raise ValueError("a leaf names at least one set of machines, as nCk(all, 2, 1.0)")
        if self.k < 1:
            raise ValueError(f"{self.k} machines cannot be asked for; k is at least 1")
        if self.start < 0 or self.duration < 1:
            raise ValueError(f"start {self.start} and duration {self.duration}: at least 0 and 1 quanta are possible")
        _check_value(self.value)


class NCk(_Leaf, frozen=True, tag="nCk"):
    """Exactly k machines of a set, all of them from `start` for `duration` quanta.

    Args:
        where: names of sets whose union is the equivalence set.
        k: how many.
        value: what they are worth.
        start: the quantum with which they are needed, 0: now.
        duration: in quanta.
    """


class LnCk(_Leaf, frozen=True, tag="LnCk"):
    """As nCk, but any number up to k: x of them are worth x / k of the value."""


class _Many(_Node, frozen=True):
    of: tuple[Expression, ...]

    def __post_init__(self) -> None:
        """Refuse an operator without operands."""
        if not self.of:
            raise ValueError("max, min and sum take at least one expression")


class Max(_Many, frozen=True, tag="max"):
    """Alternatives: the best one counts, and only one is given machines."""


class Min(_Many, frozen=True, tag="min"):
    """All are needed, as for tasks that must run apart; worth what the worst one is."""


class Sum(_Many, frozen=True, tag="sum"):
    """Each that is satisfied counts."""


class Scale(_Node, frozen=True, tag="scale"):
    """Multiplies the value of the operand."""

    of: Expression
    factor: float

    def __post_init__(self) -> None:
        """Refuse a factor that would turn wishes around."""
        _check_value(self.factor)


class Barrier(_Node, frozen=True, tag="barrier"):
    """Worth `value` once the operand is worth at least that, and nothing before."""

    of: Expression
    value: float

    def __post_init__(self) -> None:
        """Refuse a barrier below nothing."""
        _check_value(self.value)


Expression = NCk | LnCk | Max | Min | Sum | Scale | Barrier


def _check_value(value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{value} is no value; values and factors are finite and at least 0")


def operands(node: Expression) -> tuple[Expression, ...]:
    """The expressions that a node is made of; none of a leaf."""
    if isinstance(node, NCk | LnCk):
        return ()
    return (node.of,) if isinstance(node, Scale | Barrier) else node.of


def leaves(node: Expression) -> Iterator[NCk | LnCk]:
    """The leaves of an expression, from left to right."""
    if isinstance(node, NCk | LnCk):
        yield node
    for each in operands(node):
        yield from leaves(each)


def members(where: tuple[str, ...], sets: Sets) -> int:
    """The machines of the union of some sets.

    Raises:
        InputError: there is no such set; with a suggestion.
    """
    found = 0
    for name in where:
        if name not in sets:
            raise InputError("STRL", f"there is no set {name!r} of machines{suggestion(name, sets)}")
        found |= sets[name]
    return found


def worth(node: Expression, given: int, sets: Sets) -> float:
    """The value of machines that are given now, as alsched counts (SoCC 2012): time does not matter.

    Args:
        node: the expression; its parts may count the same machine.
        given: the machines, as a bit vector.
        sets: the members of the sets that it names.

    Raises:
        InputError: the expression names a set that is not among them.
    """
    match node:
        case NCk():
            return node.value if (members(node.where, sets) & given).bit_count() == node.k else 0.0
        case LnCk():
            return node.value * min((members(node.where, sets) & given).bit_count(), node.k) / node.k
        case Max():
            return max(worth(each, given, sets) for each in node.of)
        case Min():
            return min(worth(each, given, sets) for each in node.of)
        case Sum():
            return sum(worth(each, given, sets) for each in node.of)
        case Scale():
            return node.factor * worth(node.of, given, sets)
        case Barrier():
            return node.value if worth(node.of, given, sets) >= node.value else 0.0


def to_json(node: Expression) -> bytes:
    """The JSON form: an object per node, distinguished by "op"."""
    return msgspec.json.encode(node)


def from_json(text: bytes | str) -> Expression:
    """Read the JSON form.

    Raises:
        InputError: it is not one; the message names the place in it.
    """
    try:
        found: Expression = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        problem, _, place = str(error).partition(" - at ")
        raise InputError(f"STRL {place.strip('`') or '$'}", problem.replace("`", "")) from None
    except RecursionError:
        raise InputError("STRL $", f"is nested too deeply; at most {DEPTH_MAX} levels are read") from None
    return found


_DECODER: Final = msgspec.json.Decoder(Expression)


def ncks(where: str, k: int, value: float, start: int = NOW, duration: int = 1) -> NCk:
    """A leaf from text: `ncks("gpu+other", 2, 4.0)`."""
    return NCk(tuple(where.split("+")), k, value, start, duration)


def lncks(where: str, k: int, value: float, start: int = NOW, duration: int = 1) -> LnCk:
    """As `ncks`, for any number of machines up to k."""
    return LnCk(tuple(where.split("+")), k, value, start, duration)


def either(*of: Expression) -> Max:
    """Alternatives, one of which is enough."""
    return Max(of)


def together(*of: Expression) -> Min:
    """Expressions that are all needed."""
    return Min(of)


def each(*of: Expression) -> Sum:
    """Each that is satisfied counts."""
    return Sum(of)
