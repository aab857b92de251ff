"""Failure detector: heartbeats between hosts, PeerLost and PeerBack to components (docs/decisions/0010 and 0019).

A beat carries a number and the number of the last beat of the peer. An echo of one's own beat, from a peer that is up,
is the proof that both ends received each other's beats when that beat was sent; nothing else is. Without a proof for
`patience_us` a host is DOWN towards that peer: its components get PeerLost, and its beats prove nothing any more, so
that the peer follows within the same time.

Coming back takes two steps. DOWN > READY when the peer has seen the outage and is not up either: the first of each
watching pair, the master, gets PeerBack. READY > UP when the peer is READY, too: the second, the node, gets it. So a
node never takes up a lease that its master still counts as broken. A new incarnation of the peer is up at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from volery.core.events import PeerBack, PeerLost
from volery.core.model import SECOND, Address, Time
from volery.live.config.plan import HEARTBEATS_PER_DETECTION, patience_us
from volery.live.messages import HostHeartbeat, HostName

UP: Final = 0
DOWN: Final = 1
READY: Final = 2

log = logging.getLogger(__name__)

REMEMBERED: Final = 64
FIRST_MEETING_S: Final = 10.0
"""Hosts wait so long for each other in their first incarnations."""


class WatchedPair(NamedTuple):
    """A component here and one on the peer that watch each other; the `first` of a pair gets PeerBack first."""

    local: Address
    remote: Address
    first: bool


class WatchList(NamedTuple):
    """The watching pairs of a host by the other's host, and the time within which both ends get PeerLost."""

    pairs: Mapping[HostName, Iterable[WatchedPair]]
    detection_us: Time

    def meeting_s(self, incarnation: int) -> float:
        """The time in seconds that a host which starts waits for the others.

        Where hosts are expected to fail, one that comes back cannot wait for another that is away. In their first
        incarnations nothing is lost by waiting, and hosts that start late are not given up.
        """
        limit_s = self.detection_us / SECOND
        return max(limit_s, FIRST_MEETING_S) if incarnation == 1 else limit_s


class PeerNews(NamedTuple):
    """News about a peer for a component, and since when it holds."""

    to: Address
    event: PeerLost | PeerBack
    at: Time


class _Peer:
    """One peer; the numbers are those of the beats with which this host entered its states."""

    __slots__ = ("began", "heard", "name", "number", "pairs", "proof", "sent", "state", "up_since")

    def __init__(self, name: HostName, pairs: tuple[WatchedPair, ...], now: Time) -> None:
        self.name = name
        self.pairs = pairs
        self.number = self.heard = 0
        self.sent: deque[tuple[int, Time]] = deque(maxlen=REMEMBERED)
        self.proof = now
        self.state = UP
        self.began = self.up_since = 0


class FailureDetector:
    """All peers of a host that it shares watching pairs with.

    Args:
        now: the time of the start; no peer is given up before `patience_us` from then.

    Attributes:
        news: events for components; the host that handles them clears it.
        deadline_us: when the next peer will be given up, unless it proves that it runs.
        period_us: between two beats.
    """

    def __init__(
        self,
        watches: WatchList,
        now: Time,
        send: Callable[[HostName, HostHeartbeat], None],
    ) -> None:
        self.period_us = max(1, watches.detection_us // HEARTBEATS_PER_DETECTION)
        self.patience_us = patience_us(watches.detection_us)
        self.news: list[PeerNews] = []
        self._peers = {peer: _Peer(peer, tuple(listed), now) for peer, listed in watches.pairs.items()}
        self._send = send
        self.deadline_us = now + self.patience_us

    def beat(self, now: Time) -> None:
        """Send a heartbeat to all peers."""
        self.look(now)
        for name, peer in self._peers.items():
            self._beat(name, peer, now)

    def _beat(self, name: HostName, peer: _Peer, now: Time) -> None:
        peer.number += 1
        peer.sent.append((peer.number, now))
        self._send(name, HostHeartbeat(peer.number, peer.heard, peer.state))

    def look(self, now: Time) -> None:
        """Give up each peer without a recent proof that it runs."""
        if now <= self.deadline_us:
            return
        for peer in self._peers.values():
            if peer.state != DOWN and now > peer.proof + self.patience_us:
                self._give_up(peer, peer.proof + self.patience_us)
        self._set_deadline(now)

    def _set_deadline(self, now: Time) -> None:
        proofs = [peer.proof for peer in self._peers.values() if peer.state != DOWN]
        self.deadline_us = min(proofs, default=now) + self.patience_us

    def _give_up(self, peer: _Peer, at: Time) -> None:
        log.warning("host %s is given up", peer.name)
        was_ready = peer.state == READY
        peer.state, peer.began = DOWN, peer.number + 1
        for pair in peer.pairs:
            if pair.first or not was_ready:
                self.news.append(PeerNews(pair.local, PeerLost(pair.remote), at))

    def receive(self, name: HostName, beat: HostHeartbeat, now: Time) -> None:
        """Take in a beat that was meant for this incarnation of the host."""
        peer = self._peers.get(name)
        if peer is None or beat.number <= peer.heard:
            return
        self.look(now)
        peer.heard = beat.number
        if peer.state == UP:
            if beat.state == UP:
                self._prove(peer, beat.echo)
            elif beat.state == DOWN and beat.echo >= peer.up_since:
                self._give_up(peer, now)
        elif peer.state == DOWN:
            if beat.state != UP and beat.echo >= peer.began:
                peer.state, peer.proof = READY, now
                self._welcome(peer, now, first=True)
                self._beat(name, peer, now)
        elif beat.state != DOWN:
            log.warning("host %s is back", name)
            peer.state, peer.proof, peer.up_since = UP, now, peer.number + 1
            self._welcome(peer, now, first=False)
            self._beat(name, peer, now)
        self._set_deadline(now)

    def _prove(self, peer: _Peer, echo: int) -> None:
        for number, at in reversed(peer.sent):
            if number == echo:
                peer.proof = max(peer.proof, at)
                return

    def _welcome(self, peer: _Peer, now: Time, *, first: bool) -> None:
        self.news += [PeerNews(pair.local, PeerBack(pair.remote), now) for pair in peer.pairs if pair.first == first]

    def met(self, name: HostName, known: bool, now: Time) -> None:
        """Take note of a peer that is met first, or has restarted: all components get PeerBack, lost or not."""
        peer = self._peers.get(name)
        if peer is None:
            return
        self.look(now)
        if known or peer.state != UP:
            self.news += [PeerNews(pair.local, PeerBack(pair.remote), now) for pair in peer.pairs]
        peer.heard, peer.state, peer.proof, peer.up_since = 0, UP, now, peer.number + 1
        self._set_deadline(now)


def watched_by(
    watches: Iterable[tuple[Address, Address]], where: Mapping[Address, HostName], me: HostName
) -> dict[HostName, list[WatchedPair]]:
    """The pairs of a deployment of which one is on this host and the other elsewhere, by the other's host."""
    found: dict[HostName, list[WatchedPair]] = {}
    for first, second in watches:
        if where[first] == me != where[second]:
            found.setdefault(where[second], []).append(WatchedPair(first, second, first=True))
        elif where[second] == me != where[first]:
            found.setdefault(where[first], []).append(WatchedPair(second, first, first=False))
    return found
