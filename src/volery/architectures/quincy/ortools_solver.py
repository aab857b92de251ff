"""Cost scaling by OR-tools, in a process of its own; the only file that imports it.

OR-tools and highspy bring HiGHS both, and their symbols clash: no process may load the two. So a child is started at
the first problem, kept, and given plain values; it is a child of the process that asks, whatever that was forked from.
OR-tools comes with the extra `flow`.
"""

from __future__ import annotations

import importlib.util
import sys
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection
from typing import Any

from volery.core.errors import InputError, install_command

GraphColumns = tuple[tuple[int, ...], ...]
"""Columns of a `Graph`: supplies of nodes; tails, heads, capacities and costs of arcs."""
_children: dict[int | None, Connection[Any, Any]] = {}


def check_solver(place: str) -> None:
    """Refuse to solve without the solver.

    Raises:
        InputError: it is not installed.
    """
    if importlib.util.find_spec("ortools") is None:
        raise InputError(place, f"needs OR-tools: {install_command('flow')}; solver=augmenting needs nothing")


def scaled(columns: GraphColumns) -> list[int] | None:
    """A cheapest flow, per arc; None where something that is supplied reaches no demand.

    Raises:
        InputError: OR-tools is not installed.
    """
    check_solver("solver")

    # A fork has its parent's table, but must not use its parent's pipe.
    own_pid = current_process().pid
    if own_pid not in _children:
        _children[own_pid] = _child()

    _children[own_pid].send(columns)
    flows: list[int] | None = _children[own_pid].recv()
    return flows


def _child() -> Connection[Any, Any]:
    """Start a process that solves; it ends with the one that asks."""
    context = get_context("spawn")

    parent_end, child_end = context.Pipe()
    context.Process(target=_answer_all, args=(child_end,), daemon=True).start()
    # The parent's copy is closed, so that the child's end is noticed here.
    child_end.close()
    return parent_end


def _answer_all(connection: Connection[Any, Any]) -> None:
    """Answer in the child, until the pipe is closed."""
    while True:
        try:
            columns = connection.recv()
        # The process that asks has ended.
        except EOFError:
            return
        connection.send(scaled_here(columns))


def scaled_here(columns: GraphColumns) -> list[int] | None:
    """The flow per arc, found in this process, which must never load HiGHS; None where there is none."""
    assert "highspy" not in sys.modules, "HiGHS and OR-tools share a process"
    import numpy as np
    from ortools.graph.python import min_cost_flow

    supplies, tails, heads, capacities, costs = columns
    solver = min_cost_flow.SimpleMinCostFlow()

    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        np.array(tails, dtype=np.int32),
        np.array(heads, dtype=np.int32),
        np.array(capacities, dtype=np.int64),
        np.array(costs, dtype=np.int64),
    )

    nodes = np.arange(len(supplies), dtype=np.int32)
    solver.set_nodes_supplies(nodes, np.array(supplies, dtype=np.int64))

    status = solver.solve()
    if status == solver.INFEASIBLE:
        return None

    assert status == solver.OPTIMAL, f"OR-tools answers with status {status}"
    flows: list[int] = solver.flows(arcs).tolist()
    return flows
