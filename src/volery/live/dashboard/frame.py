"""The page around every view: the way to the others, its tables and buttons, and headers that let only its script run.

Tables are sorted and cut into pages by the server, so that a hundred thousand rows cost a browser fifty.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.live.service.authentication import Principal
from volery.live.service.requests import number
from volery.look.html import Markup, Piece, address, document, escaped, joined, link, scrolled_table, tag
from volery.look.text import utc, whole

HOME: Final = "/"
JOBS: Final = "/dashboard/jobs"
NODES: Final = "/dashboard/nodes"
HOSTS: Final = "/dashboard/hosts"
USERS: Final = "/dashboard/users"
PLAN: Final = "/dashboard/plan"
PREEMPTIONS: Final = "/dashboard/preemptions"
SIGN_IN: Final = "/dashboard/sign-in"
SESSION: Final = "/dashboard/session"
PULSE: Final = "/dashboard/pulse"
STYLE: Final = "/dashboard/dashboard.css"
SCRIPT: Final = "/dashboard/dashboard.js"
HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
WEIGHT_MAX: Final = 1 << 31
_VIEWS: Final = (
    (HOME, "Federation"), (JOBS, "Jobs"), (NODES, "Nodes"), (HOSTS, "Hosts"), (USERS, "Users"), (PLAN, "Plan"),
)  # fmt: skip
_UNSCRIPTED: Final = (
    "Without JavaScript this page does not follow what happens (load it again), and gives no orders (the command "
    "volery does)."
)


class PageView(msgspec.Struct, frozen=True):
    """The content of a page.

    Args:
        title: its heading, as plain text.
        live: what is fetched again when something has changed.
        still: what stays above it meanwhile, such as a form that is being filled in.
        place: the address of the view that it belongs to.
        every_s: it is fetched again at most once in so many seconds; 0: never.
        idle_s: and once in so many although no change was reported: some figures change by themselves; 0: not.
    """

    title: str
    live: Markup
    still: Markup = Markup("")
    place: str = ""
    every_s: float = 2.0
    idle_s: float = 30.0


def policy(nonce: str) -> str:
    """The content security policy of a page whose script has this nonce."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; connect-src 'self'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


class Again(msgspec.Struct, frozen=True):
    """The time at which a page fetches its live part again.

    Args:
        after_s: in so many seconds, if something changes; 0: never.
        tag: Tag of the live part that it has.
        behind: something has changed already.
        age_s: the live part was begun so many seconds ago.
    """

    after_s: float = 0.0
    tag: str = ""
    behind: bool = False
    age_s: float = 0.0

    def headers(self) -> dict[str, str]:
        """The headers that send it with an answer."""
        headers = {"etag": self.tag, "volery-again": f"{self.after_s:.3f}"}
        return HEADERS | headers | ({"volery-behind": "1"} if self.behind else {})


NEVER: Final = Again()


def live_part(view: PageView, refresh: Again) -> Response:
    return HTMLResponse(str(_live(view, refresh)), headers=refresh.headers())


def page(
    view: PageView,
    caller: Principal | None,
    federation: str = "",
    status: int = 200,
    refresh: Again = NEVER,
    clock: Markup | None = None,
) -> Response:
    """Render a page as an answer.

    Args:
        caller: the principal; None: nobody has signed in yet.
        refresh: when it is to be fetched again.
        clock: the bar that moves through a recording; None: the page follows a federation that is live.
    """
    nonce = secrets.token_urlsafe(16)
    head = joined((
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href=STYLE),
        tag("script", src=SCRIPT, nonce=nonce, defer=True),
    ))  # fmt: skip
    body = tag(
        "body",
        link("#live", "to the content", class_="skip"),
        _bar(view, caller, federation, recorded=clock is not None),
        clock,
        tag("noscript", tag("p", _UNSCRIPTED, class_="soft")) if caller is not None and clock is None else None,
        tag("main", tag("h1", view.title), view.still, _live(view, refresh)),
        tag("div", id="problem", role="alert", hidden=True),
        _dialog(),
    )
    headers = HEADERS | {"content-security-policy": policy(nonce)}
    return HTMLResponse(document(view.title, head, body), status, headers)


def _live(view: PageView, refresh: Again) -> Markup:
    attributes: dict[str, str] = {}
    if refresh.tag:
        begun = utc(round((time.time() - refresh.age_s) * SECOND))
        attributes = {
            "data_pulse": PULSE, "data_again": f"{refresh.after_s:.3f}", "data_tag": refresh.tag, "data_made": begun,
            "data_idle": f"{view.idle_s:g}",
        }  # fmt: skip
    return tag("div", view.live, id="live", tabindex=-1, **attributes)


def _bar(view: PageView, caller: Principal | None, federation: str, *, recorded: bool) -> Markup:
    if caller is None:
        return tag("header", tag("strong", "Volery"), class_="bar")
    view_links = _VIEWS if not recorded else [view_link for view_link in _VIEWS if view_link[0] not in (PLAN, HOSTS)]
    views = (link(path, name, aria_current="page" if path == view.place else None) for path, name in view_links)
    signed = None
    if caller.known:
        leave = tag("button", "sign out", type="button", data_leave=SESSION)
        signed = tag("span", joined((tag("bdi", caller.user), escaped(f" ({caller.role}) "), leave)), class_="signed")
    word, kind = ("recorded", "recorded") if recorded else ("not live", "soft")
    return tag(
        "header", tag("strong", "Volery", title=federation or None), tag("nav", *views, aria_label="views"),
        tag("span", word, id="pulse", class_=kind, role="status"), signed, class_="bar",
    )  # fmt: skip


def _dialog() -> Markup:
    """Asks before anything is changed, and for a number where one is needed."""
    field = tag("input", type="number", id="answer", min=1, max=WEIGHT_MAX, step=1, required=True, disabled=True)
    number_field = tag("p", tag("label", tag("span", id="asked"), " ", field), id="number", hidden=True)
    buttons = tag(
        "p", tag("button", "no, leave it", value="no", formnovalidate=True), Markup(" "),
        tag("button", "yes", value="yes", class_="order", id="yes"),
    )  # fmt: skip
    form = tag("form", tag("p", id="question"), number_field, buttons, method="dialog")
    return tag("dialog", form, aria_labelledby="question")


def order(title: str, path: str, question: str, key: str, body: str = "", then: str = "") -> Markup:
    """A button that gives an order to the API when its question was answered by yes.

    Args:
        path: the address that takes the order.
        body: Body of the order, as JSON.
        then: the page that follows; the id of the answer comes after it. Empty: the same page.
    """
    return tag(
        "button", title, type="button", class_="order", data_order=path, data_question=question, id=key,
        data_body=body or None, data_then=then or None,
    )  # fmt: skip


def setting(title: str, path: str, question: str, key: str, name: str, value: int) -> Markup:
    """A button that puts a number, which is asked for with the question, in the place of another."""
    return tag(
        "button", title, type="button", class_="order", data_order=path, data_question=question, id=key,
        data_number=name, data_value=value,
    )  # fmt: skip


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
        return f"-{self.key}" if self.falling else self.key


def slice_of(request: Request, columns: Iterable[Column], default: str, query: Mapping[str, str | int | None]) -> Slice:
    """The slice of a table that a request asks for.

    Raises:
        InputError: there is no such column, or a number is none.
    """
    order = request.query_params.get("sort", default)
    keys = [column.key for column in columns if column.key]
    if order.removeprefix("-") not in keys:
        raise InputError("query.sort", f"expected {', '.join(keys)}, with - before it for the other way")
    skip, rows = number(request, "skip", 0), number(request, "rows", ROWS, ROWS_MAX)
    return Slice(request.url.path, query, order.removeprefix("-"), order.startswith("-"), skip, max(1, rows))


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
    target = shown.at(order=f"-{column.key}" if falling else column.key)
    way = ("descending" if shown.falling else "ascending") if sorted_by else None
    return tag("th", link(target, column.title, id=f"sort-{column.key}"), scope="col", class_=kind, aria_sort=way)


def pager(shown: Slice, count: int, has_next: bool, total: int | None = None) -> Markup:
    """The place of the rows among all, with links to the others.

    Args:
        count: how many there are of them.
        has_next: whether others follow.
        total: how many there are in all, where that is known.
    """
    extent = f"{whole(shown.skip + 1)} to {whole(shown.skip + count)}" if count else "none"
    if total is not None and count:
        extent += f" of {whole(total)}"
    links = []
    if shown.skip:
        links += [link(shown.at(), "first", id="page-first")]
        links += [link(shown.at(skip=max(0, shown.skip - shown.rows)), "previous", id="page-previous", rel="prev")]
    if has_next:
        links.append(link(shown.at(skip=shown.skip + shown.rows), "next", id="page-next", rel="next"))
    place = tag("span", extent, class_="soft")
    return tag("nav", place, Markup(" "), joined(links, " "), class_="pager", aria_label="pages")


def state_of(state: str) -> Markup:
    """A state, with its colour."""
    return tag("span", state, class_=f"state {state}")


def text_field(words: str, name: str, value: str | int | None, size: int, **attributes: str) -> Markup:
    """A field of a form, with words before it."""
    shown = "" if value is None else value
    return tag("label", words, tag("input", name=name, value=shown, size=size, **attributes))


def choice_field(name: str, words: Iterable[str], selection: str | None) -> Markup:
    """A field of a form that takes one of a few words, or any."""
    options = (tag("option", word or "any", value=word, selected=word == (selection or "")) for word in ("", *words))
    return tag("label", f"{name} ", tag("select", *options, name=name))


def filter_form(path: str, fields: Iterable[Piece], *, filled: bool) -> Markup:
    """The form that asks a page for some of its rows."""
    clear = link(path, "clear") if filled else None
    return tag("form", *fields, tag("button", "show"), clear, class_="controls", action=path, role="search")
