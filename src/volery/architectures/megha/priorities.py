"""Order of tasks that wait at a Global Master, by the priorities of their jobs (future work of the first Megha, VIII).

Each Global Master orders its own tasks: masters do not communicate, so that a job at one may start before a more urgent
one that waits at another.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Any, Protocol

from volery.core.model import Job, JobId, Task


class OpenJobs(Protocol):
    """The jobs that are under way at a Global Master."""

    def is_open(self, job: JobId) -> bool:
        """Find out whether a job is under way."""


class JobHost(Protocol):
    """The Global Master of a queue; no function of it is kept, since a snapshot of the component is a pickle."""

    @property
    def jobs(self) -> OpenJobs:
        """The jobs that are under way; set after the queue is made."""


class PriorityQueue:
    """The most urgent tasks that fit come first; among equals, first come first served.

    Args:
        make_queue: Maker of the queue of one priority.
        host: The Global Master; the priorities of jobs that are not under way there are forgotten.
    """

    def __init__(self, make_queue: Callable[[], Any], host: JobHost) -> None:
        self._make_queue = make_queue
        self._host = host
        self._queues: dict[int, Any] = {}
        self._descending: list[int] = []
        self._priorities: dict[JobId, int] = {}
        self._forget_at = 64

    @property
    def length(self) -> int:
        """The number of tasks that wait."""
        return sum(queue.length for queue in self._queues.values())

    def submitted(self, job: Job) -> None:
        """Note the priority of a job before its tasks are queued."""
        if len(self._priorities) >= self._forget_at:
            is_open = self._host.jobs.is_open
            self._priorities = {job: priority for job, priority in self._priorities.items() if is_open(job)}
            self._forget_at = max(64, 2 * len(self._priorities))
        if job.priority:
            self._priorities[job.id] = job.priority

    def _queue_of(self, task: Task) -> Any:
        priority = self._priorities.get(task.job, 0)
        if priority not in self._queues:
            self._queues[priority] = self._make_queue()
            insort(self._descending, priority, key=lambda value: -value)
        return self._queues[priority]

    def push(self, task: Task) -> None:
        """Join at the tail of the tasks of its priority."""
        self._queue_of(task).push(task)

    def push_front(self, task: Task) -> None:
        """Join at the head of the tasks of its priority."""
        self._queue_of(task).push_front(task)

    def pop_fitting(self, *offer: int) -> Task | None:
        """Take the most urgent task that fits; see `ConstraintQueue` and `VectorQueue` for what is offered."""
        for priority in self._descending:
            queue = self._queues[priority]
            if queue.length and (task := queue.pop_fitting(*offer)) is not None:
                return task  # type: ignore[no-any-return]  # queues are of tasks
        return None

    def remove(self, is_unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out; the others keep their places."""
        return [task for queue in self._queues.values() for task in queue.remove(is_unwanted)]

    def masks(self) -> list[int]:
        """The distinct constraint sets that wait, of queues of slots."""
        return list(dict.fromkeys(mask for queue in self._queues.values() for mask in queue.masks()))

    def kinds(self) -> list[Any]:
        """The distinct constraint sets and requests that wait, of queues of amounts."""
        return list(dict.fromkeys(kind for queue in self._queues.values() for kind in queue.kinds()))

    def __contains__(self, kind: object) -> bool:
        return any(kind in queue for queue in self._queues.values())
