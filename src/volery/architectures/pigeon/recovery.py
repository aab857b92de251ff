"""Recovery of masters and machines that crash (Pigeon, section 6.1), as parts of masters; `resends` is the other half.

A leader begins with the status of every worker, and compares what runs with the tasks that the distributors have sent.
Who leads is decided elsewhere: of two fixed masters by `volery.roles.recovery.election`, of many workers by
`succession`; then a second master keeps a replica of the leader's queues. Distributors do not crash: the paper does not
treat them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from volery.architectures.pigeon.groups import Group
from volery.architectures.pigeon.messages import (
    Deal,
    GangTasks,
    Lost,
    Report,
    Resume,
    Update,
    Withdrawn,
    kind_of,
)
from volery.architectures.pigeon.succession import SUCCESSION_SENDS, Candidacy
from volery.core.component import Sends, sent_to
from volery.core.events import Reassignment
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port
from volery.policies.match import positions
from volery.roles.node import Kill
from volery.roles.recovery.election import PairElection, pair_sends
from volery.roles.recovery.leadership import Led, seated
from volery.roles.recovery.leases import Result, Run, RunningAttempt, Status

UPDATE: Final = "update of the second master"


def pair_of(group: int) -> tuple[Address, Address]:
    """The addresses of the two masters of a group."""
    return f"master/{group}", f"master/{group}/standby"


def seats_of(number: int, group: Group, candidates: int) -> tuple[Address, ...]:
    """The addresses of the masters of a group: a fixed pair, or one at each of so many workers."""
    if not candidates:
        return pair_of(number)
    count = min(candidates, len(set(group.machines)))
    return (*pair_of(number), *(f"master/{number}/{place}" for place in range(2, count)))[:count]


class QueuedTask(NamedTuple):
    """A task in a queue of a master.

    Args:
        kind: The type of its job.
        owner: The distributor that sent it.
    """

    task: Task
    kind: int
    attempt: int
    owner: Address


class Replica:
    """The replica of a master's queues that its second master keeps: updates of a leader, and the last one.

    The next update follows within a period of a change. What the queues were when the leader crashed is known up to a
    period: the rest, and whatever nodes have begun since, the new leader learns from distributors and nodes.
    """

    _port: Port

    def __init__(self, candidacy: Candidacy, period_us: Time) -> None:
        self._candidacy = candidacy
        self._leadership = candidacy.leadership
        self._period_us = period_us
        self._is_due = False
        self._copies: dict[TaskId, QueuedTask] = {}

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port

    def look(self, now: Time) -> None:
        """Update the second within a period: a queue may have changed."""
        if self._leadership.leading and self._candidacy.second and not self._is_due:
            self._is_due = True
            self._port.set_timer(UPDATE, now + self._period_us)

    def send(self, queued_tasks: Mapping[TaskId, QueuedTask]) -> None:
        """Send all that waits to the second master, if there is one."""
        self._is_due = False
        if self._leadership.leading and self._candidacy.second:
            queued = tuple(queued_tasks.values())
            self._port.send(
                self._candidacy.second,
                Update(
                    self._leadership.epoch,
                    tuple([entry.task for entry in queued]),
                    tuple([entry.kind for entry in queued]),
                    tuple([entry.attempt for entry in queued]),
                    tuple([entry.owner for entry in queued]),
                ),
            )

    def keep(self, update: Update) -> None:
        """Keep the queues of the leader that this one follows."""
        if update.epoch == self._leadership.epoch and not self._leadership.leading:
            rows = zip(update.tasks, update.kinds, update.attempts, update.owners, strict=True)
            self._copies = {task.id: QueuedTask(task, kind, attempt, owner) for task, kind, attempt, owner in rows}

    def copies_of(self, owner: Address) -> tuple[tuple[TaskId, int], ...]:
        """Tasks of a distributor that are kept, with their attempts."""
        return tuple([(entry.task.id, entry.attempt) for entry in self._copies.values() if entry.owner == owner])

    def take(self, tasks: Sequence[TaskId]) -> list[QueuedTask]:
        """Give up tasks that are kept, to be placed."""
        return [self._copies.pop(task) for task in tasks]


MasterElection = PairElection | Candidacy
"""The election of a group's leader: of two masters that are fixed, or of many candidates."""


class GroupMaster(Protocol):
    """A master, as its recovery calls it: the account of its units and its queues."""

    free: int
    owned: dict[TaskId, int]

    def place(self, task: Task, kind: int, distributor: Address) -> None: ...
    def place_gang(self, message: GangTasks, distributor: Address) -> None: ...
    def lose(self, units: int) -> None: ...
    def serve(self, unit: int) -> None: ...
    def forget_all(self) -> None: ...


class MasterRecovery:
    """One master of a group: it serves while it leads; distributors fill its queues again when it begins to."""

    sends: ClassVar[Sends] = (
        sent_to("node", Run, Kill)
        | sent_to("distributor", Result, Withdrawn, Lost, Report)
        | pair_sends("master", "distributor")
        | SUCCESSION_SENDS
        | sent_to("master", Update)
    )
    _master: GroupMaster
    _port: Port

    def __init__(
        self,
        group: Group,
        elect: Callable[[Led, Iterable[Address]], MasterElection],
        distributors: Sequence[Address],
        update_us: Time,
    ) -> None:
        self._group = group
        self._masks: dict[Address, int] = {}
        for unit, node in enumerate(group.node_of):
            self._masks[node] = self._masks.get(node, 0) | 1 << unit
        self.election = elect(self, self._masks)
        self.leadership = self.election.leadership
        self._distributors = distributors
        self._active: dict[Address, dict[TaskId, RunningAttempt]] = {node: {} for node in self._masks}
        self._waiting: dict[TaskId, QueuedTask] = {}
        self._replica = Replica(self.election, update_us) if isinstance(self.election, Candidacy) else None

    def join(self, master: GroupMaster) -> None:
        """Serve a master; it has nothing until it leads."""
        self._master = master
        if not self.leadership.leading:
            self.forget_all()

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port
        self.election.bind(port)
        if self._replica is not None:
            self._replica.bind(port)

    def look(self, now: Time) -> None:
        """Update the second master: something may have changed."""
        if self._replica is not None:
            self._replica.look(now)

    def update(self, message: Update | None) -> None:
        """Keep the update of a leader, or send one."""
        assert self._replica is not None, "a leader has a second master"
        self._replica.send(self._waiting) if message is None else self._replica.keep(message)

    def resume(self, message: Resume, source: Address) -> None:
        """Place tasks that an earlier leader has sent here, unless another leads since."""
        if not self.leadership.opened or message.epoch != self.leadership.epoch:
            return
        assert self._replica is not None, "kept tasks were reported"

        for queued, attempt in zip(self._replica.take(message.tasks), message.attempts, strict=True):
            self._place(queued._replace(attempt=attempt, owner=source))

    def _place(self, queued: QueuedTask) -> None:
        self._waiting[queued.task.id] = queued
        self._master.place(queued.task, queued.kind, queued.owner)

    def deal(self, message: Deal, source: Address) -> None:
        """Place tasks, unless they are of another epoch."""
        if not self.leadership.opened or message.epoch != self.leadership.epoch:
            return
        for task, attempt in zip(message.tasks, message.attempts, strict=True):
            self._place(QueuedTask(task, kind_of(message), attempt, source))

    def deal_gang(self, message: GangTasks, source: Address) -> None:
        """Place a gang, unless it is of another epoch."""
        if not self.leadership.opened or message.number != self.leadership.epoch:
            return
        for task in message.tasks:
            self._waiting[task.id] = QueuedTask(task, message.kind, message.attempt, source)
        self._master.place_gang(message, source)

    def evict(self, task: TaskId, unit: int) -> None:
        """End the attempt of a task, which is lost then."""
        node = self._group.node_of[unit]
        self._port.send(node, Kill(task, self._active[node][task].attempt, self.leadership.epoch))

    def run(self, task: Task, unit: int, distributor: Address) -> None:
        """Launch an attempt on a unit."""
        node = self._group.node_of[unit]
        attempt = self._waiting.pop(task.id).attempt

        self._active[node][task.id] = RunningAttempt(task.id, task.job, attempt, distributor, unit)
        self._port.send(node, Run(self.leadership.epoch, task, attempt, distributor, unit))

    def withdrawn(self, task: TaskId) -> None:
        """A task that waited will never run."""
        del self._waiting[task]

    def result(self, message: Result, source: Address) -> None:
        """A worker is idle; its result is passed on, for the worker may crash before it has."""
        unit = self._master.owned.get(message.active.task, -1)

        leadership = self.leadership
        if message.is_evicted:
            running = self._active[source].get(message.active.task)
            # To a master that does not lead, or leads anew, it is not known to run: the leader finds it lost.
            if leadership.leading and running is not None and running.attempt == message.active.attempt:
                self._hand_back(source, [running])
                if leadership.usable(source):
                    self._master.serve(unit)
            return
        if leadership.leading and self._end(message.active, source) and leadership.usable(source):
            self._master.serve(unit)

    def _end(self, active: RunningAttempt, node: Address) -> bool:
        """Pass a result on; True if it frees a unit."""
        if active.owner in self._distributors:
            self._port.send(active.owner, Result(active))

        running = self._active[node].get(active.task)
        # A result of an attempt that was given up, or of an earlier leader's: no unit of this master is behind it.
        if running is None or running.attempt != active.attempt:
            return False

        del self._active[node][active.task], self._master.owned[active.task]
        return True

    def forget_all(self) -> None:
        self._master.forget_all()
        self._waiting.clear()
        for attempts in self._active.values():
            attempts.clear()

    def node_away(self, node: Address) -> None:
        """The units of a lost node are not idle."""
        self._master.lose(self._masks[node])

    def node_back(self, node: Address) -> None:
        """Let the units of a node that have no task serve the queues."""
        for active in self._active[node].values():
            assert self._master.owned[active.task] == active.unit, "a task at another unit"
        busy = {active.unit for active in self._active[node].values()}
        for unit in positions(self._masks[node] & ~self._master.free):
            if unit not in busy:
                self._master.serve(unit)

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        """Find a unit of the node for each attempt that runs there."""
        return seated(running, positions(self._masks[node]))

    def known_at(self, node: Address) -> Mapping[TaskId, RunningAttempt]:
        return self._active[node]

    def node_reported(self, node: Address, status: Status) -> None:
        """Take over what runs on a node; what this master knows and the node does not report is lost."""
        running = {active.task for active in status.running}

        for active in status.finished:
            self._end(active, node)

        self._hand_back(node, [active for task, active in self._active[node].items() if task not in running])

        unknown_attempts = [active for active in status.running if active.task not in self._active[node]]
        for active in unknown_attempts:
            self._master.owned[active.task] = active.unit
            self._active[node][active.task] = active

        if self.leadership.opened:
            self._report(unknown_attempts, is_whole=False)

        if self.leadership.usable(node):
            self.node_back(node)

    def node_dead(self, node: Address) -> None:
        """Return the tasks of a node to their distributors."""
        self._hand_back(node, list(self._active[node].values()))

    def _hand_back(self, node: Address, ended: list[RunningAttempt]) -> None:
        owners: dict[Address, list[RunningAttempt]] = {}
        for active in ended:
            del self._active[node][active.task], self._master.owned[active.task]
            owners.setdefault(active.owner, []).append(active)
        for owner, attempts in owners.items():
            self._port.send(owner, Lost(tuple(attempts)))

    def all_reachable_reported(self) -> None:
        """Report to every distributor what runs."""
        running = [active for attempts in self._active.values() for active in attempts.values()]
        self._report(running, is_whole=True)

    def all_reported(self) -> None:
        """Report to every distributor that nothing else runs."""
        self._report((), is_whole=False)

    def adopt_moves(self, new_moves: Sequence[Reassignment]) -> None:
        """Ignore moves: jobs never move between distributors."""

    def all_fenced(self) -> None:
        """Ignore fences: there are no moves."""

    def _report(self, running: Iterable[RunningAttempt], *, is_whole: bool) -> None:
        listed = list(running)
        for distributor in self._distributors:
            own_attempts = tuple(active for active in listed if active.owner == distributor)

            settled = self.leadership.settled
            copies = self._replica.copies_of(distributor) if settled and self._replica is not None else ()
            self._port.send(distributor, Report(self.leadership.epoch, is_whole, settled, own_attempts, copies))

    def usable(self) -> int:
        """The units on which tasks may be placed now."""
        if not self.leadership.leading:
            return 0
        return sum(mask for node, mask in self._masks.items() if self.leadership.usable(node))

    def check_rest(self) -> None:
        assert not self._waiting, "tasks are left"
        assert self.leadership.settled or not self.leadership.leading, "workers have not answered"
