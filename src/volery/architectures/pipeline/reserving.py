"""Conservative backfilling (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2): nobody waits for who came later.

Every task that waits has a reservation, in the order of the queue, and a task starts before others where it delays none
of them. Reservations are made anew in every cycle, so that early ends move all of them forward; those behind the last
task that has room are left out. Where there is room a cycle costs machines x tasks that wait, while EASY looks at
kinds: this is for queues of hundreds, not of a hundred thousand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import reduce

from volery.architectures.pipeline.iterations import Skipping
from volery.architectures.pipeline.policies import FAR, State, Waiting
from volery.architectures.pipeline.queues import KeyedQueue
from volery.core.model import Time
from volery.core.resources import Packing
from volery.policies.match import positions


class Profile:
    """What a machine will have free, by estimates: packed and guarded amounts, each from a time on until the next.

    Args:
        now: the first time.
        free: at that time.
        ends: when tasks that run there end, and what each gives back.
        packing: of these.
    """

    __slots__ = ("_free", "_guards", "_packing", "_times")

    def __init__(self, now: Time, free: int, ends: list[tuple[Time, int]], packing: Packing) -> None:
        self._packing = packing
        self._guards = packing.guards
        self._times, self._free = [now], [free]
        for end, given_back in sorted(ends):
            self.take(-given_back, max(end, now + 1), FAR)

    def earliest(self, packed: int, duration_us: Time) -> Time:
        """When that much is free for so long, on the same devices; FAR: never."""
        guards, ends, common, first, place = self._guards, [*self._times[1:], FAR], -1, 0, 0
        while place < len(ends):
            common = self._free[place] if place == first else self._packing.common(common, self._free[place])
            if (common - packed) & guards != guards:
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

    def take(self, packed: int, begin: Time, end: Time) -> None:
        """From begin to end that much less is free."""
        first, last = self._step(begin), self._step(end)
        for place in range(first, last):
            self._free[place] = self._packing.settled(self._free[place] - packed)

    def _step(self, at: Time) -> int:
        """The place of the step that begins then, which is made if there is none."""
        if at >= FAR:
            return len(self._times)
        place = bisect_left(self._times, at)
        if place == len(self._times) or self._times[place] != at:
            self._times.insert(place, at)
            self._free.insert(place, self._free[place - 1])
        return place


class Conservative(Skipping):
    """As the module says. No kind is ever closed: a shorter task of it may find a gap.

    Args:
        state, queue: as for `Skipping`.
    """

    __slots__ = ("_granted", "_keyed", "_left", "_profiles", "_trying")

    def __init__(self, state: State, queue: KeyedQueue) -> None:
        super().__init__(state, queue)
        self._keyed = queue
        self._granted = 0
        self._profiles: dict[int, Profile] = {}
        self._left: Iterator[Waiting] | None = None
        self._trying: Waiting | None = None

    def following(self) -> Waiting | None:
        """The first that delays nobody before it if it starts now; those before get their reservations."""
        if self._left is None:
            self._profiles.clear()
            self._left = iter(self._worth_planning())
        for waiting in self._left:
            machines = positions(waiting.kind.suitable & self._state.online)
            times = {machine: self._earliest(waiting, machine) for machine in machines}
            at = min(times.values(), default=FAR)
            if at == self._state.now:
                self._granted = sum([1 << machine for machine, time in times.items() if time == at])
                self._trying = waiting
                return waiting
            if at < FAR:
                self._take(waiting, min(machine for machine, time in times.items() if time == at), at)
        self._left = self._trying = None
        return None

    def _worth_planning(self) -> list[Waiting]:
        """What waits, up to the last task that has room now: reservations behind it are in nobody's way."""
        state = self._state
        fitting = {
            kind
            for kind, _ in self._keyed.kinds.counts()
            if state.index.pick(kind.need, kind.suitable & state.online, "first") >= 0
        }
        if not fitting:
            return []
        ordered = self._keyed.ordered()
        while ordered[-1].kind not in fitting:
            ordered.pop()
        return ordered

    def _profile(self, machine: int) -> Profile:
        profile = self._profiles.get(machine)
        if profile is None:
            state = self._state
            ends = [(run.expected_end_us, run.took) for run in state.on_machine[machine].values()]
            profile = Profile(state.now, state.index.free[machine], ends, state.packing)
            self._profiles[machine] = profile
        return profile

    def _lasts_us(self, waiting: Waiting, machine: int) -> Time:
        return max(1, self._state.cluster.attempt_us(waiting.task.estimate_us, machine))

    def _earliest(self, waiting: Waiting, machine: int) -> Time:
        return self._profile(machine).earliest(waiting.kind.packed, self._lasts_us(waiting, machine))

    def _take(self, waiting: Waiting, machine: int, at: Time) -> None:
        end = at + self._lasts_us(waiting, machine)
        self._profile(machine).take(self._named(waiting, machine, at), at, end)

    def _named(self, waiting: Waiting, machine: int, at: Time) -> int:
        end = at + self._lasts_us(waiting, machine)
        return self._profile(machine).named(waiting.kind.packed, at, end)

    def takes(self, waiting: Waiting, machine: int) -> int:
        """On devices that nobody before it has reserved."""
        return self._named(waiting, machine, self._state.now)

    def among(self, waiting: Waiting) -> int:
        """Those on which it delays nobody."""
        return self._granted

    def started(self, machine: int) -> None:
        """What was selected is taken in the plan, too."""
        if self._trying is not None:
            self._take(self._trying, machine, self._state.now)
