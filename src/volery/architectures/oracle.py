"""Oracle: an omniscient central scheduler without delay, the yardstick for all others.

Roles    Scheduler (one, sees every slot at once), Node (one per machine).
Flow     Submit > Launch > Completed, all without delay.
Deviates No published system; the "central FIFO" and "ideal" of the papers' comparisons. First come first served among
         the tasks that fit, minimum constraints first. With `order`, users take turns by Dominant Resource Fairness
         (Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013), without preemption.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from volery.core.component import Architecture, Component, Deployment
from volery.core.errors import InputError
from volery.core.events import Cancel, Measured, MoreTasks, Submit, TaskFinished
from volery.core.model import Address, Cluster, Message, Task, TaskId, Time
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.fairness import FairOrder, FairQueue, HierarchicalDrf, WeightedDrf, parse_shares_text
from volery.policies.jobs import JobLedger
from volery.policies.match import Anchors, Matches, fewest_constraints_first
from volery.policies.queueing import ConstraintQueue


class Launch(Message, frozen=True):
    """Scheduler > node: run the task."""

    number: int
    task: Task


class Completed(Message, frozen=True):
    """Node > scheduler: the task has finished."""

    task: TaskId


class Kill(Message, frozen=True):
    """Scheduler > node: end the task; Completed follows."""

    task: TaskId


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
        msgspec.Meta(description="weights of users, as ann:2+bob:1; for hdrf a tree, as web:1+dev:2(ann:2+bob:1)"),
    ] = ""


class Scheduler(Component):
    """Knows every slot exactly and pays nothing for it."""

    __slots__ = ("_constraints", "_free", "_jobs", "_launches", "_matches", "_nodes", "_queue", "_running")

    def __init__(self, cluster: Cluster, queue: ConstraintQueue | FairQueue | None = None) -> None:
        order = fewest_constraints_first(range(len(cluster.constraints)), cluster.constraints)
        machines = [machine for machine in order for _ in range(cluster.slots[machine])]
        self._nodes = [f"node/{machine}" for machine in machines]
        self._constraints = [cluster.constraints[machine] for machine in machines]
        self._matches = Matches(self._constraints, Anchors(cluster.constraints))
        self._free = self._matches.every
        self._queue = ConstraintQueue() if queue is None else queue
        self._running: dict[TaskId, tuple[Task, int]] = {}
        self._launches = 0

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Schedule a job."""
        self._port.observe(Measured("queued_tasks", self._queue.length))
        self._schedule(self._jobs.admit(message, source, self._queue.length))

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
        self._running[task.id] = (task, unit)
        self._launches += 1
        self._port.send(self._nodes[unit], Launch(self._launches, task))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Use the slot again at once."""
        running = self._running.pop(message.task, None)
        if running is None:
            return
        task, unit = running
        waiting = self._queue.pop_fitting(self._constraints[unit]) if self._queue.length else None
        if waiting is None:
            self._free |= 1 << unit
        else:
            self._launch(waiting, unit)
        self._jobs.finished(task.job)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's waiting tasks and kill the others."""
        if self._jobs.cancel(message, source):
            for task, unit in self._running.values():
                if task.job == message.job:
                    self._port.send(self._nodes[unit], Kill(task.id))
            dropped = self._queue.remove(lambda task: task.job == message.job)
            if dropped:
                self._jobs.finished(message.job, len(dropped))

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


class FairScheduler(Scheduler):
    """Lets users take turns: a freed slot goes to the poorest user with a task that fits, to its oldest such task."""

    __slots__ = ("_fair",)

    def __init__(self, cluster: Cluster, order: FairOrder) -> None:
        self._fair = FairQueue(order)
        super().__init__(cluster, self._fair)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Note whose job it is, and schedule it."""
        self._fair.belongs(message.job.id, message.job.user)
        super().on_submit(message, source, now)

    def _launch(self, task: Task, unit: int) -> None:
        self._fair.launched(task)
        super()._launch(task, unit)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Take the slot off its user's account before it is used again."""
        running = self._running.get(message.task)
        if running is not None:
            self._fair.ended(running[0])
        super().on_completed(message, source, now)

    def check(self) -> None:
        """As for first come first served; and what users hold is what runs."""
        super().check()
        self._fair.check()


class Node(Component):
    """One worker machine."""

    __slots__ = ("_launched",)

    def __init__(self) -> None:
        self._launched = 0

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the task; a repeated or overtaken launch is ignored."""
        if message.number > self._launched:
            self._launched = message.number
            self._port.launch(message.task, 0)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the task, if it still runs."""
        self._port.kill(message.task, 0)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end."""
        self._port.send("oracle/0", Completed(event.task.id))

    receives = {Launch: on_launch, Kill: on_kill, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced by the base


def _scheduler(cluster: Cluster, config: OracleConfig) -> Scheduler:
    if config.order == "fifo":
        if config.shares:
            raise InputError("oracle:shares", "first come first served knows no shares; give order=drf or order=hdrf")
        return Scheduler(cluster)
    capacity = (cluster.slot_count,)
    tree = parse_shares_text(config.shares, "oracle:shares") if config.shares else None
    if config.order == "hdrf":
        return FairScheduler(cluster, HierarchicalDrf(capacity, tree))
    members = tree.members if tree is not None else ()
    if any(member.members for member in members):
        raise InputError("oracle:shares", "drf shares between users alone; give order=hdrf for a tree")
    return FairScheduler(cluster, WeightedDrf(capacity, {member.name: member.weight for member in members}))


def build(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: when the shares are not a list of weights, or not one that the order knows how to use.
    """
    components: dict[Address, Component] = {"oracle/0": _scheduler(cluster, config)}
    machines = {f"node/{machine}": machine for machine in range(len(cluster.constraints))}
    for address in machines:
        components[address] = Node()
    return Deployment(components, machines, lambda _: "oracle/0", {("oracle", "node"): 0, ("node", "oracle"): 0})


ORACLE = Architecture(
    name="oracle",
    summary="omniscient central scheduler without delay: the yardstick",
    source="none; the ideal that papers compare with",
    defaults=OracleConfig(),
    messages=frozenset({Launch, Kill, Completed}),
    stages={
        Stage.J1: Realisation("Scheduler.on_submit"),
        Stage.T2: Realisation(
            "Scheduler.on_completed", "full", "first come first served, drf or hdrf, among those that fit"
        ),
        Stage.T4: Realisation("Scheduler._launch"),
        Stage.T7: Realisation("Scheduler.on_completed"),
        Stage.R1: Realisation("Scheduler._schedule", "full", "every slot, exactly"),
        Stage.R3: Realisation("Scheduler._schedule", "full", "constraint bit vectors"),
        Stage.R4: Realisation("Scheduler._schedule", "full", "idle vector"),
        Stage.R5: Realisation("Scheduler._schedule", "full", "minimum constraints"),
    },
    build=build,
    hops=0,
    tolerates=frozenset({"duplication"}),
)
