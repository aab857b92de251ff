"""STRL: utility expressions, which say what a job is worth by the machines it is given, when and for how long.

The primitives and operators of alsched (Tumanov et al., SoCC 2012) with the time dimension of TetriSched's STRL (the
same, EuroSys 2016): a leaf asks for machines of an equivalence set, from a quantum of time for so many quanta. Machines
are named by sets whose members stand elsewhere (`Sets`), so that an expression is small, readable and portable. The
text form has a reader whose errors name the place, and a printer; what is printed reads back as it was.

    nCk(SETS, k, start, duration, value)    LnCk(...)        SETS: names of sets of machines, joined by +
    nCk(SETS, k, value)                     LnCk(...)        now, for one quantum
    max(e, ..)  min(e, ..)  sum(e, ..)  scale(e, factor)  barrier(e, value)

White space and line breaks are free; from # to the end of a line is a comment. `worth` says what a tree is worth when
machines are given here and now; `milp.py` finds what to give.

The table of the leaves of an expression (`Alternatives`) is made once, and not once per question: jobs of one size and
one run time that are worth as much have equal expressions, in one cycle and in the next ones where no value changes,
and share it. Most expressions of the wizard are simple: one
leaf nCk, or a max of such leaves. Of a simple expression the best leaf that fits is the first of `order` that fits.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, NoReturn

import msgspec

from volery.core.errors import InputError, suggestion

Sets = Mapping[str, int]
"""The members of each named set, as a bit vector of machines."""
NOW: Final = 0
DEPTH_MAX: Final = 64
"""Limit of the levels of an expression; more than people or wizards write, and few enough for any stack."""


class _Node(msgspec.Struct, frozen=True, cache_hash=True, tag_field="op", forbid_unknown_fields=True):
    """A node of an expression; its hash is computed once, because tables of expressions are looked up by it."""


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
        where: Names of sets whose union is the equivalence set.
        start: The quantum with which they are needed, 0: now.
    """

    def worth(self, count: int) -> float:
        """The value of so many machines."""
        return self.value if count == self.k else 0.0


class LnCk(_Leaf, frozen=True, tag="LnCk"):
    """As nCk, but any number up to k: x of them are worth x / k of the value."""

    def worth(self, count: int) -> float:
        """The value of so many machines."""
        return self.value * min(count, self.k) / self.k


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
    for operand in operands(node):
        yield from leaves(operand)


def members(set_names: tuple[str, ...], sets: Sets) -> int:
    """The machines of the union of some sets.

    Raises:
        InputError: there is no such set; with a suggestion.
    """
    machines = 0

    for name in set_names:
        if name not in sets:
            raise InputError("STRL", f"there is no set {name!r} of machines{suggestion(name, sets)}")
        machines |= sets[name]

    return machines


def folded(node: Expression, leaf_value: Callable[[NCk | LnCk], float]) -> float:
    """The value of an expression, given that of its leaves, which are looked at from left to right."""
    match node:
        case NCk() | LnCk():
            return leaf_value(node)
        case Scale():
            return node.factor * folded(node.of, leaf_value)
        case Barrier():
            return node.value if folded(node.of, leaf_value) >= node.value else 0.0

    values = [folded(operand, leaf_value) for operand in node.of]
    return max(values) if isinstance(node, Max) else min(values) if isinstance(node, Min) else sum(values)


def worth(node: Expression, machines: int, sets: Sets) -> float:
    """The value of machines (a bit vector) that are given now, as alsched counts (SoCC 2012): time does not matter.

    Parts of the expression may count the same machine.

    Raises:
        InputError: the expression names a set that is not among them.
    """
    return folded(node, lambda leaf: leaf.worth((members(leaf.where, sets) & machines).bit_count()))


def from_json(text: bytes | str) -> Expression:
    """Read the JSON form.

    Raises:
        InputError: it is not one; the message names the place in it.
    """
    try:
        expression: Expression = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        problem, _, place = str(error).partition(" - at ")
        raise InputError(f"STRL {place.strip('`') or '$'}", problem.replace("`", "")) from None
    except RecursionError:
        raise InputError("STRL $", f"is nested too deeply; at most {DEPTH_MAX} levels are read") from None
    return expression


_DECODER: Final = msgspec.json.Decoder(Expression)


_LEAVES: Final[dict[str, type[NCk | LnCk]]] = {"nCk": NCk, "LnCk": LnCk}
_MANY: Final[dict[str, type[Max | Min | Sum]]] = {"max": Max, "min": Min, "sum": Sum}
_BOUNDED: Final[dict[str, type[Scale | Barrier]]] = {"scale": Scale, "barrier": Barrier}
OPERATORS: Final = (*_LEAVES, *_MANY, *_BOUNDED)
_TOKEN: Final = re.compile(
    r"(?P<space>\s+|#[^\n]*)|(?P<number>[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?)|(?P<name>[A-Za-z_][\w.:]*)|(?P<mark>[(),+])"
)
WIDTH: Final = 100
"""Length of expressions beyond which they are printed over several lines."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Reader:
    """Reads one expression by recursive descent."""

    def __init__(self, text: str, place: str) -> None:
        self._text = text
        self._place = place
        self._tokens = list(self._cut())
        self._next = 0
        self._depth = 0

    def _cut(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0

        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._refuse(
                    position, f"{self._text[position]!r} has no meaning here; write names, numbers, ( ) , and +"
                )

            if match.lastgroup != "space":
                tokens.append(_Token(str(match.lastgroup), match[0], position))
            position = match.end()

        return [*tokens, _Token("end", "", position)]

    def _refuse(self, position: int, problem: str) -> NoReturn:
        line = self._text.count("\n", 0, position) + 1
        column = position - (self._text.rfind("\n", 0, position) + 1) + 1
        raise InputError(f"{self._place}:{line}:{column}", problem)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, kind: str, expected: str) -> _Token:
        token = self._peek()
        if token.kind != kind:
            actual = repr(token.text) if token.text else "the end"
            self._refuse(token.at, f"{expected} is expected here, not {actual}")

        self._next += 1
        return token

    def _mark(self, text: str, context: str) -> None:
        token = self._peek()
        if token.text != text or token.kind != "mark":
            actual = repr(token.text) if token.text else "the end"
            self._refuse(token.at, f"{text!r} is expected here ({context}), not {actual}")

        self._next += 1

    def whole_expression(self) -> Expression:
        expression = self._expression()

        self._take("end", "nothing more")
        return expression

    def _expression(self) -> Expression:
        token = self._take("name", "an expression, as nCk(all, 2, 1)")
        if token.text not in OPERATORS:
            self._refuse(token.at, f"{token.text!r} is no operator{suggestion(token.text, OPERATORS)}")

        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._refuse(token.at, f"more than {DEPTH_MAX} levels; flatten nested max, min or sum of one kind")

        self._mark("(", f"after {token.text}")

        try:
            expression = self._arguments(token.text)
        except ValueError as error:
            # Errors of operands name their own place; only what this node's constructor refuses gets this one's.
            if isinstance(error, InputError):
                raise
            self._refuse(token.at, str(error))

        self._mark(")", f"closing {token.text}")
        self._depth -= 1
        return expression

    def _arguments(self, operator: str) -> Expression:
        if operator in _LEAVES:
            return self._leaf(operator)
        operands = [self._expression()]

        if operator in _BOUNDED:
            self._mark(",", f"{operator} takes an expression and a number")
            return _BOUNDED[operator](operands[0], self._number())

        while self._peek().text == ",":
            self._next += 1
            operands.append(self._expression())
        return _MANY[operator](tuple(operands))

    def _leaf(self, operator: str) -> NCk | LnCk:
        names = [self._take("name", "the name of a set of machines").text]

        while self._peek().text == "+":
            self._next += 1
            names.append(self._take("name", "the name of a set of machines").text)

        form = f"{operator}(SETS, k, value) or {operator}(SETS, k, start, duration, value)"
        self._mark(",", form)
        position = self._peek().at
        numbers = [self._take("number", f"a number: {form}")]
        while self._peek().text == ",":
            self._next += 1
            numbers.append(self._take("number", f"a number: {form}"))

        if len(numbers) not in (2, 4):
            self._refuse(position, f"{len(numbers)} numbers stand here; write {form}")

        counts = [self._count(token) for token in numbers[:-1]]
        start, duration = (counts[1], counts[2]) if len(counts) == 3 else (NOW, 1)
        return _LEAVES[operator](tuple(names), counts[0], float(numbers[-1].text), start, duration)

    def _count(self, token: _Token) -> int:
        if not token.text.isdigit():
            self._refuse(token.at, f"{token.text} is no whole number; k, start and duration are counted")
        return int(token.text)

    def _number(self) -> float:
        return float(self._take("number", "a number").text)


def parse(text: str, place: str = "STRL") -> Expression:
    """Read an expression.

    Args:
        place: Name of the text in errors, for example a file's name.

    Raises:
        InputError: at place:line:column, with the fix.
    """
    return _Reader(text, place).whole_expression()


def written(node: Expression, indent: int = 0) -> str:
    """The expression in STRL; `parse` gives the same one back."""
    line = _line(node)
    # Only operators are broken over lines: a leaf reads best on one, however long.
    if isinstance(node, NCk | LnCk) or len(line) + indent <= WIDTH:
        return line

    padding = " " * (indent + 2)
    if isinstance(node, Scale | Barrier):
        return f"{_name(node)}(\n{padding}{written(node.of, indent + 2)},\n{padding}{_bound(node)!r}\n{' ' * indent})"

    parts = ",\n".join(padding + written(operand, indent + 2) for operand in node.of)
    return f"{_name(node)}(\n{parts}\n{' ' * indent})"


def _line(node: Expression) -> str:
    if isinstance(node, NCk | LnCk):
        time = "" if (node.start, node.duration) == (NOW, 1) else f"{node.start}, {node.duration}, "
        return f"{_name(node)}({'+'.join(node.where)}, {node.k}, {time}{node.value!r})"
    if isinstance(node, Scale | Barrier):
        return f"{_name(node)}({_line(node.of)}, {_bound(node)!r})"
    return f"{_name(node)}({', '.join(_line(operand) for operand in node.of)})"


def _name(node: Expression) -> str:
    return str(node.__struct_config__.tag)


def _bound(node: Scale | Barrier) -> float:
    return node.factor if isinstance(node, Scale) else node.value


TABLES_MAX: Final = 8192
"""Number of tables that are kept; a plan needs as many as it has jobs."""


class Alternatives(msgspec.Struct, frozen=True, eq=False):
    """The leaves of an expression.

    Args:
        leaves: The leaves from left to right.
        wheres: The sets that the leaves ask for, each once.
        names: Number of names of sets, over all leaves.
        starts: The quanta at which a leaf starts.
        alike: Number of machines that every leaf asks for, of the one set; 0 where leaves differ in that.
        simple: Whether the expression is one nCk, or a max of nCk.
        order: Numbers of the leaves that are worth anything: the most valuable first, then the earliest, the leftmost.
    """

    leaves: tuple[NCk | LnCk, ...]
    wheres: tuple[tuple[str, ...], ...]
    names: int
    starts: frozenset[int]
    alike: int
    simple: bool
    order: tuple[int, ...]


@functools.lru_cache(maxsize=TABLES_MAX)
def alternatives(node: Expression) -> Alternatives:
    """The table of an expression."""
    table_leaves = tuple(leaves(node))
    is_simple = isinstance(node, NCk) or (isinstance(node, Max) and all(isinstance(branch, NCk) for branch in node.of))
    kinds = {(leaf.where, leaf.k) for leaf in table_leaves}

    order = [number for number, leaf in enumerate(table_leaves) if leaf.value > 0]
    order.sort(key=lambda number: (-table_leaves[number].value, table_leaves[number].start))

    return Alternatives(
        table_leaves,
        tuple(dict.fromkeys([leaf.where for leaf in table_leaves])),
        sum([len(leaf.where) for leaf in table_leaves]),
        frozenset([leaf.start for leaf in table_leaves]),
        table_leaves[0].k if len(kinds) == 1 else 0,
        is_simple,
        tuple(order),
    )
