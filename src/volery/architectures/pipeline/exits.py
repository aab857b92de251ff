"""Attempts that are being ended on purpose, and the launches that wait for their ends.

In the scheduler's state such a task has given its room back, and others may have been given it. They are launched when
the machine has heard of all ends: one round trip later, so that no machine ever holds both.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from volery.architectures.pipeline.policies import Running, Waiting
from volery.core.model import TaskId


class Then(StrEnum):
    """What becomes of a task whose attempt was ended."""

    QUEUE = "queue"
    """It goes back to the queue."""
    MOVE = "move"
    """It goes on elsewhere."""
    NOTHING = "nothing"
    """Another attempt of it goes on, or has finished."""
    OVER = "over"
    """It is not wanted any more."""


class Exit(msgspec.Struct):
    """An attempt that is being ended.

    Args:
        running: its record.
        attempt: its number.
        then: what becomes of its task.
        beneficiary: the task that gets its place; NEVER: none.
        target: where it goes on.
    """

    running: Running
    attempt: int
    then: Then
    beneficiary: TaskId
    target: Running | None = None

    @property
    def waiting(self) -> Waiting:
        """The task's record."""
        return self.running.waiting


class Exits:
    """All attempts of a scheduler that are being ended, and the launches that wait for these ends.

    Attributes:
        open: by task and attempt.
    """

    __slots__ = ("_counts", "_held", "open")

    def __init__(self) -> None:
        self.open: dict[tuple[TaskId, int], Exit] = {}
        self._counts: dict[int, int] = {}
        self._held: dict[int, list[Running]] = {}

    def add(self, leaving: Exit) -> None:
        """An attempt is being ended."""
        self.open[leaving.waiting.task.id, leaving.attempt] = leaving
        machine = leaving.running.machine
        self._counts[machine] = self._counts.get(machine, 0) + 1

    def holds(self, running: Running) -> bool:
        """Whether a launch has to wait; then it is kept."""
        if running.machine not in self._counts:
            return False
        self._held.setdefault(running.machine, []).append(running)
        return True

    def at(self, machine: int) -> bool:
        """Whether something is being ended there."""
        return machine in self._counts

    def drop(self, running: Running) -> None:
        """A launch that waits is not wanted any more."""
        held = self._held.get(running.machine, [])
        if any(one is running for one in held):
            self._held[running.machine] = [one for one in held if one is not running]

    def close(self, task: TaskId, attempt: int) -> tuple[Exit | None, list[Running]]:
        """An end was heard of; returns what it was, and the launches that need not wait any more."""
        leaving = self.open.pop((task, attempt), None)
        if leaving is None:
            return None, []
        machine = leaving.running.machine
        self._counts[machine] -= 1
        if self._counts[machine]:
            return leaving, []
        del self._counts[machine]
        return leaving, self._held.pop(machine, [])

    def clear(self, machine: int) -> list[Exit]:
        """A machine is dead: nothing more will be heard of what was to end there."""
        found = [leaving for leaving in self.open.values() if leaving.running.machine == machine]
        for leaving in found:
            self.close(leaving.waiting.task.id, leaving.attempt)
        return found

    def of_task(self, task: TaskId) -> list[Exit]:
        """Attempts of a task that are being ended."""
        return [leaving for (number, _), leaving in self.open.items() if number == task]

    def check_rest(self) -> None:
        """Raise AssertionError where an end was never heard of."""
        assert not self.open, f"ends of {list(self.open)} were not heard of"
        assert not self._held, "launches wait for nothing"
