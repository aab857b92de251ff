"""Forecasts on a page: what is left of a job under way, and what a job would meet that nobody has submitted."""

from __future__ import annotations

import shlex
from typing import Final

import msgspec
from starlette.requests import Request

from volery.core.errors import InputError
from volery.core.forecast import PreemptedJob, Quantiles
from volery.live.dashboard import frame
from volery.live.dashboard.frame import Column, PageView, table
from volery.live.dashboard.tasks import steps
from volery.live.jobs import JobDescription, job_from_table, task_count
from volery.live.service.forecaster import Forecaster
from volery.live.service.queries import JobQueries
from volery.live.service.requests import number, principal, with_user
from volery.live.status import Forecast, ForecastRecord, JobPlan, JobStatus, PlannedGroup
from volery.look.html import Markup, Piece, bar, joined, link, moment, name_of, part, section, tag
from volery.look.text import NOTHING, share, time_span, whole

GROUPS_SHOWN: Final = 20
AT_ONCE_US: Final = 100_000
PREEMPTS_SHOWN: Final = 10
COMMAND_ASKED: Final = 500
MOMENTS: Final = {
    "first_start": "the first task starts",
    "first_end": "the first task ends",
    "last_start": "the last task starts",
    "last_end": "all tasks have ended",
}
NEXT: Final = {
    "first_start": "the next task starts",
    "first_end": "the next task ends",
    "last_start": "the last task starts",
    "last_end": "all tasks have ended",
}
BASES: Final = {
    "history": "earlier runs of it",
    "estimate": "estimates",
    "user": "other jobs of their user",
    "federation": "other users' jobs",
}
_MOMENTS: Final = (
    Column("", text=True),
    Column("1 in 10 before"),
    Column("median"),
    Column("9 in 10 before"),
    Column("", text=True),
    Column("median", text=True),
)
_RECORD: Final = (
    Column("moment", text=True),
    Column("forecasts"),
    Column("came within the interval"),
    Column("median was off by"),
)
_COMMAND: Final = "true"
"""A job must run something; where nothing is given, its name selects the earlier jobs that are like it."""
_NAMES: Final = ("name", "command", "user")


def forecast_view(job: JobStatus, forecast: Forecast) -> PageView:
    intervals = forecast_intervals(forecast, NEXT if job.started_us is not None else MOMENTS)
    return PageView(f"Forecast of job {job.id}", intervals, place=frame.JOBS, every_s=0)


def forecast_intervals(forecast: Forecast, words: dict[str, str]) -> Markup:
    """A forecast, its intervals on one scale; moments of which none is to come are left out."""
    if forecast.moments is None:
        return tag("p", f"No forecast: {forecast.problem}.", class_="reason")
    moments = {name: getattr(forecast.moments, name) for name in words}
    moments = {name: bounds for name, bounds in moments.items() if bounds != Quantiles(None, None, None)}
    ends = [us for bounds in moments.values() for us in (bounds.low_us, bounds.median_us, bounds.high_us) if us]
    last_us = max(ends, default=1)
    rows = [_moment(words[name], bounds, last_us, forecast.made_us) for name, bounds in moments.items()]
    runs = f"{forecast.runs} runs of the lab" if forecast.runs else "part of one run of the lab, there was no more time"
    bases = [
        f"of {whole(count)} tasks from {BASES[name]}" for name in BASES if (count := getattr(forecast.known, name))
    ]
    guessed = forecast.known.nothing
    note = joined(
        (
            "Made at ",
            moment(forecast.made_us),
            f" from {runs}, as if nobody else came. Durations are known ",
            ", ".join(bases) or "of none",
            f"; of {whole(guessed)} tasks they are not, and from a second to an hour is assumed" if guessed else "",
            ".",
        )
    )
    losers = [_loss(job) for job in forecast.preempts[:PREEMPTS_SHOWN]]
    return joined(
        (
            table(_MOMENTS, rows, label="moments"),
            tag("p", note, class_="soft"),
            tag("ul", *losers) if losers else None,
        )
    )


def _moment(words: str, bounds: Quantiles, last_us: int, made_us: int) -> tuple[Piece, ...]:
    low_us, high_us = bounds.low_us or 0, last_us if bounds.high_us is None else bounds.high_us
    at = None if bounds.median_us is None else part(1, "due", max(0.01, min(99.0, 100 * bounds.median_us / last_us)))
    begin = min(99.0, 100 * low_us / last_us)
    span = part(max(1.0, 100 * (high_us - low_us) / last_us), "running", begin)
    median = NOTHING if bounds.median_us is None else moment(made_us + bounds.median_us)
    return (words, _in(bounds.low_us), _in(bounds.median_us), _in(bounds.high_us), bar(span, at), median)


def _in(us: int | None) -> str:
    return "not known" if us is None else "at once" if us < AT_ONCE_US else f"in {time_span(us)}"


def _loss(job: PreemptedJob) -> Markup:
    runs = f"{job.tasks:.1f} running tasks to it on average, in {job.runs} runs"
    if job.job is None:
        return tag("li", f"Jobs of others lose {runs}.")
    return tag(
        "li",
        link(f"{frame.JOBS}/{job.job}", f"Job {job.job}"),
        " of ",
        name_of(job.user or "nobody", 40),
        f" loses {runs}.",
    )


def asked_job(request: Request) -> JobDescription | None:
    """The job that a query describes; None: it describes none.

    Raises:
        InputError: it is wrong somewhere.
    """
    query = request.query_params
    if not query:
        return None
    table: dict[str, object] = {name: query[name] for name in _NAMES if query.get(name)}
    table.setdefault("command", _COMMAND)
    table["tasks"] = number(request, "tasks", 1) if query.get("tasks") else 1
    if text := query.get("estimate_s"):
        try:
            table["estimate_s"] = float(text)
        except ValueError:
            raise InputError("estimate_s", f"expected seconds, not {text[:40]!r}") from None
    if conditions := [line.strip() for line in query.get("constraints", "").splitlines() if line.strip()]:
        table["constraints"] = conditions
    request_of: dict[str, int] = {}
    for line in query.get("request", "").replace(",", "\n").splitlines():
        name, _, amount = line.partition("=")
        if line.strip():
            if not amount.strip().isdecimal() or len(amount.strip()) > 18:
                raise InputError("request", f"expected NAME = AMOUNT, not {line.strip()[:40]!r}")
            request_of[name.strip()] = int(amount)
    if request_of:
        table["request"] = request_of
    return with_user(job_from_table(table, "job"), principal(request))


async def plan_view(queries: JobQueries, foreteller: Forecaster | None, request: Request) -> PageView:
    """The view of a planned job, and of the accuracy of forecasts.

    Raises:
        InputError: the job is wrong somewhere.
        NotAllowedError: it is meant to be somebody else's.
    """
    caller = principal(request)
    job, parts = asked_job(request), list[Piece]()
    if job is not None:
        parts += [_submitting(job) if request.query_params.get("command") else None, *_planned(await queries.plan(job))]
        if foreteller is not None:
            forecast = await foreteller.forecast(job, caller)
            parts.append(section("When it would start, and end", forecast_intervals(forecast, MOMENTS)))
    if foreteller is not None:
        parts.append(section("How good forecasts were", _record(await foreteller.record(caller.sees))))
    note = "When would a job start, and where could it run? Nothing is submitted before you say so."
    still = joined(
        (tag("p", note, class_="soft"), plan_form(request, for_others=not caller.known or caller.may("admin")))
    )
    return PageView("Plan", joined(parts), still, frame.PLAN, every_s=0)


def _submitting(job: JobDescription) -> Markup:
    """The order that submits a job as it was described; it names the command: a link may have filled in the form."""
    tasks = task_count(job)
    words = job.command if isinstance(job.command, str) else shlex.join(job.command)
    runs = words if len(words) <= COMMAND_ASKED else f"{words[:COMMAND_ASKED]} ..."
    question = f"Submit this job of {whole(tasks)} task{'s' * (tasks != 1)}, which runs: {runs}"
    body = msgspec.json.encode(job).decode()
    return tag("p", frame.order("submit this job", "/jobs", question, "submit", body, f"{frame.JOBS}/"))


def plan_form(request: Request, *, for_others: bool) -> Markup:
    """The form of a job description; it keeps its content."""
    query = request.query_params

    def field(name: str, words: str, **attributes: str | int) -> Markup:
        return tag("label", words, tag("input", name=name, value=query.get(name, ""), **attributes))

    def lines(name: str, words: str, hint: str) -> Markup:
        return tag("label", words, tag("textarea", query.get(name, ""), name=name, rows=2, placeholder=hint))

    fields = [
        field("name", "name", size=24, maxlength=200),
        field("command", "command", size=24),
        field("user", "user", size=12, maxlength=64) if for_others else None,
        tag(
            "label",
            "tasks",
            tag("input", name="tasks", value=query.get("tasks", "1"), type="number", min=1, max=1_000_000),
        ),
        field("estimate_s", "estimate, seconds", size=8, inputmode="decimal"),
        lines("constraints", "constraints, one per line", 'label.disk == "ssd"'),
        lines("request", "request, one per line", "cpu_milli = 500"),
    ]
    return tag("form", *fields, tag("button", "forecast"), class_="described", action=frame.PLAN)


def _planned(plan: JobPlan) -> list[Markup]:
    parts = [tag("p", f"{whole(plan.tasks)} tasks; {whole(plan.waiting)} tasks of all users wait already.")]
    if plan.lost:
        parts.append(tag("p", f"{whole(plan.lost)} nodes do not answer; this plan counts only what answers."))
    parts += [tag("p", f"{words}.", class_="reason absent") for words in plan.absent]
    parts += [_group(group) for group in plan.groups[:GROUPS_SHOWN]]
    return [section("Where it could go", *parts)]


def _group(group: PlannedGroup) -> Markup:
    room = None if group.at_once is None else tag("p", f"There is room for {whole(group.at_once)} of its tasks now.")
    never = tag("p", name_of(f"It would never run: {group.obstacle}"), class_="reason") if group.obstacle else None
    nodes: list[Piece] = []
    for node in group.nodes:
        nodes += [", " if nodes else None, link(f"{frame.NODES}/{node}", node)]
    destinations = tag("p", "It could go to ", *nodes, ".") if nodes else None
    return joined((steps(group.funnel), never, room, destinations))


def _record(record: ForecastRecord) -> Markup:
    rows = [
        (MOMENTS[item.moment], whole(item.settled), share(item.covered, item.settled), time_span(item.off_us))
        for item in record.moments
    ]
    note = (
        f"Of jobs that were submitted within a minute of their forecast, word for word. Intervals are meant to hold "
        f"{share(record.expected, 1)} of what comes; {whole(record.open)} forecasts are not decided yet."
    )
    if record.damaged:
        note += f" {whole(record.damaged)} are damaged and count nowhere; `volery check` lists them."
    return joined((table(_RECORD, rows, label="record of forecasts"), tag("p", note, class_="soft")))
