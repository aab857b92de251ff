"""Cheapest flows: the vector of the specification, networkx as the judge, and one answer whoever finds it."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.architectures.quincy.drawn import NODES, graphs

from volery.architectures.quincy import ortools_solver as scaling
from volery.architectures.quincy.network import GraphBuilder
from volery.architectures.quincy.solver import FlowAnswer, FlowProblem, Graph, InfeasibleError, Solver, cost_of, solve
from volery.core.errors import InputError


def three_tasks(waiting: int) -> Graph:
    """Vector Q1: two racks of two machines; three tasks of one job with 3 GB on the first machine alone."""
    network = GraphBuilder()
    sink = network.node("sink", -3)
    machines = [network.node(("machine", number)) for number in range(4)]
    racks = [network.node(("rack", number)) for number in range(2)]
    everywhere, unscheduled = network.node("X"), network.node("U")
    for number, machine in enumerate(machines):
        network.arc(machine, sink, 1, 0)
        network.arc(racks[number // 2], machine, 1, 0)
    for rack in racks:
        network.arc(everywhere, rack, 2, 0)
    network.arc(unscheduled, sink, 3, 0)
    for name in "abc":
        task = network.node(name, 1)
        for head, cost in ((machines[0], 0), (racks[0], 3), (everywhere, 6), (unscheduled, waiting)):
            network.arc(task, head, 1, cost)
    return network.graph()


@pytest.mark.parametrize("solver", ["augmenting", "scaling"])
@pytest.mark.parametrize(("waiting", "cost", "machines"), [(2, 4, [0]), (4, 7, [0, 1]), (7, 9, [0, 1, 2])])
def test_tasks_wait_until_waiting_is_dearer_than_moving_their_input(
    waiting: int, cost: int, machines: list[int], solver: Solver
) -> None:
    """Vector Q1: one runs on the machine, a second in the rack, a third elsewhere, as waiting gets dearer."""
    found = solve(FlowProblem(three_tasks(waiting), solver=solver))
    assert found.cost == cost
    loads = found.flows[0:8:2]  # of the arcs from the machines to the sink
    assert len(machines) == sum(loads)
    assert loads[:2] == ((1, 1) if waiting > 3 else (1, 0))


def judged(graph: Graph) -> int | None:
    """What networkx says that the cheapest flow costs; None: there is none."""
    judge = networkx.DiGraph()
    for node, supply in enumerate(graph.supplies):
        judge.add_node(node, demand=-supply)
    rows = zip(graph.tails, graph.heads, graph.capacities, graph.costs, strict=True)
    for number, (tail, head, capacity, cost) in enumerate(rows):  # it knows no parallel arcs
        judge.add_edge(tail, ("arc", number), capacity=capacity, weight=cost)
        judge.add_edge(("arc", number), head)
    try:
        cost, _ = networkx.network_simplex(judge)
    except networkx.NetworkXUnfeasible:
        return None
    return int(cost)


def answered(question: FlowProblem) -> FlowAnswer | None:
    try:
        return solve(question)
    except InfeasibleError:
        return None


@settings(max_examples=150)
@given(graphs(), st.lists(st.integers(-9, 9), min_size=NODES, max_size=NODES))
def test_the_flow_is_the_cheapest_and_the_same_from_any_beginning(graph: Graph, prices: list[int]) -> None:
    found = answered(FlowProblem(graph))
    assert (found.cost if found else None) == judged(graph)
    if found is None:
        assert answered(FlowProblem(graph, tuple(prices[: len(graph.supplies)]))) is None
        return
    for node, supply in enumerate(graph.supplies):
        out = sum(flow for tail, flow in zip(graph.tails, found.flows, strict=True) if tail == node)
        into = sum(flow for head, flow in zip(graph.heads, found.flows, strict=True) if head == node)
        assert out - into == supply, "nothing is lost on the way"
    assert all(0 <= flow <= room for flow, room in zip(found.flows, graph.capacities, strict=True))
    again = solve(FlowProblem(graph, tuple(prices[: len(graph.supplies)])))
    assert (again.flows, again.prices) == (found.flows, found.prices)


@settings(max_examples=60)
@given(graphs())
def test_the_other_solver_answers_with_the_same_flow(graph: Graph) -> None:
    one, other = answered(FlowProblem(graph)), answered(FlowProblem(graph, solver="scaling"))
    assert (one is None) == (other is None)
    if one and other:
        assert (one.flows, one.cost, one.prices) == (other.flows, other.cost, other.prices)


def test_prices_are_what_one_unit_more_would_cost() -> None:
    graph = three_tasks(4)
    found = solve(FlowProblem(graph))
    assert found.prices[graph.supplies.index(1)] == 4, "one more task like these would wait"
    assert found.prices[0] == 0, "the sink is the root"


def crowd(tasks: int, machines: int) -> Graph:
    """Tasks that disagree about machines, most of which wait."""
    network = GraphBuilder()
    sink = network.node("sink", -tasks)
    for machine in range(machines):
        network.arc(network.node(("machine", machine)), sink, 1, 0)
    for number in range(tasks):
        task = network.node(number, 1)
        network.arc(task, sink, 1, 20 + number % 3)
        for machine in range(machines):
            network.arc(task, network.node(("machine", machine)), 1, (number * 7 + machine * 3) % 11)
    return network.graph()


def test_good_prices_spare_work() -> None:
    graph = crowd(60, 10)
    cold = solve(FlowProblem(graph))
    warm = solve(FlowProblem(graph, cold.prices))
    assert 2 * warm.scanned < cold.scanned
    assert warm.flows == cold.flows
    assert cost_of(graph, warm.flows) == warm.cost == judged(graph)


def test_ortools_and_highs_never_share_a_process() -> None:
    """Their symbols clash: one of them would not load."""
    solve(FlowProblem(three_tasks(2), solver="scaling"))
    assert not [name for name in sys.modules if name.partition(".")[0] == "ortools"]


def _both() -> bool:
    from volery.architectures.tetrisched.milp import check_solver

    check_solver("here")
    import highspy

    return highspy is not None and solve(FlowProblem(three_tasks(2), solver="scaling")).cost == 4


@pytest.mark.slow
def test_a_process_that_has_loaded_highs_may_ask_for_a_flow() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_both).result()


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"\[flow\]"):
        scaling.check_solver("quincy:solver")


def test_what_reaches_no_demand_is_refused() -> None:
    for solver in ("augmenting", "scaling"):
        with pytest.raises(InfeasibleError):
            solve(FlowProblem(Graph((1, -1), (1,), (0,), (1,), (0,)), solver=solver))
        with pytest.raises(InfeasibleError):
            solve(FlowProblem(Graph((1, -1), (), (), (), ()), solver=solver))
