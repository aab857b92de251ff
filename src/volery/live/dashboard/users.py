"""Views of users: what each has and is due, other weights, and who has lost what to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from starlette.requests import Request

from volery.live.dashboard import frame
from volery.live.dashboard.frame import ROWS, ROWS_MAX, Column, PageView, pager, slice_of, table
from volery.live.service.queries import FederationView
from volery.live.service.requests import number, principal
from volery.live.status import PreemptionStatus, SharePart, ShareStatus, UserStatus, WeightChange
from volery.look.html import Markup, Piece, address, bar, joined, link, moment, name_of, part, section, tag
from volery.look.text import NOTHING, share, whole

LAST: Final = 10
"""Preemptions that are shown beside something else."""
CHANGES: Final = 1_000
"""Changes of weights among which the last one of each name is looked for."""
NAME_SHOWN: Final = 120
WHY_SHORT: Final = {
    "share": "had less than its share", "priority": "is more urgent", "cost": "the whole is better so",
}  # fmt: skip
"""The rule by which somebody gains a place; in full it is with the task that has lost it."""
_USERS: Final = (
    Column("user", "user", text=True),
    Column("share", "share"),
    Column("use", text=True),
    Column("tasks running", "tasks_running"),
    Column("tasks pending", "tasks_pending"),
    Column("jobs running", "jobs_running"),
    Column("jobs pending", "jobs_pending"),
    Column("", text=True),
)
_SHARES: Final = (
    Column("name", text=True),
    Column("weight"),
    Column("share"),
    Column("", text=True),
    Column("weight was changed", text=True),
)
_PREEMPTIONS: Final = (
    Column("when", text=True),
    Column("lost by", text=True),
    Column("task"),
    Column("attempt"),
    Column("for", text=True),
    Column("task"),
    Column("why", text=True),
    Column("who lost had", text=True),
    Column("who gained had", text=True),
)


def users_view(queries: FederationView, request: Request) -> PageView:
    """Users with something under way or a share; the tree of shares; the last preemptions.

    Raises:
        InputError: the query holds something else than it may.
    """
    who = principal(request)
    shown = slice_of(request, _USERS, "-tasks_running", {})
    found = queries.users(who.sees)
    found.sort(
        key=lambda user: getattr(user, shown.key) or 0 if shown.key != "user" else user.user, reverse=shown.falling
    )
    slots = sum(node.slots for node in queries.nodes() if node.state == "in use")
    here = found[shown.skip : shown.skip + shown.rows]
    rows = [_user(user, slots) for user in here]
    listed = table(_USERS, rows, shown, "Nobody has anything under way.", "users")
    pages = pager(shown, len(here), shown.skip + len(here) < len(found), len(found))
    told = (
        "Use: tasks that run, in percent of the slots that can be used; the line in its bar is the share, below which "
        "no running task is taken away."
    )
    parts = (
        pages, listed, tag("p", told, class_="soft"), _tree(queries, request),
        section("Preemptions", last_preemptions(queries, request, None)),
    )  # fmt: skip
    return PageView("Users", joined(parts), place=frame.USERS, every_s=5.0)


def _user(user: UserStatus, slots: int) -> Sequence[Piece]:
    entitled = NOTHING if user.share is None else share(user.share, 1)
    jobs, losses = (tag("i", "nobody"), None)
    if user.user:
        jobs = link(address(frame.JOBS, {"user": user.user}), name_of(user.user, NAME_SHOWN))
        losses = link(address(frame.PREEMPTIONS, {"user": user.user}), "preemptions")
    return (
        jobs,
        entitled,
        joined((_use(user.tasks_running, slots, user.share), share(user.tasks_running, slots)), " "),
        whole(user.tasks_running),
        whole(user.tasks_pending),
        whole(user.jobs_running),
        whole(user.jobs_pending),
        losses or "",
    )


def _use(running: int, slots: int, entitled: float | None) -> Markup:
    """The use of a user as a bar, with a line at its share."""
    width = min(100.0, 100 * running / slots) if slots else 0
    due = None if entitled is None else part(1, "due", max(0.01, min(99.0, 100 * entitled)))
    return bar(part(width, "running"), due)


def _tree(queries: FederationView, request: Request) -> Markup:
    """The tree of shares; an administrator may change it."""
    who = principal(request)
    listed = queries.sharing.listed(who.sees)
    if not listed:
        told = 'The scheduler knows no shares; Megha does with the parameter shares, as shares = "ann:2+bob:1".'
        return (
            Markup("")
            if who.sees is not None or queries.sharing.due()
            else section("Shares", tag("p", told, class_="soft"))
        )
    changed: dict[str, WeightChange] = {}
    if who.may("operator"):
        for change in queries.sharing.changes(None, CHANGES):
            changed.setdefault(change.name, change)
    may = who.may("admin")
    return section("Shares", table(_SHARES, [_share(one, changed, may=may) for one in listed], label="shares"))


def _share(one: ShareStatus, changed: Mapping[str, WeightChange], *, may: bool) -> Sequence[Piece]:
    change = changed.get(one.name)
    told = None
    if change is not None:
        by = joined((" by ", name_of(change.by, NAME_SHOWN))) if change.by else None
        told = tag("span", f"was {whole(change.was)} until ", moment(change.at_us), by)
    name = tag("span", "\N{EM SPACE}" * len(one.within), name_of(one.name, NAME_SHOWN))
    return (
        joined((name, tag("span", " and its members", class_="soft"))) if one.organisation else name,
        whole(one.weight),
        share(one.share, 1),
        _changing(one) if may else "",
        told or NOTHING,
    )


def _changing(one: ShareStatus) -> Markup:
    name = one.name if len(one.name) <= NAME_SHOWN else f"{one.name[:NAME_SHOWN]}\N{HORIZONTAL ELLIPSIS}"
    question = (
        f"Give {name} another weight? It is {one.weight} now. Whoever has more than its share then may lose running "
        "tasks, which begin anew."
    )
    where = f"/shares/{quote(one.name, safe='')}"
    return frame.setting("change", where, question, f"share-{one.name}", "weight", one.weight)


def preemptions_view(queries: FederationView, request: Request) -> PageView:
    """The view of preemptions.

    Raises:
        InputError: the query holds something else than it may.
    """
    user, job = request.query_params.get("user") or None, filtered_job(request)
    before, rows = number(request, "before", None), number(request, "rows", ROWS, ROWS_MAX)
    who = principal(request)
    found = queries.sharing.preemptions(user, job, before, max(1, rows) + 1, who.sees)
    here = found[: max(1, rows)]
    asked = {"user": user, "job": job, "rows": None if rows == ROWS else rows}
    links = [link(address(frame.PREEMPTIONS, asked), "newest", id="page-first")] if before is not None else []
    if len(found) > len(here):
        older = address(frame.PREEMPTIONS, {**asked, "before": here[-1].number})
        links.append(link(older, "older", id="page-next", rel="next"))
    pages = tag("nav", joined(links, " "), class_="pager", aria_label="pages") if links else None
    fields = [
        frame.text_field("user ", "user", user, 12) if who.sees is None else None,
        frame.text_field("job ", "job", job, 8, inputmode="numeric"),
    ]
    form = frame.filter_form(frame.PREEMPTIONS, fields, filled=bool(user) or job is not None)
    return PageView("Preemptions", joined((pages, preemptions(here))), form, frame.USERS, every_s=5.0)


def filtered_job(request: Request) -> int | None:
    """The number of the job in a query; None where the field of the form was left empty.

    Raises:
        InputError: it is no number.
    """
    return number(request, "job", None) if request.query_params.get("job") else None


def last_preemptions(queries: FederationView, request: Request, job: int | None) -> Markup | None:
    """The last ones, of a job or of all; None where there are none."""
    found = queries.sharing.preemptions(None, job, None, LAST, principal(request).sees)
    if not found:
        return None
    where = address(frame.PREEMPTIONS, {"job": job})
    return joined((preemptions(found), tag("p", link(where, "all of them"), class_="soft")))


def preemptions(found: Sequence[PreemptionStatus]) -> Markup:
    rows = [_preemption(one) for one in found]
    return table(_PREEMPTIONS, rows, empty="Nobody has lost anything.", label="preemptions")


def _preemption(one: PreemptionStatus) -> Sequence[Piece]:
    return (
        moment(one.at_us, fine=True),
        name_of(one.user, NAME_SHOWN) if one.user else NOTHING,
        _task(one.job, one.index),
        one.attempt if one.job >= 0 else NOTHING,
        name_of(one.for_user, NAME_SHOWN) if one.for_user else NOTHING,
        _task(one.for_job, one.for_index),
        WHY_SHORT.get(one.reason, one.reason),
        _change(one.loss),
        _change(one.gain),
    )


def _task(job: int, index: int) -> Markup:
    where = f"{frame.JOBS}/{job}/tasks/{index}"
    return link(where, f"{job}/{index}") if job >= 0 else tag("span", NOTHING)


def _change(had: SharePart | None) -> str:
    if had is None:
        return NOTHING
    return f"{share(had.before, 1)} \N{RIGHTWARDS ARROW} {share(had.after, 1)}, due {share(had.due, 1)}"
