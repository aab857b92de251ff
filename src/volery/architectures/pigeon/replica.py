"""The replica of a master's queues that its second master keeps (Pigeon, section 6.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from volery.architectures.pigeon.messages import Update
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port

UPDATE: Final = "update of the second master"


class QueuedTask(NamedTuple):
    """A task in a queue of a master.

    Args:
        kind: the type of its job.
        owner: the distributor that sent it.
    """

    task: Task
    kind: int
    attempt: int
    owner: Address


class LeaderView(Protocol):
    """The leadership of a master, as its replica reads it."""

    epoch: int
    leading: bool
    second: Address


class Replica:
    """Of a leader, the updates that it sends; of its second, the queues as of the last one.

    The next update follows within a period of a change. What the queues were when the leader crashed is known up to a
    period: the rest, and whatever nodes have begun since, the new leader learns from distributors and nodes.
    """

    _port: Port

    def __init__(self, leadership: LeaderView, period_us: Time) -> None:
        self._leadership = leadership
        self._period_us = period_us
        self._due = False
        self._kept: dict[TaskId, QueuedTask] = {}

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port

    def look(self, now: Time) -> None:
        """Update the second within a period: a queue may have changed."""
        if self._leadership.leading and self._leadership.second and not self._due:
            self._due = True
            self._port.set_timer(UPDATE, now + self._period_us)

    def send(self, waiting: Mapping[TaskId, QueuedTask]) -> None:
        """Send all that waits to the second master, if there is one."""
        self._due = False
        if self._leadership.leading and self._leadership.second:
            all_of_it = tuple(waiting.values())
            self._port.send(
                self._leadership.second,
                Update(
                    self._leadership.epoch,
                    tuple([one.task for one in all_of_it]),
                    tuple([one.kind for one in all_of_it]),
                    tuple([one.attempt for one in all_of_it]),
                    tuple([one.owner for one in all_of_it]),
                ),
            )

    def keep(self, update: Update) -> None:
        """Keep the queues of the leader that this one follows."""
        if update.epoch == self._leadership.epoch and not self._leadership.leading:
            rows = zip(update.tasks, update.kinds, update.attempts, update.owners, strict=True)
            self._kept = {task.id: QueuedTask(task, kind, attempt, owner) for task, kind, attempt, owner in rows}

    def kept_of(self, owner: Address) -> tuple[tuple[TaskId, int], ...]:
        """Tasks of a distributor that are kept, with their attempts."""
        return tuple([(one.task.id, one.attempt) for one in self._kept.values() if one.owner == owner])

    def take(self, tasks: Sequence[TaskId]) -> list[QueuedTask]:
        """Give up tasks that are kept, to be placed."""
        return [self._kept.pop(task) for task in tasks]
