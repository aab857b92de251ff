"""Stage T3: the order in which the tasks of the queue are tried, and what happens behind one that does not fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import reduce
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from volery.architectures.pipeline.policies import FAR, Kind, State, Waiting
from volery.architectures.pipeline.queues import Entry, KeyedQueue, Queue
from volery.core.model import Time
from volery.core.resources import Packing
from volery.policies.gangs import Places
from volery.policies.match import positions

KINDS_MAX: Final = 64
"""Number of classes for which the time is remembered when each machine will have room for them."""
BACKFILLING: Final = ("easy", "conservative")
"""Iterations that reserve: they need an order that is fixed when a task is queued, and estimates of what runs."""


class Iteration(Protocol):
    """The order in which a cycle tries tasks, and the machines that it grants them.

    Attributes:
        places: Machines that the gang in hand is to take, with counts of members; None: any that it is granted.
    """

    places: Places | None

    def following(self) -> Waiting | None:
        """The task to try now; None: the cycle is over."""

    def among(self, waiting: Waiting) -> int:
        """Vector of the machines that it may take, if they have enough."""

    def withheld(self) -> int:
        """Vector of the machines with a reservation, which may have room for a blocked class."""

    def joined(self, waiting: Waiting) -> None:
        """Note a task that has joined the queue."""

    def takes(self, waiting: Waiting, machine: int) -> int | None:
        """The packed amounts that a task takes of a machine that it is given now; None: any that are free."""

    def started(self, machine: int) -> None:
        """Note a task that was given room on a machine."""

    def given_back(self, machine: int) -> None:
        """Note room that was given back on a machine, or a machine that can be had from now on."""

    def withdrawn(self, machine: int) -> None:
        """Note an idle machine that cannot be had any more."""


class Sequential:
    """Tries one task after another; one that fits nowhere stays.

    Args:
        strict: Whether no task overtakes one that fits nowhere.
    """

    __slots__ = ("_queue", "_state", "_strict", "places")

    def __init__(self, state: State, queue: Queue, *, strict: bool = False) -> None:
        self._state = state
        self._queue = queue
        self._strict = strict
        self.places: Places | None = None

    def following(self) -> Waiting | None:
        if not self._strict:
            return self._queue.best()

        head = self._queue.best(blocked=True)
        return head if head is not None and head.kind in self._queue.classes.unblocked else None

    def among(self, waiting: Waiting) -> int:
        return waiting.kind.suitable & self._state.online

    def withheld(self) -> int:
        return 0

    def joined(self, waiting: Waiting) -> None:
        pass

    def takes(self, waiting: Waiting, machine: int) -> None:
        pass

    def started(self, machine: int) -> None:
        self._queue.classes.taken(machine, self._state.index.free[machine])

    def given_back(self, machine: int) -> None:
        self._queue.classes.given_back(machine, self._state.index.free[machine])

    def withdrawn(self, machine: int) -> None:
        pass


class Easy:
    """EASY backfilling (Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2), on machines.

    The first task that does not fit has a reservation: the machine, and the time, at which it will have room the
    earliest, by the estimates of what runs. Others may start if they do not delay that: on another machine, or on this
    one where they end before or leave enough. An attempt that runs longer than estimated is expected to end any moment.

    Attributes:
        head: The task that has the reservation.
        at: Time of its start, by estimates; it may have passed.
    """

    __slots__ = ("_granted_machines", "_guards", "_packing", "_queue", "_room_times", "_state", "at", "head", "machine")
    places: Places | None = None

    def __init__(self, state: State, queue: KeyedQueue) -> None:
        self._state = state
        self._queue = queue
        self._packing = state.packing
        self._guards = state.packing.guards
        self._granted_machines = 0
        self._room_times: dict[Kind, tuple[npt.NDArray[np.int64], set[int]]] = {}
        self.head: Waiting | None = None
        self.machine = -1
        self.at: Time = FAR

    def following(self) -> Waiting | None:
        """The first; where it does not fit, the first of those that do not delay it."""
        head = self._queue.best(blocked=True)

        # The head has changed: another task was queued before it, or it was withdrawn.
        if self.head is not None and self.head is not head:
            self._lift()

        if head is None:
            return None

        # A head that fits is tried on any machine: its reservation, if it has one, is its own.
        if head.kind in self._queue.classes.unblocked:
            self._granted_machines = head.kind.suitable & self._state.online
            return head

        if self.head is None:
            self._reserve(head)
        return self._backfill()

    def among(self, waiting: Waiting) -> int:
        """The machines on which a task delays no other."""
        return self._granted_machines

    def withheld(self) -> int:
        """The machine of the reservation."""
        return 1 << self.machine if self.machine >= 0 else 0

    def joined(self, waiting: Waiting) -> None:
        """Unblock the class of a task that may be short enough for the reserved machine."""
        # An entry of a blocked class that is short enough is missed otherwise, until something is given back.
        kind = waiting.kind
        if self.machine >= 0 and kind.suitable >> self.machine & 1 and self._fits_reserved(kind):
            self._queue.classes.unblock(kind)

    def started(self, machine: int) -> None:
        """Note that the times at which a machine has room have changed."""
        self._outdate(machine)
        self._queue.classes.taken(machine, self._state.index.free[machine])

    def takes(self, waiting: Waiting, machine: int) -> None:
        pass

    def _unblock(self, machine: int) -> None:
        self._queue.classes.given_back(machine, self._state.index.free[machine])

    def _outdate(self, machine: int) -> None:
        for _, outdated in self._room_times.values():
            outdated.add(machine)

    def given_back(self, machine: int) -> None:
        """Unblock the classes that fit there, and move the reservation there if that is earlier."""
        self._outdate(machine)
        self._unblock(machine)

        if self.head is None:
            return

        start_us = self._room_at(self.head.kind, machine)
        if start_us < self.at:
            former_machine = self.machine
            self.machine = machine
            self.at = start_us

            # Where the reservation was, classes may start now that would have delayed it.
            if former_machine != machine:
                self._unblock(former_machine)

    def withdrawn(self, machine: int) -> None:
        """Lift the reservation of a machine that cannot be had any more."""
        self._outdate(machine)
        if machine == self.machine:
            self._lift()

    def _lift(self) -> None:
        machine = self.machine
        self.head = None
        self.machine = -1
        self.at = FAR
        if machine >= 0:
            self._unblock(machine)

    def _fits_reserved(self, kind: Kind) -> bool:
        return self._state.index.fits(self.machine, kind.packed)

    def _reserve(self, head: Waiting) -> None:
        """Find the earliest room: what is known of every machine is brought up to date for those that have changed."""
        kind = head.kind
        remembered = self._room_times.get(kind)

        if remembered is None:
            if len(self._room_times) >= KINDS_MAX:
                del self._room_times[next(iter(self._room_times))]
            rooms = np.full(len(self._state.capacities), FAR, dtype=np.int64)
            remembered = self._room_times[kind] = rooms, set(positions(kind.suitable))

        rooms, outdated = remembered
        for machine in outdated:
            rooms[machine] = self._room_at(kind, machine)
        outdated.clear()

        if self._state.online != self._state.matches.every:
            rooms = rooms.copy()
            rooms[positions(self._state.matches.every & ~self._state.online)] = FAR

        machine = int(rooms.argmin())
        start_us = int(rooms[machine])
        self.head = head
        self.machine = machine if start_us < FAR else -1
        self.at = start_us

    def _room_at(self, kind: Kind, machine: int) -> Time:
        """The time at which a machine will have room for a task of this class, by estimates."""
        if not kind.suitable >> machine & 1:
            return FAR
        guards = self._guards
        free = self._state.index.free[machine]
        packed = kind.packed

        runs = sorted([(run.expected_end_us, run.took) for run in self._state.on_machine[machine].values()])
        for end, given_back in runs:
            free = self._packing.settled(free + given_back)
            if (free - packed) & guards == guards:
                return end
        return FAR

    def _backfill(self) -> Waiting | None:
        first_entry: Entry | None = None
        for kind in list(self._queue.classes.unblocked):
            entry, machines = self._option(kind)
            if entry is None:
                self._queue.classes.block(kind)
            elif first_entry is None or entry < first_entry:
                first_entry = entry
                self._granted_machines = machines
        return None if first_entry is None else first_entry[3]

    def _option(self, kind: Kind) -> tuple[Entry | None, int]:
        """The first task of a kind that may start now, and the machines where it delays no other task."""
        state = self._state
        tasks = self._queue.of_class(kind)

        machines = kind.suitable & state.online
        if self.machine < 0:
            # Nothing will ever have room for the head by estimates, so nothing can delay it.
            return (tasks.head, machines) if state.index.pick(kind.need, machines, "first") >= 0 else (None, 0)

        reserved = machines & 1 << self.machine
        other_machines = machines ^ reserved
        reserved_with_room = reserved if reserved and self._fits_reserved(kind) else 0
        reserved_spared = reserved_with_room if reserved_with_room and self._leaves_enough(kind) else 0

        if other_machines and state.index.pick(kind.need, other_machines, "first") >= 0:
            # With room elsewhere the first task of the class starts; only without it may a shorter one.
            is_short = (
                tasks.head[3].task.estimate_us <= self._limit_us()
                if reserved_with_room and not reserved_spared
                else False
            )
            return tasks.head, other_machines | (reserved_with_room if is_short else reserved_spared)

        if reserved_spared:
            return tasks.head, reserved_spared
        return (tasks.first_within(self._limit_us()), reserved_with_room) if reserved_with_room else (None, 0)

    def _leaves_enough(self, kind: Kind) -> bool:
        """True if the reserved machine has room for both in time, if one of the class starts now."""
        state = self._state
        packing = self._packing
        guards = self._guards

        free = state.index.free[self.machine]
        free_at_start = free - packing.named(free, kind.packed)

        for run in state.on_machine[self.machine].values():
            # What ends before the head starts is free for the head.
            if run.expected_end_us <= self.at:
                free_at_start += run.took

        assert self.head is not None
        return (packing.settled(free_at_start) - self.head.kind.packed) & guards == guards

    def _limit_us(self) -> Time:
        """The longest estimate of a task that ends on the reserved machine before it is needed."""
        left_us = self.at - self._state.now
        cluster = self._state.cluster

        if left_us < 0 or not cluster.speeds:
            return left_us
        # The estimate is of the reference machine; attempts round their duration up.
        return ((left_us + 1) * cluster.speeds[self.machine] - 1) // cluster.reference_speed


class FreeProfile:
    """The amounts that a machine will have free, by estimates: packed and guarded, each until the next time.

    Args:
        now: The first time.
        free: Free amounts at that time.
        ends: Times at which tasks that run there end, and what each gives back.
    """

    __slots__ = ("_free", "_guards", "_packing", "_times")

    def __init__(self, now: Time, free: int, ends: list[tuple[Time, int]], packing: Packing) -> None:
        self._packing = packing
        self._guards = packing.guards
        self._times = [now]
        self._free = [free]

        for end, given_back in sorted(ends):
            self.take(-given_back, max(end, now + 1), FAR)

    def earliest(self, packed: int, duration_us: Time) -> Time:
        """The time from which that much is free for so long, on the same devices; FAR: never."""
        guards = self._guards
        ends = [*self._times[1:], FAR]
        common = -1
        first = place = 0

        while place < len(ends):
            # What is common to all steps from the first on: devices that change in between are of no use.
            common = self._free[place] if place == first else self._packing.common(common, self._free[place])
            if (common - packed) & guards != guards:
                # Begin behind the step that has too little, or one step later if only devices have changed.
                first = place = first + 1 if (self._free[place] - packed) & guards == guards else place + 1
            elif ends[place] - self._times[first] >= duration_us:
                return self._times[first]
            else:
                place += 1
        return FAR

    def named(self, packed: int, begin: Time, end: Time) -> int:
        """The request with devices that are free from begin to end."""
        steps = self._free[self._step(begin) : self._step(end)]
        return self._packing.named(reduce(self._packing.common, steps), packed)

    def times(self) -> list[Time]:
        """The times at which a step begins, in order."""
        return self._times

    def least(self, begin: Time, end: Time) -> int:
        """The amounts that are free from begin to end; on the same devices, where there are any."""
        steps = self._free[self._step(begin) : self._step(end)]
        packing = self._packing
        if packing.device_count:
            return reduce(packing.common, steps)
        return packing.pack(tuple(map(min, zip(*map(packing.fields, steps), strict=True)))) | self._guards

    def take(self, packed: int, begin: Time, end: Time) -> None:
        """Take amounts from what is free from begin to end."""
        first = self._step(begin)
        after_last = self._step(end)
        for place in range(first, after_last):
            self._free[place] = self._packing.settled(self._free[place] - packed)

    def _step(self, time_us: Time) -> int:
        """The place of the step that begins then, which is made if there is none."""
        if time_us >= FAR:
            return len(self._times)

        place = bisect_left(self._times, time_us)
        if place == len(self._times) or self._times[place] != time_us:
            self._times.insert(place, time_us)
            self._free.insert(place, self._free[place - 1])
        return place


class Conservative:
    """Conservative backfilling (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2): no task waits for later ones.

    Every task that waits has a reservation, in the order of the queue, and a task starts before others where it delays
    none of them. Reservations are made anew in every cycle, so that early ends move all of them forward; those behind
    the last task that has room are left out. Where there is room a cycle costs machines x tasks that wait, while EASY
    looks at classes: this is for queues of hundreds, not of a hundred thousand. No class is ever blocked: a shorter
    task of it may find a gap.
    """

    __slots__ = ("_granted_machines", "_profiles", "_queue", "_remaining_tasks", "_state", "_task_tried")
    places: Places | None = None

    def __init__(self, state: State, queue: KeyedQueue) -> None:
        self._state = state
        self._queue = queue
        self._granted_machines = 0
        self._profiles: dict[int, FreeProfile] = {}
        self._remaining_tasks: Iterator[Waiting] | None = None
        self._task_tried: Waiting | None = None

    def following(self) -> Waiting | None:
        """The first that delays none before it if it starts now; those before get their reservations."""
        if self._remaining_tasks is None:
            # Profiles are of one cycle: attempts may have ended early since.
            self._profiles.clear()
            self._remaining_tasks = iter(self._worth_planning())

        for waiting in self._remaining_tasks:
            machines = positions(waiting.kind.suitable & self._state.online)
            times = {machine: self._earliest(waiting, machine) for machine in machines}
            start_us = min(times.values(), default=FAR)

            if start_us == self._state.now:
                self._granted_machines = sum([1 << machine for machine, time in times.items() if time == start_us])
                self._task_tried = waiting
                return waiting

            if start_us < FAR:
                self._take(waiting, min(machine for machine, time in times.items() if time == start_us), start_us)

        self._remaining_tasks = self._task_tried = None
        return None

    def _worth_planning(self) -> list[Waiting]:
        """The tasks that wait, up to the last that has room now: reservations behind it delay no task."""
        state = self._state

        fitting_kinds = {
            kind
            for kind, _ in self._queue.classes.counts.items()
            if state.index.pick(kind.need, kind.suitable & state.online, "first") >= 0
        }

        if not fitting_kinds:
            return []

        # Nothing behind the last task with room can start now, whatever it would reserve.
        ordered = self._queue.ordered()
        while ordered[-1].kind not in fitting_kinds:
            ordered.pop()
        return ordered

    def _profile(self, machine: int) -> FreeProfile:
        profile = self._profiles.get(machine)
        if profile is None:
            state = self._state

            ends = [(run.expected_end_us, run.took) for run in state.on_machine[machine].values()]
            profile = FreeProfile(state.now, state.index.free[machine], ends, state.packing)
            self._profiles[machine] = profile
        return profile

    def _lasts_us(self, waiting: Waiting, machine: int) -> Time:
        return max(1, self._state.cluster.attempt_us(waiting.task.estimate_us, machine))

    def _earliest(self, waiting: Waiting, machine: int) -> Time:
        return self._profile(machine).earliest(waiting.kind.packed, self._lasts_us(waiting, machine))

    def _take(self, waiting: Waiting, machine: int, start_us: Time) -> None:
        end = start_us + self._lasts_us(waiting, machine)
        self._profile(machine).take(self._named(waiting, machine, start_us), start_us, end)

    def _named(self, waiting: Waiting, machine: int, start_us: Time) -> int:
        end = start_us + self._lasts_us(waiting, machine)
        return self._profile(machine).named(waiting.kind.packed, start_us, end)

    def takes(self, waiting: Waiting, machine: int) -> int:
        """The request on devices that no task before it has reserved."""
        return self._named(waiting, machine, self._state.now)

    def among(self, waiting: Waiting) -> int:
        return self._granted_machines

    def withheld(self) -> int:
        return 0

    def joined(self, waiting: Waiting) -> None:
        pass

    def started(self, machine: int) -> None:
        if self._task_tried is not None:
            self._take(self._task_tried, machine, self._state.now)

    def given_back(self, machine: int) -> None:
        self._queue.classes.given_back(machine, self._state.index.free[machine])

    def withdrawn(self, machine: int) -> None:
        pass


def iteration_of(name: str, state: State, queue: Queue) -> Iteration:
    """The iteration of a name: skip, every, strict, easy or conservative."""
    if name not in BACKFILLING:
        return Sequential(state, queue, strict=name == "strict")
    assert isinstance(queue, KeyedQueue), "other orders are refused"

    return Easy(state, queue) if name == "easy" else Conservative(state, queue)
