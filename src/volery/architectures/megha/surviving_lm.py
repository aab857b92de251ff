"""Megha's Local Master of units where components may crash: what it allocates are bits."""

from __future__ import annotations

from collections.abc import Iterable

from volery.architectures.megha.layout import Layout
from volery.architectures.megha.local_master import (
    NOTICES,
    CompletionNotice,
    LocalMaster,
    Told,
    Updates,
)
from volery.architectures.megha.messages import Change, Inconsistency, Notice, Update
from volery.architectures.megha.paired_lm import PairedLocalMaster
from volery.architectures.megha.surviving_messages import UNIT_SHIFT, Place, place_of
from volery.core.component import sent_to
from volery.core.events import TimerFired
from volery.core.model import Address, TaskId, Time
from volery.policies.match import positions, vector_bytes
from volery.roles.recovery.leases import Active, Lease


class SurvivingLocalMaster(PairedLocalMaster, LocalMaster):
    """Allocates units, which are bits.

    Args:
        lm, layout, heartbeat_us, updates, completion_notice: see `LocalMaster`.
        me, lease, incarnation: see `PairedLocalMaster.join_cluster`.
    """

    def __init__(
        self,
        lm: int,
        layout: Layout,
        *,
        heartbeat_us: Time,
        updates: Updates,
        completion_notice: CompletionNotice,
        me: int,
        lease: Lease,
        incarnation: int,
    ) -> None:
        super().__init__(lm, layout, heartbeat_us=heartbeat_us, updates=updates, completion_notice=completion_notice)
        self._masks: dict[Address, tuple[int, int]] = {}
        for partition in self._partitions:
            for position, node in enumerate(layout.nodes[partition]):
                self._masks[node] = (partition, self._masks.get(node, (partition, 0))[1] | 1 << position)
        self.join_cluster(lm, me, lease, incarnation)

    def places_of(self, node: Address) -> Iterable[int]:
        """Units by partition and position."""
        partition, mask = self._masks[node]
        return [partition << UNIT_SHIFT | position for position in positions(mask)]

    def _clear(self) -> None:
        self._owned.clear()
        self._telling.clear()
        for partition, mask in self._masks.values():
            self._busy[partition] |= mask
        for address in self._gms:
            self._gms[address] = Told(address, len(self._layout.size))

    def _take_note(self, told: Told, message: Place) -> None:
        for position in message.positions:
            told.busy[message.partition] |= self._layout.bits[position]

    def _has_room(self, active: Active, node: Address) -> bool:
        partition, position = place_of(active.unit)
        return not self._busy[partition] & self._layout.bits[position]

    def _refuse(self, told: Told, refused: list[Active]) -> None:
        update = self._update(told, self._news(told))
        self._port.send(told.address, Inconsistency(tuple([active.task for active in refused]), update))

    def _holds(self, task: TaskId) -> bool:
        return task in self._owned

    def _allot(self, active: Active, node: Address) -> None:
        partition, position = place_of(active.unit)
        bit, told = self._layout.bits[position], self._gms[active.owner]
        self._busy[partition] |= bit
        told.busy[partition] |= bit
        self._owned[active.task] = (partition, bit, told)

    def _give_back(self, active: Active, node: Address) -> None:
        partition, bit, _ = self._owned.pop(active.task)
        if self.usable(node):
            self._busy[partition] &= ~bit

    def _note(self, active: Active, now: Time) -> None:
        told, (partition, position) = self._gms[active.owner], place_of(active.unit)
        told.busy[partition] &= ~(1 << position)  # a notice frees the unit in its view
        if not told.finished:
            self._telling.append(told)
            self._port.set_timer(NOTICES, now)
            self._maybe_arm(now)
        told.finished.append(active.task)

    def _maybe_arm(self, now: Time) -> None:
        if not self._armed:
            self._arm(now)

    def _on_own_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        LocalMaster.on_timer(self, event, source, now)

    def _forget_notices(self) -> None:
        for told in self._telling:
            told.finished.clear()
        self._telling.clear()

    def _meet_anew(self, told: Told) -> None:
        told.finished.clear()

    def _hand_over(self, active: Active) -> None:
        partition, bit, _ = self._owned[active.task]
        self._owned[active.task] = partition, bit, self._gms[active.owner]

    def _tell_nothing(self, told: Told) -> None:
        told.busy[:] = self._busy
        told.finished.clear()

    def _news_for(self, told: Told) -> Update:
        return self._update(told, self._news(told))

    def _state_for(self, told: Told) -> Update:
        changes, busy = [], self._busy
        for partition in self._partitions:
            free = self._layout.whole(partition) & ~busy[partition]
            changes.append(Change(partition, vector_bytes(free), vector_bytes(busy[partition])))
            told.busy[partition] = busy[partition]
        return self._update(told, tuple(changes))

    def node_away(self, node: Address) -> None:
        """Its units count as taken."""
        partition, mask = self._masks[node]
        self._busy[partition] |= mask
        self._arm_soon()

    def node_back(self, node: Address) -> None:
        """Its units without a task are free, unless it is drained."""
        if not self.usable(node):
            return
        partition, mask = self._masks[node]
        for task in self._there[node]:
            mask &= ~self._owned[task][1]
        self._busy[partition] &= ~mask
        self._arm_soon()

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

    receives = PairedLocalMaster.receives
    sends = PairedLocalMaster.sends | sent_to("gm", Inconsistency, Notice, Update)
