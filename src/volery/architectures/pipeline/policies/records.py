"""What a scheduler assembled from stages knows of jobs, of tasks that wait and of tasks that run.

Policies read these records and never change them: whoever schedules does.
"""

from __future__ import annotations

from typing import Final

import msgspec

from volery.core.model import NEVER, JobId, Task, TaskId, Time
from volery.core.records import ATTEMPT_MAX
from volery.policies.capacity import Need

FAR: Final[Time] = 1 << 62
"""Later than anything that happens."""


class Kind:
    """A scheduling equivalence class: the stages R2 to R4 answer alike for all its tasks.

    Attributes:
        constraints: that its tasks need.
        need: the request as an index of free capacity looks for it.
        packed: the same as one integer.
        suitable: vector of the machines that its user may use (R2) and that meet its constraints (R3).
        possible: whether some of these holds it when it is empty.
        machines: that hold its input, where it may have no others; there are almost as many such classes as tasks.
    """

    __slots__ = ("constraints", "machines", "need", "packed", "possible", "suitable")

    def __init__(
        self, constraints: int, need: Need, suitable: int, possible: bool, machines: tuple[int, ...] = ()
    ) -> None:
        self.constraints = constraints
        self.need = need
        self.packed = need.packed
        self.suitable = suitable
        self.possible = possible
        self.machines = machines


class JobRecord(msgspec.Struct, gc=False):
    """A job that is not done.

    Attributes:
        id, user, priority, deadline_us, estimate_us, task_count: as it was submitted; `deadline_us` may be NEVER.
        submit_us: when it came.
        work_us: estimated time of a task times the processors that it asks for, over all tasks that have come.
        left_us: the same over those that have not ended.
        running: how many of its tasks run.
        eligible: whether its tasks may be queued (stage J2).
    """

    id: JobId
    user: str
    priority: int
    deadline_us: Time
    submit_us: Time
    estimate_us: Time
    task_count: int
    work_us: Time = 0
    left_us: Time = 0
    running: int = 0
    eligible: bool = False

    @property
    def due_us(self) -> Time:
        """The deadline; without one, later than any."""
        return FAR if self.deadline_us == NEVER else self.deadline_us


class Waiting(msgspec.Struct, gc=False):
    """A task that waits: all that it waits for has finished, and its job is eligible.

    Attributes:
        task: as it was submitted, with its constraints, its request and its estimate.
        job: its record.
        kind: what filters know it by.
        number: in the order in which tasks have become ready.
        ready_us: when.
        work_us: estimated time times the processors that it asks for: what remains, since nothing of it has run.
        rank_us: length of the longest chain of tasks that begins with it, by estimates (HEFT's upward rank).
        came_us: when it was submitted: with its job, or later.
        attempt: of its next launch, or its last one while it runs; 0 is the first.
    """

    task: Task
    job: JobRecord
    kind: Kind
    number: int
    ready_us: Time
    work_us: Time
    rank_us: Time
    came_us: Time
    attempt: int = 0


class Running(msgspec.Struct, gc=False):
    """A task that runs, or is on its way to its machine.

    Attributes:
        waiting: its record of before.
        machine: where.
        start_us: when it was placed.
        expected_end_us: by its estimate and the machine's speed.
        took: what it takes of the machine, packed.
        attempt: its number.
        sent: whether its machine has been told; until then nobody can end it there.
        ending: whether its end was asked for.
    """

    waiting: Waiting
    machine: int
    start_us: Time
    expected_end_us: Time
    took: int = 0
    attempt: int = 0
    sent: bool = False
    ending: bool = False

    @property
    def losable(self) -> bool:
        """Whether it may be ended, and go on as another attempt."""
        return self.sent and not self.ending and self.waiting.attempt < ATTEMPT_MAX

    @property
    def task(self) -> Task:
        """The task."""
        return self.waiting.task

    @property
    def job(self) -> JobRecord:
        """Its job."""
        return self.waiting.job


Runs = dict[TaskId, Running]
