"""What distributors, masters and nodes of Pigeon say to each other.

Numbers count the messages of one link, so that a repeated or stale message is recognised.
"""

from __future__ import annotations

from volery.core.model import Address, Message, Task, TaskId


class GroupTasks(Message, frozen=True):
    """Distributor > master: tasks of one job for the master's group, all of a short or all of a long job."""

    number: int
    short: bool
    tasks: tuple[Task, ...]


class Withdraw(Message, frozen=True):
    """Distributor > master: drop these tasks where they wait, kill them where they run; others are not here."""

    tasks: tuple[TaskId, ...]


class Withdrawn(Message, frozen=True):
    """Master > distributor: these tasks were waiting and will never run."""

    tasks: tuple[TaskId, ...]


class Launch(Message, frozen=True):
    """Master > node: run the task and tell the distributor its result."""

    number: int
    task: Task
    distributor: Address


class Kill(Message, frozen=True):
    """Master > node: end the task; Completed follows."""

    task: TaskId


class Completed(Message, frozen=True):
    """Node > distributor: the result. Node > master: the worker is idle again."""

    task: TaskId


MESSAGES: frozenset[type[Message]] = frozenset({GroupTasks, Withdraw, Withdrawn, Launch, Kill, Completed})
