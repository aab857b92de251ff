"""Slots of a cluster and the tags of the tasks there: its Local Master refuses what would break a tag constraint.

Each Global Master is sent the tags of tasks that others have placed, by machine; its own it counts itself. What it is
about to be sent is a list of the machines on which others have begun or ended tasks with tags since the last update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from volery.architectures.megha.allocations import NewsRecord, SlotAllocations
from volery.architectures.megha.messages import Refusal, Request, StateUpdate, TagNews, place_of
from volery.architectures.megha.tags import TagLayout
from volery.core.component import Sends
from volery.core.model import Address, Message, Tags, TaskId
from volery.roles.recovery.leases import Active

if TYPE_CHECKING:
    from volery.architectures.megha.local_master import LocalMaster


class TaggedAllocations:
    """Slots, and tags of the tasks that have them.

    Args:
        near: slots with their machines and racks.
    """

    sends: ClassVar[Sends] = SlotAllocations.sends

    def __init__(self, slots: SlotAllocations, near: TagLayout) -> None:
        self._slots = slots
        self._near = near
        self._index = near.index.copy()
        self._tasks: dict[TaskId, Active] = {}
        self._on: dict[int, dict[tuple[Address, Tags], int]] = {}
        self._unsent: dict[Address, dict[int, None]] = {}

    def join(self, lm: LocalMaster) -> None:
        self._lm = lm
        self._slots.join(lm)

    # Where nothing may crash: attempts are recorded all the same, for their tags.

    def launch_all(self, message: Request, told: NewsRecord, number: int, send: Callable[..., None]) -> list[TaskId]:
        return self._slots.launch_all(message, told, number, send)

    def end(self, task: TaskId) -> NewsRecord | None:
        return self._slots.end(task)

    def node_of(self, task: TaskId) -> Address:
        return self._slots.node_of(task)

    def close(self, node: Address, *, closed: bool) -> None:
        self._slots.close(node, closed=closed)

    # Tasks.

    def expect(self, told: NewsRecord, message: Request) -> None:
        self._slots.expect(told, message)

    def fits(self, active: Active, node: Address) -> bool:
        if not self._slots.fits(active, node):
            return False
        return active.tags is None or self._index.allows(self._near.slot(active.unit), active.tags)

    def holds(self, task: TaskId) -> bool:
        return self._slots.holds(task)

    def allot(self, active: Active, node: Address, *, lends: bool) -> None:
        self._slots.allot(active, node, lends=lends)
        if active.tags is not None:
            self._tasks[active.task] = active
            self._count(active, active.tags, 1)

    def hand_over(self, active: Active) -> None:
        self._slots.hand_over(active)
        if active.task in self._tasks and active.tags is not None:
            self._count(self._tasks[active.task], active.tags, -1)
            self._tasks[active.task] = active
            self._count(active, active.tags, 1)
            self._lm.arm_soon()

    def give_back(self, active: Active, node: Address) -> None:
        self._slots.give_back(active, node)
        known = self._tasks.pop(active.task, None)
        if known is not None and known.tags is not None:
            self._count(known, known.tags, -1)

    def _count(self, active: Active, tags: Tags, sign: int) -> None:
        """Count a task, which is news for all GMs but its owner."""
        machine, key = self._machine_of(active), (active.owner, tags)
        self._index.add(self._near.slot(active.unit), tags, sign)
        here = self._on.setdefault(machine, {})
        here[key] = here.get(key, 0) + sign
        if not here[key]:
            del here[key]
        if not here:
            del self._on[machine]
        for address in self._lm.gms:
            if address != active.owner:
                self._unsent.setdefault(address, {})[machine] = None
        self._lm.tell_askers_soon(0)

    def _machine_of(self, active: Active) -> int:
        partition, position = place_of(active.unit)
        return self._near.layout.machines[partition][position]

    def ended(self, active: Active) -> NewsRecord:
        return self._slots.ended(active)

    def clear(self) -> None:
        self._slots.clear()
        self._index = self._near.index.copy()
        self._tasks.clear()
        self._on.clear()
        self._unsent.clear()

    def skip(self, told: NewsRecord) -> None:
        self._slots.skip(told)
        self._unsent.pop(told.address, None)

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        return self._slots.seats(node, running)

    def node_changed(self, node: Address) -> bool:
        return self._slots.node_changed(node)

    # News for Global Masters.

    def consider(self) -> None:
        self._slots.consider()

    def has_news(self, told: NewsRecord) -> bool:
        return bool(self._unsent.get(told.address)) or self._slots.has_news(told)

    def refusal(self, told: NewsRecord, refused: Sequence[int], tasks: tuple[TaskId, ...]) -> Message:
        self._lm.tell_ended(told)  # else it counts them, and asks for the same again
        return Refusal(tasks, self.delta(told))

    def news(self, told: NewsRecord) -> StateUpdate | None:
        if self._unsent.get(told.address):
            return self.delta(told)
        return self._slots.news(told)

    def delta(self, told: NewsRecord) -> StateUpdate:
        update = self._slots.delta(told)
        machines = self._unsent.pop(told.address, None)
        return replace(update, tags=self._tags(told, machines)) if machines else update

    def whole(self, told: NewsRecord) -> StateUpdate:
        self._unsent.pop(told.address, None)
        return replace(self._slots.whole(told), tags=self._tags(told, self._on, whole=True))

    def _tags(self, told: NewsRecord, machines: Iterable[int], *, whole: bool = False) -> TagNews:
        """Tags of others' tasks on these machines."""
        held = []
        for machine in machines:
            counts: dict[Tags, int] = {}
            for (owner, tags), count in self._on.get(machine, {}).items():
                if owner != told.address:
                    counts[tags] = counts.get(tags, 0) + count
            held.append(tuple(counts.items()))
        return TagNews(tuple(machines), tuple(held), whole)

    def check(self) -> None:
        self._slots.check()
        near = self._near
        self._index.check([(near.slot(one.unit), one.tags) for one in self._tasks.values() if one.tags is not None])

    def check_rest(self) -> None:
        self._slots.check_rest()
        assert not self._on, "tags of tasks that have ended"
        assert not any(self._unsent.values()), "a GM has not been sent all tags"
