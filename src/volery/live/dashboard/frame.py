"""The page around every view: the way to the others, and headers that let it run its own script and nothing else."""

from __future__ import annotations

import secrets
import time
from typing import Final

import msgspec
from starlette.responses import HTMLResponse, Response

from volery.core.model import SECOND
from volery.live.service.tokens import Principal
from volery.look.html import Markup, document, escaped, joined, link, tag
from volery.look.text import utc

HOME: Final = "/"
JOBS: Final = "/window/jobs"
NODES: Final = "/window/nodes"
HOSTS: Final = "/window/hosts"
USERS: Final = "/window/users"
PLAN: Final = "/window/plan"
PREEMPTIONS: Final = "/window/preemptions"
SIGN_IN: Final = "/window/sign-in"
SESSION: Final = "/window/session"
PULSE: Final = "/window/pulse"
STYLE: Final = "/window/window.css"
SCRIPT: Final = "/window/window.js"
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
        tag: of the live part that it has.
        behind: something has changed already.
        age_s: the live part was begun so many seconds ago.
    """

    after_s: float = 0.0
    tag: str = ""
    behind: bool = False
    age_s: float = 0.0

    def headers(self) -> dict[str, str]:
        """The headers that send it with an answer."""
        told = {"etag": self.tag, "volery-again": f"{self.after_s:.3f}"}
        return HEADERS | told | ({"volery-behind": "1"} if self.behind else {})


NEVER: Final = Again()


def live_part(view: PageView, again: Again) -> Response:
    """The live part of a page, as a fragment."""
    return HTMLResponse(str(_live(view, again)), headers=again.headers())


def page(
    view: PageView,
    who: Principal | None,
    federation: str = "",
    status: int = 200,
    again: Again = NEVER,
    film: Markup | None = None,
) -> Response:
    """Render a page as an answer.

    Args:
        who: the principal; None: nobody has signed in yet.
        again: when it is to be fetched again.
        film: moves through a recording, where the page shows one: nothing changes there by itself.
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
        _bar(view, who, federation, recorded=film is not None),
        film,
        tag("noscript", tag("p", _UNSCRIPTED, class_="soft")) if who is not None and film is None else None,
        tag("main", tag("h1", view.title), view.still, _live(view, again)),
        tag("div", id="problem", role="alert", hidden=True),
        _dialog(),
    )
    headers = HEADERS | {"content-security-policy": policy(nonce)}
    return HTMLResponse(document(view.title, head, body), status, headers)


def _live(view: PageView, again: Again) -> Markup:
    told: dict[str, str] = {}
    if again.tag:
        made = utc(round((time.time() - again.age_s) * SECOND))
        told = {
            "data_pulse": PULSE, "data_again": f"{again.after_s:.3f}", "data_tag": again.tag, "data_made": made,
            "data_idle": f"{view.idle_s:g}",
        }  # fmt: skip
    return tag("div", view.live, id="live", tabindex=-1, **told)


def _bar(view: PageView, who: Principal | None, federation: str, *, recorded: bool) -> Markup:
    if who is None:
        return tag("header", tag("strong", "Volery"), class_="bar")
    there = _VIEWS if not recorded else [one for one in _VIEWS if one[0] not in (PLAN, HOSTS)]
    views = (link(path, name, aria_current="page" if path == view.place else None) for path, name in there)
    signed = None
    if who.known:
        leave = tag("button", "sign out", type="button", data_leave=SESSION)
        signed = tag("span", joined((tag("bdi", who.user), escaped(f" ({who.role}) "), leave)), class_="signed")
    word, kind = ("recorded", "recorded") if recorded else ("not live", "soft")
    return tag(
        "header", tag("strong", "Volery", title=federation or None), tag("nav", *views, aria_label="views"),
        tag("span", word, id="pulse", class_=kind, role="status"), signed, class_="bar",
    )  # fmt: skip


def _dialog() -> Markup:
    """Asks before anything is changed, and for a number where one is needed."""
    field = tag("input", type="number", id="answer", min=1, max=WEIGHT_MAX, step=1, required=True, disabled=True)
    asked = tag("p", tag("label", tag("span", id="asked"), " ", field), id="number", hidden=True)
    buttons = tag(
        "p", tag("button", "no, leave it", value="no", formnovalidate=True), Markup(" "),
        tag("button", "yes", value="yes", class_="order", id="yes"),
    )  # fmt: skip
    form = tag("form", tag("p", id="question"), asked, buttons, method="dialog")
    return tag("dialog", form, aria_labelledby="question")


def order(title: str, where: str, question: str, key: str, body: str = "", then: str = "") -> Markup:
    """A button that gives an order to the API when its question was answered by yes.

    Args:
        where: the address that takes the order.
        key: the button's own name on the page.
        body: of the order, as JSON.
        then: the page that follows; the id of the answer comes after it. Empty: the same page.
    """
    return tag(
        "button", title, type="button", class_="order", data_order=where, data_question=question, id=key,
        data_body=body or None, data_then=then or None,
    )  # fmt: skip


def setting(title: str, where: str, question: str, key: str, name: str, value: int) -> Markup:
    """A button that puts a number, which is asked for with the question, in the place of another.

    Args:
        where: the address that takes it.
        key: the button's own name on the page.
    """
    return tag(
        "button", title, type="button", class_="order", data_order=where, data_question=question, id=key,
        data_number=name, data_value=value,
    )  # fmt: skip
