"""What schedulers and node monitors of Sparrow say to each other.

A batch is what was probed for together: the tasks of a job that need the same constraints, or one task. Every
reservation has a number of its own, and so has every request of a node, so that a repeated message is recognised.
"""

from __future__ import annotations

from volery.core.model import JobId, Message, Task, TaskId, Time


class Probe(Message, frozen=True):
    """Scheduler > node: a reservation; it holds no task."""

    number: int
    batch: int
    user: str = ""


class TaskRequest(Message, frozen=True):
    """Node > scheduler: a slot is kept for this reservation.

    `queued` others wait there; this one has waited `blocked_us` while long tasks held every slot.
    """

    batch: int
    number: int
    request: int
    queued: int
    blocked_us: Time = 0


class Assign(Message, frozen=True):
    """Scheduler > node: run this task in the slot that was kept."""

    request: int
    task: Task


class NoTask(Message, frozen=True):
    """Scheduler > node: nothing is left to run for this reservation."""

    request: int


class Withdraw(Message, frozen=True):
    """Scheduler > node: drop the reservation if it still waits (proactive cancellation)."""

    number: int


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


class Kill(Message, frozen=True):
    """Scheduler > node: end the task or drop it from the queue; Completed follows."""

    task: TaskId


class Completed(Message, frozen=True):
    """Node > scheduler: the result. `blocked_us`, without late binding: as in a request."""

    task: TaskId
    job: JobId
    blocked_us: Time = 0


MESSAGES: frozenset[type[Message]] = frozenset(
    {Probe, TaskRequest, Assign, NoTask, Withdraw, QueueLength, Place, Kill, Completed}
)
