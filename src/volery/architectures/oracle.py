"""Oracle: an omniscient central scheduler without delay, the yardstick for all others.

Roles    Scheduler (one, sees every slot at once), Node (one per machine).
Flow     Submit > Launch > Completed, all without delay.
Deviates No published system; the "central FIFO" and "ideal" of the papers' comparisons. First come first served among
         the tasks that fit; minimum constraints first, and where tasks ask for several resources, best fit first. Small
         tasks may overtake large ones for ever. With `order`, users take turns by Dominant Resource Fairness (Ghodsi
         et al., NSDI 2011; Bhattacharya et al., SoCC 2013), without preemption; with `patience_s`, too, a machine is
         reserved for a task that is passed over for so long on its user's turn (as YARN and Volcano do).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from volery.core.bounds import Seconds
from volery.core.component import Architecture, Component, Deployment, sent_to
from volery.core.devices import packing_of
from volery.core.errors import InputError
from volery.core.events import Cancel, Counted, Event, Measured, MoreTasks, Submit
from volery.core.model import SECOND, Address, Amounts, Cluster, JobId, Task, TaskId, Time
from volery.core.resources import SLOT
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.capacity import CapacityIndex, Ladders
from volery.policies.fairness import (
    DrfTurns,
    FairLines,
    FairOrder,
    FairQueue,
    FairVectorQueue,
    HdrfTurns,
    HierarchicalDrf,
    PatientVectorQueue,
    Reservation,
    WeightedDrf,
    parse_shares_text,
)
from volery.policies.match import Anchors, Matches, fewest_constraints_first
from volery.policies.queueing import ConstraintQueue
from volery.policies.vectorqueue import VectorQueue
from volery.roles.node import NODE_MESSAGES, Completed, Kill, Launch, Node
from volery.roles.submission import ANSWERS, JobLedger

ADDRESS: Final[Address] = "oracle/0"


class OracleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the yardstick."""

    order: Annotated[
        Literal["fifo", "drf", "hdrf"],
        msgspec.Meta(
            description="whose task a freed slot takes: the oldest, or that of the user who is poorest by DRF"
        ),
    ] = "fifo"
    shares: Annotated[
        str,
        msgspec.Meta(
            description="fixed weights of users, as ann:2+bob:1; for hdrf a tree, as web:1+dev:2(ann:2+bob:1)"
        ),
    ] = ""
    patience_s: Annotated[
        Seconds,
        msgspec.Meta(description="with drf or hdrf: passed over for so long, a task has a machine reserved; 0: never"),
    ] = 0.0


class Scheduler(Component):
    """Knows every slot exactly and pays nothing for it."""

    __slots__ = ("_constraints", "_free", "_jobs", "_launches", "_matches", "_nodes", "_queue", "_running")

    def __init__(self, cluster: Cluster) -> None:
        order = fewest_constraints_first(range(len(cluster.constraints)), cluster.constraints)
        machines = [machine for machine in order for _ in range(cluster.slots[machine])]
        self._nodes = [f"node/{machine}" for machine in machines]
        self._constraints = [cluster.constraints[machine] for machine in machines]
        self._matches = Matches(self._constraints, Anchors(cluster.constraints))
        self._free = self._matches.every
        self._queue: ConstraintQueue | FairQueue = ConstraintQueue()
        self._running: dict[TaskId, tuple[Task, int]] = {}
        self._launches = 0

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Schedule a job."""
        queued = self._queued()
        self._port.observe(Measured("queued_tasks", queued))
        self._schedule(self._jobs.admit(message, source, queued))

    def _queued(self) -> int:
        return self._queue.length

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Schedule a further chunk."""
        self._schedule(self._jobs.more(message))

    def _schedule(self, tasks: tuple[Task, ...]) -> None:
        for task in tasks:
            suitable = self._matches[task.constraints]
            candidates = suitable & self._free
            if candidates:
                lowest = candidates & -candidates
                self._free ^= lowest
                self._launch(task, lowest.bit_length() - 1)
            elif suitable:
                self._queue.push(task)
            else:
                self._jobs.unsatisfiable(task.job)

    def _launch(self, task: Task, unit: int) -> None:
        """`unit`: the place of the slot or machine."""
        self._running[task.id] = (task, unit)
        self._launches += 1
        self._port.send(self._nodes[unit], Launch(self._launches, task))

    def _submitted(self, task: Task) -> Task:
        """A running task, as it was submitted."""
        return task

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Use the slot again at once."""
        running = self._running.pop(message.task, None)
        if running is None:
            return
        task, unit = running
        self._reuse(task, unit)
        self._jobs.finished(task.job)

    def _reuse(self, ended: Task, unit: int) -> None:
        waiting = self._queue.pop_fitting(self._constraints[unit]) if self._queue.length else None
        if waiting is None:
            self._free |= 1 << unit
        else:
            self._launch(waiting, unit)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's waiting tasks and kill the others."""
        if self._jobs.cancel(message, source):
            for task, unit in self._running.values():
                if task.job == message.job:
                    self._port.send(self._nodes[unit], Kill(task.id))
            dropped = self._drop(message.job)
            if dropped:
                self._jobs.finished(message.job, len(dropped))

    def _drop(self, job: JobId) -> list[Task]:
        return self._queue.remove(lambda task: task.job == job)

    def check(self) -> None:
        """No slot idles that a waiting task could use."""
        for mask in self._queue.masks():
            assert not self._matches[mask] & self._free, f"idle slots while {mask:#x} waits"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)


class VectorScheduler(Scheduler):
    """Knows exactly what every machine has free of each resource."""

    __slots__ = ("_index", "_ladders", "_possible", "_waiting", "_whole")

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(msgspec.structs.replace(cluster, slots=(1,) * len(cluster.constraints)))
        order = fewest_constraints_first(range(len(cluster.constraints)), cluster.constraints)
        capacities = [cluster.capacities[machine] for machine in order]
        self._ladders = Ladders(capacities, packing_of(cluster))
        self._whole = CapacityIndex(capacities, self._ladders)
        self._index = self._whole.copy()
        self._possible: dict[tuple[int, Amounts], bool] = {}
        self._waiting: VectorQueue | FairVectorQueue = VectorQueue(self._ladders.packing)

    def _queued(self) -> int:
        return self._waiting.length

    def _schedule(self, tasks: tuple[Task, ...]) -> None:
        nowhere: set[tuple[int, Amounts]] = set()  # kinds that fit nothing: machines only become fuller here
        for task in tasks:
            kind = (task.constraints, task.request)
            machine = -1
            if kind not in nowhere:
                machine = self._index.pick(self._ladders[task.request], self._matches[task.constraints], "best-fit")
            if machine >= 0:
                self._launch(task, machine)
                continue
            nowhere.add(kind)
            if self._fits_somewhere(kind):
                self._waiting.push(task)
            else:
                self._jobs.unsatisfiable(task.job)

    def _fits_somewhere(self, kind: tuple[int, Amounts]) -> bool:
        if kind not in self._possible:
            mask, request = kind
            self._possible[kind] = bool(self._whole.fitting(self._ladders[request], self._matches[mask]))
        return self._possible[kind]

    def _launch(self, task: Task, unit: int) -> None:
        packing, free = self._ladders.packing, self._index.free[unit]
        took = packing.named(free, packing[task.request])
        self._index.put(unit, packing.settled(free - took))
        super()._launch(packing.naming(task, took), unit)

    def _submitted(self, task: Task) -> Task:
        return self._ladders.packing.anywhere(task)

    def _reuse(self, ended: Task, unit: int) -> None:
        packing = self._ladders.packing
        self._index.put(unit, packing.settled(self._index.free[unit] + packing[ended.request]))
        self._offer(unit)

    def _offer(self, unit: int) -> None:
        while self._waiting.length:
            task = self._waiting.pop_fitting(self._constraints[unit], self._index.free[unit])
            if task is None:
                return
            self._launch(task, unit)

    def _drop(self, job: JobId) -> list[Task]:
        return self._waiting.remove(lambda task: task.job == job)

    def check(self) -> None:
        """No machine has what a waiting task asks for."""
        for mask, request in self._waiting.kinds():
            fitting = self._index.fitting(self._ladders[request], self._matches[mask])
            assert not fitting, f"machines {fitting:#x} could run what waits: {mask:#x}, {request}"


class TakingTurns(Scheduler):
    """Users take turns: what comes free goes to the poorest user with a task that fits, to its oldest such task."""

    __slots__ = ()
    _fair: FairLines[Any]

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Note whose job it is, and schedule it."""
        self._fair.belongs(message.job.id, message.job.user)
        super().on_submit(message, source, now)

    def _launch(self, task: Task, unit: int) -> None:
        self._fair.launched(task)
        super()._launch(task, unit)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Take what the task had off its user's account before it is used again."""
        running = self._running.get(message.task)
        if running is not None:
            self._fair.ended(self._submitted(running[0]))
        super().on_completed(message, source, now)

    def check(self) -> None:
        """As for first come first served; and what users hold is what runs."""
        super().check()
        self._fair.check()


class FairScheduler(TakingTurns):
    """Over slots."""

    __slots__ = ("_fair",)

    def __init__(self, cluster: Cluster, order: FairOrder) -> None:
        super().__init__(cluster)
        self._fair = self._queue = FairQueue(order)


class FairVectorScheduler(TakingTurns, VectorScheduler):
    """Over several resources."""

    __slots__ = ("_fair",)

    def __init__(self, cluster: Cluster, order: FairOrder) -> None:
        super().__init__(cluster)
        self._fair = self._waiting = FairVectorQueue(order, self._ladders.packing)


class PatientScheduler(FairVectorScheduler):
    """Over amounts or slots: at most one machine at a time is reserved for a task that was passed over for too long."""

    __slots__ = ("_lifted", "_patient", "_reservation")

    def __init__(self, cluster: Cluster, order: FairOrder, turns: FairOrder, patience_us: Time) -> None:
        super().__init__(cluster, order)
        self._patient = PatientVectorQueue(order, turns, self._ladders.packing, patience_us)
        self._fair = self._waiting = self._patient
        self._reservation: Reservation | None = None
        self._lifted = -1

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Reserve what is overdue before anybody else takes more; afterwards see who has been passed over."""
        if self._reservation is None and self._patient.length:
            overdue = self._patient.overdue(now)
            if overdue is not None:
                self._reserve(overdue)
        super().handle(event, source, now)
        if self._lifted >= 0:
            machine, self._lifted = self._lifted, -1
            self._offer(machine)
        if self._patient.length:
            self._patient.note(now)

    def _reserve(self, task: Task) -> None:
        self._port.observe(Counted("reservations"))
        packing, machine = self._ladders.packing, self._roomiest(task)
        need = packing.awaited(self._whole.free[machine], self._index.free[machine], packing[task.request])
        self._reservation = Reservation(task, machine, packing.fields(need))
        self._set_aside(self._reservation)

    def _roomiest(self, task: Task) -> int:
        """A machine with half of what the task needs free, else a quarter, and so on; the first that can hold it."""
        suitable = self._whole.fitting(self._ladders[task.request], self._matches[task.constraints])
        part, machine = task.request or SLOT, -1
        while machine < 0:
            part = tuple([amount // 2 for amount in part])
            machine = self._index.pick(self._ladders[part], suitable, "first")
        return machine

    def _set_aside(self, reservation: Reservation) -> None:
        packing, machine = self._ladders.packing, reservation.machine
        rest = reservation.set_aside(packing.fields(self._free_on(reservation)))
        self._index.put(machine, packing.settled(packing.pack(rest) | packing.guards))

    def _free_on(self, reservation: Reservation) -> int:
        packing = self._ladders.packing
        return packing.settled(self._index.free[reservation.machine] + packing.pack(reservation.kept))

    def _can_start(self, reservation: Reservation) -> bool:
        """Whether the task fits with what is set aside for it, perhaps on other devices than it waits for."""
        packing = self._ladders.packing
        left = self._free_on(reservation) - packing[reservation.task.request]
        return left & packing.guards == packing.guards

    def _offer(self, unit: int) -> None:
        reservation = self._reservation
        if reservation is not None and reservation.machine == unit:
            self._set_aside(reservation)
            if self._can_start(reservation):
                self._patient.take(reservation.task)
                self._launch(reservation.task, unit)
        super()._offer(unit)

    def _launch(self, task: Task, unit: int) -> None:
        if self._reservation is not None and self._reservation.task.id == task.id:
            self._lift(self._reservation)  # it may have found a place on another machine
        super()._launch(task, unit)

    def _lift(self, reservation: Reservation) -> None:
        self._index.put(reservation.machine, self._free_on(reservation))
        self._reservation, self._lifted = None, reservation.machine

    def _drop(self, job: JobId) -> list[Task]:
        if self._reservation is not None and self._reservation.task.job == job:
            self._lift(self._reservation)
        return super()._drop(job)

    def check(self) -> None:
        """As without; a reservation is for a task that waits, and does not suffice yet."""
        super().check()
        reservation = self._reservation
        if reservation is not None:
            task = reservation.task
            assert not self._can_start(reservation), f"task {task.id} could start on machine {reservation.machine}"
            assert (task.constraints, task.request) in self._patient.kinds(), f"task {task.id} does not wait"


def _scheduler(cluster: Cluster, config: OracleConfig) -> Scheduler:
    if config.order == "fifo":
        if config.shares:
            raise InputError("oracle:shares", "first come first served knows no shares; give order=drf or order=hdrf")
        if config.patience_s:
            raise InputError("oracle:patience_s", "first come first served knows no turns; give order=drf or hdrf")
        return VectorScheduler(cluster) if cluster.resources else Scheduler(cluster)
    if not config.patience_s:
        order = _order(cluster, config, WeightedDrf, HierarchicalDrf)
        return FairVectorScheduler(cluster, order) if cluster.resources else FairScheduler(cluster, order)
    if not cluster.resources:
        capacities = tuple([(count,) for count in cluster.slots])
        cluster = msgspec.structs.replace(cluster, resources=("slots",), capacities=capacities)
    order, turns = _order(cluster, config, WeightedDrf, HierarchicalDrf), _order(cluster, config, DrfTurns, HdrfTurns)
    return PatientScheduler(cluster, order, turns, round(config.patience_s * SECOND))


def _order(
    cluster: Cluster, config: OracleConfig, flat: type[WeightedDrf], hierarchical: type[HierarchicalDrf]
) -> FairOrder:
    capacity: tuple[int, ...] = (cluster.slot_count,)
    if cluster.resources:
        capacity = tuple([max(1, sum(column)) for column in zip(*cluster.capacities, strict=True)])
    tree = parse_shares_text(config.shares, "oracle:shares") if config.shares else None
    if config.order == "hdrf":
        return hierarchical(capacity, tree)
    members = tree.members if tree is not None else ()
    if any(member.members for member in members):
        raise InputError("oracle:shares", "drf shares between users alone; give order=hdrf for a tree")
    return flat(capacity, {member.name: member.weight for member in members})


def build(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: when the shares are not a list of weights, or not one that the order knows how to use, or patience
            is asked of an order without turns.
    """
    components: dict[Address, Component] = {ADDRESS: _scheduler(cluster, config)}
    machines = {f"node/{machine}": machine for machine in range(len(cluster.constraints))}
    for address in machines:
        components[address] = Node(ADDRESS)
    return Deployment(components, machines, lambda _: ADDRESS, {("oracle", "node"): 0, ("node", "oracle"): 0})


ORACLE = Architecture(
    name="oracle",
    summary="omniscient central scheduler without delay: the yardstick",
    source="none; the ideal that papers compare with",
    defaults=OracleConfig(),
    messages=NODE_MESSAGES,
    stages={
        Stage.J1: Realisation("Scheduler.on_submit"),
        Stage.J4: Realisation("Scheduler.on_submit", "full", "one job at a time"),
        Stage.J6: Realisation("Scheduler.on_completed", "full", "JobDone after the last task"),
        Stage.T2: Realisation("Scheduler._reuse", "full", "first come first served, drf or hdrf, among those that fit"),
        Stage.T3: Realisation("Scheduler._schedule"),
        Stage.T4: Realisation("Scheduler._launch"),
        Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
        Stage.T7: Realisation("Scheduler.on_completed"),
        Stage.R1: Realisation("Scheduler._schedule", "full", "every slot, exactly"),
        Stage.R3: Realisation("Scheduler._schedule", "full", "constraint bit vectors"),
        Stage.R4: Realisation("Scheduler._schedule", "full", "idle slots, or enough of each resource"),
        Stage.R5: Realisation("Scheduler._schedule", "full", "minimum constraints; best fit for several resources"),
    },
    build=build,
    hops=0,
    tolerates=frozenset({"duplication"}),
    vectors=True,
    heeds={"constraints": "", "users": "order=drf|hdrf"},
)
