"""What both orders do alike, and the queue that asks them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.core.model import Task
from volery.core.resources import Packing
from volery.policies.fairness.drf import FairOrder, Ranking, WeightedDrf, filling
from volery.policies.fairness.hdrf import HierarchicalDrf
from volery.policies.fairness.queue import FairQueue, FairVectorQueue
from volery.policies.fairness.shares import dominant_share, equal_users

BOTH = pytest.mark.parametrize("kind", [WeightedDrf, HierarchicalDrf])


@BOTH
def test_who_is_refused_is_passed_over_this_time(kind: type[WeightedDrf | HierarchicalDrf]) -> None:
    order = kind((4,))
    for user in "abc":
        order.wants(user, (1,))
    asked: list[str] = []

    def accepts(user: str) -> bool:
        asked.append(user)
        return user == "c"

    assert order.choose(accepts) == "c"
    assert asked == ["a", "b", "c"]
    assert order.choose() == "a"
    assert order.choose(lambda user: False) is None
    assert order.choose() == "a"
    order.check()


@BOTH
def test_what_ends_and_what_nobody_wants(kind: type[WeightedDrf | HierarchicalDrf]) -> None:
    order = kind((4, 8))
    assert order.choose() is None
    order.wants("a", (1, 4))
    order.wants("b", (3, 1))
    order.launched("a", (1, 4))
    assert order.share("a") == Fraction(1, 2)
    assert order.choose() == "b"
    order.launched("b", (3, 1))
    assert order.choose() is None, "no CPU is left"
    order.ended("a", (1, 4))
    assert order.choose() == "a"
    order.wants("a", None)
    assert order.choose() is None, "b's next task needs 3 CPUs"
    order.ended("b", (3, 1))
    assert order.choose() == "b"
    order.check()


@BOTH
def test_demands_and_capacities_that_make_no_sense_are_refused(kind: type[WeightedDrf | HierarchicalDrf]) -> None:
    for capacity in ((), (3, -1)):
        with pytest.raises(ValueError, match="capacity of every resource, from 0"):
            kind(capacity)
    for demand in ((1,), (-1, 2)):
        with pytest.raises(ValueError, match="is no demand on 2 resources"):
            kind((3, 3)).wants("a", demand)


def test_filling_with_tasks_that_take_nothing_would_never_end_and_is_refused() -> None:
    with pytest.raises(ValueError, match="the tasks of 'b' take nothing"):
        list(filling(WeightedDrf((3,)), {"a": (1,), "b": (0,)}))


def test_filling_ends_with_the_tasks() -> None:
    assert list(filling(WeightedDrf((9,)), {"a": (1,), "b": (2,), "c": (1,)}, {"a": 2, "b": 1})) == ["a", "b", "a"]


def test_a_weight_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="the weight of 'a' is 0"):
        WeightedDrf((1,), {"a": 0})


@BOTH
def test_check_notices_units_that_were_never_there(kind: type[WeightedDrf | HierarchicalDrf]) -> None:
    order = kind((2,))
    order.ended("a", (1,))
    with pytest.raises(AssertionError, match="a uses"):
        order.check()


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(-3, 3)), max_size=60))
def test_a_ranking_is_what_sorting_gives(steps: list[tuple[int, int | None]]) -> None:
    ranking = Ranking()
    keys: dict[int, int] = {}
    for member, key in steps:
        if key is None:
            ranking.remove(member)
            keys.pop(member, None)
        else:
            ranking.place(member, key)
            keys[member] = key
        assert list(ranking) == sorted(keys, key=lambda m: (keys[m], m))
        assert len(ranking) == len(keys)
        assert ranking.key(member) == keys.get(member)


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=60))
def test_a_fair_queue_takes_the_poorest_users_oldest_task_that_fits(
    hierarchical: bool, steps: list[tuple[int, int]]
) -> None:
    users = ["a", "b", "c"]
    order: FairOrder = HierarchicalDrf((99,), equal_users(*users)) if hierarchical else WeightedDrf((99,))
    queue = FairQueue(order)
    for job, user in enumerate(users):
        queue.belongs(job, user)
        order.wants(user, None)
    waiting: list[Task] = []
    running: list[Task] = []
    for number, (kind, mask) in enumerate(steps):
        if kind < 3:
            waiting.append(Task(number, kind, mask))
            queue.push(waiting[-1])
            continue
        counts = [sum(task.job == job for task in running) for job in range(3)]
        fitting = [task for task in waiting if not task.constraints & ~mask]
        expected = min(fitting, key=lambda task: (counts[task.job], task.job, task.id), default=None)
        assert queue.pop_fitting(mask) == expected
        if expected is not None:
            waiting.remove(expected)
            running.append(expected)
            queue.launched(expected)
        if number % 4 == 0 and running:
            queue.ended(running.pop(0))
        assert sorted(queue.masks()) == sorted({task.constraints for task in waiting})
        queue.check()
    gone = queue.remove(lambda task: task.job == 1)
    assert sorted(task.id for task in gone) == [task.id for task in waiting if task.job == 1]
    assert queue.length == len(waiting) - len(gone)
    queue.check()


CAPACITY = (30, 60)


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 6), st.integers(0, 6)), max_size=60),
)
def test_a_fair_queue_of_vectors_takes_the_oldest_fitting_task_of_the_least_dominant_share(
    hierarchical: bool, steps: list[tuple[int, int, int, int]]
) -> None:
    users, packing = ["a", "b", "c"], Packing(2)
    order = HierarchicalDrf(CAPACITY, equal_users(*users)) if hierarchical else WeightedDrf(CAPACITY)
    queue = FairVectorQueue(order, packing)
    for job, user in enumerate(users):
        queue.belongs(job, user)
        order.wants(user, None)
    waiting: list[Task] = []
    running: list[Task] = []
    for number, (kind, mask, cpus, memory) in enumerate(steps):
        if kind < 3:
            waiting.append(Task(number, kind, mask, request=(cpus, memory)))
            queue.push(waiting[-1])
            continue
        used = [tuple(sum(t.request[j] for t in running if t.job == job) for j in range(2)) for job in range(3)]
        left = [whole - sum(column) for whole, column in zip(CAPACITY, zip(*used, strict=True), strict=True)]
        free = (min(cpus, left[0]), min(memory, left[1]))
        fitting = [
            t for t in waiting if not t.constraints & ~mask and t.request[0] <= free[0] and t.request[1] <= free[1]
        ]
        expected = min(fitting, key=lambda t: (dominant_share(used[t.job], CAPACITY), t.job, t.id), default=None)
        assert queue.pop_fitting(mask, packing.free(free)) == expected
        if expected is not None:
            waiting.remove(expected)
            running.append(expected)
            queue.launched(expected)
        if number % 3 == 0 and running:
            queue.ended(running.pop(0))
        assert sorted(queue.kinds()) == sorted({(task.constraints, task.request) for task in waiting})
        queue.check()
    gone = queue.remove(lambda task: task.job == 1)
    assert sorted(task.id for task in gone) == [task.id for task in waiting if task.job == 1]
    queue.check()


def test_a_user_that_gets_another_weight_has_another_turn_from_then_on() -> None:
    order = WeightedDrf((8,), {"a": 1, "b": 1})
    for user in ("a", "b"):
        order.wants(user, (1,))
        order.launched(user, (1,))
    order.launched("a", (1,))
    assert order.choose() == "b"
    order.reweigh("a", 3)
    order.check()
    assert order.choose() == "a"
    with pytest.raises(ValueError, match="at least 1"):
        order.reweigh("a", 0)
