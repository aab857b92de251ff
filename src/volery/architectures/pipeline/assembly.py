"""The assembly of a scheduler: its policies and what its cycles cost, and the component whose tasks it places."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from volery.architectures.pipeline.policies import Waiting
from volery.core.model import Time


class Assembly(msgspec.Struct, frozen=True):
    """The policies that a scheduler is assembled from, and what its cycles cost.

    Args:
        policies: by the id of their stage: of all stages that have policies.
        iteration: how stage T3 goes on where a task does not fit: skip, strict, easy, conservative or every.
        cycle_us: the period of cycles; 0: whenever something has changed.
        decision_us: what a cycle costs.
        task_us: what it costs more for each task that is tried.
        per_instant: without a period, whether there is one cycle after all that happens in an instant, not after each
            event.
        alloc_us: how long the room of a task that has ended is kept for its job; 0: it is not.
        ways: how many tasks are tried at once (stage J4); it divides what they cost.
    """

    policies: dict[str, Any]
    iteration: str = "skip"
    cycle_us: Time = 0
    decision_us: Time = 0
    task_us: Time = 0
    ways: int = 1
    per_instant: bool = False
    alloc_us: Time = 0

    def cost_us(self, tried: int) -> Time:
        """The cost of a cycle in which so many tasks are tried."""
        return self.decision_us + self.task_us * -(-tried // self.ways)


class TaskSource(Protocol):
    """The component whose tasks a cycle places."""

    def admit(self, now: Time) -> None:
        """Queue the tasks of jobs that have become eligible (stage J2)."""

    def finish(self, waiting: Waiting, now: Time) -> None:
        """Take in the end of a task."""
