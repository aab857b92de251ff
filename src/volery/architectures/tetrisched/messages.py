"""What the scheduler and its nodes say to each other."""

from __future__ import annotations

from typing import Final

from volery.core.model import Message, Task, TaskId


class Launch(Message, frozen=True):
    """Scheduler > node: run the task; launches to a node are numbered."""

    number: int
    task: Task


class Completed(Message, frozen=True):
    """Node > scheduler: the task has ended."""

    task: TaskId


class Kill(Message, frozen=True):
    """Scheduler > node: end the task; Completed follows."""

    task: TaskId


MESSAGES: Final[frozenset[type[Message]]] = frozenset({Launch, Completed, Kill})
