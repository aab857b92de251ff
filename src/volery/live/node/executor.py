"""Executors run tasks: their interface, and their reports about each attempt.

Reports of an attempt have two receivers. The component that launched it gets only its outcome (`OnEnd`, which the host
turns into TaskFinished). The submitter gets more (exit code, times, where the output is): that is a
`TaskReport`, which never passes through a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from volery.core.events import Outcome
from volery.core.model import Address, Task, TaskId, Time
from volery.live.clock import AttemptTimes
from volery.live.messages import AttemptState, AttemptUsage, TaskReport

OnEnd = Callable[[Task, int, Outcome], None]
"""Called with task, attempt and outcome on the event loop's thread, exactly once per start.

The call may come before `start` returns, so that it only notes the end.
"""


_TIMES: Final = AttemptTimes()


def report_now(
    node: Address,
    task: Task,
    attempt: int,
    state: AttemptState,
    exit_code: int | None = None,
    reason: str = "",
    folder: str = "",
    result: bytes = b"",
    usage: AttemptUsage | None = None,
    counted: int | None = None,
) -> TaskReport:
    """A report of an attempt that has come into this state now; the end of one is its start and the time it took."""
    at_unix_us = _TIMES.at_unix_us((node, task.id, attempt), is_start=state == "running")
    return TaskReport(
        task.id, task.job, attempt, node, state, at_unix_us, exit_code, reason, folder, result, usage, counted
    )


Report = Callable[[TaskReport], None]
"""Takes a report on its way to the submitter; called on the event loop's thread, and only notes it down."""


class Executor(Protocol):
    """Runs tasks on this host, for any number of its nodes; all calls come from the event loop's thread."""

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:
        """Start an attempt. It fails where it can never start, and waits where the machine is short of something.

        The note is kept with it where attempts can outlive this program.
        """

    def kill(self, task: TaskId, attempt: int) -> None:
        """End a running attempt with outcome "killed", all that it has started included; unknown ones are ignored."""

    async def close(self) -> None:
        """End all that runs, report nothing more, and wait until it is gone."""


class Recorder(Protocol):
    """Is called for every attempt on a host; times are microseconds of the host's clock."""

    def started(self, node: Address, task: Task, attempt: int, waited_us: Time, turn_us: Time, now: Time) -> None:
        """An attempt is handed to the executor, in the turn that began at `turn_us`."""

    def ended(self, _node: Address, task: Task, attempt: int, outcome: Outcome, now: Time) -> None:
        """An attempt has ended."""
