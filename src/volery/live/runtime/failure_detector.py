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

    __slots__ = (
        "down_since",
        "is_absent",
        "last_beat",
        "name",
        "number",
        "pairs",
        "proved_at",
        "sent_beats",
        "state",
        "up_since",
    )

    def __init__(self, name: HostName, pairs: tuple[WatchedPair, ...]) -> None:
        self.name = name
        self.pairs = pairs
        self.number = self.last_beat = 0
        self.sent_beats: deque[tuple[int, Time]] = deque(maxlen=REMEMBERED)
        self.proved_at: Time = 0
        self.state = UP
        self.is_absent = False
        self.down_since = self.up_since = 0


class FailureDetector:
    """All peers of a host that it shares watching pairs with.

    Attributes:
        news: Events for components; the host that handles them clears it.
        deadline_us: Time at which the next peer will be given up, unless it proves that it runs.
    """

    def __init__(self, watches: WatchList, send: Callable[[HostName, HostHeartbeat], None]) -> None:
        self.period_us = max(1, watches.detection_us // HEARTBEATS_PER_DETECTION)
        self.patience_us = patience_us(watches.detection_us)
        self.news: list[PeerNews] = []
        self._peers = {peer: _Peer(peer, tuple(pairs)) for peer, pairs in watches.pairs.items()}
        self._send = send
        self._is_watching = False
        self.deadline_us: Time = 0

    def watch(self, now: Time, absent: Collection[HostName] = ()) -> None:
        """Begin to give up peers, none before `patience_us` from now.

        Args:
            absent: Hosts that have not answered while this one opened. The submitter gets PeerLost of their components
                at once, so that it assigns them no jobs; others wait, as their own PeerLost may make tasks run again.
        """
        self._is_watching = True
        # A peer has the whole time from now on: its beats before were sent to a host that waited.
        for peer in self._peers.values():
            if peer.state != DOWN:
                peer.proved_at = now
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
        peer.sent_beats.append((peer.number, now))
        self._send(name, HostHeartbeat(peer.number, peer.last_beat, peer.state))

    def look(self, now: Time) -> None:
        """Give up each peer without a recent proof that it runs."""
        if not self._is_watching or now <= self.deadline_us:
            return

        for peer in self._peers.values():
            if peer.state != DOWN and now > peer.proved_at + self.patience_us:
                self._give_up(peer, peer.proved_at + self.patience_us)
        self._set_deadline(now)

    def _set_deadline(self, now: Time) -> None:
        if not self._is_watching:
            return

        proofs = [peer.proved_at for peer in self._peers.values() if peer.state != DOWN]
        self.deadline_us = min(proofs, default=now) + self.patience_us

    def _give_up(self, peer: _Peer, at: Time) -> None:
        log.warning("host %s is given up", peer.name)
        was_ready = peer.state == READY
        peer.state, peer.down_since = DOWN, peer.number + 1

        for pair in peer.pairs:
            # Coming back was half done: the second of each pair still counts the first as lost.
            if pair.first or not was_ready:
                self.news.append(PeerNews(pair.local, PeerLost(pair.remote), at))

    def receive(self, name: HostName, beat: HostHeartbeat, now: Time) -> None:
        """Take in a beat that was meant for this incarnation of the host."""
        peer = self._peers.get(name)
        if peer is None or beat.number <= peer.last_beat:
            return
        # What is due now is given up before this beat can prove anything.
        self.look(now)
        peer.last_beat = beat.number

        if peer.state == UP:
            if beat.state == UP:
                self._prove(peer, beat.echo)
            # The peer has given this host up, after this host was last up: it follows at once.
            elif beat.state == DOWN and beat.echo >= peer.up_since:
                self._give_up(peer, now)
        elif peer.state == DOWN:
            # The peer is not up either, and has received a beat of this outage: both ends know of it.
            if beat.state != UP and beat.echo >= peer.down_since:
                peer.state, peer.proved_at = READY, now
                self._welcome(peer, now, first=True)
                self._beat(name, peer, now)
        # The peer is ready or up: it, too, has seen the outage, and its masters have received PeerBack.
        elif beat.state != DOWN:
            log.warning("host %s is back", name)
            peer.state, peer.proved_at, peer.up_since = UP, now, peer.number + 1
            self._welcome(peer, now, first=False)
            self._beat(name, peer, now)

        self._set_deadline(now)

    def _prove(self, peer: _Peer, echo: int) -> None:
        # Only the time of sending counts: the echo proves that both ends received beats since then.
        for number, at in reversed(peer.sent_beats):
            if number == echo:
                peer.proved_at = max(peer.proved_at, at)
                return

    def _welcome(self, peer: _Peer, now: Time, *, first: bool) -> None:
        self.news += [PeerNews(pair.local, PeerBack(pair.remote), now) for pair in peer.pairs if pair.first == first]

    def met(self, name: HostName, was_known: bool, now: Time) -> None:
        """Take note of a peer that is met first, or has restarted: all components get PeerBack, lost or not."""
        peer = self._peers.get(name)
        if peer is None:
            return

        self.look(now)
        if was_known or peer.state != UP or peer.is_absent:
            self.news += [PeerNews(pair.local, PeerBack(pair.remote), now) for pair in peer.pairs]
        peer.is_absent = False
        peer.last_beat, peer.state, peer.proved_at, peer.up_since = 0, UP, now, peer.number + 1

        self._set_deadline(now)


def watched_by(
    watches: Iterable[tuple[Address, Address]], host_of: Mapping[Address, HostName], this_host_name: HostName
) -> dict[HostName, list[WatchedPair]]:
    """The pairs of a deployment of which one is on this host and the other elsewhere, by the other's host."""
    pairs_by_host: dict[HostName, list[WatchedPair]] = {}
    for first, second in watches:
        if host_of[first] == this_host_name != host_of[second]:
            pairs_by_host.setdefault(host_of[second], []).append(WatchedPair(first, second, first=True))
        elif host_of[second] == this_host_name != host_of[first]:
            pairs_by_host.setdefault(host_of[first], []).append(WatchedPair(second, first, first=False))
    return pairs_by_host


PRESENCE_S: Final = 1.0
MISSED_MAX: Final = 5
COUNTED_US: Final = 2_000_000
"""Jobs per component are counted at most so often: there may be a hundred thousand."""


def this_host() -> HostReport:
    return HostReport(volery.__version__, socket.gethostname(), os.getpid(), unix_now_us())


class _Entry:
    __slots__ = ("components", "heard_us", "incarnation", "missed", "nodes", "report")

    def __init__(self, addresses: Iterable[Address], nodes: Collection[Address]) -> None:
        all_addresses = list(addresses)
        self.nodes = frozenset(address for address in all_addresses if address in nodes)
        self.components = tuple(address for address in all_addresses if address not in nodes)
        self.report: HostReport | None = None
        self.heard_us: Time | None = None
        self.incarnation = self.missed = 0


class HostRegister:
    """All hosts of a federation, as the API's host receives messages from them.

    Args:
        layout: Addresses on each host.
        me: Name of the API's host.
        assigned: Gives the count of jobs assigned to each component, for the log.
    """

    def __init__(
        self,
        layout: Mapping[HostName, Iterable[Address]],
        nodes: Collection[Address],
        me: HostName,
        incarnation: int = 1,
        clock_us: Callable[[], Time] = unix_now_us,
        assigned: Callable[[], Mapping[Address, int]] = dict,
    ) -> None:
        self._assigned = assigned
        self._entries = {host: _Entry(addresses, nodes) for host, addresses in layout.items()}
        self._host_of = {node: host for host, entry in self._entries.items() for node in entry.nodes}
        self._me = me
        self._clock_us = clock_us
        self._began_us = clock_us()
        self._job_counts: Mapping[Address, int] = {}
        self._counted_us: Time | None = None
        self._lost_nodes: frozenset[Address] = frozenset()
        self.receive(me, this_host(), incarnation)

    def receive(self, host: HostName, report: HostReport, incarnation: int) -> None:
        """Take in a message of a host; only the host itself can have sent it."""
        entry = self._entries.get(host)
        if entry is None:
            return

        was_lost = entry.missed >= MISSED_MAX
        entry.report = report
        entry.heard_us = self._clock_us()
        entry.incarnation = incarnation
        entry.missed = 0

        if was_lost:
            log.warning("host %s (%s) answers again", host, _components_text(entry))
            self._count_lost()

    def miss(self, hosts: Collection[HostName]) -> None:
        """Count hosts as lost that have not answered while this one opened."""
        for host in hosts:
            entry = self._entries.get(host)
            if entry is not None and entry.report is None and entry.missed < MISSED_MAX:
                entry.missed = MISSED_MAX
                log.error("%s", self.absent_words(host, entry.components))
        self._count_lost()

    def check(self, shortage: str = "") -> None:
        """Count a check without a message for every other host, and log each that becomes lost.

        Args:
            shortage: Shortage of the API's host, in words; empty: none.
        """
        for host, entry in self._entries.items():
            if host == self._me:
                # This host receives no message of itself; it runs, as it checks.
                entry.heard_us = self._clock_us()
                entry.report = None if entry.report is None else structs.replace(entry.report, shortage=shortage)
                continue
            entry.missed += 1

            if entry.missed == MISSED_MAX:
                self._count_lost()
                log.error("%s", self.absent_words(host, entry.components))

    def _counts(self) -> Mapping[Address, int]:
        now_us = self._clock_us()
        # A clock that was set back makes the age negative: then they are counted again.
        if self._counted_us is None or not 0 <= now_us - self._counted_us < COUNTED_US:
            self._job_counts, self._counted_us = self._assigned(), now_us
        return self._job_counts

    def _count_lost(self) -> None:
        lost = [entry.nodes for entry in self._entries.values() if entry.missed >= MISSED_MAX]
        self._lost_nodes = frozenset[Address]().union(*lost)

    def absent_words(self, host: HostName, components: Collection[Address] = ()) -> str:
        """One sentence about a host that does not answer, and the jobs that are assigned to it."""
        entry = self._entries[host]
        assigned = self._counts()
        jobs = sum(assigned.get(address, 0) for address in entry.components)
        name = f"{', '.join(components)} (host {host})" if components else f"host {host} ({_components_text(entry)})"
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
        absent_hosts = [
            (host, entry)
            for host, entry in self._entries.items()
            if entry.missed >= MISSED_MAX or self._is_opening(entry) or self._shortage(entry)
        ]
        return [self.absent_words(host, entry.components) for host, entry in absent_hosts]

    def unanswering(self, component: Address) -> str:
        """One sentence about the host of a component that does not answer; empty while it does."""
        for host, entry in self._entries.items():
            if component in entry.components and (entry.missed >= MISSED_MAX or self._is_opening(entry)):
                return self.absent_words(host, [component])
        return ""

    @staticmethod
    def _waits_for(entry: _Entry) -> tuple[HostName, ...]:
        return () if entry.report is None else entry.report.waits_for

    def _is_opening(self, entry: _Entry) -> bool:
        return entry.missed < MISSED_MAX and bool(self._waits_for(entry))

    @staticmethod
    def _shortage(entry: _Entry) -> str:
        return "" if entry.report is None or entry.missed >= MISSED_MAX else entry.report.shortage

    @property
    def lost_nodes(self) -> frozenset[Address]:
        return self._lost_nodes

    def place_of(self, node: Address) -> tuple[HostName, str]:
        """The host of a node, and the hostname of its machine; empty where they are not known."""
        host = self._host_of.get(node, "")
        report = self._entries[host].report if host else None
        return host, report.hostname if report is not None else ""

    def statuses(self) -> list[HostStatus]:
        assigned = self._counts()
        return [self._status(host, entry, assigned) for host, entry in self._entries.items()]

    def _status(self, host: HostName, entry: _Entry, assigned: Mapping[Address, int]) -> HostStatus:
        report = entry.report
        state: HostState = "unseen" if report is None else "lost" if entry.missed >= MISSED_MAX else "up"
        if self._is_opening(entry):
            state = "opening"

        return HostStatus(
            name=host,
            state=state,
            components=entry.components,
            nodes=len(entry.nodes),
            jobs=sum(assigned.get(address, 0) for address in entry.components),
            heard_us=entry.heard_us,
            version=report.version if report is not None else "",
            incarnation=entry.incarnation,
            hostname=report.hostname if report is not None else "",
            pid=report.pid if report is not None else None,
            started_us=report.started_us if report is not None else None,
            waits_for=self._waits_for(entry),
        )


def _components_text(entry: _Entry) -> str:
    """Words for a host, as `gm/0, gm/1, 20 nodes`."""
    return held_by(entry.components, len(entry.nodes))


class Presence:
    """Sends the API's host the facts about this one; on the API's host it checks the register.

    Args:
        to: Name of the API's host.
        register: Register of all hosts, where this is the API's host.
    """

    def __init__(self, to: HostName, register: HostRegister | None = None) -> None:
        self._to = to
        self._register = register
        self._report = this_host()
        self._timer: asyncio.TimerHandle | None = None

    def start(
        self,
        send: Callable[[HostName, Message], None],
        absent: Callable[[], Collection[HostName]] = tuple,
        shortage: Callable[[], str] = str,
    ) -> None:
        """Begin, as soon as the host can send, and before it has opened.

        Args:
            send: Sends a message that is not repeated when it is lost.
            absent: Gives the hosts that this one waits for; none once it has opened.
            shortage: Gives the machine's shortage in words, see `HostReport`.
        """
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PRESENCE_S, self.start, send, absent, shortage)  # a failure ends nothing
        if self._register is None:
            send(self._to, structs.replace(self._report, waits_for=tuple(sorted(absent())), shortage=shortage()))
        elif not absent():
            self._register.check(shortage())

    def opened(self, absent: Collection[HostName]) -> None:
        """Note that this host has opened, without some hosts that have not answered."""
        if self._register is not None:
            self._register.miss(absent)

    def receive(self, host: HostName, report: HostReport, incarnation: int) -> None:
        if self._register is not None:
            self._register.receive(host, report, incarnation)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
