"""The panel of messages, queues and views that pages of a recording have and live pages have not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from volery.core.model import Address, Time
from volery.live.dashboard.tables import Column, table
from volery.look.html import Markup, Piece, joined, name_of, section, tag
from volery.look.text import time_span, whole
from volery.playback.recording import Longs, Recording
from volery.playback.run_log import RunLog, ViewErrors
from volery.playback.snapshot import Snapshot

AHEAD: Final = 8
"""Intervals whose messages a page gets at once: it plays them until it has asked for the next ones."""
_QUEUES: Final = (
    Column("role", text=True), Column("components"), Column("tasks that wait there"), Column("at one of them"),
    Column("messages received"),
)  # fmt: skip
_MESSAGES: Final = (
    Column("message", text=True), Column("in this moment"), Column("so far"), Column("meaning", text=True),
)  # fmt: skip
_VIEWS: Final = (
    Column("view of", text=True), Column("wrongly free"), Column("wrongly taken"),
    Column("oldest part", text=True), Column("mean age"),
)  # fmt: skip


class PanelDrawing(msgspec.Struct, frozen=True):
    """Input of the script that draws messages.

    Args:
        roles: name, and number of components.
        kinds: names of messages.
        at_s, step_s: the moment, and the length of an interval.
        flights: times of sending and receipt (seconds), row and place (0 to 1) of sender and receiver, kind, title.
    """

    roles: list[tuple[str, int]]
    kinds: list[str]
    at_s: float
    step_s: float
    flights: list[tuple[float, float, int, float, int, float, int, str]]


class MessagePanel:
    """Messages on their way, queues, and errors of views.

    Args:
        recording: of the messages.
    """

    def __init__(self, recording: Recording) -> None:
        log = recording.log
        self._log = log
        self._sent_us: Longs = np.array([flight.sent_us for flight in log.flights], dtype=np.int64)
        self._order: Longs = np.argsort(self._sent_us, kind="stable")
        self._sent_us = self._sent_us[self._order]
        self._row = {role.name: row for row, role in enumerate(log.roles)}
        self._sums = np.cumsum(np.array(log.sent, dtype=np.int64), axis=1) if log.sent else None
        self._longest_us: Time = max((flight.received_us - flight.sent_us for flight in log.flights), default=0)
        self._twins = {address.partition("/")[0] for address in log.addresses if address.count("/") > 1}
        self._places: dict[Address, tuple[int, float]] = {}

    def canvas(self) -> Markup:
        """The element in which the script draws, the same at all moments."""
        return tag("div", id="stage", class_="stage") if self._log.flights else Markup("")

    def content(self, snapshot: Snapshot) -> Markup:
        """The input of the script, and the tables of the moment."""
        log, at = self._log, snapshot.interval
        if not log.sent:
            return Markup("")
        drawing = msgspec.json.encode(self._drawing(snapshot)).decode()
        return joined(
            (
                tag("div", id="staging", hidden=True, data_staging=drawing),
                section("Queues", table(_QUEUES, [_queue(log, row, at) for row in range(len(log.roles))])),
                section("Messages", table(_MESSAGES, self._messages(at))),
                section("Views of schedulers", _views(log.views, at)),
            )
        )

    def _drawing(self, snapshot: Snapshot) -> PanelDrawing:
        log, step_us = self._log, self._log.step_us
        now = snapshot.time_us - log.begin_us
        low, high = np.searchsorted(
            self._sent_us, (now - self._longest_us - step_us, now + AHEAD * step_us), side="right"
        )  # fmt: skip
        flights = []
        for place in self._order[low:high].tolist():
            one = log.flights[place]
            sender, receiver = log.addresses[one.sender], log.addresses[one.receiver]
            flights.append(
                (
                    (log.begin_us + one.sent_us) / 1e6, (log.begin_us + one.received_us) / 1e6,
                    *self._place(sender), *self._place(receiver), one.kind, f"{sender} > {receiver}",
                )
            )  # fmt: skip
        roles = [(role.name, role.count) for role in log.roles]
        return PanelDrawing(roles, log.kinds, snapshot.time_us / 1e6, step_us / 1e6, flights)

    def _place(self, address: Address) -> tuple[int, float]:
        """Row and place of a component."""
        if address not in self._places:
            role, _, rest = address.partition("/")
            row = self._row.get(role, 0)
            count = max(1, self._log.roles[row].count)
            number, _, twin = rest.partition("/")
            at = int(number) if number.isdecimal() else 0
            at = 2 * at + bool(twin) if role in self._twins else at
            self._places[address] = row, (at % count + 0.5) / count
        return self._places[address]

    def _messages(self, at: int) -> list[Sequence[Piece]]:
        log = self._log
        assert self._sums is not None
        return [
            (tag("span", tag("i", "", class_=f"kind kind{place % 10}"), kind), whole(log.sent[place][at]),
             whole(int(self._sums[place][at])), name_of(log.meanings[place]))
            for place, kind in enumerate(log.kinds)
        ]  # fmt: skip


def _queue(log: RunLog, row: int, at: int) -> Sequence[Piece]:
    role = log.roles[row]
    return role.name, whole(role.count), whole(role.waiting[at]), whole(role.busiest[at]), whole(role.received[at])


def _views(views: Sequence[ViewErrors], at: int) -> Markup | None:
    if not views:
        return None
    rows: list[Sequence[Piece]] = []
    for one in views:
        ages = {of: ages_us[at] for of, ages_us in zip(one.of, one.age_us, strict=True) if ages_us[at] >= 0}
        oldest = max(ages, key=lambda of: ages[of], default=None)
        told = "no message yet" if oldest is None else f"{oldest}: {time_span(ages[oldest])}"
        mean = time_span(sum(ages.values()) // len(ages)) if ages else ""
        rows.append((one.by, whole(one.free[at]), whole(one.taken[at]), told, mean))
    said = (
        "Slots with an error in the view. Wrongly free: a task runs there, and a placement there is refused. Wrongly "
        "taken: no task runs there, or none yet. Age: since the last message from there."
    )
    return joined((table(_VIEWS, rows), tag("p", said, class_="soft")))
