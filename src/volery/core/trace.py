"""A workload as compact columns: what arrives when, how long it truly runs, what it needs."""

from __future__ import annotations

import hashlib
import sys
from array import array

import msgspec

from volery.core.events import MoreTasks, Submit
from volery.core.model import CHUNK_TASKS, Amounts, Job, JobId, Message, Task, Time

DIGEST_ITEMS = 1 << 16


def longs(count: int = 0, value: int = 0) -> array[int]:
    """An array of 64-bit integers, all equal."""
    return array("q", [value]) * count


class Trace(msgspec.Struct, frozen=True):
    """Jobs in order of arrival; the tasks of job j are `first[j]` to `first[j + 1]` (exclusive).

    Args:
        name: what reports call it.
        arrival_us: per job, not decreasing.
        first: per job the number of its first task, and the task count at the end.
        duration_us: per task, the true duration; only drivers may read it.
        estimate_us: per job, what schedulers may assume about a task's duration.
        constraints: per task, its constraint bit set, 32 or 64 bits wide; empty when no task has any.
        user: per job, or empty.
        resources: what requests count, each name with its unit; empty where every task takes one slot.
        requests: the distinct requests, units of each resource.
        request: per task, the place of its request among `requests`; empty where every task takes one slot.
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

    @property
    def job_count(self) -> int:
        """Number of jobs."""
        return len(self.arrival_us)

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return len(self.duration_us)

    def job_of_task(self) -> array[int]:
        """Per task, the number of its job."""
        jobs = array("q")
        for j in range(self.job_count):
            jobs.extend(longs(self.first[j + 1] - self.first[j], j))
        return jobs

    def submission(self, job: JobId) -> list[Message]:
        """The messages that submit a job: one Submit, and MoreTasks where it exceeds a chunk."""
        low, high = self.first[job], self.first[job + 1]
        estimate = self.estimate_us[job]
        if self.request:
            masks = self.constraints[low:high].tolist() if self.constraints else [0] * (high - low)
            asked = [self.requests[place] for place in self.request[low:high].tolist()]
            pairs = zip(masks, asked, strict=True)
            tasks = tuple([Task(low + i, job, mask, estimate, b"", need) for i, (mask, need) in enumerate(pairs)])
        elif self.constraints:
            tasks = tuple(
                [Task(low + i, job, mask, estimate) for i, mask in enumerate(self.constraints[low:high].tolist())]
            )
        else:
            tasks = tuple([Task(i, job, 0, estimate) for i in range(low, high)])
        user = self.user[job] if self.user else ""
        messages: list[Message] = [Submit(Job(job, high - low, tasks[:CHUNK_TASKS], estimate, user))]
        messages += [
            MoreTasks(job, at, tasks[at : at + CHUNK_TASKS]) for at in range(CHUNK_TASKS, high - low, CHUNK_TASKS)
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
        return sha.hexdigest()


def little_endian(column: array[int]) -> bytes:
    """The bytes of a column, the same on every machine."""
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


NEVER: Time = -1
"""Stands in a record for a moment that never came."""
