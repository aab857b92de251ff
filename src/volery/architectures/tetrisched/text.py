"""STRL, the text form of utility expressions: a reader whose errors name the place, and a printer.

    nCk(SETS, k, start, duration, value)    LnCk(...)        SETS: names of sets of machines, joined by +
    nCk(SETS, k, value)                     LnCk(...)        now, for one quantum
    max(e, ..)  min(e, ..)  sum(e, ..)  scale(e, factor)  barrier(e, value)

White space and line breaks are free; from # to the end of a line is a comment. What is printed reads back as it was.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from volery.architectures.tetrisched.expressions import (
    DEPTH_MAX,
    NOW,
    Barrier,
    Expression,
    LnCk,
    Max,
    Min,
    NCk,
    Scale,
    Sum,
)
from volery.core.errors import InputError, suggestion

_LEAVES: Final[dict[str, type[NCk | LnCk]]] = {"nCk": NCk, "LnCk": LnCk}
_MANY: Final[dict[str, type[Max | Min | Sum]]] = {"max": Max, "min": Min, "sum": Sum}
_BOUNDED: Final[dict[str, type[Scale | Barrier]]] = {"scale": Scale, "barrier": Barrier}
OPERATORS: Final = (*_LEAVES, *_MANY, *_BOUNDED)
_TOKEN: Final = re.compile(
    r"(?P<space>\s+|#[^\n]*)|(?P<number>[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?)|(?P<name>[A-Za-z_][\w.:]*)|(?P<mark>[(),+])"
)
WIDTH: Final = 100
"""Expressions that are longer are printed over several lines."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Reader:
    """Reads one expression by recursive descent.

    Args:
        text: the source.
        place: what to call it.
    """

    def __init__(self, text: str, place: str) -> None:
        self._text = text
        self._place = place
        self._tokens = list(self._cut())
        self._next = 0
        self._depth = 0

    def _cut(self) -> list[_Token]:
        found, at = [], 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                self._refuse(at, f"{self._text[at]!r} has no meaning here; write names, numbers, ( ) , and +")
            if match.lastgroup != "space":
                found.append(_Token(str(match.lastgroup), match[0], at))
            at = match.end()
        return [*found, _Token("end", "", at)]

    def _refuse(self, at: int, problem: str) -> NoReturn:
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        raise InputError(f"{self._place}:{line}:{column}", problem)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, kind: str, wanted: str) -> _Token:
        token = self._peek()
        if token.kind != kind:
            found = repr(token.text) if token.text else "the end"
            self._refuse(token.at, f"{wanted} is expected here, not {found}")
        self._next += 1
        return token

    def _mark(self, text: str, wanted: str) -> None:
        token = self._peek()
        if token.text != text or token.kind != "mark":
            found = repr(token.text) if token.text else "the end"
            self._refuse(token.at, f"{text!r} is expected here ({wanted}), not {found}")
        self._next += 1

    def whole(self) -> Expression:
        """The expression, and nothing after it."""
        found = self._expression()
        self._take("end", "nothing more")
        return found

    def _expression(self) -> Expression:
        token = self._take("name", "an expression, as nCk(all, 2, 1)")
        if token.text not in OPERATORS:
            self._refuse(token.at, f"{token.text!r} is no operator{suggestion(token.text, OPERATORS)}")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._refuse(token.at, f"more than {DEPTH_MAX} levels; flatten nested max, min or sum of one kind")
        self._mark("(", f"after {token.text}")
        try:
            found = self._arguments(token.text)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            self._refuse(token.at, str(error))
        self._mark(")", f"closing {token.text}")
        self._depth -= 1
        return found

    def _arguments(self, operator: str) -> Expression:
        if operator in _LEAVES:
            return self._leaf(operator)
        of = [self._expression()]
        if operator in _BOUNDED:
            self._mark(",", f"{operator} takes an expression and a number")
            return _BOUNDED[operator](of[0], self._number())
        while self._peek().text == ",":
            self._next += 1
            of.append(self._expression())
        return _MANY[operator](tuple(of))

    def _leaf(self, operator: str) -> NCk | LnCk:
        names = [self._take("name", "the name of a set of machines").text]
        while self._peek().text == "+":
            self._next += 1
            names.append(self._take("name", "the name of a set of machines").text)
        form = f"{operator}(SETS, k, value) or {operator}(SETS, k, start, duration, value)"
        self._mark(",", form)
        at = self._peek().at
        numbers = [self._take("number", f"a number: {form}")]
        while self._peek().text == ",":
            self._next += 1
            numbers.append(self._take("number", f"a number: {form}"))
        if len(numbers) not in (2, 4):
            self._refuse(at, f"{len(numbers)} numbers stand here; write {form}")
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
        text: in STRL.
        place: what errors call it, for example a file's name.

    Raises:
        InputError: at place:line:column, with the fix.
    """
    return _Reader(text, place).whole()


def written(node: Expression, indent: int = 0) -> str:
    """The expression in STRL; `parse` gives the same one back."""
    line = _line(node)
    if isinstance(node, NCk | LnCk) or len(line) + indent <= WIDTH:
        return line
    pad = " " * (indent + 2)
    if isinstance(node, Scale | Barrier):
        return f"{_name(node)}(\n{pad}{written(node.of, indent + 2)},\n{pad}{_bound(node)!r}\n{' ' * indent})"
    parts = ",\n".join(pad + written(each, indent + 2) for each in node.of)
    return f"{_name(node)}(\n{parts}\n{' ' * indent})"


def _line(node: Expression) -> str:
    if isinstance(node, NCk | LnCk):
        when = "" if (node.start, node.duration) == (NOW, 1) else f"{node.start}, {node.duration}, "
        return f"{_name(node)}({'+'.join(node.where)}, {node.k}, {when}{node.value!r})"
    if isinstance(node, Scale | Barrier):
        return f"{_name(node)}({_line(node.of)}, {_bound(node)!r})"
    return f"{_name(node)}({', '.join(_line(each) for each in node.of)})"


def _name(node: Expression) -> str:
    return str(node.__struct_config__.tag)


def _bound(node: Scale | Barrier) -> float:
    return node.factor if isinstance(node, Scale) else node.value
