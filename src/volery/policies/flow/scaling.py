"""Cost scaling by OR-tools, in a process of its own; the only file that imports it.

OR-tools and highspy bring HiGHS both, and their symbols clash: no process may load the two. So a child is started when
first asked, kept, and spoken to in plain values; it is a child of the process that asks, whatever that was forked from.
OR-tools comes with the extra `flow`.
"""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import current_process, get_context

from volery.core.errors import InputError
from volery.policies.flow.augmenting import InfeasibleError
from volery.policies.flow.graph import Graph

_children: dict[int | None, ProcessPoolExecutor] = {}


def check_solver(place: str) -> None:
    """Refuse to solve without the solver.

    Args:
        place: whose parameter asks for it.

    Raises:
        InputError: it is not installed.
    """
    if importlib.util.find_spec("ortools") is None:
        raise InputError(place, "needs OR-tools: pip install 'volery[flow]'; solver=augmenting goes without")


def scaled(graph: Graph) -> tuple[int, ...]:
    """A cheapest flow, per arc.

    Raises:
        InfeasibleError: something that is supplied reaches no demand.
        InputError: OR-tools is not installed.
    """
    check_solver("solver")
    if not graph.tails:
        if any(graph.supplies):
            raise InfeasibleError("there is no arc")
        return ()
    own = current_process().pid
    if own not in _children:
        _children[own] = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    flows = _children[own].submit(_apart, graph.supplies, graph.tails, graph.heads, graph.capacities, graph.costs)
    found = flows.result()
    if found is None:
        raise InfeasibleError("something that is supplied reaches no demand")
    return tuple(found)


def _apart(
    supplies: tuple[int, ...],
    tails: tuple[int, ...],
    heads: tuple[int, ...],
    capacities: tuple[int, ...],
    costs: tuple[int, ...],
) -> list[int] | None:
    """In the child: the flow per arc; None where there is none."""
    assert "highspy" not in sys.modules, "HiGHS and OR-tools share a process"
    import numpy as np
    from ortools.graph.python import min_cost_flow

    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        np.array(tails, dtype=np.int32),
        np.array(heads, dtype=np.int32),
        np.array(capacities, dtype=np.int64),
        np.array(costs, dtype=np.int64),
    )
    solver.set_nodes_supplies(np.arange(len(supplies), dtype=np.int32), np.array(supplies, dtype=np.int64))
    status = solver.solve()
    if status == solver.INFEASIBLE:
        return None
    assert status == solver.OPTIMAL, f"OR-tools answers with status {status}"
    flows: list[int] = solver.flows(arcs).tolist()
    return flows
