"""The policies and parts that a scheduler is assembled from."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from volery.architectures.pipeline.allocs import Allocs
from volery.architectures.pipeline.attempts import Migration, Speculation
from volery.architectures.pipeline.autoscaler import Autoscaler
from volery.architectures.pipeline.delay import DelayScheduling
from volery.architectures.pipeline.monitor import Monitor
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
        starts_gangs: Whether gangs are started whole; else each member is a task of its own.
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
    starts_gangs: bool = False

    def cost_us(self, try_count: int) -> Time:
        """The cost of a cycle in which so many tasks are tried."""
        return self.decision_us + self.task_us * -(-try_count // self.ways)


class CycleParts(NamedTuple):
    """The parts of a cycle of which each may be missing.

    Args:
        speculation: Stage T9; None: one attempt at a time.
        migration: Stage T12; None: a task ends where it began.
        autoscaler: Stages R6 and R7; None: all machines are always on.
        delay: Stage R3 by distance; None: distance is not regarded.
        monitor: Stage T6; None: nodes report ends alone.
        allocs: Room that is reserved for jobs whose tasks have ended; None: there is none.
    """

    speculation: Speculation | None = None
    migration: Migration | None = None
    autoscaler: Autoscaler | None = None
    delay: DelayScheduling | None = None
    monitor: Monitor | None = None
    allocs: Allocs | None = None


NO_PARTS: Final = CycleParts()
