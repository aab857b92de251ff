"""Messages between the front, schedulers, the cell state and nodes, and those of offers.

Numbers count what one sender asks of one receiver, so that a repeated or stale message is recognised. What machines
have free travels as packed integers of equal length, little endian.
"""

from __future__ import annotations

from volery.core.model import JobId, Message, Tags, Task, TaskId


class Refresh(Message, frozen=True):
    """Scheduler > cell: a transaction begins; send the changes since the last one."""

    number: int


class Changes(Message, frozen=True):
    """Cell > scheduler: the machines that have changed, what they have free and their sequence numbers.

    Args:
        lower: The amounts that tasks of each priority hold; with precedence alone.
        tags: The tags of the tasks there, each with their number; only where tags are heeded.
    """

    number: int
    machines: tuple[int, ...]
    free: bytes
    sequences: tuple[int, ...]
    lower: tuple[tuple[tuple[int, bytes], ...], ...] = ()
    tags: tuple[tuple[tuple[Tags, int], ...], ...] = ()

    @property
    def entries(self) -> int:
        """The number of machines."""
        return len(self.machines)


class Commit(Message, frozen=True):
    """Scheduler > cell: the transaction's claims, in order.

    Args:
        sequences: Sequence numbers of these machines in the scheduler's copy, with its own earlier claims.
    """

    number: int
    gang: bool
    tasks: tuple[Task, ...]
    machines: tuple[int, ...]
    sequences: tuple[int, ...]
    priority: int = 0


class Verdict(Message, frozen=True):
    """Cell > scheduler: these claims were in conflict and are void; the tasks of the others run."""

    number: int
    refused: tuple[TaskId, ...]


class Withdraw(Message, frozen=True):
    """Scheduler > cell: end these tasks, which run; those that have ended already are no news."""

    tasks: tuple[TaskId, ...]


class Ended(Message, frozen=True):
    """Cell > scheduler: the task has ended and what it took is free."""

    job: JobId
    task: TaskId


class Preempted(Message, frozen=True):
    """Cell > scheduler: the task had to make way for one of higher priority, and has to be placed again."""

    task: Task
    attempt: int


class Demand(Message, frozen=True):
    """Framework > allocator: jobs wait; offers are wanted."""

    number: int


class Offer(Message, frozen=True):
    """Allocator > framework: free amounts of machines, locked for the framework until it answers."""

    number: int
    machines: tuple[int, ...]
    free: bytes

    @property
    def entries(self) -> int:
        """The number of machines."""
        return len(self.machines)


class Answer(Message, frozen=True):
    """Framework > allocator: the part of an offer that is taken; the rest is declined.

    Args:
        tasks: Tasks to be run at once, with those among them that were held.
        held: Tasks of a gang that is not whole yet; what they ask for is reserved for this framework.
    """

    number: int
    tasks: tuple[Task, ...]
    machines: tuple[int, ...]
    held: tuple[Task, ...]
    held_machines: tuple[int, ...]
    refuse_us: int
    waiting: bool


class Release(Message, frozen=True):
    """Framework > allocator: the machines kept for these tasks of a gang are not wanted any more."""

    number: int
    tasks: tuple[TaskId, ...]
