"""Load of a workload without any scheduler."""

from __future__ import annotations

from array import array

import pytest

from volery.core.model import SECOND, Cluster
from volery.core.trace import Trace
from volery.metrics import constraint_load, total_load


def trace_of(*tasks: tuple[float, float, int]) -> Trace:
    """One job per task: (arrival in seconds, duration in seconds, constraints)."""
    return Trace(
        "hand-made",
        array("q", [round(at * SECOND) for at, _, _ in tasks]),
        array("q", range(len(tasks) + 1)),
        array("q", [round(length * SECOND) for _, length, _ in tasks]),
        array("q", [1] * len(tasks)),
        array("q", [needs for _, _, needs in tasks]),
    )


class TestLoad:
    def test_load_is_demand_over_the_slots_that_have_the_constraint(self) -> None:
        cluster = Cluster((0b01, 0b11, 0b11, 0b00), (1, 1, 2, 1))
        loads = constraint_load(trace_of((0, 2, 0b01), (0, 1, 0b11), (1, 1, 0)), cluster)
        assert [load.constraint for load in loads] == [0, 1]
        assert loads[0].mean == pytest.approx((2 / 4 + 1 / 4) / 2)
        assert loads[1].mean == pytest.approx((1 / 3 + 0) / 2)
        assert loads[1].p99 == pytest.approx(0.99 / 3)
        assert total_load(trace_of((0, 2, 0), (0, 1, 0), (1, 1, 0)), cluster).mean == pytest.approx(2 / 5)

    def test_a_second_counts_the_time_that_tasks_are_active_in_it(self) -> None:
        load = total_load(trace_of((10.25, 0.5, 0), (11.5, 1.0, 0)), Cluster.uniform(1))
        assert load.mean == pytest.approx((0.5 + 0.5 + 0.5) / 3)
        assert load.median == pytest.approx(0.5)

    def test_tasks_that_no_machine_can_run_ask_for_nothing(self) -> None:
        cluster = Cluster((0b01, 0b10), (1, 1))
        loads = constraint_load(trace_of((0, 1, 0b11), (0, 1, 0b01)), cluster)
        assert [load.mean for load in loads] == [1.0, 0.0]

    def test_constraints_that_no_machine_has_are_not_listed(self) -> None:
        assert [c.constraint for c in constraint_load(trace_of((0, 1, 0)), Cluster((0b101,), (1,)))] == [0, 2]
        assert constraint_load(trace_of((0, 1, 0)), Cluster.uniform(3)) == []

    def test_a_constant_workload_has_a_constant_load(self) -> None:
        load = total_load(trace_of(*[(s, 1, 0) for s in range(1, 6) for _ in range(25)]), Cluster.uniform(100))
        assert (load.mean, load.median, load.p99) == (0.25, 0.25, 0.25)

    def test_a_trace_without_tasks_has_no_load(self) -> None:
        assert total_load(trace_of(), Cluster.uniform(2)).mean == 0.0
