"""What the job tracker and its nodes say to each other."""

from __future__ import annotations

import msgspec

from volery.core.model import Message, Task, TaskId


class Launch(Message, frozen=True):
    """Job tracker > node: run the task. Numbers grow, so that a repeated or overtaken launch is recognised."""

    number: int
    task: Task
    attempt: int


class Kill(Message, frozen=True):
    """Job tracker > node: end the attempt, if it still runs."""

    task: TaskId
    attempt: int


class Ended(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An attempt that ended on a node; one that did not finish was killed."""

    task: TaskId
    attempt: int
    finished: bool


class Heartbeat(Message, frozen=True):
    """Node > job tracker: what has ended here since the last heartbeat."""

    ended: tuple[Ended, ...]


MESSAGES: frozenset[type[Message]] = frozenset({Launch, Kill, Heartbeat})
