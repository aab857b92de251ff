"""Workflows in the lab: readiness of tasks, and refusals of those that wait (docs/decisions/0012 and 0024).

The submitter receives an end one hop of the network's default delay after it, and then sends the tasks that are ready.
Tasks that are submitted later than their job are unknown before. Runs of traces whose jobs come whole have none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import or_

from volery.core.events import MoreTasks, TaskFinished
from volery.core.model import CHUNK_TASKS, NEVER, Amounts, Cluster, JobId, Message, Task, TaskId, Time
from volery.core.trace import Trace, longs
from volery.core.workflows import below, children_of, delays_us
from volery.sim.execution import BrokenRule, LabPort, LaunchRule, launch_of
from volery.sim.lab import Lab
from volery.sim.submitter import Submitter


def lacking(trace: Trace, cluster: Cluster) -> list[bool]:
    """Flags of the tasks that no machine could hold, even an empty one."""
    offers: set[tuple[int, Amounts]] = set(
        zip(cluster.constraints, cluster.capacities or ((),) * len(cluster.constraints), strict=True)
    )
    is_kind_lacking: dict[tuple[int, Amounts], bool] = {}
    is_lacking = []

    for task in range(trace.task_count):
        needs = trace.constraints[task] if trace.constraints else 0
        request = trace.requests[trace.request[task]] if trace.request else ()
        # Traces have few distinct requests and millions of tasks.
        if (needs, request) not in is_kind_lacking:
            is_kind_lacking[needs, request] = not any(
                not needs & ~bits and all(a <= b for a, b in zip(request, amounts, strict=True))
                for bits, amounts in offers
            )
        is_lacking.append(is_kind_lacking[needs, request])
    return is_lacking


def _is_any(_: TaskId) -> bool:
    return True


class Workflows(LaunchRule):
    """The tasks of a run that wait for others: the submitter asks for those that it may send.

    Args:
        lab: Shared state of the run.
        submitter: Submitter of the run.
        refused: True for tasks that the design lets run on no machine.
        takes_whole_graphs: True if the design takes workflows whole, so that it alone holds tasks back.

    Attributes:
        waits: Count of each task's unfinished parents, and one more until it is submitted.
    """

    def __init__(self, lab: Lab, submitter: Submitter, refused: Sequence[bool], *, takes_whole_graphs: bool) -> None:
        self._lab = lab
        self._submitter = submitter
        submitter.source = self
        self._takes_whole_graphs = takes_whole_graphs
        self._first, self._children = children_of(trace := lab.trace)

        places = trace.parent_first or longs(trace.task_count + 1)
        self.waits = array("i", [places[task + 1] - places[task] for task in range(trace.task_count)])
        self._unsubmitted = self._schedule_submissions()
        self._ended = bytearray(trace.task_count)

        unfit = list(map(or_, lacking(trace, lab.cluster), refused))
        self._barred = [False] * trace.task_count if takes_whole_graphs else below(trace, unfit)
        self._sent_tasks: dict[JobId, list[TaskId]] = {}
        self._ready_at: Time = NEVER
        self._ready_tasks: list[TaskId] = []

        ready_us = lab.records.ready_us
        for job in range(trace.job_count):
            for task in range(trace.first[job], trace.first[job + 1]):
                if not self.waits[task]:
                    ready_us[task] = trace.arrival_us[job]

    def _schedule_submissions(self) -> set[TaskId]:
        """Schedule tasks that are submitted later than their jobs; each waits for that as for a parent."""
        lab, trace = self._lab, self._lab.trace
        times = dict[Time, list[TaskId]]()
        for task, delay in enumerate(delays_us(trace)):
            if delay:
                times.setdefault(trace.submit_us[task], []).append(task)
                self.waits[task] += 1

        for at, tasks in times.items():
            lab.schedule(at, self._submit, tasks, None)
        return {task for tasks in times.values() for task in tasks}

    def _submit(self, tasks: list[TaskId], _: None, now: Time) -> None:
        """Submit tasks: those that a design may have by now are sent."""
        self._unsubmitted.difference_update(tasks)
        for task in tasks:
            self.waits[task] -= 1
            if not self.waits[task]:
                self._lab.records.ready_us[task] = now
        sendable = [task for task in tasks if not (self._held_back(task) or self._barred[task])]
        self._send(sendable, 0)

    def barred(self, job: JobId) -> int:
        """The count of tasks of a job that are never sent, because one above them fits no machine."""
        first = self._lab.trace.first
        return sum(self._barred[first[job] : first[job + 1]])

    def submission(self, job: JobId) -> list[Message]:
        """The messages that submit a job: all of it, or its tasks that have been ready so far."""
        trace = self._lab.trace
        low, high = trace.first[job], trace.first[job + 1]
        if self._has_one_submission(job):
            return trace.submission(job)
        task_ids = self._sent_tasks.get(job)

        # A submission that is repeated names the tasks sent so far, so that the indices of later chunks stay right.
        if task_ids is None:
            task_ids = self._sent_tasks[job] = [task for task in range(low, high) if not self._held_back(task)]

        tasks, replicas = trace.tasks_of(job, task_ids), trace.replicas_of(task_ids)
        parents = self._named_parents(task_ids, _is_any)
        return trace.messages(job, tasks, high - low - self.barred(job), parents, replicas)

    def _has_one_submission(self, job: JobId) -> bool:
        trace = self._lab.trace
        low, high = trace.first[job], trace.first[job + 1]
        has_parents = (
            not self._takes_whole_graphs and trace.parents and trace.parent_first[low] < trace.parent_first[high]
        )
        has_late_tasks = trace.submit_us and max(trace.submit_us[low:high], default=0) > trace.arrival_us[job]
        return not (has_parents or has_late_tasks)

    def _held_back(self, task: TaskId) -> bool:
        return task in self._unsubmitted if self._takes_whole_graphs else self.waits[task] > 0

    def _named_parents(
        self, tasks: Sequence[TaskId], is_named: Callable[[TaskId], bool]
    ) -> tuple[tuple[TaskId, ...], ...]:
        """The parents that each task's message names, for designs that take workflows whole."""
        parents_of = self._lab.trace.parents_of
        parents = (
            tuple([tuple(filter(is_named, parents_of(task))) for task in tasks]) if self._takes_whole_graphs else ()
        )
        return parents if any(parents) else ()

    def _open(self, task: TaskId) -> bool:
        return not self._ended[task]

    def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:
        """Refuse a task that waits for another."""
        if waits := self.waits[task.id]:
            problem = f"{waits} of its parents have not finished, or it has not been submitted"
            raise BrokenRule(f"{launch_of(port, task, attempt)}: {problem}")

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        """An attempt has finished; the submitter receives that later."""
        task = event.task.id
        if self._ended[task]:  # its report was lost, and it ran again
            return
        self._ended[task] = True

        waits, ready_us = self.waits, self._lab.records.ready_us
        for child in self._children[self._first[task] : self._first[task + 1]]:
            waits[child] -= 1
            if not waits[child]:
                ready_us[child] = now
                if not (self._takes_whole_graphs or self._barred[child]):
                    self._send_later(child, now)

    def _send_later(self, task: TaskId, now: Time) -> None:
        if self._ready_at != now:
            self._ready_at, self._ready_tasks = now, []
            self._lab.schedule(now + self._lab.network.delay_us, self._release, self._ready_tasks, None)
        self._ready_tasks.append(task)

    def _release(self, tasks: list[TaskId], _: None, _now: Time) -> None:
        """Send what has become ready in one instant: a message for each job, or several where they are many."""
        if tasks is self._ready_tasks:
            self._ready_at = NEVER
        self._send(tasks, self._lab.network.delay_us)

    def _send(self, tasks: list[TaskId], path: Time) -> None:
        """Further tasks of jobs, which have been on the way for so long already."""
        lab = self._lab

        lab.enter(path)
        for job, group in groupby(sorted(tasks), key=self._owner):
            # A job may be answered before its last task is ready: a cancelled one has tasks that never run.
            if lab.records.answered_us[job] != NEVER:
                continue
            task_ids = self._sent_tasks[job]
            numbers = list(group)
            for at in range(0, len(numbers), CHUNK_TASKS):
                chunk = numbers[at : at + CHUNK_TASKS]
                ready, replicas = lab.trace.tasks_of(job, chunk), lab.trace.replicas_of(chunk)
                self._submitter.send(
                    job, [MoreTasks(job, len(task_ids), ready, self._named_parents(chunk, self._open), replicas)]
                )
                task_ids += chunk

    def _owner(self, task: TaskId) -> JobId:
        return bisect_right(self._lab.trace.first, task) - 1

    def forget(self, job: JobId) -> None:
        """The job is done."""
        self._sent_tasks.pop(job, None)
