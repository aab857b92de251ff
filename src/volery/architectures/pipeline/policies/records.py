"""Records of a scheduler assembled from stages: jobs, tasks that wait or run, and machines that come and go.

Policies read these records and never change them. Units are processors; slots where machines offer nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from volery.core.model import NEVER, JobId, Tags, Task, TaskId, Time
from volery.core.records import ATTEMPT_MAX
from volery.policies.capacity import Need

FAR: Final[Time] = 1 << 62
"""A time later than anything that happens."""


class Kind:
    """A scheduling equivalence class: the stages R2 to R4 answer alike for all its tasks.

    Attributes:
        constraints: Constraints that its tasks need.
        need: The request as an index of free capacity looks for it.
        packed: The same as one integer.
        suitable: Bit vector of the machines that its user may use (R2) and that meet its constraints (R3).
        possible: Whether some of these holds it when it is empty.
        machines: Machines that hold its input, where it may have no others; there are almost as many such classes as
            tasks.
        tags: Tags of its tasks, whose constraints change the machines that suit them; None: they have none.
    """

    __slots__ = ("constraints", "machines", "need", "packed", "possible", "suitable", "tags")

    def __init__(
        self, constraints: int, need: Need, suitable: int, possible: bool, machines: tuple[int, ...] = ()
    ) -> None:
        self.constraints = constraints
        self.need = need
        self.packed = need.packed
        self.suitable = suitable
        self.possible = possible
        self.machines = machines
        self.tags: Tags | None = None


class JobRecord(msgspec.Struct, gc=False):
    """A job that is not done.

    Attributes:
        id, user, priority, deadline_us, estimate_us, task_count: Facts of the job as it was submitted; `deadline_us`
            may be NEVER.
        submit_us: Time of its submission.
        work_us: Estimated time of a task times the processors that it asks for, over all tasks that have come.
        left_us: The same over the tasks that have not ended.
        running: Number of its tasks that run.
        eligible: Whether its tasks may be queued (stage J2).
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
        task: The task as it was submitted, with its constraints, its request and its estimate.
        job: Record of its job.
        kind: Class by which filters know it.
        number: Number in the order in which tasks have become ready.
        ready_us: Time when it became ready.
        work_us: Estimated time times the processors that it asks for: what remains, since nothing of it has run.
        rank_us: Length of the longest chain of tasks that begins with it, by estimates (HEFT's upward rank).
        came_us: Time when it was submitted: with its job, or later.
        attempt: Number of its next attempt, or of its last one while it runs; 0 is the first.
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
        waiting: Record of the task before it ran.
        machine: Machine that it has been given.
        start_us: Time when it was placed.
        expected_end_us: Time of its end by its estimate and the machine's speed.
        took: Amounts that it takes of the machine, packed.
        attempt: Number of the attempt.
        sent: Whether it has been sent to its machine; until then nobody can end it there.
        ending: Whether its end was asked for, or has come.
        clean_us: Time for which its machine deletes files afterwards (stage T8).
        cleaning: Whether that goes on; the task has ended.
        run_us: Time for which it had run at the last report (stage T6).
        use: Thousandths of its request that it used then.
        reserved: Thousandths that are reserved for it; the rest may be reclaimed.
        reclaimed: Whether it runs on what others have reserved and do not use.
    """

    waiting: Waiting
    machine: int
    start_us: Time
    expected_end_us: Time
    took: int = 0
    attempt: int = 0
    sent: bool = False
    ending: bool = False
    clean_us: Time = 0
    cleaning: bool = False
    run_us: Time = 0
    use: int = 1000
    reserved: int = 1000
    reclaimed: bool = False

    @property
    def losable(self) -> bool:
        """True if it may be ended, and run again as another attempt."""
        return self.sent and not self.ending and self.waiting.attempt < ATTEMPT_MAX

    @property
    def task(self) -> Task:
        return self.waiting.task

    @property
    def job(self) -> JobRecord:
        return self.waiting.job


Runs = dict[TaskId, Running]


class Offer(NamedTuple):
    """A machine that may be provisioned, or one that runs nothing and may be released.

    Args:
        machine: Number of the machine among those that are managed.
        units: Number of its units.
        price: Price of an hour.
        speed: Speed in the cluster's unit; 1 where it gives none.
        paid_until_us: End of its paid time; now where it is off.
    """

    machine: int
    units: int
    price: float
    speed: int
    paid_until_us: Time


class Supply(msgspec.Struct, frozen=True):
    """The machines that there are, and the demand.

    Args:
        on: Number of units of machines that are on.
        coming: Time at which each machine that boots will be on, and its units.
        whole: Number of units of all machines that can be had.
        held: Number of units that running tasks hold.
        asked: Number of units that tasks ask for which wait and could start.
        every_us: Time between two decisions.
        boot_us: Time from being provisioned to being on.
        changed_us: Time when machines were last provisioned or released because of stage R7; -1: never.
        peaks: For each hour since the run began, the most that was held and asked for at any decision, 0 where there
            was none; the last hour is the one that lasts.
        price: Factor of the prices of machines now.
    """

    on: int
    coming: tuple[tuple[Time, int], ...]
    whole: int
    held: int
    asked: int
    every_us: Time
    boot_us: Time
    changed_us: Time = -1
    peaks: Sequence[int] = ()
    price: float = 1.0

    @property
    def units(self) -> int:
        """Number of units of machines that are on or boot."""
        return self.on + sum([units for _, units in self.coming])

    @property
    def demand(self) -> int:
        """Units held and asked for."""
        return self.held + self.asked
