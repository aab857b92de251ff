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
from volery.policies.fairness import FairOrder, FairQueue, FairVectorQueue
from volery.policies.match import Anchors, Matches, fewest_constraints_first
from volery.policies.queues import ConstraintQueue, VectorQueue
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger

Placed = tuple[Task, int]
"""A task and its unit."""


class SlotMachines:
    """Free slots, those with the fewest constraints first, and the queue of the tasks that wait. A *unit* is a slot.

    Args:
        cluster: with slots.
        order: between users; None: first come first served.
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
        placed, impossible, fair = [], [], self.fair
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
        fair, queue = self.fair, self.queue
        if fair is not None:
            fair.ended(ended)
        waiting = queue.pop_fitting(self.constraints[unit]) if queue.length else None
        if waiting is None:
            self.free |= 1 << unit
            return ()
        if fair is not None:
            fair.launched(waiting)
        return ((waiting, unit),)

    def check(self) -> None:
        """Raise where a unit idles that a waiting task could use."""
        for mask in self.queue.masks():
            assert not self.matches[mask] & self.free, f"idle slots while {mask:#x} waits"
        if self.fair is not None:
            self.fair.check()


class AmountMachines:
    """Free amounts of each resource, and the queue; best fit, fewest constraints first. A *unit* is a machine.

    Args:
        cluster: with capacities.
        fair: makes the queue of users who take turns; None: first come first served.
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
        placed, impossible = [], []
        nowhere: set[tuple[int, Amounts]] = set()  # kinds that fit nothing: machines only become fuller here
        for task in tasks:
            kind = (task.constraints, task.request)
            machine = -1
            if kind not in nowhere:
                machine = self.index.pick(self.ladders[task.request], self.matches[task.constraints], "best-fit")
            if machine >= 0:
                placed.append(self.take(task, machine))
                continue
            nowhere.add(kind)
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
        packing, free = self.packing, self.index.free[unit]
        took = packing.named(free, packing[task.request])
        self.index.put(unit, packing.settled(free - took))
        return packing.naming(task, took), unit

    def reuse(self, ended: Task, unit: int) -> Sequence[Placed]:
        if self.fair is not None:
            self.fair.ended(self.packing.anywhere(ended))
        self.index.put(unit, self.packing.settled(self.index.free[unit] + self.packing[ended.request]))
        return self.offer(unit)

    def offer(self, unit: int) -> list[Placed]:
        """Give the free amounts of a machine to waiting tasks."""
        placed = []
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
        queue: their waiting tasks.
    """

    def __init__(self, machines: AmountMachines, queue: PatientVectorQueue) -> None:
        self._machines, self._packing, self._queue = machines, machines.packing, queue
        self._held: Reservation | None = None
        self._lifted = -1

    def begin(self, now: Time) -> bool:
        """Reserve a machine for the overdue task; returns whether there was one."""
        overdue = self._queue.overdue(now) if self._held is None and self._queue.length else None
        if overdue is None:
            return False
        machine = self._roomiest(overdue)
        free = self._machines.whole.free[machine], self._machines.index.free[machine]
        need = self._packing.awaited(*free, self._packing[overdue.request])
        self._held = Reservation(overdue, machine, self._packing.fields(need))
        self._set_aside(self._held)
        return True

    def _roomiest(self, task: Task) -> int:
        """A machine with half of what the task needs free, else a quarter, and so on; the first that can hold it."""
        machines = self._machines
        suitable = machines.whole.fitting(machines.ladders[task.request], machines.matches[task.constraints])
        part, machine = task.request or SLOT, -1
        while machine < 0:
            part = tuple([amount // 2 for amount in part])
            machine = machines.index.pick(machines.ladders[part], suitable, "first")
        return machine

    def settle(self, now: Time) -> list[Placed]:
        """Offer the machine of a lifted reservation, and note the user whose first task was passed over."""
        machine, self._lifted = self._lifted, -1
        placed = self._machines.offer(machine) if machine >= 0 else []
        if self._queue.length:
            self._queue.note(now)
        return placed

    def ready_on(self, machine: int) -> Task | None:
        """Set aside the needed amounts that are free; returns the task, out of the queue, if that is enough."""
        held = self._held
        if held is None or held.machine != machine:
            return None
        self._set_aside(held)
        if not self._can_start(held):
            return None
        self._queue.take(held.task)
        return held.task

    def placed(self, task: Task) -> None:
        """Lift the reservation of a task that is placed, perhaps on another machine."""
        if self._held is not None and self._held.task.id == task.id:
            self._lift(self._held)

    def dropped(self, job: JobId) -> None:
        """Lift the reservation of a job that is cancelled."""
        if self._held is not None and self._held.task.job == job:
            self._lift(self._held)

    def _set_aside(self, held: Reservation) -> None:
        packing = self._packing
        rest = held.set_aside(packing.fields(self._free_on(held)))
        self._machines.index.put(held.machine, packing.settled(packing.pack(rest) | packing.guards))

    def _free_on(self, held: Reservation) -> int:
        return self._packing.settled(self._machines.index.free[held.machine] + self._packing.pack(held.kept))

    def _can_start(self, held: Reservation) -> bool:
        """True if the task fits with the amounts set aside, perhaps on other devices than those it waits for."""
        guards = self._packing.guards
        return (self._free_on(held) - self._packing[held.task.request]) & guards == guards

    def _lift(self, held: Reservation) -> None:
        self._machines.index.put(held.machine, self._free_on(held))
        self._held, self._lifted = None, held.machine

    def check(self) -> None:
        """Raise where the reserved task does not wait, or could start."""
        if (held := self._held) is not None:
            task = held.task
            assert not self._can_start(held), f"task {task.id} could start on machine {held.machine}"
            assert (task.constraints, task.request) in self._queue.kinds(), f"task {task.id} does not wait"


ADDRESS: Final[Address] = "oracle/0"


class Scheduler(Component):
    """Schedules on an exact view of every machine, without any delay.

    Args:
        machines: these, with the queue.
    """

    __slots__ = ("_jobs", "_launches", "_machines", "_nodes", "_reservations", "_running")

    def __init__(self, machines: SlotMachines | AmountMachines) -> None:
        self._machines = machines
        self._nodes, self._reservations = machines.nodes, machines.reservations
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
            dropped = self._machines.queue.remove(lambda task: task.job == message.job)
            if dropped:
                self._jobs.finished(message.job, len(dropped))
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
