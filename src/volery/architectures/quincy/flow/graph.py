"""A network with integer capacities and costs, as pure values, and the cheapest flow through it."""

from __future__ import annotations

from typing import Literal

import msgspec

Solver = Literal["augmenting", "scaling"]
"""Successive shortest paths, built in; cost scaling by OR-tools, in a process of its own."""


class InfeasibleError(ValueError):
    """Something that is supplied reaches no demand."""


class Graph(msgspec.Struct, frozen=True):
    """A flow network: nodes are numbered from 0; all supply ends in nodes with a demand.

    Args:
        supplies: per node; a demand is negative. They add up to 0.
        tails, heads: per arc, its nodes.
        capacities: per arc, at least 0.
        costs: per arc and unit of flow; there is no cycle of negative cost.
    """

    supplies: tuple[int, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    capacities: tuple[int, ...]
    costs: tuple[int, ...]


class FlowProblem(msgspec.Struct, frozen=True):
    """The problem of a solver.

    Args:
        graph: the network.
        prices: per node, those of an earlier answer to a similar problem; nothing: there are none. They spare work
            and change no answer.
        solver: of the optimum; all find the same flow.
    """

    graph: Graph
    prices: tuple[int, ...] = ()
    solver: Solver = "augmenting"


class FlowAnswer(msgspec.Struct, frozen=True):
    """The cheapest flow; of several that are as cheap always the same.

    Args:
        flows: per arc.
        cost: of all of it.
        prices: per node, what it costs at the margin to get a unit from there to the root (the node of largest demand).
        paths: along which flow was pushed until it was optimal; 0: the solver does not count them.
        scanned: arcs that were looked at for that.
    """

    flows: tuple[int, ...]
    cost: int
    prices: tuple[int, ...]
    paths: int = 0
    scanned: int = 0


class GraphBuilder:
    """Builds a graph whose nodes have names.

    Attributes:
        names: of the nodes, by number.
    """

    __slots__ = ("_arcs", "_numbers", "_supplies", "names")

    def __init__(self) -> None:
        self.names: list[object] = []
        self._numbers: dict[object, int] = {}
        self._supplies: list[int] = []
        self._arcs: list[tuple[int, int, int, int]] = []

    def node(self, name: object, supply: int = 0) -> int:
        """The number of a node, which is added if it is new; its supply adds up."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self._supplies.append(0)
        self._supplies[number] += supply
        return number

    def arc(self, tail: int, head: int, capacity: int, cost: int) -> None:
        self._arcs.append((tail, head, capacity, cost))

    def graph(self) -> Graph:
        """The network built so far."""
        tails, heads, capacities, costs = zip(*self._arcs, strict=True) if self._arcs else ((), (), (), ())
        return Graph(tuple(self._supplies), tails, heads, capacities, costs)
