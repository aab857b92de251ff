"""Expressions as tables of their leaves, made once per expression and not once per question about it.

Jobs of one size and one run time that are worth as much have equal expressions, in one cycle and in the next ones
where no value changes: they share a table. Most expressions of the wizard are simple: one leaf nCk, or a max of such
leaves. Of a simple expression the best leaf that fits is the first of `order` that fits.
"""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from volery.architectures.tetrisched.expressions import Expression, LnCk, Max, NCk, leaves

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
