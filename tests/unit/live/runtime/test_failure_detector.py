"""Who is told of an outage, and when: both ends within the detection time; the node never before its master is back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volery.core.events import PeerBack, PeerLost
from volery.core.model import SUBMITTER, Time
from volery.live.messages import HostHeartbeat
from volery.live.runtime.failure_detector import (
    FIRST_MEETING_S,
    UNWATCHED_MEETING_S,
    FailureDetector,
    PeerNews,
    WatchedPair,
    WatchList,
    meeting_s,
    watched_by,
)

DETECTION = 1_200
LINK = 5


class Pair:
    """A master's host and a node's, with a clock and links that can be cut either way."""

    def __init__(self) -> None:
        self.now: Time = 0
        self.cut = {"master": False, "node": False}
        self.told: list[tuple[str, str, Time]] = []
        self._on_the_way: list[tuple[Time, str, HostHeartbeat]] = []
        self.stopped = ""
        pairs = {
            "master": WatchedPair("lm/0", "node/0", first=True),
            "node": WatchedPair("node/0", "lm/0", first=False),
        }
        self.ends = {name: self._end(name, pairs[name]) for name in pairs}
        self._next = dict.fromkeys(pairs, 0)

    def _end(self, name: str, pair: WatchedPair) -> FailureDetector:
        other = "node" if name == "master" else "master"

        def send(to: str, beat: HostHeartbeat) -> None:
            assert to == other
            if not self.cut[name]:
                self._on_the_way.append((self.now + LINK, other, beat))

        end = FailureDetector(WatchList({other: [pair]}, DETECTION), send)
        end.watch(self.now)
        return end

    def restart(self, name: str) -> None:
        other = "node" if name == "master" else "master"
        (pair,) = self.ends[name]._peers[other].pairs
        self.ends[name] = self._end(name, pair)
        self._on_the_way = [item for item in self._on_the_way if item[1] != name]
        self.ends[other].met(name, True, self.now)
        self._note()

    def run(self, until: Time) -> None:
        while self.now < until:
            self.now += 1
            arrived = [item for item in self._on_the_way if item[0] <= self.now and item[1] != self.stopped]
            for item in arrived:
                self._on_the_way.remove(item)
                other = "node" if item[1] == "master" else "master"
                self.ends[item[1]].receive(other, item[2], self.now)
            for name, end in self.ends.items():
                if name != self.stopped and self.now >= self._next[name]:
                    end.beat(self.now)
                    self._next[name] = self.now + end.period_us
                if name != self.stopped:
                    end.look(self.now)
            self._note()

    def _note(self) -> None:
        for name, end in self.ends.items():
            for news in end.news:
                assert isinstance(news, PeerNews)
                self.told.append((name, "lost" if isinstance(news.event, PeerLost) else "back", self.now))
                assert isinstance(news.event, PeerLost | PeerBack)
            end.news.clear()


def test_nobody_is_told_anything_while_all_is_well() -> None:
    pair = Pair()
    pair.run(20 * DETECTION)
    assert pair.told == []


@pytest.mark.parametrize("deaf", [("master",), ("node",), ("master", "node")], ids=str)
def test_both_ends_are_told_within_the_detection_time_and_the_master_is_told_first_that_it_is_over(
    deaf: tuple[str, ...],
) -> None:
    pair = Pair()
    pair.run(5 * DETECTION)
    for name in deaf:
        pair.cut[name] = True
    pair.run(8 * DETECTION)
    assert sorted((name, what) for name, what, _ in pair.told) == [("master", "lost"), ("node", "lost")]
    assert all(at <= 6 * DETECTION + DETECTION // 2 for _, _, at in pair.told)
    pair.told.clear()
    pair.cut = {"master": False, "node": False}
    pair.run(10 * DETECTION)
    assert [(name, what) for name, what, _ in pair.told] == [("master", "back"), ("node", "back")]
    assert pair.told[-1][2] < 8 * DETECTION + DETECTION


def test_a_host_that_was_stopped_learns_of_it_as_of_then_before_it_hears_anything() -> None:
    pair = Pair()
    pair.run(5 * DETECTION)
    pair.stopped = "node"
    pair.run(9 * DETECTION)
    assert [(name, what) for name, what, _ in pair.told] == [("master", "lost")]
    node = pair.ends["node"]
    pair.now += 1
    node.receive("master", HostHeartbeat(10**6, 0, 0), pair.now)
    (news,) = node.news
    assert isinstance(news.event, PeerLost)
    assert news.at <= 6 * DETECTION


def test_a_new_life_is_back_at_once_and_is_not_told_of_its_predecessor() -> None:
    pair = Pair()
    pair.run(5 * DETECTION)
    pair.restart("node")
    assert [(name, what) for name, what, _ in pair.told] == [("master", "back")]
    pair.told.clear()
    pair.run(9 * DETECTION)
    assert pair.told == []


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(
        st.tuples(st.integers(1, 900), st.sampled_from([(False, False), (True, False), (False, True), (True, True)])),
        min_size=1,
        max_size=12,
    )
)
def test_a_node_outlasts_its_master_by_a_detection_time_at_most(
    cuts: list[tuple[int, tuple[bool, bool]]],
) -> None:
    """Else the master could give the node's tasks up while the node still ran them."""
    pair = Pair()
    pair.run(DETECTION)
    for duration, (master, node) in cuts:
        pair.cut = {"master": master, "node": node}
        pair.run(pair.now + duration)
    pair.cut = {"master": False, "node": False}
    pair.run(pair.now + 4 * DETECTION)
    up = {"master": True, "node": True}
    lost_at: Time | None = None
    for name, what, at in pair.told:
        up[name] = what == "back"
        if name == "master":
            lost_at = None if up[name] else at
        if name == "node" and what == "back":
            assert up["master"]
        if name == "node" and what == "lost" and lost_at is not None:
            assert at <= lost_at + DETECTION
    assert up == {"master": True, "node": True}


def test_pairs_on_one_host_need_no_beats() -> None:
    where = {"lm/0": "a", "lm/0/standby": "b", "node/0": "a", "node/1": "b"}
    found = watched_by([("lm/0", "node/0"), ("lm/0", "node/1"), ("lm/0/standby", "node/0")], where, "a")
    assert found == {
        "b": [WatchedPair("lm/0", "node/1", first=True), WatchedPair("node/0", "lm/0/standby", first=False)],
    }


def detector(*remote: str, local: str = "lm/0") -> FailureDetector:
    pairs = {name: [WatchedPair(local, f"node/{name}", first=True)] for name in remote}
    return FailureDetector(WatchList(pairs, DETECTION), lambda to, beat: None)


def test_a_host_that_opens_gives_nobody_up_and_lets_them_have_their_whole_patience_then() -> None:
    end = detector("a")
    for now in range(0, 9 * DETECTION, DETECTION):
        end.beat(now)
        end.receive("a", HostHeartbeat(now + 1, 0, 0), now)
    end.watch(9 * DETECTION)
    end.look(9 * DETECTION + end.patience_us)
    assert not end.news
    end.look(9 * DETECTION + end.patience_us + 1)
    assert [news.event for news in end.news] == [PeerLost("node/a")]


def test_the_submitter_loses_those_at_once_that_were_absent_while_its_host_opened() -> None:
    end = detector("a", "b", local=SUBMITTER)
    end.watch(0, absent=["a"])
    assert [news.event for news in end.news] == [PeerLost("node/a")]
    end.met("a", was_known=False, now=1)
    assert end.news[1:] == [PeerNews(SUBMITTER, PeerBack("node/a"), 1)]


def test_a_master_does_not_lose_those_that_were_absent_while_its_host_opened() -> None:
    """They may be slow to start: their tasks would run again."""
    end = detector("a")
    end.watch(0, absent=["a"])
    assert not end.news


@pytest.mark.parametrize(
    ("watches", "incarnation", "limit_s"),
    [
        (WatchList({}, 2_000_000), 1, FIRST_MEETING_S),
        (WatchList({}, 2_000_000), 2, 2.0),
        (WatchList({}, 30_000_000), 1, 30.0),
        (None, 1, UNWATCHED_MEETING_S),
        (None, 7, UNWATCHED_MEETING_S),
    ],
)
def test_every_host_has_a_limit_for_its_wait_for_others(
    watches: WatchList | None, incarnation: int, limit_s: float
) -> None:
    assert meeting_s(watches, incarnation) == limit_s
