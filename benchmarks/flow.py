"""What a flow of Quincy costs, as JSON: processor time per network, by solver, and how it grows.

`python benchmarks/flow.py [--quick]`: a cluster with every slot free and as many tasks as slots times the crowd; each
task reads a block that three machines hold. The built-in solver from nothing, again from good prices (as when little
has changed), and OR-tools, alone and with the canonical flow. One core, one seed.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from msgspec.structs import astuple

from volery.architectures.quincy.costs import QuincyCosts, Rates
from volery.architectures.quincy.network import FlowNetwork, NetworkTask
from volery.architectures.quincy.ortools_solver import scaled_here
from volery.architectures.quincy.solver import FlowProblem, Graph, solve
from volery.architectures.quincy.tasks import Item, Room
from volery.core.model import SECOND, Cluster, Task

SLOTS = 4
RACK = 20


class Case(NamedTuple):
    """One network."""

    machines: int = 100
    crowd: float = 1.0


CASES = (Case(25), Case(50), Case(), Case(200), Case(400), Case(crowd=0.5), Case(crowd=2.0), Case(crowd=4.0))


def graph_of(case: Case) -> Graph:
    """The network of a case."""
    stream = random.Random(0)
    racks = tuple([machine // RACK for machine in range(case.machines)])
    model = QuincyCosts(Cluster((0,) * case.machines, (SLOTS,) * case.machines, racks=racks), Rates(input_gb=1.0))
    room = Room(case.machines)
    room.fill([SLOTS] * case.machines)
    members = []
    for number in range(int(SLOTS * case.machines * case.crowd)):
        task, holders = Task(number, number // 20), tuple(stream.sample(range(case.machines), 3))
        waited_us = stream.randrange(60 * SECOND)
        members.append(NetworkTask(Item(task, model.entries(task, holders), holders, 0), model.unscheduled(waited_us)))
    return FlowNetwork(model, room).draw_tasks(members, {})


def spent_s(question: FlowProblem) -> tuple[float, int, tuple[int, ...]]:
    """Processor time of an answer, arcs that were scanned, and its prices."""
    began = time.process_time()
    answer = solve(question)
    return time.process_time() - began, answer.scanned, answer.prices


def scaling_s(graph: Graph) -> float:
    """Processor time of OR-tools, in a process that has not loaded HiGHS."""
    scaled_here(((1, -1), (0,), (1,), (1,), (1,)))  # loads it
    began = time.process_time()
    scaled_here(astuple(graph))
    return time.process_time() - began


def main() -> None:
    """Print the figures, a line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the first case alone")
    quick: bool = parser.parse_args().quick
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        for case in CASES[:1] if quick else CASES:
            graph = graph_of(case)
            cold_s, cold_arcs, prices = spent_s(FlowProblem(graph))
            warm_s, warm_arcs, _ = spent_s(FlowProblem(graph, prices))
            scaled_s = apart.submit(scaling_s, graph).result()
            with_answer_s, _, _ = spent_s(FlowProblem(graph, solver="scaling"))
            found = {
                **case._asdict(),
                "tasks": sum(supply > 0 for supply in graph.supplies),
                "arcs": len(graph.tails),
                "cold_s": round(cold_s, 4),
                "cold_scanned": cold_arcs,
                "warm_s": round(warm_s, 4),
                "warm_scanned": warm_arcs,
                "ortools_s": round(scaled_s, 4),
                "ortools_here_s": round(with_answer_s, 4),
            }
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
