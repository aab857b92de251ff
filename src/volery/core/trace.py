"""A workload as compact columns: arrivals, true durations, and needs of tasks."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.model import (
    CHUNK_TASKS,
    INDIFFERENT,
    NEVER,
    Amounts,
    Gang,
    Job,
    JobId,
    Message,
    Preference,
    Tags,
    Task,
    TaskId,
)

DIGEST_ITEMS = 1 << 16
NO_GANG: Final = -1
"""In `Trace.gang_nodes`: the job is no gang."""
SPAN_MAX_US = 1 << 60
"""The last arrival and all durations, added up: times and work then stay within 64 bits."""


def longs(count: int = 0, value: int = 0) -> array[int]:
    """An array of 64-bit integers, all equal."""
    return array("q", [value]) * count


def check_times(trace: Trace) -> None:
    """Refuse a workload whose times, added up, leave 64 bits.

    Raises:
        InputError: with the sum and what is allowed.
    """
    span_us = sum(trace.duration_us) + (trace.arrival_us[-1] if trace.job_count else 0)
    if span_us > SPAN_MAX_US:
        longest = max(range(trace.task_count), key=trace.duration_us.__getitem__, default=0)
        problem = (
            f"its tasks take {span_us / 1e6:.3g} s together, the longest {trace.duration_us[longest] / 1e6:.3g} s "
            f"(task {longest}); at most {SPAN_MAX_US / 1e6:.3g} s fit. Give fewer or shorter tasks"
        )
        raise InputError(trace.name, problem)


class Trace(msgspec.Struct, frozen=True):
    """Jobs in order of arrival; the tasks of job j are `first[j]` to `first[j + 1]` (exclusive).

    Args:
        name: Name in reports.
        arrival_us: Arrival time of each job, not decreasing.
        first: Number of each job's first task, and the task count at the end.
        duration_us: True duration of each task; only drivers may read it.
        estimate_us: Assumed duration of a task of each job, for schedulers.
        constraints: Constraint bit set of each task, 32 or 64 bits wide; empty when no task has any.
        user: User of each job, or empty.
        resources: Resources that requests count, each name with its unit; empty where every task takes one slot.
        requests: Distinct requests, units of each resource.
        request: Place of each task's request among `requests`; empty where every task takes one slot.
        parent_first: Place of each task's first parent in `parents`, and the count of all at the end; empty where
            no task waits for another.
        parents: Numbers of the tasks that must finish before: of the same job, and smaller than the task's own.
        priority: Priority of each job, larger is more urgent; empty where all are alike.
        deadline_us: Time by which each job should be done, on the clock of `arrival_us`, or NEVER; empty where none has
            one.
        replica_first: Place of each task's first replica in `replicas`, and the count of all at the end; empty
            where no task has a preference.
        replicas: Numbers of the machines that hold the input of a task.
        far_permille: Duration of a task in a rack that holds its input, and elsewhere, in thousandths of its
            duration; only drivers may read it.
        told_estimate_us: Estimate of each job that schedulers receive in place of `estimate_us`, which then only
            decides whether the job counts as short; empty: they receive that.
        task_estimate_us: Assumed duration of each task, for schedulers; empty where that is the job's.
        preferences: Distinct preferences of jobs; durations hold on preferred machines.
        preference: Place of each job's preference among `preferences`; empty where all are indifferent.
        submit_us: Submission time of each task, on the clock of `arrival_us`: not before its job, nor before a task
            that it waits for; empty where all tasks are submitted with their jobs.
        tag_sets: Distinct sets of tags, each with the constraints of which it is a subject; see
            `volery.core.tags.with_tags`.
        tag_set: Place of the tags of each job's tasks among `tag_sets`; empty where no task has any.
        limit_us: Wall-clock limit of each attempt of a job's tasks, which the driver enforces, or NEVER; empty where
            no job has one.
        gang_nodes: Count of machines over which the tasks of each job are spread, which run only together; 0:
            together on any machines; NO_GANG: each task for itself. Empty where no job is a gang.
        gang_racks: Rack of the gang of each job, as `Gang.rack`; empty where gangs may lie in any racks.
        partition: Partition (a queue of machines) to which each job was submitted, or ""; empty where none was named.
    """

    name: str
    arrival_us: array[int]
    first: array[int]
    duration_us: array[int]
    estimate_us: array[int]
    constraints: array[int] = array("q")
    user: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    requests: tuple[Amounts, ...] = ()
    request: array[int] = array("H")
    parent_first: array[int] = array("q")
    parents: array[int] = array("q")
    priority: array[int] = array("q")
    deadline_us: array[int] = array("q")
    replica_first: array[int] = array("q")
    replicas: array[int] = array("i")
    far_permille: tuple[int, int] = (1000, 1000)
    task_estimate_us: array[int] = array("q")
    preferences: tuple[Preference, ...] = ()
    preference: array[int] = array("H")
    submit_us: array[int] = array("q")
    told_estimate_us: array[int] = array("q")
    tag_sets: tuple[Tags, ...] = ()
    tag_set: array[int] = array("H")
    limit_us: array[int] = array("q")
    gang_nodes: array[int] = array("i")
    gang_racks: array[int] = array("b")
    partition: tuple[str, ...] = ()

    @property
    def job_count(self) -> int:
        """The count of jobs in the trace."""
        return len(self.arrival_us)

    @property
    def task_count(self) -> int:
        """The count of tasks in the trace."""
        return len(self.duration_us)

    def job_of_task(self) -> array[int]:
        """The number of each task's job."""
        jobs = array("q")
        for job in range(self.job_count):
            jobs.extend(longs(self.first[job + 1] - self.first[job], job))
        return jobs

    def parents_of(self, task: TaskId) -> tuple[TaskId, ...]:
        """The tasks that must finish before this one may start."""
        if not self.parent_first:
            return ()
        return tuple(self.parents[self.parent_first[task] : self.parent_first[task + 1]])

    def replicas_of(self, numbers: Sequence[TaskId]) -> tuple[tuple[int, ...], ...]:
        """The machines that hold the input of each task; nothing where none of the tasks has a preference."""
        first = self.replica_first
        if not first:
            return ()
        replicas = tuple([tuple(self.replicas[first[task] : first[task + 1]]) for task in numbers])
        return replicas if any(replicas) else ()

    def submission(self, job: JobId) -> list[Message]:
        """The messages that submit a job whole: one Submit, and MoreTasks where it exceeds a chunk."""
        low, high = self.first[job], self.first[job + 1]
        parents: tuple[tuple[TaskId, ...], ...] = ()
        if self.parent_first and self.parent_first[low] < self.parent_first[high]:
            parents = tuple([self.parents_of(task) for task in range(low, high)])
        numbers = range(low, high)
        return self.messages(job, self.tasks_of(job, numbers), high - low, parents, self.replicas_of(numbers))

    def tags_of(self, job: JobId) -> Tags | None:
        """The tags of a job's tasks; None: they have none."""
        tags = self.tag_sets[self.tag_set[job]] if self.tag_set else None
        # Where only some jobs have tags, the empty set has a place among the sets, too.
        return tags if tags is not None and tags.names else None

    def gang_of(self, job: JobId) -> Gang | None:
        """The shape of the gang that a job's tasks form; None: they form none."""
        nodes = self.gang_nodes[job] if self.gang_nodes else NO_GANG
        if nodes == NO_GANG:
            return None
        rack = self.gang_racks[job] if self.gang_racks else 0
        return Gang(nodes, -(-(self.first[job + 1] - self.first[job]) // nodes) if nodes else 0, rack)

    def tasks_of(self, job: JobId, numbers: Sequence[TaskId]) -> tuple[Task, ...]:
        """Tasks of a job as schedulers see them.

        Args:
            job: Number of the job.
            numbers: Numbers of the tasks; a range where all.
        """
        tasks = self._untagged(job, numbers)
        tags = self.tags_of(job) if self.tag_set else None
        return tasks if tags is None else tuple([msgspec.structs.replace(task, tags=tags) for task in tasks])

    def _untagged(self, job: JobId, numbers: Sequence[TaskId]) -> tuple[Task, ...]:
        if self.task_estimate_us:
            return self._estimated(job, numbers)
        estimate = self.sent_estimate_us(job)

        # Three loops and not one: most traces have slots alone, and tasks are made by the million.
        if self.request:
            masks = self._values_of(self.constraints, numbers) if self.constraints else [0] * len(numbers)
            requests = [self.requests[place] for place in self._values_of(self.request, numbers)]
            rows = zip(numbers, masks, requests, strict=True)
            return tuple([Task(number, job, mask, estimate, b"", request) for number, mask, request in rows])

        if self.constraints:
            rows_of_slots = zip(numbers, self._values_of(self.constraints, numbers), strict=True)
            return tuple([Task(number, job, mask, estimate) for number, mask in rows_of_slots])
        return tuple([Task(number, job, 0, estimate) for number in numbers])

    def sent_estimate_us(self, job: JobId) -> int:
        """The estimate of a job's tasks that schedulers receive."""
        return (self.told_estimate_us or self.estimate_us)[job]

    def _estimated(self, job: JobId, numbers: Sequence[TaskId]) -> tuple[Task, ...]:
        """Tasks of a job, each with an estimate of its own."""
        masks = self._values_of(self.constraints, numbers) if self.constraints else [0] * len(numbers)
        requests = (
            [self.requests[k] for k in self._values_of(self.request, numbers)] if self.request else [()] * len(numbers)
        )
        rows = zip(numbers, masks, self._values_of(self.task_estimate_us, numbers), requests, strict=True)
        return tuple([Task(number, job, mask, estimate, b"", request) for number, mask, estimate, request in rows])

    @staticmethod
    def _values_of(values: array[int], numbers: Sequence[TaskId]) -> list[int]:
        if isinstance(numbers, range):
            return values[numbers.start : numbers.stop].tolist()
        return [values[number] for number in numbers]

    def messages(
        self,
        job: JobId,
        tasks: tuple[Task, ...],
        task_count: int,
        parents: tuple[tuple[TaskId, ...], ...] = (),
        replicas: tuple[tuple[int, ...], ...] = (),
    ) -> list[Message]:
        """Submit with tasks of a job, and MoreTasks where they exceed a chunk.

        Args:
            job: Number of the job.
            tasks: Tasks that are sent now.
            task_count: Count of those tasks and all that will follow.
            parents: Parents of each task, or nothing.
            replicas: Machines that hold the input of each task, or nothing.
        """
        first = Job(
            job,
            task_count,
            tasks[:CHUNK_TASKS],
            self.sent_estimate_us(job),
            self.user[job] if self.user else "",
            self.priority[job] if self.priority else 0,
            self.deadline_us[job] if self.deadline_us else NEVER,
            parents[:CHUNK_TASKS],
            replicas[:CHUNK_TASKS],
            self.preferences[self.preference[job]] if self.preference else INDIFFERENT,
            self.limit_us[job] if self.limit_us else NEVER,
            gang=self.gang_of(job) if self.gang_nodes else None,
            partition=self.partition[job] if self.partition else "",
        )

        messages: list[Message] = [Submit(first)]
        messages += [
            MoreTasks(
                job, at, tasks[at : at + CHUNK_TASKS], parents[at : at + CHUNK_TASKS], replicas[at : at + CHUNK_TASKS]
            )
            for at in range(CHUNK_TASKS, len(tasks), CHUNK_TASKS)
        ]
        return messages

    def digest(self) -> str:
        """SHA-256 over all columns: two traces are the same input exactly when their digests agree."""
        sha = hashlib.sha256()
        for column in (self.arrival_us, self.first, self.duration_us, self.estimate_us, self.constraints):
            sha.update(len(column).to_bytes(8, "little"))
            for low in range(0, len(column), DIGEST_ITEMS):  # in pieces: a narrow column is not widened whole
                sha.update(little_endian(array("q", column[low : low + DIGEST_ITEMS])))

        sha.update("\0".join(self.user).encode())
        if self.resources:
            sha.update(repr((self.resources, self.requests)).encode() + little_endian(array("q", self.request)))

        optional = ("parent_first", "parents", "priority", "deadline_us", "task_estimate_us", "submit_us")
        for name in (*optional, "told_estimate_us", "limit_us", "gang_nodes", "gang_racks"):
            column = getattr(self, name)
            if column:  # a trace without such a column keeps the digest that it had before there were any
                sha.update(f"{name}:{len(column)}".encode() + little_endian(array("q", column)))

        if self.partition:
            sha.update("\0".join(("partition", *self.partition)).encode())
        if self.replicas:
            sha.update(f"replicas:{len(self.replicas)}:{self.far_permille}".encode())
            sha.update(little_endian(array("q", self.replica_first)) + little_endian(array("q", self.replicas)))
        if self.preference:
            sha.update(repr(self.preferences).encode() + little_endian(array("q", self.preference)))
        if self.tag_set:
            sha.update(repr(self.tag_sets).encode() + little_endian(array("q", self.tag_set)))
        return sha.hexdigest()


def little_endian(column: array[int]) -> bytes:
    """The bytes of a column, the same on every machine."""
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
