"""The policy generator alone: it looks when there is news, and sets weights and guarantees."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone

from volery.architectures.hydra.messages import Guarantee, Load, News, Policy, Read, Standing
from volery.core.events import TimerFired
from volery.core.model import SECOND, Cluster
from volery.sim.effects import TimerSet

STORE = "store/0"
STANDING = Standing((Load(1, 2, 0, 5, ("a",), (2,), (4,)), Load(1, 2, 2, 0, ("b",), (1,), (0,))), (True, True))


def generator(**parameters: Any) -> Alone:
    return Alone("hydra", "gpg/0", Cluster.uniform(4), subclusters=2, pending_low=0, pending_high=10, **parameters)


def test_it_looks_at_the_end_of_the_period_in_which_there_was_news() -> None:
    one = generator()
    assert one.hear(News(), STORE, now=3 * SECOND) == [TimerSet("look", 10 * SECOND)]
    assert not one.hear(News(), STORE, now=4 * SECOND), "it will look"
    assert one.hear(TimerFired("look"), "gpg/0", now=10 * SECOND) == [(STORE, Read())]
    assert one.hear(STANDING, STORE) == [(STORE, Policy((500, 1000), ()))]


def test_guarantees_follow_demand_where_there_are_queues() -> None:
    ((_, policy),) = generator(queues="a:1+b:1", gpg="queues").hear(STANDING, STORE)
    assert policy.weights == (1000, 1000)
    assert policy.guarantees == (Guarantee("a", (2, 0)), Guarantee("b", (0, 1)))


def test_lost_subclusters_have_neither_slots_nor_demand() -> None:
    lost = Standing(STANDING.loads, (True, False))
    ((_, policy),) = generator(queues="a:1+b:1").hear(lost, STORE)
    assert {each.queue: each.slots for each in policy.guarantees}["b"] == (1, 0), "its part of what is left"


def test_off_it_never_looks() -> None:
    assert not generator(gpg="off").hear(News(), STORE, now=SECOND)
