"""Megha's Local Master of amounts where components may crash (arXiv 2103.08413, sections IV-B and IV-D).

What a machine has free is counted from what runs there, each time that something begins or ends: so a logical node that
was split off goes back once, whoever leads by then. A machine that is not usable has nothing free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from volery.architectures.megha.messages import Withdraw
from volery.architectures.megha.paired_lm import PairedLocalMaster
from volery.architectures.megha.surviving_messages import UNIT_SHIFT, Place, place_of
from volery.architectures.megha.vector_layout import VectorLayout
from volery.architectures.megha.vector_lm import Active as Allotment
from volery.architectures.megha.vector_lm import Told, VectorLocalMaster
from volery.architectures.megha.vector_messages import Ended, Refusal, StateUpdate
from volery.core.component import sent_to
from volery.core.events import Counted, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.roles.recovery.leases import Active, Lease


class SurvivingVectorLocalMaster(PairedLocalMaster, VectorLocalMaster):
    """Allocates amounts, on machines or on logical nodes split off them.

    Args:
        lm, layout: see `VectorLocalMaster`.
        repartition: whether what a GM places outside of its own partitions runs on a logical node of it.
        me, lease, incarnation: see `PairedLocalMaster.join_cluster`.
        arguments: of the Local Master that it stands before.
    """

    def __init__(
        self,
        lm: int,
        layout: VectorLayout,
        *,
        repartition: bool,
        me: int,
        lease: Lease,
        incarnation: int,
        **arguments: Any,
    ) -> None:
        super().__init__(lm, layout, **arguments)
        self._repartition = repartition
        self._gm_count = layout.gm_count
        self._whole_free = [layout.whole_index[partition].free for partition in self._partitions]
        self._seats: dict[Address, tuple[int, int]] = {}
        self._unsent: dict[Address, list[tuple[Task, Active]]] = {}
        for here, partition in enumerate(self._partitions):
            for position, node in enumerate(layout.nodes[partition]):
                self._seats[node] = (here, position)
        self.join_cluster(lm, me, lease, incarnation)

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        """As many, in order, as the machine offers amounts for now."""
        here, position = self._seats[node]
        unit, left, found = self._partitions[here] << UNIT_SHIFT | position, self._whole_free[here][position], []
        for active in running:
            less = left - self._packing[active.request]
            if less & self._guards == self._guards:
                left = self._packing.settled(less)
                found.append(active if active.unit == unit else replace(active, unit=unit))
        return found

    def _clear(self) -> None:
        self._active.clear()
        self._telling.clear()
        self._told_whole.clear()
        self._unsent.clear()
        for here, free in enumerate(self._free):
            self._free[here] = [self._guards] * len(free)
        for address, told in self._gms.items():
            self._gms[address] = Told(told.number, self._gm_count)

    def _take_note(self, told: Told, message: Place) -> None:
        told.request = message.number

    def _has_room(self, active: Active, node: Address) -> bool:
        here, position = self._seats[node]
        left = self._free[here][position] - self._packing[active.request]
        return left & self._guards == self._guards

    def _begin(self, task: Task, active: Active, node: Address) -> None:
        """What asks for nothing fits where nothing is free, on a machine that is away, too: there it waits."""
        if self.reachable(node):
            super()._begin(task, active, node)
        else:
            self._take_on(active, node)
            self._unsent.setdefault(node, []).append((task, active))

    def _send_unsent(self, node: Address) -> None:
        for task, active in self._unsent.pop(node, ()):
            if self._is_there(active, node):
                self._run(task, active, node)

    def _is_there(self, active: Active, node: Address) -> bool:
        known = self._there[node].get(active.task)
        return known is not None and known.attempt == active.attempt

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Stop what runs; what waits for a machine that is away is dropped."""
        for node, unsent in self._unsent.items():
            for task, active in unsent:
                if task.id in message.tasks and self._is_there(active, node):
                    self._note(self._there[node][task.id], now)
                    self._let_go(active, node)
        super().on_withdraw(message, source, now)

    def _refuse(self, told: Told, refused: list[Active]) -> None:
        for active in refused:
            partition, position = place_of(active.unit)
            told.lacks[partition - self._first] |= 1 << position
        self._port.send(told.address, Refusal(tuple([active.task for active in refused]), self._news_for(told)))

    def _holds(self, task: TaskId) -> bool:
        return task in self._active

    def _allot(self, active: Active, node: Address) -> None:
        allotment = self._allotment_of(active)
        self._active[active.task] = allotment
        if allotment.guest >= 0:
            self._port.observe(Counted("repartitions"))
        self._recount(node, allotment.owner)

    def _allotment_of(self, active: Active) -> Allotment:
        partition, position = place_of(active.unit)
        owner = self._gms[active.owner]
        own = self._first + owner.number
        guest = own if self._repartition and partition != own else -1
        return Allotment(partition, position, self._packing[active.request], owner, guest)

    def _hand_over(self, active: Active) -> None:
        self._active[active.task] = self._allotment_of(active)

    def _tell_nothing(self, told: Told) -> None:
        told.lacks = [0] * len(told.lacks)
        told.ended = []

    def _give_back(self, active: Active, node: Address) -> None:
        del self._active[active.task]
        self._recount(node)

    def _recount(self, node: Address, knows: Told | None = None) -> None:
        """What the machine has free; all GMs but the one that knows lack it."""
        here, position = self._seats[node]
        free = self._guards
        if self.usable(node):
            free = self._whole_free[here][position]
            for task in self._there[node]:
                free -= self._active[task].took
            free -= self._reserved(here, position)
        self._free[here][position] = self._packing.settled(free)
        self._told_whole.pop(here, None)
        for told in self._gms.values():
            if told is not knows:
                told.lacks[here] |= 1 << position

    def _reserved(self, here: int, position: int) -> int:
        """What is set aside on a machine, packed."""
        return 0

    def _note(self, active: Active, now: Time) -> None:
        self._note_ended(self._gms[active.owner], active.task, now)

    def _maybe_arm(self, now: Time) -> None:
        if not self._armed:
            self._arm(now)

    def _on_own_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        VectorLocalMaster.on_timer(self, event, source, now)

    def _forget_notices(self) -> None:
        for owner in self._telling:
            owner.ended = []
        self._telling.clear()

    def _meet_anew(self, told: Told) -> None:
        told.request = 0
        told.ended = []

    def _update(self, told: Told) -> StateUpdate:
        """A state contains all that has ended."""
        self._tell_ended(told)
        return super()._update(told)

    def _news_for(self, told: Told) -> StateUpdate:
        return self._update(told)

    def _state_for(self, told: Told) -> StateUpdate:
        for here, partition in enumerate(self._partitions):
            told.lacks[here] = self._layout.whole(partition)
        return self._update(told)

    def node_away(self, node: Address) -> None:
        """It has nothing free."""
        self._recount(node)
        self._arm_soon()

    def node_back(self, node: Address) -> None:
        """What no task there has is free, unless it is drained."""
        self._send_unsent(node)
        self._recount(node)
        self._arm_soon()

    def _set_aside(self) -> Iterable[tuple[int, int, int]]:
        """What machines have that are not usable, beside what their tasks took."""
        for node, (here, position) in self._seats.items():
            if not self.usable(node):
                taken = sum(self._active[task].took for task in self._there[node])
                yield here, position, self._whole_free[here][position] - self._guards - taken
            elif reserved := self._reserved(here, position):
                yield here, position, reserved

    def check(self) -> None:
        """As for any Local Master of amounts; a machine that is not usable has nothing free."""
        if self.opened:
            super().check()

    def check_rest(self) -> None:
        """Everything of the leader's is free, and every GM has been told so."""
        assert not self._active, f"{len(self._active)} tasks are still active"
        if self.leading:
            assert self.settled, "nodes have not answered"
            assert self._free == [list(free) for free in self._whole_free], "amounts are taken"
            for told in self._gms.values():
                assert not [*filter(None, told.lacks), *told.ended], f"{told.address} has not been told"

    receives = {**PairedLocalMaster.receives, Withdraw: on_withdraw}  # noqa: RUF012 - replaced by the base
    sends = PairedLocalMaster.sends | sent_to("gm", Ended, Refusal, StateUpdate)
