"""Tag constraints in the lab: launches that break one are refused, and jobs whose tags are gone are given up.

A scheduler learns of the end of a task only after it. So a task that has ended counts for `least` (affinity) where it
ended after the subject was submitted, or at most one hop before. Where messages may overtake each other (faults,
jitter, costs, ties in another order), an order to start may arrive before that of the task on which it relies: there
`most` alone is enforced.

A task that needs others near it can never start when too few of those are left that have not finished. The submitter
cancels its job as soon as nothing of it runs, and its tasks count as ones that fit no machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from volery.core.events import TAG_TASKS_GIVEN_UP, TaskFinished
from volery.core.model import NEVER, SECOND, JobId, NodeGroup, TagConstraint, Tags, Task, TaskId, Time
from volery.core.tags import NODE_GROUPS, counted, exceeded, has, lacking, node_sets, waits_for_others, worded
from volery.sim.execution import BrokenRule, Extension, LabPort, LaunchRule, launch_of
from volery.sim.lab import Lab
from volery.sim.submitter import Submitter

RESULT_US: Final[Time] = 60 * SECOND
"""A result that comes at all comes within this time."""
NodeSet = tuple[NodeGroup, int]


class TagRule(LaunchRule):
    """Refuses launches that break a hard tag constraint, of the task or of one that runs near it.

    Args:
        lab: Shared state of the run.
        hop_us: Longest delay of a message; NEVER: messages may overtake each other.
    """

    def __init__(self, lab: Lab, hop_us: Time) -> None:
        self._lab = lab
        self._hop_us = hop_us
        self._sets = node_sets(lab.cluster)
        self._running_counts: dict[NodeSet, dict[Tags, int]] = {}
        self._cluster_counts: dict[Tags, int] = {}
        self._running: dict[LabPort, dict[tuple[TaskId, int], Tags]] = {}
        self._ends: dict[tuple[NodeSet, Tags], list[Time]] = {}

    def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:
        """Refuse the launch, or let it pass."""
        tags = task.tags
        if tags is None:
            return

        for group in NODE_GROUPS:
            node_set = group, self._sets[group][port.machine]
            running_counts = self._running_counts.get(node_set, {})
            broken = exceeded(tags, running_counts, group)
            if broken is None and self._hop_us != NEVER:
                broken = self._lacking(task, tags, node_set)

            if broken is not None:
                count = counted(running_counts, broken.target)
                problem = f"{count} others there have the target of the tag constraint {worded(broken)}"
                raise BrokenRule(f"{launch_of(port, task, attempt)}: {problem}")

    def _lacking(self, task: Task, tags: Tags, node_set: NodeSet) -> TagConstraint | None:
        running_counts = self._running_counts.get(node_set, {})
        broken = lacking(tags, running_counts, self._cluster_counts, node_set[0])

        if broken is None:
            return None
        # The report of an end takes one hop: what has ended since one hop before the job's arrival may still have
        # counted when the task was placed.
        since = self._lab.trace.arrival_us[task.job] - self._hop_us
        counts = dict(running_counts)
        for (ended_set, ended_tags), ends in self._ends.items():
            if ended_set == node_set:
                counts[ended_tags] = counts.get(ended_tags, 0) + len(ends) - bisect_left(ends, since)
        return lacking(tags, counts, self._cluster_counts, node_set[0])

    def launched(self, port: LabPort, task: Task, attempt: int) -> None:
        """Count a task that has started."""
        if task.tags is not None:
            self._running.setdefault(port, {})[task.id, attempt] = task.tags
            self._count(port, task.tags, 1)

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:
        """Count the task no longer."""
        self._end(port, (event.task.id, event.attempt), now)

    def killed(self, port: LabPort, event: TaskFinished) -> None:
        self._end(port, (event.task.id, event.attempt), self._lab.now)

    def silenced(self, port: LabPort) -> None:
        """End the tasks on the machine of a component that is gone."""
        for key in list(self._running.get(port, ())):
            self._end(port, key, self._lab.now)

    def _end(self, port: LabPort, key: tuple[TaskId, int], now: Time) -> None:
        tags = self._running.get(port, {}).pop(key, None)
        if tags is None:
            return

        self._count(port, tags, -1)
        for group in NODE_GROUPS:
            self._ends.setdefault(((group, self._sets[group][port.machine]), tags), []).append(now)

    def _count(self, port: LabPort, tags: Tags, sign: int) -> None:
        cluster_counts = self._cluster_counts
        for counts in (
            cluster_counts,
            *[self._running_counts.setdefault((group, self._sets[group][port.machine]), {}) for group in NODE_GROUPS],
        ):
            counts[tags] = counts.get(tags, 0) + sign
            if not counts[tags]:
                del counts[tags]


class TagWaits(LaunchRule, Extension):
    """Gives up jobs that wait for tags of tasks of which too few are left.

    Args:
        lab, submitter: Shared state and submitter of the run.
    """

    def __init__(self, lab: Lab, submitter: Submitter) -> None:
        self._lab = lab
        self._submitter = submitter
        trace = lab.trace
        self._running: dict[JobId, int] = {}
        self._running_on: dict[LabPort, dict[tuple[TaskId, int], JobId]] = {}
        self._ended_tasks: set[TaskId] = set()
        self._unfinished_counts: dict[tuple[str, ...], int] = {}
        self._waiting: dict[str, dict[TagConstraint, dict[JobId, None]]] = {}
        self._doomed_jobs: dict[JobId, None] = {}
        submitter.answered.append(self.answered)

        for job in range(trace.job_count):
            tags = trace.tags_of(job)
            if tags is None:
                continue
            for constraint in tags.constraints:
                if waits_for_others(constraint, tags):
                    self._unfinished_counts[constraint.target] = 0
                    self._waiting.setdefault(constraint.target[0], {}).setdefault(constraint, {})[job] = None

        # Targets come first, then their tasks: a job may be the target of one that arrives later.
        for job in range(trace.job_count):
            tags = trace.tags_of(job)
            for target in self._targets(tags) if tags is not None else ():
                self._unfinished_counts[target] += trace.first[job + 1] - trace.first[job]

    def _targets(self, tags: Tags) -> set[tuple[str, ...]]:
        """The targets that some job waits for, and of which tasks with these tags are."""
        constraints = [constraint for name in tags.names for constraint in self._waiting.get(name, ())]
        return {constraint.target for constraint in constraints if has(tags, constraint.target)}

    def launched(self, port: LabPort, task: Task, attempt: int) -> None:
        """Count what runs of the job."""
        if task.tags is not None:
            self._running[task.job] = self._running.get(task.job, 0) + 1
            self._running_on.setdefault(port, {})[task.id, attempt] = task.job

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:
        """A task is over: it is nobody's target any more."""
        self._end(port, (event.task.id, event.attempt), now)
        # A task whose report was lost runs and finishes again.
        if event.task.tags is not None and event.task.id not in self._ended_tasks:
            self._ended_tasks.add(event.task.id)
            self._lose(event.task.tags, 1, now)

    def killed(self, port: LabPort, event: TaskFinished) -> None:
        """An attempt is over; another may follow."""
        self._end(port, (event.task.id, event.attempt), self._lab.now)

    def silenced(self, port: LabPort) -> None:
        """Attempts on the machine of a component that is gone are over; others may follow."""
        for key in list(self._running_on.get(port, ())):
            self._end(port, key, self._lab.now)

    def _end(self, port: LabPort, key: tuple[TaskId, int], now: Time) -> None:
        job = self._running_on.get(port, {}).pop(key, None)
        if job is None:
            return
        self._running[job] -= 1
        if job in self._doomed_jobs:
            self._lab.schedule(now, self._maybe_give_up, job, None)

    def answered(self, job: JobId, now: Time) -> None:
        """Tasks of a job that is done have run, or never will: they fit no machine, or were given up."""
        tags = self._lab.trace.tags_of(job)
        unfinished = self._unfinished(job)
        if tags is not None and unfinished:
            self._ended_tasks.update(unfinished)
            self._lose(tags, len(unfinished), now)

    def _lose(self, tags: Tags, count: int, now: Time) -> None:
        """Give up jobs that need more tasks with tags than are left, now that some of these never run again."""
        for target in sorted(self._targets(tags)):
            self._unfinished_counts[target] -= count
            for constraint, jobs in self._waiting[target[0]].items():
                if constraint.target == target and self._unfinished_counts[target] < constraint.least:
                    self._give_up_later(jobs, now)

    def _give_up_later(self, jobs: Iterable[JobId], now: Time) -> None:
        for job in jobs:
            if job not in self._doomed_jobs:
                self._doomed_jobs[job] = None
                at = max(now, self._lab.trace.arrival_us[job] + 1)  # a job is cancelled only after its submission
                self._lab.schedule(at, self._maybe_give_up, job, None)

    def _maybe_give_up(self, job: JobId, is_late: bool | None, now: Time) -> None:
        """Cancel a job of which nothing runs; if all has finished, later: a crash may have taken a result with it."""
        if self._running.get(job) or self._lab.records.answered_us[job] != NEVER:
            return
        if is_late or self._unfinished(job):
            self._submitter.cancel(job)
        else:
            self._lab.schedule(now + RESULT_US, self._maybe_give_up, job, True)

    def _unfinished(self, job: JobId) -> list[TaskId]:
        first = self._lab.trace.first
        return [task for task in range(first[job], first[job + 1]) if task not in self._ended_tasks]

    def close(self) -> None:
        """Count the tasks of jobs that were given up, as such and among those that fit no machine."""
        records, first = self._lab.records, self._lab.trace.first
        given_up = 0

        for job in self._doomed_jobs:
            tasks = range(first[job], first[job + 1])
            unfinished = sum([records.finish_us[task] == NEVER for task in tasks])
            given_up += unfinished - records.unsatisfiable[job]
            records.unsatisfiable[job] = unfinished

        if given_up:
            records.counters[TAG_TASKS_GIVEN_UP] = given_up
