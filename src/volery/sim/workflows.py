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
    """Per task, whether no machine could hold it, even an empty one."""
    offers: set[tuple[int, Amounts]] = set(
        zip(cluster.constraints, cluster.capacities or ((),) * len(cluster.constraints), strict=True)
    )
    known: dict[tuple[int, Amounts], bool] = {}
    found = []
    for task in range(trace.task_count):
        needs = trace.constraints[task] if trace.constraints else 0
        asked = trace.requests[trace.request[task]] if trace.request else ()
        if (needs, asked) not in known:
            known[needs, asked] = not any(
                not needs & ~bits and all(a <= b for a, b in zip(asked, amounts, strict=True))
                for bits, amounts in offers
            )
        found.append(known[needs, asked])
    return found


class Workflows(LaunchRule):
    """The tasks of a run that wait for others: the submitter asks for those that it may send.

    Args:
        lab: of the run.
        submitter: of the run.
        refused: per task, whether the design lets it run on no machine.
        whole: the design takes workflows whole, so that it alone holds tasks back.

    Attributes:
        waits: per task, how many of its parents have not finished, and one more until it is submitted.
    """

    def __init__(self, lab: Lab, submitter: Submitter, refused: Sequence[bool], *, whole: bool) -> None:
        self._lab = lab
        self._submitter = submitter
        submitter.source = self
        self._whole = whole
        self._first, self._children = children_of(trace := lab.trace)
        places = trace.parent_first or longs(trace.task_count + 1)
        self.waits = array("i", [places[task + 1] - places[task] for task in range(trace.task_count)])
        self._late = self._expect()
        self._ended = bytearray(trace.task_count)
        unfit = list(map(or_, lacking(trace, lab.cluster), refused))
        self._barred = [False] * trace.task_count if whole else below(trace, unfit)
        self._sent: dict[JobId, list[TaskId]] = {}
        self._ready_at: Time = NEVER
        self._ready: list[TaskId] = []
        ready_us = lab.records.ready_us
        for job in range(trace.job_count):
            for task in range(trace.first[job], trace.first[job + 1]):
                if not self.waits[task]:
                    ready_us[task] = trace.arrival_us[job]

    def _expect(self) -> set[TaskId]:
        """Tasks that are submitted later than their jobs; each waits for that as for a parent."""
        lab, trace, times = self._lab, self._lab.trace, dict[Time, list[TaskId]]()
        for task, delay in enumerate(delays_us(trace)):
            if delay:
                times.setdefault(trace.submit_us[task], []).append(task)
                self.waits[task] += 1
        for at, tasks in times.items():
            lab.schedule(at, self._come, tasks, None)
        return {task for tasks in times.values() for task in tasks}

    def _come(self, tasks: list[TaskId], _: None, now: Time) -> None:
        """Submit tasks: those that a design may have by now are sent."""
        self._late.difference_update(tasks)
        for task in tasks:
            self.waits[task] -= 1
            if not self.waits[task]:
                self._lab.records.ready_us[task] = now
        known = [task for task in tasks if not (self._held_back(task) or self._barred[task])]
        self._send(known, 0)

    def barred(self, job: JobId) -> int:
        """The count of tasks of a job that are never sent, because one above them fits no machine."""
        first = self._lab.trace.first
        return sum(self._barred[first[job] : first[job + 1]])

    def submission(self, job: JobId) -> list[Message]:
        """The messages that submit a job: all of it, or its tasks that have been ready so far."""
        trace = self._lab.trace
        low, high = trace.first[job], trace.first[job + 1]
        if self._comes_whole(job):
            return trace.submission(job)
        sent = self._sent.get(job)
        if sent is None:
            sent = self._sent[job] = [task for task in range(low, high) if not self._held_back(task)]
        tasks, held = trace.tasks_of(job, sent), trace.replicas_of(sent)
        above = self._above(sent, lambda _: True)
        return trace.messages(job, tasks, high - low - self.barred(job), above, held)

    def _comes_whole(self, job: JobId) -> bool:
        trace = self._lab.trace
        low, high = trace.first[job], trace.first[job + 1]
        waits = not self._whole and trace.parents and trace.parent_first[low] < trace.parent_first[high]
        late = trace.submit_us and max(trace.submit_us[low:high], default=0) > trace.arrival_us[job]
        return not (waits or late)

    def _held_back(self, task: TaskId) -> bool:
        return task in self._late if self._whole else self.waits[task] > 0

    def _above(self, tasks: Sequence[TaskId], is_named: Callable[[TaskId], bool]) -> tuple[tuple[TaskId, ...], ...]:
        """Per task, the parents that its message names, for designs that take workflows whole."""
        parents_of = self._lab.trace.parents_of
        above = tuple([tuple(filter(is_named, parents_of(task))) for task in tasks]) if self._whole else ()
        return above if any(above) else ()

    def _open(self, task: TaskId) -> bool:
        return not self._ended[task]

    def before(self, port: LabPort, task: Task, attempt: int) -> None:
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
                if not (self._whole or self._barred[child]):
                    self._send_later(child, now)

    def _send_later(self, task: TaskId, now: Time) -> None:
        if self._ready_at != now:
            self._ready_at, self._ready = now, []
            self._lab.schedule(now + self._lab.network.delay_us, self._release, self._ready, None)
        self._ready.append(task)

    def _release(self, tasks: list[TaskId], _: None, _now: Time) -> None:
        """Send what has become ready in one instant: a message for each job, or several where they are many."""
        if tasks is self._ready:
            self._ready_at = NEVER
        self._send(tasks, self._lab.network.delay_us)

    def _send(self, tasks: list[TaskId], path: Time) -> None:
        """Further tasks of jobs, which have been on the way for so long already."""
        lab = self._lab
        lab.enter(path)
        for job, group in groupby(sorted(tasks), key=self._owner):
            if lab.records.answered_us[job] != NEVER:
                continue
            sent, numbers = self._sent[job], list(group)
            for at in range(0, len(numbers), CHUNK_TASKS):
                part = numbers[at : at + CHUNK_TASKS]
                ready, held = lab.trace.tasks_of(job, part), lab.trace.replicas_of(part)
                self._submitter.send(job, [MoreTasks(job, len(sent), ready, self._above(part, self._open), held)])
                sent += part

    def _owner(self, task: TaskId) -> JobId:
        return bisect_right(self._lab.trace.first, task) - 1

    def forget(self, job: JobId) -> None:
        """The job is done."""
        self._sent.pop(job, None)
