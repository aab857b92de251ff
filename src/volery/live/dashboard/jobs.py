"""Views of jobs: all that may be seen, and one with its tasks as a grid and over time."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import Final, get_args

from starlette.requests import Request

from volery.core.omissions import amount_text
from volery.live.dashboard import frame
from volery.live.dashboard.frame import Column, PageView, pager, slice_of, state_of, table
from volery.live.dashboard.tasks import logs, reasons
from volery.live.dashboard.users import last_preemptions
from volery.live.jobs import JobDescription
from volery.live.service.outputs import Outputs
from volery.live.service.queries import FederationView
from volery.live.service.requests import choice, number, principal
from volery.live.service.rows import ORDERS, JobOrder, JobQuery
from volery.live.status import ENDED_TASKS, JobState, JobStatus, TaskStatus
from volery.look.html import (
    Markup,
    Piece,
    address,
    bar,
    escaped,
    facts,
    figures,
    joined,
    link,
    moment,
    name_of,
    part,
    section,
    tag,
)
from volery.look.text import NOTHING, share, time_span, whole

COMMAND_SHOWN: Final = 2_000
CELLS: Final = 500
"""Tasks that a page shows at once."""
SIGNS: Final = {
    "pending": "\N{MIDDLE DOT}",
    "running": "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}",
    "finished": "\N{CHECK MARK}",
    "failed": "\N{MULTIPLICATION X}",
    "killed": "k",
    "cancelled": "c",
    "unsatisfiable": "!",
    "unknown": "?",
}
"""States as one letter each, for those who cannot distinguish their colours."""
COLUMNS: Final = (
    Column("job", "id"),
    Column("state", "state", text=True),
    Column("name", "name", text=True),
    Column("user", "user", text=True),
    Column("tasks", "tasks"),
    Column("progress", text=True),
    Column("submitted", "submitted_us"),
    Column("took"),
    Column("reason", "reason", text=True),
)
_PARTS: Final = ("finished", "running", "failed", "killed", "unsatisfiable")
_TELLING: Final = ("failed", "running", "finished", "killed")
"""Of which task of a job the output is shown: the first in the first of these states."""


async def jobs_view(queries: FederationView, request: Request) -> PageView:
    """Jobs, filtered, sorted, cut into pages.

    Raises:
        InputError: the query holds something else than it may.
    """
    caller = principal(request)
    filters = {name: request.query_params.get(name) or None for name in ("user", "state", "name", "reason")}
    state = choice(request, "state", get_args(JobState)) if filters["state"] else None
    shown = slice_of(request, COLUMNS, "-id", filters)
    assert shown.key in ORDERS
    jobs: list[JobStatus] = []
    if caller.sees is None or filters["user"] in (None, caller.sees):
        query = JobQuery(state, caller.sees or filters["user"], reason=filters["reason"], name=filters["name"])
        jobs = await queries.search(query, shown.rows + 1, JobOrder(shown.key, shown.falling, shown.skip))
    page_jobs = jobs[: shown.rows]
    listed = table(COLUMNS, [_row(job) for job in page_jobs], shown, "No such jobs.", "jobs")
    pages = pager(shown, len(page_jobs), len(jobs) > len(page_jobs))
    return PageView("Jobs", joined((pages, listed)), _filters(filters, for_others=caller.sees is None), frame.JOBS)


def _filters(filters: dict[str, str | None], *, for_others: bool) -> Markup:
    fields = [
        frame.choice_field("state", get_args(JobState), filters["state"]),
        frame.text_field("user ", "user", filters["user"], 12) if for_others else None,
        frame.text_field("name contains ", "name", filters["name"], 12),
        frame.text_field("reason contains ", "reason", filters["reason"], 16),
    ]
    return frame.filter_form(frame.JOBS, fields, filled=any(filters.values()))


def _row(job: JobStatus) -> Sequence[Piece]:
    path = f"{frame.JOBS}/{job.id}"
    took = job.ran_us
    return (
        link(path, job.id, id=f"job-{job.id}"),
        state_of(job.state),
        name_of(job.name, 60),
        user_of(job.user, 40),
        whole(job.tasks),
        progress(job),
        moment(job.submitted_us),
        time_span(took),
        name_of(job.reason, 120),
    )


def user_of(user: str, most: int = 120) -> Markup:
    """A user, and the way to their jobs."""
    return link(address(frame.JOBS, {"user": user}), name_of(user, most)) if user else tag("i", "nobody", class_="soft")


def progress(job: JobStatus) -> Markup:
    counts, begin, bars = [(state, getattr(job, state)) for state in _PARTS], 0.0, []
    for state, count in counts:
        if count:
            width = 100 * count / job.tasks
            bars.append(part(width, state, begin))
            begin += width
    counts_text = ", ".join(f"{whole(count)} {state}" for state, count in counts if count) or "none has started"
    return joined((bar(*bars, told=counts_text), Markup(" "), share(job.finished, job.tasks)))


async def job_view(
    queries: FederationView, job: JobStatus, request: Request, outputs: Outputs | None, *, foretells: bool = False
) -> PageView:
    """One job.

    Args:
        outputs: finds the output of tasks; None: it is not known.
        foretells: whether forecasts are made here.

    Raises:
        InputError: the query holds something else than it may.
    """
    first = min(number(request, "first", 0), max(0, job.tasks - 1)) // CELLS * CELLS
    tasks = queries.tasks(job.id, first, CELLS)
    path = f"{frame.JOBS}/{job.id}"
    cancel = None
    if queries.takes_orders and not job.ended:
        question = f"Cancel job {job.id} of {job.user or 'nobody'}? What waits never runs, and what runs is killed."
        cancel = frame.order("cancel this job", f"/jobs/{job.id}/cancel", question, "cancel")
    took = None if job.ended_us is None else max(0, job.ended_us - job.submitted_us)
    job_facts = facts(
        ("name", name_of(job.name)),
        ("user", user_of(job.user)),
        *submitted(await queries.description(job.id), job.tasks),
        ("state", state_of(job.state)),
        ("reason", name_of(job.reason) if job.reason else NOTHING),
        *([("scheduled", name_of(job.moved))] if job.moved else []),
        ("progress", progress(job)),
        ("submitted", moment(job.submitted_us)),
        ("first task started", moment(job.started_us)),
        ("ended", moment(job.ended_us)),
        ("from submission to end", time_span(took)),
    )
    pending = job.tasks - sum(getattr(job, state) for state in _PARTS)
    states = (("pending", 0 if job.ended else pending), *((state, getattr(job, state)) for state in _PARTS))
    shown_always = ("pending", "running", "finished")
    shown_counts = [(state, whole(count)) for state, count in states if count or state in shown_always]
    counts = figures(("tasks", whole(job.tasks)), *shown_counts)
    answer = await queries.explain(job.id, None)
    shown = next((task for state in _TELLING for task in tasks if task.state == state and task.folder), None)
    listed = section("Tasks", _choosing(job, path, first), grid(job, tasks), _legend(tasks))
    await asyncio.sleep(0)  # either takes long where there are many tasks, and others wait
    drawn = section("Over time", timeline(tasks, queries))
    parts = (
        cancel, job_facts, counts, asking(job) if foretells and not job.ended else None,
        section("Why", reasons(answer, task=f"{path}/tasks/{answer.index}") if answer else None),
        listed, drawn,
        section("Preemptions", last_preemptions(queries, request, job.id)),
        await logs(shown, outputs, f"Task {shown.index}: ") if shown is not None and outputs is not None else None,
    )  # fmt: skip
    return PageView(f"Job {job.id}", joined(parts), place=frame.JOBS, idle_s=0.0 if job.ended else 10.0)


def submitted(description: JobDescription | None, task_count: int) -> list[tuple[str, Piece]]:
    """The command of a job, and further keys that say what it is; the values of its environment are not shown."""
    if description is None:
        return []
    tasks = description.tasks if isinstance(description.tasks, tuple) else ()
    first = next((task for task in tasks if task.command or task.call), description)
    words = first.command if isinstance(first.command, str) else shlex.join(first.command)
    kinds = len({task.command for task in tasks if task.command})
    is_first_of_many = len(tasks) == 1 and tasks[0].count < task_count
    note = f" (of task 0; {whole(kinds)} different ones)" if kinds > 1 else " (of task 0)" if is_first_of_many else ""
    command = tag("code", name_of(words, COMMAND_SHOWN)) if words else escaped("a Python callable")
    rows: list[tuple[str, Piece]] = [("command", joined((command, note)))]
    if description.env:
        rows.append(("environment", name_of(", ".join(sorted(description.env)))))
    if description.cwd:
        rows.append(("directory", tag("code", name_of(description.cwd))))
    if description.constraints:
        rows.append(("constraints", tag("code", name_of(", ".join(description.constraints)))))
    if description.request:
        amounts = ", ".join(amount_text(name, amount) for name, amount in description.request.items())
        rows.append(("asks for", amounts))
    return rows


def asking(job: JobStatus) -> Markup:
    """A question to the lab, whose answer the script puts beside it; without scripts a page of its own has it."""
    form = tag(
        "form", tag("button", "When will it start, and end?" if job.state == "pending" else "When will it end?"),
        tag("span", "asks the lab, which takes some seconds", class_="soft"), class_="controls",
        action=f"{frame.JOBS}/{job.id}/forecast", data_fill="The lab plays on from here\N{HORIZONTAL ELLIPSIS}",
    )  # fmt: skip
    answer = tag("div", data_filled=True, aria_live="polite")
    return section("Forecast", form, answer, data_keep=f"forecast-{job.id}-{job.state}")


def _legend(tasks: Sequence[TaskStatus]) -> Markup:
    states = {task.state for task in tasks}
    signs = (joined((tag("b", sign), f" {state}")) for state, sign in SIGNS.items() if state in states)
    return tag("p", joined(signs, ", "), class_="soft")


def _choosing(job: JobStatus, path: str, first: int) -> Markup:
    last = min(first + CELLS, job.tasks) - 1
    links = []
    if first:
        links.append(link(address(path, {"first": first - CELLS}), "previous", id="page-previous"))
    if last + 1 < job.tasks:
        links.append(link(address(path, {"first": first + CELLS}), "next", id="page-next"))
        links.append(link(address(path, {"first": (job.tasks - 1) // CELLS * CELLS}), "last", id="page-last"))
    extent = tag("span", f"{whole(first)} to {whole(last)} of {whole(job.tasks)}", class_="soft")
    return tag("nav", extent, Markup(" "), joined(links, " "), class_="pager", aria_label="tasks")


def grid(job: JobStatus, tasks: Sequence[TaskStatus]) -> Markup:
    """Tasks as cells; the arrow keys go from one to the next."""
    cells = []
    for place, task in enumerate(tasks):
        title = f"task {task.index}: {task.state}" + (f" on {task.node}" if task.node else "")
        path = f"{frame.JOBS}/{job.id}/tasks/{task.index}"
        cells.append(
            link(
                path,
                SIGNS[task.state],
                class_=f"cell {task.state}",
                title=title,
                aria_label=title,
                id=f"task-{task.index}",
                tabindex=-1 if place else 0,
            )
        )
    return tag("div", *cells, class_="grid", role="group", aria_label="tasks; arrow keys go from one to the next")


def _end_us(task: TaskStatus, started_us: int, queries: FederationView) -> int:
    """The end of a task's last attempt; now, if it still runs."""
    if task.ended_us is not None:
        return max(started_us, task.ended_us)
    return started_us + (0 if task.state in ENDED_TASKS else queries.elapsed_us(task))


def timeline(tasks: Sequence[TaskStatus], queries: FederationView) -> Markup | None:
    """The timeline of tasks, one line each, of their last attempts; times in microseconds since 1970."""
    ran = [(task, task.started_us) for task in tasks if task.started_us is not None]
    if not ran:
        return None
    begin = min(started for _, started in ran)
    ends = [_end_us(task, started, queries) for task, started in ran]
    span, tall, lines = max(1, max(ends) - begin), 4, []
    for place, ((task, started), end) in enumerate(zip(ran, ends, strict=True)):
        start_at = min(100 * (started - begin) / span, 99.85)
        width = min(max(0.15, 100 * (end - started) / span), 100 - start_at)
        title = tag("title", f"task {task.index}: {task.state}, {time_span(end - started)}")
        state = "killed" if task.state == "pending" else task.state  # it waits for its next attempt
        line = tag("rect", x=f"{start_at:.2f}", y=place * tall, width=f"{width:.2f}", height=tall - 1, class_=state)
        lines.append(tag("g", title, line))
    drawn = tag(
        "svg",
        *lines,
        viewbox=f"0 0 100 {len(ran) * tall}",
        height=len(ran) * tall,
        preserveAspectRatio="none",
        class_="timeline",
        role="img",
        aria_label=f"{len(ran)} tasks over {time_span(span)}",
    )
    until = f" to {time_span(span)} later; one line per task, as its last attempt left it"
    return joined((drawn, tag("p", moment(begin), until, class_="soft")))
