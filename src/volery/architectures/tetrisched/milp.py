"""Utility expressions as one mixed integer linear program (TetriSched, EuroSys 2016, section on MILP generation).

gen(nCk, I)      integers P_x per part x of the set, sum P_x = k I; worth v I
gen(LnCk, I)     the same with sum P_x <= k I; worth v / k sum P_x
gen(max, I)      binaries I_i with sum I_i <= I; worth the sum of gen(e_i, I_i)
gen(sum, I)      binaries I_i <= I; worth the sum of gen(e_i, I_i)
gen(min, I)      V >= 0, V <= gen(e_i, I) each; worth V
gen(scale, I)    c gen(e, I)
gen(barrier, I)  v I <= gen(e, I); worth v I
for each part x and time t: what leaves use of x at t <= what is available of x at t

Three things are left out that change no optimum: the indicator of a job at the root (1), the P_x of an nCk over one
part (k I), and times t at which no leaf starts: what is available only grows, and use only grows at starts. For the
same reason a leaf is impossible for which there is too little when it starts, and is left out of its max. What is used
of x at t is a column of its own, what was used before with what starts and without what ends: that is sparser.

HiGHS solves the program; no other file imports it. Its work is limited by counts (nodes of the search tree), never by a
clock: one thread, one seed, so that the same program has the same answer again. It comes with the extra `solve`.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from volery.architectures.tetrisched.expressions import Barrier, Expression, LnCk, Max, Min, NCk, Scale, Sum
from volery.architectures.tetrisched.machines import Chosen, Parts
from volery.core.errors import InputError, install_command

Linear = list[tuple[int, float]]
"""Linear terms: columns and their coefficients."""
Reals = npt.NDArray[np.float64]
ALWAYS = -1
"""The indicator of the root, which is 1 and has no column."""


class Program(msgspec.Struct, frozen=True, eq=False):
    """Maximise `worth` x, subject to rows, 0 <= x <= upper.

    Args:
        row_low, row_high: Bounds of each row, infinite where there is no bound.
        row_first: Place of each row's first entry, with the count of all at the end.
    """

    worth: Reals
    upper: Reals
    integer: npt.NDArray[np.bool_]
    row_low: Reals
    row_high: Reals
    row_first: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    factor: Reals


class Generator:
    """Builds the program of some expressions."""

    def __init__(self, requests: Sequence[Expression], parts: Parts) -> None:
        self._parts = parts
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._worth: dict[int, float] = {}
        self._rows: list[tuple[float, float, Linear]] = []
        self._use: dict[tuple[int, int], Linear] = {}
        self._indicators: list[tuple[int, int, int]] = []
        self._levels: list[tuple[int, int, Linear]] = []
        self._minima: list[tuple[int, list[Linear]]] = []
        # Leaf over all requests, part, machines per unit of the column, column.
        self._amounts: list[tuple[int, int, float, int]] = []
        self._owner: list[tuple[int, int]] = []

        for number, request in enumerate(requests):
            first_leaf = len(self._owner)
            for column, coefficient in self._generate(request, ALWAYS):
                self._worth[column] = self._worth.get(column, 0.0) + coefficient

            self._owner[first_leaf:] = [(number, leaf) for leaf in range(len(self._owner) - first_leaf)]

        self._supply()

    @property
    def columns(self) -> int:
        return len(self._upper)

    @property
    def rows(self) -> int:
        return len(self._rows)

    def _column(self, upper: float, *, integer: bool = True) -> int:
        self._upper.append(upper)
        self._integer.append(integer)
        return len(self._upper) - 1

    def _indicator(self) -> int:
        return self._column(1.0)

    def _supply(self) -> None:
        """The use of each part at each time: held before, plus starts, less ends."""
        for part, counts in enumerate(self._parts.available.tolist()):
            level_before = ALWAYS
            for time, available in enumerate(counts):
                changes = self._use.get((part, time), [])
                # A part that nothing has used yet needs no column for its use.
                if not changes and level_before == ALWAYS:
                    continue

                level = self._column(float(available), integer=False)
                self._levels.append((level, level_before, changes))
                terms_before = [] if level_before == ALWAYS else [(level_before, -1.0)]
                self._row(0.0, 0.0, [(level, 1.0), *terms_before, *((column, -factor) for column, factor in changes)])

                level_before = level

    def _row(self, low: float, high: float, entries: Linear) -> None:
        """Their sum is from `low` to `high`; a column may come twice: some nodes are worth their own indicator."""
        joined: dict[int, float] = {}

        for column, factor in entries:
            joined[column] = joined.get(column, 0.0) + factor
        row_entries = [(column, factor) for column, factor in joined.items() if factor]

        if row_entries:
            self._rows.append((low, high, row_entries))

    def _at_most(self, terms: Linear, indicator: int, times: float) -> None:
        """Bound the sum of the terms by times * indicator."""
        if indicator == ALWAYS:
            self._row(-math.inf, times, terms)
        else:
            self._row(-math.inf, 0.0, [*terms, (indicator, -times)])

    def _generate(self, node: Expression, indicator: int) -> Linear:
        """Columns and rows of a node; what it is worth."""
        match node:
            case NCk() | LnCk():
                return self._leaf(node, indicator)
            case Scale():
                return [(column, node.factor * factor) for column, factor in self._generate(node.of, indicator)]
            case Max() | Sum():
                return self._any(node, indicator)

        # A min or a barrier is worth its own indicator, which the constant of the root cannot stand for.
        node_indicator = indicator
        first_leaf = len(self._owner)
        if node_indicator == ALWAYS:
            node_indicator = self._indicator()

        terms = self._all(node, node_indicator) if isinstance(node, Min) else self._barrier(node, node_indicator)

        if indicator == ALWAYS:
            self._indicators.append((node_indicator, first_leaf, len(self._owner)))

        return terms

    def _any(self, node: Max | Sum, indicator: int) -> Linear:
        terms: Linear = []
        indicators: Linear = []
        for operand in node.of:
            first_leaf = len(self._owner)
            # There is too little when it starts, and what is available only grows: no plan holds this branch.
            if isinstance(operand, NCk) and not self._possible(operand):
                self._owner.append((0, 0))
                continue

            branch_indicator = self._indicator()
            terms += self._generate(operand, branch_indicator)
            self._indicators.append((branch_indicator, first_leaf, len(self._owner)))
            indicators.append((branch_indicator, 1.0))
        if isinstance(node, Max):
            self._at_most(indicators, indicator, 1.0)
        elif indicator != ALWAYS:
            for branch in indicators:
                self._at_most([branch], indicator, 1.0)

        return terms

    def _possible(self, leaf: NCk | LnCk) -> bool:
        """True if there will be enough machines at a leaf's start, with no other claims."""
        return self._parts.total(leaf) >= leaf.k

    def _all(self, node: Min, indicator: int) -> Linear:
        operand_terms = [self._generate(operand, indicator) for operand in node.of]
        minimum = self._column(math.inf, integer=False)
        for terms in operand_terms:
            self._row(-math.inf, 0.0, [(minimum, 1.0), *((column, -factor) for column, factor in terms)])

        self._minima.append((minimum, operand_terms))
        return [(minimum, 1.0)]

    def _barrier(self, node: Barrier, indicator: int) -> Linear:
        terms = self._generate(node.of, indicator)
        self._row(-math.inf, 0.0, [(indicator, node.value), *((column, -factor) for column, factor in terms)])
        return [(indicator, node.value)]

    def _leaf(self, node: NCk | LnCk, indicator: int) -> Linear:
        leaf = len(self._owner)
        self._owner.append((0, 0))

        parts = self._parts.of(node.where)
        is_exact = isinstance(node, NCk)

        # The root's indicator is no column, so the choice of this leaf needs one.
        if is_exact and indicator == ALWAYS:
            indicator = self._indicator()
            self._indicators.append((indicator, leaf, leaf + 1))

        # Over one part the count is k or nothing: the indicator says it all.
        if is_exact and len(parts) == 1:
            self._takes(node, leaf, parts[0], indicator, float(node.k))
            if not self._possible(node):
                self._upper[indicator] = 0.0
            return [(indicator, node.value)]

        part_terms: Linear = []

        for part, available in self._parts.at_start(node).items():
            column = self._column(float(min(node.k, available)))
            self._takes(node, leaf, part, column, 1.0)
            part_terms.append((column, 1.0))

        if is_exact:
            self._row(0.0, 0.0, [*part_terms, (indicator, -float(node.k))])
            return [(indicator, node.value)]

        self._at_most(part_terms, indicator, float(node.k))
        return [(column, node.value / node.k) for column, _ in part_terms]

    def _takes(self, node: NCk | LnCk, leaf: int, part: int, column: int, machines: float) -> None:
        self._amounts.append((leaf, part, machines, column))

        places = self._parts.during(node)
        self._use.setdefault((part, places.start), []).append((column, machines))

        # Uses that last beyond the last start end where nothing is decided any more.
        if places.stop < len(self._parts.times):
            self._use.setdefault((part, places.stop), []).append((column, -machines))

    def program(self) -> Program:
        lengths = [len(entries) for _, _, entries in self._rows]
        flat = [entry for _, _, entries in self._rows for entry in entries]

        worth = np.zeros(self.columns)
        for column, coefficient in self._worth.items():
            worth[column] = coefficient

        return Program(
            worth=worth,
            upper=np.array(self._upper),
            integer=np.array(self._integer, dtype=np.bool_),
            row_low=np.array([low for low, _, _ in self._rows]),
            row_high=np.array([high for _, high, _ in self._rows]),
            row_first=np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
            column=np.array([column for column, _ in flat], dtype=np.int32),
            factor=np.array([factor for _, factor in flat], dtype=np.float64),
        )

    def chosen(self, values: Reals) -> list[Chosen]:
        """The leaves that a solution gives machines to, in order."""
        amounts_of: dict[int, list[tuple[int, int]]] = {}

        for leaf, part, machines, column in self._amounts:
            count = round(float(values[column]) * machines)
            if count:
                amounts_of.setdefault(leaf, []).append((part, count))

        return [Chosen(*self._owner[leaf], tuple(leaf_amounts)) for leaf, leaf_amounts in sorted(amounts_of.items())]

    def values(self, choices: Sequence[Chosen]) -> Reals:
        """The solution in which these leaves are given machines, and no others."""
        solution = np.zeros(self.columns)
        amounts_of = {(choice.request, choice.leaf): dict(choice.amounts) for choice in choices}
        is_taken = [owner in amounts_of for owner in self._owner]

        for leaf, part, machines, column in self._amounts:
            solution[column] = amounts_of.get(self._owner[leaf], {}).get(part, 0) / machines

        for column, first, end in self._indicators:
            solution[column] = float(any(is_taken[first:end]))

        for column, operand_terms in self._minima:
            solution[column] = min(
                sum(factor * solution[entry_column] for entry_column, factor in linear) for linear in operand_terms
            )

        for column, level_before, changes in self._levels:
            level = 0.0 if level_before == ALWAYS else solution[level_before]
            solution[column] = level + sum(factor * solution[entry_column] for entry_column, factor in changes)

        return solution


SEED: Final = 0


class Limits(msgspec.Struct, frozen=True):
    """Limits of the solver's work.

    Args:
        jobs: Number of jobs with prices in a program; plans with more of these are made by prices.
    """

    gap: float = 0.1
    nodes: int = 200
    jobs: int = 64


class Solution(msgspec.Struct, frozen=True, eq=False):
    """An answer.

    Args:
        values: Value of each column; None where nothing was found within the limits.
        gap: Share of the bound by which it is worth less, at most.
    """

    values: Reals | None
    gap: float
    nodes: int
    iterations: int


def check_solver(place: str) -> None:
    """Refuse to plan without the solver.

    Raises:
        InputError: it is not installed.
    """
    if importlib.util.find_spec("highspy") is None:
        raise InputError(place, f"needs the solver HiGHS: {install_command('solve')}; solver=greedy goes without")


def maximise(program: Program, limits: Limits, start: Reals | None = None) -> Solution:
    """Solve a program with at least one column.

    Args:
        start: A feasible solution to start from.

    Raises:
        InputError: HiGHS is not installed.
    """
    check_solver("solver")
    import highspy  # here, because runs on other designs shall not pay for loading it

    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # the package has few annotations
    settings: dict[str, Any] = {
        "output_flag": False,
        "threads": 1,
        "parallel": "off",
        "random_seed": SEED,
        "mip_rel_gap": limits.gap,
        "mip_max_nodes": limits.nodes,
    }

    for name, value in settings.items():
        solver.setOptionValue(name, value)

    status = solver.passModel(_model(program))
    assert status == highspy.HighsStatus.kOk, "HiGHS takes every program that is generated"

    if start is not None:
        places = np.arange(len(start), dtype=np.int32)
        solver.setSolution(len(start), places, start)

    solver.run()

    outcome = solver.getInfo()
    is_feasible = outcome.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if is_feasible else None
    gap = float(outcome.mip_gap) if np.isfinite(outcome.mip_gap) else 1.0

    return Solution(values, gap, max(0, int(outcome.mip_node_count)), max(0, int(outcome.simplex_iteration_count)))


def _model(program: Program) -> Any:
    import highspy

    model = highspy.HighsLp()
    model.num_col_ = len(program.worth)
    model.num_row_ = len(program.row_low)

    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = program.worth
    model.col_lower_ = np.zeros(len(program.worth))
    model.col_upper_ = program.upper
    model.row_lower_ = program.row_low
    model.row_upper_ = program.row_high

    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = program.row_first
    model.a_matrix_.index_ = program.column
    model.a_matrix_.value_ = program.factor

    kinds = highspy.HighsVarType
    model.integrality_ = [kinds.kInteger if integer else kinds.kContinuous for integer in program.integer]
    return model
