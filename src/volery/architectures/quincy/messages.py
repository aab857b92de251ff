"""What the scheduler and its nodes say to each other."""

from __future__ import annotations

from typing import Final

from volery.core.model import Message, Task, TaskId


class Launch(Message, frozen=True):
    """Scheduler > node: run the task; launches to a node are numbered."""

    number: int
    task: Task
    attempt: int


class Kill(Message, frozen=True):
    """Scheduler > node: end the attempt, if it still runs."""

    task: TaskId
    attempt: int


class Ended(Message, frozen=True):
    """Node > scheduler: an attempt has ended; one that did not finish was killed."""

    task: TaskId
    attempt: int
    finished: bool


MESSAGES: Final[frozenset[type[Message]]] = frozenset({Launch, Kill, Ended})
