"""The state of a scheduler that is assembled from stages: machines, jobs, tasks that wait and run, what users hold.

Whoever schedules changes it; policies are shown a `View` of it, and read its records without changing them. Units are
processors; slots where machines offer nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from volery.core.model import NEVER, Amounts, Cluster, Gang, JobId, Tags, Task, TaskId, Time
from volery.core.records import ATTEMPT_MAX
from volery.core.resources import Packing, packing_of, work_resource
from volery.policies.capacity import CapacityIndex, Ladders, Need
from volery.policies.match import Anchors, Matches, fewest_constraints_first
from volery.roles.submission import Workflow

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
        size, gang: Count of tasks that start together, and the shape in which they do: a task alone is a gang of one.
        racks: Bit vector of the machines of each rack, where they prefer or require one.
    """

    __slots__ = ("constraints", "machines", "need", "packed", "possible", "suitable", "tags")
    size = 1
    gang = Gang()
    racks: Sequence[int] = ()

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
        id, user, priority, deadline_us, estimate_us, task_count, limit_us: Facts of the job as it was submitted;
            `deadline_us` and `limit_us` may be NEVER.
        submit_us: Time of its submission.
        work_us: Estimated time of a task times the processors that it asks for, over all tasks that have come.
        left_us: The same over the tasks that have not ended.
        running: Number of its tasks that run.
        eligible: Whether its tasks may be queued (stage J2).
        master: The first of its tasks.
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
    master: TaskId = NEVER
    limit_us: Time = NEVER

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

    @property
    def planned_us(self) -> Time:
        """The time for which backfilling plans: the limit of its job; without one, its estimate."""
        limit_us = self.job.limit_us
        return self.task.estimate_us if limit_us == NEVER else limit_us


class Running(msgspec.Struct, gc=False):
    """A task that runs, or is on its way to its machine.

    Attributes:
        waiting: Record of the task before it ran.
        machine: Machine that it has been given.
        start_us: Time when it was placed.
        expected_end_us: Time of its end by its estimate and the machine's speed.
        planned_end_us: Time of its end for which backfilling plans: by the limit of its job; without one, as expected.
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
    planned_end_us: Time = FAR

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


Table = npt.NDArray[np.int64]
AVERAGE_MIN = 0.5
"""Start and minimum of HTCondor's user priorities (its manual, "User Priorities and Negotiation")."""


class Average:
    """The use of a user, averaged with a half-life: units of the work resource, brought up to date when it changes."""

    __slots__ = ("at", "held", "value")

    def __init__(self) -> None:
        self.value = AVERAGE_MIN
        self.held = 0
        self.at: Time = 0

    def value_at(self, now: Time, half_life_us: Time) -> float:
        """The average at a time: b * value + (1 - b) * held with b = 0.5 ^ (time passed / half-life)."""
        kept_share: float = 0.5 ** ((now - self.at) / half_life_us)
        return max(AVERAGE_MIN, kept_share * self.value + (1 - kept_share) * self.held)


class Suitability(Protocol):
    """The machines, or whatever else takes tasks, that suit a task and its user: stages R2 and R3."""

    def access(self, machines: Iterable[int] | None) -> Any:
        """A token of a user's machines, by their numbers in the whole cluster; None: all."""

    def kind(self, task: Task, need: Need, access: Any) -> Kind:
        """The class of a task whose user has this token."""


class MachineSuitability:
    """Machines by their constraints and amounts; tokens are vectors.

    Args:
        numbers: Numbers of the machines in the whole cluster.
        empty_index: Free amounts of empty machines.
    """

    def __init__(self, numbers: Sequence[int], matches: Matches, empty_index: CapacityIndex) -> None:
        self._numbers = numbers
        self._matches = matches
        self._whole = empty_index

    def access(self, machines: Iterable[int] | None) -> int:
        machine_numbers = None if machines is None else set(machines)
        return vector_of(
            place for place, number in enumerate(self._numbers) if machine_numbers is None or number in machine_numbers
        )

    def kind(self, task: Task, need: Need, access: int) -> Kind:
        suitable = self._matches[task.constraints] & access
        return Kind(task.constraints, need, suitable, bool(self._whole.fitting(need, suitable)))


class ManagerSuitability:
    """Managers of which some machine holds the task when it is empty; a task takes nothing from their room.

    Args:
        parts: State of each manager's machines, empty.
    """

    def __init__(self, parts: Sequence[State]) -> None:
        self._parts = parts

    def access(self, machines: Iterable[int] | None) -> tuple[int, ...]:
        machine_numbers = None if machines is None else tuple(machines)
        return tuple([part.access(machine_numbers) for part in self._parts])

    def kind(self, task: Task, need: Need, access: tuple[int, ...]) -> Kind:
        suitable = vector_of(
            number for number, part in enumerate(self._parts) if part.kind(task, access[number]).possible
        )

        kind = Kind(0, need, suitable, bool(suitable))
        kind.packed = 0
        return kind


class State:
    """The state of one scheduler.

    Args:
        cluster: The machines that it manages; here they are numbered from 0.
        numbers: Numbers of these machines in the whole cluster.
        half_life_us: Half-life of the average of what users hold; 0: nobody asks for it.
        packing: Packing of amounts; None: that of the cluster, with the devices of its machines.
        suitability: Suitability of machines for tasks; None: by their constraints and amounts.

    Attributes:
        index: Free amounts of the machines, by position.
        whole: The same of empty machines.
        online: Bit vector of the machines that may be given tasks (stage R1).
        strata: Bit vectors of machines by how many constraints they meet, fewest first.
        capacity: Capacity of all machines together.
        work_resource: Place of the resource that counts processors, else 0.
        eligible: Number of jobs of each user that are eligible and not done.
        resume: Machine where the last search said that the next one should begin.
        copies: Attempts after the first, per task of which several run.
        priorities: Number of tasks of each priority that run; None where nobody asks.
        held_by: Attempts of each user that run, those placed first first; None where nobody asks.
        graphs: Known parts of the graph of each job whose tasks wait for each other (stage T1).
    """

    def __init__(
        self,
        cluster: Cluster,
        numbers: Sequence[int] = (),
        half_life_us: Time = 0,
        packing: Packing | None = None,
        suitability: Suitability | None = None,
    ) -> None:
        self.cluster = cluster
        self.numbers = numbers or range(len(cluster.constraints))
        self.capacities: Sequence[Amounts] = cluster.capacities or [(slots,) for slots in cluster.slots]
        self.capacity: Amounts = tuple([sum(column) for column in zip(*self.capacities, strict=True)])
        self.ladders = Ladders(self.capacities, packing_of(cluster) if packing is None else packing)
        self.packing = self.ladders.packing
        self.whole = CapacityIndex(self.capacities, self.ladders)
        self.index = self.whole.copy()
        self.matches = Matches(cluster.constraints, Anchors(cluster.constraints))
        self.online = self.matches.every
        self.strata = _strata(cluster.constraints)
        self.work_resource = work_resource(cluster.resources)
        self.now: Time = 0
        self.resume = 0

        self.jobs: dict[JobId, JobRecord] = {}
        self.eligible: dict[str, int] = {}
        self.waiting: dict[TaskId, Waiting] = {}
        self.running: Runs = {}
        self.copies: dict[TaskId, list[Running]] = {}
        self.on_machine: list[Runs] = [{} for _ in cluster.constraints]
        self.used: dict[str, list[int]] = {}
        self.half_life_us = half_life_us
        self.averages: dict[str, Average] = {}
        self.priorities: dict[int, int] | None = None
        self.held_by: dict[str, dict[tuple[TaskId, int], Running]] | None = None
        self.graphs: dict[JobId, Workflow] = {}

        self._suitability = suitability or MachineSuitability(self.numbers, self.matches, self.whole)
        self._allowed: list[Any] = []
        self._kinds: dict[tuple[int, Amounts, int, Hashable, Tags | None], Kind] = {}
        self._free = np.array(self.capacities, dtype=np.int64)
        self._outdated: list[int] = []

    def access(self, machines: Iterable[int] | None) -> int:
        """The number that stands for the machines of a user in `kind`.

        Args:
            machines: Machines by their numbers in the whole cluster; None: all.
        """
        token = self._suitability.access(machines)
        if token not in self._allowed:
            self._allowed.append(token)
        return self._allowed.index(token)

    def kind(self, task: Task, access: int, claim: Hashable = None) -> Kind:
        """The kind of a task.

        Args:
            access: Number of the machines that its user may have.
            claim: Value by which stage T10 tells tasks apart.
        """
        key = (task.constraints, task.request, access, claim, task.tags)
        kind = self._kinds.get(key)
        if kind is None:
            need = self.ladders[task.request]
            kind = self._kinds[key] = self._suitability.kind(task, need, self._allowed[access])
            kind.tags = task.tags
        return kind

    def work_us(self, task: Task) -> Time:
        """Estimated time of a task times the processors that it asks for."""
        return task.estimate_us * self.units(task)

    def units(self, task: Task) -> int:
        """Processors that a task asks for; slots where there are no processors."""
        return task.request[self.work_resource] if task.request else 1

    def planned_on_us(self, waiting: Waiting, machine: int) -> Time:
        """The time for which backfilling plans a task on a machine; a limit is the same on all machines."""
        planned_us = waiting.planned_us
        return self.cluster.attempt_us(planned_us, machine) if waiting.job.limit_us == NEVER else planned_us

    def take_free(self, running: Running) -> None:
        """Give a task that runs on nothing free what it asks for, of what is free on its machine."""
        free = self.index.free[running.machine]
        running.took = self.packing.named(free, running.waiting.kind.packed)
        self.index.put(running.machine, self.packing.settled(free - running.took))
        self._outdated.append(running.machine)

    def launched(self, waiting: Waiting, machine: int, now: Time, takes: int | None = None) -> Running:
        """A task that waited has been given a machine.

        Args:
            waiting, machine, now: The task, its machine, and the time of its start.
            takes: Amounts that it takes there, packed; None: those that it asks for, of what is free.
        """
        task = waiting.task
        job = waiting.job

        del self.waiting[task.id]

        end = now + self.cluster.attempt_us(task.estimate_us, machine)
        free = self.index.free[machine]
        took = self.packing.named(free, waiting.kind.packed) if takes is None else takes

        running = self.on_machine[machine][task.id] = Running(waiting, machine, now, end, took, waiting.attempt)
        running.planned_end_us = end if job.limit_us == NEVER else now + job.limit_us
        self.running[task.id] = running
        self.index.put(machine, self.packing.settled(free - took))
        self._outdated.append(machine)

        job.running += 1

        if self.priorities is not None:
            self.priorities[job.priority] = self.priorities.get(job.priority, 0) + 1
        if self.held_by is not None:
            self.held_by.setdefault(job.user, {})[task.id, running.attempt] = running

        self._hold(job.user, task, 1, now)
        return running

    def ended(self, task: TaskId, now: Time) -> Running | None:
        """A task runs no more; None where it did not run."""
        running = self.running.pop(task, None)
        if running is None:
            return None
        machine = running.machine
        waiting = running.waiting

        del self.on_machine[machine][task]
        self.index.put(machine, self.packing.settled(self.index.free[machine] + running.took))
        self._outdated.append(machine)

        waiting.job.running -= 1

        if self.priorities is not None:
            self.priorities[waiting.job.priority] -= 1
        if self.held_by is not None:
            attempts = self.held_by[waiting.job.user]
            del attempts[task, running.attempt]
            if not attempts:
                del self.held_by[waiting.job.user]

        self._hold(waiting.job.user, waiting.task, -1, now)
        return running

    def copied(self, waiting: Waiting, machine: int, now: Time) -> Running:
        """A task that runs has been given a further machine, for another attempt."""
        first = self.running[waiting.task.id]
        waiting.attempt += 1
        self.waiting[waiting.task.id] = waiting
        copy = self.launched(waiting, machine, now)
        # `launched` knows one attempt per task: the first stays the one by which the task runs.
        self.running[waiting.task.id] = first
        self.copies.setdefault(waiting.task.id, []).append(copy)
        return copy

    def copy_ended(self, running: Running, now: Time) -> None:
        """Remove one of several attempts of a task; if it was the first, the next one takes its place."""
        number = running.task.id
        first_attempt = self.running[number]
        attempts = [first_attempt, *self.copies[number]]

        # `ended` takes in the attempt by which the task runs: this one is put in its place for that.
        self.running[number] = running
        self.ended(number, now)
        remaining = [attempt for attempt in attempts if attempt is not running]

        self.running[number] = remaining[0]
        if remaining[1:]:
            self.copies[number] = remaining[1:]
        else:
            del self.copies[number]

    def _hold(self, user: str, task: Task, sign: int, now: Time) -> None:
        used = self.used.get(user)
        if used is None:
            used = self.used[user] = [0] * len(self.capacity)

        if task.request:
            for resource, amount in enumerate(task.request):
                used[resource] += sign * amount
        else:
            used[0] += sign

        if self.half_life_us:
            average = self.averages.setdefault(user, Average())
            average.value = average.value_at(now, self.half_life_us)
            average.held = used[self.work_resource]
            average.at = now

    def free_table(self) -> Table:
        """The free units of every machine: a row per machine, a column per resource."""
        if self._outdated:
            # The table is brought up to date on demand: few policies read it.
            for machine in dict.fromkeys(self._outdated):
                self._free[machine] = self.packing.totals(self.index.free[machine])
            self._outdated.clear()
        return self._free

    def fewest_constraints(self, vector: int) -> int:
        """The machine of a vector that meets the fewest constraints; ties go to the lowest number."""
        for stratum in self.strata:
            if machines := vector & stratum:
                return (machines & -machines).bit_length() - 1
        return -1

    def check(self) -> None:
        """Raise AssertionError where free, held and running disagree."""
        amounts_held: dict[str, list[int]] = {user: [0] * len(self.capacity) for user in self.used}
        for machine, runs in enumerate(self.on_machine):
            amounts_taken = sum(run.took for run in runs.values())
            settled = self.packing.settled(self.index.free[machine] + amounts_taken)
            assert settled == self.whole.free[machine], f"machine {machine} leaks"

            for run in runs.values():
                for resource, amount in enumerate(run.task.request or (1,)):
                    amounts_held[run.job.user][resource] += amount
        assert amounts_held == self.used, f"users hold {amounts_held}, not {self.used}"

        if self.held_by is not None:
            placed_attempts = sorted(
                [(run.job.user, run.task.id, run.attempt) for attempts in self.on_machine for run in attempts.values()]
            )
            assert placed_attempts == sorted(
                [(user, *attempt) for user, attempts in self.held_by.items() for attempt in attempts]
            )

        copies = [copy for further_attempts in self.copies.values() for copy in further_attempts]
        assert sum(map(len, self.on_machine)) == len(self.running) + len(copies)
        assert all(self.copies.values()), "an empty list of copies"
        assert not self.waiting.keys() & self.running.keys(), "a task waits and runs"


def _strata(constraints: Sequence[int]) -> list[int]:
    strata: dict[int, int] = {}
    for machine in fewest_constraints_first(range(len(constraints)), constraints):
        count = constraints[machine].bit_count()
        strata[count] = strata.get(count, 0) | 1 << machine
    return list(strata.values())


def vector_of(machines: Iterable[int]) -> int:
    """The vector of these machines."""
    vector = 0
    for machine in machines:
        vector |= 1 << machine
    return vector
