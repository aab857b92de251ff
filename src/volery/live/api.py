"""The federation over HTTP: submit, follow and cancel jobs, read their output; events by SSE that can be resumed.

Whoever can reach the API can run commands as its user. It therefore listens on this machine alone unless told
otherwise, answers only to the names that it was given, so that no other site's page can reach it through a browser, and
takes orders as JSON only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import volery
from volery.core.errors import InputError
from volery.live.desk import ConflictError, Desk, UnwrittenError
from volery.live.jobs import JobDescription, job_from_table
from volery.live.openapi import Endpoint, Operation, Problem, Refusal, describe
from volery.live.status import DEFAULT_PORT, JobStatus, NodeStatus, Receipt, TaskStatus

LIMIT_MAX: Final = 10_000
BLOCK_BYTES: Final = 1 << 16
KEEP_ALIVE_S: Final = 15.0
CHANGES_MAX: Final = 500
BODY_BYTES_MAX: Final = 64 << 20
LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
STREAMS: Final = ("stdout", "stderr")


class Health(msgspec.Struct, frozen=True):
    """The API answers."""

    status: str
    version: str
    revision: int


class NotThereError(Exception):
    """The request names something that does not exist."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem


def operations(desk: Desk) -> tuple[Operation, ...]:
    """All that the API can do."""
    jobs, tasks = _JobEndpoints(desk), _TaskEndpoints(desk)

    async def nodes(_: Request) -> Response:
        """All nodes, with what their machines are and how many tasks run there."""
        return _json(desk.nodes())

    async def healthz(_: Request) -> Response:
        """Whether the API answers."""
        return _json(Health("ok", volery.__version__, desk.revision))

    paging = {"limit": f"at most so many, up to {LIMIT_MAX:,}"}
    one_job, one_task = "/jobs/{id:int}", "/jobs/{id:int}/tasks/{index:int}"
    filters = {"state": "only these", "user": "only this user's", "before": "only jobs below this number"}
    event_query = {"job": "only this job's, and to its end", "after": "revision that was seen already"}
    stream_query = {"stream": "stdout or stderr", "offset": "bytes that were read already"}
    return (
        Operation("POST", "/jobs", jobs.submit, Receipt, JobDescription, status=201),
        Operation("GET", "/jobs", jobs.list, list[JobStatus], query=filters | paging),
        Operation("GET", one_job, jobs.show, JobStatus),
        Operation("POST", one_job + "/cancel", jobs.cancel, JobStatus, status=202),
        Operation("GET", one_job + "/tasks", tasks.list, list[TaskStatus], query={"first": "from here"} | paging),
        Operation("GET", one_task, tasks.show, TaskStatus),
        Operation("GET", one_task + "/logs", tasks.logs, "application/octet-stream", query=stream_query),
        Operation("GET", one_task + "/result", tasks.result, "application/octet-stream"),
        Operation("GET", "/events", jobs.events, "text/event-stream", query=event_query),
        Operation("GET", "/nodes", nodes, list[NodeStatus]),
        Operation("GET", "/healthz", healthz, Health),
    )


def make_app(desk: Desk, names: Sequence[str] = LOCAL_NAMES) -> Starlette:
    """The API of a desk.

    Args:
        desk: does the work.
        names: the host names that requests may be addressed to; "*" for any.
    """
    known = operations(desk)
    description = describe(known)

    async def openapi(_: Request) -> Response:
        return _json(description)

    routes = [Route(item.path, _guarded(item.endpoint), methods=[item.method]) for item in known]
    routes.append(Route("/openapi.json", openapi))
    handlers: dict[Any, Any] = {
        InputError: _refuse_input, ConflictError: _refuse_conflict, UnwrittenError: _refuse_for_now,
        NotThereError: _refuse_missing, HTTPException: _refuse_http,
    }  # fmt: skip
    return Starlette(
        routes=routes,
        exception_handlers=handlers,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False)],
    )


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if request.method == "POST" and kind != "application/json":
            # A page of another site can make a browser send other types unasked, but not this one.
            return _json(Refusal(Problem("content-type", "orders are application/json")), 415)
        return await endpoint(request)

    return guarded


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


async def _refuse_input(_: Request, error: InputError) -> Response:
    return _json(Refusal(Problem(error.place, error.problem)), 422)


async def _refuse_conflict(_: Request, error: ConflictError) -> Response:
    return _json(Refusal(Problem(error.place, error.problem)), 409)


async def _refuse_for_now(request: Request, error: UnwrittenError) -> Response:
    return _json(Refusal(Problem(request.url.path, f"{error}; nothing was changed, ask again")), 503)


async def _refuse_missing(_: Request, error: NotThereError) -> Response:
    return _json(Refusal(Problem(error.place, error.problem)), 404)


async def _refuse_http(request: Request, error: HTTPException) -> Response:
    return _json(
        Refusal(Problem(request.url.path, f"{error.detail}; /openapi.json says what there is")), error.status_code
    )


def _number(request: Request, name: str, default: int | None, maximum: int = 1 << 62) -> Any:
    """A whole number from the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or int(text) > maximum:
        raise InputError(f"query.{name}", f"expected a whole number from 0 to {maximum}, not {text!r}")
    return int(text)


class _JobEndpoints:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def submit(self, request: Request) -> Response:
        """Submit a job; it is stored when this is answered."""
        body = bytearray()
        async for block in request.stream():
            body += block
            if len(body) > BODY_BYTES_MAX:
                raise InputError("body", f"has more than {BODY_BYTES_MAX:,} bytes; submit several jobs")
        try:
            table = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise InputError("body", f"is not JSON: {error}") from None
        receipt = await self._desk.submit(job_from_table(table, "job"))
        return _json(receipt, 200 if receipt.known else 201)

    async def list(self, request: Request) -> Response:
        """Jobs, the newest first."""
        state, user = request.query_params.get("state"), request.query_params.get("user")
        before, limit = _number(request, "before", None), _number(request, "limit", 100, LIMIT_MAX)
        return _json(self._desk.jobs(state, user, before, limit))

    async def show(self, request: Request) -> Response:
        """One job, with its tasks counted by state."""
        return _json(await _job(self._desk, request))

    async def cancel(self, request: Request) -> Response:
        """Give a job up: what waits never runs, and what runs is killed."""
        number = request.path_params["id"]
        job = await self._desk.cancel(number)
        if job is None:
            raise _no_job(number)
        return _json(job, 202)

    async def events(self, request: Request) -> Response:
        """Jobs and tasks as they change; the id of an event is its revision, for Last-Event-ID."""
        job = _number(request, "job", None)
        status = None
        if job is not None and (status := self._desk.job(job)) is None:
            raise _no_job(job)
        last = request.headers.get("last-event-id", "")
        default = self._desk.revision if job is None else 0
        after = int(last) if last.isascii() and last.isdigit() else _number(request, "after", default)
        if status is not None and status.ended and status.revision <= after:
            return Response(status_code=204)  # tells an EventSource not to come back
        stream = _events(self._desk, job, after)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _events(desk: Desk, job: int | None, after: int) -> AsyncIterator[bytes]:
    yield b": volery\n\n"
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                changes = await desk.changes(after, job, CHANGES_MAX)
        except TimeoutError:
            yield b": still here\n\n"
            continue
        if not changes:
            return
        for status in changes:
            after = status.revision
            kind = b"job" if isinstance(status, JobStatus) else b"task"
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (after, kind, msgspec.json.encode(status))
            if job is not None and isinstance(status, JobStatus) and status.ended:
                return


class _TaskEndpoints:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list(self, request: Request) -> Response:
        """Tasks of a job, in order."""
        job = await _job(self._desk, request)
        first, limit = _number(request, "first", 0), _number(request, "limit", 100, LIMIT_MAX)
        return _json(self._desk.tasks(job.id, first, limit))

    async def show(self, request: Request) -> Response:
        """One task, as its last attempt left it."""
        return _json(await self._task(request))

    async def result(self, request: Request) -> Response:
        """What a callable returned or raised, pickled; empty for commands."""
        task = await self._task(request)
        return Response(self._desk.result(task.job, task.index), media_type="application/octet-stream")

    async def logs(self, request: Request) -> Response:
        """The output of a task's last attempt, so far."""
        task = await self._task(request)
        stream, offset = request.query_params.get("stream", "stdout"), _number(request, "offset", 0)
        if stream not in STREAMS:
            raise InputError("query.stream", f"expected stdout or stderr, not {stream!r}")
        headers = {"volery-task-state": task.state}
        if not task.folder:
            return Response(b"", media_type="application/octet-stream", headers=headers)
        path = Path(task.folder) / stream
        if not await asyncio.to_thread(path.is_file):
            place = f"jobs/{task.job}/tasks/{task.index}"
            raise NotThereError(place, f"{path} is not on this host; the task ran on {task.node}, look there")
        blocks = _blocks(path, offset)
        return StreamingResponse(blocks, media_type="application/octet-stream", headers=headers)

    async def _task(self, request: Request) -> TaskStatus:
        job, place = await _job(self._desk, request), request.path_params["index"]
        if place >= job.tasks:
            raise NotThereError(f"jobs/{job.id}/tasks/{place}", f"the job has tasks 0 to {job.tasks - 1}")
        (task,) = self._desk.tasks(job.id, place, 1)
        return task


async def _blocks(path: Path, offset: int) -> AsyncIterator[bytes]:
    """What a file holds now, from an offset on; what is written meanwhile is left for the next request."""
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - offset
        file.seek(offset)
        while left > 0 and (block := await asyncio.to_thread(file.read, min(BLOCK_BYTES, left))):
            left -= len(block)
            yield block


async def _job(desk: Desk, request: Request) -> JobStatus:
    number = request.path_params["id"]
    job = desk.job(number) if number < 1 << 63 else None
    if job is None:
        raise _no_job(number)
    return job


def _no_job(number: int) -> NotThereError:
    return NotThereError(f"jobs/{number}", "there is no such job; `volery jobs` lists them")


class _Server(uvicorn.Server):
    """Leaves signals to the program that it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ApiServer:
    """The API on a port, in the running event loop.

    Args:
        desk: does the work.
        host, port: where it listens; port 0: any that is free.

    Raises:
        InputError: it cannot listen there.
    """

    def __init__(self, desk: Desk, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise InputError(f"{host}:{port}", f"the API cannot listen there: {error.strerror or error}") from None
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"
        names = LOCAL_NAMES if shown in LOCAL_NAMES else ("*",)
        config = uvicorn.Config(
            make_app(desk, names), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Answer from now on."""
        self._socket.listen(128)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[self._socket]))

    async def close(self) -> None:
        """Stop; call it after the desk is closed, which ends the streams of events."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._socket.close()
