"""What carries a launch out: the interface of executors, and what they report about each attempt.

Two audiences hear of an attempt. The component that launched it hears only how it ended (`OnEnd`, which the host turns
into TaskFinished). Whoever submitted the job wants more (exit code, times, where the output is): that is a
`TaskReport`, which never passes through a scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

import msgspec

from volery.core.events import Outcome
from volery.core.model import Address, JobId, Message, Task, TaskId, Time

AGENT: Final = "agent"
"""The role of a host's reporter; see `reporting`."""

OnEnd = Callable[[Task, int, Outcome], None]
"""Called with task, attempt and outcome on the event loop's thread, exactly once per start.

The call may come before `start` returns, so whoever is called only notes it down.
"""

AttemptState = Literal["running", "finished", "failed", "killed"]


class Usage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What an attempt has used, as far as the kernel says it.

    Args:
        cpu_us: processor time of all its processes, microseconds; without a control group of those alone that were
            waited for.
        memory_peak_bytes: the most that it had at once; without a control group, of its largest process.
        out_of_memory: it wanted more than it may have, and was ended for that.
        held: what held it to the amounts that it asked for, in words; empty where it asked for none.
    """

    cpu_us: Time | None = None
    memory_peak_bytes: int | None = None
    out_of_memory: bool = False
    held: str = ""


class TaskReport(Message, frozen=True):
    """What an executor tells the submitter about one attempt: once when it starts, once when it has ended.

    Args:
        task: its number.
        job: the job that it belongs to.
        attempt: the scheduler's number, which tells attempts apart.
        node: the address of the node that it runs on.
        state: of the attempt.
        at_unix_us: when it came into this state, by the wall clock of its host.
        exit_code: of a process that has ended; -N: signal N ended it.
        reason: what went wrong, in words; empty when nothing did.
        folder: the folder on the node's host that holds `stdout` and `stderr`; empty when there is none.
        result: what a callable returned, encoded; empty for processes.
        usage: what it has used, once it has ended.
        counted: the number of the attempt for people, see `attempt_number`; None: as `attempt`.
    """

    task: TaskId
    job: JobId
    attempt: int
    node: Address
    state: AttemptState
    at_unix_us: Time
    exit_code: int | None = None
    reason: str = ""
    folder: str = ""
    result: bytes = b""
    usage: Usage | None = None
    counted: int | None = None

    @property
    def number(self) -> int:
        """Of the attempt, for people: 0 is the task's first."""
        return self.attempt if self.counted is None else self.counted


class Received(Message, frozen=True):
    """Submitter > agent: the ends of these attempts (task, attempt) are written down; nobody else need keep them."""

    attempts: tuple[tuple[TaskId, int], ...]


class Confined(Message, frozen=True):
    """Agent > submitter, when it begins: what holds the tasks of these nodes to what they ask for, in words."""

    nodes: tuple[Address, ...]
    words: str


def report_now(
    node: Address, task: Task, attempt: int, state: AttemptState, exit_code: int | None = None, reason: str = "",
    folder: str = "", result: bytes = b"", usage: Usage | None = None, counted: int | None = None,
) -> TaskReport:  # fmt: skip
    """A report on what has just happened."""
    at_unix_us = time.time_ns() // 1000
    return TaskReport(
        task.id, task.job, attempt, node, state, at_unix_us, exit_code, reason, folder, result, usage, counted
    )  # fmt: skip


Report = Callable[[TaskReport], None]
"""Takes a report on its way to the submitter; called on the event loop's thread, and only notes it down."""


class Executor(Protocol):
    """Runs tasks on this host, for any number of its nodes; all calls come from the event loop's thread."""

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:
        """Start an attempt. What cannot be started ends with outcome "failed"; nothing is raised.

        The note is kept with it where attempts can outlive this program.
        """

    def kill(self, task: TaskId, attempt: int) -> None:
        """End a running attempt with outcome "killed", all that it has started included; unknown ones are ignored."""

    async def close(self) -> None:
        """End all that runs, without a further word to anyone, and wait until it is gone."""
