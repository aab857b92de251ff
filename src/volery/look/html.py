"""Elements of pages. Text is escaped where it becomes markup, in `tag`, and nowhere else: no caller can forget it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final
from urllib.parse import urlencode

from volery.look.text import NOTHING, straight, utc

RUNS_US: Final = 10 * 365 * 86_400 * 1_000_000
"""Runs count from their beginning, and none takes ten years; no federation has run in the ten years after 1970."""
SHOWN_MAX: Final = 400
"""Characters of a name or a reason that are shown; the API has the rest."""
_VOID: Final = frozenset({"br", "input", "link", "meta"})
_PLAIN: Final = re.compile(r"[\w .,:;/()=+-]*", re.ASCII)
"""Text that a page shows as it is."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY: Final = Markup("")
Piece = str | int | None
"""A child of an element: markup stays as it is, all else is text."""


def escaped(text: object) -> Markup:
    """Text escaped for a page, also between quotes."""
    if type(text) is int or _PLAIN.fullmatch(text := str(text)):
        return Markup(text)
    return Markup(html.escape(straight(str(text))))


def joined(pieces: Iterable[Piece], between: str = "") -> Markup:
    return Markup(
        between.join([piece if type(piece) is Markup else escaped(piece) for piece in pieces if piece is not None])
    )


def tag(name: str, /, *children: Piece, **attributes: str | int | bool | None) -> Markup:
    """An element; attributes that are None or False are left out; `_` in a name is a hyphen, and at its end nothing."""
    start = f"<{name}"
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        start += f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{escaped(value)}"'
    return Markup(f"{start}>") if name in _VOID else Markup(f"{start}>{joined(children)}</{name}>")


@cache
def _attribute(key: str) -> str:
    if key == "viewbox":
        return "viewBox"
    return key.rstrip("_").replace("_", "-")


def name_of(text: str, most: int = SHOWN_MAX) -> Markup:
    """A name that somebody has given, set apart from the text around it; too long ones end in an ellipsis."""
    return tag("bdi", text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}")


def link(target: str, /, *children: Piece, **attributes: str | int | bool | None) -> Markup:
    return tag("a", *children, href=target, **attributes)


def address(path: str, query: Mapping[str, str | int | None]) -> str:
    """A path with a query; what is None or empty is left out."""
    text = urlencode({key: value for key, value in query.items() if value not in (None, "")})
    return f"{path}?{text}" if text else path


def moment(us: int | None, *, fine: bool = False) -> Markup:
    """A time of day, UTC, given in microseconds since 1970; or, of a run, the time since it has begun.

    Args:
        fine: a time of day is shown to the millisecond.
    """
    if us is None:
        return escaped(NOTHING)
    if 0 <= us < RUNS_US:
        return tag("time", f"{us / 1_000_000:,.3f} s")
    try:
        shown = utc(us, fine=fine)
    except (OverflowError, OSError, ValueError):
        return escaped(us)
    return tag("time", shown, datetime=shown.replace(" ", "T"))


def facts(*pairs: tuple[str, Piece]) -> Markup:
    return tag("dl", *(joined((tag("dt", key), tag("dd", value))) for key, value in pairs))


def figures(*pairs: tuple[str, Piece]) -> Markup:
    """Figures at a glance, side by side."""
    entries = (tag("div", tag("dt", key), tag("dd", value)) for key, value in pairs)
    return tag("dl", *entries, class_="figures")


def section(title: str, *children: Piece, **attributes: str | int | bool | None) -> Markup:
    """A part of a page under a heading; empty where there is nothing to show."""
    content = [child for child in children if child]
    return tag("section", tag("h2", title), *content, **attributes) if content else EMPTY


def bar(*parts: Markup | None, title: str = "") -> Markup:
    """A bar of a hundred units, of rectangles within; the title describes it where nothing beside it does."""
    drawn = [tag("title", title), *parts] if title else parts
    role, hidden = ("img", None) if title else (None, "true")
    return tag(
        "svg", *drawn, class_="bar", viewbox="0 0 100 8", preserveAspectRatio="none", role=role, aria_hidden=hidden
    )


def part(width: float, kind: str | None = None, begin: float = 0.0) -> Markup:
    """A rectangle in a bar, in percent of it."""
    return tag("rect", x=f"{begin:.2f}" if begin else None, width=f"{width:.2f}", height=8, class_=kind)


def paragraph(text: Piece, kind: str | None = None) -> Markup:
    return tag("p", text, class_=kind)


def code(text: str) -> Markup:
    """Something typed or printed, on lines of its own."""
    return tag("pre", tag("code", text))


def folded(title: str, body: Piece) -> Markup:
    """Something that a reader opens when needed."""
    return tag("details", tag("summary", title), body)


def scrolled_table(
    heads: Iterable[Markup], rows: Iterable[Markup], kind: str | None = None, **attributes: str | int
) -> Markup:
    """A table that scrolls sideways where the screen is narrow.

    Args:
        attributes: Attributes of the part of the page that scrolls.
    """
    listed = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_=kind)
    return tag("div", listed, class_="scroll", **attributes)


def document(title: str, head: Markup, body: Markup) -> str:
    """The whole of a page.

    Args:
        head: elements for the end of the page's head.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} \N{MIDDLE DOT} Volery"),
        head,
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'
