"""Time per stage: what is counted to whom, by clocks that the test turns."""

from __future__ import annotations

import math

import msgspec
import pytest

from volery.core.component import Component, Deployment
from volery.core.stages import Realisation, Stage
from volery.sim.stagetime import PERCENTILES, StageClock, StageTime, own_costs_s

MS = 1_000_000


class Clock:
    """Tells the nanoseconds to which it was turned."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Master(Component):
    """Works 3 ms itself, and 2 ms at each place."""

    __slots__ = ("clock",)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_submit(self, places: int) -> int:
        self.clock.now += 3 * MS
        return sum(self.place() for _ in range(places))

    def place(self) -> int:
        self.clock.now += 2 * MS
        return 1


class Careful(Master):
    """Takes longer to place."""

    __slots__ = ()

    def place(self) -> int:
        self.clock.now += 5 * MS
        return super().place()


class Stranger(Component):
    """Has a method of the same name and is no Master."""

    def place(self) -> int:
        return 1


class Around(Component):
    """Holds another, as reliable links do."""

    def __init__(self, inner: Component) -> None:
        self.inner = inner


STAGES = {
    Stage.J1: Realisation("Master.on_submit"),
    Stage.R4: Realisation("Master.place"),
    Stage.R5: Realisation("Master.place"),
}


def watched(clock: Clock, *components: Component) -> StageClock:
    found = StageClock(STAGES, {"Master": Master}, clock, clock)
    found.watch(Deployment({f"master/{n}": each for n, each in enumerate(components)}, {}, lambda _: "master/0"))
    return found


def without_calls(time: StageTime) -> StageTime:
    return msgspec.structs.replace(time, call_s=())


def test_time_in_declared_methods_that_are_called_is_theirs() -> None:
    clock = Clock()
    master = Master(clock)
    found = watched(clock, master)
    assert master.on_submit(4) == 4
    assert master.on_submit(0) == 0
    assert [without_calls(time) for time in found.times()] == [
        StageTime((Stage.J1,), "Master.on_submit", 2, 2, 0.006, 0.006),
        StageTime((Stage.R4, Stage.R5), "Master.place", 4, 1, 0.008, 0.008),
    ]


def test_a_subclass_that_overrides_is_measured_whole_and_its_super_once() -> None:
    clock = Clock()
    master = Careful(clock)
    found = watched(clock, master)
    master.place()
    assert without_calls(found.times()[1]) == StageTime((Stage.R4, Stage.R5), "Master.place", 1, 1, 0.007, 0.007)


def test_components_within_others_are_measured_and_strangers_are_not() -> None:
    clock = Clock()
    inner, stranger = Master(clock), Stranger()
    found = watched(clock, Around(inner), stranger)
    inner.place()
    stranger.place()
    assert [time.calls for time in found.times()] == [0, 1]
    assert type(stranger) is Stranger


def test_only_what_is_watched_pays() -> None:
    clock = Clock()
    free = Master(clock)
    found = watched(clock, Master(clock))
    free.on_submit(3)
    assert type(free) is Master
    assert [time.calls for time in found.times()] == [0, 0]


class Uneven(Master):
    """Takes as long as it is told."""

    __slots__ = ()

    def on_submit(self, places: int) -> int:
        self.clock.now += places
        return 0


def test_times_of_single_calls_are_told_to_eight_nanoseconds() -> None:
    clock = Clock()
    master = Uneven(clock)
    found = watched(clock, master)
    taken = [round(1.2**k) for k in range(100)]
    for nanoseconds in taken:
        master.on_submit(nanoseconds)
    expected = [taken[max(1, math.ceil(p * 100 / 100)) - 1] / 1e9 for p in PERCENTILES]
    assert found.times()[0].call_s == pytest.approx(expected, rel=0, abs=8.001e-9)
    assert found.times()[1].call_s == (), "never called"


def test_measuring_costs_something_and_little() -> None:
    assert 0 < sum(own_costs_s()) < 1e-3
