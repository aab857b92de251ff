"""Random networks: some have no flow, some have many that are as cheap."""

from __future__ import annotations

from hypothesis import strategies as st

from volery.architectures.quincy.solver import Graph

NODES = 7


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A network of a few nodes with parallel arcs, cycles, and costs that are often equal."""
    nodes = draw(st.integers(2, NODES))
    node, small = st.integers(0, nodes - 1), st.integers(0, 4)
    arcs = draw(st.lists(st.tuples(node, node, small, small).filter(lambda arc: arc[0] != arc[1]), max_size=24))
    supplies = [0] * nodes
    for source, target, amount in draw(st.lists(st.tuples(node, node, st.integers(1, 3)), max_size=4)):
        supplies[source] += amount
        supplies[target] -= amount
    tails, heads, capacities, costs = zip(*arcs, strict=True) if arcs else ((), (), (), ())
    return Graph(tuple(supplies), tails, heads, capacities, costs)
