"""What Global Masters, Local Masters and nodes of Megha say to each other.

A unit is a worker slot, named by its partition and its position there. Numbers count the messages of one link, so that
a repeated or stale message is recognised.
"""

from __future__ import annotations

from volery.core.model import Message, Task, TaskId
from volery.roles.node import NODE_MESSAGES


class Request(Message, frozen=True):
    """GM > LM: run these tasks at these positions of a partition (validated one by one, at most `batch_max`)."""

    number: int
    partition: int
    tasks: tuple[Task, ...]
    positions: tuple[int, ...]


class Withdraw(Message, frozen=True):
    """GM > LM: end these tasks, which are placed in its cluster; those that have ended already are no news."""

    tasks: tuple[TaskId, ...]


class Notice(Message, frozen=True):
    """LM > owning GM: these tasks have finished in this instant, and their units are free."""

    tasks: tuple[TaskId, ...]


class Change(Message, frozen=True):
    """What changed in one partition: bit vectors over its positions."""

    partition: int
    freed: bytes
    taken: bytes


class Update(Message, frozen=True):
    """LM > GM: changes since the last update, or the whole state where `snapshot` is set (then freed = all free)."""

    number: int
    snapshot: bool
    changes: tuple[Change, ...]


class Ask(Message, frozen=True):
    """GM > LM: tasks wait here and find no room; send an Update once, when you have room that I do not know of."""


class Inconsistency(Message, frozen=True):
    """LM > GM: these placements were invalid; the update rides along."""

    tasks: tuple[TaskId, ...]
    update: Update


MESSAGES: frozenset[type[Message]] = NODE_MESSAGES | {
    Request, Withdraw, Notice, Change, Update, Inconsistency, Ask,
}  # fmt: skip
