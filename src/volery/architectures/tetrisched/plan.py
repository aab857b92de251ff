"""Planning of a cycle: it gives machines to jobs, now or later (TetriSched, EuroSys 2016).

1. Greedy (SoCC 2012): one job after the other takes its best branch, first what the plan before had for it. This is the
   warm start, what is left when the solver's limits are reached, and all of it without a solver.
2. The solver: all expressions under one sum, from there, to a gap; not asked where the greedy plan is within the gap of
   what the jobs would be worth if each had the cluster to itself. Plans of many simple jobs: by prices (`prices.py`).
3. Filling: a gap leaves room. Jobs without machines, or with machines later, in order, take the best branch that what
   the plan leaves allows; no job loses by it. To the solver all machines of a set are alike: who starts now is given
   those that fewest ask for. (Ours: neither paper says how idle machines within the gap are used.)

Of branches that are worth as much of what others have left, the greedy form takes the one that starts first, then the
leftmost. Machines come from the groups that fewest expressions ask for, the lowest number of a group first. The parts
of a min take one after the other, who has the least choice first; one may still take what another could not do without:
not optimal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Literal

import msgspec

from volery.architectures.tetrisched.alternatives import Alternatives, alternatives
from volery.architectures.tetrisched.expressions import (
    NOW,
    Barrier,
    Expression,
    LnCk,
    Max,
    Min,
    NCk,
    Scale,
    Sum,
    folded,
)
from volery.architectures.tetrisched.milp import Generator, Limits, maximise
from volery.architectures.tetrisched.parts import Chosen, MachineSupply, Parts
from volery.architectures.tetrisched.prices import ROUNDS_MAX, PriceSearch

Taken = list[tuple[int, NCk | LnCk, tuple[tuple[int, int], ...]]]
"""Number of a leaf in its expression, the leaf, and the amounts that it is given."""
Picked = tuple[float, Taken, int]
"""What it is worth, what it takes, and the number of leaves."""


class Greedy:
    """Gives each job in turn its best part of the machines that are left."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._left: list[list[int]] = parts.available.tolist()

    def take(self, leaf: NCk | LnCk, amounts: Sequence[tuple[int, int]], sign: int = 1) -> None:
        """Machines are given to a leaf; with sign -1 they are given back."""
        during = self._parts.during(leaf)
        for part, count in amounts:
            row, change = self._left[part], sign * count
            for time in during:
                row[time] -= change

    def best(self, request: int, node: Expression, first: int = 0) -> list[Chosen]:
        """Give a job its best branch; nothing where none is worth anything."""
        table = alternatives(node)
        if table.simple:
            return self.first_of(request, table, table.order, first)
        worth, taken, _ = self._pick(node, first)
        if worth <= 0:
            return []
        for _, leaf, amounts in taken:
            self.take(leaf, amounts)
        return [Chosen(request, number, amounts) for number, _, amounts in taken]

    def first_of(self, request: int, table: Alternatives, order: Iterable[int], first: int = 0) -> list[Chosen]:
        """Give a job the first of some leaves nCk, by their numbers, that has its machines."""
        groups = self._parts.cheapest[table.wheres[0]]
        if table.alike and len(groups) == 1:
            return self._first_alike(request, table, order, first, groups[0])
        for number in order:
            leaf = table.leaves[number]
            amounts = self._spread(leaf, leaf.k)
            if sum([count for _, count in amounts]) == leaf.k:
                self.take(leaf, amounts)
                return [Chosen(request, first + number, amounts)]
        return []

    def _first_alike(
        self, request: int, table: Alternatives, order: Iterable[int], first: int, group: int
    ) -> list[Chosen]:
        """The same where leaves ask for as many machines of one group: they differ by time alone."""
        row, k = self._left[group], table.alike
        if max(row) < k:
            return []
        lacks = len(row)
        until = [0] * lacks  # per time the next one at which too few machines are left
        for time in range(lacks - 1, -1, -1):
            if row[time] < k:
                lacks = time
            until[time] = lacks
        windows = self._parts.windows(table)
        for number in order:
            begin, end = windows[number]
            if until[begin] >= end:
                amounts = ((group, k),)
                self.take(table.leaves[number], amounts)
                return [Chosen(request, first + number, amounts)]
        return []

    def again(self, one: Chosen, leaf: NCk | LnCk) -> Chosen:
        """Give a leaf as many machines again as it has, of the groups that fewest ask for."""
        self.take(leaf, one.amounts, -1)
        amounts = self._spread(leaf, sum(count for _, count in one.amounts))
        self.take(leaf, amounts)
        return Chosen(one.request, one.leaf, amounts)

    def _spread(self, leaf: NCk | LnCk, count: int) -> tuple[tuple[int, int], ...]:
        """At most so many free machines of a leaf's set, of the groups that fewest ask for."""
        amounts = []
        during = self._parts.during(leaf)
        first, end = during.start, during.stop
        for part in self._parts.cheapest[leaf.where]:
            some = min(self._left[part][first:end])
            if some:
                amounts.append((part, min(count, some)))
                count -= min(count, some)
                if not count:
                    break
        return tuple(amounts)

    def _pick(self, node: Expression, first: int) -> Picked:
        """The part that the node would take; nothing is taken yet. `first`: number of its first leaf."""
        match node:
            case NCk() | LnCk():
                return self._leaf(node, first)
            case Max():
                return self._branch(node, first)
            case Min() | Sum():
                return self._several(node, first)
            case Scale():
                worth, taken, end = self._pick(node.of, first)
                return node.factor * worth, taken, end
            case Barrier():
                worth, taken, end = self._pick(node.of, first)
                return (node.value, taken, end) if worth >= node.value else (0.0, [], end)

    def _choice(self, node: Expression) -> int:
        """The number of machines that the least of its leaves may choose among."""
        return min(map(self._parts.total, alternatives(node).leaves))

    def _leaf(self, node: NCk | LnCk, number: int) -> Picked:
        amounts = self._spread(node, node.k)
        count = sum(some for _, some in amounts)
        if not count or (isinstance(node, NCk) and count < node.k):
            return 0.0, [], number + 1
        worth = node.value if count == node.k else node.value * count / node.k
        return worth, [(number, node, amounts)], number + 1

    def _branch(self, node: Max, first: int) -> Picked:
        best: tuple[float, Taken] = (0.0, [])
        for each in node.of:
            worth, taken, first = self._pick(each, first)
            if taken and (worth, -_start(taken)) > (best[0], -_start(best[1])):
                best = (worth, taken)
        return *best, first

    def _several(self, node: Min | Sum, first: int) -> Picked:
        total: Taken = []
        worths = []
        parts = []
        for each in node.of:
            parts.append((self._choice(each), first, each))
            first += len(alternatives(each).leaves)
        for _, number, each in sorted(parts, key=itemgetter(0)):
            worth, taken, _ = self._pick(each, number)
            for _, leaf, amounts in taken:
                self.take(leaf, amounts)
            total += taken
            worths.append(worth)
        for _, leaf, amounts in total:
            self.take(leaf, amounts, -1)
        worth = min(worths) if isinstance(node, Min) else sum(worths)
        total.sort(key=itemgetter(0))
        return (worth, total, first) if worth > 0 else (0.0, [], first)


def most(node: Expression, parts: Parts) -> float:
    """An upper bound of the value of an expression: alone, with each of its leaves alone."""

    def of_leaf(leaf: NCk | LnCk) -> float:
        count = min(leaf.k, parts.total(leaf))
        return leaf.value * count / leaf.k if count == leaf.k or isinstance(leaf, LnCk) else 0.0

    table = alternatives(node)
    if table.simple:
        fitting = (
            table.leaves[number]
            for number in table.order
            if parts.total(table.leaves[number]) >= table.leaves[number].k
        )
        return next((leaf.value for leaf in fitting), 0.0)
    return folded(node, of_leaf)


def earned(node: Expression, given: Mapping[int, int]) -> float:
    """The value of the machines that leaves, by their number in the expression, were given."""
    table = alternatives(node)
    if table.simple:
        return max([table.leaves[number].worth(count) for number, count in given.items()], default=0.0)
    numbers = itertools.count()
    return folded(node, lambda leaf: leaf.worth(given.get(next(numbers), 0)))


def _start(taken: Taken) -> int:
    """The start of its last leaf; one that takes nothing is later than all."""
    return max((leaf.start for _, leaf, _ in taken), default=1 << 62)


Solver = Literal["optimal", "greedy"]
PER_MILLE = 1000
NO_BRANCH = -1
ALIKE = 0.75
"""The share of the jobs of a program where all machines are alike: the bound of prices is tight there."""


class PlanProblem(msgspec.Struct, frozen=True):
    """All that a plan depends on.

    Args:
        requests: what each job is worth, in the order in which a greedy solver takes them.
        before: per request, the branch of its outermost max that an earlier plan had for it, or -1; nothing: no plan.
    """

    requests: tuple[Expression, ...]
    sets: Mapping[str, int]
    supply: MachineSupply
    before: tuple[int, ...] = ()
    solver: Solver = "optimal"
    limits: Limits = Limits()


class PackedProblem(msgspec.Struct, frozen=True):
    """A `PlanProblem` as journals take it: sets of machines as bytes, because no integer of theirs holds them."""

    requests: tuple[Expression, ...]
    sets: tuple[tuple[str, bytes], ...]
    idle: bytes
    held: tuple[tuple[int, bytes], ...]
    before: tuple[int, ...]
    solver: Solver
    limits: Limits


class JobPlacement(msgspec.Struct, frozen=True):
    """Machines for a leaf that starts now.

    Args:
        request: the place of its expression.
        leaf: its number in that, from left to right.
        machines: a bit vector.
    """

    request: int
    leaf: int
    machines: int


class PlanCost(msgspec.Struct, frozen=True):
    """The effort of planning.

    Args:
        rounds: changes of prices; None: the plan is not made by prices.
    """

    variables: int = 0
    rows: int = 0
    gap_per_mille: int = 0
    nodes: int = 0
    iterations: int = 0
    rounds: int | None = None


class CyclePlan(msgspec.Struct, frozen=True):
    """The plan of a cycle, with its value and its cost.

    Args:
        later: (request, branch of its outermost max) of what is planned for later.
    """

    now: tuple[JobPlacement, ...]
    later: tuple[tuple[int, int], ...]
    worth: float
    cost: PlanCost = PlanCost()


class _Planner:
    """The requests of a cycle with their leaves, and the ways to choose among these."""

    def __init__(self, planning: PlanProblem) -> None:
        self._before = planning.before or (NO_BRANCH,) * len(planning.requests)
        self.requests = planning.requests
        self.parts = Parts(planning.requests, planning.sets, planning.supply)
        tables = [alternatives(request) for request in planning.requests]
        self.leaves = [table.leaves for table in tables]
        self.with_prices = {number: table for number, table in enumerate(tables) if table.simple}

    def leaf(self, one: Chosen) -> NCk | LnCk:
        return self.leaves[one.request][one.leaf]

    def worth(self, plan: Sequence[Chosen]) -> float:
        given: dict[int, dict[int, int]] = {}
        for one in plan:
            given.setdefault(one.request, {})[one.leaf] = sum(count for _, count in one.amounts)
        return sum(earned(self.requests[request], found) for request, found in given.items())

    def greedy(self) -> list[Chosen]:
        left, found = Greedy(self.parts), []
        for request, node in enumerate(self.requests):
            found += left.best(request, node)
        return found

    def renewed(self) -> list[Chosen]:
        """First what the plan before had, then the others one after the other."""
        left = Greedy(self.parts)
        of: list[list[Chosen]] = []
        for request, (node, branch) in enumerate(zip(self.requests, self._before, strict=True)):
            of.append(left.best(request, *_branch(node, branch)) if branch != NO_BRANCH else [])
        for request, node in enumerate(self.requests):
            of[request] = of[request] or left.best(request, node)
        return [one for found in of for one in found]

    def priced(self, search: PriceSearch) -> list[Chosen]:
        """Those that gain most at these prices choose first, each what it gains most by; then the others."""
        left = Greedy(self.parts)
        of: list[list[Chosen]] = [[] for _ in self.requests]
        for request, order in search.orders():
            of[request] = left.first_of(request, self.with_prices[request], order)
        for request, node in enumerate(self.requests):
            of[request] = of[request] or left.best(request, node)
        return [one for found in of for one in found]

    def large(self, chosen: list[Chosen], gap: float) -> tuple[list[Chosen], PlanCost]:
        """The plan of a cycle in which many jobs have prices: by these, from a plan. There is at least one such job."""
        without = [request for number, request in enumerate(self.requests) if number not in self.with_prices]
        others = sum(most(request, self.parts) for request in without)
        search = PriceSearch(self.with_prices, self.parts, others)
        worth = self.worth(chosen)
        while worth < (1 - gap) * search.bound:
            found = self.priced(search)
            if self.worth(found) > worth:
                chosen, worth = found, self.worth(found)
            if search.rounds == ROUNDS_MAX or not search.change(worth):
                break
        left = max(0.0, 1 - worth / search.bound) if search.bound else 0.0
        return chosen, PlanCost(gap_per_mille=round(PER_MILLE * left), rounds=search.rounds)

    def filled(self, plan: Sequence[Chosen]) -> list[Chosen]:
        """The plan with what its gaps leave given to jobs that have nothing, or nothing yet."""
        left = Greedy(self.parts)
        of: list[list[Chosen]] = [[] for _ in self.requests]
        for one in plan:
            left.take(self.leaf(one), one.amounts)
            of[one.request].append(one)
        for request, node in enumerate(self.requests):
            had = of[request]
            if had and all(self.leaf(one).start == NOW for one in had):
                of[request] = [left.again(one, self.leaf(one)) for one in had]
                continue
            for one in had:
                left.take(self.leaf(one), one.amounts, -1)
            found = left.best(request, node)
            if self.worth(found) >= self.worth(had):
                of[request] = found
                continue
            for sign, kept in ((-1, found), (1, had)):  # greedy within a min can miss what the solver has found
                for one in kept:
                    left.take(self.leaf(one), one.amounts, sign)
        return [one for found in of for one in found]

    def branch(self, one: Chosen) -> int:
        """Of the outermost max of its expression; 0 where there is none."""
        node, first = self.requests[one.request], 0
        if alternatives(node).simple:
            return one.leaf
        for branch, each in enumerate(node.of if isinstance(node, Max) else ()):
            first += len(alternatives(each).leaves)
            if one.leaf < first:
                return branch
        return 0


def _branch(node: Expression, branch: int) -> tuple[Expression, int]:
    """A branch of the outermost max, and the number of its first leaf."""
    if not isinstance(node, Max):
        return node, 0
    return node.of[branch], sum(len(alternatives(each).leaves) for each in node.of[:branch])


def solve(planning: PlanProblem) -> CyclePlan:
    """Plan a cycle; a pure function, so that a pool of processes can run it.

    Raises:
        InputError: an expression names a set that there is not, or the solver is not installed.
    """
    planner = _Planner(planning)
    chosen, cost = planner.greedy(), PlanCost()
    if planning.solver == "optimal" and planning.requests:
        if planning.before:
            chosen = max(chosen, planner.renewed(), key=planner.worth)
        bound = sum(most(request, planner.parts) for request in planning.requests)
        gap = 1 - planner.worth(chosen) / bound if bound else 0.0
        if gap > planning.limits.gap and len(planner.with_prices) > _program_jobs(planner, planning.limits):
            chosen, cost = planner.large(chosen, planning.limits.gap)
        elif gap > planning.limits.gap:
            chosen, cost = _improved(planner, chosen, planning.limits)
        else:
            cost = PlanCost(gap_per_mille=round(PER_MILLE * gap))
        chosen = planner.filled(chosen)
    now = _machines(planner, chosen, planning.supply.idle)
    later = [(one.request, planner.branch(one)) for one in chosen if planner.leaf(one).start != NOW]
    return CyclePlan(now, tuple(dict.fromkeys(later)), planner.worth(chosen), cost)


def _program_jobs(planner: _Planner, limits: Limits) -> int:
    """The most jobs with prices of a program for the solver: fewer where machines are all alike."""
    return int(ALIKE * limits.jobs) if len(planner.parts.groups) == 1 else limits.jobs


def packed(planning: PlanProblem) -> PackedProblem:
    return PackedProblem(
        planning.requests,
        tuple([(name, _bytes(machines)) for name, machines in planning.sets.items()]),
        _bytes(planning.supply.idle),
        tuple([(since, _bytes(machines)) for since, machines in planning.supply.held]),
        planning.before,
        planning.solver,
        planning.limits,
    )


def unpacked(question: PackedProblem) -> PlanProblem:
    supply = MachineSupply(
        int.from_bytes(question.idle, "little"),
        tuple([(since, int.from_bytes(machines, "little")) for since, machines in question.held]),
    )
    sets = {name: int.from_bytes(machines, "little") for name, machines in question.sets}
    return PlanProblem(question.requests, sets, supply, question.before, question.solver, question.limits)


def answer(question: PackedProblem) -> CyclePlan:
    """Solve a packed problem, for `Port.compute`."""
    return solve(unpacked(question))


def _bytes(machines: int) -> bytes:
    return machines.to_bytes((machines.bit_length() + 7) // 8, "little")


def _improved(planner: _Planner, chosen: list[Chosen], limits: Limits) -> tuple[list[Chosen], PlanCost]:
    """The solver's answer, or the plan that it began with where that is better."""
    generator = Generator(planner.requests, planner.parts)
    solved = maximise(generator.program(), limits, generator.values(chosen))
    if solved.values is not None:
        chosen = max(chosen, generator.chosen(solved.values), key=planner.worth)
    gap = round(PER_MILLE * min(1.0, solved.gap))
    return chosen, PlanCost(generator.columns, generator.rows, gap, solved.nodes, solved.iterations)


def _machines(planner: _Planner, chosen: Sequence[Chosen], idle: int) -> tuple[JobPlacement, ...]:
    found = []
    for one in chosen:
        if planner.leaf(one).start != NOW:
            continue
        machines = 0
        for part, count in one.amounts:
            candidates = planner.parts.groups[part] & idle
            for _ in range(count):
                lowest = candidates & -candidates
                assert lowest, "more machines of a group were given than are idle"
                candidates ^= lowest
                idle ^= lowest
                machines |= lowest
        found.append(JobPlacement(one.request, one.leaf, machines))
    return tuple(found)
