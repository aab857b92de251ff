"""Synthetic workflows: which tasks of a job wait for which, as chains, forks with a join, or random layers.

Layers are after the generator of random graphs by Topcuoglu, Hariri and Wu (HEFT, IEEE TPDS 2002, section 5.1): a graph
of n tasks has about sqrt(n) / shape levels, so that a small shape makes it deep and a large one wide, and a task waits
for at most `degree` tasks of the level above it. There the width of each level is drawn and the number of tasks
follows; here that number holds, and tasks beyond one for each level are thrown at the levels at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

Draw = Callable[[], float]
"""The next number of a stream, from 0 up to 1."""
Parents = list[tuple[int, ...]]
"""Per task of a job, places of those that it waits for."""


def chain(size: int) -> Parents:
    """One after the other."""
    return [(place - 1,) if place else () for place in range(size)]


def fork_join(size: int) -> Parents:
    """One, then all others but the last side by side, then the last."""
    if size <= 2:
        return chain(size)
    return [(), *[(0,)] * (size - 2), tuple(range(1, size - 1))]


def layered(size: int, draw: Draw, shape: float, degree: int) -> Parents:
    """Random levels; each task waits for 1 to `degree` tasks of the level above it.

    Args:
        size: of the job, tasks.
        draw: of the stream.
        shape: see above.
        degree: parents of a task at most; fewer where one is drawn twice.
    """
    depth = min(size, max(1, round(math.sqrt(size) / shape)))
    widths = [1] * depth
    for _ in range(size - depth):
        widths[int(draw() * depth)] += 1
    parents: Parents = [()] * widths[0]
    above, above_width = 0, widths[0]
    for width in widths[1:]:
        for _ in range(width):
            count = 1 + int(draw() * degree)
            parents.append(tuple(sorted({above + int(draw() * above_width) for _ in range(count)})))
        above, above_width = above + above_width, width
    return parents


SHAPES: Final = ("chain", "fork-join", "layered")
