"""The log that a tracer writes of a run or of a federation, what it is of, and the collectors of work and of queues."""

from __future__ import annotations

import functools
import inspect
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import msgspec

from volery.core.capabilities import Draining, DueShares, Share
from volery.core.component import Deployment, role_of
from volery.core.events import Cancel, Drain, Fact, JobDone, MoreTasks, Preemption, Submit
from volery.core.model import NEVER, Address, Amounts, Cluster, Job, JobId, Message, Task, TaskId, Time
from volery.core.reasons import KEPT_PER_TASK, Decision, LoggedDecision


class Flight(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way; microseconds since the recording begins, and indices into the lists of `RunLog`."""

    sent_us: Time
    received_us: Time
    sender: int
    receiver: int
    kind: int


class RoleCounts(msgspec.Struct, frozen=True):
    """Counts of a role over time, a number per interval.

    Args:
        waiting: tasks that wait there, the most in the interval; a task waits at the component that last received it.
    """

    name: str
    waiting: list[int]


class ViewErrors(msgspec.Struct, frozen=True):
    """Errors of a scheduler's view, at the end of each interval.

    Args:
        free: slots that are free in the view and run a task.
        taken: slots that are taken in the view and run none (tasks on their way count).
        wrong: per interval, the groups of machines (`volery.playback.tracer.Tracer.cells`) with errors, as the first
            machine, the errors of kind `free`, and those of kind `taken`.
    """

    by: Address
    free: list[int]
    taken: list[int]
    wrong: list[list[tuple[int, int, int]]]


FINISHED, KILLED, FAILED, RUNNING = range(4)
"""Outcomes of attempts: the task of a killed attempt waits again; RUNNING: the attempt runs at the end."""


class JobEntry(msgspec.Struct):
    """A submitted job, and its end.

    Args:
        submitted_us: time at which a scheduler first received it.
        tasks: number of tasks, as far as they were submitted.
        first: the smallest number among its tasks.
        kinds: kinds of its tasks, in runs of equal ones: the first of the run, its constraints and amounts.
        done_us, cancelled_us: times at which it was reported done, and was cancelled; or NEVER.
    """

    id: JobId
    user: str
    submitted_us: Time
    tasks: int
    first: TaskId
    kinds: list[tuple[TaskId, int, Amounts]]
    done_us: Time = NEVER
    cancelled_us: Time = NEVER


class DecisionHistory(msgspec.Struct, frozen=True):
    """Decisions of schedulers that explain them.

    Args:
        of_task: the first decision about a task and the last ones.
        dropped: per task, how many between them are not kept.
        pairs: the scheduler that decided, and the component that it asked.
        time_us, pair, age_us: columns of all decisions that asked a component, by time: the time, the index of the
            pair, and the age of the view; -1: the answer was no.
    """

    of_task: dict[TaskId, list[LoggedDecision]] = {}
    dropped: dict[TaskId, int] = {}
    pairs: list[tuple[Address, Address]] = []
    time_us: array[int] = array("q")
    pair: array[int] = array("q")
    age_us: array[int] = array("q")


class RunLog(msgspec.Struct, frozen=True):
    """All that a tracer has recorded; intervals are of equal length.

    Args:
        addresses, kinds: addresses and kinds of messages that flights name.
        meanings: per kind of message, the first line of its documentation.
        sent: per kind of message, how many were sent in each interval.
        facts: per name, how many in each interval, of those that a design counts as inconsistencies or conflicts.
        attempts: columns, see `ATTEMPT_COLUMNS`, of attempts that have ended or run at the end.
        decided: decisions of schedulers that explain themselves.
        preemptions: time, reporting component, and fact.
        drained: time, node, and True where it is drained from then on.
        crashed: time, component, and True where it is gone from then on.
    """

    begin_us: Time
    step_us: Time
    addresses: list[Address]
    kinds: list[str]
    meanings: list[str]
    sent: list[list[int]]
    flights: list[Flight]
    roles: list[RoleCounts]
    views: list[ViewErrors]
    facts: dict[str, list[int]]
    moments: list[tuple[Time, str]]
    attempts: dict[str, array[int]]
    jobs: list[JobEntry] = []
    decided: DecisionHistory = DecisionHistory()
    preemptions: list[tuple[Time, Address, Preemption]] = []
    drained: list[tuple[Time, Address, bool]] = []
    crashed: list[tuple[Time, Address, bool]] = []
    end_us: Time = 0


ATTEMPT_COLUMNS: Final = ("task", "job", "machine", "start_us", "finish_us", "attempt", "outcome")
TASKS_EXPLAINED_MAX: Final = 200_000
"""Tasks whose decisions are kept; those of later ones are counted."""
REFUSED: Final = -1


class RecordingSource(msgspec.Struct, frozen=True, eq=False):
    """The run or federation that was recorded.

    Args:
        title, subtitle: its name; the number of machines, and the origin of the recording.
        nodes: address of each node -> number of its machine.
        owners: the components responsible for each node, where the scheduler declares them.
        due: guaranteed shares by user.
        origin_us: time 0 of the recording, microseconds since 1970; 0: a run that counts from its beginning.
        lasts_s: initial length of the playback, without its pauses to read.
        facts: names and numbers for programs.
    """

    title: str
    subtitle: str
    cluster: Cluster
    nodes: Mapping[Address, int]
    owners: Mapping[Address, Sequence[Address]] = {}
    due: Mapping[str, Fraction] = {}
    shares: tuple[Share, ...] = ()
    origin_us: Time = 0
    lasts_s: int = 30
    facts: Mapping[str, object] = {}


def source_of(title: str, subtitle: str, cluster: Cluster, deployment: Deployment, **fields: Any) -> RecordingSource:
    """The source of a recording of a deployment; further fields as in `RecordingSource`."""
    draining = deployment.capability(Draining)
    shares = deployment.capability(DueShares) or DueShares()
    owners = {} if draining is None else {node: draining.owners_of(node) for node in deployment.machines}
    tree = shares.under({}) if shares.under is not None else ()
    machines, due = deployment.machines, shares.guaranteed
    return RecordingSource(title, subtitle, cluster, machines, owners, due, tree, **fields)


class WorkLog:
    """Collects the work of a run; times are those of the recording.

    Attributes:
        preemptions, drained, crashed: see `RunLog`.
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
            entry = self._jobs.get(job.id)
            if entry is None:
                first = job.tasks[0].id if job.tasks else NEVER
                entry = self._jobs[job.id] = JobEntry(job.id, job.user, now, job.task_count, first, [])
            self._add(entry, job.tasks)
        elif isinstance(message, MoreTasks):
            if (entry := self._jobs.get(message.job)) is not None:
                self._add(entry, message.tasks)
        elif isinstance(message, Cancel):
            if (entry := self._jobs.get(message.job)) is not None and entry.cancelled_us == NEVER == entry.done_us:
                entry.cancelled_us = now
        # An operator's repeated order changes nothing and is no moment.
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
        job = self._jobs.get(message.job)
        if job is not None and job.done_us == NEVER:
            job.done_us = now

    def observed(self, address: Address, fact: Fact, now: Time) -> None:
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

        logged = self._of_task.get(decision.task)
        if logged is None:
            if len(self._of_task) < TASKS_EXPLAINED_MAX:
                self._of_task[decision.task] = [LoggedDecision(now, by, decision)]
            return

        logged.append(LoggedDecision(now, by, decision))
        # The first decision stays, since it shows where the task went at first; the second oldest goes.
        if len(logged) > KEPT_PER_TASK:
            del logged[1]
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


_WORDS: Final = re.compile(r"\w+")


class Queues:
    """Counts tasks that wait; a task waits at the component that last received it, until it starts."""

    def __init__(self, bins: int) -> None:
        self._bins = bins
        self._bin = 0
        self._at: dict[TaskId, Address | None] = {}
        self._job_of: dict[TaskId, JobId] = {}
        self._of_job: dict[JobId, set[TaskId]] = {}
        self._now: Counter[str] = Counter()
        self._most: dict[str, list[int]] = {}

    def begin(self, at: int) -> None:
        """Begin an interval with the tasks that wait now."""
        self._bin = at
        for role, counts in self._most.items():
            counts[at] = self._now[role]

    def received(self, address: Address, message: Message) -> None:
        """Move the tasks that a message names to its receiver."""
        for name, has_whole_tasks in task_fields(type(message)):
            for named in flat(getattr(message, name)):
                if isinstance(named, Job):
                    for task in named.tasks:
                        self._put(task, address)
                elif isinstance(named, Task):
                    self._put(named, address)
                elif not has_whole_tasks and named in self._at:
                    self._move(named, address)

    def _put(self, task: Task, address: Address) -> None:
        if task.id not in self._job_of:
            self._job_of[task.id] = task.job
            self._of_job.setdefault(task.job, set()).add(task.id)
            self._at[task.id] = None
        if task.id in self._at:
            self._move(task.id, address)

    def _move(self, task: TaskId, address: Address | None) -> None:
        address_before = self._at[task]
        if address_before == address:
            return

        self._at[task] = address
        if address_before is not None:
            self._now[role_of(address_before)] -= 1

        if address is not None:
            role = role_of(address)
            self._now[role] += 1
            counts = self._most.setdefault(role, [0] * self._bins)
            counts[self._bin] = max(counts[self._bin], self._now[role])

    def started(self, task: TaskId) -> None:
        """Remove a task that has started from its queue."""
        if task in self._at:
            self._move(task, None)
            del self._at[task]

    def lost(self, task: TaskId) -> None:
        """Have a task wait again after a lost attempt, at the next component that receives it."""
        if task in self._job_of:
            self._at[task] = None

    def forget(self, job: JobId) -> None:
        """Remove all tasks of a job that is done or cancelled."""
        for task in self._of_job.pop(job, ()):
            self.started(task)
            del self._job_of[task]

    def of(self, role: str) -> list[int]:
        """The most tasks that wait at the components of a role together, in each interval."""
        return self._most.get(role, [0] * self._bins)


@functools.cache
def task_fields(kind: type[Message]) -> tuple[tuple[str, bool], ...]:
    """The fields of a message that name tasks or a job by their declared types; True: whole tasks, False: numbers."""
    fields = []
    for base in kind.__mro__:
        for name, declared in inspect.get_annotations(base).items():
            words = set(_WORDS.findall(str(declared)))
            if words & {"Task", "Job", "TaskId"} and "ClassVar" not in words:
                fields.append((name, "TaskId" not in words))

    return tuple(fields)


def flat(nested: Any) -> Iterator[Any]:
    """The items of nested tuples."""
    if isinstance(nested, tuple):
        for inner in nested:
            yield from flat(inner)
    elif nested is not None:
        yield nested
