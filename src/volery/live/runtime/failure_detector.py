"""Failure detector: heartbeats between hosts, PeerLost and PeerBack to components (docs/decisions/0010 and 0019).

A beat carries a number and the number of the last beat of the peer. An echo of one's own beat, from a peer that is up,
is the proof that both ends received each other's beats when that beat was sent; nothing else is. Without a proof for
`patience_us` a host is DOWN towards that peer: its components get PeerLost, and its beats prove nothing any more, so
that the peer follows within the same time.

Coming back takes two steps. DOWN > READY when the peer has seen the outage and is not up either: the first of each
watching pair, the master, gets PeerBack. READY > UP when the peer is READY, too: the second, the node, gets it. So a
node never takes up a lease that its master still counts as broken. A new incarnation of the peer is up at once.

A host beats from the moment at which it begins to open, so that its peers do not give it up while it waits for others;
it gives up nobody itself before it has opened.

For operators each host also sends the API's host a message a second, and that one keeps a register of all hosts, which
decides nothing. A host counts as lost after `MISSED_MAX` checks in a row without a message. Checks are counted, and not
seconds, so that a pause of the API's host makes no other host lost. A host that has not opened names those that it
waits for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import structs

import volery
from volery.core.events import PeerBack, PeerLost
from volery.core.model import SECOND, SUBMITTER, Address, Message, Time
from volery.live.clock import unix_now_us
from volery.live.config.plan import HEARTBEATS_PER_DETECTION, patience_us
from volery.live.messages import HostHeartbeat, HostName, HostReport
from volery.live.status import HostState, HostStatus, held_by
from volery.look.text import utc

UP: Final = 0
DOWN: Final = 1
READY: Final = 2

log = logging.getLogger(__name__)

REMEMBERED: Final = 64
FIRST_MEETING_S: Final = 10.0
"""Hosts wait so long for each other in their first incarnations."""
UNWATCHED_MEETING_S: Final = 60.0
"""Hosts of a design that does not recover from their failure wait so long: frames for one that comes later are kept."""


class WatchedPair(NamedTuple):
    """A component here and one on the peer that watch each other; the `first` of a pair gets PeerBack first."""

    local: Address
    remote: Address
    first: bool


class WatchList(NamedTuple):
    """The watching pairs of a host by the other's host, and the time within which both ends get PeerLost."""

    pairs: Mapping[HostName, Iterable[WatchedPair]]
    detection_us: Time


def meeting_s(watches: WatchList | None, incarnation: int) -> float:
    """The time in seconds that a host which opens waits for the others.

    Where hosts are expected to fail, one that comes back cannot wait for another that is away. In their first
    incarnations nothing is lost by waiting, and hosts that start late are not given up.
    """
    if watches is None:
        return UNWATCHED_MEETING_S
    limit_s = watches.detection_us / SECOND
    return max(limit_s, FIRST_MEETING_S) if incarnation == 1 else limit_s


class PeerNews(NamedTuple):
    """News about a peer for a component, and since when it holds."""

    to: Address
    event: PeerLost | PeerBack
    at: Time


class _Peer:
    """One peer; the numbers are those of the beats with which this host entered its states."""

    __slots__ = ("began", "heard", "is_absent", "name", "number", "pairs", "proof", "sent", "state", "up_since")

    def __init__(self, name: HostName, pairs: tuple[WatchedPair, ...]) -> None:
        self.name = name
        self.pairs = pairs
        self.number = self.heard = 0
        self.sent: deque[tuple[int, Time]] = deque(maxlen=REMEMBERED)
        self.proof: Time = 0
        self.state = UP
        self.is_absent = False
        self.began = self.up_since = 0


class FailureDetector:
    """All peers of a host that it shares watching pairs with.

    Attributes:
        news: events for components; the host that handles them clears it.
        deadline_us: when the next peer will be given up, unless it proves that it runs.
    """

    def __init__(self, watches: WatchList, send: Callable[[HostName, HostHeartbeat], None]) -> None:
        self.period_us = max(1, watches.detection_us // HEARTBEATS_PER_DETECTION)
        self.patience_us = patience_us(watches.detection_us)
        self.news: list[PeerNews] = []
        self._peers = {peer: _Peer(peer, tuple(listed)) for peer, listed in watches.pairs.items()}
        self._send = send
        self._is_watching = False
        self.deadline_us: Time = 0

    def watch(self, now: Time, absent: Collection[HostName] = ()) -> None:
        """Begin to give up peers, none before `patience_us` from now.

        Args:
            absent: hosts that have not answered while this one opened. The submitter gets PeerLost of their components
                at once, so that it assigns them no jobs; others wait, as their own PeerLost may make tasks run again.
        """
        self._is_watching = True
        for peer in self._peers.values():
            if peer.state != DOWN:
                peer.proof = now
            if peer.name in absent and peer.state == UP:
                peer.is_absent = True
                self.news += [
                    PeerNews(pair.local, PeerLost(pair.remote), now) for pair in peer.pairs if pair.local == SUBMITTER
                ]
        self._set_deadline(now)

    def beat(self, now: Time) -> None:
        self.look(now)
        for name, peer in self._peers.items():
            self._beat(name, peer, now)

    def _beat(self, name: HostName, peer: _Peer, now: Time) -> None:
        peer.number += 1
        peer.sent.append((peer.number, now))
        self._send(name, HostHeartbeat(peer.number, peer.heard, peer.state))

    def look(self, now: Time) -> None:
        """Give up each peer without a recent proof that it runs."""
        if not self._is_watching or now <= self.deadline_us:
            return
        for peer in self._peers.values():
            if peer.state != DOWN and now > peer.proof + self.patience_us:
                self._give_up(peer, peer.proof + self.patience_us)
        self._set_deadline(now)

    def _set_deadline(self, now: Time) -> None:
        if not self._is_watching:
            return
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
        if known or peer.state != UP or peer.is_absent:
            self.news += [PeerNews(pair.local, PeerBack(pair.remote), now) for pair in peer.pairs]
        peer.is_absent = False
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


PRESENCE_S: Final = 1.0
MISSED_MAX: Final = 5
COUNTED_US: Final = 2_000_000
"""Jobs per component are counted at most so often: there may be a hundred thousand."""


def this_host() -> HostReport:
    return HostReport(volery.__version__, socket.gethostname(), os.getpid(), unix_now_us())


class _Entry:
    __slots__ = ("heard_us", "incarnation", "missed", "nodes", "others", "told")

    def __init__(self, addresses: Iterable[Address], nodes: Collection[Address]) -> None:
        listed = list(addresses)
        self.nodes = frozenset(address for address in listed if address in nodes)
        self.others = tuple(address for address in listed if address not in nodes)
        self.told: HostReport | None = None
        self.heard_us: Time | None = None
        self.incarnation = self.missed = 0


class HostRegister:
    """All hosts of a federation, as the API's host receives messages from them.

    Args:
        layout: host -> addresses on it.
        me: the API's host.
        assigned: gives how many jobs are assigned to a component, for the log.
    """

    def __init__(
        self, layout: Mapping[HostName, Iterable[Address]], nodes: Collection[Address], me: HostName,
        incarnation: int = 1, clock_us: Callable[[], Time] = unix_now_us,
        assigned: Callable[[], Mapping[Address, int]] = dict,
    ) -> None:  # fmt: skip
        self._assigned = assigned
        self._entries = {host: _Entry(addresses, nodes) for host, addresses in layout.items()}
        self._host_of = {node: host for host, entry in self._entries.items() for node in entry.nodes}
        self._me = me
        self._clock_us = clock_us
        self._began_us = clock_us()
        self._counted: Mapping[Address, int] = {}
        self._counted_us: Time | None = None
        self._lost_nodes: frozenset[Address] = frozenset()
        self.receive(me, this_host(), incarnation)

    def receive(self, host: HostName, told: HostReport, incarnation: int) -> None:
        """Take in a message of a host; only the host itself can have sent it."""
        entry = self._entries.get(host)
        if entry is None:
            return
        was_lost = entry.missed >= MISSED_MAX
        entry.told, entry.heard_us, entry.incarnation, entry.missed = told, self._clock_us(), incarnation, 0
        if was_lost:
            log.warning("host %s (%s) answers again", host, _held(entry))
            self._count_lost()

    def miss(self, hosts: Collection[HostName]) -> None:
        """Count hosts as lost that have not answered while this one opened."""
        for host in hosts:
            entry = self._entries.get(host)
            if entry is not None and entry.told is None and entry.missed < MISSED_MAX:
                entry.missed = MISSED_MAX
                log.error("%s", self.absent_words(host, entry.others))
        self._count_lost()

    def check(self, shortage: str = "") -> None:
        """Count a check without a message for every other host, and log each that becomes lost.

        Args:
            shortage: what the machine of the API's host lacks.
        """
        for host, entry in self._entries.items():
            if host == self._me:
                entry.heard_us = self._clock_us()
                entry.told = None if entry.told is None else structs.replace(entry.told, shortage=shortage)
                continue
            entry.missed += 1
            if entry.missed == MISSED_MAX:
                self._count_lost()
                log.error("%s", self.absent_words(host, entry.others))

    def _counts(self) -> Mapping[Address, int]:
        now_us = self._clock_us()
        if self._counted_us is None or not 0 <= now_us - self._counted_us < COUNTED_US:
            self._counted, self._counted_us = self._assigned(), now_us
        return self._counted

    def _count_lost(self) -> None:
        lost = [entry.nodes for entry in self._entries.values() if entry.missed >= MISSED_MAX]
        self._lost_nodes = frozenset[Address]().union(*lost)

    def absent_words(self, host: HostName, components: Collection[Address] = ()) -> str:
        """One sentence about a host that does not answer, and the jobs that are assigned to it."""
        entry, assigned = self._entries[host], self._counts()
        jobs = sum(assigned.get(address, 0) for address in entry.others)
        name = f"{', '.join(components)} (host {host})" if components else f"host {host} ({_held(entry)})"
        verb = "have" if len(components) > 1 else "has"
        if self._is_opening(entry):
            state = f"{verb} not opened yet, waiting for {', '.join(self._waits_for(entry))}"
        elif shortage := self._shortage(entry):
            state = f"{verb} to wait, {shortage}"
        elif entry.heard_us is not None:
            state = f"{verb} not answered since {utc(entry.heard_us)}"
        else:
            state = f"{verb} never answered since this API started at {utc(self._began_us)}"
        return f"{name} {state}" + (f"; {jobs:,} jobs are assigned to it" if jobs else "")

    def absent(self) -> list[str]:
        gone = [
            (host, entry) for host, entry in self._entries.items()
            if entry.missed >= MISSED_MAX or self._is_opening(entry) or self._shortage(entry)
        ]  # fmt: skip
        return [self.absent_words(host, entry.others) for host, entry in gone]

    def unanswering(self, component: Address) -> str:
        """One sentence about the host of a component that does not answer; empty while it does."""
        for host, entry in self._entries.items():
            if component in entry.others and (entry.missed >= MISSED_MAX or self._is_opening(entry)):
                return self.absent_words(host, [component])
        return ""

    @staticmethod
    def _waits_for(entry: _Entry) -> tuple[HostName, ...]:
        return () if entry.told is None else entry.told.waits_for

    def _is_opening(self, entry: _Entry) -> bool:
        return entry.missed < MISSED_MAX and bool(self._waits_for(entry))

    @staticmethod
    def _shortage(entry: _Entry) -> str:
        return "" if entry.told is None or entry.missed >= MISSED_MAX else entry.told.shortage

    @property
    def lost_nodes(self) -> frozenset[Address]:
        return self._lost_nodes

    def place_of(self, node: Address) -> tuple[HostName, str]:
        """The host of a node, and the hostname of its machine; empty where they are not known."""
        host = self._host_of.get(node, "")
        told = self._entries[host].told if host else None
        return host, told.hostname if told is not None else ""

    def statuses(self) -> list[HostStatus]:
        assigned = self._counts()
        return [self._status(host, entry, assigned) for host, entry in self._entries.items()]

    def _status(self, host: HostName, entry: _Entry, assigned: Mapping[Address, int]) -> HostStatus:
        told = entry.told
        state: HostState = "unseen" if told is None else "lost" if entry.missed >= MISSED_MAX else "up"
        if self._is_opening(entry):
            state = "opening"
        return HostStatus(
            name=host, state=state, components=entry.others, nodes=len(entry.nodes),
            jobs=sum(assigned.get(address, 0) for address in entry.others), heard_us=entry.heard_us,
            version=told.version if told is not None else "", incarnation=entry.incarnation,
            hostname=told.hostname if told is not None else "", pid=told.pid if told is not None else None,
            started_us=told.started_us if told is not None else None, waits_for=self._waits_for(entry),
        )  # fmt: skip


def _held(entry: _Entry) -> str:
    """Words for a host, as `gm/0, gm/1, 20 nodes`."""
    return held_by(entry.others, len(entry.nodes))


class Presence:
    """Sends the API's host the facts about this one; on the API's host it checks the register.

    Args:
        to: the API's host.
        register: where this is that host.
    """

    def __init__(self, to: HostName, register: HostRegister | None = None) -> None:
        self._to = to
        self._register = register
        self._told = this_host()
        self._timer: asyncio.TimerHandle | None = None

    def start(
        self, send: Callable[[HostName, Message], None], absent: Callable[[], Collection[HostName]] = tuple,
        shortage: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """Begin, as soon as the host can send, and before it has opened.

        Args:
            send: sends a message that is not repeated when it is lost.
            absent: gives the hosts that this one waits for; none once it has opened.
            shortage: gives what the machine lacks, see `HostReport`.
        """
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PRESENCE_S, self.start, send, absent, shortage)  # a failure ends nothing
        if self._register is None:
            send(self._to, structs.replace(self._told, waits_for=tuple(sorted(absent())), shortage=shortage()))
        elif not absent():
            self._register.check(shortage())

    def opened(self, absent: Collection[HostName]) -> None:
        """Note that this host has opened, without some hosts that have not answered."""
        if self._register is not None:
            self._register.miss(absent)

    def receive(self, host: HostName, told: HostReport, incarnation: int) -> None:
        if self._register is not None:
            self._register.receive(host, told, incarnation)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
