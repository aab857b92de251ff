"""Pigeon where masters and machines may crash (section 6.1 of the paper), and how it is put together.

A second master stands beside each. It receives every result, and takes over when the first is lost; when both are, the
next incarnation asks every worker for its status and compares what runs with the tasks that the distributors have sent.
Distributors do not crash: the paper is silent about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from volery.architectures.pigeon.distributor import Distributor
from volery.architectures.pigeon.groups import Group
from volery.architectures.pigeon.master import Master
from volery.architectures.pigeon.messages import MESSAGES, Withdraw, Withdrawn
from volery.core.component import Component, Deployment, role_of, sent_to
from volery.core.events import Cancel, MoreTasks, Move, Submit, TimerFired
from volery.core.model import Address, JobId, Message, Task, TaskId, Time
from volery.core.port import Port
from volery.policies.match import positions
from volery.roles.recovery.channel import LINK_MESSAGES, Linking
from volery.roles.recovery.election import LEADERSHIP, PAIR_MESSAGES, Leadership, pair_sends, seated
from volery.roles.recovery.leases import (
    NODE_MESSAGES,
    Active,
    Deposed,
    Forget,
    GuardedNode,
    Inquire,
    Lease,
    Result,
    Run,
    Status,
    Stop,
)
from volery.roles.submission import ANSWERS


class Deal(Message, frozen=True):
    """Distributor > master: the group's tasks of one job, in an epoch; those of another epoch are void."""

    epoch: int
    short: bool
    tasks: tuple[Task, ...]
    attempts: tuple[int, ...]


class Lost(Message, frozen=True):
    """Master > distributor: these attempts are dead; send the tasks again."""

    attempts: tuple[Active, ...]


class Report(Message, frozen=True):
    """Master > distributor: I lead in this epoch; what of yours runs here.

    Whole: all that is known, else what has been learnt since. Settled: nothing else of yours is here.
    """

    epoch: int
    whole: bool
    settled: bool
    running: tuple[Active, ...]


SURVIVING_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {Deal, Lost, Report, *NODE_MESSAGES, *PAIR_MESSAGES, *LINK_MESSAGES}
)


def pair_of(group: int) -> tuple[Address, Address]:
    """The addresses of the two masters of a group."""
    return f"master/{group}", f"master/{group}/standby"


class SurvivingDistributor(Distributor):
    """Keeps what it has sent until the result comes, and sends again what no worker knows of."""

    __slots__ = ("_doubted", "_epochs", "_group_at", "_sent")

    def __init__(self, **setting: Any) -> None:
        super().__init__(**setting)
        count = len(self._masters)
        self._group_at = {address: group for group in range(count) for address in pair_of(group)}
        self._epochs = [0] * count
        self._sent: dict[TaskId, tuple[Task, int, bool, int]] = {}
        self._doubted: list[dict[TaskId, None]] = [{} for _ in range(count)]

    def _hand_out(self, group: int, short: bool, share: tuple[Task, ...], attempt: int = 0) -> None:
        for task in share:
            self._sent[task.id] = (task, group, short, attempt)
        attempts = (attempt,) * len(share)
        self._port.send(self._masters[group], Deal(self._epochs[group], short, share, attempts))

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """Count the result, whichever attempt's it is; its worker need not keep it."""
        task = message.active.task
        if role_of(source) == "node":
            self._port.send(source, Forget((task,)))
        self._count(task)

    def _count(self, task: TaskId) -> None:
        self._sent.pop(task, None)
        job = self._outstanding.pop(task, None)
        if job is not None:
            self._jobs.finished(job)

    def on_withdrawn(self, message: Withdrawn, source: Address, now: Time) -> None:
        """Tasks that will never run count as results."""
        for task in message.tasks:
            self._count(task)

    def on_report(self, message: Report, source: Address, now: Time) -> None:
        """A master leads; once it has settled, what it does not know of is lost."""
        group = self._group_at[source]
        if message.epoch < self._epochs[group] or (message.epoch > self._epochs[group] and not message.whole):
            return
        if message.epoch > self._epochs[group]:
            self._epochs[group], self._masters[group] = message.epoch, source
            self._doubted[group] = {task: None for task, sent in self._sent.items() if sent[1] == group}
        for active in message.running:
            self._doubted[group].pop(active.task, None)
        if message.settled:
            doubted, self._doubted[group] = self._doubted[group], {}
            self._send_again(doubted)

    def _send_again(self, tasks: Iterable[TaskId]) -> None:
        for number in tasks:
            sent = self._sent.get(number)
            if sent is None:
                continue
            task, group, short, attempt = sent
            if task.job in self._jobs.cancelled:
                self._count(number)
            else:
                self._hand_out(group, short, (task,), attempt + 1)

    def on_lost(self, message: Lost, source: Address, now: Time) -> None:
        """Attempts are dead."""
        if self._masters[self._group_at[source]] == source:
            sent = self._sent
            self._send_again(a.task for a in message.attempts if a.task in sent and sent[a.task][3] == a.attempt)

    def on_inquire(self, message: Inquire, source: Address, now: Time) -> None:
        """Say which epoch is known."""
        self._port.send(source, Deposed(self._epochs[self._group_at[source]]))

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: Distributor.on_submit,
        MoreTasks: Distributor.on_more_tasks,
        Cancel: Distributor.on_cancel,
        Withdrawn: on_withdrawn,
        Result: on_result,
        Report: on_report,
        Lost: on_lost,
        Inquire: on_inquire,
    }
    sends = ANSWERS | sent_to("master", Deal, Withdraw, Deposed) | sent_to("node", Forget)


class SurvivingMaster(Master):
    """Serves its two queues while it leads; they are filled again by the distributors when it begins to.

    Args:
        group: its workers.
        number: of the group.
        me: 0, or 1 for the second master.
        distributors: addresses.
        lease: of its workers.
        incarnation: of this component.
        setting: see `Master`.
    """

    def __init__(
        self, group: Group, number: int, me: int, distributors: Sequence[Address], lease: Lease, incarnation: int,
        **setting: Any,
    ) -> None:  # fmt: skip
        super().__init__(group, **setting)
        self._masks: dict[Address, int] = {}
        for unit, node in enumerate(group.node_of):
            self._masks[node] = self._masks.get(node, 0) | 1 << unit
        self.leadership = Leadership(self, pair_of(number), me, self._masks, distributors, lease, incarnation)
        self._distributors = distributors
        self._active: dict[Address, dict[TaskId, Active]] = {node: {} for node in self._masks}
        self._attempts: dict[TaskId, int] = {}
        if not self.leadership.leading:
            self.forget_all()

    def bind(self, port: Port) -> None:
        """Give the leadership the port, too."""
        super().bind(port)
        self.leadership.bind(port)

    def start(self, now: Time) -> None:
        """A restarted master asks who leads."""
        super().start(now)
        self.leadership.start(now)

    def forget_all(self) -> None:
        """No worker is known to be idle, and nothing waits."""
        for queue in (self._high, self._low):
            queue.remove(lambda _: True)
        self._owned.clear()
        self._owners.clear()
        self._attempts.clear()
        self._free = self._passed = 0
        for known in self._active.values():
            known.clear()

    def on_deal(self, message: Deal, source: Address, now: Time) -> None:
        """Launch what fits an idle worker now, queue the rest."""
        if not self.leadership.opened or message.epoch != self.leadership.epoch:
            return
        group, short = self._group, message.short
        for task, attempt in zip(message.tasks, message.attempts, strict=True):
            self._attempts[task.id] = attempt
            candidates = self._free & group.matches[task.constraints]
            candidates = candidates & ~group.reserved or (candidates if short else 0)
            if not candidates:
                (self._high if short else self._low).push(task)
                self._owners[task.id] = source
                continue
            if self._by_fewest:
                unit = (candidates & -candidates).bit_length() - 1
            else:
                unit = group.matches.pick(task.constraints, candidates, self._stream.random)
            self._free ^= group.bits[unit]
            self._launch(task, unit, source)

    def _launch(self, task: Task, unit: int, distributor: Address) -> None:
        node, attempt = self._group.node_of[unit], self._attempts.pop(task.id)
        self._owned[task.id] = unit
        self._active[node][task.id] = Active(task.id, task.job, attempt, distributor, unit)
        self._port.send(node, Run(self.leadership.epoch, task, attempt, distributor, unit))

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """A worker is idle; its result is passed on, for the worker may crash before it has."""
        unit = self._owned.get(message.active.task, -1)
        leadership = self.leadership
        if leadership.leading and self._end(message.active, source) and leadership.usable(source):
            self._serve(unit)

    def _end(self, active: Active, node: Address) -> bool:
        """Pass a result on; whether it frees a unit."""
        if active.owner in self._distributors:
            self._port.send(active.owner, Result(active))
        known = self._active[node].get(active.task)
        if known is None or known.attempt != active.attempt:
            return False
        del self._active[node][active.task], self._owned[active.task]
        return True

    def _serve(self, unit: int) -> None:
        task = self._next(unit) if self._high.length or self._low.length else None
        if task is None:
            self._free |= self._group.bits[unit]
        else:
            self._free &= ~self._group.bits[unit]
            self._launch(task, unit, self._owners.pop(task.id))

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Drop what waits and say so; stop what runs, the end of which its node reports."""
        unwanted = frozenset(message.tasks)
        for task in message.tasks:
            unit = self._owned.get(task)
            if unit is not None:
                self._port.send(self._group.node_of[unit], Stop(task))
        dropped = [task.id for queue in (self._high, self._low) for task in queue.remove(lambda t: t.id in unwanted)]
        for task in dropped:
            del self._owners[task], self._attempts[task]
        if dropped:
            if not (self._low.length or self._count_all):
                self._passed = 0
            self._port.send(source, Withdrawn(tuple(dropped)))

    def node_away(self, node: Address) -> None:
        """Its units are not idle."""
        self._free &= ~self._masks[node]

    def node_back(self, node: Address) -> None:
        """Its units without a task serve the queues."""
        for active in self._active[node].values():
            assert self._owned[active.task] == active.unit, "a task at another unit"
        busy = {active.unit for active in self._active[node].values()}
        for unit in positions(self._masks[node] & ~self._free):
            if unit not in busy:
                self._serve(unit)

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        """At the units of the group that the node has."""
        return seated(running, positions(self._masks[node]))

    def known_at(self, node: Address) -> Mapping[TaskId, Active]:
        """All that runs there, as far as is known."""
        return self._active[node]

    def node_reported(self, node: Address, status: Status) -> None:
        """Take over what runs there; what does not, and has not finished, is lost."""
        running = {active.task for active in status.running}
        for active in status.finished:
            self._end(active, node)
        self._hand_back(node, [active for task, active in self._active[node].items() if task not in running])
        fresh = [active for active in status.running if active.task not in self._active[node]]
        for active in fresh:
            self._owned[active.task] = active.unit
            self._active[node][active.task] = active
        if self.leadership.opened:
            self._report(fresh, whole=False)
        if self.leadership.usable(node):
            self.node_back(node)

    def node_dead(self, node: Address) -> None:
        """Its tasks go back to the distributors."""
        self._hand_back(node, list(self._active[node].values()))

    def _hand_back(self, node: Address, dead: list[Active]) -> None:
        owners: dict[Address, list[Active]] = {}
        for active in dead:
            del self._active[node][active.task], self._owned[active.task]
            owners.setdefault(active.owner, []).append(active)
        for owner, attempts in owners.items():
            self._port.send(owner, Lost(tuple(attempts)))

    def all_reachable_reported(self) -> None:
        """Tell every distributor what runs."""
        self._report([active for known in self._active.values() for active in known.values()], whole=True)

    def all_reported(self) -> None:
        """Tell every distributor that nothing else does."""
        self._report((), whole=False)

    def adopt_moves(self, fresh: Sequence[Move]) -> None:
        """Jobs never move between distributors."""

    def all_fenced(self) -> None:
        """Likewise."""

    def _report(self, running: Iterable[Active], *, whole: bool) -> None:
        listed = list(running)
        for distributor in self._distributors:
            mine = tuple(active for active in listed if active.owner == distributor)
            self._port.send(distributor, Report(self.leadership.epoch, whole, self.leadership.settled, mine))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The pair's timers."""
        self.leadership.on_lease_timer(event, now)

    def check(self) -> None:
        """A unit of a usable node is idle or has a task; no idle unit fits a waiting task that it may run."""
        busy = 0
        for unit in self._owned.values():
            assert not busy >> unit & 1, f"unit {unit} has two tasks"
            busy |= 1 << unit
        for node, mask in self._masks.items():
            expected = mask & ~busy if self.leadership.leading and self.leadership.usable(node) else 0
            assert self._free & mask == expected, f"units of {node} are neither idle nor owned"
        for queue, usable in ((self._high, self._free), (self._low, self._free & ~self._group.reserved)):
            for needs in queue.masks():
                assert not usable & self._group.matches[needs], f"idle {positions(usable)} while {needs:#x} waits"

    def check_rest(self) -> None:
        """Nothing waits or runs, and every unit is idle."""
        left = len(self._owned) + self._high.length + self._low.length + len(self._attempts)
        assert not left, "tasks are left"
        if self.leadership.leading:
            assert self.leadership.settled, "workers have not answered"
            assert self._free == self._group.matches.every, "units are not idle"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Deal: on_deal,
        Withdraw: on_withdraw,
        Result: on_result,
        **LEADERSHIP,
        TimerFired: on_timer,
    }
    sends = (
        pair_sends("master", "distributor")
        | sent_to("node", Run, Stop)
        | sent_to("distributor", Result, Withdrawn, Lost, Report)
    )


def surviving(
    groups: Sequence[Group],
    distributor: Callable[[Address], SurvivingDistributor],
    master: Callable[[Group, int, int, Lease, Address, int], SurvivingMaster],
    distributor_count: int,
    detection_us: Time,
) -> Deployment:
    """The whole.

    Args:
        groups: the workers.
        distributor: makes one for an address.
        master: makes one: group, its number, place in the pair, lease, address, incarnation.
        distributor_count: how many.
        detection_us: see `Deployment`.
    """
    lease, linking = Lease(detection_us), Linking(MESSAGES | SURVIVING_MESSAGES)
    group_of, machines = dict[Address, int](), dict[Address, int]()
    for number, group in enumerate(groups):
        for address, machine in zip(group.node_of, group.machines, strict=True):
            group_of[address], machines[address] = number, machine

    def inner(address: Address, incarnation: int) -> Component:
        role = role_of(address)
        if role == "distributor":
            return distributor(address)
        if role == "node":
            return GuardedNode(pair_of(group_of[address]), lease, incarnation, tells_owner=True)
        number = int(address.split("/")[1])
        return master(groups[number], number, pair_of(number).index(address), lease, address, incarnation)

    def component(address: Address, incarnation: int) -> Component:
        return linking.around(inner(address, incarnation), incarnation)

    pairs = [pair_of(number) for number in range(len(groups))]
    masters = [address for pair in pairs for address in pair]
    addresses = [*(f"distributor/{number}" for number in range(distributor_count)), *masters, *machines]

    def entry(job: JobId) -> Address:
        return f"distributor/{job % distributor_count}"

    watches = (*pairs, *((address, node) for node, number in group_of.items() for address in pairs[number]))
    components = {address: component(address, 0) for address in addresses}
    return Deployment(components, machines, entry, {}, component, watches, detection_us)
