"""The oracle's scheduler, which places each task in the instant of its submission, and its machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from volery.architectures.oracle.patience import PatientVectorQueue, Reservation
from volery.core.component import Component, sent_to
from volery.core.events import Cancel, Counted, Measured, MoreTasks, Submit
from volery.core.model import Address, Amounts, Cluster, JobId, Task, TaskId, Time
from volery.core.resources import SLOT, Packing, packing_of
from volery.policies.capacity import CapacityIndex, Ladders
from volery.policies.fairness.drf import FairOrder
from volery.policies.fairness.queue import FairQueue, FairVectorQueue
from volery.policies.match import Anchors, Matches, fewest_constraints_first
from volery.policies.queues import ConstraintQueue, VectorQueue
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger

Placed = tuple[Task, int]
"""A task and its unit."""


class SlotMachines:
    """Free slots, those with the fewest constraints first, and the queue of the tasks that wait. A *unit* is a slot.

    Args:
        cluster: Cluster with slots.
        order: Order between users; None: first come first served.
    """

    def __init__(self, cluster: Cluster, order: FairOrder | None = None) -> None:
        by_constraints = fewest_constraints_first(range(len(cluster.constraints)), cluster.constraints)
        machines = [machine for machine in by_constraints for _ in range(cluster.slots[machine])]

        self.nodes = [f"node/{machine}" for machine in machines]
        self.constraints = [cluster.constraints[machine] for machine in machines]
        self.matches = Matches(self.constraints, Anchors(cluster.constraints))
        self.free = self.matches.every
        self.fair = None if order is None else FairQueue(order)
        self.queue: ConstraintQueue | FairQueue = ConstraintQueue() if self.fair is None else self.fair

        self.reservations = None

    def place(self, tasks: Sequence[Task]) -> tuple[list[Placed], list[Task]]:
        """Take a unit for each task that fits and queue the others; returns tasks with units, and impossible tasks."""
        placed = []
        impossible = []
        fair = self.fair
        for task in tasks:
            suitable = self.matches[task.constraints]
            candidates = suitable & self.free

            if candidates:
                lowest = candidates & -candidates
                self.free ^= lowest
                if fair is not None:
                    fair.launched(task)
                placed.append((task, lowest.bit_length() - 1))
            elif suitable:
                self.queue.push(task)
            else:
                impossible.append(task)

        return placed, impossible

    def reuse(self, ended: Task, unit: int) -> Sequence[Placed]:
        """Give the unit of an ended task to waiting tasks."""
        fair = self.fair
        queue = self.queue
        if fair is not None:
            fair.ended(ended)

        next_task = queue.pop_fitting(self.constraints[unit]) if queue.length else None
        if next_task is None:
            self.free |= 1 << unit
            return ()

        if fair is not None:
            fair.launched(next_task)
        return ((next_task, unit),)

    def check(self) -> None:
        """Raise where a unit idles that a waiting task could use."""
        for mask in self.queue.masks():
            assert not self.matches[mask] & self.free, f"idle slots while {mask:#x} waits"
        if self.fair is not None:
            self.fair.check()


class AmountMachines:
    """Free amounts of each resource, and the queue; best fit, fewest constraints first. A *unit* is a machine.

    Args:
        cluster: Cluster with capacities.
        fair: Makes the queue of users who take turns; None: first come first served.
    """

    def __init__(self, cluster: Cluster, fair: Callable[[Packing], FairVectorQueue] | None = None) -> None:
        machines = fewest_constraints_first(range(len(cluster.constraints)), cluster.constraints)

        capacities = [cluster.capacities[machine] for machine in machines]
        self.nodes = [f"node/{machine}" for machine in machines]
        self.constraints = [cluster.constraints[machine] for machine in machines]
        self.matches = Matches(self.constraints, Anchors(cluster.constraints))

        self.ladders = Ladders(capacities, packing_of(cluster))
        self.packing = self.ladders.packing
        self.whole = CapacityIndex(capacities, self.ladders)
        self.index = self.whole.copy()
        self.fair = None if fair is None else fair(self.packing)
        self.queue: VectorQueue | FairVectorQueue = VectorQueue(self.packing) if self.fair is None else self.fair
        self.reservations: Reservations | None = None

        self._possible: dict[tuple[int, Amounts], bool] = {}

    def place(self, tasks: Sequence[Task]) -> tuple[list[Placed], list[Task]]:
        placed = []
        impossible = []
        # Kinds that fit no machine now: while tasks are placed machines only become fuller.
        unfit_kinds: set[tuple[int, Amounts]] = set()

        for task in tasks:
            kind = (task.constraints, task.request)
            machine = -1

            if kind not in unfit_kinds:
                machine = self.index.pick(self.ladders[task.request], self.matches[task.constraints], "best-fit")
            if machine >= 0:
                placed.append(self.take(task, machine))
                continue

            unfit_kinds.add(kind)

            if self.fits_somewhere(kind):
                self.queue.push(task)
            else:
                impossible.append(task)
        return placed, impossible

    def fits_somewhere(self, kind: tuple[int, Amounts]) -> bool:
        """True if an empty machine could run such a task."""
        if kind not in self._possible:
            mask, request = kind
            self._possible[kind] = bool(self.whole.fitting(self.ladders[request], self.matches[mask]))
        return self._possible[kind]

    def take(self, task: Task, unit: int) -> Placed:
        """Take what a task asks for; returns the task with its devices."""
        if self.reservations is not None:
            self.reservations.placed(task)
        if self.fair is not None:
            self.fair.launched(task)

        packing = self.packing
        free = self.index.free[unit]
        amounts = packing.named(free, packing[task.request])
        self.index.put(unit, packing.settled(free - amounts))

        return packing.naming(task, amounts), unit

    def reuse(self, ended: Task, unit: int) -> Sequence[Placed]:
        if self.fair is not None:
            self.fair.ended(self.packing.anywhere(ended))

        self.index.put(unit, self.packing.settled(self.index.free[unit] + self.packing[ended.request]))
        return self.offer(unit)

    def offer(self, unit: int) -> list[Placed]:
        """Give the free amounts of a machine to waiting tasks."""
        placed = []
        # The reserved task is before the queue: what is set aside is out of the free amounts.
        if self.reservations is not None and (task := self.reservations.ready_on(unit)) is not None:
            placed.append(self.take(task, unit))

        while self.queue.length:
            task = self.queue.pop_fitting(self.constraints[unit], self.index.free[unit])
            if task is None:
                break
            placed.append(self.take(task, unit))

        return placed

    def check(self) -> None:
        for mask, request in self.queue.kinds():
            fitting = self.index.fitting(self.ladders[request], self.matches[mask])
            assert not fitting, f"machines {fitting:#x} could run what waits: {mask:#x}, {request}"
        if self.fair is not None:
            self.fair.check()
        if self.reservations is not None:
            self.reservations.check()


class Reservations:
    """Reserves at most one machine at a time, for a task that was passed over for too long.

    Args:
        queue: The waiting tasks of the machines.
    """

    def __init__(self, machines: AmountMachines, queue: PatientVectorQueue) -> None:
        self._machines = machines
        self._packing = machines.packing
        self._queue = queue
        self._reservation: Reservation | None = None
        self._lifted_machine = -1

    def begin(self, now: Time) -> bool:
        """Reserve a machine for the overdue task; returns whether there was one."""
        # One reservation at a time: several could wait for what each other has set aside.
        overdue = self._queue.overdue(now) if self._reservation is None and self._queue.length else None
        if overdue is None:
            return False

        machine = self._roomiest(overdue)
        free = self._machines.whole.free[machine], self._machines.index.free[machine]
        # Free devices may be the wrong ones: those that the task waits for belong to what it needs.
        need = self._packing.awaited(*free, self._packing[overdue.request])
        self._reservation = Reservation(overdue, machine, self._packing.fields(need))

        self._set_aside(self._reservation)
        return True

    def _roomiest(self, task: Task) -> int:
        """A machine with half of what the task needs free, else a quarter, and so on; the first that can hold it."""
        machines = self._machines
        suitable = machines.whole.fitting(machines.ladders[task.request], machines.matches[task.constraints])
        amounts = task.request or SLOT
        machine = -1

        while machine < 0:
            amounts = tuple([amount // 2 for amount in amounts])
            machine = machines.index.pick(machines.ladders[amounts], suitable, "first")

        return machine

    def settle(self, now: Time) -> list[Placed]:
        """Offer the machine of a lifted reservation, and note the user whose first task was passed over."""
        machine = self._lifted_machine
        self._lifted_machine = -1
        # What was set aside is free now, and no end of a task would offer it.
        placed = self._machines.offer(machine) if machine >= 0 else []

        if self._queue.length:
            self._queue.note(now)

        return placed

    def ready_on(self, machine: int) -> Task | None:
        """Set aside the needed amounts that are free; returns the task, out of the queue, if that is enough."""
        reservation = self._reservation
        if reservation is None or reservation.machine != machine:
            return None

        self._set_aside(reservation)
        if not self._can_start(reservation):
            return None

        self._queue.take(reservation.task)
        return reservation.task

    def placed(self, task: Task) -> None:
        """Lift the reservation of a task that is placed, perhaps on another machine."""
        if self._reservation is not None and self._reservation.task.id == task.id:
            self._lift(self._reservation)

    def dropped(self, job: JobId) -> None:
        """Lift the reservation of a job that is cancelled."""
        if self._reservation is not None and self._reservation.task.job == job:
            self._lift(self._reservation)

    def _set_aside(self, reservation: Reservation) -> None:
        packing = self._packing
        unreserved = reservation.set_aside(packing.fields(self._free_on(reservation)))
        self._machines.index.put(reservation.machine, packing.settled(packing.pack(unreserved) | packing.guards))

    def _free_on(self, reservation: Reservation) -> int:
        return self._packing.settled(
            self._machines.index.free[reservation.machine] + self._packing.pack(reservation.kept)
        )

    def _can_start(self, reservation: Reservation) -> bool:
        """True if the task fits with the amounts set aside, perhaps on other devices than those it waits for."""
        guards = self._packing.guards
        return (self._free_on(reservation) - self._packing[reservation.task.request]) & guards == guards

    def _lift(self, reservation: Reservation) -> None:
        self._machines.index.put(reservation.machine, self._free_on(reservation))
        self._reservation = None
        self._lifted_machine = reservation.machine

    def check(self) -> None:
        """Raise where the reserved task does not wait, or could start."""
        if (reservation := self._reservation) is not None:
            task = reservation.task
            assert not self._can_start(reservation), f"task {task.id} could start on machine {reservation.machine}"
            assert (task.constraints, task.request) in self._queue.kinds(), f"task {task.id} does not wait"


ADDRESS: Final[Address] = "oracle/0"


class Scheduler(Component):
    """Schedules on an exact view of every machine, without any delay.

    Args:
        machines: The machines, with the queue.
    """

    __slots__ = ("_jobs", "_launches", "_machines", "_nodes", "_reservations", "_running")

    def __init__(self, machines: SlotMachines | AmountMachines) -> None:
        self._machines = machines
        self._nodes = machines.nodes
        self._reservations = machines.reservations
        self._running: dict[TaskId, Placed] = {}
        self._launches = 0

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        if self._machines.fair is not None:
            self._machines.fair.belongs(message.job.id, message.job.user)

        self._reserve(now)
        queued = self._machines.queue.length
        self._port.observe(Measured("queued_tasks", queued))

        self._schedule(self._jobs.admit(message, source, queued))
        self._settle(now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._reserve(now)
        self._schedule(self._jobs.more(message))
        self._settle(now)

    def _reserve(self, now: Time) -> None:
        if self._reservations is not None and self._reservations.begin(now):
            self._port.observe(Counted("reservations"))

    def _settle(self, now: Time) -> None:
        for placed in self._reservations.settle(now) if self._reservations is not None else ():
            self._launch(placed)

    def _schedule(self, tasks: Sequence[Task]) -> None:
        placed, impossible = self._machines.place(tasks)

        for pair in placed:
            self._launch(pair)

        for task in impossible:
            self._jobs.unsatisfiable(task.job)

    def _launch(self, placed: Placed) -> None:
        task, unit = placed
        self._running[task.id] = placed
        self._launches += 1
        self._port.send(self._nodes[unit], Launch(self._launches, task))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Give the task's unit to a waiting task at once."""
        # Patience is looked at when events come: between them nothing comes free that could be set aside.
        if self._reservations is not None:
            self._reserve(now)

        ended = self._running.pop(message.task, None)
        if ended is not None:
            for placed in self._machines.reuse(*ended):
                self._launch(placed)
            self._jobs.finished(ended[0].job)

        if self._reservations is not None:
            self._settle(now)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's waiting tasks and kill the others."""
        self._reserve(now)

        if self._jobs.cancel(message, source):
            for task, unit in self._running.values():
                if task.job == message.job:
                    self._port.send(self._nodes[unit], Kill(task.id))

            if self._reservations is not None:
                self._reservations.dropped(message.job)

            dropped_tasks = self._machines.queue.remove(lambda task: task.job == message.job)
            if dropped_tasks:
                self._jobs.finished(message.job, len(dropped_tasks))

        self._settle(now)

    def check(self) -> None:
        self._machines.check()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)
