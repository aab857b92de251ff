"""Messages between the schedulers, the coordinator and the nodes of Mercury."""

from __future__ import annotations

from volery.core.model import JobId, Message, Task, TaskId, Time
from volery.roles.reservations import Completed, Kill


class GuaranteedRequest(Message, frozen=True):
    """Scheduler > coordinator: a guaranteed container for each of these tasks."""

    number: int
    tasks: tuple[Task, ...]


class Start(Message, frozen=True):
    """Coordinator > node: run the task in a guaranteed container, at once."""

    number: int
    task: Task


class Place(Message, frozen=True):
    """Scheduler > node: run the task in a queueable container, when a slot is free.

    Args:
        number: Number that grows with each message of the sender.
        task, attempt: The task and the attempt to run.
        left: Number of tasks of the job that have not ended, this one included.
        moves: Number of times that it was shed.
    """

    number: int
    task: Task
    attempt: int
    left: int
    moves: int = 0


class Returned(Message, frozen=True):
    """Node > scheduler: a queueable container was shed or preempted; it has to be placed again.

    Args:
        number: Number that grows with each message of the sender.
        task, attempt: The task and the attempt to be run next.
        moves: Number of times that it was shed.
        shed: Whether it was shed, and not preempted.
        wait_us, length: Load of the node, as in a heartbeat.
    """

    number: int
    task: Task
    attempt: int
    moves: int
    shed: bool
    wait_us: Time
    length: int


class Heartbeat(Message, frozen=True):
    """Node > coordinator: its load, and the guaranteed containers that have ended since the last one.

    Args:
        number: Number that grows with each message of the sender.
        wait_us: Estimated wait of a container that would be queued now.
        length: Length of the queue, or minus the number of idle slots.
        released: Tasks of guaranteed containers that have ended.
    """

    number: int
    wait_us: Time
    length: int
    released: tuple[TaskId, ...]


class Loads(Message, frozen=True):
    """Coordinator > scheduler: loads that have changed, for each of these machines as in a heartbeat."""

    machines: tuple[int, ...]
    wait_us: tuple[Time, ...]
    length: tuple[int, ...]


class Limit(Message, frozen=True):
    """Coordinator > node: shed the queued containers that are beyond this wait (microseconds) or place in the queue."""

    most: int


class Revoke(Message, frozen=True):
    """Scheduler > coordinator: the job is cancelled; drop or kill its guaranteed containers."""

    job: JobId


class Revoked(Message, frozen=True):
    """Coordinator > scheduler: these tasks of the job were dropped; the others are killed, and Completed follows."""

    job: JobId
    tasks: tuple[TaskId, ...]


MESSAGES: frozenset[type[Message]] = frozenset(
    {GuaranteedRequest, Start, Place, Returned, Heartbeat, Loads, Limit, Revoke, Revoked, Kill, Completed}
)
