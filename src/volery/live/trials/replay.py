"""Replay: feed a journal to fresh components and demand the effects that it remembers.

A journal that replays proves that the components are what they promise: they read no clock, draw no number and hear no
word but what came through their door. A difference means that the code, or something outside it, has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.component import Architecture, Component, UnknownMessageError
from volery.core.errors import InputError
from volery.core.events import Computed
from volery.core.model import Address, Key, Time
from volery.live.cluster.building import Plan
from volery.live.hosts.journal import RAISED, SUFFIX, Header, JournalReader, Started
from volery.live.hosts.port import COMPUTE, Effect, LivePort, checksum

SHOWN_MAX: Final = 20
"""Effects of a difference that are spelled out."""


class Difference(msgspec.Struct, frozen=True):
    """The first event that was answered otherwise than the journal says.

    Args:
        place: of the event in the journal, from 1.
        now_us: when it was handled.
        address: of the component.
        source: of the event.
        event: as text.
        effects: what the component asks for now, as text, at most 20.
        problem: in words.
    """

    place: int
    now_us: Time
    address: Address
    source: Address
    event: str
    effects: tuple[str, ...]
    problem: str


class Replayed(msgspec.Struct, frozen=True):
    """What has come of one journal.

    Args:
        path: of the journal.
        host: whose it is.
        incarnation: of the host.
        architecture: of the federation.
        events: how many were fed.
        span_us: the time of the last event.
        torn_bytes: how much of the end a crash has torn off.
        difference: the first one; None where all effects are equal.
    """

    path: str
    host: str
    incarnation: int
    architecture: str
    events: int
    span_us: Time
    torn_bytes: int
    difference: Difference | None = None


Witness = Callable[[Time, Address, Address, Any, "list[Effect]", float], None]
"""Called after every event: time, component, source, event, effects, and the seconds that it took."""


def plan_of(header: Header, lookup: Callable[[str], Architecture], place: str) -> Plan:
    """What the journal's host ran.

    Args:
        header: of the journal.
        lookup: name -> architecture.
        place: what errors call the journal.

    Raises:
        InputError: the registry has no such architecture, or it has other parameters or builds otherwise now.
    """
    architecture = lookup(header.architecture)
    try:
        config = msgspec.convert(header.parameters, type(architecture.defaults))
    except msgspec.ValidationError as error:
        raise InputError(place, f"{header.architecture} has other parameters now: {error}") from None
    plan = Plan(architecture, config, header.cluster, header.seed)
    if plan.configuration != header.configuration:
        raise InputError(place, f"{header.architecture} has other parameters now than when the journal was written")
    return plan


class Player:
    """Fresh components, fed one event at a time.

    Args:
        components: by address; never started.

    Attributes:
        effects: what the last event's component has asked for; whoever feeds clears it before the next.
    """

    def __init__(self, components: dict[Address, Component]) -> None:
        self.effects: list[Effect] = []
        self._components = components
        self._problems: dict[tuple[Address, Key], Any] = {}
        for address, component in components.items():
            component.bind(LivePort(address, self.effects))

    def feed(self, address: Address, source: Address, event: Any, now: Time, *, refused: bool = True) -> int:
        """Handle an event; the checksum of what the component asked for.

        An event that it does not know was refused where another host had sent it; otherwise it has ended its host.
        """
        component = self._components[address]
        if type(event) is Started:
            component.start(now)
        else:
            if type(event) is Computed:
                problem = self._problems.pop((address, event.key))
                event = Computed(event.key, problem.solve(problem.argument))
            try:
                component.handle(event, source, now)
            except UnknownMessageError:
                if not refused:
                    raise
        for effect in self.effects:
            if effect[0] == COMPUTE:
                self._problems[address, effect[1]] = effect[2]
        return checksum(self.effects)


def replay(path: Path, lookup: Callable[[str], Architecture], witness: Witness | None = None) -> Replayed:
    """Replay one journal.

    Args:
        path: of the file.
        lookup: name -> architecture.
        witness: sees every event with all that it caused: what was sent and launched, and when.

    Raises:
        InputError: it is no journal, or of an architecture that does not exist as it was.
    """
    reader = JournalReader(path)
    header = reader.header
    plan = plan_of(header, lookup, str(path))
    player = Player(plan.components(plan.build(header.incarnation), header.addresses, header.incarnation))
    events = now = 0
    difference = None
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
                difference = Difference(events, now, address, source, str(event), effects, problem)
                break
            if witness is not None:
                witness(now, address, source, event, player.effects, time.perf_counter() - began)
            player.effects.clear()
        if difference is not None:
            break
    return Replayed(
        str(path), header.host, header.incarnation, header.architecture, events, now, reader.torn_bytes, difference
    )


def journals(place: Path) -> Iterator[Path]:
    """The journal at this place, or all those in this folder, in order.

    Raises:
        InputError: there is none.
    """
    if place.is_file():
        yield place
        return
    found = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else []
    if not found:
        raise InputError(str(place), f"no journal here; give a *{SUFFIX} file or a folder that holds some")
    yield from found
