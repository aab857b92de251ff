"""The parts of every page: one HTML file that needs no other, and that can be read without scripts."""

from __future__ import annotations

import html
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
from volery.report.groups import shortened, straight
from volery.report.plots import GRID, INK, PAGE, PALETTE


def page(title: str, below: str, sections: Iterable[str], *styles: str, head: str = "", tail: str = "") -> str:
    """The page as text.

    Args:
        title: also the heading.
        below: a line of plain text under it.
        sections: HTML; empty ones are left out.
        styles: names of style sheets beside this module, after the common one.
        head: HTML for the end of the page's head.
        tail: HTML for the end of its body.
    """
    files = resources.files("volery.report")
    css = base_style() + "".join(files.joinpath(name).read_text(encoding="utf-8") for name in styles)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)} · Volery</title>\n<style>\n{css}</style>\n{head}</head>\n<body>\n"
        f"<header><h1>{escaped(title)}</h1>"
        f'<p class="soft">{escaped(below)}</p></header>\n'
        + "\n".join(part for part in sections if part)
        + f"\n{tail}</body></html>\n"
    )


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


def escaped(text: object) -> str:
    """Text as it may stand in a page; signs that would turn the direction of what follows are replaced."""
    return html.escape(straight(str(text)))


def shown(label: str) -> str:
    """A label as a page's script may show it: as `escaped` has it, but not escaped, and shortened."""
    return shortened(straight(label))


def breakable(text: str) -> str:
    """A label as it may stand in a page, shortened, with places to break it where it reads well."""
    return re.sub(r"([:,=_/])(?=\w)", r"\1<wbr>", escaped(shortened(text)))


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_class(kind)}>{escaped(text)}</p>"


def code(text: str) -> str:
    """Something typed or printed, on lines of its own."""
    return f"<pre><code>{escaped(text)}</code></pre>"


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are; a pair without text is left out."""
    return "<dl>" + "".join(f"<dt>{escaped(n)}</dt><dd>{escaped(t)}</dd>" for n, t in pairs if t) + "</dl>"


def table(heads: Sequence[str], rows: Iterable[TableRow], *, text_columns: int = 1, names: Collection[int] = ()) -> str:
    """A table that scrolls sideways where the screen is narrow.

    Args:
        heads: of the columns.
        rows: a row whose first cell is empty continues the one before.
        text_columns: so many columns hold text, the others numbers.
        names: places of later columns that hold names, too.
    """
    kinds = ["text label"] + ["text"] * (text_columns - 1) + [""] * (len(heads) - text_columns)
    kinds = ["text name" if place in names else kind for place, kind in enumerate(kinds)]
    head = "".join(
        f"<th{_class(kind.split(' ')[0])}>{breakable(name)}</th>" for kind, name in zip(kinds, heads, strict=True)
    )
    rows = list(rows)
    body = []
    for place, row in enumerate(rows):
        cells = [
            f"<td{_class(k)}>{breakable(c) if k else escaped(c)}</td>" for k, c in zip(kinds, row.cells, strict=True)
        ]
        if not row.cells[0] and place:
            del cells[0]
        else:
            following = sum(1 for _ in itertools.takewhile(lambda later: not later.cells[0], rows[place + 1 :]))
            cells[0] = cells[0].replace("<td", f'<td rowspan="{following + 1}"', 1) if following else cells[0]
        body.append(f"<tr{_class(row.kind)}>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def figure(svg: str, name: str, caption: str) -> str:
    """A picture that follows the page's colours, with its caption.

    Args:
        svg: from `volery.report.plots`.
        name: unlike that of any other picture of the page: it keeps their inner references apart.
        caption: also read out in place of the picture.
    """
    used = {found.group(2) for found in _REFERENCE.finditer(svg)}
    svg = _ID.sub(lambda found: f' id="{name}-{found.group(1)}"' if found.group(1) in used else "", svg)
    svg = _REFERENCE.sub(lambda found: f"{found.group(1)}{name}-{found.group(2)}", svg)
    svg = _STYLED.sub(lambda found: _COLOUR.sub(lambda c: THEMED.get(c.group(), c.group()), found.group()), svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(?::\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'<svg width="[^"]*" height="[^"]*"|<svg height="[^"]*" width="[^"]*"', "<svg", svg)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escaped(caption)}"', 1)
    return f"<figure>{svg}<figcaption>{escaped(caption)}</figcaption></figure>"


def section(title: str, *parts: str) -> str:
    """A part of the page under a heading; nothing when it is empty."""
    body = "\n".join(part for part in parts if part)
    return f"<section><h2>{escaped(title)}</h2>\n{body}</section>" if body else ""


def folded(title: str, body: str) -> str:
    """Something that a reader opens when needed."""
    return f"<details><summary>{escaped(title)}</summary>{body}</details>"


def _class(kind: str) -> str:
    return f' class="{escaped(kind)}"' if kind else ""
