"""Stage T3 with gangs: EASY and conservative backfilling of rigid jobs (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).

A reservation is for all members of a gang at once, on any machines. A task alone is a gang of one member. These take
the place of the iterations of single tasks when the first gang comes. An attempt that runs longer than estimated is
expected to end at any moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from volery.architectures.pipeline.attempts import Placements
from volery.architectures.pipeline.gangs import GangKind, Gangs, places_on
from volery.architectures.pipeline.iterations import BACKFILLING, FreeProfile, Sequential
from volery.architectures.pipeline.policies import FAR, Kind, State, Waiting
from volery.architectures.pipeline.queues import KeyedQueue
from volery.core.model import Time
from volery.core.resources import Packing
from volery.policies.gangs import Places, rooms_on
from volery.policies.match import positions


class HeadReservation(msgspec.Struct, eq=False):
    """The earliest start of the first entry that does not fit, by estimates.

    Args:
        at: Time of the start; FAR: there is none.
        free: Free amounts of all machines then, packed and guarded.
        spare: Count of members of its class that find room beside it then; -1: they are not counted.
    """

    head: Waiting
    at: Time
    free: list[int]
    spare: int


class Backfilling(Sequential):
    """The parts that the iterations with gangs share.

    Attributes:
        places: Machines that the entry in hand is to take; None: any of `among`.
    """

    __slots__ = ("_gangs", "_granted_machines", "_slowest")
    _queue: KeyedQueue

    def __init__(self, state: State, queue: KeyedQueue, gangs: Gangs) -> None:
        super().__init__(state, queue)
        self._gangs = gangs
        self._granted_machines = 0
        speeds = state.cluster.speeds
        self._slowest = min(range(len(speeds)), key=speeds.__getitem__) if speeds else 0

    def among(self, waiting: Waiting) -> int:
        return self._granted_machines

    def _lasts_us(self, waiting: Waiting) -> Time:
        """The time for which an entry runs, by its limit or its estimate, on whichever machines."""
        return max(1, self._state.planned_on_us(waiting, self._slowest))

    def _is_counted(self, kind: Kind) -> bool:
        """True if the count of its members that find room decides whether a class has room."""
        return not isinstance(kind, GangKind) or kind.fits_by_count


class GangEasy(Backfilling):
    """EASY backfilling: the first entry that does not fit has a reservation, which no other delays."""

    __slots__ = ("_reservation",)

    def __init__(self, state: State, queue: KeyedQueue, gangs: Gangs) -> None:
        super().__init__(state, queue, gangs)
        self._reservation: HeadReservation | None = None

    def following(self) -> Waiting | None:
        """The first; where it does not fit, the first of those that do not delay it."""
        head = self._queue.best(blocked=True)
        self.places = None
        if head is None:
            return None

        if head.kind in self._queue.classes.unblocked:
            self._granted_machines = head.kind.suitable & self._state.online
            return head

        reservation = self._reservation
        if reservation is None or reservation.head is not head:
            reservation = self._reservation = self._reserve(head)
        return self._backfill(reservation)

    def started(self, machine: int) -> None:
        super().started(machine)
        self._reservation = None

    def given_back(self, machine: int) -> None:
        super().given_back(machine)
        self._reservation = None

    def withdrawn(self, machine: int) -> None:
        self._reservation = None

    def _reserve(self, head: Waiting) -> HeadReservation:
        """Give back what runs in the order of the expected ends, until the head has room."""
        state, kind, rooms = self._state, head.kind, self._gangs.rooms
        machines = kind.suitable & state.online
        packed, size, now, settled = kind.packed, kind.size, state.now, state.packing.settled
        free = list(state.index.free)
        is_counted = self._is_counted(kind)
        count = sum([room for _, room in rooms_on(machines, free, packed, rooms)]) if is_counted else 0

        runs_by_end: dict[Time, list[tuple[int, int]]] = {}
        for run in state.running.values():
            runs_by_end.setdefault(run.planned_end_us, []).append((run.machine, run.took))
        for end_us in sorted(runs_by_end):
            for machine, took in runs_by_end[end_us]:
                free_before = free[machine]
                free[machine] = free_after = settled(free_before + took)
                if is_counted and machines >> machine & 1:
                    count += rooms[free_after, packed] - rooms[free_before, packed]

            # What is expected to end at any moment gives its room back together.
            if end_us < now and any(now >= later_us > end_us for later_us in runs_by_end):
                continue
            if count >= size if is_counted else places_on(kind, machines, free, state, rooms):
                return HeadReservation(head, max(end_us, now), free, count - size if is_counted else -1)
        return HeadReservation(head, FAR, free, 0)

    def _backfill(self, reservation: HeadReservation) -> Waiting | None:
        state, classes = self._state, self._queue.classes
        for waiting in self._queue.ordered():
            kind = waiting.kind
            if kind not in classes.unblocked:
                continue

            machines = kind.suitable & state.online
            if not self._gangs.has_room(kind, machines):
                classes.block(kind)
                continue

            # Nothing will ever have room for the head by estimates, so nothing can delay it; nor can what ends before.
            is_early = reservation.at == FAR or state.now + self._lasts_us(waiting) <= reservation.at
            self._granted_machines = machines if is_early else self._beside(reservation, kind, machines)
            if self._granted_machines:
                return waiting
        return None

    def _beside(self, reservation: HeadReservation, kind: Kind, machines: int) -> int:
        """The machines on which an entry leaves the head its room at the time of its reservation; 0: on none.

        For a gang whose class differs from the head's, `places` has the machines that it is to take.
        """
        state, rooms, head = self._state, self._gangs.rooms, reservation.head.kind
        is_alike = kind.packed == head.packed and kind.suitable == head.suitable
        if reservation.spare >= 0 and is_alike and self._is_counted(kind) and not state.packing.device_count:
            return machines if kind.size <= reservation.spare else 0

        free = reservation.free
        if not isinstance(kind, GangKind):
            granted = 0
            for machine in positions(state.index.fitting(kind.need, machines)):
                if self._leaves_room(reservation, [(machine, 1)], kind.packed):
                    granted |= 1 << machine
            return granted

        places = places_on(kind, machines, state.index.free, state, rooms)
        if not self._leaves_room(reservation, places, kind.packed):
            # Machines that are of no use to the head delay it in no case.
            useless = sum([1 << machine for machine in positions(machines) if not rooms[free[machine], head.packed]])
            places = places_on(kind, machines & useless, state.index.free, state, rooms)
            if not places:
                return 0
        self.places = places
        return machines

    def _leaves_room(self, reservation: HeadReservation, places: Places, packed: int) -> bool:
        """True if the head has room beside these members at the time of its reservation."""
        state, kind = self._state, reservation.head.kind
        packing, free = state.packing, list(reservation.free)
        for machine, count in places:
            for _ in range(count):
                free[machine] = packing.settled(free[machine] - packing.named(free[machine], packed))
        return bool(places_on(kind, kind.suitable & state.online, free, state, self._gangs.rooms))


class GangConservative(Backfilling):
    """Conservative backfilling: every entry has a reservation, in the order of the queue, made anew in each cycle.

    Where all tasks ask for the same and suit the same machines, one profile of the count of free places is enough; else
    there is a profile per machine, and a cycle costs machines x entries x times at which something ends.
    """

    __slots__ = ("_count_packing", "_count_profile", "_profiles", "_remaining_entries")

    def __init__(self, state: State, queue: KeyedQueue, gangs: Gangs) -> None:
        super().__init__(state, queue, gangs)
        self._count_packing = Packing(1)
        self._count_profile: FreeProfile | None = None
        self._profiles: dict[int, FreeProfile] = {}
        self._remaining_entries: Iterator[Waiting] | None = None

    def following(self) -> Waiting | None:
        """The first entry that delays none before it if it starts now; those before get their reservations."""
        if self._remaining_entries is None:
            self._remaining_entries = iter(self._worth_planning())

        now = self._state.now
        for waiting in self._remaining_entries:
            start_us, places = self._earliest(waiting)
            if start_us < FAR:
                self._take(waiting, places, start_us)
            if start_us == now:
                self._granted_machines = waiting.kind.suitable & self._state.online
                self.places = None if self._count_profile is not None else places
                if self.places is not None and not isinstance(waiting.kind, GangKind):
                    self._granted_machines = 1 << places[0][0]
                return waiting

        self._remaining_entries = None
        return None

    def _worth_planning(self) -> Sequence[Waiting]:
        """The entries up to the last that has room now, with the profiles in which they are planned."""
        state, classes = self._state, self._queue.classes
        fitting_kinds = {kind for kind in classes.counts if self._gangs.has_room(kind, kind.suitable & state.online)}
        if not fitting_kinds:
            return ()

        ordered = self._queue.ordered()
        while ordered[-1].kind not in fitting_kinds:
            ordered.pop()
        self._begin_profiles(ordered)
        return ordered

    def _begin_profiles(self, ordered: Sequence[Waiting]) -> None:
        state = self._state
        needs = {(entry.kind.packed, entry.kind.suitable) for entry in ordered}
        needs |= {(run.waiting.kind.packed, run.waiting.kind.suitable) for run in state.running.values()}
        is_counted = all(self._is_counted(entry.kind) for entry in ordered) and not state.packing.device_count

        self._profiles = {}
        self._count_profile = None
        if len(needs) == 1 and is_counted and next(iter(needs))[0]:
            self._count_profile = self._counted(*next(iter(needs)))

    def _counted(self, packed: int, suitable: int) -> FreeProfile:
        """The profile of the count of free places."""
        state, packing = self._state, self._count_packing
        machines = suitable & state.online
        count = sum([room for _, room in rooms_on(machines, state.index.free, packed, self._gangs.rooms)])
        counts: dict[Time, int] = {}
        for run in state.running.values():
            if machines >> run.machine & 1:
                counts[run.planned_end_us] = counts.get(run.planned_end_us, 0) + 1
        ends = [(end_us, packing.pack((ended,))) for end_us, ended in counts.items()]
        return FreeProfile(state.now, packing.free((count,)), ends, packing)

    def _earliest(self, waiting: Waiting) -> tuple[Time, Places]:
        """The earliest start of an entry, and its machines where there is a profile of each."""
        kind, lasts_us = waiting.kind, self._lasts_us(waiting)
        if self._count_profile is not None:
            return self._count_profile.earliest(self._count_packing.pack((kind.size,)), lasts_us), []

        machines = kind.suitable & self._state.online
        profiles = {machine: self._profile(machine) for machine in positions(machines)}
        earliest = {machine: profile.earliest(kind.packed, lasts_us) for machine, profile in profiles.items()}
        first_us = min(earliest.values(), default=FAR)
        if not isinstance(kind, GangKind) or first_us == FAR:
            return first_us, [(machine, 1) for machine, time_us in earliest.items() if time_us == first_us][:1]

        # More room comes only where something ends; before the first time no machine holds a single member.
        times = {time_us for profile in profiles.values() for time_us in profile.times() if time_us >= first_us}
        for start_us in sorted(times):
            free = list(self._state.index.free)
            for machine, profile in profiles.items():
                free[machine] = profile.least(start_us, start_us + lasts_us)
            if places := places_on(kind, machines, free, self._state, self._gangs.rooms):
                return start_us, places
        return FAR, []

    def _profile(self, machine: int) -> FreeProfile:
        if machine not in self._profiles:
            state = self._state
            ends = [(run.planned_end_us, run.took) for run in state.on_machine[machine].values()]
            self._profiles[machine] = FreeProfile(state.now, state.index.free[machine], ends, state.packing)
        return self._profiles[machine]

    def _take(self, waiting: Waiting, places: Places, start_us: Time) -> None:
        kind, end_us = waiting.kind, start_us + self._lasts_us(waiting)
        if self._count_profile is not None:
            self._count_profile.take(self._count_packing.pack((kind.size,)), start_us, end_us)
            return
        for machine, count in places:
            profile = self._profiles[machine]
            for _ in range(count):
                profile.take(profile.named(kind.packed, start_us, end_us), start_us, end_us)


def begin_gangs(cycle: Placements, name: str) -> Gangs:
    """The gangs of a cycle, with the iteration of a name for them: the same as before where it reserves nothing."""
    gangs, queue = Gangs(cycle), cycle.queue
    if name in BACKFILLING:
        assert isinstance(queue, KeyedQueue), "other orders are refused"
        # Classes that a reservation has kept off its machine may have room.
        for kind in list(queue.classes.blocked):
            queue.classes.unblock(kind)
        iteration = GangEasy if name == "easy" else GangConservative
        cycle.iteration = iteration(cycle.state, queue, gangs)
    return gangs
