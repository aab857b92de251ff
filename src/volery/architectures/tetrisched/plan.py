"""Planning of a cycle: it gives machines to jobs, now or later (TetriSched, EuroSys 2016).

1. Greedy: one job after the other takes its best branch, first what the plan before had for it. This is the warm start,
   what is left when the solver's limits are reached, and all of it without a solver.
2. The solver: all expressions under one sum, from there, to a gap; not asked where the greedy plan is within the gap of
   what the jobs would be worth if each had the cluster to itself.
3. Filling: a gap leaves room. Jobs without machines, or with machines later, in order, take the best branch that what
   the plan leaves allows; no job loses by it. To the solver all machines of a set are alike: who starts now is given
   those that fewest ask for. (Ours: neither paper says how idle machines within the gap are used.)

Machines within a group are taken from the lowest number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from volery.architectures.tetrisched.expressions import NOW, Expression, LnCk, Max, NCk, leaves
from volery.architectures.tetrisched.greedy import Greedy, earned, most
from volery.architectures.tetrisched.highs import Limits, maximise
from volery.architectures.tetrisched.milp import Chosen, Generator
from volery.architectures.tetrisched.parts import MachineSupply, Parts

Solver = Literal["optimal", "greedy"]
PER_MILLE = 1000
NO_BRANCH = -1


class PlanProblem(msgspec.Struct, frozen=True):
    """All that a plan depends on.

    Args:
        requests: what each job is worth, in the order in which a greedy solver takes them.
        sets: the members of the sets of machines that they name.
        supply: the machines.
        before: per request, the branch of its outermost max that an earlier plan had for it, or -1; nothing: no plan.
        solver: "optimal" within the limits, or "greedy".
        limits: of the solver's work.
    """

    requests: tuple[Expression, ...]
    sets: Mapping[str, int]
    supply: MachineSupply
    before: tuple[int, ...] = ()
    solver: Solver = "optimal"
    limits: Limits = Limits()


class PackedProblem(msgspec.Struct, frozen=True):
    """A `PlanProblem` as journals take it: sets of machines as bytes, because no integer of theirs holds them.

    Args:
        sets: name and members.
        idle: as `MachineSupply.idle`.
        held: as `MachineSupply.held`.
        requests, before, solver, limits: as `PlanProblem`.
    """

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
        leaf: its number in that.
        machines: a bit vector.
    """

    request: int
    leaf: int
    machines: int


class PlanCost(msgspec.Struct, frozen=True):
    """The effort of planning.

    Args:
        variables, rows: of the program; 0 without one.
        gap_per_mille: of the solver's answer.
        nodes, iterations: of the solver.
    """

    variables: int = 0
    rows: int = 0
    gap_per_mille: int = 0
    nodes: int = 0
    iterations: int = 0


class CyclePlan(msgspec.Struct, frozen=True):
    """The answer.

    Args:
        now: what starts at once.
        later: (request, branch of its outermost max) of what is planned for later.
        worth: of all of it.
        cost: of planning.
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
        self.leaves = [list(leaves(request)) for request in planning.requests]

    def leaf(self, one: Chosen) -> NCk | LnCk:
        return self.leaves[one.request][one.leaf]

    def worth(self, plan: Sequence[Chosen]) -> float:
        given: dict[int, dict[int, int]] = {}
        for one in plan:
            given.setdefault(one.request, {})[one.leaf] = sum(count for _, count in one.amounts)
        return sum(earned(self.requests[request], found)[0] for request, found in given.items())

    def greedy(self) -> list[Chosen]:
        """One after the other."""
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
        for branch, each in enumerate(node.of if isinstance(node, Max) else ()):
            first += sum(1 for _ in leaves(each))
            if one.leaf < first:
                return branch
        return 0


def _branch(node: Expression, branch: int) -> tuple[Expression, int]:
    """A branch of the outermost max, and the number of its first leaf."""
    if not isinstance(node, Max):
        return node, 0
    return node.of[branch], sum(sum(1 for _ in leaves(each)) for each in node.of[:branch])


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
        if gap > planning.limits.gap:
            chosen, cost = _improved(planner, chosen, planning.limits)
        else:
            cost = PlanCost(gap_per_mille=round(PER_MILLE * gap))
        chosen = planner.filled(chosen)
    now = _machines(planner, chosen, planning.supply.idle)
    later = [(one.request, planner.branch(one)) for one in chosen if planner.leaf(one).start != NOW]
    return CyclePlan(now, tuple(dict.fromkeys(later)), planner.worth(chosen), cost)


def packed(planning: PlanProblem) -> PackedProblem:
    """The question for `answer`, from a problem."""
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
    """The problem that was packed."""
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
