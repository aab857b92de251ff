"""Loads and conflicts of a workload, before any scheduler."""

from __future__ import annotations

import itertools
from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volery.core.model import SECOND, Cluster
from volery.core.trace import Trace
from volery.metrics import conflicts_per_second, constraint_load, total_load
from volery.metrics.conflicts import Matching


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


class TestConflicts:
    def test_two_tasks_that_need_the_one_special_machine_conflict(self) -> None:
        cluster = Cluster((1, 0, 0), (1, 1, 1))
        found = conflicts_per_second(trace_of((3, 2, 1), (4, 2, 1), (4, 1, 0)), cluster)
        assert found.second.tolist() == [3, 4, 5]
        assert found.waiting.tolist() == [0, 1, 0]
        # In second 4 the third task draws the special machine, too, once in three times.
        assert found.collisions.tolist() == pytest.approx([0, 1 + 1 / 3, 0], abs=1e-6)

    def test_a_task_switches_to_another_machine_when_that_helps(self) -> None:
        cluster = Cluster((0b01, 0b11), (1, 1))
        found = conflicts_per_second(trace_of((0, 3, 0b01), (1, 2, 0b01), (2, 1, 0b10)), cluster)
        assert found.waiting.tolist() == [0, 0, 1]
        found = conflicts_per_second(trace_of((0, 3, 0b01), (1, 2, 0b10)), cluster)
        assert found.waiting.tolist() == [0, 0, 0]
        assert found.collisions.tolist() == pytest.approx([0, 0.5, 0.5], abs=1e-6)

    def test_unsatisfiable_tasks_are_no_conflicts(self) -> None:
        assert conflicts_per_second(trace_of((0, 1, 0b10)), Cluster((1,), (1,))).second.size == 0

    def test_a_machine_with_two_slots_runs_two(self) -> None:
        found = conflicts_per_second(trace_of((0, 1, 1), (0, 1, 1), (0, 1, 1)), Cluster((1,), (2,)))
        assert found.waiting.tolist() == [1]
        assert found.collisions.tolist() == pytest.approx([3 - 2 * (1 - 0.5**3)])

    def test_expected_collisions_agree_with_drawing(self) -> None:
        random = np.random.default_rng(2)
        machines = random.integers(0, 8, 60)
        needs = random.integers(0, 8, 40)
        cluster = Cluster(tuple(machines.tolist()), (1,) * 60)
        expected = conflicts_per_second(trace_of(*[(0, 1, int(need)) for need in needs]), cluster).collisions[0]
        fitting = [np.flatnonzero((machines & need) == need) for need in needs]
        drawn = [len(needs) - len({int(random.choice(slots)) for slots in fitting}) for _ in range(2000)]
        assert expected == pytest.approx(np.mean(drawn), abs=0.2)

    @settings(max_examples=150)
    @given(
        machines=st.lists(st.integers(0, 7), min_size=1, max_size=4),
        rounds=st.lists(st.lists(st.integers(0, 7), max_size=5), min_size=1, max_size=4),
    )
    def test_no_assignment_runs_more_tasks(self, machines: list[int], rounds: list[list[int]]) -> None:
        """The kept-up matching agrees with trying every assignment, and never breaks a constraint."""
        cluster = Cluster(tuple(machines), (1,) * len(machines))
        matching = Matching(list(range(8)), cluster)
        active = np.zeros(8, dtype=int)
        for tasks in rounds:
            wanted = np.bincount(np.array(tasks, dtype=int), minlength=8)
            for kind, change in enumerate(wanted - active):
                matching.change(kind, int(change))
            active = wanted
            assert matching.improve() == len(tasks) - most_at_once(tasks, machines)
            matching.check()


def most_at_once(tasks: list[int], machines: list[int]) -> int:
    """The size of a maximum matching, by brute force."""
    padded = tasks + [-1] * max(0, len(machines) - len(tasks))
    return max(
        sum(task >= 0 and task & machine == task for task, machine in zip(chosen, machines, strict=True))
        for chosen in itertools.permutations(padded, len(machines))
    )
