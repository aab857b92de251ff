"""Tables of a page: sorted and cut into pages by the server, so that a hundred thousand rows cost a browser fifty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request

from volery.core.errors import InputError
from volery.live.service.requests import number
from volery.look.html import Markup, Piece, address, joined, link, scrolled_table, tag
from volery.look.text import whole

ROWS: Final = 50
ROWS_MAX: Final = 500


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    Args:
        title: its heading; empty where it holds orders or links that need no name.
        key: what it is sorted by; empty: it cannot be sorted.
        text: whether it holds words, which are aligned to the left.
    """

    title: str
    key: str = ""
    text: bool = False


class Slice(msgspec.Struct, frozen=True):
    """The rows of a table that a request asks for.

    Args:
        kept: the query of the page besides order and place.
        key, falling: what the table is sorted by.
        skip, rows: how many rows come before, and how many are shown.
    """

    path: str
    kept: Mapping[str, str | int | None]
    key: str
    falling: bool
    skip: int
    rows: int

    def at(self, *, skip: int = 0, order: str | None = None) -> str:
        """The address of other rows of the table."""
        rows = None if self.rows == ROWS else self.rows
        return address(self.path, {**self.kept, "sort": order or self.order, "skip": skip or None, "rows": rows})

    @property
    def order(self) -> str:
        """The sort order, as the query has it."""
        return f"-{self.key}" if self.falling else self.key


def slice_of(request: Request, columns: Iterable[Column], default: str, kept: Mapping[str, str | int | None]) -> Slice:
    """The slice of a table that a request asks for.

    Raises:
        InputError: there is no such column, or a number is none.
    """
    asked = request.query_params.get("sort", default)
    keys = [column.key for column in columns if column.key]
    if asked.removeprefix("-") not in keys:
        raise InputError("query.sort", f"expected {', '.join(keys)}, with - before it for the other way")
    skip, rows = number(request, "skip", 0), number(request, "rows", ROWS, ROWS_MAX)
    return Slice(request.url.path, kept, asked.removeprefix("-"), asked.startswith("-"), skip, max(1, rows))


def table(
    columns: Sequence[Column],
    cells: Sequence[Sequence[Piece]],
    shown: Slice | None = None,
    empty: str = "Nothing.",
    label: str = "table",
) -> Markup:
    """A table.

    Args:
        shown: which rows these are; None: all there are, in an order that does not change.
        empty: shown in place of a table without rows.
        label: what it holds, for those who do not see the heading above it.
    """
    if not cells:
        return tag("p", empty, class_="soft")
    kinds = ["text" if column.text else None for column in columns]
    heads = [column.title or None for column in columns]
    rows = (
        tag(
            "tr",
            *(tag("td", cell, class_=kind, data_head=head) for cell, kind, head in zip(row, kinds, heads, strict=True)),
        )
        for row in cells
    )
    shown_heads = (_head(column, shown) for column in columns)
    return scrolled_table(shown_heads, rows, "listed", tabindex=0, role="group", aria_label=label)


def _head(column: Column, shown: Slice | None) -> Markup:
    kind = "text" if column.text else None
    if not column.title:
        return tag("td", class_=kind)
    if shown is None or not column.key:
        return tag("th", column.title, scope="col", class_=kind)
    sorted_by = shown.key == column.key
    falling = sorted_by and not shown.falling
    there = shown.at(order=f"-{column.key}" if falling else column.key)
    way = ("descending" if shown.falling else "ascending") if sorted_by else None
    return tag("th", link(there, column.title, id=f"sort-{column.key}"), scope="col", class_=kind, aria_sort=way)


def pager(shown: Slice, here: int, more: bool, total: int | None = None) -> Markup:
    """The place of the rows among all, with links to the others.

    Args:
        here: how many there are of them.
        more: whether others follow.
        total: how many there are in all, where that is known.
    """
    told = f"{whole(shown.skip + 1)} to {whole(shown.skip + here)}" if here else "none"
    if total is not None and here:
        told += f" of {whole(total)}"
    links = []
    if shown.skip:
        links += [link(shown.at(), "first", id="page-first")]
        links += [link(shown.at(skip=max(0, shown.skip - shown.rows)), "previous", id="page-previous", rel="prev")]
    if more:
        links.append(link(shown.at(skip=shown.skip + shown.rows), "next", id="page-next", rel="next"))
    return tag(
        "nav", tag("span", told, class_="soft"), Markup(" "), joined(links, " "), class_="pager", aria_label="pages"
    )
