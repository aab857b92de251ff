"""The messages between the roles of a scheduler that is assembled from stages."""

from __future__ import annotations

from volery.core.model import Message, Task, TaskId, Time
from volery.roles.node import Completed, Kill


class Launch(Message, frozen=True):
    """Scheduler, or local manager > node: run the task.

    Args:
        number: Number that grows per sender, so that a repeated or overtaken message is recognised.
        task: The task to run.
        attempt: Number of the attempt; 0 is the first.
        stage_us: Time to stage files in before (stage T5); the machine is taken meanwhile.
        incarnation: Incarnation of the node for which this is meant.
        clean_us: Time to delete files after it (stage T8); the machine is taken meanwhile, and Cleaned follows.
    """

    number: int
    task: Task
    attempt: int = 0
    stage_us: Time = 0
    incarnation: int = 0
    clean_us: Time = 0


class Cleaned(Message, frozen=True):
    """Node > its manager: the files of an attempt that has completed are deleted."""

    task: TaskId
    attempt: int = 0


class Report(Message, frozen=True):
    """Node > its manager: the tasks that run, periodically (stage T6).

    Args:
        tasks: Task, attempt, time for which it has run, and thousandths of its request that it uses.
    """

    tasks: tuple[tuple[TaskId, int, Time, int], ...]


class Restarted(Message, frozen=True):
    """Node > its manager: a new incarnation has begun, and all that ran before is lost."""

    incarnation: int


class SwitchOn(Message, frozen=True):
    """Scheduler, or local manager > node: boot the machine; Ready follows.

    Args:
        number: Number that is counted with those of launches.
        boot_us: Duration of the boot.
        incarnation: Incarnation of the node for which this is meant.
    """

    number: int
    boot_us: Time
    incarnation: int = 0


class Ready(Message, frozen=True):
    """Node > its manager: the machine is on.

    Args:
        number: Number of the SwitchOn that asked for it.
    """

    number: int


class SwitchOff(Message, frozen=True):
    """Scheduler, or local manager > node: nothing runs there; switch the machine off.

    Args:
        number: Number that is counted with those of launches.
        incarnation: Incarnation of the node for which this is meant.
    """

    number: int
    incarnation: int = 0


class Pass(Message, frozen=True):
    """Scheduler > local resource manager, or broker: manage this task; Completed follows when it has ended.

    Args:
        number: Number that grows per sender, so that a repeated or overtaken message is recognised.
        task: The task.
        user, priority, deadline_us, submit_us, task_count: Facts of its job.
        rank_us: Length of the longest chain of tasks that begins with it.
        came_us: Time when the task was submitted.
    """

    number: int
    task: Task
    user: str
    priority: int
    deadline_us: Time
    submit_us: Time
    task_count: int
    rank_us: Time
    came_us: Time


MESSAGES: frozenset[type[Message]] = frozenset(
    {Launch, Kill, Completed, Cleaned, Report, Restarted, SwitchOn, Ready, SwitchOff, Pass}
)
