"""Presence of hosts: each sends the API's host a message a second, and that one keeps a register of all hosts.

The register decides nothing: it is what operators see. A host counts as lost after `MISSED_MAX` checks in a row without
a message. Checks are counted, and not seconds, so that a pause of the API's host makes no other host lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import volery
from volery.core.model import Address, Message, Time
from volery.live.messages import HostName, HostReport
from volery.live.status import HostState, HostStatus, held_by
from volery.live.times import unix_now_us
from volery.look.text import utc

PRESENCE_S: Final = 1.0
MISSED_MAX: Final = 5
COUNTED_US: Final = 2_000_000
"""Jobs per component are counted at most so often: there may be a hundred thousand."""

log = logging.getLogger(__name__)


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
        clock_us: microseconds since 1970.
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

    def check(self) -> None:
        """Count a check without a message for every other host, and log each that becomes lost."""
        for host, entry in self._entries.items():
            if host == self._me:
                entry.heard_us = self._clock_us()
                continue
            entry.missed += 1
            if entry.missed == MISSED_MAX:
                self._count_lost()
                log.error("%s", self.absent_words(host, entry.others))

    def _counts(self) -> Mapping[Address, int]:
        """Component -> jobs, as of not long ago."""
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
        since = (
            f"{verb} not answered since {utc(entry.heard_us)}" if entry.heard_us is not None
            else f"{verb} never answered since this API started at {utc(self._began_us)}"
        )  # fmt: skip
        return f"{name} {since}" + (f"; {jobs:,} jobs are assigned to it" if jobs else "")

    def absent(self) -> list[str]:
        """A sentence about each host that does not answer."""
        gone = [(host, entry) for host, entry in self._entries.items() if entry.missed >= MISSED_MAX]
        return [self.absent_words(host, entry.others) for host, entry in gone]

    @property
    def lost_nodes(self) -> frozenset[Address]:
        """The nodes on hosts that do not answer."""
        return self._lost_nodes

    def place_of(self, node: Address) -> tuple[HostName, str]:
        """The host of a node, and the hostname of its machine; empty where they are not known."""
        host = self._host_of.get(node, "")
        told = self._entries[host].told if host else None
        return host, told.hostname if told is not None else ""

    def statuses(self) -> list[HostStatus]:
        """All hosts, in the order of the federation's file."""
        assigned = self._counts()
        return [self._status(host, entry, assigned) for host, entry in self._entries.items()]

    def _status(self, host: HostName, entry: _Entry, assigned: Mapping[Address, int]) -> HostStatus:
        told = entry.told
        state: HostState = "unseen" if told is None else "lost" if entry.missed >= MISSED_MAX else "up"
        return HostStatus(
            name=host, state=state, components=entry.others, nodes=len(entry.nodes),
            jobs=sum(assigned.get(address, 0) for address in entry.others), heard_us=entry.heard_us,
            version=told.version if told is not None else "", incarnation=entry.incarnation,
            hostname=told.hostname if told is not None else "", pid=told.pid if told is not None else None,
            started_us=told.started_us if told is not None else None,
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

    def start(self, send: Callable[[HostName, Message], None]) -> None:
        """Begin; `send` sends a message that is not repeated when it is lost."""
        self._timer = asyncio.get_running_loop().call_later(PRESENCE_S, self.start, send)  # a failure ends nothing
        if self._register is not None:
            self._register.check()
        else:
            send(self._to, self._told)

    def receive(self, host: HostName, told: HostReport, incarnation: int) -> None:
        if self._register is not None:
            self._register.receive(host, told, incarnation)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
