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


class Launch(Message, frozen=True):
    """Master > node: run the task and tell the distributor its result."""

    number: int
    task: Task
    distributor: Address


class Completed(Message, frozen=True):
    """Node > distributor: the result. Node > master: the worker is idle again."""

    task: TaskId


MESSAGES: frozenset[type[Message]] = frozenset({GroupTasks, Launch, Completed})
