"""Load of a workload without any scheduler."""

from __future__ import annotations

import itertools
from array import array

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volery.core.model import SECOND, Cluster
from volery.core.trace import Trace
from volery.metrics import conflicts_per_second, constraint_load, over_intervals, total_load
from volery.metrics.demand import ConflictCounts, Matching


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

    def test_machines_that_offer_amounts_have_a_load_of_the_resource_that_is_asked_for_most(self) -> None:
        """Three of six cores are half of them, where 30 of 300 MB are a tenth."""
        offers = ((2, 100), (4, 100), (0, 100))
        cluster = Cluster((0b01, 0b01, 0b00), (1, 1, 1), resources=("cores", "memory_mb"), capacities=offers)
        trace = msgspec.structs.replace(
            trace_of((0, 1, 0b01), (0, 1, 0)),
            resources=cluster.resources,
            requests=((3, 0), (0, 30)),
            request=array("H", [0, 1]),
        )
        assert [load.mean for load in constraint_load(trace, cluster)] == [0.5]
        assert total_load(trace, cluster).mean == 0.5

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

    def test_a_long_course_of_changes_stays_a_maximum(self) -> None:
        """Regions without a way out are kept from second to second: a search anew agrees after each of 150 changes."""
        random = np.random.default_rng(4)
        machines = random.integers(0, 64, 40).tolist()
        cluster = Cluster(tuple(machines), (1,) * 40)
        kinds = [kind for kind in range(64) if any(kind & machine == kind for machine in machines)]
        matching, active, waited = Matching(kinds, cluster), np.zeros(len(kinds), dtype=int), 0
        for _ in range(150):
            wanted = np.maximum(active + random.integers(-2, 3, len(kinds)) * (random.random(len(kinds)) < 0.2), 0)
            wanted = np.minimum(wanted, 3)
            for kind, change in enumerate(wanted - active):
                if change:
                    matching.change(kind, int(change))
            active = wanted
            tasks = [kinds[k] for k in np.repeat(np.arange(len(kinds)), active).tolist()]
            found = matching.improve()
            assert found == len(tasks) - most_by_paths(tasks, machines)
            matching.check()
            waited += found > 0
        assert waited > 40, "in many seconds some have to wait"


class TestIntervals:
    def test_intervals_hold_the_mean_and_the_worst_second(self) -> None:
        second = np.arange(10, 15)
        counts = ConflictCounts(second, np.array([0, 4, 1, 1, 7]), np.array([0.5, 1.5, 0.0, 1.0, 2.0]))
        found = over_intervals(counts, 3)
        assert found["begin_s"].tolist() == [10, 12, 14]
        assert found["end_s"].tolist() == [12, 14, 15]
        assert found["waiting"].tolist() == [2, 1, 7]
        assert found["waiting_max"].tolist() == [4, 1, 7]
        assert found["collisions"].tolist() == [1, 0.5, 2]
        assert found["collisions_max"].tolist() == [1.5, 1, 2]

    def test_nothing_active_is_no_interval(self) -> None:
        nothing = conflicts_per_second(trace_of(), Cluster.uniform(2))
        assert {name: column.size for name, column in over_intervals(nothing).items()} == dict.fromkeys(
            ("begin_s", "end_s", "waiting", "waiting_max", "collisions", "collisions_max"), 0
        )


def most_by_paths(tasks: list[int], machines: list[int]) -> int:
    """The size of a maximum matching, one augmenting path after the other (Kuhn)."""
    holder: dict[int, int] = {}

    def place(task: int, seen: set[int]) -> bool:
        for slot, machine in enumerate(machines):
            if tasks[task] & machine == tasks[task] and slot not in seen:
                seen.add(slot)
                if slot not in holder or place(holder[slot], seen):
                    holder[slot] = task
                    return True
        return False

    return sum(place(task, set()) for task in range(len(tasks)))


def most_at_once(tasks: list[int], machines: list[int]) -> int:
    """The size of a maximum matching, by brute force."""
    padded = tasks + [-1] * max(0, len(machines) - len(tasks))
    return max(
        sum(task >= 0 and task & machine == task for task, machine in zip(chosen, machines, strict=True))
        for chosen in itertools.permutations(padded, len(machines))
    )
