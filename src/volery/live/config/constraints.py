"""Placement constraints in words, the bits that schedulers match for them, and the fleet that gives them a meaning.

A condition on an attribute (`cores >= 8`, `label.zone in ["a", "b"]`) selects some of the values that the machines of a
fleet have for it. With one bit per value v, meaning "the attribute is not v", a machine offers the bits of all values
but its own, and a condition needs the bits of all values that it does not select. So one code expresses every
comparison, in as many bits as the attribute has values (none where all machines agree), and a conjunction of
conditions is the union of their bits.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from volery.core.errors import InputError, suggestion
from volery.core.model import CONSTRAINT_BITS_MAX, Amounts, Cluster
from volery.core.omissions import nearest_miss
from volery.live.config.machine import LABEL, Machine
from volery.live.status import AttributeValue

NOWHERE: Final = 1 << (CONSTRAINT_BITS_MAX - 1)
"""The bit that no machine offers: a task that asks for it is unsatisfiable."""
BITS_FOR_VALUES: Final = CONSTRAINT_BITS_MAX - 1
VERSIONS: Final = frozenset({"kernel"})
"""Attributes that hold text but have an order, part by part."""
SHOWN_VALUES: Final = 8

_Compare = Callable[[Any, Any], bool]
_ORDERED: Final[dict[str, _Compare]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MEMBERS: Final = ("in", "not in")
_OPERATORS: Final = ("==", "!=", *_ORDERED, *_MEMBERS)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"[^"\n]*"|'[^'\n]*')|(?P<number>-?\d[\d_]*)(?![\w.])|(?P<sign>==|!=|<=|>=|<|>|\[|\]|,)"""
    r"""|(?P<word>[A-Za-z_][\w.-]*)|(?P<other>\S))"""
)
_EXAMPLE: Final = 'as cores >= 8, arch == "x86_64" or label.zone in ["a", "b"]'


class MachineCondition(msgspec.Struct, frozen=True):
    """One comparison of an attribute with a value, or with several.

    Args:
        attribute: name, for example `cores` or `label.zone`.
        operator: `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `not in`.
        values: one value, or those of the list behind `in`.
        place: place where it was written, for messages.
    """

    attribute: str
    operator: str
    values: tuple[AttributeValue, ...]
    place: str = "constraint"

    def __str__(self) -> str:
        shown = [f'"{value}"' if isinstance(value, str) else str(value) for value in self.values]
        listed = f"[{', '.join(shown)}]" if self.operator in _MEMBERS else shown[0]
        return f"{self.attribute} {self.operator} {listed}"

    def accepts(self, value: AttributeValue | None) -> bool:
        """True if a machine with this value meets the condition; None: the machine lacks the label."""
        match self.operator:
            case "==" | "in":
                return value in self.values
            case "!=" | "not in":
                return value not in self.values
        if value is None:
            return False
        return _ORDERED[self.operator](_rank(self.attribute, value), _rank(self.attribute, self.values[0]))


def _rank(attribute: str, value: AttributeValue) -> Any:
    """The sort key of a value: a number, or the numbers of a version."""
    if attribute in VERSIONS:
        return tuple(int(part) for part in re.findall(r"\d+", str(value)))
    return value


def parse_condition(text: str, place: str) -> MachineCondition:
    """Read one condition.

    Raises:
        InputError: naming the place, the column and what was expected there.
    """
    tokens = _tokens(text, place)

    def fail(at: int, expected: str) -> InputError:
        column = tokens[at][2] if at < len(tokens) else len(text) + 1
        actual = f"not {tokens[at][1]!r}" if at < len(tokens) else "but it ends there"
        return InputError(place, f"{text!r}, column {column}: expected {expected}, {actual}; write it {_EXAMPLE}")

    if not tokens or tokens[0][0] != "word":
        raise fail(0, "the name of an attribute")

    operator, at = _operator(tokens)
    if not operator:
        raise fail(1, f"one of {' '.join(_OPERATORS)}")

    if operator in _MEMBERS:
        values, at = _list(tokens, at, fail)
    else:
        values = (_value(tokens, at, fail),)
        at = at + 1

    if at < len(tokens):
        if tokens[at][1] in ("and", "&", "or", "|"):
            problem = "is one condition each: write several as a list; for alternatives of one attribute use in [...]"
            raise InputError(place, f"{text!r}, column {tokens[at][2]}: {problem}")
        raise fail(at, "the end of the condition")

    return MachineCondition(tokens[0][1], operator, values, place)


_Token = tuple[str, str, int]
_Fail = Callable[[int, str], InputError]


def _tokens(text: str, place: str) -> list[_Token]:
    """Kind, text and column of every token."""
    if not isinstance(text, str):
        raise InputError(place, f"a constraint is a string, {_EXAMPLE}; not {text!r}")
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        tokens.append((kind, match.group(kind), match.start(kind) + 1))
    return tokens


def _operator(tokens: Sequence[_Token]) -> tuple[str, int]:
    """The operator behind the name, and where its right side begins."""
    words = [token[1] for token in tokens[1:3]]
    if words == ["not", "in"]:
        return "not in", 3
    return (words[0], 2) if words and words[0] in (*_ORDERED, "==", "!=", "in") else ("", 2)


def _value(tokens: Sequence[_Token], at: int, fail: _Fail) -> AttributeValue:
    if at < len(tokens):
        kind, content, _ = tokens[at]
        if kind == "text":
            return content[1:-1]
        if kind == "number":
            return int(content.replace("_", ""))
        if kind == "word":
            raise fail(at, f'a whole number or text in quotes ("{content}")')
    raise fail(at, "a whole number or text in quotes")


def _list(tokens: Sequence[_Token], at: int, fail: _Fail) -> tuple[tuple[AttributeValue, ...], int]:
    if at >= len(tokens) or tokens[at][1] != "[":
        raise fail(at, "a list in [ ]")

    values = [_value(tokens, at + 1, fail)]
    at += 2
    while at < len(tokens) and tokens[at][1] == ",":
        values.append(_value(tokens, at + 1, fail))
        at += 2

    if at >= len(tokens) or tokens[at][1] != "]":
        raise fail(at, "a comma or ]")

    return tuple(values), at + 1


class Vocabulary:
    """The bits of one fleet: which values its machines have for which attributes.

    Args:
        machines: all of them, in any order; the same machines give the same bits.

    Raises:
        InputError: the values need more bits than a constraint set has, or a label is a number here and text there.
    """

    def __init__(self, machines: Iterable[Machine]) -> None:
        fleet = [machine.attributes() for machine in machines]
        names = sorted({name for attributes in fleet for name in attributes})
        self._values: dict[str, list[AttributeValue | None]] = {}
        self._bits: dict[str, dict[AttributeValue | None, int]] = {}

        for name in names:
            values = {attributes.get(name) for attributes in fleet}
            if len({type(value) for value in values if value is not None}) > 1:
                raise InputError(name, "is a number on some machines and text on others; write it the same way on all")
            self._values[name] = sorted(values, key=lambda value: (value is not None, value))

        self._assign()

    def _assign(self) -> None:
        bit_count = 0
        for name, values in self._values.items():
            # An attribute in which all machines agree needs no bits: no condition on it tells them apart.
            count = len(values) if len(values) > 1 else 0
            self._bits[name] = {value: 1 << (bit_count + i) for i, value in enumerate(values[:count])}
            bit_count += count

        if bit_count > BITS_FOR_VALUES:
            name, values = max(self._values.items(), key=lambda item: (len(item[1]), item[0]))
            problem = f"the machines of the fleet have {len(values)} different values"
            problem += f"; all attributes together need {bit_count} bits, and a constraint set has {BITS_FOR_VALUES}"
            fix = "leave the label out" if name.startswith(LABEL) else "declare rounded values for the machines"
            raise InputError(name, f"{problem}; {fix}, or make it coarser")

    def offered(self, machine: Machine) -> int:
        """The bits that a machine of the fleet satisfies.

        Raises:
            InputError: the machine has a value that none of the fleet had when the vocabulary was made.
        """
        attributes, bits = machine.attributes(), 0
        for name in attributes.keys() - self._bits.keys():
            raise InputError(name, "no machine of the fleet has this attribute; declare it with the fleet")

        for name, of_value in self._bits.items():
            value = attributes.get(name)
            if value not in self._values[name]:
                raise InputError(name, f"no machine of the fleet has {value!r}; declare the machine with the fleet")
            # A bit says that the attribute is not this value: the machine offers all but its own.
            for fleet_value, bit in of_value.items():
                if fleet_value != value:
                    bits |= bit

        return bits

    def needed(self, conditions: Iterable[MachineCondition]) -> int:
        """The bits that a task with all of these conditions needs; `NOWHERE` where a condition selects nothing.

        Raises:
            InputError: an unknown attribute, or a comparison that its kind of value does not have.
        """
        bits = 0
        for condition in conditions:
            selected = self._selected(condition)
            if not selected:
                return NOWHERE
            # Several conditions on one attribute add up: each excludes the values that it does not select.
            for value, bit in self._bits[condition.attribute].items():
                if value not in selected:
                    bits |= bit
        return bits

    def obstacle(self, conditions: Sequence[MachineCondition], offers: Iterable[int]) -> str:
        """Why no machine of those that offer these bits will do, in words; empty when one does."""
        for condition in conditions:
            if not self._selected(condition):
                return f"no machine has {condition}; there {self._known_values(condition.attribute)}"
        needed = self.needed(conditions)
        if any(needed & ~bits == 0 for bits in offers):
            return ""
        return f"no single machine has {', '.join(map(str, conditions))}, although each is met by some"

    def _selected(self, condition: MachineCondition) -> set[AttributeValue | None]:
        values = self._values.get(condition.attribute)
        if values is None:
            problem = f"unknown attribute {condition.attribute!r}"
            if LABEL + condition.attribute in self._values:
                raise InputError(condition.place, f"{problem}; did you mean {LABEL + condition.attribute!r}?")
            raise InputError(condition.place, problem + suggestion(condition.attribute, self._values))

        sample = next(value for value in values if value is not None)
        for value in condition.values:
            if type(value) is not type(sample):
                kind = "a whole number" if isinstance(sample, int) else "text, in quotes"
                raise InputError(condition.place, f"{condition}: {condition.attribute} is {kind}, not {value!r}")

        if condition.operator in _ORDERED and isinstance(sample, str):
            if condition.attribute not in VERSIONS:
                problem = f"{condition}: {condition.attribute} has no order; use ==, !=, in or not in"
                raise InputError(condition.place, problem)
            if not _rank(condition.attribute, condition.values[0]):
                raise InputError(
                    condition.place, f'{condition}: compare {condition.attribute} with a version, as "6.1"'
                )

        return {value for value in values if condition.accepts(value)}

    def _known_values(self, attribute: str) -> str:
        values = ["none" if value is None else str(value) for value in self._values[attribute]]
        shown = ", ".join(values[:SHOWN_VALUES]) + (", ..." if len(values) > SHOWN_VALUES else "")
        return f"{'are' if len(values) > 1 else 'is'} {shown}"


def parse_conditions(texts: object, place: str) -> tuple[MachineCondition, ...]:
    """Read a list of conditions, all of which must hold.

    Raises:
        InputError: naming the entry, as `PLACE[1]`.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise InputError(place, f"is a list of conditions, as ['cores >= 8'], not {texts!r}")
    return tuple([parse_condition(text, f"{place}[{i}]") for i, text in enumerate(texts)]) if texts else ()


def holds(conditions: Iterable[MachineCondition], machine: Machine) -> bool:
    """True if a machine's attributes meet all conditions; no bits are used."""
    attributes: Mapping[str, AttributeValue] = machine.attributes()
    return all(condition.accepts(attributes.get(condition.attribute)) for condition in conditions)


class Fleet:
    """Machines and slots; a machine's place in the order is its number.

    Args:
        slots: tasks that each machine runs at once.
        capacities: amounts that each machine offers instead of slots, by name; all offer the same resources.
        calls: true if tasks may be Python calls.

    Raises:
        InputError: the machines differ in more ways than a constraint set has bits for.
        ValueError: no machine, one without a slot, or an amount out of range.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        slots: Sequence[int],
        name: str = "federation",
        capacities: Sequence[Mapping[str, int]] = (),
        *,
        calls: bool = True,
    ) -> None:
        self.machines = tuple(machines)
        self.calls = calls
        self.vocabulary = Vocabulary(self.machines)

        names = tuple(capacities[0]) if capacities else ()
        amounts = tuple([tuple([offered[name] for name in names]) for offered in capacities])
        offers = tuple(self.vocabulary.offered(machine) for machine in machines)
        self.cluster = Cluster(offers, tuple(slots), name, names, amounts)

        self._kinds = sorted(set(self.cluster.constraints))

    def needed(self, conditions: Sequence[MachineCondition], request: Amounts = ()) -> tuple[int, str]:
        """The constraint set of a task, and why no machine can run it (empty where one can).

        Raises:
            InputError: a condition that cannot be judged.
        """
        mask = self.vocabulary.needed(conditions)
        obstacle = self.vocabulary.obstacle(conditions, self._kinds)
        if request and not obstacle:
            obstacle = nearest_miss(self.cluster, mask, request, ", ".join(map(str, conditions)))
        return mask, obstacle

    def request(self, amounts: Mapping[str, int], place: str) -> Amounts:
        """The request of a task, in the cluster's order of resources; 0 where it names none.

        Raises:
            InputError: at `place`, a resource that machines do not offer, or none at all where they offer some.
        """
        names = self.cluster.resources
        if bool(amounts) != bool(names):
            fix = f"write how much of {', '.join(names)}" if names else "machines have slots here; leave it out"
            raise InputError(place, fix)
        for name in amounts:
            if name not in names:
                raise InputError(f"{place}.{name}", f"no machine offers it{suggestion(name, names)}")
        return tuple([amounts.get(name, 0) for name in names])
