"""The routes of the live page: each answers with a whole page, and its script fetches it anew after changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from importlib import resources
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from volery.core.errors import InputError
from volery.core.model import Address
from volery.live.service.admission import FOREIGN, NotThereError, Traffic, as_json, no_job, refusal
from volery.live.service.desk import Desk
from volery.live.service.outputs import Outputs
from volery.live.service.tokens import Principal
from volery.live.status import JobStatus
from volery.live.window import frame
from volery.live.window.frame import Again, View, live_part, page
from volery.live.window.html import address, link, tag
from volery.live.window.jobs import job_view, jobs_view
from volery.live.window.operating import node_view, nodes_view
from volery.live.window.overview import Pace, Pacing, overview
from volery.live.window.pacing import Pacer
from volery.live.window.session import Sessions, is_foreign
from volery.live.window.shared import Renderings
from volery.live.window.tasks import task_view
from volery.live.window.users import preemptions_view, users_view
from volery.live.window.watched import Watched
from volery.look import base_style, field_script

PULSE_S: Final = 1.0
KEEP_ALIVE_PULSES: Final = 15
PART: Final = "volery-part"
"""A header of requests for the live part alone."""
BODY_BYTES_MAX: Final = 4096
_THEN: Final = re.compile(r"/(?:window/[a-z0-9/-]*)?")
"""Where one may be sent after signing in: pages of ours alone."""

Show = Callable[[Request], Coroutine[Any, Any, View]]


class _SignIn(msgspec.Struct, forbid_unknown_fields=True):
    token: str


def window_routes(desk: Desk, outputs: Outputs, sessions: Sessions, traffic: Traffic) -> list[Route]:
    """All pages, what they are made of, and the way in and out.

    Args:
        desk: answers their questions.
        outputs: finds what tasks have said.
        sessions: know who asks.
        traffic: what is asked for.
    """
    access = _Access(desk, sessions, traffic)
    return [
        *(Route(path, access.shown(show)) for path, show in pages(desk, outputs, Pace())),
        Route(frame.SIGN_IN, access.form), Route(frame.SESSION, access.enter, methods=["POST"]),
        Route(frame.SESSION + "/end", access.leave, methods=["POST"]), Route(frame.PULSE, access.pulse),
        Route(frame.STYLE, file_of("text/css; charset=utf-8", window_style())),
        Route(frame.SCRIPT, file_of("text/javascript; charset=utf-8", window_script())),
    ]  # fmt: skip


def pages(desk: Watched, outputs: Outputs | None, pace: Pacing) -> tuple[tuple[str, Show], ...]:
    """Where each page is, and what it shows.

    Args:
        desk: answers their questions.
        outputs: finds what tasks have said; None: that is not known.
        pace: how fast tasks end.
    """
    views = _Views(desk, outputs, pace)
    one_job = f"{frame.JOBS}/{{id:number}}"
    return (
        (frame.HOME, views.federation), (frame.JOBS, views.jobs), (one_job, views.job),
        (one_job + "/tasks/{index:number}", views.task), (frame.NODES, views.nodes),
        (frame.NODES + "/{role:str}/{node:number}", views.node), (frame.USERS, views.users),
        (frame.PREEMPTIONS, views.preemptions),
    )  # fmt: skip


def window_script() -> str:
    """What every page runs."""
    return "\n".join((_text("window.js"), field_script(), _text("cells.js")))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def window_style() -> str:
    """What every page looks like."""
    return base_style() + _text("window.css")


def file_of(kind: str, text: str) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers with a text."""

    async def answer(_: Request) -> Response:
        return Response(text, media_type=kind, headers=frame.HEADERS)

    return answer


class _Views:
    """What each page shows to whom."""

    def __init__(self, desk: Watched, outputs: Outputs | None, pace: Pacing) -> None:
        self._desk = desk
        self._outputs = outputs
        self._pace = pace
        self._in_charge: Mapping[Address, Sequence[Address]] | None = None

    async def federation(self, request: Request) -> View:
        if self._in_charge is None:  # it never changes, and takes seconds where there are ten thousand nodes
            self._in_charge = await asyncio.to_thread(self._desk.partitions)
        return overview(self._desk, request, self._pace, self._in_charge)

    async def jobs(self, request: Request) -> View:
        return await jobs_view(self._desk, request)

    async def job(self, request: Request) -> View:
        return await job_view(self._desk, self._job(request), request)

    async def task(self, request: Request) -> View:
        job, place = self._job(request), request.path_params["index"]
        if place >= job.tasks:
            raise NotThereError(f"jobs/{job.id}/tasks/{place}", f"the job has tasks 0 to {job.tasks - 1}")
        return await task_view(self._desk, self._desk.tasks(job.id, place, 1)[0], self._outputs)

    async def nodes(self, request: Request) -> View:
        return nodes_view(self._desk, request)

    async def node(self, request: Request) -> View:
        address = f"{request.path_params['role']}/{request.path_params['node']}"
        for node in self._desk.nodes():
            if node.address == address:
                return node_view(self._desk, node, request)
        raise NotThereError(f"nodes/{address[:80]}", "there is no such node")

    async def users(self, request: Request) -> View:
        return users_view(self._desk, request)

    async def preemptions(self, request: Request) -> View:
        job = request.query_params.get("job", "")
        if job.isdigit() and len(job) < 19:
            self._known(request, int(job))
        return preemptions_view(self._desk, request)

    def _job(self, request: Request) -> JobStatus:
        return self._known(request, request.path_params["id"])

    def _known(self, request: Request, number: int) -> JobStatus:
        job = self._desk.job(number)
        if job is None or request.state.principal.sees not in (None, job.user):
            no_job(number)
        return job


class _Access:
    """Who gets to see pages, and the way in and out."""

    def __init__(self, desk: Desk, sessions: Sessions, traffic: Traffic) -> None:
        self._desk = desk
        self._sessions = sessions
        self._traffic = traffic
        self._renderings = Renderings(Pacer(), lambda: desk.revision, traffic)

    def shown(self, show: Show) -> Callable[[Request], Awaitable[Response]]:
        """A page for whoever has signed in; all others are led to where they can."""

        async def answer(request: Request) -> Response:
            who = self._sessions.who(request)
            if who is None:
                return RedirectResponse(address(frame.SIGN_IN, {"then": request.url.path}), 303, frame.HEADERS)
            request.state.principal = who
            try:
                return await self._rendered(request, who, lambda: show(request))
            except InputError as error:
                return page(problem_view(error.place, error.problem), who, status=422)
            except NotThereError as error:
                return page(problem_view(error.place, error.problem), who, status=404)

        return answer

    async def _rendered(
        self, request: Request, who: Principal, show: Callable[[], Coroutine[Any, Any, View]]
    ) -> Response:
        """A view as it is now, or, for a page that has it already, as it was not long ago."""
        key, known = (who, f"{request.url.path}?{request.url.query}"), request.headers.get("if-none-match")
        found = await (self._renderings.shared(key, show) if known else self._renderings.fresh(key, show))
        if not found.view.every_s:
            return page(found.view, who)
        again = Again(self._renderings.again_s(found), found.tag, self._renderings.behind(found))
        if known == found.tag:
            return Response(status_code=304, headers=again.headers())
        if PART in request.headers:
            return live_part(found.view, again)
        return page(found.view, who, again=again)

    async def form(self, request: Request) -> Response:
        """Where a token is asked for."""
        then = request.query_params.get("then", frame.HOME)
        then = then if _THEN.fullmatch(then) else frame.HOME
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
        asked = tag(
            "form",
            tag("label", "token ", field),
            tag("button", "sign in"),
            class_="controls",
            data_enter=frame.SESSION,
            data_then=then,
        )
        told = tag(
            "p",
            "A token as ",
            tag("code", "volery token add"),
            " gives it. This browser keeps a session in its place, for half a day.",
        )
        return page(View("Sign in", told, asked, every_s=0), None)

    async def enter(self, request: Request) -> Response:
        """Begin a session."""
        if (refused := _refused(request)) is not None:
            return refused
        body = bytearray()
        async for block in request.stream():
            body += block
            if len(body) > BODY_BYTES_MAX:
                return refusal("body", "is too long", 422)
        try:
            asked = msgspec.json.decode(body, type=_SignIn)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal("body", 'is {"token": "volery_.."}', 422)
        answer = as_json({})
        if not self._sessions.begin(request, asked.token.strip(), answer):
            return refusal("token", "it is not valid, or no longer; ask an administrator for another", 403)
        return answer

    async def leave(self, request: Request) -> Response:
        """End a session."""
        if (refused := _refused(request)) is not None:
            return refused
        answer = as_json({})
        self._sessions.end(request, answer)
        return answer

    async def pulse(self, request: Request) -> Response:
        """Tell pages that something has changed, at most once a second: cheaper than all that /events tells."""
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
        told, silent = self._desk.revision, 0
        yield b": volery\n\n"
        while not self._desk.closed:
            await asyncio.sleep(PULSE_S)
            silent += 1
            if (now := self._desk.revision) != told:
                told, silent = now, 0
                yield b"event: changed\ndata: %d\n\n" % told
            elif silent % KEEP_ALIVE_PULSES == 0:
                if self._sessions.who(request) is None:
                    return
                yield b": still here\n\n"


def _refused(request: Request) -> Response | None:
    if is_foreign(request):
        return refusal("origin", FOREIGN, 403)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return refusal("content-type", "orders are application/json", 415)
    return None


def problem_view(place: str, problem: str) -> View:
    """What is shown in place of what was asked for."""
    told = tag("p", tag("bdi", place), ": ", tag("bdi", problem), role="alert")
    return View("That cannot be shown", tag("div", told, tag("p", link(frame.HOME, "to the federation"))), every_s=0)
