"""The field of cells: how busy nodes are, a cell each or several together where there are many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from volery.core.model import Address, split_evenly
from volery.live.dashboard import frame
from volery.live.dashboard.html import Markup, tag
from volery.live.status import NodeStatus

CELLS_MAX: Final = 500
"""That is some 20 KB of a page, whatever the federation."""


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that follow each other: the address of the first, how many, and of all slots, running, drained, lost.

    Believed: about so many slots a scheduler, whose view is held against what is, was wrong.
    """

    first: str
    nodes: int
    slots: int
    running: int
    drained: int
    lost: int
    believed_free: int = 0
    believed_taken: int = 0


Wrong = Mapping[Address, tuple[int, int]]
"""Node -> slots there, or in the group that it is the first of, that are believed free, and believed taken."""
NONE: Final[Wrong] = MappingProxyType({})


def cells_of(nodes: Sequence[NodeStatus], lost: Collection[Address] = (), wrong: Wrong = NONE) -> list[Cell]:
    """All nodes, in at most `CELLS_MAX` cells of nearly equal size."""
    found = []
    for piece in split_evenly(len(nodes), min(len(nodes), CELLS_MAX)) if nodes else ():
        of = nodes[piece.start : piece.stop]
        counts = (sum(node.slots for node in of), sum(node.running for node in of), sum(node.drained for node in of))
        there = [node.address for node in of] if lost or wrong else []
        mistakes = [wrong[node] for node in there if node in wrong]
        # A view is compared at the end of an interval; what has changed since is no mistake.
        free = min(sum(free for free, _ in mistakes), counts[1])
        taken = min(sum(taken for _, taken in mistakes), counts[0] - counts[1])
        found.append(Cell(of[0].address, len(of), *counts, sum(node in lost for node in there), free, taken))
    return found


def told(nodes: Sequence[NodeStatus], lost: Collection[Address] = (), wrong: Wrong = NONE) -> Markup:
    """The data of the drawing, which is fetched again with the live part of the page."""
    return tag("div", id="cells", hidden=True, data_cells=msgspec.json.encode(cells_of(nodes, lost, wrong)).decode())


def drawn() -> Markup:
    """The canvas of the drawing; empty without scripts."""
    return tag("div", id="field", data_nodes=frame.NODES)
