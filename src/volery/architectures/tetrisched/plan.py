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

from volery.architectures.tetrisched.expressions import (
    NOW,
    Alternatives,
    Barrier,
    Expression,
    LnCk,
    Max,
    Min,
    NCk,
    Scale,
    Sum,
    alternatives,
    folded,
)
from volery.architectures.tetrisched.machines import Chosen, MachineSupply, Parts
from volery.architectures.tetrisched.milp import Generator, Limits, maximise
from volery.architectures.tetrisched.prices import ROUNDS_MAX, PriceSearch

Allotments = list[tuple[int, NCk | LnCk, tuple[tuple[int, int], ...]]]
"""Leaves that are given machines: number of the leaf in its expression, the leaf, and its amounts."""
Picked = tuple[float, Allotments, int]
"""Value of what is taken, what is taken, and the number of the next leaf."""


class Greedy:
    """Gives each job in turn its best part of the machines that are left."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._free_counts: list[list[int]] = parts.available.tolist()

    def take(self, leaf: NCk | LnCk, amounts: Sequence[tuple[int, int]], sign: int = 1) -> None:
        """Machines are given to a leaf; with sign -1 they are given back."""
        places = self._parts.during(leaf)

        for part, count in amounts:
            row = self._free_counts[part]
            change = sign * count
            for time in places:
                row[time] -= change

    def best(self, request: int, node: Expression, first: int = 0) -> list[Chosen]:
        """Give a job its best branch; nothing where none is worth anything."""
        # Most expressions are simple: their best branch is the first that fits, without a tree to walk.
        table = alternatives(node)
        if table.simple:
            return self.first_of(request, table, table.order, first)
        worth, allotments, _ = self._pick(node, first)

        if worth <= 0:
            return []

        for _, leaf, amounts in allotments:
            self.take(leaf, amounts)
        return [Chosen(request, number, amounts) for number, _, amounts in allotments]

    def first_of(self, request: int, table: Alternatives, order: Iterable[int], first: int = 0) -> list[Chosen]:
        """Give a job the first of some leaves nCk, by their numbers, that has its machines."""
        groups = self._parts.cheapest[table.wheres[0]]

        # All leaves want k machines of one group, so that one pass over its row answers for all of them.
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
        row = self._free_counts[group]
        k = table.alike
        if max(row) < k:
            return []
        shortage_time = len(row)
        # Per time the next one at which too few machines are left.
        next_shortage = [0] * shortage_time

        for time in range(shortage_time - 1, -1, -1):
            if row[time] < k:
                shortage_time = time
            next_shortage[time] = shortage_time

        windows = self._parts.windows(table)

        for number in order:
            start, end = windows[number]
            if next_shortage[start] >= end:
                amounts = ((group, k),)
                self.take(table.leaves[number], amounts)
                return [Chosen(request, first + number, amounts)]
        return []

    def respread(self, choice: Chosen, leaf: NCk | LnCk) -> Chosen:
        """Give a leaf as many machines again as it has, of the groups that fewest ask for."""
        self.take(leaf, choice.amounts, -1)
        amounts = self._spread(leaf, sum(count for _, count in choice.amounts))

        self.take(leaf, amounts)
        return Chosen(choice.request, choice.leaf, amounts)

    def _spread(self, leaf: NCk | LnCk, count: int) -> tuple[tuple[int, int], ...]:
        """Spread machines of a leaf over the free ones of its set: those of groups that fewest ask for first."""
        amounts = []

        places = self._parts.during(leaf)
        first = places.start
        end = places.stop

        for part in self._parts.cheapest[leaf.where]:
            free_count = min(self._free_counts[part][first:end])
            if free_count:
                amounts.append((part, min(count, free_count)))
                count -= min(count, free_count)
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
                worth, allotments, end = self._pick(node.of, first)
                return node.factor * worth, allotments, end
            case Barrier():
                worth, allotments, end = self._pick(node.of, first)
                return (node.value, allotments, end) if worth >= node.value else (0.0, [], end)

    def _choice(self, node: Expression) -> int:
        """The number of machines that the least of its leaves may choose among."""
        return min(map(self._parts.total, alternatives(node).leaves))

    def _leaf(self, node: NCk | LnCk, number: int) -> Picked:
        amounts = self._spread(node, node.k)
        count = sum(part_count for _, part_count in amounts)

        if not count or (isinstance(node, NCk) and count < node.k):
            return 0.0, [], number + 1

        worth = node.value if count == node.k else node.value * count / node.k
        return worth, [(number, node, amounts)], number + 1

    def _branch(self, node: Max, first: int) -> Picked:
        best: tuple[float, Allotments] = (0.0, [])

        for operand in node.of:
            worth, allotments, first = self._pick(operand, first)
            if allotments and (worth, -_start(allotments)) > (best[0], -_start(best[1])):
                best = (worth, allotments)
        return *best, first

    def _several(self, node: Min | Sum, first: int) -> Picked:
        all_allotments: Allotments = []
        worths = []
        parts = []
        for operand in node.of:
            parts.append((self._choice(operand), first, operand))
            first += len(alternatives(operand).leaves)

        # The part with the least choice takes first: in order, one could take what another cannot do without.
        for _, number, operand in sorted(parts, key=itemgetter(0)):
            worth, allotments, _ = self._pick(operand, number)
            for _, leaf, amounts in allotments:
                self.take(leaf, amounts)
            all_allotments += allotments
            worths.append(worth)

        # Taken only to let the parts see each other: the caller takes what it decides on.
        for _, leaf, amounts in all_allotments:
            self.take(leaf, amounts, -1)

        worth = min(worths) if isinstance(node, Min) else sum(worths)
        all_allotments.sort(key=itemgetter(0))
        return (worth, all_allotments, first) if worth > 0 else (0.0, [], first)


def most(node: Expression, parts: Parts) -> float:
    """An upper bound of the value of an expression: alone, with each of its leaves alone."""

    def of_leaf(leaf: NCk | LnCk) -> float:
        count = min(leaf.k, parts.total(leaf))
        return leaf.value * count / leaf.k if count == leaf.k or isinstance(leaf, LnCk) else 0.0

    table = alternatives(node)
    if table.simple:
        possible_leaves = (
            table.leaves[number]
            for number in table.order
            if parts.total(table.leaves[number]) >= table.leaves[number].k
        )
        return next((leaf.value for leaf in possible_leaves), 0.0)

    return folded(node, of_leaf)


def earned(node: Expression, counts: Mapping[int, int]) -> float:
    """The value of the machines that leaves, by their number in the expression, were given."""
    table = alternatives(node)

    if table.simple:
        return max([table.leaves[number].worth(count) for number, count in counts.items()], default=0.0)

    numbers = itertools.count()
    return folded(node, lambda leaf: leaf.worth(counts.get(next(numbers), 0)))


def _start(allotments: Allotments) -> int:
    """The start of its last leaf; one that takes nothing is later than all."""
    return max((leaf.start for _, leaf, _ in allotments), default=1 << 62)


Solver = Literal["optimal", "greedy"]
PER_MILLE = 1000
NO_BRANCH = -1
ALIKE = 0.75
"""Share of the jobs of a program where all machines are alike: the bound of prices is tight there."""


class PlanProblem(msgspec.Struct, frozen=True):
    """All that a plan depends on.

    Args:
        requests: Expression of each job, in the order in which a greedy solver takes them.
        before: Per request, the branch of its outermost max that an earlier plan had for it, or -1; nothing: no plan.
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
        request: The place of its expression.
        leaf: Number of the leaf in that, from left to right.
        machines: The machines, as a bit vector.
    """

    request: int
    leaf: int
    machines: int


class PlanCost(msgspec.Struct, frozen=True):
    """The effort of planning.

    Args:
        rounds: Number of changes of prices; None: the plan is not made by prices.
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
        later: Request and branch of its outermost max, of what is planned for later.
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

    def leaf(self, choice: Chosen) -> NCk | LnCk:
        return self.leaves[choice.request][choice.leaf]

    def worth(self, plan: Sequence[Chosen]) -> float:
        counts_of: dict[int, dict[int, int]] = {}

        for choice in plan:
            counts_of.setdefault(choice.request, {})[choice.leaf] = sum(count for _, count in choice.amounts)

        return sum(earned(self.requests[request], counts) for request, counts in counts_of.items())

    def greedy(self) -> list[Chosen]:
        greedy = Greedy(self.parts)
        plan: list[Chosen] = []

        for request, node in enumerate(self.requests):
            plan += greedy.best(request, node)

        return plan

    def renewed(self) -> list[Chosen]:
        """Give jobs first what the plan before had for them, then the others one after the other."""
        greedy = Greedy(self.parts)
        choices_of: list[list[Chosen]] = []

        for request, (node, branch) in enumerate(zip(self.requests, self._before, strict=True)):
            choices_of.append(greedy.best(request, *_branch(node, branch)) if branch != NO_BRANCH else [])

        for request, node in enumerate(self.requests):
            choices_of[request] = choices_of[request] or greedy.best(request, node)
        return [choice for choices in choices_of for choice in choices]

    def priced(self, search: PriceSearch) -> list[Chosen]:
        """Let jobs choose by what they gain at these prices, those that gain most first; then the others."""
        greedy = Greedy(self.parts)
        choices_of: list[list[Chosen]] = [[] for _ in self.requests]

        for request, order in search.orders():
            choices_of[request] = greedy.first_of(request, self.with_prices[request], order)

        for request, node in enumerate(self.requests):
            choices_of[request] = choices_of[request] or greedy.best(request, node)

        return [choice for choices in choices_of for choice in choices]

    def large(self, plan: list[Chosen], gap: float) -> tuple[list[Chosen], PlanCost]:
        """The plan of a cycle in which many jobs have prices: by these, from a plan. There is at least one such job."""
        unpriced = [request for number, request in enumerate(self.requests) if number not in self.with_prices]

        unpriced_bound = sum(most(request, self.parts) for request in unpriced)
        search = PriceSearch(self.with_prices, self.parts, unpriced_bound)

        worth = self.worth(plan)
        while worth < (1 - gap) * search.bound:
            priced_plan = self.priced(search)
            if self.worth(priced_plan) > worth:
                plan = priced_plan
                worth = self.worth(priced_plan)

            # No price would move, or the bound is down to this worth: the next plan would be the same.
            if search.rounds == ROUNDS_MAX or not search.change(worth):
                break

        gap_left = max(0.0, 1 - worth / search.bound) if search.bound else 0.0
        return plan, PlanCost(gap_per_mille=round(PER_MILLE * gap_left), rounds=search.rounds)

    def filled(self, plan: Sequence[Chosen]) -> list[Chosen]:
        """Give what the gaps of a plan leave to jobs that have nothing, or nothing yet."""
        greedy = Greedy(self.parts)

        choices_of: list[list[Chosen]] = [[] for _ in self.requests]
        for choice in plan:
            greedy.take(self.leaf(choice), choice.amounts)
            choices_of[choice.request].append(choice)

        for request, node in enumerate(self.requests):
            planned_choices = choices_of[request]
            if planned_choices and all(self.leaf(choice).start == NOW for choice in planned_choices):
                # To the solver all machines of a set are alike: those that fewest ask for leave more to the others.
                choices_of[request] = [greedy.respread(choice, self.leaf(choice)) for choice in planned_choices]
                continue

            for choice in planned_choices:
                greedy.take(self.leaf(choice), choice.amounts, -1)

            best_choices = greedy.best(request, node)

            # No job loses by the filling: what it is given instead is worth at least as much.
            if self.worth(best_choices) >= self.worth(planned_choices):
                choices_of[request] = best_choices
                continue

            # Greedy within a min can miss what the solver has found: the job gets back what it had.
            for sign, choices in ((-1, best_choices), (1, planned_choices)):
                for choice in choices:
                    greedy.take(self.leaf(choice), choice.amounts, sign)

        return [choice for choices in choices_of for choice in choices]

    def branch(self, choice: Chosen) -> int:
        """The branch of the outermost max of its expression; 0 where there is none."""
        node = self.requests[choice.request]
        next_first = 0

        if alternatives(node).simple:
            return choice.leaf

        for branch, operand in enumerate(node.of if isinstance(node, Max) else ()):
            next_first += len(alternatives(operand).leaves)
            if choice.leaf < next_first:
                return branch
        return 0


def _branch(node: Expression, branch: int) -> tuple[Expression, int]:
    """A branch of the outermost max, and the number of its first leaf."""
    if not isinstance(node, Max):
        return node, 0
    return node.of[branch], sum(len(alternatives(operand).leaves) for operand in node.of[:branch])


def solve(planning: PlanProblem) -> CyclePlan:
    """Plan a cycle; a pure function, so that a pool of processes can run it.

    Raises:
        InputError: an expression names a set that there is not, or the solver is not installed.
    """
    planner = _Planner(planning)
    plan = planner.greedy()
    cost = PlanCost()

    # Without a solver the greedy plan is all there is.
    if planning.solver == "optimal" and planning.requests:
        if planning.before:
            plan = max(plan, planner.renewed(), key=planner.worth)

        # Each job alone in the cluster is an upper bound; within the gap of it the solver cannot help.
        bound = sum(most(request, planner.parts) for request in planning.requests)

        gap = 1 - planner.worth(plan) / bound if bound else 0.0
        if gap > planning.limits.gap and len(planner.with_prices) > _program_jobs(planner, planning.limits):
            plan, cost = planner.large(plan, planning.limits.gap)
        elif gap > planning.limits.gap:
            plan, cost = _improved(planner, plan, planning.limits)
        else:
            cost = PlanCost(gap_per_mille=round(PER_MILLE * gap))

        plan = planner.filled(plan)

    now = _machines(planner, plan, planning.supply.idle)
    later = [(choice.request, planner.branch(choice)) for choice in plan if planner.leaf(choice).start != NOW]

    return CyclePlan(now, tuple(dict.fromkeys(later)), planner.worth(plan), cost)


def _program_jobs(planner: _Planner, limits: Limits) -> int:
    """The most jobs with prices of a program for the solver: fewer where machines are all alike."""
    return int(ALIKE * limits.jobs) if len(planner.parts.groups) == 1 else limits.jobs


def packed(planning: PlanProblem) -> PackedProblem:
    return PackedProblem(
        planning.requests,
        tuple([(name, _bytes(machines)) for name, machines in planning.sets.items()]),
        _bytes(planning.supply.idle),
        tuple([(first_quantum, _bytes(machines)) for first_quantum, machines in planning.supply.held]),
        planning.before,
        planning.solver,
        planning.limits,
    )


def unpacked(question: PackedProblem) -> PlanProblem:
    supply = MachineSupply(
        int.from_bytes(question.idle, "little"),
        tuple([(first_quantum, int.from_bytes(machines, "little")) for first_quantum, machines in question.held]),
    )
    sets = {name: int.from_bytes(machines, "little") for name, machines in question.sets}
    return PlanProblem(question.requests, sets, supply, question.before, question.solver, question.limits)


def answer(question: PackedProblem) -> CyclePlan:
    """Solve a packed problem, for `Port.compute`."""
    return solve(unpacked(question))


def _bytes(machines: int) -> bytes:
    return machines.to_bytes((machines.bit_length() + 7) // 8, "little")


def _improved(planner: _Planner, plan: list[Chosen], limits: Limits) -> tuple[list[Chosen], PlanCost]:
    """The solver's answer, or the plan that it began with where that is better."""
    generator = Generator(planner.requests, planner.parts)
    solution = maximise(generator.program(), limits, generator.values(plan))

    # The search may have been cut off before it reached the plan that it began with.
    if solution.values is not None:
        plan = max(plan, generator.chosen(solution.values), key=planner.worth)

    gap = round(PER_MILLE * min(1.0, solution.gap))
    return plan, PlanCost(generator.columns, generator.rows, gap, solution.nodes, solution.iterations)


def _machines(planner: _Planner, plan: Sequence[Chosen], idle: int) -> tuple[JobPlacement, ...]:
    placements = []
    for choice in plan:
        if planner.leaf(choice).start != NOW:
            continue

        machines = 0
        for part, count in choice.amounts:
            candidates = planner.parts.groups[part] & idle
            for _ in range(count):
                lowest = candidates & -candidates
                assert lowest, "more machines of a group were given than are idle"
                candidates ^= lowest
                idle ^= lowest
                machines |= lowest

        placements.append(JobPlacement(choice.request, choice.leaf, machines))

    return tuple(placements)
