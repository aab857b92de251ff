"""The state store and the policy generator, each alone."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone, messages
from tests.unit.effects import TimerSet

from volery.architectures.hydra.messages import (
    Directory,
    Entitle,
    Guarantee,
    Load,
    Locate,
    Located,
    News,
    PolicyUpdate,
    Read,
    SubclusterLoads,
)
from volery.architectures.hydra.store import guarantees, load_weights
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import SECOND, Cluster
from volery.roles.recovery.channel import Renewed

LOAD = Load(1, 2, 0, 5, ("",), (2,), (9,))


def store() -> Alone:
    return Alone("hydra", "store/0", Cluster.uniform(4), subclusters=2, routers=1, proxies=1)


def published(one: Alone) -> list[Any]:
    return messages(one.hear(TimerFired("publish"), "store/0"), Directory)


def test_the_first_home_counts() -> None:
    one = store()
    assert one.hear(Locate(1, 1), "router/0") == [("router/0", Located(1, 1))]
    assert one.hear(Locate(1, 0), "router/1") == [("router/1", Located(1, 1))]


def test_a_load_is_news_once_and_published_at_the_end_of_the_instant() -> None:
    one = store()
    assert messages(one.hear(LOAD, "rm/0"), News) == [("gpg/0", News())]
    assert not one.hear(LOAD, "rm/0"), "stale"
    assert not messages(one.hear(Load(1, 2, 1, 0, (), (), ()), "rm/1"), News), "not read yet"
    found = published(one)
    assert [to for to, _ in found] == ["router/0", "proxy/0/0", "proxy/1/0"]
    assert found[0][1] == Directory(1, (True, True), (1000, 1000), (0, 1))
    ((_, standing),) = messages(one.hear(Read(), "gpg/0"), SubclusterLoads)
    assert standing.loads[0] == LOAD
    assert messages(one.hear(Load(2, 2, 2, 0, (), (), ()), "rm/0"), News), "news again"


def test_membership_follows_lost_and_recovered_managers() -> None:
    one = store()
    one.hear(PeerLost("rm/1"), "store/0")
    assert published(one)[0][1].active == (True, False)
    assert not one.hear(PeerLost("rm/1"), "store/0"), "known"
    one.hear(PeerBack("rm/1"), "store/0")
    assert published(one)[0][1].active == (True, True)


def test_policies_are_sent_where_they_are_new_and_to_those_that_have_restarted() -> None:
    one, policy = store(), PolicyUpdate((500, 1000), (Guarantee("a", (1, 2)),))
    assert messages(one.hear(policy, "gpg/0"), Entitle) == [
        ("rm/0", Entitle(1, ("a",), (1,))),
        ("rm/1", Entitle(1, ("a",), (2,))),
    ]
    assert published(one)[0][1].weights == (500, 1000)
    assert not one.hear(policy, "gpg/0")
    one.hear(LOAD, "rm/1")
    assert one.hear(Renewed("rm/1"), "rm/1") == [("rm/1", Entitle(1, ("a",), (2,)))]
    assert messages(one.hear(LOAD, "rm/1"), News) == [], "its reports begin with number one; not read yet"
    ((to, directory),) = one.hear(Renewed("router/0"), "router/0")
    assert (to, directory.weights) == ("router/0", (500, 1000))


STORE = "store/0"
STANDING = SubclusterLoads((Load(1, 2, 0, 5, ("a",), (2,), (4,)), Load(1, 2, 2, 0, ("b",), (1,), (0,))), (True, True))


def generator(**parameters: Any) -> Alone:
    return Alone("hydra", "gpg/0", Cluster.uniform(4), subclusters=2, pending_low=0, pending_high=10, **parameters)


def test_it_looks_at_the_end_of_the_period_in_which_there_was_news() -> None:
    one = generator()
    assert one.hear(News(), STORE, now=3 * SECOND) == [TimerSet("look", 10 * SECOND)]
    assert not one.hear(News(), STORE, now=4 * SECOND), "it will look"
    assert one.hear(TimerFired("look"), "gpg/0", now=10 * SECOND) == [(STORE, Read())]
    assert one.hear(STANDING, STORE) == [(STORE, PolicyUpdate((500, 1000), ()))]


def test_guarantees_follow_demand_where_there_are_queues() -> None:
    ((_, policy),) = generator(queues="a:1+b:1", gpg="queues").hear(STANDING, STORE)
    assert policy.weights == (1000, 1000)
    assert policy.guarantees == (Guarantee("a", (2, 0)), Guarantee("b", (0, 1)))


def test_lost_subclusters_have_neither_slots_nor_demand() -> None:
    lost = SubclusterLoads(STANDING.loads, (True, False))
    ((_, policy),) = generator(queues="a:1+b:1").hear(lost, STORE)
    assert {each.queue: each.slots for each in policy.guarantees}["b"] == (1, 0), "its part of what is left"


def test_off_it_never_looks() -> None:
    assert not generator(gpg="off").hear(News(), STORE, now=SECOND)


def test_the_three_fullest_lose_weight_between_the_thresholds() -> None:
    """LoadBasedGlobalPolicy: 1 up to 100 waiting applications, 0 from 1,000, linear between."""
    assert load_weights([0, 100, 1000, 2000, 550], 100, 1000) == [1000, 1000, 0, 0, 500]
    assert load_weights([900, 901, 902, 903], 0, 10) == [1000, 0, 0, 0], "only three, the fullest"
    assert load_weights([5000, 5000], 100, 1000) == [1000, 1000], "all at 0 are all at 1"


def test_guarantees_are_max_min_fair_over_the_federation_not_in_each_subcluster() -> None:
    """A wants one sub-cluster only, B both: A is due half of all, which is the whole of that one."""
    laid = guarantees({"a": [30, 0], "b": [30, 30]}, {"a": 1, "b": 1}, [10, 10])
    assert laid == {"a": (10, 0), "b": (5, 5)}
    assert guarantees({"b": [4, 0]}, {"a": 1, "b": 3}, [8, 4])["a"] == (2, 1), "no demand: its part of each"
    assert guarantees({"a": [1, 1]}, {"a": 1}, [0, 0]) == {"a": (0, 0)}, "nothing is active"
