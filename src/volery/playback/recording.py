"""A recording: the log of a tracer as columns, for queries of any moment; counts, shares and preemptions then."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from fractions import Fraction
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from volery.core.events import MILLIONTHS, ShareChange
from volery.core.model import NEVER, Amounts, JobId, TaskId, Time
from volery.core.omissions import nearest_miss
from volery.live.service.user_shares import WHY
from volery.live.status import JobState, PreemptionStatus, SharePart, ShareStatus, WeightChange
from volery.playback.run_log import FAILED, FINISHED, RUNNING, RecordingSource, RunLog

Longs = npt.NDArray[np.int64]
LATER: Final = 1 << 62
"""After the end of every recording."""
KEPT: Final = 16
"""Moments with kept answers: a page asks for one several times."""


class JobColumns:
    """Jobs as columns, by number.

    Attributes:
        id, submitted_us, tasks, first, done_us, cancelled_us: see `JobEntry`; `LATER`: never.
        started_us: time at which the first task started.
        unsatisfiable: tasks that no machine can run.
        users: all names, sorted; user: per job, the place of its own.
    """

    def __init__(self, log: RunLog) -> None:
        self.of = log.jobs

        def column(name: str) -> Longs:
            return np.array([getattr(job, name) for job in self.of], dtype=np.int64)

        self.id, self.submitted_us = column("id"), column("submitted_us")
        self.tasks, self.first = column("tasks"), column("first")

        self.done_us, self.cancelled_us = (_later(column(name)) for name in ("done_us", "cancelled_us"))

        self.users = sorted({job.user for job in self.of})
        place = {name: at for at, name in enumerate(self.users)}
        self.user = np.array([place[job.user] for job in self.of], dtype=np.int64)

        self.started_us = np.full(len(self.of), LATER)
        self.unsatisfiable = np.zeros(len(self.of), dtype=np.int64)

    def place(self, number: JobId) -> int:
        """The row of a job; -1: there is none."""
        at = int(np.searchsorted(self.id, number))
        return at if at < len(self.of) and self.of[at].id == number else -1


class AttemptColumns:
    """Attempts as columns, in the order of their starts.

    Attributes:
        job: rows of `JobColumns`; place: of the task in its job.
        machine, start_us, finish_us, attempt, outcome: see `ATTEMPT_COLUMNS`; `LATER`: it runs at the end.
        by_task: rows by job, place and start; bounds: of each job's rows in it.
    """

    def __init__(self, log: RunLog, jobs: JobColumns) -> None:
        columns = {name: np.frombuffer(column, dtype=np.int64) for name, column in log.attempts.items() if column}

        if not columns:
            columns = {name: np.zeros(0, dtype=np.int64) for name in log.attempts}

        job = np.searchsorted(jobs.id, columns["job"])
        # Where the first files of a journal are gone, attempts remain of jobs whose submission is not in it.
        is_known_job = job < len(jobs.of)
        is_known_job[is_known_job] &= jobs.id[job[is_known_job]] == columns["job"][is_known_job]
        order = np.flatnonzero(is_known_job)[
            np.lexsort((columns["task"][is_known_job], columns["start_us"][is_known_job]))
        ]

        self.job: Longs = job[order]
        self.place: Longs = columns["task"][order] - jobs.first[self.job]
        self.machine, self.start_us, self.attempt, self.outcome = (
            columns[name][order] for name in ("machine", "start_us", "attempt", "outcome")
        )

        self.finish_us: Longs = np.where(self.outcome == RUNNING, LATER, columns["finish_us"][order])

        self.by_task: Longs = np.lexsort((self.start_us, self.place, self.job))
        self.bounds: Longs = np.searchsorted(self.job[self.by_task], np.arange(len(jobs.of) + 1))
        np.minimum.at(jobs.started_us, self.job, self.start_us)

    def of_tasks(self, job: int, first: int, limit: int) -> Longs:
        """Rows of some tasks of a job, by place and start."""
        rows = self.by_task[self.bounds[job] : self.bounds[job + 1]]
        low, high = np.searchsorted(self.place[rows], (first, first + limit))
        return rows[low:high]


class Recording:
    """A log, its columns, and answers for moments of it.

    Attributes:
        moments: times and captions, one per instant, in the order of time.
        node_on: number of a machine -> address of its node.
    """

    def __init__(self, log: RunLog, source: RecordingSource) -> None:
        self.log, self.source = log, source
        self.jobs = JobColumns(log)
        self.attempts = AttemptColumns(log, self.jobs)
        self.node_on = {machine: address for address, machine in source.nodes.items()}
        self.moments = _moments(log)

        decided = log.decided
        self.asked = tuple(
            np.frombuffer(column, dtype=np.int64) if column else np.zeros(0, dtype=np.int64)
            for column in (decided.time_us, decided.pair, decided.age_us)
        )

        self._misses: dict[tuple[int, Amounts], str] = {}
        for at in range(len(self.jobs.of)):
            self.jobs.unsatisfiable[at] = sum(count for _, count, miss in self.groups(at) if miss)

        self._kept: OrderedDict[tuple[Time, str], Any] = OrderedDict()
        self._lock = Lock()

    @property
    def begin_us(self) -> Time:
        return self.log.begin_us

    @property
    def end_us(self) -> Time:
        return self.log.end_us

    def groups(self, at: int) -> list[tuple[int, int, str]]:
        """Runs of equal tasks of a job: place of the first, count, reason for which no machine can run them."""
        job = self.jobs.of[at]
        task_groups = []

        ends = [first for first, _, _ in job.kinds[1:]] + [job.first + job.tasks]
        for (first, mask, request), end in zip(job.kinds, ends, strict=True) if job.kinds else ():
            task_groups.append((first - job.first, max(0, end - first), self.miss(mask, request)))
        return task_groups

    def miss(self, mask: int, request: Amounts) -> str:
        """The reason for which no machine can run such a task; empty where one can."""
        if (mask, request) not in self._misses:
            self._misses[mask, request] = nearest_miss(self.source.cluster, mask, request)
        return self._misses[mask, request]

    def request_of(self, at: int, place: int) -> tuple[int, Amounts]:
        """Constraints and amounts of a task, those of the last run of equal tasks that begins before it."""
        job = self.jobs.of[at]
        begun = ((mask, request) for first, mask, request in reversed(job.kinds) if first - job.first <= place)
        return next(begun, (0, ()))

    def where(self, task: TaskId) -> tuple[int, int]:
        """The row of a task's job, and its place there; (-1, -1): no job has it."""
        order = np.argsort(self.jobs.first, kind="stable")
        at = int(np.searchsorted(self.jobs.first[order], task, side="right")) - 1
        if at < 0:
            return -1, -1
        row = int(order[at])
        place = task - int(self.jobs.first[row])
        return (row, place) if place < self.jobs.tasks[row] else (-1, -1)

    def kept(self, key: tuple[Time, str], make: Callable[[], Any]) -> Any:
        """The kept answer for a moment, or a new one."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            answer = self._kept[key] = make()
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return answer


def _moments(log: RunLog) -> list[tuple[Time, str]]:
    texts_at: dict[Time, list[str]] = {}
    for at_us, text in log.moments:
        if log.begin_us <= at_us <= log.end_us:
            texts_at.setdefault(at_us, []).append(text)
    return [(at_us, " ".join(texts)) for at_us, texts in sorted(texts_at.items())]


def _later(times: Longs) -> Longs:
    return np.where(times == NEVER, LATER, times)


STATES: Final[tuple[JobState, ...]] = ("pending", "running", "done", "failed", "cancelled")
PENDING, BUSY, DONE, FAULTY, CANCELLED = range(len(STATES))


class Counts:
    """Counts of one moment.

    Args:
        time_us: the moment, by the clock of the recording.
    """

    def __init__(self, recording: Recording, time_us: Time) -> None:
        self.recording, self.time_us = recording, time_us
        self._begun = int(np.searchsorted(recording.attempts.start_us, time_us, side="right"))

    @functools.cached_property
    def runs(self) -> Longs:
        """Rows of attempts that run."""
        rows: Longs = np.flatnonzero(self.recording.attempts.finish_us[: self._begun] > self.time_us)
        return rows

    @functools.cached_property
    def over(self) -> Longs:
        """Rows of attempts that are over."""
        rows: Longs = np.flatnonzero(self.recording.attempts.finish_us[: self._begun] <= self.time_us)
        return rows

    def _per_job(self, rows: Longs) -> Longs:
        return np.bincount(self.recording.attempts.job[rows], minlength=len(self.recording.jobs.of))

    @functools.cached_property
    def running(self) -> Longs:
        """Per job, tasks that run."""
        return self._per_job(self.runs)

    def _ended(self, outcome: int) -> Longs:
        rows = self.over
        return self._per_job(rows[self.recording.attempts.outcome[rows] == outcome])

    @functools.cached_property
    def finished(self) -> Longs:
        """Per job, tasks that have finished."""
        return self._ended(FINISHED)

    @functools.cached_property
    def failed(self) -> Longs:
        """Per job, tasks that have failed."""
        return self._ended(FAILED)

    @functools.cached_property
    def states(self) -> Longs:
        """Per job, the place of its state in `STATES`; -1: it has not been submitted."""
        jobs, now = self.recording.jobs, self.time_us

        is_done = jobs.done_us <= now
        states = np.where(jobs.started_us <= now, BUSY, PENDING)
        states = np.where(is_done, np.where(self.failed > 0, FAULTY, DONE), states)
        states = np.where(is_done & (jobs.cancelled_us <= now), CANCELLED, states)

        states_now: Longs = np.where(jobs.submitted_us <= now, states, -1)
        return states_now

    @functools.cached_property
    def pending(self) -> Longs:
        """Per job, tasks that wait."""
        jobs = self.recording.jobs

        unfinished = jobs.tasks - self.running - self.finished - self.failed - jobs.unsatisfiable
        waiting_tasks: Longs = np.where((self.states == PENDING) | (self.states == BUSY), np.maximum(unfinished, 0), 0)
        return waiting_tasks

    @functools.cached_property
    def on_machine(self) -> Longs:
        """Per machine, tasks that run there."""
        machines = self.recording.attempts.machine[self.runs]
        return np.bincount(machines, minlength=len(self.recording.source.cluster.slots))


class RecordedShares:
    """Shares and preemptions at a moment.

    Args:
        time_us: the moment, by the clock of the recording.
    """

    def __init__(self, recording: Recording, time_us: Time) -> None:
        self._recording, self._time_us = recording, time_us

    def due(self) -> Mapping[str, Fraction]:
        return self._recording.source.due

    def listed(self, user: str | None = None) -> list[ShareStatus]:
        """All shares, in the order of the tree."""
        return [
            ShareStatus(
                name=listed_share.name,
                within=listed_share.within,
                organisation=listed_share.members > 0,
                weight=listed_share.weight,
                share=float(listed_share.due),
            )
            for listed_share in self._recording.source.shares
            if user in (None, listed_share.name)
        ]

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        """None: weights do not change in a recording."""
        return []

    def preemptions(
        self, user: str | None, job: JobId | None, before: int | None, limit: int, sees: str | None = None
    ) -> list[PreemptionStatus]:
        """Preemptions so far, the last first."""
        listed_preemptions: list[PreemptionStatus] = []
        logged = self._recording.log.preemptions

        for number in range(len(logged) if before is None else min(before, len(logged)), 0, -1):
            if logged[number - 1][0] <= self._time_us and len(listed_preemptions) < limit:
                status = self._status(number)
                if user in (None, status.user, status.for_user) and job in (None, status.job, status.for_job):
                    listed_preemptions.append(status)
        return listed_preemptions

    def _status(self, number: int) -> PreemptionStatus:
        at_us, by, fact = self._recording.log.preemptions[number - 1]

        jobs = self._recording.jobs
        row, place = self._recording.where(fact.task)
        for_row, for_place = self._recording.where(fact.beneficiary)

        return PreemptionStatus(
            number=number,
            at_us=self._recording.source.origin_us + at_us,
            by=by,
            reason=fact.reason,
            job=jobs.of[row].id if row >= 0 else -1,
            index=place,
            attempt=fact.attempt,
            user=jobs.of[row].user if row >= 0 else "",
            for_job=jobs.of[for_row].id if for_row >= 0 else -1,
            for_index=for_place,
            for_user=jobs.of[for_row].user if for_row >= 0 else "",
            loss=_part(fact.loser),
            gain=_part(fact.winner),
        )

    def why_again(self, row: int, place: int, attempt: int) -> str:
        """The reason for which an attempt was preempted; empty where it was not."""
        task = self._recording.jobs.of[row].first + place
        lost = [
            fact
            for at_us, _, fact in self._recording.log.preemptions
            if at_us <= self._time_us and (fact.task, fact.attempt) == (task, attempt)
        ]
        if not lost:
            return ""
        return f"attempt {attempt} was preempted: {WHY[lost[-1].reason]}; the task runs again when there is room"


def _part(change: ShareChange | None) -> SharePart | None:
    if change is None:
        return None
    return SharePart(*(amount / MILLIONTHS for amount in (change.due, change.before, change.after)))
