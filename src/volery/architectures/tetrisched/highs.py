"""HiGHS, the solver of mixed integer programs; the only file that imports it.

Work is limited by counts (nodes of the search tree), never by a clock: one thread, one seed, so that the same program
has the same answer again. HiGHS comes with the extra `solve`.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Final

import msgspec
import numpy as np

from volery.architectures.tetrisched.milp import Program, Reals
from volery.core.errors import InputError

SEED: Final = 0


class Limits(msgspec.Struct, frozen=True):
    """Limits of the solver's work.

    Args:
        gap: the answer may be worth so much less than the best, as a share of it.
        nodes: of the search tree, at most.
    """

    gap: float = 0.1
    nodes: int = 200


class Solution(msgspec.Struct, frozen=True, eq=False):
    """An answer.

    Args:
        values: per column; None where nothing was found within the limits.
        gap: how much less than the bound it is worth at most, as a share of it.
        nodes: that were looked at.
        iterations: of the simplex method.
    """

    values: Reals | None
    gap: float
    nodes: int
    iterations: int


def check_solver(place: str) -> None:
    """Refuse to plan without the solver.

    Args:
        place: whose parameter asks for it.

    Raises:
        InputError: it is not installed.
    """
    if importlib.util.find_spec("highspy") is None:
        raise InputError(place, "needs the solver HiGHS: pip install 'volery[solve]'; solver=greedy goes without")


def maximise(program: Program, limits: Limits, begin: Reals | None = None) -> Solution:
    """Solve a program.

    Args:
        program: at least one column.
        limits: of the work.
        begin: a solution to start from, feasible.

    Raises:
        InputError: HiGHS is not installed.
    """
    check_solver("solver")
    import highspy  # here, because runs on other designs shall not pay for loading it

    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # the package has few annotations
    settings: dict[str, Any] = {
        "output_flag": False, "threads": 1, "parallel": "off", "random_seed": SEED, "mip_rel_gap": limits.gap,
        "mip_max_nodes": limits.nodes,
    }  # fmt: skip
    for name, value in settings.items():
        solver.setOptionValue(name, value)
    taken = solver.passModel(_model(program))
    assert taken == highspy.HighsStatus.kOk, "HiGHS takes every program that is generated"
    if begin is not None:
        places = np.arange(len(begin), dtype=np.int32)
        solver.setSolution(len(begin), places, begin)
    solver.run()
    found = solver.getInfo()
    usable = found.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if usable else None
    gap = float(found.mip_gap) if np.isfinite(found.mip_gap) else 1.0
    return Solution(values, gap, max(0, int(found.mip_node_count)), max(0, int(found.simplex_iteration_count)))


def _model(program: Program) -> Any:
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.worth), len(program.row_low)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = program.worth
    model.col_lower_ = np.zeros(len(program.worth))
    model.col_upper_ = program.upper
    model.row_lower_, model.row_upper_ = program.row_low, program.row_high
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = program.row_first
    model.a_matrix_.index_ = program.column
    model.a_matrix_.value_ = program.factor
    kinds = highspy.HighsVarType
    model.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in program.integer]
    return model
