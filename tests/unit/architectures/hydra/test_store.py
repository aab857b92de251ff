"""The state store alone: homes, loads, the directory and entitlements."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone, messages

from volery.architectures.hydra.messages import (
    Directory,
    Entitle,
    Guarantee,
    Load,
    Locate,
    Located,
    News,
    Policy,
    Read,
    Standing,
)
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import Cluster
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
    ((_, standing),) = messages(one.hear(Read(), "gpg/0"), Standing)
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
    one, policy = store(), Policy((500, 1000), (Guarantee("a", (1, 2)),))
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
