"""What a camera has seen and no live page can know: messages on their way, where tasks wait, what is believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from volery.core.model import Address, Time
from volery.live.dashboard.html import Markup, Piece, duration, joined, name_of, section, tag, whole
from volery.live.dashboard.tables import Column, table
from volery.playback.film import Belief, Filmed
from volery.playback.recording import Longs, Recording
from volery.playback.snapshot import Snapshot

AHEAD: Final = 8
"""Intervals whose messages a page gets at once: it plays them until it has asked for the next ones."""
_QUEUES: Final = (
    Column("role", text=True), Column("components"), Column("tasks that wait there"), Column("at one of them"),
    Column("messages received"),
)  # fmt: skip
_MESSAGES: Final = (
    Column("message", text=True), Column("in this moment"), Column("so far"), Column("what it says", text=True),
)  # fmt: skip
_BELIEFS: Final = (
    Column("view of", text=True), Column("believed free, taken"), Column("believed taken, free"),
    Column("oldest part", text=True), Column("mean age"),
)  # fmt: skip


class Staging(msgspec.Struct, frozen=True):
    """What the script draws.

    Args:
        roles: name, and number of components.
        kinds: names of messages.
        at_s, step_s: the moment, and the length of an interval.
        flights: when sent and heard (seconds), row and place (0 to 1) of sender and receiver, kind, and what it is.
    """

    roles: list[tuple[str, int]]
    kinds: list[str]
    at_s: float
    step_s: float
    flights: list[tuple[float, float, int, float, int, float, int, str]]


class Stage:
    """Where messages fly.

    Args:
        recording: of which.
    """

    def __init__(self, recording: Recording) -> None:
        filmed = recording.filmed
        self._filmed = filmed
        self._sent_us: Longs = np.array([flight.sent_us for flight in filmed.flights], dtype=np.int64)
        self._order: Longs = np.argsort(self._sent_us, kind="stable")
        self._sent_us = self._sent_us[self._order]
        self._row = {role.name: row for row, role in enumerate(filmed.roles)}
        self._sums = np.cumsum(np.array(filmed.sent, dtype=np.int64), axis=1) if filmed.sent else None
        self._longest_us: Time = max((flight.heard_us - flight.sent_us for flight in filmed.flights), default=0)
        self._twins = {address.partition("/")[0] for address in filmed.addresses if address.count("/") > 1}
        self._heard: dict[Address, tuple[int, float]] = {}

    def drawn(self) -> Markup:
        """Where the script draws; it stays."""
        return tag("div", id="stage", class_="stage") if self._filmed.flights else Markup("")

    def told(self, snapshot: Snapshot) -> Markup:
        """What it draws, and the tables of the moment."""
        filmed, at = self._filmed, snapshot.interval
        if not filmed.sent:
            return Markup("")
        drawing = msgspec.json.encode(self._staging(snapshot)).decode()
        return joined(
            (
                tag("div", id="staging", hidden=True, data_staging=drawing),
                section("Queues", table(_QUEUES, [_queue(filmed, row, at) for row in range(len(filmed.roles))])),
                section("Messages", table(_MESSAGES, self._messages(at))),
                section("What schedulers believe", _beliefs(filmed.beliefs, at)),
            )
        )

    def _staging(self, snapshot: Snapshot) -> Staging:
        filmed, step_us = self._filmed, self._filmed.step_us
        now = snapshot.time_us - filmed.begin_us
        low, high = np.searchsorted(
            self._sent_us, (now - self._longest_us - step_us, now + AHEAD * step_us), side="right"
        )  # fmt: skip
        flights = []
        for place in self._order[low:high].tolist():
            one = filmed.flights[place]
            sender, receiver = filmed.addresses[one.sender], filmed.addresses[one.receiver]
            flights.append(
                (
                    (filmed.begin_us + one.sent_us) / 1e6, (filmed.begin_us + one.heard_us) / 1e6,
                    *self._place(sender), *self._place(receiver), one.kind, f"{sender} > {receiver}",
                )
            )  # fmt: skip
        roles = [(role.name, role.count) for role in filmed.roles]
        return Staging(roles, filmed.kinds, snapshot.time_us / 1e6, step_us / 1e6, flights)

    def _place(self, address: Address) -> tuple[int, float]:
        """Row and place of a component."""
        if address not in self._heard:
            role, _, rest = address.partition("/")
            row = self._row.get(role, 0)
            count = max(1, self._filmed.roles[row].count)
            number, _, twin = rest.partition("/")
            at = int(number) if number.isdecimal() else 0
            at = 2 * at + bool(twin) if role in self._twins else at
            self._heard[address] = row, (at % count + 0.5) / count
        return self._heard[address]

    def _messages(self, at: int) -> list[Sequence[Piece]]:
        filmed = self._filmed
        assert self._sums is not None
        return [
            (tag("span", tag("i", "", class_=f"kind kind{place % 10}"), kind), whole(filmed.sent[place][at]),
             whole(int(self._sums[place][at])), name_of(filmed.told[place]))
            for place, kind in enumerate(filmed.kinds)
        ]  # fmt: skip


def _queue(filmed: Filmed, row: int, at: int) -> Sequence[Piece]:
    role = filmed.roles[row]
    return role.name, whole(role.count), whole(role.waiting[at]), whole(role.busiest[at]), whole(role.received[at])


def _beliefs(beliefs: Sequence[Belief], at: int) -> Markup | None:
    if not beliefs:
        return None
    rows: list[Sequence[Piece]] = []
    for one in beliefs:
        ages = {of: ages_us[at] for of, ages_us in zip(one.of, one.age_us, strict=True) if ages_us[at] >= 0}
        oldest = max(ages, key=lambda of: ages[of], default=None)
        told = "nothing heard" if oldest is None else f"{oldest}: {duration(ages[oldest])}"
        mean = duration(sum(ages.values()) // len(ages)) if ages else ""
        rows.append((one.by, whole(one.free[at]), whole(one.taken[at]), told, mean))
    said = (
        "Slots about which the view is wrong: believed free on which a task runs (a placement there is refused), and "
        "believed taken on which none does, or does yet. Age: since anything was heard from there."
    )
    return joined((table(_BELIEFS, rows), tag("p", said, class_="soft")))
