"""Messages between the schedulers and node monitors of Sparrow.

A batch is what was probed for together: the tasks of a job that need the same constraints, or one task. What all
designs with reservations say stands in `roles/reservations.py`.
"""

from __future__ import annotations

from volery.core.model import Message, Task
from volery.roles.reservations import Completed, Kill, NoTask, TaskRequest, Withdraw


class Probe(Message, frozen=True):
    """Scheduler > node: a reservation; it holds no task."""

    number: int
    batch: int
    user: str = ""


class Assign(Message, frozen=True):
    """Scheduler > node: run this task in the slot that waits for the answer."""

    request: int
    task: Task


class QueueLength(Message, frozen=True):
    """Node > scheduler, without late binding: the answer to a probe, running tasks included."""

    batch: int
    number: int
    length: int


class Place(Message, frozen=True):
    """Scheduler > node, without late binding: run this task when a slot is free."""

    number: int
    task: Task
    user: str = ""


MESSAGES: frozenset[type[Message]] = frozenset(
    {Probe, TaskRequest, Assign, NoTask, Withdraw, QueueLength, Place, Kill, Completed}
)
