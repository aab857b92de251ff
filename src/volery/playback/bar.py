"""The bar above every page of a recording: its clock, and the controls that move it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request

from volery.core.errors import InputError
from volery.core.model import SECOND, Time
from volery.look.html import Markup, address, joined, link, moment, name_of, tag
from volery.playback.recording import Recording
from volery.playback.snapshot import Snapshot

AT: Final = "at"
VIEW: Final = "view"
DESIGN: Final = "/window/design"
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
        seconds = float(text) if len(text) < 40 else float("nan")
    except ValueError:
        seconds = float("nan")
    if not -1e12 < seconds < 1e12:
        raise InputError(f"query.{AT}", f"expected seconds since the beginning, as 12.5, not {text[:40]!r}")
    return min(max(round(seconds * SECOND), recording.begin_us), recording.end_us)


def seconds(time_us: Time) -> str:
    """A time as addresses hold it."""
    text = f"{time_us / SECOND:.6f}"
    return text.rstrip("0").rstrip(".")


def bar(snapshot: Snapshot, path: str, view: str, lasts_s: int) -> Markup:
    """The bar above a page.

    Args:
        snapshot: of the page.
        path: of the page.
        view: the scheduler with the view that is compared with the truth; empty: none.
        lasts_s: initial length of the playback, one of `LASTS_S`.
    """
    recording = snapshot.recording
    begin, end, now = recording.begin_us, recording.end_us, snapshot.time_us
    moments = recording.moments[:MOMENTS_MAX]
    speeds = [tag("option", words, value=value, selected=value == lasts_s) for value, words in (*LASTS_S, *BY_CLOCK)]
    step = max(1, (end - begin) // 1000)
    scrubber = tag(
        "input", type="range", id="scrub", name=AT, min=seconds(begin), max=seconds(end), step=seconds(step),
        value=seconds(now), aria_label="time, in seconds",
    )  # fmt: skip
    moved = tag(
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
    asked = tag(
        "form",
        tag("label", "at ", tag("input", name=AT, id="at", value=seconds(now), size=DIGITS, inputmode="decimal"), " s"),
        _views(snapshot, view),
        tag("button", "go"),
        tag("span", clock(snapshot), id="clock", class_="soft"),
        class_="controls",
        action=path,
    )
    stage = recording.source
    told = tag(
        "p", tag("strong", "Recorded: "), name_of(stage.title, 200), ". ", tag("span", stage.subtitle, class_="soft"),
        " ", link(DESIGN, "What this design is"),
    )  # fmt: skip
    caption = tag("p", joined(_said(moments, now)), id="caption", class_="caption", aria_live="polite")
    listed = tag("ol", *(_moment(path, at_us, what, stage.origin_us) for at_us, what in moments), class_="moments")
    every = tag("details", tag("summary", f"{len(moments)} moments"), listed) if moments else None
    return tag(
        "section", told, scrubber, moved, asked, caption, every, class_="film", id="film",
        aria_label="the film's clock",
        data_begin=seconds(begin), data_end=seconds(end), data_at=seconds(now),
        data_origin=seconds(stage.origin_us),
        data_moments=msgspec.json.encode([(at_us / SECOND, what) for at_us, what in moments]).decode(),
    )  # fmt: skip


def clock(snapshot: Snapshot) -> Markup:
    """The time of day of a federation; empty for a run."""
    return moment(snapshot.now_us) if snapshot.recording.source.origin_us else Markup("")


def _views(snapshot: Snapshot, view: str) -> Markup | None:
    """The choice of a scheduler whose view is compared with the truth."""
    schedulers = [one.by for one in snapshot.recording.log.views]
    if not schedulers:
        return None
    options = [tag("option", by or "nobody", value=by, selected=by == view) for by in ("", *schedulers)]
    return tag("label", "show what is wrong in the view of ", tag("select", *options, name=VIEW, id="view"))


def _said(moments: Sequence[tuple[Time, str]], now: Time) -> tuple[Markup | str, ...]:
    """The caption of the last moment."""
    before = [what for at_us, what in moments if at_us <= now]
    return (name_of(before[-1]),) if before else ("",)


def _moment(path: str, at_us: Time, what: str, origin_us: Time) -> Markup:
    when = link(address(path, {AT: seconds(at_us)}), moment(origin_us + at_us))
    return tag("li", when, " ", name_of(what))
