"""Recovery of masters and machines that crash (Pigeon, section 6.1), as parts of distributors and masters.

Each master has a standby. It receives every result, and takes over when the first is lost; when both are, the next
incarnation asks every worker for its status and compares what runs with the tasks that the distributors have sent.
Distributors do not crash: the paper does not treat them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

from volery.architectures.pigeon.groups import Group
from volery.architectures.pigeon.messages import Deal, Lost, Report, Withdrawn, kind_of
from volery.core.component import Sends, role_of, sent_to
from volery.core.events import Reassignment
from volery.core.model import Address, JobId, Task, TaskId
from volery.core.port import Port
from volery.policies.match import positions
from volery.roles.node import Kill
from volery.roles.recovery.election import Leadership, pair_sends, seated
from volery.roles.recovery.leases import Active, Deposed, Forget, Lease, Result, Run, Status


def pair_of(group: int) -> tuple[Address, Address]:
    """The addresses of the two masters of a group."""
    return f"master/{group}", f"master/{group}/standby"


class Dealer(Protocol):
    """A distributor, as its recovery calls it."""

    masters: list[Address]

    def count(self, task: TaskId) -> None: ...
    def is_cancelled(self, job: JobId) -> bool: ...


class DistributorRecovery:
    """The tasks that a distributor has sent and has no result of; it sends those again that no worker has."""

    sends: ClassVar[Sends] = sent_to("master", Deal, Deposed) | sent_to("node", Forget)
    _distributor: Dealer
    _port: Port

    def __init__(self, groups: int) -> None:
        self._group_at = {address: group for group in range(groups) for address in pair_of(group)}
        self._epochs = [0] * groups
        self._sent: dict[TaskId, tuple[Task, int, int, int]] = {}
        self._doubted: list[dict[TaskId, None]] = [{} for _ in range(groups)]

    def bind(self, distributor: Dealer, port: Port) -> None:
        """Serve a distributor, by its port."""
        self._distributor, self._port = distributor, port

    def deal(self, group: int, kind: int, share: tuple[Task, ...], attempt: int = 0) -> None:
        """Send tasks of a type to the master that leads a group."""
        for task in share:
            self._sent[task.id] = (task, group, kind, attempt)
        deal = Deal(self._epochs[group], not kind, share, (attempt,) * len(share), max(0, kind - 1))
        self._port.send(self._distributor.masters[group], deal)

    def forget(self, task: TaskId) -> None:
        """Drop a task that has a result."""
        self._sent.pop(task, None)

    def result(self, message: Result, source: Address) -> None:
        """Count the result, of any attempt; its worker need not keep it."""
        task = message.active.task
        if role_of(source) == "node":
            self._port.send(source, Forget((task,)))
        self._distributor.count(task)

    def report(self, message: Report, source: Address) -> None:
        """A master leads; once it has settled, the tasks that it does not know of are lost."""
        group = self._group_at[source]
        if message.epoch < self._epochs[group] or (message.epoch > self._epochs[group] and not message.whole):
            return
        if message.epoch > self._epochs[group]:
            self._epochs[group], self._distributor.masters[group] = message.epoch, source
            self._doubted[group] = {task: None for task, sent in self._sent.items() if sent[1] == group}
        for active in message.running:
            self._doubted[group].pop(active.task, None)
        if message.settled:
            doubted, self._doubted[group] = self._doubted[group], {}
            self._send_again(doubted)

    def lost(self, message: Lost, source: Address) -> None:
        """Send the tasks of lost attempts again."""
        if self._distributor.masters[self._group_at[source]] == source:
            sent = self._sent
            self._send_again(a.task for a in message.attempts if a.task in sent and sent[a.task][3] == a.attempt)

    def _send_again(self, tasks: Iterable[TaskId]) -> None:
        for number in tasks:
            sent = self._sent.get(number)
            if sent is None:
                continue
            task, group, kind, attempt = sent
            if self._distributor.is_cancelled(task.job):
                self._distributor.count(number)
            else:
                self.deal(group, kind, (task,), attempt + 1)

    def answer_epoch(self, master: Address) -> None:
        """Answer a restarted master with the epoch that is known."""
        self._port.send(master, Deposed(self._epochs[self._group_at[master]]))


class GroupMaster(Protocol):
    """A master, as its recovery calls it: the account of its units and its queues."""

    free: int
    owned: dict[TaskId, int]

    def place(self, task: Task, kind: int, distributor: Address) -> None: ...
    def serve(self, unit: int) -> None: ...
    def forget_all(self) -> None: ...


class MasterRecovery:
    """One master of a pair: it serves while it leads; distributors fill its queues again when it begins to."""

    sends: ClassVar[Sends] = (
        pair_sends("master", "distributor")
        | sent_to("node", Run, Kill)
        | sent_to("distributor", Result, Withdrawn, Lost, Report)
    )
    _master: GroupMaster
    _port: Port

    def __init__(
        self, group: Group, number: int, me: int, distributors: Sequence[Address], lease: Lease, incarnation: int
    ) -> None:
        self._group = group
        self._masks: dict[Address, int] = {}
        for unit, node in enumerate(group.node_of):
            self._masks[node] = self._masks.get(node, 0) | 1 << unit
        self.leadership = Leadership(self, pair_of(number), me, self._masks, distributors, lease, incarnation)
        self._distributors = distributors
        self._active: dict[Address, dict[TaskId, Active]] = {node: {} for node in self._masks}
        self._attempts: dict[TaskId, int] = {}

    def join(self, master: GroupMaster) -> None:
        """Serve a master; it has nothing until it leads."""
        self._master = master
        if not self.leadership.leading:
            self.forget_all()

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port
        self.leadership.bind(port)

    def deal(self, message: Deal, source: Address) -> None:
        """Place tasks, unless they are of another epoch."""
        if not self.leadership.opened or message.epoch != self.leadership.epoch:
            return
        for task, attempt in zip(message.tasks, message.attempts, strict=True):
            self._attempts[task.id] = attempt
            self._master.place(task, kind_of(message), source)

    def run(self, task: Task, unit: int, distributor: Address) -> None:
        """Launch an attempt on a unit."""
        node, attempt = self._group.node_of[unit], self._attempts.pop(task.id)
        self._active[node][task.id] = Active(task.id, task.job, attempt, distributor, unit)
        self._port.send(node, Run(self.leadership.epoch, task, attempt, distributor, unit))

    def withdrawn(self, task: TaskId) -> None:
        """A task that waited will never run."""
        del self._attempts[task]

    def result(self, message: Result, source: Address) -> None:
        """A worker is idle; its result is passed on, for the worker may crash before it has."""
        unit = self._master.owned.get(message.active.task, -1)
        leadership = self.leadership
        if leadership.leading and self._end(message.active, source) and leadership.usable(source):
            self._master.serve(unit)

    def _end(self, active: Active, node: Address) -> bool:
        """Pass a result on; True if it frees a unit."""
        if active.owner in self._distributors:
            self._port.send(active.owner, Result(active))
        known = self._active[node].get(active.task)
        if known is None or known.attempt != active.attempt:
            return False
        del self._active[node][active.task], self._master.owned[active.task]
        return True

    def forget_all(self) -> None:
        self._master.forget_all()
        self._attempts.clear()
        for known in self._active.values():
            known.clear()

    def node_away(self, node: Address) -> None:
        """Its units are not idle."""
        self._master.free &= ~self._masks[node]

    def node_back(self, node: Address) -> None:
        """Its units without a task serve the queues."""
        for active in self._active[node].values():
            assert self._master.owned[active.task] == active.unit, "a task at another unit"
        busy = {active.unit for active in self._active[node].values()}
        for unit in positions(self._masks[node] & ~self._master.free):
            if unit not in busy:
                self._master.serve(unit)

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        """At the units of the group that the node has."""
        return seated(running, positions(self._masks[node]))

    def known_at(self, node: Address) -> Mapping[TaskId, Active]:
        return self._active[node]

    def node_reported(self, node: Address, status: Status) -> None:
        """Take over what runs there; what does not, and has not finished, is lost."""
        running = {active.task for active in status.running}
        for active in status.finished:
            self._end(active, node)
        self._hand_back(node, [active for task, active in self._active[node].items() if task not in running])
        fresh = [active for active in status.running if active.task not in self._active[node]]
        for active in fresh:
            self._master.owned[active.task] = active.unit
            self._active[node][active.task] = active
        if self.leadership.opened:
            self._report(fresh, whole=False)
        if self.leadership.usable(node):
            self.node_back(node)

    def node_dead(self, node: Address) -> None:
        """Its tasks go back to the distributors."""
        self._hand_back(node, list(self._active[node].values()))

    def _hand_back(self, node: Address, ended: list[Active]) -> None:
        owners: dict[Address, list[Active]] = {}
        for active in ended:
            del self._active[node][active.task], self._master.owned[active.task]
            owners.setdefault(active.owner, []).append(active)
        for owner, attempts in owners.items():
            self._port.send(owner, Lost(tuple(attempts)))

    def all_reachable_reported(self) -> None:
        """Report to every distributor what runs."""
        self._report([active for known in self._active.values() for active in known.values()], whole=True)

    def all_reported(self) -> None:
        """Report to every distributor that nothing else does."""
        self._report((), whole=False)

    def adopt_moves(self, fresh: Sequence[Reassignment]) -> None:
        """Nothing: jobs never move between distributors."""

    def all_fenced(self) -> None:
        """Nothing: there are no moves."""

    def _report(self, running: Iterable[Active], *, whole: bool) -> None:
        listed = list(running)
        for distributor in self._distributors:
            mine = tuple(active for active in listed if active.owner == distributor)
            self._port.send(distributor, Report(self.leadership.epoch, whole, self.leadership.settled, mine))

    def usable(self) -> int:
        """The units on which tasks may be placed now."""
        if not self.leadership.leading:
            return 0
        return sum(mask for node, mask in self._masks.items() if self.leadership.usable(node))

    def check_rest(self) -> None:
        assert not self._attempts, "tasks are left"
        assert self.leadership.settled or not self.leadership.leading, "workers have not answered"
