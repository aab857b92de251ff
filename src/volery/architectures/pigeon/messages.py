"""The messages between distributors, masters and nodes of Pigeon.

Numbers count the messages of one link, so that a repeated or stale message is recognised.
"""

from __future__ import annotations

from typing import Final

from volery.core.model import NEVER, Address, Gang, Message, Task, TaskId, Time
from volery.roles.node import Kill
from volery.roles.recovery.channel import LINK_MESSAGES
from volery.roles.recovery.leases import NODE_MESSAGES, RunningAttempt


class GroupTasks(Message, frozen=True):
    """Distributor > master: tasks of one job for the master's group, all of a short or all of a long job.

    `longer`: number of limits above the cutoff that a long job exceeds.
    """

    number: int
    short: bool
    tasks: tuple[Task, ...]
    longer: int = 0


class GangTasks(Message, frozen=True):
    """Distributor > master: the tasks of a gang, which start together on workers of the master's group.

    `kind`: the type of its job; 0 short, 1 and above long. `attempt`: number of this attempt of all of them. Where
    masters may crash, `number` is an epoch, and what is of another epoch is void.
    """

    number: int
    kind: int
    gang: Gang
    tasks: tuple[Task, ...]
    attempt: int = 0


class Withdraw(Message, frozen=True):
    """Distributor > master: drop these tasks where they wait, kill them where they run; others are not here.

    `is_recall`: they are members of a gang that is to start again, as another is lost.
    """

    tasks: tuple[TaskId, ...]
    is_recall: bool = False


class Withdrawn(Message, frozen=True):
    """Master > distributor: these tasks were waiting and will never run."""

    tasks: tuple[TaskId, ...]


class Launch(Message, frozen=True):
    """Master > node: run the task and report its result to the distributor."""

    number: int
    task: Task
    distributor: Address


class Completed(Message, frozen=True):
    """Node > distributor: the result. Node > master: the worker is idle again."""

    task: TaskId


class Deal(Message, frozen=True):
    """Distributor > master: the group's tasks of one job, in an epoch; those of another epoch are void."""

    epoch: int
    short: bool
    tasks: tuple[Task, ...]
    attempts: tuple[int, ...]
    longer: int = 0


class Lost(Message, frozen=True):
    """Master > distributor: these attempts are lost; send the tasks again."""

    attempts: tuple[RunningAttempt, ...]


class Report(Message, frozen=True):
    """Master > distributor: I lead in this epoch; what of yours runs here.

    `whole`: all that is known, else what has been learnt since. `settled`: nothing else of yours is here. `kept`: tasks
    and attempts of which the sender has a copy, from the queues of an earlier leader; only in a settled report.
    """

    epoch: int
    whole: bool
    settled: bool
    running: tuple[RunningAttempt, ...]
    kept: tuple[tuple[TaskId, int], ...] = ()


class Resume(Message, frozen=True):
    """Distributor > master: place these of the tasks that you have kept, as these attempts."""

    epoch: int
    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class Update(Message, frozen=True):
    """Leader > its second master: all tasks that wait, each with its type, attempt and distributor."""

    epoch: int
    tasks: tuple[Task, ...]
    kinds: tuple[int, ...]
    attempts: tuple[int, ...]
    owners: tuple[Address, ...]


class VoteRequest(Message, frozen=True):
    """Candidate > distributor: promise me this epoch; with a node that was lost or restarted, confirm it."""

    epoch: int
    node: Address = ""
    at_us: Time = NEVER


class Granted(Message, frozen=True):
    """Distributor > candidate: this epoch is promised to you; before it were promised epochs to these candidates."""

    epoch: int
    formers: tuple[Address, ...]
    node: Address = ""
    at_us: Time = NEVER


class Lineup(Message, frozen=True):
    """Leader > candidates: I lead in this epoch, and this is my second master; empty: none is there."""

    epoch: int
    second: Address


class Declared(Message, frozen=True):
    """Candidate > candidates: I have lost both masters; my worker has this power, and I declared at this time."""

    power: int
    at_us: Time


class QueueLengths(Message, frozen=True):
    """Master > distributor: how many tasks of each type of jobs wait, the shortest jobs first."""

    lengths: tuple[int, ...]


def kind_of(message: GroupTasks | Deal) -> int:
    """The type of a message's job: 0 short, 1 and above long."""
    return 0 if message.short else 1 + message.longer


MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {GroupTasks, GangTasks, Withdraw, Withdrawn, Launch, Kill, Completed, QueueLengths}
)
RECOVERY_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {Deal, Lost, Report, Resume, Update, VoteRequest, Granted, Lineup, Declared, *NODE_MESSAGES, *LINK_MESSAGES}
)
"""The messages of masters and machines that may crash."""
