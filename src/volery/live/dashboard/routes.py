"""The routes of the live page: each answers with a whole page, and its script fetches it again after changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from volery.core.errors import InputError
from volery.core.model import Address
from volery.live.dashboard import frame
from volery.live.dashboard.forecasts import forecast_view, plan_view
from volery.live.dashboard.frame import PageView, live_part, page
from volery.live.dashboard.jobs import job_view, jobs_view
from volery.live.dashboard.nodes import hosts_view, node_view, nodes_view
from volery.live.dashboard.overview import overview
from volery.live.dashboard.renderings import Pacer, Renderings
from volery.live.dashboard.tasks import NewOutput, news, task_view
from volery.live.dashboard.users import filtered_job, preemptions_view, users_view
from volery.live.node.output import STREAMS
from volery.live.service.authentication import Principal, Sessions, is_foreign, names_origin
from volery.live.service.figures import Pacing
from volery.live.service.forecaster import Forecaster
from volery.live.service.job_service import JobService
from volery.live.service.outputs import Outputs
from volery.live.service.queries import FederationView, JobQueries
from volery.live.service.requests import (
    FOREIGN,
    NotAllowedError,
    NotThereError,
    Traffic,
    as_json,
    body_of,
    number,
    principal,
    refusal,
    seen_job,
    status_of,
)
from volery.live.status import JobStatus, TaskStatus
from volery.look import base_style, field_script
from volery.look.html import address, joined, link, tag

PULSE_S: Final = 1.0
KEEP_ALIVE_PULSES: Final = 15
PART: Final = "volery-part"
"""A header of requests for the live part alone."""
BODY_BYTES_MAX: Final = 4096
_THEN: Final = re.compile(r"/(?:dashboard/[a-z0-9/-]*)?(?:\?[A-Za-z0-9%&=+._~*-]*)?")
"""Where one may be sent after signing in: pages of ours alone."""

FORM: Final = "application/x-www-form-urlencoded"
INVALID: Final = "it is not valid, or no longer; ask an administrator for another"
ENDED: Final = "Your session has ended, or its token is valid no longer. Sign in again to go on where you were."

Show = Callable[[Request], Coroutine[Any, Any, PageView]]


class _SignIn(msgspec.Struct, forbid_unknown_fields=True):
    token: str


def dashboard_routes(
    service: JobService, outputs: Outputs, sessions: Sessions, traffic: Traffic, foreteller: Forecaster | None = None
) -> list[Route]:
    """All pages, what they are made of, and the way in and out.

    Args:
        sessions: find the principal of a request.
        foreteller: makes forecasts; None: there are none.
    """
    access = _Access(service, sessions, traffic)
    views = _Views(service.queries, outputs, service.queries.pace, foretells=foreteller is not None)
    one_job = f"{frame.JOBS}/{{id:number}}"
    lab = _Lab(service.queries, foreteller, views)
    return [
        *(Route(path, access.shown(show)) for path, show in _pages(views)),
        Route(frame.PLAN, access.shown(lab.plan)), Route(one_job + "/forecast", access.shown(lab.forecast)),
        Route(one_job + "/tasks/{index:number}/tail", access.content(_tail(views, outputs))),
        Route(frame.SIGN_IN, access.form), Route(frame.SESSION, access.enter, methods=["POST"]),
        Route(frame.SESSION + "/end", access.leave, methods=["POST"]), Route(frame.PULSE, access.pulse),
        Route(frame.STYLE, file_of("text/css; charset=utf-8", dashboard_style())),
        Route(frame.SCRIPT, file_of("text/javascript; charset=utf-8", live_script())),
    ]  # fmt: skip


def pages(queries: FederationView, outputs: Outputs | None, pace: Pacing) -> tuple[tuple[str, Show], ...]:
    """The path and the view of each page.

    Args:
        outputs: finds the output of tasks; None: it is not known.
        pace: how fast tasks end.
    """
    return _pages(_Views(queries, outputs, pace))


def _pages(views: _Views) -> tuple[tuple[str, Show], ...]:
    one_job = f"{frame.JOBS}/{{id:number}}"
    return (
        (frame.HOME, views.federation), (frame.JOBS, views.jobs), (one_job, views.job),
        (one_job + "/tasks/{index:number}", views.task), (frame.NODES, views.nodes),
        (frame.HOSTS, views.hosts), (frame.NODES + "/{role:str}/{node:number}", views.node), (frame.USERS, views.users),
        (frame.PREEMPTIONS, views.preemptions),
    )  # fmt: skip


def _tail(views: _Views, outputs: Outputs) -> Callable[[Request], Awaitable[NewOutput]]:
    async def tail(request: Request) -> NewOutput:
        since = {stream: number(request, stream, 0) for stream in STREAMS}
        return await news(views.one_task(request), outputs, number(request, "attempt", 0), since)

    return tail


def live_script() -> str:
    return "\n".join((dashboard_script(), _text("pulse.js"), _text("tail.js")))


def dashboard_script() -> str:
    return "\n".join((_text("dashboard.js"), field_script(), _text("cells.js")))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def dashboard_style() -> str:
    return base_style() + _text("dashboard.css")


def file_of(kind: str, text: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(text, media_type=kind, headers=frame.HEADERS)

    return answer


class _Views:
    def __init__(
        self, queries: FederationView, outputs: Outputs | None, pace: Pacing, *, foretells: bool = False
    ) -> None:
        self._queries = queries
        self._outputs = outputs
        self._pace = pace
        self._foretells = foretells
        self._owners: Mapping[Address, Sequence[Address]] | None = None

    async def _owners_of_nodes(self) -> Mapping[Address, Sequence[Address]]:
        if self._owners is None:  # it never changes, and takes seconds where there are ten thousand nodes
            self._owners = await asyncio.to_thread(self._queries.partitions)
        return self._owners

    async def federation(self, request: Request) -> PageView:
        return overview(self._queries, request, self._pace, await self._owners_of_nodes())

    async def jobs(self, request: Request) -> PageView:
        return await jobs_view(self._queries, request)

    async def job(self, request: Request) -> PageView:
        return await job_view(self._queries, self.one_job(request), request, self._outputs, foretells=self._foretells)

    async def task(self, request: Request) -> PageView:
        return await task_view(self._queries, self.one_task(request), self._outputs)

    def one_task(self, request: Request) -> TaskStatus:
        job, place = self.one_job(request), request.path_params["index"]
        if place >= job.tasks:
            raise NotThereError(f"jobs/{job.id}/tasks/{place}", f"the job has tasks 0 to {job.tasks - 1}")
        return self._queries.tasks(job.id, place, 1)[0]

    async def nodes(self, request: Request) -> PageView:
        return nodes_view(self._queries, request, await self._owners_of_nodes())

    async def hosts(self, _: Request) -> PageView:
        return hosts_view(self._queries)

    async def node(self, request: Request) -> PageView:
        address = f"{request.path_params['role']}/{request.path_params['node']}"
        for node in self._queries.nodes():
            if node.address == address:
                owners = await self._owners_of_nodes()
                return node_view(self._queries, node, request, owners.get(address, ()))
        raise NotThereError(f"nodes/{address[:80]}", "there is no such node")

    async def users(self, request: Request) -> PageView:
        return users_view(self._queries, request)

    async def preemptions(self, request: Request) -> PageView:
        if (job := filtered_job(request)) is not None:
            self._known(request, job)
        return preemptions_view(self._queries, request)

    def one_job(self, request: Request) -> JobStatus:
        return self._known(request, request.path_params["id"])

    def _known(self, request: Request, job: int) -> JobStatus:
        return seen_job(self._queries, job, principal(request))


class _Lab:
    def __init__(self, queries: JobQueries, foreteller: Forecaster | None, views: _Views) -> None:
        self._queries = queries
        self._foreteller = foreteller
        self._views = views

    async def forecast(self, request: Request) -> PageView:
        job = self._views.one_job(request)
        if self._foreteller is None:
            raise NotThereError(request.url.path, "no forecasts are made here")
        _demand_own(request)
        return forecast_view(job, await self._foreteller.of_job(job, principal(request)))

    async def plan(self, request: Request) -> PageView:
        if request.query_params:
            _demand_own(request)
        return await plan_view(self._queries, self._foreteller, request)


class _Access:
    def __init__(self, service: JobService, sessions: Sessions, traffic: Traffic) -> None:
        self._service = service
        self._queries = service.queries
        self._sessions = sessions
        self._traffic = traffic
        self._renderings = Renderings(Pacer(), lambda: service.queries.revision, traffic)

    def shown(self, show: Show) -> Callable[[Request], Awaitable[Response]]:
        """A page after sign-in; other visitors get the page where they can sign in."""

        async def answer(request: Request) -> Response:
            caller = self._sessions.who(request)
            if caller is None:
                query = f"?{request.url.query}" if request.url.query else ""
                target = {
                    "then": request.url.path + query,
                    "ended": "yes" if self._sessions.ended(request) else None,
                }
                return RedirectResponse(address(frame.SIGN_IN, target), 303, frame.HEADERS)
            request.state.principal = caller
            try:
                return await self._rendered(request, caller, lambda: show(request))
            except (InputError, NotThereError) as error:
                return page(problem_view(error.place, error.problem), caller, status=status_of(error))

        return answer

    def content(self, fetch: Callable[[Request], Awaitable[NewOutput]]) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of data for a page's script; it asks for a session."""

        async def answer(request: Request) -> Response:
            caller = self._sessions.who(request)
            if caller is None:
                return refusal("authorization", "sign in", 401)
            request.state.principal = caller
            try:
                return as_json(await fetch(request))
            except (InputError, NotThereError) as error:
                return refusal(error.place, error.problem, status_of(error))

        return answer

    async def _rendered(
        self, request: Request, caller: Principal, show: Callable[[], Coroutine[Any, Any, PageView]]
    ) -> Response:
        """A view as it is now, or, for a page that has it already, as it was not long ago."""
        key, tag_of_page = (caller, f"{request.url.path}?{request.url.query}"), request.headers.get("if-none-match")
        rendering = await (self._renderings.shared(key, show) if tag_of_page else self._renderings.fresh(key, show))
        if not rendering.view.every_s:
            return page(rendering.view, caller)
        refresh = self._renderings.again(rendering)
        if tag_of_page == rendering.tag:
            return Response(status_code=304, headers=refresh.headers())
        if PART in request.headers:
            return live_part(rendering.view, refresh)
        return page(rendering.view, caller, refresh=refresh)

    async def form(self, request: Request) -> Response:
        return self._form(_then(request.query_params.get("then")), ENDED if request.query_params.get("ended") else "")

    def _form(self, then: str, problem: str = "", status: int = 200) -> Response:
        field = tag(
            "input",
            type="password",
            name="token",
            id="token",
            autocomplete="off",
            required=True,
            maxlength=200,
            size=40,
        )
        form = tag(
            "form",
            tag("label", "token ", field),
            tag("button", "sign in"),
            tag("input", type="hidden", name="then", value=then),
            class_="controls",
            method="post",  # without scripts, too: a token must not be in an address
            action=frame.SESSION,
            data_enter=frame.SESSION,
            data_then=then,
        )
        note = tag(
            "p",
            "A token as ",
            tag("code", "volery token add"),
            " gives it. This browser keeps a session in its place, for half a day.",
        )
        still = joined((tag("p", problem, role="alert", class_="reason") if problem else None, form))
        return page(PageView("Sign in", note, still, every_s=0), None, status=status)

    async def enter(self, request: Request) -> Response:
        """Begin a session; of a form without scripts the answer is a page."""
        of_form = _kind(request) == FORM
        if (refused := _refused(request, of_form=of_form)) is not None:
            return refused
        try:
            body = await body_of(request, BODY_BYTES_MAX, "is too long")
        except InputError as error:
            return refusal(error.place, error.problem, 422)
        if of_form:
            form = dict(parse_qsl(body.decode("utf-8", "replace")))
            then = _then(form.get("then"))
            went_on = RedirectResponse(then, 303, frame.HEADERS)
            is_valid = self._sessions.begin(request, form.get("token", "").strip(), went_on)
            return went_on if is_valid else self._form(then, INVALID, 403)
        try:
            sign_in = msgspec.json.decode(body, type=_SignIn)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal("body", 'is {"token": "volery_.."}', 422)
        answer = as_json({})
        if not self._sessions.begin(request, sign_in.token.strip(), answer):
            return refusal("token", INVALID, 403)
        return answer

    async def leave(self, request: Request) -> Response:
        if (refused := _refused(request)) is not None:
            return refused
        answer = as_json({})
        self._sessions.end(request, answer)
        return answer

    async def pulse(self, request: Request) -> Response:
        """Send pages an event after changes, at most once a second: cheaper than all that /events sends."""
        if self._sessions.who(request) is None:
            return refusal("authorization", "sign in", 401)
        headers = frame.HEADERS
        return StreamingResponse(self._beats(request), media_type="text/event-stream", headers=headers)

    async def _beats(self, request: Request) -> AsyncIterator[bytes]:
        self._traffic.pages_open += 1
        try:
            async for beat in self._changes(request):
                yield beat
        finally:
            self._traffic.pages_open -= 1

    async def _changes(self, request: Request) -> AsyncIterator[bytes]:
        revision, silent = self._queries.revision, 0
        yield b": volery\n\n"
        while not self._service.writer.closed:
            await asyncio.sleep(PULSE_S)
            silent += 1
            if (now := self._queries.revision) != revision:
                revision, silent = now, 0
                yield b"event: changed\ndata: %d\n\n" % revision
            elif silent % KEEP_ALIVE_PULSES == 0:
                if self._sessions.who(request) is None:
                    return
                yield b": still here\n\n"


def _then(path: str | None) -> str:
    """A page of ours; what might be another is the first one."""
    return path if path is not None and _THEN.fullmatch(path) else frame.HOME


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip()


def _demand_own(request: Request) -> None:
    """Refuse requests of other sites for pages that take seconds of a processor.

    Raises:
        NotAllowedError: a page of another site has made a browser ask.
    """
    if is_foreign(request):
        raise NotAllowedError("origin", FOREIGN)


def _refused(request: Request, *, of_form: bool = False) -> Response | None:
    """The reason why no order is taken; any page can send a form, so that a form must name its origin."""
    if is_foreign(request) or (of_form and not names_origin(request)):
        return refusal("origin", FOREIGN, 403)
    if not of_form and _kind(request) != "application/json":
        return refusal("content-type", "orders are application/json", 415)
    return None


def problem_view(place: str, problem: str) -> PageView:
    paragraph = tag("p", tag("bdi", place), ": ", tag("bdi", problem), role="alert")
    return PageView(
        "That cannot be shown", tag("div", paragraph, tag("p", link(frame.HOME, "to the federation"))), every_s=0
    )
