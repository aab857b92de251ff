"""The assembly of a scheduler: its policies and what its cycles cost, and the component whose tasks it places."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from volery.architectures.pipeline.policies import Waiting
from volery.core.model import Time


class Assembly(msgspec.Struct, frozen=True):
    """The policies that a scheduler is assembled from, and what its cycles cost.

    Args:
        policies: Policies by the id of their stage; of all stages that have policies.
        iteration: Mode of stage T3 where a task does not fit: skip, strict, easy, conservative or every.
        cycle_us: Period of cycles; 0: whenever something has changed.
        decision_us: Cost of a cycle.
        task_us: Cost of each task that is tried, in addition.
        per_instant: Whether, without a period, there is one cycle after all that happens in an instant, not after each
            event.
        alloc_us: Time for which the room of a task that has ended is reserved for its job; 0: it is not.
        ways: Number of tasks that are tried at once (stage J4); it divides their cost.
    """

    policies: dict[str, Any]
    iteration: str = "skip"
    cycle_us: Time = 0
    decision_us: Time = 0
    task_us: Time = 0
    ways: int = 1
    per_instant: bool = False
    alloc_us: Time = 0

    def cost_us(self, try_count: int) -> Time:
        """The cost of a cycle in which so many tasks are tried."""
        return self.decision_us + self.task_us * -(-try_count // self.ways)


class TaskSource(Protocol):
    """The component whose tasks a cycle places."""

    def admit(self, now: Time) -> None:
        """Queue the tasks of jobs that have become eligible (stage J2)."""

    def finish(self, waiting: Waiting, now: Time) -> None:
        """Take in the end of a task."""
