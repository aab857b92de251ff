"""Parts of the pages of a recording that live pages do not have: the bar, the message panel, the page of the design."""

from __future__ import annotations

import base64
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from starlette.requests import Request

from volery.core.component import Architecture, Deployment
from volery.core.errors import InputError
from volery.core.flow import Hop, flow_of
from volery.core.model import SECOND, Address, Time
from volery.live.dashboard.frame import Column, PageView, table
from volery.look.html import Markup, Piece, address, facts, joined, link, moment, name_of, section, tag
from volery.look.text import time_span, whole
from volery.playback.recording import Longs, Recording
from volery.playback.run_log import RunLog, ViewErrors
from volery.playback.snapshot import Snapshot

AT: Final = "at"
VIEW: Final = "view"
DESIGN: Final = "/dashboard/design"
MOMENTS_MAX: Final = 300
LASTS_S: Final = ((15, "15 s"), (30, "30 s"), (60, "1 min"), (120, "2 min"), (600, "10 min"))
"""Choices of the length of a playback, without its pauses."""
BY_CLOCK: Final = ((-1, "real time"), (-10, "a tenth of real time"), (-1000, "a thousandth of real time"))
DIGITS: Final = 12


def asked_us(request: Request, recording: Recording) -> Time:
    """The moment that a request names, by the clock of the recording; its beginning where it names none.

    Raises:
        InputError: it is no time.
    """
    text = request.query_params.get(AT)

    if text is None or not text:
        return recording.begin_us

    try:
        named_s = float(text) if len(text) < 40 else float("nan")
    except ValueError:
        named_s = float("nan")

    if not -1e12 < named_s < 1e12:
        raise InputError(f"query.{AT}", f"expected seconds since the beginning, as 12.5, not {text[:40]!r}")

    return min(max(round(named_s * SECOND), recording.begin_us), recording.end_us)


def seconds(time_us: Time) -> str:
    """A time as addresses hold it."""
    text = f"{time_us / SECOND:.6f}"
    return text.rstrip("0").rstrip(".")


def bar(snapshot: Snapshot, path: str, view: str, lasts_s: int) -> Markup:
    """The bar above a page.

    Args:
        view: the scheduler with the view that is compared with the truth; empty: none.
        lasts_s: initial length of the playback, one of `LASTS_S`.
    """
    recording = snapshot.recording
    begin = recording.begin_us
    end = recording.end_us
    now = snapshot.time_us

    moments = recording.moments[:MOMENTS_MAX]
    step = max(1, (end - begin) // 1000)
    scrubber = tag(
        "input",
        type="range",
        id="scrub",
        name=AT,
        min=seconds(begin),
        max=seconds(end),
        step=seconds(step),
        value=seconds(now),
        aria_label="time, in seconds",
    )

    form = tag(
        "form",
        tag("label", "at ", tag("input", name=AT, id="at", value=seconds(now), size=DIGITS, inputmode="decimal"), " s"),
        _views(snapshot, view),
        tag("button", "go"),
        tag("span", clock(snapshot), id="clock", class_="soft"),
        class_="controls",
        action=path,
    )

    stage = recording.source
    heading = tag(
        "p",
        tag("strong", "Recorded: "),
        name_of(stage.title, 200),
        ". ",
        tag("span", stage.subtitle, class_="soft"),
        " ",
        link(DESIGN, "What this design is"),
    )

    caption = tag("p", joined(_said(moments, now)), id="caption", class_="caption", aria_live="polite")
    listed = tag("ol", *(_moment(path, at_us, text, stage.origin_us) for at_us, text in moments), class_="moments")
    all_moments = tag("details", tag("summary", f"{len(moments)} moments"), listed) if moments else None

    return tag(
        "section",
        heading,
        scrubber,
        _controls(lasts_s),
        form,
        caption,
        all_moments,
        class_="film",
        id="film",
        aria_label="the film's clock",
        data_begin=seconds(begin),
        data_end=seconds(end),
        data_at=seconds(now),
        data_origin=seconds(stage.origin_us),
        data_moments=msgspec.json.encode([(at_us / SECOND, text) for at_us, text in moments]).decode(),
    )


def _controls(lasts_s: int) -> Markup:
    """The buttons that play and step; the script shows them."""
    speeds = [tag("option", words, value=value, selected=value == lasts_s) for value, words in (*LASTS_S, *BY_CLOCK)]
    return tag(
        "div",
        tag("button", "play", type="button", id="play", title="space"),
        tag("button", "\N{BLACK LEFT-POINTING TRIANGLE}|", type="button", id="back", title="one step back: comma"),
        tag("button", "|\N{BLACK RIGHT-POINTING TRIANGLE}", type="button", id="forth", title="one step on: full stop"),
        tag("button", "previous moment", type="button", id="previous", title="p"),
        tag("button", "next moment", type="button", id="next", title="n"),
        tag("label", "all of it in ", tag("select", *speeds, id="lasts")),
        tag("label", tag("input", type="checkbox", id="hold", checked=True), " stop to read"),
        class_="controls",
        id="moved",
        hidden=True,
    )


def clock(snapshot: Snapshot) -> Markup:
    """The time of day of a federation; empty for a run."""
    return moment(snapshot.now_us) if snapshot.recording.source.origin_us else Markup("")


def _views(snapshot: Snapshot, view: str) -> Markup | None:
    """The choice of a scheduler whose view is compared with the truth."""
    schedulers = [view_errors.by for view_errors in snapshot.recording.log.views]
    if not schedulers:
        return None
    options = [tag("option", by or "nobody", value=by, selected=by == view) for by in ("", *schedulers)]
    return tag("label", "show what is wrong in the view of ", tag("select", *options, name=VIEW, id="view"))


def _said(moments: Sequence[tuple[Time, str]], now: Time) -> tuple[Markup | str, ...]:
    past_moments = [text for at_us, text in moments if at_us <= now]
    return (name_of(past_moments[-1]),) if past_moments else ("",)


def _moment(path: str, at_us: Time, text: str, origin_us: Time) -> Markup:
    time_link = link(address(path, {AT: seconds(at_us)}), moment(origin_us + at_us))
    return tag("li", time_link, " ", name_of(text))


_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
_HOPS: Final = (
    Column("from", text=True),
    Column("message", text=True),
    Column("to", text=True),
    Column("meaning", text=True),
)


def design_view(entry: Architecture, deployment: Deployment, explanation: str, picture: Callable[[], str]) -> PageView:
    """The page of a design.

    Args:
        explanation: text about the design in Markdown: headings, paragraphs, code, links.
        picture: draws its flow of messages as SVG.
    """
    text = inspect.getdoc(sys.modules[entry.build.__module__]) or ""
    image = base64.b64encode(picture().encode()).decode()
    title = f"Message flow of {entry.name}, as in the table"
    drawn = tag("img", src=f"data:image/svg+xml;base64,{image}", class_="flow", alt=title)
    summary = facts(
        ("summary", entry.summary),
        ("source", entry.source),
        ("its page in the documentation", tag("code", f"docs/architectures/{entry.name}.md")),
    )

    hops = [_hop(hop) for hop in flow_of(deployment).hops]
    parts = (
        summary,
        *_prose(explanation),
        section("Message flow", drawn),
        section("Messages", table(_HOPS, hops)),
        section("Documentation of the module", tag("pre", text)),
    )

    return PageView(f"Design {entry.name}", joined(parts), place=DESIGN, every_s=0)


def _prose(explanation: str) -> list[Markup]:
    """Sections of paragraphs; links become plain text."""
    sections = []
    for part in re.split(r"^## ", explanation, flags=re.MULTILINE):
        title, _, text = part.partition("\n")
        paragraphs = [
            tag("p", *_words(paragraph)) for paragraph in re.split(r"\n\s*\n", text.strip()) if paragraph.strip()
        ]
        if title.strip():
            sections.append(section(title.strip(), *paragraphs))

    return sections


def _words(text: str) -> list[Piece]:
    plain = _LINK.sub(r"\1", " ".join(text.split())).replace("*", "")
    return [tag("code", piece) if at % 2 else piece for at, piece in enumerate(plain.split("`"))]


def _hop(hop: Hop) -> tuple[Piece, ...]:
    return hop.source, hop.message, hop.to, name_of(hop.meaning)


AHEAD: Final = 8
"""Intervals whose messages a page gets at once: it plays them until it has asked for the next ones."""
_QUEUES: Final = (
    Column("role", text=True),
    Column("components"),
    Column("tasks that wait there"),
    Column("at one of them"),
    Column("messages received"),
)
_MESSAGES: Final = (
    Column("message", text=True),
    Column("in this moment"),
    Column("so far"),
    Column("meaning", text=True),
)
_VIEWS: Final = (
    Column("view of", text=True),
    Column("wrongly free"),
    Column("wrongly taken"),
    Column("oldest part", text=True),
    Column("mean age"),
)


class PanelDrawing(msgspec.Struct, frozen=True):
    """Input of the script that draws messages.

    Args:
        roles: name, and number of components.
        at_s, step_s: the moment, and the length of an interval.
        flights: times of sending and receipt (seconds), row and place (0 to 1) of sender and receiver, kind, title.
    """

    roles: list[tuple[str, int]]
    kinds: list[str]
    at_s: float
    step_s: float
    flights: list[tuple[float, float, int, float, int, float, int, str]]


class MessagePanel:
    """Messages on their way, queues, and errors of views."""

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
        log = self._log
        at = snapshot.interval
        if not log.sent:
            return Markup("")

        drawing = msgspec.json.encode(self._drawing(snapshot)).decode()
        return joined(
            (
                tag("div", id="staging", hidden=True, data_staging=drawing),
                section("Queues", table(_QUEUES, [_queue(log, row, at) for row in range(len(log.roles))])),
                section("Messages", table(_MESSAGES, self._messages(at))),
                section("Views of schedulers", _view_table(log.views, at)),
            )
        )

    def _drawing(self, snapshot: Snapshot) -> PanelDrawing:

        log, step_us = self._log, self._log.step_us
        now = snapshot.time_us - log.begin_us
        low, high = np.searchsorted(
            self._sent_us, (now - self._longest_us - step_us, now + AHEAD * step_us), side="right"
        )

        flights = []
        for place in self._order[low:high].tolist():
            flight = log.flights[place]
            sender, receiver = log.addresses[flight.sender], log.addresses[flight.receiver]
            flights.append(
                (
                    (log.begin_us + flight.sent_us) / 1e6,
                    (log.begin_us + flight.received_us) / 1e6,
                    *self._place(sender),
                    *self._place(receiver),
                    flight.kind,
                    f"{sender} > {receiver}",
                )
            )

        roles = [(role.name, role.count) for role in log.roles]
        return PanelDrawing(roles, log.kinds, snapshot.time_us / 1e6, step_us / 1e6, flights)

    def _place(self, address: Address) -> tuple[int, float]:
        if address not in self._places:
            role, _, name = address.partition("/")
            row = self._row.get(role, 0)
            count = max(1, self._log.roles[row].count)
            number, _, twin = name.partition("/")
            role_place = int(number) if number.isdecimal() else 0
            role_place = 2 * role_place + bool(twin) if role in self._twins else role_place

            self._places[address] = row, (role_place % count + 0.5) / count
        return self._places[address]

    def _messages(self, at: int) -> list[Sequence[Piece]]:
        log = self._log
        assert self._sums is not None
        return [
            (
                tag("span", tag("i", "", class_=f"kind kind{place % 10}"), kind),
                whole(log.sent[place][at]),
                whole(int(self._sums[place][at])),
                name_of(log.meanings[place]),
            )
            for place, kind in enumerate(log.kinds)
        ]


def _queue(log: RunLog, row: int, at: int) -> Sequence[Piece]:
    role = log.roles[row]
    return role.name, whole(role.count), whole(role.waiting[at]), whole(role.busiest[at]), whole(role.received[at])


def _view_table(views: Sequence[ViewErrors], at: int) -> Markup | None:
    if not views:
        return None

    rows: list[Sequence[Piece]] = []
    for view in views:
        ages = {of: ages_us[at] for of, ages_us in zip(view.of, view.age_us, strict=True) if ages_us[at] >= 0}
        oldest = max(ages, key=lambda of: ages[of], default=None)
        age_note = "no message yet" if oldest is None else f"{oldest}: {time_span(ages[oldest])}"
        mean = time_span(sum(ages.values()) // len(ages)) if ages else ""
        rows.append((view.by, whole(view.free[at]), whole(view.taken[at]), age_note, mean))

    legend = (
        "Slots with an error in the view. Wrongly free: a task runs there, and a placement there is refused. Wrongly "
        "taken: no task runs there, or none yet. Age: since the last message from there."
    )
    return joined((table(_VIEWS, rows), tag("p", legend, class_="soft")))
