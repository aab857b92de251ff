"""The queue for several resources against a plain list."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from volery.core.model import Amounts, Task
from volery.core.resources import Packing
from volery.policies.vectorqueue import LOOP_MAX, VectorQueue

PACKING = Packing(2)
MASKS = st.integers(0, 7)
AMOUNTS = st.tuples(st.integers(0, 9), st.integers(0, 9))


def fits(task: Task, offered: int, free: Amounts) -> bool:
    return not task.constraints & ~offered and all(a <= b for a, b in zip(task.request, free, strict=True))


class AgainstAList(RuleBasedStateMachine):
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

    @rule(seed=st.integers(0, 1 << 20), count=st.integers(LOOP_MAX, 3 * LOOP_MAX))
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


AgainstAList.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAgainstAList = AgainstAList.TestCase
