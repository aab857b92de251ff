"""Wall-clock limits in the lab: an attempt that would run longer than its job's limit ends there, with its task.

The lab knows the end of an attempt when it starts, so that nothing is killed later: the attempt stands in the calendar
with the outcome "limit". It counts as the run of its task, as a job of state TIMEOUT in Slurm has a start and an end.
"""

from __future__ import annotations

from typing import Final

from volery.core.events import TaskFinished
from volery.core.model import NEVER, NO_TASK, Task, TaskId, Time
from volery.sim.execution import Durations, LabPort, LaunchRule
from volery.sim.lab import Lab
from volery.sim.rules import PaceRule

NOTHING: Final = (NO_TASK, 0, NEVER)
"""No attempt, instead of a task, an attempt and a limit."""


class LimitRule(LaunchRule):
    """Durations of attempts, cut at the limits of their jobs.

    Whoever puts the end of an attempt into the calendar calls `check_launch`, reads the duration, and calls `launched`.

    Args:
        lab: Shared state of the run.
        pace: Durations by machine; None: they are the same everywhere.
    """

    def __init__(self, lab: Lab, pace: PaceRule | None) -> None:
        self._lab = lab
        self._pace = pace
        self._durations: Durations = lab.left_us if pace is None else pace
        self._limits_us = lab.trace.limit_us
        self._attempt = NOTHING
        self._cut_attempt = NOTHING

    def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:
        """Note the attempt whose duration is read next."""
        self._attempt = task.id, attempt, self._limits_us[task.job]
        if self._pace is not None:
            self._pace.check_launch(port, task, attempt)

    def __getitem__(self, task: TaskId) -> Time:
        """The time for which the next attempt runs."""
        duration_us = self._durations[task]
        limit_us = self._attempt[2]
        if not 0 < limit_us < duration_us:
            return duration_us
        self._cut_attempt = self._attempt
        return limit_us

    def launched(self, port: LabPort, task: Task, attempt: int) -> None:
        """Give an attempt that ends at its limit this outcome: its entry in the calendar is the last of its time."""
        task_id, cut_attempt, limit_us = self._cut_attempt
        if (task_id, cut_attempt) == (task.id, attempt):
            self._cut_attempt = NOTHING
            self._lab.finishes[self._lab.now + limit_us][-1] = port, TaskFinished(task, attempt, "limit")

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        """Record that a limit has ended the attempt."""
        if event.outcome == "limit":
            self._lab.records.over_limit.add((event.task.id, event.attempt))
