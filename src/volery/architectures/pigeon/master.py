"""Pigeon's master and its nodes: a central scheduler per group, with weighted fair queues and reserved workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Final

from volery.architectures.pigeon.balance import REPORT, QueueReports
from volery.architectures.pigeon.gangs import GroupGangs
from volery.architectures.pigeon.groups import Group
from volery.architectures.pigeon.messages import (
    Completed,
    Deal,
    GangTasks,
    GroupTasks,
    Launch,
    QueueLengths,
    Resume,
    Update,
    Withdraw,
    Withdrawn,
    kind_of,
)
from volery.architectures.pigeon.queues import FairQueues, WeightCounting
from volery.architectures.pigeon.recovery import UPDATE, MasterElection, MasterRecovery
from volery.architectures.pigeon.succession import SUCCESSION
from volery.core.component import Component, Sends, sent_to
from volery.core.events import Measured, TaskFinished, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port
from volery.policies.match import MatchPolicy, positions
from volery.roles.node import Kill
from volery.roles.recovery.election import ELECTION
from volery.roles.recovery.leases import Result

PLAIN: Final = frozenset({GroupTasks, Completed})
"""The messages that only a master without a recovery takes."""


REPORT_SENDS: Final = sent_to("distributor", QueueLengths)
PLAIN_SENDS: Final = sent_to("node", Launch, Kill) | sent_to("distributor", Withdrawn)


class Master(Component):
    """Runs tasks of its group on idle workers, short ones first, and lets no long one starve.

    A short task takes a low-priority worker, then a reserved one, else it joins the high-priority queue; a long task
    takes a low-priority worker or joins the queue of its type. An idle reserved worker serves short tasks only, an
    idle low-priority worker all types by their weights (Pigeon, section 2.2).

    Args:
        weights: W, then the weights between further types of long jobs.
        reports: Distributors that receive the queue lengths, and the period of these reports.

    Attributes:
        free: Bit vector of the idle units.
        owned: The unit of each task that runs.
        serve: Gives a unit the next task that it may run, or lets it idle; from the first gang on, gangs do that.
    """

    election: MasterElection
    """The election of the leader; only a master with a recovery has one."""

    def __init__(
        self,
        group: Group,
        *,
        weights: Sequence[int],
        weight_counting: WeightCounting,
        match: MatchPolicy,
        stream: Random,
        recovery: MasterRecovery | None = None,
        reports: tuple[Sequence[Address], Time] | None = None,
    ) -> None:
        self._group = group
        self.free = group.matches.every
        self._queues = FairQueues(weights, weight_counting)
        self.owned: dict[TaskId, int] = {}
        self._owners: dict[TaskId, Address] = {}
        self._by_fewest = match == "min-constraints"
        self._stream = stream
        self._last_number_of: dict[Address, int] = {}
        self._launches = 0
        self.serve: Callable[[int], None] = self._serve_tasks
        self._gangs: GroupGangs | None = None
        self._reports = None if reports is None else QueueReports(self._queues.lengths, *reports)
        self._recovery = recovery
        if recovery is not None:
            self.election = recovery.election
            recovery.join(self)

    def bind(self, port: Port) -> None:
        super().bind(port)
        if self._reports is not None:
            self._reports.bind(port)
        if self._recovery is not None:
            self._recovery.bind(port)

    def start(self, now: Time) -> None:
        if self._recovery is not None:
            self.election.start(now)

    def takes(self) -> Collection[type]:
        if self._recovery is not None:
            return self.receives.keys() - PLAIN
        return {Withdraw, GangTasks} | PLAIN | (set() if self._reports is None else {TimerFired})

    def emits(self) -> Sends:
        sends = PLAIN_SENDS if self._recovery is None else MasterRecovery.sends
        return sends if self._reports is None else sends | REPORT_SENDS

    def on_group_tasks(self, message: GroupTasks, source: Address, now: Time) -> None:
        """Launch what fits an idle worker now, queue the rest."""
        # A repeated or stale message of this link: its tasks are here already.
        if message.number <= self._last_number_of.get(source, 0):
            return
        self._last_number_of[source] = message.number

        group = self._group
        short = message.short
        kind = kind_of(message)
        idle_units = self.free
        matches = group.matches
        reserved = group.reserved
        bits = group.bits
        size = len(bits)
        owned = self.owned
        node_of = group.node_of
        queues = self._queues
        launches = self._launches
        send = self._port.send
        random = self._stream.random

        if queues.length and queues.waits(kind):
            self._port.observe(Measured("queued_tasks", queues.length))

        for task in message.tasks:
            candidates = idle_units and idle_units & matches[task.constraints]

            # Reserved workers are the last resort of short tasks, and closed to long ones (Pigeon, section 2.2).
            if reserved:
                candidates = candidates & ~reserved or (candidates if short else 0)

            if not candidates:
                queues.push(task, kind)
                self._owners[task.id] = source
                continue

            # The units of a group are in ascending order of constraints: the lowest bit is the least capable one.
            if self._by_fewest:
                unit = (candidates & -candidates).bit_length() - 1
            else:
                unit = int(random() * size)
                # A random unit is idle most of the time where load is low; only otherwise are the candidates counted.
                if not candidates & bits[unit]:
                    unit = matches.pick(task.constraints, candidates, random)

            idle_units ^= bits[unit]
            owned[task.id] = unit
            launches += 1
            send(node_of[unit], Launch(launches, task, source))

        self.free, self._launches = idle_units, launches

        if self._reports is not None:
            self._reports.look(now)

    def on_gang_tasks(self, message: GangTasks, source: Address, now: Time) -> None:
        """Start a gang on idle workers, or let it wait for its turn."""
        if self._recovery is not None:
            self._recovery.deal_gang(message, source)
        elif message.number > self._last_number_of.get(source, 0):
            self._last_number_of[source] = message.number
            self.place_gang(message, source)
        self._look(now)

    def place_gang(self, message: GangTasks, distributor: Address) -> None:
        """Start a gang, or let it wait; from now on gangs serve the units of the group."""
        if self._gangs is None:
            self._gangs = GroupGangs(self._group, self)
            self.serve = self._gangs.serve
        self._owners.update(dict.fromkeys([task.id for task in message.tasks], distributor))
        self._gangs.add(message.tasks, message.kind, message.gang)

    def push(self, task: Task, kind: int) -> None:
        """Let a task, or the first of a gang, join the queue of a type."""
        self._queues.push(task, kind)

    def launch(self, task: Task, unit: int) -> None:
        """Launch a task that has waited."""
        self._launch(task, unit, self._owners.pop(task.id))

    def place(self, task: Task, kind: int, distributor: Address) -> None:
        """Launch a task of a type on an idle unit, or queue it."""
        group = self._group
        candidates = self.free & group.matches[task.constraints]

        # The rule of `on_group_tasks`, for one task: reserved workers last, and for short tasks only.
        candidates = candidates & ~group.reserved or (0 if kind else candidates)
        if not candidates:
            self._queues.push(task, kind)
            self._owners[task.id] = distributor
            return

        if self._by_fewest:
            unit = (candidates & -candidates).bit_length() - 1
        else:
            unit = group.matches.pick(task.constraints, candidates, self._stream.random)

        self.free ^= group.bits[unit]
        self._launch(task, unit, distributor)

    def _launch(self, task: Task, unit: int, distributor: Address) -> None:
        self.owned[task.id] = unit
        if self._recovery is not None:
            self._recovery.run(task, unit, distributor)
            return

        self._launches += 1
        self._port.send(self._group.node_of[unit], Launch(self._launches, task, distributor))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """A worker is idle: give it the next task that it may run."""
        unit = self.owned.pop(message.task, None)
        if unit is None:
            return

        self.serve(unit)

        if self._reports is not None:
            self._reports.look(now)

    def _serve_tasks(self, unit: int) -> None:
        task = self.next_task(unit) if self._queues.length else None
        if task is None:
            self.free |= self._group.bits[unit]
        else:
            self._launch(task, unit, self._owners.pop(task.id))

    def next_task(self, unit: int) -> Task | None:
        """Take the next task that a unit may run; None: none waits for such a unit."""
        offered = self._group.constraints[unit]

        if self._group.reserved >> unit & 1:
            return self._queues.pop_shortest(offered)
        return self._queues.pop(offered)

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Drop the tasks that wait, and report them; kill those that run, whose ends nodes report."""
        withdrawn_ids = frozenset(message.tasks)
        recovery = self._recovery

        # The nodes report these ends, as they do any other.
        for task in message.tasks:
            unit = self.owned.get(task)
            if unit is None:
                continue
            if message.is_recall and recovery is not None:
                recovery.evict(task, unit)
            else:
                self._port.send(self._group.node_of[unit], Kill(task))
        withdrawn_tasks = [task.id for task in self._queues.remove(lambda task: task.id in withdrawn_ids)]
        if self._gangs is not None:
            withdrawn_tasks = self._gangs.withdraw(withdrawn_ids, withdrawn_tasks)

        if withdrawn_tasks:
            for task in withdrawn_tasks:
                del self._owners[task]
                if recovery is not None:
                    recovery.withdrawn(task)
            self._port.send(source, Withdrawn(tuple(withdrawn_tasks)))

            self._look(now)

    def lose(self, units: int) -> None:
        """Use units of a lost machine no longer."""
        self.free &= ~units
        if self._gangs is not None:
            self._gangs.lose(units)

    def forget_all(self) -> None:
        """Forget all units and tasks: none is idle, nothing runs or waits."""
        self._queues.clear()
        if self._gangs is not None:
            self._gangs.clear()
        self.owned.clear()
        self._owners.clear()
        if self._reports is not None:
            self._reports.forget()
        self.free = 0

    def on_deal(self, message: Deal, source: Address, now: Time) -> None:
        """Place tasks of the present epoch."""
        assert self._recovery is not None, "there are epochs"
        self._recovery.deal(message, source)
        self._look(now)

    def on_resume(self, message: Resume, source: Address, now: Time) -> None:
        """Place tasks of the copy that an earlier leader has sent."""
        assert self._recovery is not None, "there are epochs"
        self._recovery.resume(message, source)
        self._look(now)

    def on_update(self, message: Update, source: Address, now: Time) -> None:
        """Keep the queues of the leader."""
        assert self._recovery is not None, "there are second masters"
        self._recovery.update(message)

    def _look(self, now: Time) -> None:
        """Report the queues to those who follow them, within a period."""
        if self._reports is not None:
            self._reports.look(now)
        if self._recovery is not None:
            self._recovery.look(now)

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """A worker is idle, and its result is passed on."""
        assert self._recovery is not None, "results come of attempts"

        self._recovery.result(message, source)
        self._look(now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Report the queues, or pass the timer on to the election."""
        if event.key == REPORT:
            assert self._reports is not None, "a timer of the reports"
            self._reports.send()
            return
        if event.key == UPDATE:
            assert self._recovery is not None, "a timer of the replica"
            self._recovery.update(None)
            return
        self.election.on_lease_timer(event, now)

    def check(self) -> None:
        owned_units = 0

        for unit in self.owned.values():
            assert not owned_units >> unit & 1, f"unit {unit} has two tasks"
            owned_units |= 1 << unit

        # Every unit is free, owned, or (with a recovery) not led at the moment.
        usable = self._group.matches.every if self._recovery is None else self._recovery.usable()
        kept_units = 0 if self._gangs is None else self._gangs.kept_units
        assert not self.free & kept_units, "units both free and kept for a gang"
        assert self.free | kept_units == usable & ~owned_units, "units neither free nor owned"
        if self._gangs is not None:
            self._gangs.check()

        # Nothing waits for a unit that it may have: queues are served when a worker becomes idle, not later.
        for kind, mask in self._queues.masks():
            idle_units = self.free & ~self._group.reserved if kind else self.free
            assert not idle_units & self._group.matches[mask], f"idle {positions(idle_units)} while {mask:#x} waits"

    def check_rest(self) -> None:
        assert not len(self.owned) + self._queues.length, "tasks are left"
        if self._gangs is not None:
            self._gangs.check_rest()
        if self._recovery is not None:
            self._recovery.check_rest()

        if self._recovery is None or self._recovery.leadership.leading:
            assert self.free == self._group.matches.every, "units are not idle"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        GroupTasks: on_group_tasks,
        GangTasks: on_gang_tasks,
        Withdraw: on_withdraw,
        Completed: on_completed,
        Deal: on_deal,
        Result: on_result,
        Resume: on_resume,
        Update: on_update,
        **ELECTION,
        **SUCCESSION,
        TimerFired: on_timer,
    }
    sends = PLAIN_SENDS | REPORT_SENDS | MasterRecovery.sends


class Node(Component):
    """A worker machine: it launches each task once, and reports the end to distributor and master.

    The last launch is kept in a field and earlier ones in a dict that most nodes never need: ten thousand dicts would
    be memory traffic.
    """

    __slots__ = ("_earlier", "_last", "_launched", "_master")

    def __init__(self, master: Address) -> None:
        self._master = master
        self._launched = 0
        self._last: Launch | None = None
        self._earlier: dict[TaskId, Launch] | None = None

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the task; a repeated or overtaken launch is ignored."""
        if message.number <= self._launched:
            return

        self._launched = message.number
        # Two tasks on a node at a time are rare (several slots): the dict is made then only.
        if self._last is not None:
            self._earlier = self._earlier or {}
            self._earlier[self._last.task.id] = self._last
        self._last = message

        self._port.launch(message.task, 0)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        self._port.kill(message.task, 0)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Tell the distributor the result and the master that a worker is idle."""
        task = event.task.id
        launch = self._last

        if launch is not None and launch.task.id == task:
            self._last = None
        else:
            assert self._earlier is not None, "a task that was never launched has finished"
            launch = self._earlier.pop(task)

        completed = Completed(task)
        self._port.send(launch.distributor, completed)
        self._port.send(self._master, completed)

    receives = {Launch: on_launch, Kill: on_kill, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced by the base
    sends = sent_to("distributor", Completed) | sent_to("master", Completed)
