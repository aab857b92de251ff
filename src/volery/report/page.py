"""The parts of every page: one HTML file that needs no other, and that can be read without scripts."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.look import base_style
from volery.look.html import EMPTY, Markup, document, escaped, joined, paragraph, scrolled_table, tag
from volery.look.text import shortened
from volery.report.plots import GRID, INK, PAGE, PALETTE


def page(
    title: str, below: str, sections: Iterable[Markup], *styles: str, head: Markup = EMPTY, tail: Markup = EMPTY
) -> str:
    """The page as text.

    Args:
        title: also the heading.
        below: a line of plain text under it.
        styles: names of style sheets beside this module, after the common one.
        head: HTML for the end of the page's head.
        tail: HTML for the end of its body.
    """
    files = resources.files("volery.report")
    css = base_style() + "".join(files.joinpath(name).read_text(encoding="utf-8") for name in styles)
    header = tag("header", tag("h1", title), paragraph(below, "soft"))
    return document(title, joined((tag("style", Markup(css)), head)), tag("body", header, *sections, tail))


def write_page(path: Path, text: str) -> None:
    """Write a page; an earlier one is replaced at once or not at all.

    Raises:
        InputError: the path names no file, or it cannot be written.
    """
    if not path.name:
        raise InputError("page", f"{str(path)!r} names no file; give the name of one")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror}); make the folder writable") from None
    finally:
        with suppress(OSError):  # a file system that became read-only refuses this, too
            unfinished.unlink(missing_ok=True)


THEMED: Final = {INK: "var(--ink)", GRID: "var(--line)", PAGE: "var(--page)"} | {
    c: f"var(--c{i})" for i, c in enumerate(PALETTE)
}
_COLOUR: Final = re.compile(r"#[0-9a-f]{6}\b")
_STYLED: Final = re.compile(r' (?:style|fill|stroke)="[^"]*"')
_ID: Final = re.compile(r' id="([^"]*)"')
_REFERENCE: Final = re.compile(r'(url\(#|href="#)([^")]*)')


class TableRow(msgspec.Struct, frozen=True):
    """Cells of a table row as text, and its CSS class."""

    cells: Sequence[str]
    kind: str = ""


def breakable(text: str) -> Markup:
    """A label as it may stand in a page, shortened, with places to break it where it reads well."""
    return Markup(re.sub(r"([:,=_/])(?=\w)", r"\1<wbr>", escaped(shortened(text))))


def table(
    heads: Sequence[str], rows: Iterable[TableRow], *, text_columns: int = 1, names: Collection[int] = ()
) -> Markup:
    """A table that scrolls sideways where the screen is narrow.

    Args:
        rows: a row whose first cell is empty continues the one before.
        text_columns: so many columns hold text, the others numbers.
        names: places of later columns that hold names, too.
    """
    kinds = ["text label"] + ["text"] * (text_columns - 1) + [None] * (len(heads) - text_columns)
    kinds = ["text name" if place in names else kind for place, kind in enumerate(kinds)]
    shown_heads = (tag("th", breakable(name), class_=kind and "text") for kind, name in zip(kinds, heads, strict=True))

    rows, body = list(rows), []
    for place, row in enumerate(rows):
        cells = [tag("td", breakable(c) if kind else c, class_=kind) for kind, c in zip(kinds, row.cells, strict=True)]
        # Rows with the same first cell share one cell that spans them.
        following = sum(1 for _ in itertools.takewhile(lambda later: not later.cells[0], rows[place + 1 :]))

        # A row that continues the one before is under its spanning cell.
        if not row.cells[0] and place:
            del cells[0]
        elif following:
            cells[0] = tag("td", breakable(row.cells[0]), rowspan=following + 1, class_=kinds[0])
        body.append(tag("tr", *cells, class_=row.kind or None))
    return scrolled_table(shown_heads, body)


def figure(svg: str, name: str, caption: str) -> Markup:
    """A picture that follows the page's colours, with its caption.

    Args:
        svg: the text of a picture of `volery.report.plots`.
        name: unlike that of any other picture of the page: it keeps their inner references apart.
        caption: also read out in place of the picture.
    """
    used = {reference.group(2) for reference in _REFERENCE.finditer(svg)}
    # Pictures of one page would share the ids that matplotlib gives: those that are referred to get the picture's name.
    svg = _ID.sub(lambda reference: f' id="{name}-{reference.group(1)}"' if reference.group(1) in used else "", svg)
    svg = _REFERENCE.sub(lambda reference: f"{reference.group(1)}{name}-{reference.group(2)}", svg)
    svg = _STYLED.sub(lambda reference: _COLOUR.sub(lambda c: THEMED.get(c.group(), c.group()), reference.group()), svg)

    # Neither is needed inside an HTML page, and the fixed size would keep the picture from following the page's width.
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(?::\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'<svg width="[^"]*" height="[^"]*"|<svg height="[^"]*" width="[^"]*"', "<svg", svg)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escaped(caption)}"', 1)

    return tag("figure", Markup(svg), tag("figcaption", caption))
