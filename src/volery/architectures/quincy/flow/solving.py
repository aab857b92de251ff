"""The cheapest flow, and of several always the same, whichever solver found the optimum and from where it began.

1. A solver finds a cheapest flow.
2. Its marginal prices are those of every cheapest flow.
3. From these prices the built-in solver sends the flow anew, in an order that nodes and arcs have. That is the answer:
   it depends on the graph alone.
"""

from __future__ import annotations

from volery.architectures.quincy.flow.augmenting import Residual, marginal_prices, priced
from volery.architectures.quincy.flow.graph import Answer, Graph, Question
from volery.architectures.quincy.flow.scaling import scaled


def solve(question: Question) -> Answer:
    """Answer a question; a pure function.

    Raises:
        InfeasibleError: something that is supplied reaches no demand.
        InputError: the solver is not installed.
    """
    graph, paths, scanned = question.graph, 0, 0
    if question.solver == "scaling":
        flows = scaled(graph)
    else:
        residual = Residual(graph, priced(graph, question.prices))
        residual.send_all()
        flows, paths, scanned = residual.flows(), residual.paths, residual.scanned
    prices = marginal_prices(graph, flows)
    again = Residual(graph, prices)
    again.send_all()
    flows = again.flows()
    return Answer(flows, cost_of(graph, flows), prices, paths, scanned)


def cost_of(graph: Graph, flows: tuple[int, ...]) -> int:
    """The cost of a flow."""
    return sum(flow * cost for flow, cost in zip(flows, graph.costs, strict=True))
