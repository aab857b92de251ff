"""Jobs of Slurm's controller: those that wait, in the order in which they are considered, and those that run.

An array is one entry of the queue, whose elements start one by one; any other job is an array of one element. Times are
whole seconds, and limits are whole minutes, as in Slurm.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from volery.architectures.slurm.nodes import JobNeed, NodeAllocation
from volery.architectures.slurm.parameters import MINUTE
from volery.core.model import NEVER, SECOND, Job, JobId, Task, TaskId, Time

YEAR: Final = 365 * 24 * 60 * MINUTE
"""Seconds for which a job is expected to run that has neither limit nor estimate."""
NEVER_S: Final = -(10**9)
Element = tuple[Task, ...]
Key = tuple[int, int, int, int, int]


class SlurmPartition(msgspec.Struct, frozen=True):
    """A partition: a set of nodes with the rules for the jobs that are submitted to it.

    Args:
        name: Name, as in `Job.partition`.
        nodes: Vector of its nodes.
        tier: Jobs of a partition with a higher tier are considered first, and may preempt (PriorityTier).
        job_factor: NodeAllocation of the priority of its jobs (PriorityJobFactor).
        max_s: Longest limit of a job; 0: none (MaxTime).
        default_s: Limit of a job that has none; 0: none (DefaultTime).
        is_exclusive: True if its jobs are given whole nodes (OverSubscribe=EXCLUSIVE).
        min_nodes, max_nodes: Bounds of the count of nodes of a job; 0: none.
        preempt_mode: Fate of its jobs that are preempted: OFF, REQUEUE or CANCEL; empty: that of the cluster.
    """

    name: str
    nodes: int
    tier: int = 1
    job_factor: int = 1
    max_s: int = 0
    default_s: int = 0
    is_exclusive: bool = False
    min_nodes: int = 0
    max_nodes: int = 0
    preempt_mode: str = ""


class Throttle(msgspec.Struct, eq=False):
    """The count of elements of an array that run, and that may run at once (the N of sbatch -a 0-99%N)."""

    most: int
    running: int = 0

    @property
    def is_full(self) -> bool:
        """True if no other element may start."""
        return self.running >= self.most


class QueuedJob:
    """A job that waits, or an array with the elements that wait.

    Args:
        job: Job as it was submitted; its tasks may be a part of it.
        number: Number by which jobs of one submission time are ordered.
        partition: SlurmPartition that it was submitted to.
        need: Needs of each of its elements.
        elements: Elements, each with the tasks that start together.
        submit_s: Time of its submission.
        eligible_s: Time from which its age counts.

    Attributes:
        points: Points that its submitter adds to its priority (of sbatch --nice, below 0).
        priority: Priority, of which the largest goes first.
        preempted_s: Time at which jobs were ended for it; NEVER_S: none were.
        listed_us: Time from which Slurm's list of jobs has the next element; jobs that end together have its order.
        throttle: Bound of the elements that run at once; None: there is none.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        partition: SlurmPartition,
        need: JobNeed,
        elements: Sequence[Element],
        submit_s: int,
        eligible_s: int,
    ) -> None:
        self.id: JobId = job.id
        self.user = job.user
        self.number = number
        self.partition = partition
        self.need = need
        self.elements = deque(elements)
        self.is_array = len(elements) > 1
        self.submit_s = submit_s
        self.eligible_s = eligible_s
        self.limit_s = limit_s(job.limit_us, partition)
        self.points = job.priority
        self.priority = 0
        self.preempted_s = NEVER_S
        self.listed_us: Time = submit_s * SECOND
        self.throttle: Throttle | None = None
        self.key: Key = (0, 0, 0, 0, 0)

    @property
    def is_throttled(self) -> bool:
        """True if so many elements run that no other may start."""
        return self.throttle is not None and self.throttle.is_full

    def runs_for_s(self) -> int:
        """The time that the next element may run, in seconds: its limit, or without one what it is estimated."""
        if self.limit_s:
            return self.limit_s
        estimate_us = max([task.estimate_us for task in self.elements[0]])
        return whole_minutes(estimate_us) if estimate_us else YEAR


class StartedJob:
    """An element of a job that runs, or is being ended.

    Args:
        pending: Job that it is an element of.
        number: Number of the start.
        tasks: Tasks that run together, of one job.
        parts: Nodes that it has, with what it takes of each.
        start_s: Time of its start.
        cores: Count of cores that it has.

    Attributes:
        end_s: Time at which it is expected to have ended.
        listed: Order of it among jobs that end together.
        unfinished: Tasks that have not ended.
        preempted_tasks: Tasks that were killed and are to run again.
        preemptor: Job for which it is being ended; None: it is not.
        completing_nodes: Vector of its nodes that have not answered after its end.
        answers: Times of the answers to come, the last first, each with the vector of its nodes.
    """

    def __init__(
        self,
        pending: QueuedJob,
        number: int,
        tasks: Element,
        parts: Sequence[NodeAllocation],
        start_s: int,
        cores: float,
    ) -> None:
        self.id: JobId = tasks[0].job
        self.number = number
        self.listed = pending.listed_us, pending.number
        self.end_s = start_s + pending.runs_for_s()
        self.pending = pending
        self.tasks = tasks
        self.parts = parts
        self.start_s = start_s
        self.cores = cores
        self.nodes = sum([1 << part.node for part in parts])
        self.unfinished: dict[TaskId, NodeAllocation] = {task.id: part for part in parts for task in part.tasks}
        self.preempted_tasks: list[Task] = []
        self.preemptor: QueuedJob | None = None
        self.completing_nodes = self.nodes
        self.answers: list[tuple[Time, int]] = []


class AdvanceReservation(msgspec.Struct, frozen=True):
    """Nodes that are kept for some users for a time, as an advance reservation of Slurm with the flag MAGNETIC.

    Args:
        nodes: Vector of the nodes.
        begin_s, end_s: Time for which they are kept, in seconds.
        users: Users whose jobs may run there; nobody: maintenance.
    """

    nodes: int
    begin_s: int
    end_s: int
    users: frozenset[str] = frozenset()

    def bars(self, user: str, begin_s: int, end_s: int) -> bool:
        """True if a job that runs from a time to another may not have the nodes."""
        return self.begin_s < end_s and begin_s < self.end_s and user not in self.users


class PendingQueue:
    """Jobs that wait, in the order in which the controller considers them.

    The order is that of `sort_job_queue2` in Slurm 22.05: tier of the partition, priority, submission, number.
    """

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._jobs: dict[Key, QueuedJob] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[QueuedJob]:
        """Yield the jobs in order; each may be removed while it is handled, and no other."""
        place = 0
        while place < len(self._keys):
            key = self._keys[place]
            yield self._jobs[key]
            place += place < len(self._keys) and self._keys[place] == key

    def add(self, job: QueuedJob) -> None:
        """Add a job, whose priority is known."""
        job.key = (-job.partition.tier, -job.priority, job.submit_s, job.number, job.elements[0][0].id)
        insort(self._keys, job.key)
        self._jobs[job.key] = job

    def discard(self, job: QueuedJob) -> None:
        """Remove a job, if it waits here."""
        if self._jobs.pop(job.key, None) is not None:
            del self._keys[bisect_left(self._keys, job.key)]

    def sort(self) -> bool:
        """Sort the jobs again by priorities that have changed; returns whether their order has."""
        jobs = list(self)
        self._jobs.clear()
        self._keys.clear()
        for job in jobs:
            job.key = (-job.partition.tier, -job.priority, job.submit_s, job.number, job.elements[0][0].id)
            self._jobs[job.key] = job
        self._keys = sorted(self._jobs)
        return list(self) != jobs


def whole_minutes(time_us: Time) -> int:
    """The seconds of the whole minutes that a time takes."""
    return -(-time_us // (MINUTE * SECOND)) * MINUTE


def limit_s(limit_us: Time, partition: SlurmPartition) -> int:
    """The limit of a job in a partition, in seconds; 0: it has none."""
    if limit_us != NEVER:
        return whole_minutes(limit_us)
    return partition.default_s or partition.max_s
