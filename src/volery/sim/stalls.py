"""Stalls: everything is quiet and a job has no answer, or simulated time goes on and nothing is ever done.

The second kind is a livelock: schedulers retry, keep and give back machines, or send heartbeats, and no task ends. Long
waits look the same for a while. So two things must hold: many instants have passed without a result, and everything
that was pending in the middle of them (an end of a task, a timer, a boot) has come.
"""

from __future__ import annotations

import itertools
from typing import Final

from volery.core.model import NEVER, Time
from volery.sim.lab import FAR, Lab
from volery.sim.submitter import Submitter

INSTANTS_MAX: Final = 200_000
"""Instants without any result, half of them after which all that was pending must have come."""
STEPS_MAX: Final = 20_000_000
"""Steps of one instant without any result."""


class Stalled(RuntimeError):  # noqa: N818 - it names a state, not a mistake of the caller
    """Some submitter is never answered: everything is quiet, or nothing that still happens ends a task."""


class Stalls:
    """Watches a run for results: submissions, ends of tasks, answers, and starts where attempts keep their progress.

    Args:
        lab, submitter: of the run.
        starts_count: a start is a result: what an attempt has done is kept when it ends.
    """

    def __init__(self, lab: Lab, submitter: Submitter, *, starts_count: bool) -> None:
        self._lab = lab
        self._submitter = submitter
        self._starts_count = starts_count
        self._results: tuple[int, ...] = ()
        self._instants = 0
        self._pending_until: Time | None = None

    def passed(self, instants: int) -> None:
        """Count instants that have passed.

        Raises:
            Stalled: too many without a result.
        """
        lab, results = self._lab, self._found()
        if results != self._results:
            self._results, self._instants, self._pending_until = results, 0, None
            return
        self._instants += instants
        if self._instants < INSTANTS_MAX // 2:
            return
        if self._pending_until is None:
            due_us = self._submitter.due_us
            self._pending_until = max(lab.pending_until(), due_us if due_us != FAR else 0)
        elif self._instants >= INSTANTS_MAX and lab.now > self._pending_until:
            raise Stalled(
                f"time goes on and nothing is done: {self._instants:,} instants without a result, {self.state()}"
            )

    def in_one_instant(self) -> None:
        """Raise Stalled: the steps of one instant have no end."""
        if self._found() == self._results:
            raise Stalled(f"one instant has no end: {STEPS_MAX:,} steps without a result, {self.state()}")
        self._results = self._found()

    def _found(self) -> tuple[int, ...]:
        lab, submitter = self._lab, self._submitter
        started = len(lab.records.lost) if self._starts_count else 0
        return submitter.submitted, submitter.jobs_done, lab.finished_count, started

    def state(self) -> str:
        """The open jobs in words, with the first task that has not finished."""
        lab = self._lab
        trace, records = lab.trace, lab.records
        came = range(self._submitter.submitted)
        waiting = [job for job in came if records.answered_us[job] == NEVER]
        if not waiting:
            return f"at {lab.now} us every job is answered and the design does not become quiet"
        tasks = range(trace.first[waiting[0]], trace.first[waiting[0] + 1])
        open_tasks = [task for task in tasks if records.finish_us[task] == NEVER]
        first = next(itertools.chain(open_tasks, tasks), None)
        task = (
            ""
            if first is None
            else f", {len(open_tasks)} of its {len(tasks)} tasks not finished, the first is task {first}"
        )
        count = f"{len(waiting)} of {trace.job_count} jobs were never answered"
        return f"at {lab.now} us {count}; the first is job {waiting[0]}{task}"
