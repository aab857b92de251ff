"""Replay: feed a journal to fresh components and demand the effects that it holds.

A journal that replays proves that the components are what they promise: they read no clock, draw no number and get
nothing but events. A difference means that the code, or something outside it, has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from volery.core.component import Architecture, Component, UnknownMessageError
from volery.core.errors import InputError
from volery.core.events import Computed, TaskFinished
from volery.core.model import Address, Key, Message, Task, TaskId, Time
from volery.live.config.plan import FederationPlan
from volery.live.runtime.journal import (
    RAISED,
    SUFFIX,
    Header,
    JournalReader,
    JournalTurn,
    OtherVersionError,
    Started,
    journal_order,
    snapshot_path,
)
from volery.live.runtime.port import COMPUTE, LAUNCH, Effect, LivePort, checksum
from volery.live.runtime.snapshots import Hosted, first_difference, read_snapshot

SHOWN_MAX: Final = 20
"""Effects of a difference that are spelled out."""


class ReplayDifference(msgspec.Struct, frozen=True):
    """The first event whose effects differ from those in the journal.

    Args:
        place: of the event in the journal, from 1.
        now_us: when it was handled.
        effects: what the component asks for now, as text, at most 20.
    """

    place: int
    now_us: Time
    address: Address
    source: Address
    event: str
    effects: tuple[str, ...]
    problem: str


class Replayed(msgspec.Struct, frozen=True):
    """The result of replaying one journal.

    Args:
        events: how many were fed.
        span_us: the time of the last event.
        torn_bytes: how much of the end a crash has torn off.
        difference: the first one; None where all effects are equal.
        segment: the place of the file among those of the incarnation, from 0; the others begin with a snapshot.
        left_out: the sign that another version wrote it; empty where it was replayed.
    """

    path: str
    host: str
    incarnation: int
    architecture: str
    events: int
    span_us: Time
    torn_bytes: int
    difference: ReplayDifference | None = None
    segment: int = 0
    left_out: str = ""


Witness = Callable[[Time, Address, Address, Any, "list[Effect]", float], None]
"""Called after every event: time, component, source, event, effects, and the seconds that it took."""


def plan_of(header: Header, lookup: Callable[[str], Architecture], place: str) -> FederationPlan:
    """The architecture, parameters and cluster of a journal's host.

    Args:
        lookup: name -> architecture.
        place: what errors call the journal.

    Raises:
        OtherVersionError: the architecture has other parameters now.
        InputError: the registry has no such architecture.
    """
    architecture = lookup(header.architecture)
    try:
        config = msgspec.convert(header.parameters, type(architecture.defaults))
    except msgspec.ValidationError as error:
        raise OtherVersionError(place, f"{header.architecture} has other parameters now: {error}") from None
    plan = FederationPlan(architecture, config, header.cluster, header.seed)
    if plan.configuration != header.configuration:
        problem = f"{header.architecture} has other parameters now than when the journal was written"
        raise OtherVersionError(place, problem)
    return plan


class Player:
    """Components, fed one event at a time.

    Args:
        components: by address; never started, or of a snapshot.
        problems: those whose answers come later.
        effects: what the last event's component has asked for; whoever feeds clears it before the next.
    """

    def __init__(
        self, components: dict[Address, Component], problems: Mapping[tuple[Address, Key], Any] = {},
        effects: list[Effect] | None = None,
    ) -> None:  # fmt: skip
        self.effects: list[Effect] = [] if effects is None else effects
        self._components = components
        self._problems = dict(problems)
        self._launched: dict[tuple[Address, TaskId, int], Task] = {}
        for address, component in components.items():
            component.bind(LivePort(address, self.effects))

    def differs(self, other: Player) -> str:
        """The first field in which the state of another player differs; empty where there is none."""
        return first_difference((self._components, self._problems), (other._components, other._problems))

    def feed(self, address: Address, source: Address, event: Any, now: Time, *, refused: bool = True) -> int:
        """Handle an event; the checksum of what the component asked for.

        An event of an unknown type was refused where another host had sent it; otherwise it has ended its host.
        """
        component = self._components[address]
        if type(event) is Started:
            component.start(now)
        else:
            if type(event) is Computed:
                problem = self._problems.pop((address, event.key))
                event = Computed(event.key, problem.solve(problem.argument))
            elif type(event) is TaskFinished:
                event = self._whole(address, event)
            try:
                component.handle(event, source, now)
            except UnknownMessageError:
                if not refused:
                    raise
        for effect in self.effects:
            if effect[0] == COMPUTE:
                self._problems[address, effect[1]] = effect[2]
            elif effect[0] == LAUNCH and effect[1].payload:
                self._launched[address, effect[1].id, effect[2]] = effect[1]
        return checksum(self.effects)

    def _whole(self, address: Address, event: TaskFinished) -> TaskFinished:
        """The end of an attempt with the payload that the journal has left out, see `JournalWriter.event`."""
        task = self._launched.pop((address, event.task.id, event.attempt), None)
        if task is None or event.task.payload:
            return event
        return msgspec.structs.replace(event, task=msgspec.structs.replace(event.task, payload=task.payload))


class Chain:
    """Files of one incarnation of a host that follow each other.

    Args:
        readers: in order; the first is the incarnation's first, or has a snapshot.

    Attributes:
        path, header: of the first file.
    """

    def __init__(self, readers: Sequence[JournalReader]) -> None:
        self.readers = readers
        self.path, self.header = readers[0].path, readers[0].header

    def turns(self, messages: Iterable[type[Message]]) -> Iterator[JournalTurn]:
        known = tuple(messages)
        return chain.from_iterable(reader.turns(known) for reader in self.readers)

    def times(self) -> tuple[Time, Time] | None:
        found = [times for reader in self.readers if (times := reader.times()) is not None]
        return (found[0][0], found[-1][1]) if found else None


def chains(paths: Iterable[Path]) -> list[Chain]:
    """Journals with their files put together, by host, incarnation and segment.

    Raises:
        InputError: a file is no journal, or continues one that is not there and has no snapshot.
    """
    return _chained(map(JournalReader, paths))


def _chained(readers: Iterable[JournalReader]) -> list[Chain]:
    found: list[list[JournalReader]] = []
    for reader in sorted(readers, key=lambda one: _order(one.header)):
        host, incarnation, segment = _order(reader.header)
        if found and _order(found[-1][-1].header) == (host, incarnation, segment - 1):
            found[-1].append(reader)
            continue
        if segment and not snapshot_path(reader.path).exists():
            missing = snapshot_path(reader.path).name
            problem = f"continues an earlier file; give that one, too, or its snapshot, {missing}, beside it"
            raise InputError(str(reader.path), problem)
        found.append([reader])
    return [Chain(readers) for readers in found]


def cut_hosts(kept: Iterable[Chain]) -> tuple[str, ...]:
    """Hosts with a journal whose first files are no longer kept."""
    return tuple(sorted({one.header.host for one in kept if one.header.segment}))


def _order(header: Header) -> tuple[str, int, int]:
    return header.host, header.incarnation, header.segment


def hosted(reader: JournalReader | Chain, plan: FederationPlan, effects: list[Effect]) -> Hosted:
    """Components, and problems whose answers come later, as they were at the beginning of a journal's file.

    Raises:
        InputError: the file begins with a snapshot, which cannot be loaded.
    """
    header = reader.header
    if header.segment:
        return read_snapshot(snapshot_path(reader.path), plan.architecture, effects)
    return plan.components(plan.build(header.incarnation), header.addresses, header.incarnation), {}


def replay(path: Path, lookup: Callable[[str], Architecture], witness: Witness | None = None) -> Replayed:
    """Replay one file of a journal, from its snapshot where it has one.

    Args:
        lookup: name -> architecture.
        witness: sees every event with all that it caused: what was sent and launched, and when.

    Raises:
        InputError: it is no journal, or of an architecture that does not exist as it was.
    """
    reader = JournalReader(path)
    plan, effects = plan_of(reader.header, lookup, str(path)), list[Effect]()
    return _replayed(reader, plan, Player(*hosted(reader, plan, effects), effects), witness)


def replay_all(paths: Iterable[Path], lookup: Callable[[str], Architecture]) -> Iterator[Replayed]:
    """Replay files; what one of them leads to must be the snapshot with which the next one begins.

    Journals that another version wrote are left out, with the reason.

    Raises:
        OtherVersionError: all are left out.
        InputError: as `replay` and `chains`.
    """
    readers, others, replayed = list[JournalReader](), list[OtherVersionError](), False
    for path in paths:
        try:
            readers.append(JournalReader(path))
        except OtherVersionError as error:
            others.append(error)
            yield Replayed(str(path), "", 0, "", 0, 0, 0, left_out=error.problem)
    for one in _chained(readers):
        done = 0
        try:
            for result in _replayed_chain(one, lookup):
                yield result
                done, replayed = done + 1, True
        except OtherVersionError as error:
            others.append(error)
            for reader in one.readers[done:]:
                yield replace(_result(reader, 0, 0, None), left_out=error.problem)
    if others and not replayed:
        raise others[0]


def _replayed_chain(one: Chain, lookup: Callable[[str], Architecture]) -> Iterator[Replayed]:
    player: Player | None = None
    for reader in one.readers:
        plan, effects = plan_of(reader.header, lookup, str(reader.path)), list[Effect]()
        before, unequal = player, ""
        if before is None or snapshot_path(reader.path).exists():
            player = Player(*hosted(reader, plan, effects), effects)
            unequal = before.differs(player) if before is not None else ""
        assert player is not None
        if unequal:
            problem = f"its snapshot differs, at {unequal}, from the state to which the file before it leads"
            yield _result(reader, 0, 0, ReplayDifference(0, 0, "", "", "", (), problem))
            return
        result = _replayed(reader, plan, player, None)
        yield result
        if result.difference is not None:
            return


def _replayed(reader: JournalReader, plan: FederationPlan, player: Player, witness: Witness | None) -> Replayed:
    events = now = 0
    for now, entries in reader.turns(plan.architecture.messages):
        for address, source, event, expected in entries:
            events += 1
            problem = ""
            began = time.perf_counter() if witness is not None else 0.0
            try:
                found = player.feed(address, source, event, now, refused=expected != RAISED)
            except Exception as error:
                if expected != RAISED:
                    problem = f"raises {error!r}, which it did not"
            else:
                if expected == RAISED:
                    problem = "raises nothing, but did"
                elif found != expected:
                    problem = f"the effects have checksum {found:#010x}, in the journal {expected:#010x}"
            if problem:
                effects = tuple(str(effect) for effect in player.effects[:SHOWN_MAX])
                return _result(
                    reader, events, now, ReplayDifference(events, now, address, source, str(event), effects, problem)
                )
            if witness is not None:
                witness(now, address, source, event, player.effects, time.perf_counter() - began)
            player.effects.clear()
    return _result(reader, events, now, None)


def _result(reader: JournalReader, events: int, now: Time, difference: ReplayDifference | None) -> Replayed:
    header = reader.header
    return Replayed(
        str(reader.path), header.host, header.incarnation, header.architecture, events, now, reader.torn_bytes,
        difference, header.segment,
    )  # fmt: skip


def journals(place: Path) -> Iterator[Path]:
    """The journal at this place, or all those in this folder, in order.

    Raises:
        InputError: there is none.
    """
    if place.is_file():
        yield place
        return
    found = sorted(place.glob(f"*{SUFFIX}"), key=journal_order) if place.is_dir() else []
    if not found:
        raise InputError(str(place), f"no journal here; give a *{SUFFIX} file or a folder that holds some")
    yield from found
