"""The log of the work in a traced run: jobs, attempts, decisions, preemptions, nodes out of use."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

from volery.core.events import Cancel, Drain, Fact, JobDone, MoreTasks, Preemption, Submit
from volery.core.model import NEVER, Address, JobId, Message, Task, TaskId, Time
from volery.core.why import KEPT_PER_TASK, Decision, LoggedDecision
from volery.playback.run_log import DecisionHistory, JobEntry

ATTEMPT_COLUMNS: Final = ("task", "job", "machine", "start_us", "finish_us", "attempt", "outcome")
TASKS_EXPLAINED_MAX: Final = 200_000
"""Tasks whose decisions are kept; those of later ones are counted."""
REFUSED: Final = -1


class WorkLog:
    """Collects the work of a run; times are those of the recording.

    Attributes:
        preemptions, drained, crashed: see `volery.playback.run_log.RunLog`.
    """

    def __init__(self) -> None:
        self.preemptions: list[tuple[Time, Address, Preemption]] = []
        self.drained: list[tuple[Time, Address, bool]] = []
        self.crashed: list[tuple[Time, Address, bool]] = []
        self._jobs: dict[JobId, JobEntry] = {}
        self._attempts: dict[str, array[int]] = {name: array("q") for name in ATTEMPT_COLUMNS}
        self._of_task: dict[TaskId, list[LoggedDecision]] = {}
        self._dropped: dict[TaskId, int] = {}
        self._pairs: dict[tuple[Address, Address], int] = {}
        self._asked = array("q"), array("q"), array("q")
        self._is_drained: dict[Address, bool] = {}

    def received(self, message: Message, now: Time) -> None:
        """Record a message from the submitter or an operator."""
        if isinstance(message, Submit):
            job = message.job
            known = self._jobs.get(job.id)
            if known is None:
                first = job.tasks[0].id if job.tasks else NEVER
                known = self._jobs[job.id] = JobEntry(job.id, job.user, now, job.task_count, first, [])
            self._add(known, job.tasks)
        elif isinstance(message, MoreTasks):
            if (known := self._jobs.get(message.job)) is not None:
                self._add(known, message.tasks)
        elif isinstance(message, Cancel):
            if (known := self._jobs.get(message.job)) is not None and known.cancelled_us == NEVER == known.done_us:
                known.cancelled_us = now
        elif isinstance(message, Drain) and self._is_drained.get(message.node, False) != message.drained:
            self._is_drained[message.node] = message.drained
            self.drained.append((now, message.node, message.drained))

    def where(self, task: TaskId) -> tuple[JobId, int] | None:
        """The job of a task, and the task's index in the job; None: no job has it."""
        for job in self._jobs.values():
            if job.first <= task < job.first + job.tasks:
                return job.id, task - job.first
        return None

    def _add(self, job: JobEntry, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if job.first == NEVER or task.id < job.first:
                job.first = task.id
            if not job.kinds or (task.constraints, task.request) != job.kinds[-1][1:]:
                job.kinds.append((task.id, task.constraints, task.request))
        if tasks:
            job.tasks = max(job.tasks, tasks[-1].id - job.first + 1)

    def answered(self, message: JobDone, now: Time) -> None:
        """Record the answer that a job is done."""
        job = self._jobs.get(message.job)
        if job is not None and job.done_us == NEVER:
            job.done_us = now

    def observed(self, address: Address, fact: Fact, now: Time) -> None:
        """Record a fact that a component reports."""
        if isinstance(fact, Decision):
            self._decided(address, fact, now)
        elif isinstance(fact, Preemption):
            self.preemptions.append((now, address, fact))

    def _decided(self, by: Address, decision: Decision, now: Time) -> None:
        if decision.asked:
            times, pairs, ages = self._asked
            times.append(now)
            pairs.append(self._pairs.setdefault((by, decision.asked), len(self._pairs)))
            ages.append(REFUSED if decision.chosen == "refused" else decision.view_age_us)
        kept = self._of_task.get(decision.task)
        if kept is None:
            if len(self._of_task) < TASKS_EXPLAINED_MAX:
                self._of_task[decision.task] = [LoggedDecision(now, by, decision)]
            return
        kept.append(LoggedDecision(now, by, decision))
        if len(kept) > KEPT_PER_TASK:
            del kept[1]
            self._dropped[decision.task] = self._dropped.get(decision.task, 0) + 1

    def attempt(self, *columns: int) -> None:
        """Record an attempt that has ended, or runs at the end; see `ATTEMPT_COLUMNS`."""
        for column, value in zip(self._attempts.values(), columns, strict=True):
            column.append(value)

    def parts(self) -> dict[str, Any]:
        """The fields of `RunLog` that describe the work."""
        for job in self._jobs.values():
            job.kinds.sort()
        times, pairs, ages = self._asked
        return {
            "attempts": self._attempts,
            "jobs": [self._jobs[number] for number in sorted(self._jobs)],
            "decided": DecisionHistory(self._of_task, self._dropped, list(self._pairs), times, pairs, ages),
            "preemptions": self.preemptions,
            "drained": self.drained,
            "crashed": sorted(self.crashed),
        }
