"""Gangs in the lab: a gang begins when its last member is launched, ends whole, and a deadlock of gangs ends the run.

The states of a gang:

    waiting   members are launched one by one and hold what they take; the last one makes it run
    running   its members run; a member that is killed, fails or dies ends the others: waiting

A member that has reached its end stays finished whatever becomes of the others, so a gang that waits again has only the
members that have not finished. One whose end was not received may be launched once more: it begins with the others, or
at once where these run or have finished.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec

from volery.core.events import TaskFinished
from volery.core.locality import racks_of
from volery.core.model import NEVER, REQUIRES_RACK, Gang, JobId, Task, TaskId, Time
from volery.core.trace import NO_GANG
from volery.sim.execution import Attempts, BrokenRule, Durations, Extension, LabPort, LaunchRule, launch_of
from volery.sim.lab import FAR, Lab
from volery.sim.submitter import Submitter

SHOWN_MAX = 3
"""Gangs, and machines of each, that the report of a deadlock names."""


class GangRun(msgspec.Struct, eq=False):
    """The state of a gang.

    Args:
        shape: Shape in which its members are to be launched; None: any.
        unfinished_tasks: Count of members that have not reached their end.
        missing_tasks: Count of these that are not launched; 0: it runs.
        members: Launched members, each with its port and attempt.
        finished_tasks: Members that have reached their end.
        task_counts: Count of launched members by machine.
    """

    shape: Gang | None
    unfinished_tasks: int
    missing_tasks: int
    members: dict[TaskId, tuple[LabPort, int]] = {}
    finished_tasks: set[TaskId] = set()
    task_counts: dict[int, int] = {}

    @property
    def is_waiting(self) -> bool:
        """True if a member that has not finished is not launched."""
        return self.missing_tasks > 0


class GangRule(LaunchRule, Extension):
    """Holds launched members until the last of their gang is launched, and ends gangs whole.

    Args:
        lab, submitter, attempts: Shared state and parts of the run.
        durations: Durations of attempts.
        clocks: Rules on which these depend: they are asked again for each member when its gang begins.
        has_shapes: True if the design starts gangs whole: it is held to their shapes.
    """

    def __init__(
        self,
        lab: Lab,
        submitter: Submitter,
        attempts: Attempts,
        durations: Durations,
        clocks: Sequence[LaunchRule],
        *,
        has_shapes: bool,
    ) -> None:
        self._lab = lab
        self._attempts = attempts
        self._durations = durations
        self._clocks = clocks
        self._has_shapes = has_shapes
        self._nodes = lab.trace.gang_nodes
        self._racks = racks_of(lab.cluster)
        self._gangs: dict[JobId, GangRun] = {}
        submitter.answered.append(self._answered)

    def holds(self, port: LabPort, task: Task, attempt: int, waited_us: Time) -> bool:
        """Launch a member of a gang, which runs or waits for others; False: the task is no member.

        Raises:
            BrokenRule: as for every launch, or the machine is none of the gang's shape.
        """
        job = task.job
        if self._nodes[job] == NO_GANG:
            return False

        gang = self._gangs.get(job)
        if gang is None:
            first = self._lab.trace.first
            size = first[job + 1] - first[job]
            shape = self._lab.trace.gang_of(job) if self._has_shapes else None
            if shape is not None and not shape.nodes and shape.rack != REQUIRES_RACK:
                shape = None  # it may lie anywhere
            gang = self._gangs[job] = GangRun(shape, size, size)

        self._record(port, task, attempt, waited_us)
        self._place(gang, port, task, attempt)

        if not gang.is_waiting:
            self._begin(port, TaskFinished(task, attempt))
            return True

        # The end is not known yet: the calendar has a place of its own for the members of each gang that waits, where a
        # kill finds them.
        pending_end = FAR + job
        self._lab.records.finish_us[task.id] = pending_end
        self._lab.finishes.setdefault(pending_end, []).append((port, TaskFinished(task, attempt)))

        gang.missing_tasks -= task.id not in gang.finished_tasks
        if not gang.is_waiting:
            self._begin_all(job, gang)
        return True

    def _record(self, port: LabPort, task: Task, attempt: int, waited_us: Time) -> None:
        records, number = self._lab.records, task.id
        if port.idle <= 0 or task.constraints & port.lacks or records.start_us[number] != NEVER or attempt:
            self._attempts.relaunched(port, task, attempt)

        port.idle -= 1
        records.start_us[number] = self._lab.now
        records.worker[number] = port.machine
        records.path[number] = self._lab.path
        if waited_us:
            records.waited_us[number] = waited_us

    def _place(self, gang: GangRun, port: LabPort, task: Task, attempt: int) -> None:
        counts, machine = gang.task_counts, port.machine
        gang.members[task.id] = port, attempt
        counts[machine] = counts.get(machine, 0) + 1

        # A member whose end was lost runs again where there is room: the others may have left their machines.
        shape = gang.shape
        if shape is None or gang.finished_tasks:
            return
        racks = {self._racks[other] for other in counts} if shape.rack == REQUIRES_RACK else ()
        if len(racks) > 1:
            problem = f"members in racks {', '.join(map(str, sorted(racks)))}; the gang requires one rack"
            raise BrokenRule(f"{launch_of(port, task, attempt)}: {problem}")
        if not shape.nodes:
            return
        if counts[machine] > shape.tasks_per_node or len(counts) > shape.nodes:
            problem = f"{counts[machine]} members there, on {len(counts)} machines"
            allowed = f"the gang has {shape.tasks_per_node} at most on each of {shape.nodes}"
            raise BrokenRule(f"{launch_of(port, task, attempt)}: {problem}; {allowed}")

    def _begin_all(self, job: JobId, gang: GangRun) -> None:
        """All members have been launched: their durations count from now."""
        lab = self._lab
        if gang.shape is not None and len(gang.task_counts) < gang.shape.nodes and not gang.finished_tasks:
            problem = f"begins on {len(gang.task_counts)} machines, and its shape has {gang.shape.nodes}"
            raise BrokenRule(f"the gang of job {job} {problem}, at {lab.now} us")

        for port, event in lab.finishes.pop(FAR + job):
            assert isinstance(port, LabPort), "only ports launch members"
            # A member that was killed while it waited keeps its entry, as all killed attempts do.
            key = (port.address, event.task.id, event.attempt)
            if key in lab.killed:
                lab.killed.discard(key)
            else:
                self._end_hold(event.task.id)
                self._begin(port, event)

    def _begin(self, port: LabPort, event: TaskFinished) -> None:
        """Let an attempt run from now on."""
        lab, task = self._lab, event.task.id
        # Durations are those on the machine of the last launch, which was another member's.
        for clock in self._clocks:
            clock.check_launch(port, event.task, event.attempt)

        at = lab.records.finish_us[task] = lab.now + self._durations[task]
        bucket = lab.finishes.get(at)
        if bucket is None:
            lab.finishes[at] = [(port, event)]
            heapq.heappush(lab.times, at)
        else:
            bucket.append((port, event))

        for clock in self._clocks:
            clock.launched(port, event.task, event.attempt)

    def _end_hold(self, task: TaskId) -> None:
        """Count the time for which a member has waited; its run, or the end of its attempt, is now."""
        records, now = self._lab.records, self._lab.now
        if now > records.start_us[task]:
            records.held_us[task] = records.held_us.get(task, 0) + now - records.start_us[task]
            records.start_us[task] = now

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        gang = self._gangs.get(event.task.job)
        if gang is not None and gang.members.pop(event.task.id, None) is not None:
            gang.unfinished_tasks -= event.task.id not in gang.finished_tasks
            gang.finished_tasks.add(event.task.id)

    def killed(self, port: LabPort, event: TaskFinished) -> None:
        """End the attempts of all other members."""
        gang = self._gangs.get(event.task.job)
        # Members that end because of another are none any more.
        if gang is not None and gang.members.get(event.task.id) == (port, event.attempt):
            self._end(gang)

    def silenced(self, port: LabPort) -> None:
        """End the gangs of which members were on the machine of a component that is gone."""
        for gang in list(self._gangs.values()):
            if any(member_port is port for member_port, _ in gang.members.values()):
                self._end(gang, port)

    def _end(self, gang: GangRun, gone: LabPort | None = None) -> None:
        members = gang.members
        if gang.is_waiting:
            for task in members:
                self._end_hold(task)

        gang.members = {}
        gang.task_counts = {}
        gang.missing_tasks = gang.unfinished_tasks
        for task, (port, attempt) in members.items():
            if port is not gone:  # the attempts of a machine that is gone end without a report
                self._attempts.kill(port, task, attempt)

    def _answered(self, job: JobId, now: Time) -> None:  # noqa: ARG002 - listeners have it
        """Forget a gang of which nothing is launched."""
        gang = self._gangs.get(job)
        if gang is None or gang.members:
            return
        del self._gangs[job]
        for port, event in self._lab.finishes.pop(FAR + job, ()):
            assert isinstance(port, LabPort), "only ports launch members"
            self._lab.killed.discard((port.address, event.task.id, event.attempt))

    def deadlock(self) -> str:
        """The gangs of which members wait for others, and what they hold, in words; empty where none waits."""
        waiting = [(job, gang) for job, gang in self._gangs.items() if gang.is_waiting and gang.members]
        if not waiting:
            return ""

        machines = {port.machine for _, gang in waiting for port, _ in gang.members.values()}
        since_us = max(self._lab.records.start_us[task] for _, gang in waiting for task in gang.members)
        holders = [self._in_words(job, gang) for job, gang in waiting[:SHOWN_MAX]]
        if len(waiting) > SHOWN_MAX:
            holders.append(f"and {len(waiting) - SHOWN_MAX} more")
        return (
            f"and {len(waiting)} gangs hold {len(machines)} machines and wait for more, since {since_us} us: "
            f"{'; '.join(holders)}"
        )

    @staticmethod
    def _in_words(job: JobId, gang: GangRun) -> str:
        numbers = sorted({port.machine for port, _ in gang.members.values()})
        shown = ", ".join(map(str, numbers[:SHOWN_MAX])) + (", .." if len(numbers) > SHOWN_MAX else "")
        size = len(gang.members) + gang.missing_tasks
        return f"job {job} holds machines {shown} for {len(gang.members)} of {size} tasks"


class GangPort(LabPort):
    """A port of a run with gangs: it launches their members; the class that follows in line launches other tasks."""

    __slots__ = ()
    gangs: GangRule

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        if not self.gangs.holds(self, task, attempt, waited_us):
            super().launch(task, attempt, waited_us, note)
