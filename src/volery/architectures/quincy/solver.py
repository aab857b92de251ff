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
        supplies: per node; a demand is negative. They add up to 0.
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
        prices: per node, those of an earlier answer to a similar problem; nothing: there are none. They spare work
            and change no answer.
    """

    graph: Graph
    prices: tuple[int, ...] = ()
    solver: Solver = "augmenting"


class FlowAnswer(msgspec.Struct, frozen=True):
    """The cheapest flow; of several that are as cheap always the same.

    Args:
        prices: per node, what it costs at the margin to get a unit from there to the root (the node of largest demand).
        paths: along which flow was pushed until it was optimal; 0: the solver does not count them.
        scanned: arcs that were looked at for that.
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
    graph, paths, scanned = question.graph, 0, 0
    if question.solver == "scaling":
        flows = _scaled(graph)
    else:
        residual = Residual(graph, priced(graph, question.prices))
        residual.send_all()
        flows, paths, scanned = residual.flows(), residual.paths, residual.scanned
    prices = marginal_prices(graph, flows)
    again = Residual(graph, prices)
    again.send_all()
    flows = again.flows()
    return FlowAnswer(flows, cost_of(graph, flows), prices, paths, scanned)


def _scaled(graph: Graph) -> tuple[int, ...]:
    if not graph.tails:
        if any(graph.supplies):
            raise InfeasibleError("there is no arc")
        return ()
    found = scaled(msgspec.structs.astuple(graph))
    if found is None:
        raise InfeasibleError("something that is supplied reaches no demand")
    return tuple(found)


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
            if cost + self._price[head] < self._price[tail]:  # worth more than it costs: fill it at once
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
        target, before = self._nearest(source)
        amount = min(self._excess[source], -self._excess[target])
        path, at = [], target
        while at != source:
            arc = before[at]
            path.append(arc)
            amount = min(amount, self._room[arc])
            at = self._head[arc ^ 1]
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
        price, room, cost, head, excess = self._price, self._room, self._cost, self._head, self._excess
        far: dict[int, int] = {source: 0}
        before: dict[int, int] = {}
        settled: dict[int, int] = {}
        here, later = [source], list[tuple[int, int]]()
        level = scanned = 0
        while here or later:
            if here:
                node = here.pop()
            else:
                level, node = heapq.heappop(later)
            if node in settled:
                continue
            if excess[node] < 0:
                for reached, distance in settled.items():
                    price[reached] += level - distance
                self.scanned += scanned
                return node, before
            settled[node] = level
            base = level - price[node]
            scanned += len(self._from[node])
            for arc in self._from[node]:
                if room[arc]:
                    other = head[arc]
                    distance = base + cost[arc] + price[other]
                    if other not in settled and (other not in far or distance < far[other]):
                        far[other] = distance
                        before[other] = arc
                        if distance == level:
                            here.append(other)
                        else:
                            heapq.heappush(later, (distance, other))
        raise InfeasibleError(f"node {source} supplies {excess[source]} more than finds a way")

    def flows(self) -> tuple[int, ...]:
        return tuple(self._room[1::2])


def priced(graph: Graph, prices: Sequence[int]) -> list[int]:
    """Prices to begin with: nodes that no arc leads to, as tasks, are given what their cheapest way out costs."""
    found = list(prices) or [0] * len(graph.supplies)
    led_to = set(graph.heads)
    cheapest: dict[int, int] = {}
    for tail, head, capacity, cost in zip(graph.tails, graph.heads, graph.capacities, graph.costs, strict=True):
        if capacity and tail not in led_to:
            ahead = cost + found[head]
            if tail not in cheapest or ahead < cheapest[tail]:
                cheapest[tail] = ahead
    for node, price in cheapest.items():
        found[node] = price
    return found


def marginal_prices(graph: Graph, flows: Sequence[int]) -> tuple[int, ...]:
    """Per node, what a further unit costs from there to the root, given a cheapest flow.

    These are the largest prices that any cheapest flow agrees with, so that they are the same whichever was given.
    """
    tail, head, cost = (np.array(column, dtype=np.int64) for column in (graph.tails, graph.heads, graph.costs))
    flow, capacity = np.array(flows, dtype=np.int64), np.array(graph.capacities, dtype=np.int64)
    ahead, back = flow < capacity, flow > 0
    begin, end = np.concatenate((tail[ahead], head[back])), np.concatenate((head[ahead], tail[back]))
    length = np.concatenate((cost[ahead], -cost[back]))
    order = np.argsort(begin, kind="stable")
    begin, end, length = begin[order], end[order], length[order]
    nodes, first = np.unique(begin, return_index=True)
    price = np.full(len(graph.supplies), 1 + int(np.abs(cost).sum()), dtype=np.int64)
    price[min(range(len(graph.supplies)), key=graph.supplies.__getitem__)] = 0
    for _ in range(len(graph.supplies) + 1):
        if not len(nodes):
            break
        nearer = np.minimum(price[nodes], np.minimum.reduceat(length + price[end], first))
        if np.array_equal(nearer, price[nodes]):
            break
        price[nodes] = nearer
    else:
        raise AssertionError("a flow that is not the cheapest has no prices")
    found: list[int] = price.tolist()
    return tuple(found)
