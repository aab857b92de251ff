"""The reference that the planner is held against: all ways to give machines to small expressions, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from volery.architectures.tetrisched.expressions import (
    Barrier,
    Expression,
    LnCk,
    Max,
    Min,
    NCk,
    Scale,
    Sets,
    Sum,
    members,
)
from volery.architectures.tetrisched.machines import MachineSupply

Use = tuple[tuple[int, int], ...]
"""(time, machines as a bit vector) of single machines: here nothing is grouped."""


def best_worth(requests: list[Expression], sets: Sets, supply: MachineSupply, machines: int) -> float:
    """The most that the expressions can be worth together, over all that may be given to them."""
    free_from = {m: 0 for m in range(machines) if supply.idle >> m & 1}
    free_from |= {m: since for since, held in supply.held for m in range(machines) if held >> m & 1}
    ways = [list(_ways(request, sets, free_from)) for request in requests]
    best = 0.0
    for choice in itertools.product(*ways):
        used: set[tuple[int, int]] = set()
        if all(_joins(use, used) for _, use in choice):
            best = max(best, sum(worth for worth, _ in choice))
    return best


def _joins(use: Use, used: set[tuple[int, int]]) -> bool:
    if any(one in used for one in use):
        return False
    used.update(use)
    return True


def _ways(node: Expression, sets: Sets, free_from: dict[int, int]) -> Iterator[tuple[float, Use]]:
    """All (worth, use) that a node may have; nothing for nothing is always one of them."""
    yield 0.0, ()
    match node:
        case NCk() | LnCk():
            mask = members(node.where, sets)
            able = [m for m, since in free_from.items() if mask >> m & 1 and since <= node.start]
            for count in range(node.k if isinstance(node, NCk) else 1, node.k + 1):
                for chosen in itertools.combinations(able, count):
                    times = range(node.start, node.start + node.duration)
                    yield node.value * count / node.k, tuple((t, m) for t in times for m in chosen)
        case Max():
            for each in node.of:
                yield from _ways(each, sets, free_from)
        case Scale():
            for worth, use in _ways(node.of, sets, free_from):
                yield node.factor * worth, use
        case Barrier():
            for worth, use in _ways(node.of, sets, free_from):
                if worth >= node.value:
                    yield node.value, use
        case Min() | Sum():
            for parts in itertools.product(*(list(_ways(each, sets, free_from)) for each in node.of)):
                used: set[tuple[int, int]] = set()
                if all(_joins(use, used) for _, use in parts):
                    worths = [worth for worth, _ in parts]
                    yield (min(worths) if isinstance(node, Min) else sum(worths)), tuple(sorted(used))
