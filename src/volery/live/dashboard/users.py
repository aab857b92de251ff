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
    caller = principal(request)
    shown = slice_of(request, _USERS, "-tasks_running", {})
    users = queries.users(caller.sees)
    users.sort(
        key=lambda user: getattr(user, shown.key) or 0 if shown.key != "user" else user.user, reverse=shown.falling
    )
    slots = sum(node.slots for node in queries.nodes() if node.state == "in use")
    page_users = users[shown.skip : shown.skip + shown.rows]
    rows = [_user(user, slots) for user in page_users]
    listed = table(_USERS, rows, shown, "Nobody has anything under way.", "users")
    pages = pager(shown, len(page_users), shown.skip + len(page_users) < len(users), len(users))
    note = (
        "Use: tasks that run, in percent of the slots that can be used; the line in its bar is the share, below which "
        "no running task is taken away."
    )
    parts = (
        pages, listed, tag("p", note, class_="soft"), _tree(queries, request),
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
    caller = principal(request)
    listed = queries.sharing.listed(caller.sees)
    if not listed:
        note = 'The scheduler knows no shares; Megha does with the parameter shares, as shares = "ann:2+bob:1".'
        return (
            Markup("")
            if caller.sees is not None or queries.sharing.due()
            else section("Shares", tag("p", note, class_="soft"))
        )
    changed: dict[str, WeightChange] = {}
    if caller.may("operator"):
        for change in queries.sharing.changes(None, CHANGES):
            changed.setdefault(change.name, change)
    may = caller.may("admin")
    return section("Shares", table(_SHARES, [_share(item, changed, may=may) for item in listed], label="shares"))


def _share(item: ShareStatus, changed: Mapping[str, WeightChange], *, may: bool) -> Sequence[Piece]:
    change = changed.get(item.name)
    change_text = None
    if change is not None:
        by = joined((" by ", name_of(change.by, NAME_SHOWN))) if change.by else None
        change_text = tag("span", f"was {whole(change.was)} until ", moment(change.at_us), by)
    name = tag("span", "\N{EM SPACE}" * len(item.within), name_of(item.name, NAME_SHOWN))
    return (
        joined((name, tag("span", " and its members", class_="soft"))) if item.organisation else name,
        whole(item.weight),
        share(item.share, 1),
        _changing(item) if may else "",
        change_text or NOTHING,
    )


def _changing(item: ShareStatus) -> Markup:
    name = item.name if len(item.name) <= NAME_SHOWN else f"{item.name[:NAME_SHOWN]}\N{HORIZONTAL ELLIPSIS}"
    question = (
        f"Give {name} another weight? It is {item.weight} now. Whoever has more than its share then may lose "
        "running tasks, which begin anew."
    )
    path = f"/shares/{quote(item.name, safe='')}"
    return frame.setting("change", path, question, f"share-{item.name}", "weight", item.weight)


def preemptions_view(queries: FederationView, request: Request) -> PageView:
    """The view of preemptions.

    Raises:
        InputError: the query holds something else than it may.
    """
    user, job = request.query_params.get("user") or None, filtered_job(request)
    number_end, rows = number(request, "before", None), number(request, "rows", ROWS, ROWS_MAX)
    caller = principal(request)
    statuses = queries.sharing.preemptions(user, job, number_end, max(1, rows) + 1, caller.sees)
    page_preemptions = statuses[: max(1, rows)]
    filters = {"user": user, "job": job, "rows": None if rows == ROWS else rows}
    links = [link(address(frame.PREEMPTIONS, filters), "newest", id="page-first")] if number_end is not None else []
    if len(statuses) > len(page_preemptions):
        older = address(frame.PREEMPTIONS, {**filters, "before": page_preemptions[-1].number})
        links.append(link(older, "older", id="page-next", rel="next"))
    pages = tag("nav", joined(links, " "), class_="pager", aria_label="pages") if links else None
    fields = [
        frame.text_field("user ", "user", user, 12) if caller.sees is None else None,
        frame.text_field("job ", "job", job, 8, inputmode="numeric"),
    ]
    form = frame.filter_form(frame.PREEMPTIONS, fields, filled=bool(user) or job is not None)
    return PageView("Preemptions", joined((pages, preemptions(page_preemptions))), form, frame.USERS, every_s=5.0)


def filtered_job(request: Request) -> int | None:
    """The number of the job in a query; None where the field of the form was left empty.

    Raises:
        InputError: it is no number.
    """
    return number(request, "job", None) if request.query_params.get("job") else None


def last_preemptions(queries: FederationView, request: Request, job: int | None) -> Markup | None:
    """The last ones, of a job or of all; None where there are none."""
    statuses = queries.sharing.preemptions(None, job, None, LAST, principal(request).sees)
    if not statuses:
        return None
    path = address(frame.PREEMPTIONS, {"job": job})
    return joined((preemptions(statuses), tag("p", link(path, "all of them"), class_="soft")))


def preemptions(statuses: Sequence[PreemptionStatus]) -> Markup:
    rows = [_preemption(status) for status in statuses]
    return table(_PREEMPTIONS, rows, empty="Nobody has lost anything.", label="preemptions")


def _preemption(status: PreemptionStatus) -> Sequence[Piece]:
    return (
        moment(status.at_us, fine=True),
        name_of(status.user, NAME_SHOWN) if status.user else NOTHING,
        _task(status.job, status.index),
        status.attempt if status.job >= 0 else NOTHING,
        name_of(status.for_user, NAME_SHOWN) if status.for_user else NOTHING,
        _task(status.for_job, status.for_index),
        WHY_SHORT.get(status.reason, status.reason),
        _change(status.loss),
        _change(status.gain),
    )


def _task(job: int, index: int) -> Markup:
    path = f"{frame.JOBS}/{job}/tasks/{index}"
    return link(path, f"{job}/{index}") if job >= 0 else tag("span", NOTHING)


def _change(had: SharePart | None) -> str:
    if had is None:
        return NOTHING
    return f"{share(had.before, 1)} \N{RIGHTWARDS ARROW} {share(had.after, 1)}, due {share(had.due, 1)}"
