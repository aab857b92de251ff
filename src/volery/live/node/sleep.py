"""Executors for load tests: a task takes its time and uses nothing, or takes no time at all."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

from volery.core.model import SECOND, Address, Task, TaskId, Time
from volery.live.messages import AttemptState
from volery.live.node.context import attempt_number
from volery.live.node.executor import OnEnd, Report, report_now

MILLISECONDS: Final = 1000
"""Milliseconds per second."""
Duration = Callable[[Task], Time]


def estimated(task: Task) -> Time:
    return task.estimate_us


class InstantExecutor:
    """Ends every task when it starts, successfully.

    Args:
        report: is called for every start and end.
        by_incarnation: the way in which schedulers number attempts, see `attempt_number`.
    """

    def __init__(self, report: Report | None = None, *, by_incarnation: bool = False) -> None:
        self._report = report
        self._by_incarnation = by_incarnation

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:  # noqa: ARG002 - nothing outlives it
        if self._report is not None:
            number = attempt_number(task.payload, attempt, self._by_incarnation)
            self._report(report_now(node, task, attempt, "running", counted=number))
            self._report(report_now(node, task, attempt, "finished", counted=number))
        on_end(task, attempt, "finished")

    def kill(self, task: TaskId, attempt: int) -> None:
        """Do nothing: no attempt is running."""

    async def close(self) -> None:
        """Do nothing: no attempt is running."""


class SleepExecutor:
    """Holds the slot for a task's duration.

    Args:
        duration_us: duration of a task, microseconds; by default its estimate.
        report: is called for every start and end.
        by_incarnation: the way in which schedulers number attempts, see `attempt_number`.
    """

    def __init__(
        self, duration_us: Duration = estimated, report: Report | None = None, *, by_incarnation: bool = False
    ) -> None:
        self._duration_us = duration_us
        self._report = report
        self._by_incarnation = by_incarnation
        self._attempts: dict[tuple[TaskId, int], tuple[asyncio.TimerHandle, Address, Task, OnEnd]] = {}

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:  # noqa: ARG002 - nothing outlives it
        key = (task.id, attempt)
        if key in self._attempts:
            return

        self._maybe_report(node, task, attempt, "running")
        due_s = time.monotonic() + self._duration_us(task) / SECOND
        self._attempts[key] = (self._timer(key, due_s), node, task, on_end)

    def _maybe_report(self, node: Address, task: Task, attempt: int, state: AttemptState, reason: str = "") -> None:
        if self._report is not None:
            number = attempt_number(task.payload, attempt, self._by_incarnation)
            self._report(report_now(node, task, attempt, state, reason=reason, counted=number))

    def _timer(self, key: tuple[TaskId, int], due_s: float) -> asyncio.TimerHandle:
        # uvloop rounds to the nearest millisecond: whoever asks for less than one is called early.
        delay_s = math.ceil((due_s - time.monotonic()) * MILLISECONDS) / MILLISECONDS
        return asyncio.get_running_loop().call_later(max(delay_s, 0.0), self._wake, key, due_s)

    def _wake(self, key: tuple[TaskId, int], due_s: float) -> None:
        if time.monotonic() < due_s:
            self._attempts[key] = (self._timer(key, due_s), *self._attempts[key][1:])
            return
        _, node, task, on_end = self._attempts.pop(key)
        self._maybe_report(node, task, key[1], "finished")
        on_end(task, key[1], "finished")

    def kill(self, task: TaskId, attempt: int) -> None:
        sleeper = self._attempts.pop((task, attempt), None)
        if sleeper is not None:
            timer, node, slept, on_end = sleeper
            timer.cancel()
            self._maybe_report(node, slept, attempt, "killed", "killed")
            on_end(slept, attempt, "killed")

    async def close(self) -> None:
        for timer, *_ in self._attempts.values():
            timer.cancel()
        self._attempts.clear()
