"""Megha's Local Master where components may crash: one of a pair, rebuilt from its nodes whenever it begins to lead.

The nodes are the record: what runs where, and what has finished and is not forgotten. The standby receives every
result, too. A leader hands tasks of dead nodes, from its list of active tasks, back to the GMs that own them, which
alone number attempts.
"""

from __future__ import annotations

from collections.abc import Iterable

from volery.architectures.megha.layout import Layout
from volery.architectures.megha.local_master import HEARTBEAT, NOTICES, LocalMaster, Told
from volery.architectures.megha.messages import Change, Inconsistency, Update, Withdraw
from volery.architectures.megha.surviving_messages import UNIT_SHIFT, Join, Lost, Place, Report
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.policies.guarded import Active, Deposed, Forget, Lease, Result, Run, Status, Stop
from volery.policies.leading import PairedMaster, Standing
from volery.policies.links import Renewed
from volery.policies.match import vector_bytes


def pair_of(lm: int) -> tuple[Address, Address]:
    """The addresses of the two masters of a cluster."""
    return f"lm/{lm}", f"lm/{lm}/standby"


class SurvivingLocalMaster(LocalMaster, PairedMaster):
    """Validates while it leads; follows the results while its partner does.

    Args:
        lm, layout, heartbeat_us: see `LocalMaster`.
        me: 0, or 1 for the standby.
        lease: of its nodes.
        incarnation: of this component.
    """

    def __init__(self, lm: int, layout: Layout, *, heartbeat_us: Time, me: int, lease: Lease, incarnation: int) -> None:
        super().__init__(lm, layout, heartbeat_us=heartbeat_us, updates="deltas", completion_notice="once")
        self._masks: dict[Address, tuple[int, int]] = {}
        for partition in self._partitions:
            for position, node in enumerate(layout.nodes[partition]):
                self._masks[node] = (partition, self._masks.get(node, (partition, 0))[1] | 1 << position)
        self.join_pair(pair_of(lm), me, list(self._masks), list(self._gms), lease, incarnation)
        self._active: dict[Address, dict[TaskId, Active]] = {node: {} for node in self._masks}
        self._results: dict[TaskId, tuple[Active, Address]] = {}
        if not self.leading:
            self.stop_leading()

    def begin_to_lead(self) -> None:
        """All units count as taken until their nodes have answered."""
        self.stop_leading()

    def stop_leading(self) -> None:
        """Forget all but results."""
        self._owned.clear()
        self._telling.clear()
        for node, (partition, mask) in self._masks.items():
            self._active[node].clear()
            self._busy[partition] |= mask
        for address in self._gms:
            self._gms[address] = Told(address, len(self._layout.size))

    def on_place(self, message: Place, source: Address, now: Time) -> None:
        """Validate each placement and launch it; answer the invalid ones with the news that the GM lacks."""
        if not self.opened or message.epoch != self.epoch:
            return
        told, partition = self._gms[source], message.partition
        bits, nodes = self._layout.bits, self._layout.nodes[partition]
        refused = []
        for task, position, attempt in zip(message.tasks, message.positions, message.attempts, strict=True):
            bit = bits[position]
            told.busy[partition] |= bit
            if self._busy[partition] & bit:
                refused.append(task.id)
                continue
            self._busy[partition] |= bit
            active = Active(task.id, task.job, attempt, source, partition << UNIT_SHIFT | position)
            self._take_on(active, nodes[position])
            self._port.send(nodes[position], Run(self.epoch, task, attempt, source, active.unit))
        if refused:
            self._port.send(source, Inconsistency(tuple(refused), self._update(told, self._news(told))))
        self._maybe_arm(now)

    def _take_on(self, active: Active, node: Address) -> None:
        partition, position = active.unit >> UNIT_SHIFT, active.unit & (1 << UNIT_SHIFT) - 1
        self._owned[active.task] = (partition, self._layout.bits[position], self._gms[active.owner])
        self._active[node][active.task] = active

    def _let_go(self, active: Active, node: Address) -> None:
        """The attempt has ended; its unit is free if its node is usable."""
        del self._active[node][active.task]
        partition, bit, _ = self._owned.pop(active.task)
        if self.usable(node):
            self._busy[partition] &= ~bit

    def _maybe_arm(self, now: Time) -> None:
        if not self._armed:
            self._arm(now)

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """Keep the result; the leader frees the unit and tells the owner."""
        self._end(message.active, source, now)

    def _end(self, active: Active, node: Address, now: Time) -> bool:
        """Keep a result; whether the owner is sent a notice of it."""
        earlier = self._results.get(active.task)
        if earlier is None or earlier[0].attempt <= active.attempt:
            self._results[active.task] = (active, node)
        known = self._active[node].get(active.task)
        if known is None or known.attempt != active.attempt:
            return False
        self._let_go(active, node)
        told, partition = self._gms[active.owner], active.unit >> UNIT_SHIFT
        told.busy[partition] &= ~(1 << (active.unit & (1 << UNIT_SHIFT) - 1))  # a notice frees the unit in its view
        if not told.finished:
            self._telling.append(told)
            self._port.set_timer(NOTICES, now)
            self._maybe_arm(now)
        told.finished.append(active.task)
        return True

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Stop what still runs; the node reports the end."""
        wanted = frozenset(message.tasks)
        for node, active in self._active.items():
            for task in active:
                if task in wanted:
                    self._port.send(node, Stop(task))

    def on_forget(self, message: Forget, source: Address, now: Time) -> None:
        """Drop results, here and, as the leader, at their nodes."""
        at: dict[Address, list[TaskId]] = {}
        for task in message.tasks:
            known = self._results.pop(task, None)
            if known is not None:
                at.setdefault(known[1], []).append(task)
        for node, tasks in at.items() if self.leading else ():
            self._port.send(node, Forget(tuple(tasks)))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The pair's timers, and a Local Master's own while it leads."""
        if self.is_lease(event):
            self.on_lease_timer(event, now)
        elif self.opened:
            super().on_timer(event, source, now)
        elif event.key == NOTICES:  # the first report tells them
            self._forget_notices()
        else:
            self._armed = False

    def _forget_notices(self) -> None:
        for told in self._telling:
            told.finished.clear()
        self._telling.clear()

    def node_away(self, node: Address) -> None:
        """Its units count as taken."""
        partition, mask = self._masks[node]
        self._busy[partition] |= mask
        self._arm_soon()

    def node_back(self, node: Address) -> None:
        """Its units without a task are free."""
        partition, mask = self._masks[node]
        for task in self._active[node]:
            mask &= ~self._owned[task][1]
        self._busy[partition] &= ~mask
        self._arm_soon()

    def _arm_soon(self) -> None:
        """The GMs are to hear of it with the next heartbeat."""
        if not self._armed and self.opened:
            self._armed = True
            self._port.set_timer(HEARTBEAT, 0)

    def node_reported(self, node: Address, status: Status) -> None:
        """Take over what runs there; what does not, and has not finished, is lost."""
        running = {active.task for active in status.running}
        finished = [active for active in status.finished if not self._end(active, node, 0)]
        self._hand_back(node, [active for task, active in self._active[node].items() if task not in running])
        fresh = [active for active in status.running if active.task not in self._owned]
        for active in fresh:
            self._take_on(active, node)
            self._gms[active.owner].busy[active.unit >> UNIT_SHIFT] |= self._owned[active.task][1]
        if self.usable(node):
            self.node_back(node)
        if self.opened:
            for address in self._gms:
                self._report(address, fresh, finished, self._news(self._gms[address]))

    def node_dead(self, node: Address) -> None:
        """Its tasks go back to their owners."""
        self._hand_back(node, list(self._active[node].values()))

    def _hand_back(self, node: Address, dead: list[Active]) -> None:
        owners: dict[Address, list[Active]] = {}
        for active in dead:
            self._let_go(active, node)
            owners.setdefault(active.owner, []).append(active)
        for owner, attempts in owners.items():
            self._port.send(owner, Lost(tuple(attempts)))
        self._arm_soon()

    def all_reachable_reported(self) -> None:
        """Tell every GM what the cluster looks like now."""
        for address in self._gms:
            self._report_whole(address)

    def all_reported(self) -> None:
        """Tell every GM that nothing else runs here."""
        for address, told in self._gms.items():
            self._report(address, (), (), self._news(told))

    def on_join(self, message: Join, source: Address, now: Time) -> None:
        """A GM has begun anew."""
        if self.opened:
            self._gms[source].finished.clear()
            self._report_whole(source)

    def _report_whole(self, address: Address) -> None:
        told, busy = self._gms[address], self._busy
        changes = []
        for partition in self._partitions:
            free = self._layout.whole(partition) & ~busy[partition]
            changes.append(Change(partition, vector_bytes(free), vector_bytes(busy[partition])))
            told.busy[partition] = busy[partition]
        running = [active for known in self._active.values() for active in known.values()]
        self._report(address, running, [active for active, _ in self._results.values()], tuple(changes), whole=True)

    def _report(
        self,
        address: Address,
        running: Iterable[Active],
        finished: Iterable[Active],
        news: tuple[Change, ...],
        *,
        whole: bool = False,
    ) -> None:
        told = self._gms[address]
        told.update += 1
        update = Update(told.update, False, news)
        mine = [tuple(active for active in actives if active.owner == address) for actives in (running, finished)]
        self._port.send(address, Report(self.epoch, whole, self.settled, update, mine[0], mine[1]))

    def check(self) -> None:
        """A unit is busy when a task owns it or its node is not usable, and only then."""
        if not self.opened:
            return
        expected = [0] * len(self._busy)
        for partition, bit, _ in self._owned.values():
            assert not expected[partition] & bit, "two tasks share a unit"
            expected[partition] |= bit
        for node, (partition, mask) in self._masks.items():
            if not self.usable(node):
                expected[partition] |= mask
        assert expected == self._busy, "units without a task, or tasks without a unit"

    def check_rest(self) -> None:
        """The leader's units are all free, and every GM has been told so."""
        assert not self._owned, f"{len(self._owned)} tasks are still active"
        if self.leading:
            assert self.settled, "nodes have not answered"
            assert not any(self._busy), "units are taken"
            assert all(not any(told.busy) for told in self._gms.values()), "a GM has not been told"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Place: on_place,
        Withdraw: on_withdraw,
        Result: on_result,
        Forget: on_forget,
        Join: on_join,
        Standing: PairedMaster.on_standing,
        Deposed: PairedMaster.on_deposed,
        Status: PairedMaster.on_status,
        PeerLost: PairedMaster.on_peer_lost,
        PeerBack: PairedMaster.on_peer_back,
        Renewed: PairedMaster.on_renewed,
        TimerFired: on_timer,
    }
