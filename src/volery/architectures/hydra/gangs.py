"""Gangs in Hydra: an application master asks one sub-cluster for all containers, and its manager grants them at once.

The proxy asks the sub-cluster with most headroom among those that hold the gang, its home where they are equal; with
split=home it asks the home if that holds it. In the manager a gang waits as one request of its queue. At its turn it
keeps free slots that suit it, and those that come free, until all containers can be granted (YARN reserves a machine
for a large container so). It is granted at the latest when all that ran there at its turn has ended. Several gangs keep
slots in the order of their turns.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import and_
from typing import Protocol

import msgspec

from volery.architectures.hydra.layout import SubCluster
from volery.architectures.hydra.messages import GangRequest
from volery.core.model import Gang, JobId, Task, TaskId

NOBODY = -1
"""Sub-cluster that a gang has asked where it has asked none."""


class ApplicationGang(msgspec.Struct, eq=False):
    """The gang of an application master.

    Attributes:
        returned_tasks: Members that have no container, until all are back that have not finished.
        asked_sub: Sub-cluster that is asked for all containers, or NOBODY.
        is_recalled: Whether members that run are being ended, as others are lost.
    """

    shape: Gang
    returned_tasks: dict[TaskId, Task] = {}
    asked_sub: int = NOBODY
    is_recalled: bool = False


class GrantedGang(msgspec.Struct, eq=False):
    """A gang that a resource manager has not granted.

    Attributes:
        proxy, queue: Proxy of its application master, and queue of its job.
        needs: Constraint set of each container.
        suitable_seats: Machines that suit some container.
        kept_slots: Seat -> slots that are kept for it.
    """

    job: JobId
    proxy: str
    queue: str
    needs: tuple[int, ...]
    shape: Gang
    suitable_seats: int
    kept_slots: dict[int, int] = {}

    @property
    def common(self) -> int:
        """The constraints of all its containers: with these it waits in the queue."""
        return reduce(and_, self.needs)


class SlotManager(Protocol):
    """A resource manager, as the gangs of its sub-cluster call it."""

    def usable_slots(self, seats: int) -> dict[int, int]: ...
    def keep(self, seat: int, slots: int) -> None: ...
    def want_gang(self, gang: GrantedGang, change: int) -> None: ...
    def grant_member(self, gang: GrantedGang, need: int, seat: int) -> None: ...


class SubClusterGangs:
    """The gangs that wait in a sub-cluster.

    Args:
        sub: The sub-cluster.
        manager: Its resource manager.
    """

    def __init__(self, sub: SubCluster, manager: SlotManager) -> None:
        self._sub = sub
        self._manager = manager
        self._queued: dict[JobId, GrantedGang] = {}
        self._turns: list[GrantedGang] = []

    def request(self, message: GangRequest, proxy: str, queue: str) -> None:
        """Let a gang wait in its queue, in place of an earlier request of its job; no containers: it waits no more."""
        self._drop(message.job)
        if message.needs:
            suitable_seats = 0
            for need in dict.fromkeys(message.needs):
                suitable_seats |= self._sub.matches[need]
            gang = GrantedGang(message.job, proxy, queue, message.needs, message.shape, suitable_seats)
            self._queued[gang.job] = gang
            self._manager.want_gang(gang, 1)

    def _drop(self, job: JobId) -> None:
        if job in self._queued:
            self._manager.want_gang(self._queued.pop(job), -1)
        for gang in [gang for gang in self._turns if gang.job == job]:
            self._turns.remove(gang)
            self._release(gang)

    def begins(self, job: JobId) -> bool:
        """Let a gang have its turn whose place in the queue has come; False: it is none."""
        gang = self._queued.pop(job, None)
        if gang is not None:
            self._turns.append(gang)
            self.keep()
        return gang is not None

    def keep(self) -> None:
        """Keep free slots for the gangs in turn, and grant those that have enough."""
        for gang in list(self._turns):
            for seat, slots in self._manager.usable_slots(gang.suitable_seats).items():
                gang.kept_slots[seat] = gang.kept_slots.get(seat, 0) + slots
                self._manager.keep(seat, slots)
            self._grant(gang)

    def _grant(self, gang: GrantedGang) -> None:
        if sum(gang.kept_slots.values()) < len(gang.needs):
            return
        seats = self._sub.seats_for(gang.needs, gang.shape, gang.kept_slots)
        if seats:
            self._turns.remove(gang)
            self._release(gang)
            for need, seat in zip(gang.needs, seats, strict=True):
                self._manager.grant_member(gang, need, seat)

    def _release(self, gang: GrantedGang) -> None:
        for seat, slots in gang.kept_slots.items():
            self._manager.keep(seat, -slots)
        gang.kept_slots = {}

    def lose(self, seats: int) -> None:
        """Keep slots of these machines no longer."""
        for gang in self._turns:
            for seat in [seat for seat in gang.kept_slots if seats >> seat & 1]:
                self._manager.keep(seat, -gang.kept_slots.pop(seat))

    @property
    def kept_slots(self) -> Counter[int]:
        """The slots that are kept, by seat."""
        kept_slots: Counter[int] = Counter()
        for gang in self._turns:
            kept_slots.update(gang.kept_slots)
        return kept_slots

    def check(self) -> None:
        """Raise AssertionError where enough slots are kept for a gang that was not granted."""
        for gang in self._turns:
            seats = self._sub.seats_for(gang.needs, gang.shape, gang.kept_slots)
            assert not seats, "a gang waits with all that it needs"

    def check_rest(self) -> None:
        """Raise AssertionError where a gang is left."""
        assert not self._turns, "gangs are left"
        assert not self._queued, "gangs are left in queues"
