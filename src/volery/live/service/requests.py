"""Requests of the API: operations and their description in OpenAPI, authorization, limits and refusals.

The description is made from the structs that the API sends: there is no second schema to keep in step.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol

import msgspec
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

import volery
from volery.core.errors import InputError
from volery.core.model import JobId
from volery.live.jobs import JobDescription
from volery.live.service.authentication import Principal, Role, Sessions, is_foreign
from volery.live.service.batches import ClosedError, UnwrittenError
from volery.live.service.checksums import RowDamageError
from volery.live.service.descriptions import Intake
from volery.live.service.ledgers import ArchivedJob
from volery.live.service.outputs import AwayError
from volery.live.service.submissions import ConflictError
from volery.live.status import ErrorDetail, ErrorResponse, JobStatus

BODY_BYTES_MAX: Final = 64 << 20
HEAD_BYTES_MAX: Final = 32 << 10
AGAIN_AFTER_S: Final = 5
"""The time after which whoever is refused for now may ask again."""
LIMIT_MAX: Final = 10_000
"""Rows of one answer."""
UNKNOWN: Final = "a bearer token is needed: Authorization: Bearer volery_.., as `volery token add` gives it"
FOREIGN: Final = "pages of other sites give no orders here"

log = logging.getLogger(__name__)


class NotThereError(Exception):
    """The request names something that does not exist, or that is none of the asker's business."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem


class NotAllowedError(NotThereError):
    """The asker may not do this."""


CLOSED: Final = "closed database"
"""Words of `sqlite3` for a connection that has been closed; the class of its error is that of many others."""
_STATUSES: Final = (
    (ConflictError, 409),
    (AwayError, 504),
    (ClosedError, 503),
    (InputError, 422),
    (NotAllowedError, 403),
    (NotThereError, 404),
)


class Traffic:
    """Counts of requests by path and status.

    Attributes:
        answers: (method, path with the names of its parameters, status) -> how many.
        seconds: (method, path) -> how long these took together, without what is streamed.
        pages_open: pages of browsers that listen for changes.
        views_made, views_cpu_s: views made for these pages, and the CPU seconds that this took.
    """

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[tuple[str, str], float] = {}
        self.pages_open = 0
        self.views_made = 0
        self.views_cpu_s = 0.0


class _Number(IntegerConvertor):
    """Numbers that the store can hold; the integers of Starlette have no end."""

    regex = "[0-9]{1,18}"


register_url_convertor("number", _Number())


def principal(request: Request) -> Principal:
    caller: Principal = request.state.principal
    return caller


def by_whom(request: Request) -> str:
    """The user for a line of the log, as ` by olga`; nothing where the API has no tokens."""
    user = principal(request).user
    return f" by {user}" if user else ""


async def job_of_body(request: Request) -> JobDescription:
    """The job in a request's body, as its user's.

    Raises:
        InputError: it is none.
        NotAllowedError: it is meant to be somebody else's.
    """
    return with_user(await intake(request).job(await body_of(request), "job"), principal(request))


def intake(request: Request) -> Intake:
    """Reads jobs from the bodies of requests to this application."""
    reader: Intake = request.app.state.intake
    return reader


TOO_LONG: Final = f"has more than {BODY_BYTES_MAX:,} bytes; submit several jobs"


async def body_of(request: Request, bytes_max: int = BODY_BYTES_MAX, problem: str = TOO_LONG) -> bytearray:
    """A request's body.

    Raises:
        InputError: it is too large.
    """
    body = bytearray()
    async for block in request.stream():
        body += block
        if len(body) > bytes_max:
            raise InputError("body", problem)
    return body


def with_user(job: JobDescription, caller: Principal) -> JobDescription:
    """A job with its user: who submits it, unless an administrator does so for somebody else."""
    if not caller.known or job.user == caller.user:
        return job
    if job.user and not caller.may("admin"):
        raise NotAllowedError("job.user", f"{caller.user} does not submit for others; leave it out")
    return job if job.user else msgspec.structs.replace(job, user=caller.user)


def guard(operation: Operation, sessions: Sessions, traffic: Traffic) -> Endpoint:
    """The endpoint of an operation: it checks who asks, counts the request, and answers errors as refusals."""

    async def answer(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if operation.method != "GET" and kind != "application/json":
            # A page of another site can make a browser send other types unasked, but not this one.
            return refusal("content-type", "orders are application/json", 415)

        if operation.role is not None:
            # Without a token, nothing else distinguishes a request from one that another site's page has caused.
            if operation.method != "GET" and "authorization" not in request.headers and is_foreign(request):
                return refusal("origin", FOREIGN, 403)
            caller = sessions.who(request)
            if caller is None:
                return refusal("authorization", UNKNOWN, 401)
            if not caller.may(operation.role):
                raise NotAllowedError("authorization", f"this takes the role {operation.role}; yours is {caller.role}")
            request.state.principal = caller

        return await operation.endpoint(request)

    async def counted(request: Request) -> Response:
        began = time.perf_counter()
        try:
            response = await answer(request)
        except UnwrittenError as error:
            response = refusal("jobs", f"{error}; nothing was changed, ask again", 503)
        except sqlite3.Error as error:
            response = unreadable_store(request, error)
        except (InputError, NotThereError) as error:
            response = refusal(error.place, error.problem, status_of(error))

        traffic.answers[operation.method, operation.path, response.status_code] += 1
        path = operation.method, operation.path
        traffic.seconds[path] = traffic.seconds.get(path, 0.0) + time.perf_counter() - began
        return response

    return counted


def unreadable_store(request: Request, error: sqlite3.Error) -> Response:
    """Answer that the store of jobs cannot be read, and log it; only an error that may pass is worth another try."""
    if CLOSED in str(error):
        # The store closes before the server, whose last answers come from it: clients ask the next API again.
        return refusal("jobs", "the API is ending; ask again when it is back", 503)

    log.error("%s %s: the store of jobs cannot be read: %s", request.method, request.url.path[:80], error)
    status = 503 if isinstance(error, sqlite3.OperationalError) else 500
    job = error.job if isinstance(error, RowDamageError) else None
    problem = f"the store of jobs cannot be read: {error}; `volery check` lists what is damaged"
    return refusal("jobs" if job is None else f"jobs/{job}", problem, status)


def status_of(error: InputError | NotThereError) -> int:
    """The HTTP status of what cannot be done."""
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


def refusal(place: str, problem: str, status: int) -> Response:
    response = as_json(ErrorResponse(ErrorDetail(place, problem)), status)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if status == 503:
        response.headers["retry-after"] = str(AGAIN_AFTER_S)
    return response


def as_json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def number(request: Request, name: str, default: int | None, maximum: int = (1 << 62)) -> Any:
    """A whole number from the query.

    Raises:
        InputError: it is none, or too large.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > maximum:
        raise InputError(f"query.{name}", f"expected a whole number from 0 to {maximum}, not {text[:40]!r}")
    return int(text)


def numbers(request: Request, name: str, count_max: int) -> list[int] | None:
    """Whole numbers from the query, single and as ranges: `3,7-9`; None where it has none of that name.

    Raises:
        InputError: it is something else, or there are too many.
    """
    text = request.query_params.get(name)
    if text is None:
        return None

    whole_numbers = list[int]()
    for word in text.split(",") if text else ():
        first, dash, last = word.partition("-")
        ends = (first, last) if dash else (first, first)
        is_whole = all(end.isascii() and end.isdigit() and len(end) < 19 for end in ends)
        span = range(int(ends[0]), int(ends[1]) + 1) if is_whole else range(0)

        if not span:
            raise InputError(f"query.{name}", f"expected whole numbers and ranges, as 3,7-9, not {word[:40]!r}")
        if len(whole_numbers) + len(span) > count_max:
            raise InputError(f"query.{name}", f"names more than {count_max:,}; leave it out to follow all")

        whole_numbers += span

    return whole_numbers


def choice(request: Request, name: str, allowed: tuple[str, ...], default: str | None = None) -> str | None:
    """One of a few words from the query.

    Raises:
        InputError: it is another.
    """
    text = request.query_params.get(name)
    if text is not None and text not in allowed:
        raise InputError(f"query.{name}", f"expected {', '.join(allowed)}, not {text[:40]!r}")
    return default if text is None else text


class JobLookup(Protocol):
    """Finds jobs, and those that have left for the archive."""

    def job(self, number: JobId) -> JobStatus | None: ...

    def archived(self, number: JobId) -> ArchivedJob | None: ...


def seen_job(jobs: JobLookup, number: JobId, caller: Principal) -> JobStatus:
    """A job, if there is one and it may be seen.

    Raises:
        NotThereError: otherwise; of one's own job that is in the archive, where it is.
    """
    job = jobs.job(number)
    # Of somebody else's job not even the archive is mentioned: its number would tell that it existed.
    if job is None and (archived_job := jobs.archived(number)) is not None and caller.sees in (None, archived_job.user):
        problem = (
            f"this job is archived, in file {archived_job.file} of the folder archive; `volery record export` reads it"
        )
        raise NotThereError(f"jobs/{number}", problem)
    if job is None or caller.sees not in (None, job.user):
        no_job(number)
    return job


def no_job(job: int) -> NoReturn:
    """Raise the error for a job that does not exist, or that may not be seen.

    Raises:
        NotThereError: always.
    """
    raise NotThereError(f"jobs/{job}", "there is no such job; `volery jobs` lists them")


Endpoint = Callable[[Request], Awaitable[Response]]


class Operation(msgspec.Struct, frozen=True):
    """One operation of the API.

    Args:
        method: GET, POST or PUT.
        path: path with parameters as `{id:number}`.
        endpoint: function that does it; the first line of its docstring is the summary.
        answers: type of the answer: a struct type or a media type.
        takes: the struct type of the request's body.
        query: name -> description of query parameters.
        status: HTTP status of success.
        role: lowest role that may use it, where there are tokens; None: everybody.
    """

    method: str
    path: str
    endpoint: Endpoint
    answers: Any
    takes: Any = None
    query: Mapping[str, str] = {}
    status: int = 200
    role: Role | None = "user"


_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    operations = list(operations)
    types = [kind for operation in operations for kind in (operation.answers, operation.takes) if _is_type(kind)]
    schemas, components = msgspec.json.schema_components(
        [*types, ErrorResponse], ref_template="#/components/schemas/{name}"
    )

    # Schemas come back in the order of the types: each operation's answer, then its body.
    schemas_in_order = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    refusal = schemas[-1]

    for operation in operations:
        answer = next(schemas_in_order) if _is_type(operation.answers) else None
        body = next(schemas_in_order) if _is_type(operation.takes) else None
        entry: dict[str, Any] = {
            "summary": (operation.endpoint.__doc__ or "").partition("\n")[0],
            "operationId": getattr(operation.endpoint, "__name__", ""),
            "parameters": _parameters(operation),
            "responses": {
                str(operation.status): {"description": "done", "content": _content(answer, operation.answers)},
                "4XX": {"description": "not done, and why", "content": _content(refusal, None)},
            },
        }
        if operation.role is None:
            entry["security"] = []
        elif operation.role != "user":
            entry["description"] = f"Takes the role {operation.role}."

        if body is not None:
            entry["requestBody"] = {"required": True, "content": _content(body, None)}

        paths.setdefault(re.sub(r":\w+}", "}", operation.path), {})[operation.method.lower()] = entry

    return {
        "openapi": "3.1.0",
        "info": {"title": "Volery", "version": volery.__version__, "summary": "Jobs of a federation of schedulers"},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _is_type(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, str)


def _content(schema: Any, media_type: Any) -> dict[str, Any]:
    return {media_type: {}} if schema is None else {"application/json": {"schema": schema}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": _NUMBER if kind == "number" else {"type": "string"}}
        for name, kind in re.findall(r"{(\w+):(\w+)}", operation.path)
    ]
    return in_path + [
        {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in operation.query.items()
    ]
