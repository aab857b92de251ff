"""The cheapest flow, and of several always the same, whichever solver found the optimum and from where it began.

1. A solver finds a cheapest flow.
2. Its marginal prices are those of every cheapest flow.
3. From these prices the built-in solver sends the flow again, in an order that nodes and arcs have. That is the answer:
   it depends on the graph alone.

The built-in solver takes successive shortest paths: each unit of flow goes the cheapest way that is left, and others
make room where that pays. Prices (dual values) make every arc with room cost at least nothing once they are taken into
account; then Dijkstra's search from a source ends at the nearest demand. Whatever prices it starts from, the flow is
optimal; from prices that are nearly right the searches are short. That is how an earlier answer spares work when little
has changed (Firmament's incremental solver does the same with cost scaling).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from volery.architectures.quincy.ortools_solver import scaled

Solver = Literal["augmenting", "scaling"]
"""Successive shortest paths, built in; cost scaling by OR-tools, in a process of its own."""


class InfeasibleError(ValueError):
    """Something that is supplied reaches no demand."""


class Graph(msgspec.Struct, frozen=True):
    """A flow network: nodes are numbered from 0; all supply ends in nodes with a demand.

    Args:
        supplies: Supply of each node; a demand is negative. They add up to 0.
        capacities: Capacity of each arc, at least 0.
        costs: Cost of each arc per unit of flow; there is no cycle of negative cost.
    """

    supplies: tuple[int, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    capacities: tuple[int, ...]
    costs: tuple[int, ...]


class FlowProblem(msgspec.Struct, frozen=True):
    """The problem of a solver.

    Args:
        prices: Price of each node in an earlier answer to a similar problem; nothing: there is none. They spare work
            and change no answer.
    """

    graph: Graph
    prices: tuple[int, ...] = ()
    solver: Solver = "augmenting"


class FlowAnswer(msgspec.Struct, frozen=True):
    """The cheapest flow; of several that are as cheap always the same.

    Args:
        prices: Cost at the margin, per node, of a unit from there to the root (the node of largest demand).
        paths: Number of paths along which flow was pushed until it was optimal; 0: the solver does not count them.
        scanned: Number of arcs that were looked at for that.
    """

    flows: tuple[int, ...]
    cost: int
    prices: tuple[int, ...]
    paths: int = 0
    scanned: int = 0


def solve(question: FlowProblem) -> FlowAnswer:
    """Answer a question; a pure function.

    Raises:
        InfeasibleError: something that is supplied reaches no demand.
        InputError: the solver is not installed.
    """
    graph = question.graph
    paths = scanned = 0

    if question.solver == "scaling":
        flows = _scaled(graph)
    else:
        residual = Residual(graph, priced(graph, question.prices))
        residual.send_all()
        flows = residual.flows()
        paths = residual.paths
        scanned = residual.scanned

    prices = marginal_prices(graph, flows)
    # The solver's flow is one of several cheapest: from the marginal prices all of them lead to the same one.
    canonical_residual = Residual(graph, prices)
    canonical_residual.send_all()
    flows = canonical_residual.flows()

    return FlowAnswer(flows, cost_of(graph, flows), prices, paths, scanned)


def _scaled(graph: Graph) -> tuple[int, ...]:
    if not graph.tails:
        if any(graph.supplies):
            raise InfeasibleError("there is no arc")
        return ()
    flows = scaled(msgspec.structs.astuple(graph))

    if flows is None:
        raise InfeasibleError("something that is supplied reaches no demand")
    return tuple(flows)


def cost_of(graph: Graph, flows: tuple[int, ...]) -> int:
    return sum(flow * cost for flow, cost in zip(flows, graph.costs, strict=True))


class Residual:
    """The arcs that have room, in both directions, and what is still to be sent.

    Arc 2 a is arc a of the graph, 2 a + 1 the way back.
    """

    __slots__ = ("_cost", "_excess", "_from", "_head", "_price", "_room", "paths", "scanned")

    def __init__(self, graph: Graph, prices: Sequence[int]) -> None:
        self.paths = self.scanned = 0
        self._excess = list(graph.supplies)
        self._price = list(prices)
        self._from: list[list[int]] = [[] for _ in graph.supplies]
        self._head: list[int] = []
        self._room: list[int] = []
        self._cost: list[int] = []

        for tail, head, capacity, cost in zip(graph.tails, graph.heads, graph.capacities, graph.costs, strict=True):
            arc = len(self._head)
            self._from[tail].append(arc)
            self._from[head].append(arc + 1)
            self._head += (head, tail)
            self._cost += (cost, -cost)

            # Worth more than it costs: fill it at once, so that no arc with room has a negative cost.
            if cost + self._price[head] < self._price[tail]:
                self._room += (0, capacity)
                self._excess[tail] -= capacity
                self._excess[head] += capacity
            else:
                self._room += (capacity, 0)

    def send_all(self) -> None:
        """Send everything, from the last source to the first: of what is as cheap the later gives way to the earlier.

        Raises:
            InfeasibleError: something reaches no demand.
        """
        for source in reversed(range(len(self._excess))):
            while self._excess[source] > 0:
                self._send(source)

    def _send(self, source: int) -> None:
        """Push what fits along one shortest path from a source."""
        target, arc_to = self._nearest(source)
        amount = min(self._excess[source], -self._excess[target])
        path: list[int] = []
        node = target
        while node != source:
            arc = arc_to[node]
            path.append(arc)
            amount = min(amount, self._room[arc])
            node = self._head[arc ^ 1]

        for arc in path:
            self._room[arc] -= amount
            self._room[arc ^ 1] += amount

        self._excess[source] -= amount
        self._excess[target] += amount
        self.paths += 1

    def _nearest(self, source: int) -> tuple[int, dict[int, int]]:
        """The nearest demand and the arc by which each node was reached; prices rise so that the path costs nothing.

        What is as near as the node at hand is looked at first, the latest arc first: a search through what costs
        nothing goes deep before it goes wide.
        """
        price = self._price
        room = self._room
        cost = self._cost
        head = self._head
        excess = self._excess

        distances: dict[int, int] = {source: 0}
        arc_to: dict[int, int] = {}
        settled: dict[int, int] = {}
        level_nodes = [source]
        farther_nodes: list[tuple[int, int]] = []

        level = scanned = 0
        while level_nodes or farther_nodes:
            if level_nodes:
                node = level_nodes.pop()
            else:
                level, node = heapq.heappop(farther_nodes)
            if node in settled:
                continue

            # All settled nodes rise to this level, which keeps the costs of arcs with room at least 0.
            if excess[node] < 0:
                for reached, distance in settled.items():
                    price[reached] += level - distance
                self.scanned += scanned
                return node, arc_to

            settled[node] = level

            distance_base = level - price[node]
            scanned += len(self._from[node])
            for arc in self._from[node]:
                if room[arc]:
                    # A node may be found again while it waits in the heap; the stale entry is skipped when it comes up.
                    neighbour = head[arc]
                    distance = distance_base + cost[arc] + price[neighbour]
                    if neighbour not in settled and (neighbour not in distances or distance < distances[neighbour]):
                        distances[neighbour] = distance
                        arc_to[neighbour] = arc
                        if distance == level:
                            level_nodes.append(neighbour)
                        else:
                            heapq.heappush(farther_nodes, (distance, neighbour))
        raise InfeasibleError(f"node {source} supplies {excess[source]} more than finds a way")

    def flows(self) -> tuple[int, ...]:
        return tuple(self._room[1::2])


def priced(graph: Graph, prices: Sequence[int]) -> list[int]:
    """Prices to begin with: nodes that no arc leads to, as tasks, are given what their cheapest way out costs."""
    start_prices = list(prices) or [0] * len(graph.supplies)

    heads = set(graph.heads)
    cheapest: dict[int, int] = {}
    for tail, head, capacity, cost in zip(graph.tails, graph.heads, graph.capacities, graph.costs, strict=True):
        if capacity and tail not in heads:
            way_out = cost + start_prices[head]
            if tail not in cheapest or way_out < cheapest[tail]:
                cheapest[tail] = way_out

    for node, price in cheapest.items():
        start_prices[node] = price

    return start_prices


def marginal_prices(graph: Graph, flows: Sequence[int]) -> tuple[int, ...]:
    """The cost of a further unit from each node to the root, given a cheapest flow.

    These are the largest prices that any cheapest flow agrees with, so that they are the same whichever was given.
    """
    tail, head, cost = (np.array(column, dtype=np.int64) for column in (graph.tails, graph.heads, graph.costs))
    flow = np.array(flows, dtype=np.int64)
    capacity = np.array(graph.capacities, dtype=np.int64)

    # The residual graph: arcs with room, and the way back of arcs with flow.
    has_room = flow < capacity
    has_flow = flow > 0
    tails = np.concatenate((tail[has_room], head[has_flow]))
    heads = np.concatenate((head[has_room], tail[has_flow]))
    length = np.concatenate((cost[has_room], -cost[has_flow]))

    by_tail = np.argsort(tails, kind="stable")
    tails = tails[by_tail]
    heads = heads[by_tail]
    length = length[by_tail]

    nodes, first = np.unique(tails, return_index=True)

    # More than any path costs: nodes that reach no root keep it.
    price = np.full(len(graph.supplies), 1 + int(np.abs(cost).sum()), dtype=np.int64)
    price[min(range(len(graph.supplies)), key=graph.supplies.__getitem__)] = 0
    # Bellman and Ford: the cheapest flow has no negative cycle, so prices settle within as many rounds as nodes.
    for _ in range(len(graph.supplies) + 1):
        if not len(nodes):
            break

        new_prices = np.minimum(price[nodes], np.minimum.reduceat(length + price[heads], first))
        if np.array_equal(new_prices, price[nodes]):
            break
        price[nodes] = new_prices
    else:
        raise AssertionError("a flow that is not the cheapest has no prices")

    marginal: list[int] = price.tolist()
    return tuple(marginal)
