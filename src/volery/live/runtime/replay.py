"""Replay: feed a journal to fresh components and demand the effects that it holds.

A journal that replays proves that the components are what they promise: they read no clock, draw no number and get
nothing but events. A difference means that the code, or something outside it, has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from volery.core.component import Architecture, Component, UnknownMessageError
from volery.core.errors import DamagedError, InputError
from volery.core.events import Computed, TaskFinished
from volery.core.model import Address, Key, Message, Task, TaskId, Time
from volery.live.config.plan import FederationPlan
from volery.live.runtime.journal import (
    RAISED,
    SUFFIX,
    Header,
    JournalReader,
    JournalTurn,
    Started,
    journal_order,
    snapshot_path,
)
from volery.live.runtime.port import COMPUTE, LAUNCH, Effect, LivePort, checksum
from volery.live.runtime.recordfile import OtherVersionError, UnbegunError
from volery.live.runtime.snapshots import Hosted, first_difference, read_snapshot

SHOWN_MAX: Final = 20
"""Effects of a difference that are spelled out."""


class ReplayDifference(msgspec.Struct, frozen=True):
    """The first event whose effects differ from those in the journal.

    Args:
        place: Number of the event in the journal, from 1.
        now_us: Time at which it was handled.
        effects: Effects that the component asks for now, as text, at most 20.
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
        events: Count of the events that were fed.
        span_us: Time of the last event.
        torn_bytes: Length of the end that a crash has torn off.
        difference: First difference; None where all effects are equal.
        segment: Place of the file among those of the incarnation, from 0; the others begin with a snapshot.
        left_out: Sign that another version wrote it; empty where it was replayed.
        damage: Reason why a part of it, or all, is not proved, with its place; empty where it is whole.
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
    damage: str = ""

    @property
    def is_proved(self) -> bool:
        """True if all of it replays, or nothing does because another version wrote it."""
        return self.difference is None and not self.damage


Witness = Callable[[Time, Address, Address, Any, "list[Effect]", float], None]
"""Called after every event: time, component, source, event, effects, and the seconds that it took."""


def plan_of(header: Header, lookup: Callable[[str], Architecture], place: str) -> FederationPlan:
    """The architecture, parameters and cluster of a journal's host.

    Args:
        lookup: Name -> architecture.
        place: Name of the journal in errors.

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
        components: Components by address; never started, or of a snapshot.
        problems: Problems whose answers come later.
        effects: Effects that the last event's component has asked for; whoever feeds clears it before the next.
    """

    def __init__(
        self,
        components: dict[Address, Component],
        problems: Mapping[tuple[Address, Key], Any] = {},
        effects: list[Effect] | None = None,
    ) -> None:
        self.effects: list[Effect] = [] if effects is None else effects
        self._components = components
        self._problems = dict(problems)
        self._launched: dict[tuple[Address, TaskId, int], Task] = {}
        for address, component in components.items():
            component.bind(LivePort(address, self.effects))

    def differs(self, player: Player) -> str:
        """The first field in which the state of another player differs; empty where there is none."""
        return first_difference((self._components, self._problems), (player._components, player._problems))

    def feed(self, address: Address, source: Address, event: Any, now: Time, *, refused: bool = True) -> int:
        """Handle an event; the checksum of what the component asked for.

        An event of an unknown type was refused where another host had sent it; otherwise it has ended its host.
        """
        component = self._components[address]

        if type(event) is Started:
            component.start(now)
        else:
            if type(event) is Computed:
                # Answers are left out of the journal: a problem is pure, so it is solved again.
                problem = self._problems.pop((address, event.key))
                event = Computed(event.key, problem.solve(problem.argument))
            elif type(event) is TaskFinished:
                event = self._with_payload(address, event)
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

    def _with_payload(self, address: Address, event: TaskFinished) -> TaskFinished:
        """The end of an attempt with the payload that the journal has left out, see `JournalWriter.event`."""
        task = self._launched.pop((address, event.task.id, event.attempt), None)
        if task is None or event.task.payload:
            return event
        return msgspec.structs.replace(event, task=msgspec.structs.replace(event.task, payload=task.payload))


class Chain:
    """Files of one incarnation of a host that follow each other.

    Args:
        readers: Readers in order; the first is the incarnation's first, or has a snapshot.

    Attributes:
        path, header: Path and header of the first file.
    """

    def __init__(self, readers: Sequence[JournalReader]) -> None:
        self.readers = readers
        self.path, self.header = readers[0].path, readers[0].header

    def turns(self, messages: Iterable[type[Message]]) -> Iterator[JournalTurn]:
        """All turns, in order.

        Raises:
            DamagedError: a record is damaged, or bytes are missing between two files.
        """
        message_types = tuple(messages)
        for at, reader in enumerate(self.readers):
            yield from reader.turns(message_types)
            if problem := _bytes_missing(self.readers, at):
                raise DamagedError(str(reader.path), problem)

    def times(self) -> tuple[Time, Time] | None:
        periods = [times for reader in self.readers if (times := reader.times()) is not None]
        return (periods[0][0], periods[-1][1]) if periods else None


def chains(paths: Iterable[Path]) -> list[Chain]:
    """Journals with their files put together, by host, incarnation and segment.

    Raises:
        InputError: a file is no journal or is damaged, or continues one that is not there and has no snapshot.
    """
    groups = _consecutive(map(JournalReader, paths))
    for first_reader, *_ in groups:
        _demand_beginning(first_reader)
    return [Chain(readers) for readers in groups]


def _consecutive(readers: Iterable[JournalReader]) -> list[list[JournalReader]]:
    groups: list[list[JournalReader]] = []

    for reader in sorted(readers, key=lambda reader: _order(reader.header)):
        host, incarnation, segment = _order(reader.header)
        if groups and _order(groups[-1][-1].header) == (host, incarnation, segment - 1):
            groups[-1].append(reader)
        else:
            groups.append([reader])
    return groups


def _demand_beginning(reader: JournalReader) -> None:
    """Refuse a file without the state in which it begins.

    Raises:
        InputError: it continues a file that is not there, and has no snapshot.
    """
    snapshot = snapshot_path(reader.path)
    if reader.header.segment and not snapshot.exists():
        problem = f"continues an earlier file; give that one, too, or its snapshot, {snapshot.name}, beside it"
        raise InputError(str(reader.path), problem)


def _bytes_missing(files: Sequence[JournalReader], at: int) -> str:
    """The damage of a file that was read to its end: only the last one of its incarnation may be torn."""
    if not files[at].torn_bytes or at + 1 == len(files):
        return ""
    return f"ends within a record, although {files[at + 1].path.name} continues it: bytes are missing"


def cut_hosts(kept_chains: Iterable[Chain]) -> tuple[str, ...]:
    """Hosts with a journal whose first files are no longer kept."""
    return tuple(sorted({chain.header.host for chain in kept_chains if chain.header.segment}))


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
        lookup: Name -> architecture.
        witness: Sees every event with all that it caused: what was sent and launched, and when.

    Raises:
        InputError: it is no journal, or of an architecture that does not exist as it was.
    """
    reader = JournalReader(path)
    plan = plan_of(reader.header, lookup, str(path))
    effects = list[Effect]()
    return _replayed(reader, plan, _Beginning(Player(*hosted(reader, plan, effects), effects)), witness)


def replay_all(paths: Iterable[Path], lookup: Callable[[str], Architecture]) -> Iterator[Replayed]:
    """Replay files; what one of them leads to must be the snapshot with which the next one begins.

    Journals that another version wrote are left out, with the reason. A file that is damaged, or cannot be read, ends
    nothing but its own replay.

    Raises:
        InputError: not one of the files is replayed or damaged; the first one's reason.
    """
    readers = list[JournalReader]()
    errors = list[InputError]()
    is_judged = False
    for path in paths:
        try:
            readers.append(JournalReader(path))
        except InputError as error:
            errors.append(error)
            yield _unread(path, error)

    for files in _consecutive(readers):
        for result, reason in _replayed_chain(files, lookup):
            errors += () if reason is None else (reason,)
            is_judged |= reason is None
            yield result
    if errors and not is_judged and not any(isinstance(error, DamagedError) for error in errors):
        raise errors[0]


def _unread(path: Path, error: InputError, header: Header | None = None) -> Replayed:
    """The result of a file of which nothing is replayed."""
    result = Replayed(str(path), "", 0, "", 0, 0, 0)
    if header is not None:
        result = replace(result, host=header.host, incarnation=header.incarnation, segment=header.segment)
        result = replace(result, architecture=header.architecture)
    if isinstance(error, UnbegunError):
        return replace(result, torn_bytes=path.stat().st_size)
    if isinstance(error, OtherVersionError):
        return replace(result, left_out=error.problem)
    return replace(result, damage=error.problem if error.place == str(path) else str(error))


def _replayed_chain(
    files: Sequence[JournalReader], lookup: Callable[[str], Architecture]
) -> Iterator[tuple[Replayed, InputError | None]]:
    """The results of files that follow each other; with the error, where one is not replayed at all."""
    player: Player | None = None
    for at, reader in enumerate(files):
        try:
            plan = plan_of(reader.header, lookup, str(reader.path))
            beginning = _beginning(reader, plan, player, is_first=not at)
            result = _replayed(reader, plan, beginning, None)
        except InputError as error:
            player = None
            yield _unread(reader.path, error, reader.header), error
            continue

        result = replace(result, damage=result.damage or _bytes_missing(files, at))
        player = beginning.player if result.is_proved or beginning.damage else None
        yield result, None


class _Beginning(NamedTuple):
    """The state in which a file begins, and what contradicts it.

    Args:
        player: Player with the state; None: the state is not known.
        damage: Damage of its snapshot, where the file before leads to the state, too.
        difference: Difference between its snapshot and the state to which the file before leads.
    """

    player: Player | None
    damage: str = ""
    difference: ReplayDifference | None = None


def _beginning(reader: JournalReader, plan: FederationPlan, previous: Player | None, *, is_first: bool) -> _Beginning:
    """The state in which a file begins.

    Args:
        previous: Player of the file before it; None where that one is not proved, or there is none.
        is_first: True if the file before is not here.

    Raises:
        InputError: it has no snapshot that can be loaded, and there is no file before it.
    """
    if is_first:
        _demand_beginning(reader)
    elif not snapshot_path(reader.path).exists():
        missing = "continues a file that is not proved, and has no snapshot: nothing of it is proved"
        return _Beginning(previous, "" if previous is not None else missing)

    effects = list[Effect]()
    try:
        player = Player(*hosted(reader, plan, effects), effects)
    except DamagedError as error:
        if previous is None:
            raise
        # The state to which the file before leads is proved: the replay goes on from it.
        return _Beginning(previous, str(error))

    difference = previous.differs(player) if previous is not None else ""
    if not difference:
        return _Beginning(player)
    problem = f"its snapshot differs, at {difference}, from the state to which the file before it leads"
    return _Beginning(None, "", ReplayDifference(0, 0, "", "", "", (), problem))


def _replayed(reader: JournalReader, plan: FederationPlan, beginning: _Beginning, witness: Witness | None) -> Replayed:
    player = beginning.player
    if player is None:
        return replace(_result(reader, 0, 0, beginning.difference), damage=beginning.damage)

    events = now = 0
    turns = reader.turns(plan.architecture.messages)
    damage = beginning.damage

    while True:
        try:
            now, entries = next(turns)
        except StopIteration:
            break
        except DamagedError as error:
            damage = damage or error.problem
            break

        for address, source, event, expected in entries:
            events += 1
            problem = ""
            started_s = time.perf_counter() if witness is not None else 0.0
            try:
                effects_checksum = player.feed(address, source, event, now, refused=expected != RAISED)
            except Exception as error:
                # `RAISED` marks the last entry of a host that has failed: there an exception has to come.
                if expected != RAISED:
                    problem = f"raises {error!r}, which it did not"
            else:
                if expected == RAISED:
                    problem = "raises nothing, but did"
                elif effects_checksum != expected:
                    problem = f"the effects have checksum {effects_checksum:#010x}, in the journal {expected:#010x}"

            if problem:
                effects = tuple(str(effect) for effect in player.effects[:SHOWN_MAX])
                return _result(
                    reader, events, now, ReplayDifference(events, now, address, source, str(event), effects, problem)
                )

            if witness is not None:
                witness(now, address, source, event, player.effects, time.perf_counter() - started_s)
            player.effects.clear()
    return replace(_result(reader, events, now, None), damage=damage)


def _result(reader: JournalReader, events: int, now: Time, difference: ReplayDifference | None) -> Replayed:
    header = reader.header
    return Replayed(
        str(reader.path),
        header.host,
        header.incarnation,
        header.architecture,
        events,
        now,
        reader.torn_bytes,
        difference,
        header.segment,
    )


def journals(place: Path) -> Iterator[Path]:
    """The journal at this place, or all those in this folder, in order.

    Raises:
        InputError: there is none.
    """
    if place.is_file():
        yield place
        return
    paths = sorted(place.glob(f"*{SUFFIX}"), key=journal_order) if place.is_dir() else []
    if not paths:
        raise InputError(str(place), f"no journal here; give a *{SUFFIX} file or a folder that holds some")
    yield from paths
