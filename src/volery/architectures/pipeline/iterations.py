"""Stage T3: in which order the tasks of the queue are tried, and what becomes of those behind one that does not fit."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from volery.architectures.pipeline.lines import Entry
from volery.architectures.pipeline.policies import FAR, Kind, State, Waiting
from volery.architectures.pipeline.queues import KeyedQueue, Queue
from volery.core.model import Time
from volery.policies.match import positions

KINDS_MAX: Final = 64
"""Kinds of which it is kept when each machine will have room for them."""


class Iteration(Protocol):
    """What the loop over tasks can be asked."""

    def following(self) -> Waiting | None:
        """The task to try now; None: the cycle is over."""

    def among(self, waiting: Waiting) -> int:
        """Vector of the machines that it may take, if they have enough."""

    def withheld(self) -> int:
        """Vector of the machines that are kept for somebody: they may have room for a kind that fits nowhere."""

    def joined(self, waiting: Waiting) -> None:
        """A task has joined the queue."""

    def takes(self, waiting: Waiting, machine: int) -> int:
        """What a task takes of a machine that it is given now, packed."""

    def started(self, machine: int) -> None:
        """A task has been given room on a machine."""

    def given_back(self, machine: int) -> None:
        """A task has given its room on a machine back, or the machine can be had from now on."""

    def withdrawn(self, machine: int) -> None:
        """A machine that nobody uses cannot be had any more."""


class Skipping:
    """One after another; one that fits nowhere stays, and the next is tried.

    Args:
        state: of the scheduler.
        queue: its queue.
    """

    __slots__ = ("_queue", "_state")

    def __init__(self, state: State, queue: Queue) -> None:
        self._state = state
        self._queue = queue

    def following(self) -> Waiting | None:
        """The first that may fit."""
        return self._queue.best()

    def among(self, waiting: Waiting) -> int:
        """All that suit it."""
        return waiting.kind.suitable & self._state.online

    def withheld(self) -> int:
        """None."""
        return 0

    def joined(self, waiting: Waiting) -> None:
        """What is known of its kind holds for it."""

    def takes(self, waiting: Waiting, machine: int) -> int:
        """What it asks for, of what is free there."""
        return self._state.packing.named(self._state.index.free[machine], waiting.kind.packed)

    def started(self, machine: int) -> None:
        """What fitted only there is not tried in vain."""
        self._queue.kinds.taken(machine, self._state.index.free[machine])

    def given_back(self, machine: int) -> None:
        """What fits there is tried again."""
        self._queue.kinds.given_back(machine, self._state.index.free[machine])

    def withdrawn(self, machine: int) -> None:
        """What fitted only there is closed when it is tried."""


class Strict(Skipping):
    """One after another; nothing overtakes one that fits nowhere."""

    __slots__ = ()

    def following(self) -> Waiting | None:
        """The first, if it may fit."""
        head = self._queue.best(closed=True)
        return head if head is not None and head.kind in self._queue.kinds.open else None


class Easy(Skipping):
    """EASY backfilling (Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2), on machines.

    The first task that does not fit has a reservation: the machine, and the time, at which it will have room the
    earliest, by the estimates of what runs. Others may start if they do not delay that: on another machine, or on this
    one where they end before or leave enough. An attempt that runs longer than estimated is expected to end any moment.

    Attributes:
        head: the task that has the reservation.
        machine: where.
        at: when, by estimates; may have passed.
    """

    __slots__ = ("_granted", "_guards", "_keyed", "_packing", "_ready", "at", "head", "machine")

    def __init__(self, state: State, queue: KeyedQueue) -> None:
        super().__init__(state, queue)
        self._keyed = queue
        self._packing = state.packing
        self._guards = state.packing.guards
        self._granted = 0
        self._ready: dict[Kind, tuple[npt.NDArray[np.int64], set[int]]] = {}
        self.head: Waiting | None = None
        self.machine = -1
        self.at: Time = FAR

    def following(self) -> Waiting | None:
        """The first; where it does not fit, the first of those that do not delay it."""
        head = self._keyed.best(closed=True)
        if self.head is not None and self.head is not head:
            self._lift()
        if head is None:
            return None
        if head.kind in self._keyed.kinds.open:
            self._granted = head.kind.suitable & self._state.online
            return head
        if self.head is None:
            self._reserve(head)
        return self._backfill()

    def among(self, waiting: Waiting) -> int:
        """Those on which it delays nobody."""
        return self._granted

    def withheld(self) -> int:
        """The machine of the reservation."""
        return 1 << self.machine if self.machine >= 0 else 0

    def joined(self, waiting: Waiting) -> None:
        """It may be short enough for the reserved machine, where others of its kind are not."""
        kind = waiting.kind
        if self.machine >= 0 and kind.suitable >> self.machine & 1 and self._fits(kind):
            self._keyed.kinds.reopen(kind)

    def started(self, machine: int) -> None:
        """When others have room there has to be counted anew."""
        self._outdate(machine)
        super().started(machine)

    def _outdate(self, machine: int) -> None:
        for _, outdated in self._ready.values():
            outdated.add(machine)

    def given_back(self, machine: int) -> None:
        """What fits there is tried again; the reservation moves there if that is earlier."""
        self._outdate(machine)
        super().given_back(machine)
        if self.head is None:
            return
        at = self._room_at(self.head.kind, machine)
        if at < self.at:
            before, self.machine, self.at = self.machine, machine, at
            if before != machine:
                super().given_back(before)

    def withdrawn(self, machine: int) -> None:
        """It is not reserved for anybody, either."""
        self._outdate(machine)
        if machine == self.machine:
            self._lift()

    def _lift(self) -> None:
        machine, self.head, self.machine, self.at = self.machine, None, -1, FAR
        if machine >= 0:
            super().given_back(machine)

    def _fits(self, kind: Kind) -> bool:
        return self._state.index.fits(self.machine, kind.packed)

    def _reserve(self, head: Waiting) -> None:
        """Find the earliest room: what is known of every machine is brought up to date for those that have changed."""
        kind, known = head.kind, self._ready.get(head.kind)
        if known is None:
            if len(self._ready) >= KINDS_MAX:
                del self._ready[next(iter(self._ready))]
            rooms = np.full(len(self._state.capacities), FAR, dtype=np.int64)
            known = self._ready[kind] = rooms, set(positions(kind.suitable))
        rooms, outdated = known
        for machine in outdated:
            rooms[machine] = self._room_at(kind, machine)
        outdated.clear()
        if self._state.online != self._state.matches.every:
            rooms = rooms.copy()
            rooms[positions(self._state.matches.every & ~self._state.online)] = FAR
        machine = int(rooms.argmin())
        at = int(rooms[machine])
        self.head, self.machine, self.at = head, machine if at < FAR else -1, at

    def _room_at(self, kind: Kind, machine: int) -> Time:
        """When a machine will have room for a task of this kind, by estimates."""
        if not kind.suitable >> machine & 1:
            return FAR
        guards, free, packed = self._guards, self._state.index.free[machine], kind.packed
        runs = sorted([(run.expected_end_us, run.took) for run in self._state.on_machine[machine].values()])
        for end, given_back in runs:
            free = self._packing.settled(free + given_back)
            if (free - packed) & guards == guards:
                return end
        return FAR

    def _backfill(self) -> Waiting | None:
        best: Entry | None = None
        for kind in list(self._keyed.kinds.open):
            entry, granted = self._option(kind)
            if entry is None:
                self._keyed.kinds.close(kind)
            elif best is None or entry < best:
                best, self._granted = entry, granted
        return None if best is None else best[3]

    def _option(self, kind: Kind) -> tuple[Entry | None, int]:
        """The first task of a kind that may start now, and the machines where it delays nobody."""
        state, line = self._state, self._keyed.line(kind)
        machines = kind.suitable & state.online
        if self.machine < 0:
            return (line.head, machines) if state.index.pick(kind.need, machines, "first") >= 0 else (None, 0)
        reserved = machines & 1 << self.machine
        others = machines ^ reserved
        here = reserved if reserved and self._fits(kind) else 0
        spared = here if here and self._leaves_enough(kind) else 0
        if others and state.index.pick(kind.need, others, "first") >= 0:
            short = line.head[3].task.estimate_us <= self._limit_us() if here and not spared else False
            return line.head, others | (here if short else spared)
        if spared:
            return line.head, spared
        return (line.first_within(self._limit_us()), here) if here else (None, 0)

    def _leaves_enough(self, kind: Kind) -> bool:
        """Whether the reserved machine has room for both when the time has come, if one of the kind starts now."""
        state, packing, guards = self._state, self._packing, self._guards
        free = state.index.free[self.machine]
        left = free - packing.named(free, kind.packed)
        for run in state.on_machine[self.machine].values():
            if run.expected_end_us <= self.at:
                left += run.took
        assert self.head is not None
        return (packing.settled(left) - self.head.kind.packed) & guards == guards

    def _limit_us(self) -> Time:
        """The longest estimate of a task that ends on the reserved machine before it is needed."""
        left, cluster = self.at - self._state.now, self._state.cluster
        if left < 0 or not cluster.speeds:
            return left
        return ((left + 1) * cluster.speeds[self.machine] - 1) // cluster.reference_speed
