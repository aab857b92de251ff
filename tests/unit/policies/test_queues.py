"""The constraint queue, and the queue for several resources, against plain lists."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from volery.core.model import Amounts, Task
from volery.core.resources import Packing
from volery.policies.queues import KINDS_LOOP_MAX, LOOP_MAX, ConstraintQueue, VectorQueue

BITS = 9
"""512 constraint sets: far more than the loop's limit."""


class AgainstAList(RuleBasedStateMachine):
    """Whatever is pushed and popped, the queue gives what a list would give that is searched from its head."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ConstraintQueue()
        self.model: list[Task] = []
        self.made = 0

    def _task(self, mask: int) -> Task:
        self.made += 1
        return Task(self.made, 0, mask)

    @rule(mask=st.integers(0, (1 << BITS) - 1))
    def push(self, mask: int) -> None:
        task = self._task(mask)
        self.queue.push(task)
        self.model.append(task)

    @rule(mask=st.integers(0, (1 << BITS) - 1))
    def push_front(self, mask: int) -> None:
        task = self._task(mask)
        self.queue.push_front(task)
        self.model.insert(0, task)

    @rule(masks=st.lists(st.integers(0, (1 << BITS) - 1), min_size=LOOP_MAX, max_size=2 * LOOP_MAX))
    def push_many(self, masks: list[int]) -> None:
        for mask in masks:
            self.push(mask)

    @precondition(lambda self: self.model)
    @rule(offered=st.integers(0, (1 << BITS) - 1) | st.sampled_from([0, (1 << BITS) - 1]))
    def pop(self, offered: int) -> None:
        expected = next((task for task in self.model if not task.constraints & ~offered), None)
        assert self.queue.pop_fitting(offered) == expected
        if expected is not None:
            self.model.remove(expected)

    @rule(bit=st.integers(0, BITS - 1), modulus=st.integers(1, 3))
    def remove(self, bit: int, modulus: int) -> None:
        def unwanted(task: Task) -> bool:
            return bool(task.constraints >> bit & 1) and task.id % modulus == 0

        removed = self.queue.remove(unwanted)
        assert sorted(task.id for task in removed) == sorted(task.id for task in self.model if unwanted(task))
        self.model = [task for task in self.model if not unwanted(task)]

    @precondition(lambda self: len(self.model) > LOOP_MAX)
    @rule(offered=st.integers(0, (1 << BITS) - 1))
    def pop_all_that_fit(self, offered: int) -> None:
        while (task := self.queue.pop_fitting(offered)) is not None:
            assert task == next(t for t in self.model if not t.constraints & ~offered)
            self.model.remove(task)

    @invariant()
    def same_length_and_masks(self) -> None:
        assert self.queue.length == len(self.model)
        assert set(self.queue.masks()) == {task.constraints for task in self.model}


TestAgainstAList = AgainstAList.TestCase
TestAgainstAList.settings = settings(max_examples=40, stateful_step_count=30, derandomize=True)


def test_an_empty_queue_gives_nothing() -> None:
    assert ConstraintQueue().pop_fitting((1 << 63) - 1) is None


@pytest.mark.parametrize("distinct", [LOOP_MAX, LOOP_MAX + 1, 3 * LOOP_MAX])
def test_the_loop_and_the_array_pass_agree_on_the_widest_sets(distinct: int) -> None:
    """Sets of up to 63 constraints fit the arrays' integers."""
    queue = ConstraintQueue()
    tasks = [Task(k, 0, (1 << 62) | k) for k in range(distinct)]
    for task in tasks:
        queue.push(task)
    assert queue.pop_fitting((1 << 62) - 1) is None
    assert [queue.pop_fitting((1 << 63) - 1) for _ in tasks] == tasks


def test_a_task_put_back_in_front_is_served_first_whatever_its_constraints() -> None:
    """An invalid placement is tried again before all that wait (Megha, section 2.1)."""
    queue = ConstraintQueue()
    for k in range(3):
        queue.push(Task(k, 0, 0))
    queue.push_front(Task(10, 0, 1))
    queue.push_front(Task(11, 0, 0))
    assert [task.id for _ in range(5) if (task := queue.pop_fitting(1))] == [11, 10, 0, 1, 2]


@pytest.mark.parametrize("shift", [0, 14, 15, 50])
def test_constraints_beyond_a_key_are_served_in_the_same_order(shift: int) -> None:
    """Keys hold 23 constraints; the queue changes its way when a set comes that does not fit."""
    stream = Random(shift)
    queue = ConstraintQueue()
    waiting: list[Task] = []
    for number in range(4000):
        mask = stream.getrandbits(BITS) << (shift if number > 1000 else 0)
        task = Task(number, 0, mask)
        if stream.random() < 0.1:
            queue.push_front(task)
            waiting.insert(0, task)
        else:
            queue.push(task)
            waiting.append(task)
        if stream.random() < 0.7:
            offered = (stream.getrandbits(BITS) | stream.getrandbits(BITS)) << shift | stream.getrandbits(BITS)
            expected = next((task for task in waiting if not task.constraints & ~offered), None)
            assert queue.pop_fitting(offered) == expected
            if expected is not None:
                waiting.remove(expected)
    assert queue.length == len(waiting)


PACKING = Packing(2)
MASKS = st.integers(0, 7)
AMOUNTS = st.tuples(st.integers(0, 9), st.integers(0, 9))


def fits(task: Task, offered: int, free: Amounts) -> bool:
    return not task.constraints & ~offered and all(a <= b for a, b in zip(task.request, free, strict=True))


class VectorsAgainstAList(RuleBasedStateMachine):
    """Whatever is pushed and popped, the queue gives what a list would give that is searched from its head."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = VectorQueue(PACKING)
        self.model: list[Task] = []
        self.made = 0

    def _task(self, mask: int, request: Amounts) -> Task:
        self.made += 1
        return Task(self.made, 0, mask, request=request)

    @rule(mask=MASKS, request=AMOUNTS)
    def push(self, mask: int, request: Amounts) -> None:
        task = self._task(mask, request)
        self.queue.push(task)
        self.model.append(task)

    @rule(mask=MASKS, request=AMOUNTS)
    def push_front(self, mask: int, request: Amounts) -> None:
        task = self._task(mask, request)
        self.queue.push_front(task)
        self.model.insert(0, task)

    @rule(seed=st.integers(0, 1 << 20), count=st.integers(KINDS_LOOP_MAX, 3 * KINDS_LOOP_MAX))
    def push_many(self, seed: int, count: int) -> None:
        stream = Random(seed)
        for _ in range(count):
            self.push(stream.randrange(8), (stream.randrange(10), stream.randrange(10)))

    @rule(offered=MASKS, free=AMOUNTS)
    def pop(self, offered: int, free: Amounts) -> None:
        expected = next((task for task in self.model if fits(task, offered, free)), None)
        assert self.queue.first_fitting(offered, PACKING.free(free)) == expected
        assert self.queue.pop_fitting(offered, PACKING.free(free)) == expected
        if expected is not None:
            self.model.remove(expected)

    @rule(modulus=st.integers(1, 3))
    def remove(self, modulus: int) -> None:
        def unwanted(task: Task) -> bool:
            return task.id % modulus == 0

        assert sorted(task.id for task in self.queue.remove(unwanted)) == sorted(
            task.id for task in self.model if unwanted(task)
        )
        self.model = [task for task in self.model if not unwanted(task)]

    @invariant()
    def length_and_kinds(self) -> None:
        assert self.queue.length == len(self.model)
        assert set(self.queue.kinds()) == {(task.constraints, task.request) for task in self.model}
        assert not self.model or self.queue.first() == self.model[0]


VectorsAgainstAList.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestVectorsAgainstAList = VectorsAgainstAList.TestCase
