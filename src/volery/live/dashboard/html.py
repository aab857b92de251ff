"""Pieces of a page. Text is escaped where it becomes markup, in `tag`, and nowhere else: no caller can forget it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final
from urllib.parse import urlencode

from volery.core.model import SECOND
from volery.live.clock import utc

MINUS: Final = "\N{MINUS SIGN}"
NOTHING: Final = "\N{EN DASH}"
RUNS_US: Final = 10 * 365 * 86_400 * SECOND
"""Runs count from their beginning, and none takes ten years; no federation has run in the ten years after 1970."""
SHOWN_MAX: Final = 400
"""Characters of a name or a reason that are shown; the API has the rest."""
_VOID: Final = frozenset({"br", "input", "link", "meta"})
TURNING: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, what turns the direction of the text around it, and halves of characters."""
_SPECIAL: Final = re.compile(f"[&<>\"']|{TURNING.pattern}")
"""Characters that a page must escape."""
_STEPS: Final = (
    (1, "\N{MICRO SIGN}s"),
    (1_000, "ms"),
    (SECOND, "s"),
    (60 * SECOND, "min"),
    (3600 * SECOND, "h"),
)


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Piece = str | int | None
"""A child of an element: markup stays as it is, all else is text."""


def escaped(text: object) -> Markup:
    """Text escaped for a page, also between quotes."""
    if type(text) is int or _SPECIAL.search(text := str(text)) is None:
        return Markup(text)
    return Markup(html.escape(TURNING.sub("\N{REPLACEMENT CHARACTER}", str(text))))


def joined(pieces: Iterable[Piece], between: str = "") -> Markup:
    return Markup(
        between.join([piece if type(piece) is Markup else escaped(piece) for piece in pieces if piece is not None])
    )


def tag(name: str, /, *children: Piece, **attributes: str | int | bool | None) -> Markup:
    """An element; attributes that are None or False are left out; `_` in a name is a hyphen, and at its end nothing."""
    told = f"<{name}"
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        told += f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{escaped(value)}"'
    return Markup(f"{told}>") if name in _VOID else Markup(f"{told}>{joined(children)}</{name}>")


@cache
def _attribute(key: str) -> str:
    if key == "viewbox":
        return "viewBox"
    return key.rstrip("_").replace("_", "-")


def name_of(text: str, most: int = SHOWN_MAX) -> Markup:
    """A name that somebody has given, set apart from the text around it; too long ones end in an ellipsis."""
    return tag("bdi", text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}")


def link(where: str, /, *children: Piece, **attributes: str | int | bool | None) -> Markup:
    return tag("a", *children, href=where, **attributes)


def address(path: str, query: Mapping[str, str | int | None]) -> str:
    """A path with a query; what is None or empty is left out."""
    asked = urlencode({key: value for key, value in query.items() if value not in (None, "")})
    return f"{path}?{asked}" if asked else path


def whole(count: int) -> str:
    """A count as people read it."""
    return f"{count:,}"


def share(part: float, of: float) -> str:
    """A part in percent."""
    return f"{100 * part / of:.1f} %" if of else NOTHING


def duration(us: int | None) -> str:
    """A time span, given in microseconds, with three digits."""
    if us is None:
        return NOTHING
    if us < 0:
        return f"{MINUS}{duration(-us)}"
    size, unit = max((step for step in _STEPS if us >= step[0]), default=_STEPS[0])
    value = us / size
    told = f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
    return f"{told.rstrip('0').rstrip('.') if '.' in told else told} {unit}"


def moment(us: int | None, *, fine: bool = False) -> Markup:
    """A time of day, UTC, given in microseconds since 1970; or, of a run, the time since it has begun.

    Args:
        fine: a time of day is shown to the millisecond.
    """
    if us is None:
        return escaped(NOTHING)
    if 0 <= us < RUNS_US:
        return tag("time", f"{us / SECOND:,.3f} s")
    try:
        shown = utc(us, fine=fine)
    except (OverflowError, OSError, ValueError):
        return escaped(us)
    return tag("time", shown, datetime=shown.replace(" ", "T"))


def facts(*pairs: tuple[str, Piece]) -> Markup:
    """A list of names and values."""
    return tag("dl", *(joined((tag("dt", key), tag("dd", value))) for key, value in pairs))


def figures(*pairs: tuple[str, Piece]) -> Markup:
    """Figures at a glance, side by side."""
    told = (tag("div", tag("dt", key), tag("dd", value)) for key, value in pairs)
    return tag("dl", *told, class_="figures")


def section(title: str, *children: Piece, **attributes: str | int | bool | None) -> Markup:
    """A part of a page under a heading; empty where there is nothing to show."""
    found = [child for child in children if child]
    return tag("section", tag("h2", title), *found, **attributes) if found else Markup("")


def bar(*parts: Markup | None, told: str = "") -> Markup:
    """A bar of a hundred units, of rectangles within; `told` describes it where nothing beside it does."""
    drawn = [tag("title", told), *parts] if told else parts
    role, hidden = ("img", None) if told else (None, "true")
    return tag(
        "svg", *drawn, class_="bar", viewbox="0 0 100 8", preserveAspectRatio="none", role=role, aria_hidden=hidden
    )


def part(width: float, kind: str | None = None, begin: float = 0.0) -> Markup:
    """A rectangle in a bar, in percent of it."""
    return tag("rect", x=f"{begin:.2f}" if begin else None, width=f"{width:.2f}", height=8, class_=kind)
