"""Journals of one federation, played again side by side in the order of time."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.component import Architecture, Component, Deployment
from volery.core.errors import InputError
from volery.core.model import Address, Cluster, Time
from volery.live.runtime.journal import RAISED, Header
from volery.live.runtime.port import Effect
from volery.live.runtime.replay import Chain, Player, chains, cut_hosts, hosted, plan_of

PROGRESS_S: Final = 0.2
Watch = Callable[[Header, Mapping[Address, Component], Time], None]
"""Called when a host begins, before its first event: its components, and its clock's time 0 since the first host's."""


class JournalSpan(msgspec.Struct, frozen=True):
    """The federation of journals, and the time that they span.

    Args:
        hosts: names of the hosts that have left a journal.
        machines: node address -> machine.
        first_us, end_us: times of the first and the last event, since the first host's time 0.
        deployment: all components, as they were built.
        origin_us: the first host's time 0, microseconds since 1970.
        cut: hosts with first files that are no longer kept.
    """

    federation: str
    architecture: str
    hosts: tuple[str, ...]
    cluster: Cluster
    machines: Mapping[Address, int]
    first_us: Time
    end_us: Time
    deployment: Deployment
    origin_us: Time
    cut: tuple[str, ...] = ()


class Journals:
    """The journals of a federation, with times that are aligned by wall clocks.

    Raises:
        InputError: a file is no journal, or of another federation or version than the first.
    """

    def __init__(self, paths: Sequence[Path], lookup: Callable[[str], Architecture]) -> None:
        self._lookup = lookup
        self._readers = chains(paths)
        first = self._readers[0]
        for reader in self._readers:
            if reader.header.configuration != first.header.configuration:
                raise InputError(str(reader.path), f"is of another federation than {first.path}; give those of one")
        self._origin_us = min(reader.header.origin_unix_us for reader in self._readers)

    def span(self) -> JournalSpan:
        """Read the times of all turns.

        Raises:
            InputError: no host has handled an event.
        """
        header, place = self._readers[0].header, str(self._readers[0].path)

        host_spans = [
            (times[0] + self._offset_us(reader), times[1] + self._offset_us(reader))
            for reader in self._readers
            if (times := reader.times()) is not None
        ]

        if not host_spans:
            raise InputError(place, "holds no event: the host ended before it began")
        deployment = plan_of(header, self._lookup, place).build()
        return JournalSpan(
            header.federation,
            header.architecture,
            tuple(sorted({reader.header.host for reader in self._readers})),
            header.cluster,
            deployment.machines,
            min(first for first, _ in host_spans),
            max(last for _, last in host_spans),
            deployment,
            self._origin_us,
            cut_hosts(self._readers),
        )

    def play(self, watch: Watch, moved: Callable[[Time, int], None] | None = None, until_us: Time | None = None) -> int:
        """Feed all events to fresh components, in the order of their times, and count them.

        Args:
            watch: see `Watch`.
            moved: called with the time and the number of events, several times a second.
            until_us: later events are left out.

        Raises:
            InputError: a journal does not replay.
        """
        turns = heapq.merge(*(self._turns(reader, watch) for reader in self._readers), key=lambda turn: turn[0])
        events = 0
        reported_s = time.monotonic()

        for now, feed in turns:
            if until_us is not None and now > until_us:
                break
            events += feed()
            if moved is not None and time.monotonic() - reported_s > PROGRESS_S:
                reported_s = time.monotonic()
                moved(now, events)

        return events

    def _offset_us(self, reader: Chain) -> Time:
        return reader.header.origin_unix_us - self._origin_us

    def _turns(self, reader: Chain, watch: Watch) -> Iterator[tuple[Time, Callable[[], int]]]:
        header, offset_us = reader.header, self._offset_us(reader)
        plan = plan_of(header, self._lookup, str(reader.path))
        effects: list[Effect] = []
        components, problems = hosted(reader, plan, effects)

        player: Player | None = None

        def feed(now: Time, entries: Sequence[tuple[Address, Address, Any, int]]) -> int:
            nonlocal player
            if player is None:
                watch(header, components, offset_us)
                player = Player(components, problems, effects)
            for address, source, event, expected in entries:
                if expected == RAISED:
                    break  # the last entry of a host that failed
                if player.feed(address, source, event, now) != expected:
                    raise InputError(str(reader.path), "does not replay; `volery replay` shows where")
                player.effects.clear()
            return len(entries)

        for now, entries in reader.turns(plan.architecture.messages):
            yield now + offset_us, partial(feed, now, entries)
