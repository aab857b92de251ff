"""The federation over HTTP: submit, follow and cancel jobs, read their output; events by SSE that can be resumed.

Whoever may submit jobs runs commands on the nodes. Without tokens the API therefore listens on this machine alone,
answers only to the names that it was given, so that no other site's page can reach it through a browser, and takes
orders as JSON only. With tokens each request has a principal: users see and touch their own jobs; those of others do
not exist for them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, get_args

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import volery
from volery.core.errors import InputError
from volery.live.clock import in_slices
from volery.live.jobs import JobDescription
from volery.live.node.output import STREAMS
from volery.live.service.authentication import Authenticator, Sessions
from volery.live.service.descriptions import Intake, encoded_in_slices
from volery.live.service.events import Follower, StatusChange
from volery.live.service.figures import summary_operation
from volery.live.service.forecaster import Forecaster, forecast_operations
from volery.live.service.http_server import BACKLOG, BoundedHttpProtocol, ConnectionLimits, HttpServer
from volery.live.service.job_service import JobService
from volery.live.service.operator_api import operator_operations
from volery.live.service.outputs import Outputs, output_answer
from volery.live.service.queries import JobQueries
from volery.live.service.requests import (
    LIMIT_MAX,
    NotAllowedError,
    NotThereError,
    Operation,
    Traffic,
    as_json,
    body_of,
    by_whom,
    choice,
    describe,
    guard,
    intake,
    job_of_body,
    number,
    numbers,
    principal,
    refusal,
    seen_job,
    unreadable_store,
    with_user,
)
from volery.live.service.rows import JobQuery
from volery.live.status import (
    DEFAULT_PORT,
    RESULTS_MAX,
    STREAM,
    JobPlan,
    JobState,
    JobStatus,
    Receipt,
    TaskStatus,
    Why,
)

KEEP_ALIVE_S: Final = 15.0
FOLLOWED_MAX: Final = 10_000
"""Jobs that one stream of events may name."""
RESULTS_BYTES: Final = 4 << 20
"""Bytes of results in one answer. It ends with the result that exceeds them; the client asks for the others."""
LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

MakePages = Callable[[JobService, Outputs, Sessions, Traffic, Forecaster | None], Sequence[Route]]
"""Makes the routes of pages beside the API: of a job service, outputs of tasks, sessions, traffic and forecasts."""

log = logging.getLogger(__name__)


class Health(msgspec.Struct, frozen=True):
    """The state of the API."""

    status: str
    version: str
    revision: int


def operations(
    service: JobService, outputs: Outputs | None, traffic: Traffic, foreteller: Forecaster | None = None
) -> tuple[Operation, ...]:
    """All that the API can do."""
    jobs = _JobEndpoints(service)
    tasks = _TaskEndpoints(service.queries, outputs)

    async def healthz(_: Request) -> Response:
        """The state of the API, and the revision of the last change; status 503 where it takes no jobs, and why."""
        problem = service.problem
        state = f"takes no jobs: {problem}" if problem else "ok"
        return as_json(Health(state, volery.__version__, service.queries.revision), 503 if problem else 200)

    paging = {"limit": f"at most so many, up to {LIMIT_MAX:,}"}
    one_job, one_task = "/jobs/{id:number}", "/jobs/{id:number}/tasks/{index:number}"
    filters = {
        "state": "only these",
        "user": "only this user's",
        "before": "only jobs below this number",
        "reason": "only where the reason contains this",
        "name": "only where the name contains this",
        "mine": "only the caller's own; without tokens, those of the user of this name",
        "since": "submitted then or later, microseconds since 1970",
    }
    event_query = {
        "job": "only this job's, and to its end",
        "after": "revision that was seen already",
        "jobs": f"only those of up to {FOLLOWED_MAX:,} jobs, as 3,7-9",
    }
    submit_query = {"stream": f"the {STREAM} of an open stream of events, which then follows this job as well"}
    result_query = {"tasks": f"up to {RESULTS_MAX} places, as 0,1,5"}
    stream_query = {"stream": "stdout or stderr", "offset": "bytes that were read already"}

    return (
        Operation("POST", "/jobs", jobs.submit, Receipt, JobDescription, submit_query, 201),
        Operation("POST", "/jobs/many", jobs.submit_many, list[Receipt], list[JobDescription], status=201),
        Operation("POST", "/plan", jobs.plan, JobPlan, JobDescription),
        Operation("GET", "/jobs", jobs.list, list[JobStatus], query=filters | paging),
        Operation("GET", one_job, jobs.show, JobStatus),
        Operation("POST", one_job + "/cancel", jobs.cancel, JobStatus, status=202),
        Operation("GET", one_job + "/definition", jobs.definition, JobDescription),
        Operation("GET", one_job + "/why", jobs.why, Why),
        Operation("GET", one_task + "/why", tasks.why, Why),
        Operation("GET", one_job + "/tasks", tasks.list, list[TaskStatus], query={"first": "from here"} | paging),
        Operation("GET", one_job + "/results", tasks.results, list[bytes], query=result_query),
        Operation("GET", one_task, tasks.show, TaskStatus),
        Operation("GET", one_task + "/logs", tasks.logs, "application/octet-stream", query=stream_query),
        Operation("GET", one_task + "/result", tasks.result, "application/octet-stream"),
        Operation("GET", "/events", jobs.events, "text/event-stream", query=event_query),
        summary_operation(service.queries),
        *operator_operations(service, traffic, foreteller),
        *(forecast_operations(foreteller, service.queries) if foreteller is not None else ()),
        Operation("GET", "/healthz", healthz, Health, role=None),
    )


def make_app(
    service: JobService,
    outputs: Path,
    gate: Authenticator,
    names: Sequence[str] = LOCAL_NAMES,
    foreteller: Forecaster | None = None,
    pages: MakePages | None = None,
) -> Starlette:
    """The API of a job service.

    Args:
        outputs: the folder of the folders of attempts.
        names: the host names that requests may be addressed to; "*" for any.
        foreteller: makes forecasts; None: there are none.
        pages: makes the routes of the dashboard; None: there is none.
    """
    traffic = Traffic()
    sessions = Sessions(gate)
    task_outputs = Outputs(outputs, service.outputs)
    api_operations = operations(service, task_outputs, traffic, foreteller)
    description = describe(api_operations)

    async def openapi(_: Request) -> Response:
        """The description of the API in OpenAPI 3.1."""
        return as_json(description)

    routes = [Route(item.path, guard(item, sessions, traffic), methods=[item.method]) for item in api_operations]
    routes.append(Route("/openapi.json", openapi))
    if pages is not None:
        routes += pages(service, task_outputs, sessions, traffic, foreteller)

    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _refuse_http,
            ClientDisconnect: _note_broken_off,
            sqlite3.Error: _refuse_damaged,
        },
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False)],
    )
    app.state.intake = Intake()
    return app


async def _note_broken_off(request: Request, error: Exception) -> Response:  # noqa: ARG001 - it says nothing more
    """Log a request whose sender has gone before its end; nobody reads the answer."""
    sender = request.client.host if request.client is not None else "-"
    log.warning("%s %s of %s was broken off", request.method, request.url.path[:80], sender)
    return Response(status_code=400)


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(request.url.path[:80], f"{error.detail}; /openapi.json says what there is", error.status_code)


async def _refuse_damaged(request: Request, error: Exception) -> Response:
    """Answer a page that needs what cannot be read."""
    assert isinstance(error, sqlite3.Error)
    return unreadable_store(request, error)


class _JobEndpoints:
    def __init__(self, service: JobService) -> None:
        self._service = service
        self._queries = service.queries

    async def submit(self, request: Request) -> Response:
        """Submit a job; it is stored when this is answered."""
        job = await job_of_body(request)
        receipt = await self._service.submit(job)
        answer = as_json(receipt, 200 if receipt.known else 201)
        stream = request.query_params.get("stream", "") if request.scope["query_string"] else ""
        if stream and self._queries.feed.add(stream, receipt.id, principal(request).sees):
            answer.headers[STREAM] = stream
        return answer

    async def submit_many(self, request: Request) -> Response:
        """Submit several jobs, all of them or none; they are stored when this is answered, in their order."""
        submitter = principal(request)
        jobs = [with_user(job, submitter) for job in await intake(request).jobs(await body_of(request), "jobs")]
        receipts = await self._service.submit_many(jobs)
        return as_json(receipts, 200 if all(receipt.known for receipt in receipts) else 201)

    async def plan(self, request: Request) -> Response:
        """The prospects of a job if it were submitted now; nothing is submitted."""
        return as_json(await self._queries.plan(await job_of_body(request)))

    async def list(self, request: Request) -> Response:
        """Jobs, the newest first."""
        user, mine = (request.query_params.get(name) for name in ("user", "mine"))
        caller = principal(request)
        if mine is not None:
            own_user = caller.user if caller.known else mine
            if user not in (None, own_user):
                return as_json([])
            user = own_user
        sees = caller.sees
        # Jobs of others do not exist for this caller: an empty list, not an error.
        if user is not None and sees not in (None, user):
            return as_json([])
        state = choice(request, "state", get_args(JobState))
        reason = request.query_params.get("reason")
        name = request.query_params.get("name")
        number_end = number(request, "before", None)
        since = number(request, "since", None)
        limit = number(request, "limit", 100, LIMIT_MAX)
        return as_json(
            await self._queries.search(JobQuery(state, sees or user, number_end, reason, since, name), limit)
        )

    async def show(self, request: Request) -> Response:
        """One job, with its tasks counted by state."""
        return as_json(_job(self._queries, request))

    async def definition(self, request: Request) -> Response:
        """The description of a job, as it was submitted; equal tasks that follow each other are one, with a count."""
        job, caller = _job(self._queries, request), principal(request)
        if job.user != caller.user and not caller.may("admin"):
            problem = "definitions hold values of the environment, and are for the job's user and for administrators"
            raise NotAllowedError(f"jobs/{job.id}", problem)
        description = await self._queries.definition(job.id)
        assert description is not None, "there is such a job"
        return Response((await encoded_in_slices(description)).content, media_type="application/json")

    async def why(self, request: Request) -> Response:
        """The reasons why its first waiting task waits: machines that could have it, and decisions of schedulers."""
        return as_json(await self._queries.explain(_job(self._queries, request).id, None))

    async def cancel(self, request: Request) -> Response:
        """Cancel a job: what waits never runs, and what runs is killed."""
        job = _job(self._queries, request)
        of_user = f" of {job.user}" if job.user else ""
        log.info("job %d%s is cancelled%s", job.id, of_user, by_whom(request))
        return as_json(await self._service.cancel(job.id), 202)

    async def events(self, request: Request) -> Response:
        """Jobs and tasks as they change; the id of an event is its revision, for Last-Event-ID."""
        job = number(request, "job", None)
        jobs = numbers(request, "jobs", FOLLOWED_MAX)
        status = seen_job(self._queries, job, principal(request)) if job is not None else None
        statuses = [seen_job(self._queries, job_id, principal(request)) async for job_id in in_slices(jobs or ())]

        last_event_id = request.headers.get("last-event-id", "")
        default_revision = self._queries.revision if job is None else 0
        is_resumed = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19
        after_revision = int(last_event_id) if is_resumed else number(request, "after", default_revision)
        if status is not None and status.ended and status.revision <= after_revision:
            return Response(status_code=204)  # an EventSource does not come back then

        follower = self._queries.feed.follow(after_revision, jobs if job is None else (job,), principal(request).sees)

        # Who names jobs waits for their ends, which may have been before.
        ended_changes = [StatusChange(item) for item in statuses if item.ended and item.revision <= after_revision]

        headers = {"cache-control": "no-store", STREAM: follower.name}
        return StreamingResponse(_events(follower, job, ended_changes), media_type="text/event-stream", headers=headers)


async def _events(follower: Follower, job: int | None, ended_changes: Sequence[StatusChange]) -> AsyncIterator[bytes]:
    """The lines of a stream of events, after those of jobs that have ended; of one job, to its end."""
    yield b": volery\n\n" + b"".join(change.event for change in ended_changes)
    async with aclosing(follower.batches(KEEP_ALIVE_S)) as batches:
        async for changes, position in batches:
            lines: list[bytes] = []  # together: each piece of a stream costs as much as an answer
            for change in changes:
                lines += (b"id: %d\n" % change.status.revision if position is not None else b"", change.event)
                if isinstance(change.status, JobStatus) and change.status.id == job and change.status.ended:
                    yield b"".join(lines)
                    return
            # An id without an event: who comes back asks for nothing that was looked through already.
            yield b"".join(lines) or b"id: %d\n\n" % (position or 0)


class _TaskEndpoints:
    def __init__(self, queries: JobQueries, outputs: Outputs | None) -> None:
        self._queries = queries
        self._outputs = outputs

    async def list(self, request: Request) -> Response:
        """Tasks of a job, in order."""
        job = _job(self._queries, request)
        first = number(request, "first", 0)
        limit = number(request, "limit", 100, LIMIT_MAX)
        return as_json(await self._queries.all_tasks(job.id, first, limit))

    async def show(self, request: Request) -> Response:
        """One task, as its last attempt left it."""
        return as_json(self._task(request))

    async def why(self, request: Request) -> Response:
        """The reasons why it waits, or where it went."""
        task = self._task(request)
        return as_json(await self._queries.explain(task.job, task.index))

    async def result(self, request: Request) -> Response:
        """The pickled result or exception of a callable; empty for commands. Only its user gets it."""
        task = self._task(request)
        self._own_job(request)
        return Response(self._queries.result(task.job, task.index), media_type="application/octet-stream")

    async def results(self, request: Request) -> Response:
        """Results of several tasks of a job, in the order asked for; of many megabytes only the first ones."""
        job = self._own_job(request)
        results, size = list[bytes](), 0
        for place in _places(request, job.tasks):
            results.append(self._queries.result(job.id, place))
            size += len(results[-1])
            if size > RESULTS_BYTES:
                break
        return as_json(results)

    def _own_job(self, request: Request) -> JobStatus:
        """A job of which the results may be seen."""
        caller = principal(request)
        job = _job(self._queries, request)
        if caller.known and job.user != caller.user:
            # Unpickling runs code of whoever has made the pickle.
            raise NotAllowedError(f"jobs/{job.id}", "results of callables are for their user alone")
        return job

    async def logs(self, request: Request) -> Response:
        """The output of a task's last attempt, so far."""
        task = self._task(request)
        stream = choice(request, "stream", STREAMS, "stdout")
        offset = number(request, "offset", 0)

        assert stream is not None
        headers = {"volery-task-state": task.state}
        if not task.folder:
            return Response(b"", media_type="application/octet-stream", headers=headers)

        output = await self._outputs.open(task, stream) if self._outputs is not None else None
        if output is None:
            place = f"jobs/{task.job}/tasks/{task.index}"
            problem = f"{stream} is neither here nor on the host of {task.node}, where the task ran, or no longer"
            raise NotThereError(place, problem)

        return output_answer(output, offset, request.headers.get("range"), headers)

    def _task(self, request: Request) -> TaskStatus:
        job = _job(self._queries, request)
        place = request.path_params["index"]
        if place >= job.tasks:
            raise NotThereError(f"jobs/{job.id}/tasks/{place}", f"the job has tasks 0 to {job.tasks - 1}")
        (task,) = self._queries.tasks(job.id, place, 1)
        return task


def _places(request: Request, tasks: int) -> list[int]:
    words = request.query_params.get("tasks", "").split(",", RESULTS_MAX)
    if len(words) > RESULTS_MAX or not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
        raise InputError("tasks", f"takes 1 to {RESULTS_MAX} places of tasks, as 0,1,5")
    places = [int(word) for word in words]
    if max(places) >= tasks:
        raise InputError("tasks", f"there is no task {max(places)}; the job has tasks 0 to {tasks - 1}")
    return places


def _job(queries: JobQueries, request: Request) -> JobStatus:
    return seen_job(queries, request.path_params["id"], principal(request))


def demand_safe(host: str, gate: Authenticator, tls: Mapping[str, str] | None) -> None:
    """Refuse an API that strangers could use, or on which they could read a token.

    Raises:
        InputError: strangers could.
    """
    if host in LOOPBACK:
        return
    if gate.open:
        problem = "whoever reaches it could run commands; make tokens with `volery token add`, or listen on 127.0.0.1"
        raise InputError(f"api {host}", problem)
    if not tls:
        raise InputError(f"api {host}", "tokens would travel readable; give tls a certificate, or listen on 127.0.0.1")


class ApiServer:
    """The API on a port, in the running event loop.

    Args:
        outputs: the folder of the folders of attempts.
        host, port: address on which it listens; port 0: any that is free.
        gate: finds the principal of a request; None: there are no tokens.
        tls: the files of its certificate, see `volery.live.config.tls.server_files`.
        foreteller: makes forecasts; None: there are none.

    Raises:
        InputError: it cannot listen there, or must not, because anybody could come in or overhear tokens.
    """

    def __init__(
        self,
        service: JobService,
        outputs: Path,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        gate: Authenticator | None = None,
        tls: Mapping[str, str] | None = None,
        foreteller: Forecaster | None = None,
        bounds: ConnectionLimits | None = None,
        pages: MakePages | None = None,
    ) -> None:
        gate = gate or Authenticator(None)
        demand_safe(host, gate, tls)
        self._queries = service.queries
        self.open_to_all = gate.open

        family = socket.AF_INET6 if ":" in host else socket.AF_INET

        # Only of sockets whose protocol is TCP does asyncio switch off the wait for more to send, 40 ms per answer.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)

        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise InputError(f"{host}:{port}", f"the API cannot listen there: {error.strerror or error}") from None

        self.port: int = self._socket.getsockname()[1]
        address = f"[{host}]" if ":" in host else host
        self.url = f"http{'s' if tls else ''}://{address}:{self.port}"

        # A name proves nothing where a token does.
        names = LOCAL_NAMES if gate.open else ("*",)
        app = make_app(service, outputs, gate, names, foreteller, pages)
        self._intake: Intake = app.state.intake
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            http=BoundedHttpProtocol,
            ws="none",
            timeout_graceful_shutdown=1,
            server_header=False,
            **(tls or {}),  # type: ignore[arg-type] # names of files
        )
        self._server = HttpServer(config, self._socket, (bounds or ConnectionLimits()).held())
        self._serve_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Answer from now on."""
        self._queries.history.start(self._queries.sample)
        self._socket.listen(BACKLOG)
        self._serve_task = asyncio.get_running_loop().create_task(self._server.serve())

    async def close(self) -> None:
        """Stop; call it after the service is closed, which ends the streams of events."""
        self._server.should_exit = True
        self._queries.history.close()
        if self._serve_task is not None:
            await self._serve_task
        self._socket.close()
        self._intake.close()
