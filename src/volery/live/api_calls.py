"""Requests to the API as values, shared by both clients: what to ask, and how to read the answer."""

from __future__ import annotations

import getpass
import os
import pickle
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

import httpx2
import msgspec

from volery.core.errors import InputError
from volery.live.command import API_VARIABLE, INDEX_VARIABLE, JOB_VARIABLE, TOKEN_VARIABLE
from volery.live.config.client_file import client_file, client_path, stored_token
from volery.live.config.tables import refuse_surrogates
from volery.live.config.tls import trusting
from volery.live.jobs import JobDescription, TaskDescription, job_from_table, read_job
from volery.live.pickles import dumps
from volery.live.status import (
    DEFAULT_PORT,
    LOG_OFFSET,
    STREAM,
    ErrorResponse,
    Forecast,
    ForecastRecord,
    HostStatus,
    JobPlan,
    JobStatus,
    NodeStatus,
    PreemptionStatus,
    Receipt,
    ShareStatus,
    TaskStatus,
    UserStatus,
    WeightChange,
    Why,
)

_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
DEFAULT_API: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
CA_VARIABLE: Final = "VOLERY_CA"
PAGE: Final = 1000
BUSY: Final = 503
NO_SUCH_RANGE: Final = 416

AnswerT = TypeVar("AnswerT")
Arguments = ParamSpec("Arguments")


class ApiError(RuntimeError):
    """The API failed at something that it should have been able to do."""


class BusyError(InputError):
    """The API has no room for this just now; the same may be asked again."""


class CallFailedError(RuntimeError):
    """A callable raised nothing that could be brought back, or never ran to its end; the message gives the reason."""


class ApiCall(Generic[AnswerT]):
    """One request to the API, and the function that reads its answer.

    Args:
        read: function that makes the answer of a successful response.
        query: query parameters; those that are None are left out.
        body: body, which is sent as JSON.
    """

    def __init__(
        self,
        method: str,
        path: str,
        read: Callable[[httpx2.Response], AnswerT],
        query: Mapping[str, object] | None = None,
        body: object = None,
    ) -> None:
        params = {name: str(value) for name, value in (query or {}).items() if value is not None}
        refuse_surrogates(params, "query")
        self.read = read
        self.request: dict[str, Any] = {"method": method, "url": path, "params": params}

        if method != "GET":
            try:
                self.request["content"] = msgspec.json.encode(body)
            except UnicodeEncodeError:
                refuse_surrogates(msgspec.to_builtins(body), "job")
                raise
            self.request["headers"] = {"content-type": "application/json"}

    def answer(self, response: httpx2.Response) -> AnswerT:
        """The content of the response.

        Raises:
            InputError: the API refuses; the error gives its reason.
            ApiError: it has failed.
        """
        check(response)
        return self.read(response)


class Asks(Protocol):
    """A client that waits for the answer of a call."""

    def _ask(self, call: ApiCall[AnswerT], /) -> AnswerT: ...


class AsksLater(Protocol):
    """A client of which the answers are awaited."""

    def _ask(self, call: ApiCall[AnswerT], /) -> Coroutine[Any, Any, AnswerT]: ...


class ApiMethod(Generic[Arguments, AnswerT]):
    """A method of both clients: it makes a call of its arguments, and asks it.

    Args:
        make: function that makes the call.
    """

    def __init__(self, make: Callable[Arguments, ApiCall[AnswerT]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: None, kind: type) -> Callable[Arguments, ApiCall[AnswerT]]: ...
    @overload
    def __get__(self, client: Asks, kind: type) -> Callable[Arguments, AnswerT]: ...
    @overload
    def __get__(self, client: AsksLater, kind: type) -> Callable[Arguments, Coroutine[Any, Any, AnswerT]]: ...
    def __get__(self, client: Any, kind: type) -> Callable[Arguments, Any]:
        if client is None:
            return self._make  # which has the signature and the text that `help` shows
        return partial(_ask, client, self._make)


def _ask(client: Any, make: Callable[..., ApiCall[Any]], *arguments: Any, **words: Any) -> Any:
    return client._ask(make(*arguments, **words))


def check(response: httpx2.Response) -> None:
    """Raise the error of a response that is not a success; its content has been read.

    Raises:
        InputError: the API refuses; the error gives its reason.
        BusyError: it refuses for now.
        ApiError: it has failed, or it is not Volery that answers.
    """
    if response.is_success:
        return

    try:
        error = msgspec.json.decode(response.content, type=ErrorResponse).error
    except msgspec.MsgspecError:
        problem = f"{response.url} answers with status {response.status_code}: {response.text[:200]}"
        raise ApiError(problem) from None
    raise (BusyError if response.status_code == BUSY else InputError)(error.place, error.problem)


def reader(kind: type[AnswerT]) -> Callable[[httpx2.Response], AnswerT]:
    """Reads JSON of one type; fields of newer versions are passed over."""

    def read(response: httpx2.Response) -> AnswerT:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.MsgspecError as error:
            raise ApiError(f"{response.url} sends what is not Volery's: {error}") from None

    return read


JobLike = JobDescription | Mapping[str, Any] | Path
"""A job as a description, as a table of the same keys, or as the path of a TOML file."""


def description_of(job: JobLike, named: bool = False) -> JobDescription:
    """The description that is meant, with a user where no token names one.

    Raises:
        InputError: it is wrong somewhere.
    """
    if isinstance(job, Path):
        job = read_job(job)
    elif not isinstance(job, JobDescription):
        job = job_from_table(job, "job")

    if not (job.user or named):
        job = msgspec.structs.replace(job, user=user_name())
    # Under one key equal jobs are one, whoever submits them.
    return job if job.parent or job.key else msgspec.structs.replace(job, parent=parent_task())


def parent_task() -> str:
    """The task that this process belongs to, as JOB/INDEX; empty where it is none."""
    job, index = (os.environ.get(name, "") for name in (JOB_VARIABLE, INDEX_VARIABLE))
    return f"{job}/{index}" if job.isdecimal() and index.isdecimal() else ""


def user_name() -> str:
    """The default submitter: the name of this account; empty where the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def calls(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], **words: Any) -> JobDescription:
    """A job that calls a function once per tuple of arguments; `words` are further keys of a job."""
    name = words.pop("name", getattr(function, "__name__", "call"))
    tasks = tuple(TaskDescription(call=dumps((function, call_arguments, {}))) for call_arguments in arguments)
    return JobDescription(name=name, tasks=tasks, **words)


def submit(job: JobLike, named: bool = False) -> ApiCall[Receipt]:
    """Take a job; `named`: a token names its user."""
    return ApiCall("POST", "/jobs", reader(Receipt), body=description_of(job, named))


def submit_followed(job: JobLike, named: bool, stream: str) -> ApiCall[tuple[Receipt, bool]]:
    """As `submit`; the answer is also whether a stream of events follows the job from now on."""
    read = reader(Receipt)
    return ApiCall(
        "POST",
        "/jobs",
        lambda response: (read(response), response.headers.get(STREAM) == stream),
        {"stream": stream},
        description_of(job, named),
    )


def jobs(
    state: str | None = None,
    user: str | None = None,
    before: int | None = None,
    limit: int = 100,
    reason: str | None = None,
    since_us: int | None = None,
    name: str | None = None,
    mine: bool = False,
) -> ApiCall[list[JobStatus]]:
    """Jobs, the newest first; `name`: where the name contains this, `mine`: only the caller's own."""
    query: dict[str, object] = {"state": state, "user": user, "before": before, "limit": limit, "reason": reason}
    # Without tokens, the API knows no caller: the name of the account says who asks.
    query |= {"since": since_us, "name": name, "mine": user_name() if mine else None}
    return ApiCall("GET", "/jobs", reader(list[JobStatus]), query)


def job(number: int) -> ApiCall[JobStatus]:
    """The status of a job."""
    return ApiCall("GET", f"/jobs/{number}", reader(JobStatus))


def definition(number: int) -> ApiCall[JobDescription]:
    """The description of a job, as it was submitted."""
    return ApiCall("GET", f"/jobs/{number}/definition", reader(JobDescription))


def tasks(number: int, first: int, limit: int) -> ApiCall[list[TaskStatus]]:
    return ApiCall("GET", f"/jobs/{number}/tasks", reader(list[TaskStatus]), {"first": first, "limit": limit})


def task(number: int, index: int) -> ApiCall[TaskStatus]:
    """The status of a task."""
    return ApiCall("GET", f"/jobs/{number}/tasks/{index}", reader(TaskStatus))


class LogPiece(NamedTuple):
    """A piece of an output: its content from `start` on, so far, or the next 64 MB of it."""

    start: int
    content: bytes

    @property
    def end(self) -> int:
        """The offset of the next piece."""
        return self.start + len(self.content)


def log_piece(number: int, index: int = 0, stream: str = "stdout", offset: int = 0) -> ApiCall[LogPiece]:
    """A piece of the output of a task's last attempt, at most 64 MB, and where it begins."""

    def read(response: httpx2.Response) -> LogPiece:
        return LogPiece(int(response.headers.get(LOG_OFFSET, offset)), response.content)

    return ApiCall("GET", f"/jobs/{number}/tasks/{index}/logs", read, {"stream": stream, "offset": offset})


def _content(response: httpx2.Response) -> bytes:
    return response.content


class _EndCall(ApiCall[bytes]):
    """A request for the end of something; of what is empty, status 416 says that there is none."""

    def answer(self, response: httpx2.Response) -> bytes:
        return b"" if response.status_code == NO_SUCH_RANGE else super().answer(response)


def log_end(number: int, index: int = 0, stream: str = "stdout", size: int = 4096) -> ApiCall[bytes]:
    """The last bytes of the output of a task's last attempt."""
    call = _EndCall("GET", f"/jobs/{number}/tasks/{index}/logs", _content, {"stream": stream})
    call.request["headers"] = {"range": f"bytes=-{size}"}
    return call


def result(number: int, index: int) -> ApiCall[bytes]:
    return ApiCall("GET", f"/jobs/{number}/tasks/{index}/result", _content)


def results(number: int, places: Sequence[int]) -> ApiCall[list[bytes]]:
    """Results of up to `RESULTS_MAX` tasks, in this order; at least the first one, and fewer than asked if large."""
    return ApiCall("GET", f"/jobs/{number}/results", reader(list[bytes]), {"tasks": ",".join(map(str, places))})


def submit_many(jobs: Iterable[JobLike], named: bool = False) -> ApiCall[list[Receipt]]:
    """Submit several jobs, all of them or none; see `submit`."""
    return ApiCall("POST", "/jobs/many", reader(list[Receipt]), body=[description_of(job, named) for job in jobs])


def plan(job: JobLike, named: bool = False) -> ApiCall[JobPlan]:
    """The prospects of a job; see `submit`."""
    return ApiCall("POST", "/plan", reader(JobPlan), body=description_of(job, named))


def forecast(job: JobLike, named: bool = False) -> ApiCall[Forecast]:
    """The forecast of a job; see `submit`."""
    return ApiCall("POST", "/forecast", reader(Forecast), body=description_of(job, named))


def forecast_of(number: int) -> ApiCall[Forecast]:
    """Forecast start and end of what is left of a job that is under way; takes some seconds."""
    return ApiCall("GET", f"/jobs/{number}/forecast", reader(Forecast))


def forecasts() -> ApiCall[ForecastRecord]:
    """The accuracy of earlier forecasts."""
    return ApiCall("GET", "/forecasts", reader(ForecastRecord))


def why(number: int, index: int | None = None) -> ApiCall[Why]:
    """The reasons why a task waits; without a place, of the first of the job that does."""
    return ApiCall("GET", f"/jobs/{number}" + ("" if index is None else f"/tasks/{index}") + "/why", reader(Why))


def cancel(number: int) -> ApiCall[JobStatus]:
    """Cancel a job that has not ended."""
    return ApiCall("POST", f"/jobs/{number}/cancel", reader(JobStatus))


def named_jobs(jobs: Iterable[int]) -> str:
    """Numbers of jobs as `/events?jobs=` takes them: `3,7-9`."""
    spans: list[list[int]] = []
    for number in sorted(jobs):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _revision(response: httpx2.Response) -> int:
    return int(msgspec.json.decode(response.content)["revision"])


def revision() -> ApiCall[int]:
    """The revision of the last change of anything, from which `events` can go on."""
    return ApiCall("GET", "/healthz", _revision)


def nodes(
    state: str | None = None, host: str | None = None, cluster: str | None = None, text: str | None = None
) -> ApiCall[list[NodeStatus]]:
    """All nodes, or those in a state, on a host, in a cluster, or whose address or labels contain a text."""
    return ApiCall(
        "GET", "/nodes", reader(list[NodeStatus]), {"state": state, "host": host, "cluster": cluster, "text": text}
    )


def hosts() -> ApiCall[list[HostStatus]]:
    """All hosts of the federation, and whether they answer."""
    return ApiCall("GET", "/hosts", reader(list[HostStatus]))


def drain(node: str) -> ApiCall[NodeStatus]:
    """Place nothing more on a node; what runs there goes on.

    Raises:
        InputError: it is no address of a node.
    """
    return _order_node(node, "drain")


def undrain(node: str) -> ApiCall[NodeStatus]:
    """Use a drained node again; see `drain`."""
    return _order_node(node, "undrain")


def _order_node(node: str, order: str) -> ApiCall[NodeStatus]:
    if not re.fullmatch(r"[a-z]+/[0-9]{1,18}", node):
        raise InputError(f"node {node[:80]!r}", "an address looks like node/3; `volery nodes` lists them")
    return ApiCall("POST", f"/nodes/{node}/{order}", reader(NodeStatus))


def users() -> ApiCall[list[UserStatus]]:
    """Users with something under way or a share."""
    return ApiCall("GET", "/users", reader(list[UserStatus]))


def shares() -> ApiCall[list[ShareStatus]]:
    """The shares of users and organisations, as a tree."""
    return ApiCall("GET", "/shares", reader(list[ShareStatus]))


def share(name: str, weight: int | None = None) -> ApiCall[ShareStatus]:
    """The share of a user or an organisation; with a weight, what it is from now on.

    Raises:
        InputError: nobody of that name has one, or the weight is none.
    """
    refuse_surrogates(name, "name")
    path = f"/shares/{quote(name, safe='')}"
    if weight is None:
        return ApiCall("GET", path, reader(ShareStatus))
    return ApiCall("PUT", path, reader(ShareStatus), body={"weight": weight})


def reweighs(name: str | None = None, limit: int = 100) -> ApiCall[list[WeightChange]]:
    """Changes of weights, the last change first."""
    return ApiCall("GET", "/reweighs", reader(list[WeightChange]), {"name": name, "limit": limit})


def preemptions(
    user: str | None = None, job: int | None = None, before: int | None = None, limit: int = 100
) -> ApiCall[list[PreemptionStatus]]:
    """Attempts that were ended so that others could have their places, the last one first."""
    query = {"user": user, "job": job, "before": before, "limit": limit}
    return ApiCall("GET", "/preemptions", reader(list[PreemptionStatus]), query)


def value_of(ended: TaskStatus, pickled: bytes) -> Any:
    """The result of a call.

    Raises:
        Exception: whatever it raised.
        CallFailedError: it never came to that; or it raised what would end the caller, as SystemExit, or what cannot
            be read here.
    """
    place = f"job {ended.job}, task {ended.index}"
    try:
        value = pickle.loads(pickled) if pickled else None  # noqa: S301 - the result of our own callable
    except Exception as error:
        problem_text = f"cannot be unpickled here: {type(error).__name__}: {error}"
        raise CallFailedError(f"{place} is {ended.state}{_because(ended)}, and what it sent {problem_text}") from error

    if ended.state == "finished":
        return value

    if isinstance(value, BaseException):
        raised_in = f"raised in {place}, on {ended.node}"
        value.add_note(f"{raised_in}; what it printed: volery logs {ended.job}/{ended.index} --stderr")
        if isinstance(value, Exception):
            raise value
        raise CallFailedError(f"{place} is {ended.state}: {ended.reason}") from value

    raise CallFailedError(f"{place} is {ended.state}{_because(ended) or ': it never ran'}")


def _because(ended: TaskStatus) -> str:
    return f": {ended.reason}" if ended.reason else ""


class EventReader:
    """Makes statuses of the lines of an event stream; `last` is the id of the last complete event."""

    def __init__(self, last_revision: int | None = None) -> None:
        self.last = last_revision
        self._fields: dict[str, str] = {}

    def headers(self) -> dict[str, str]:
        return {} if self.last is None else {"last-event-id": str(self.last)}

    def feed(self, line: str) -> JobStatus | TaskStatus | None:
        """Take one line in; a status when it completes an event."""
        if line:
            name, _, text = line.partition(":")
            self._fields[name] = text.removeprefix(" ")
            return None

        fields, self._fields = self._fields, {}

        # Not every event has an id, as one of a job that is followed since; and an id may come without an event.
        if "id" in fields:
            self.last = int(fields["id"])

        if "data" not in fields:
            return None
        if fields["event"] == "job":
            return msgspec.json.decode(fields["data"], type=JobStatus)

        return msgspec.json.decode(fields["data"], type=TaskStatus)


def api_address(api: str | None) -> str:
    """The API's address: the given one, else VOLERY_API, else of the user's `ClientFile`, else this machine's port.

    Raises:
        InputError: it is no address, or the file is wrong.
    """
    stated = api or os.environ.get(API_VARIABLE)
    stored = "" if stated else client_file().api
    address = (stated or stored or DEFAULT_API).strip().rstrip("/")
    if _HOST_AND_PORT.fullmatch(address):  # as `volery up --api` takes it
        address = f"http://{address}"

    try:
        url = httpx2.URL(address)
    except (httpx2.InvalidURL, UnicodeError):
        url = httpx2.URL()

    if url.scheme not in ("http", "https") or not url.host:
        raise InputError(
            f"{client_path()}.api" if stored else address,
            f"is no address of an API; write it as {DEFAULT_API}, or HOST:PORT",
        )

    return address


class Credentials:
    """Connection settings of a client: address, token and certificate authority.

    Args:
        api: address of the API; see `api_address`.
        token: token of the user; by default VOLERY_TOKEN, or for the address in the user's `ClientFile` the token of
            that; empty: none.

    Raises:
        InputError: the address is none; the token would travel readable over a network; VOLERY_CA or the file of the
            user cannot be used.
    """

    def __init__(self, api: str | None, token: str | None) -> None:
        self.api = api_address(api)
        token = os.environ.get(TOKEN_VARIABLE) if token is None else token
        source = TOKEN_VARIABLE
        # The token of one federation is nothing for another: it goes to the address that it stands beside.
        if (
            token is None
            and (stored := client_file()).token_file
            and self.api == api_address(stored.api or DEFAULT_API)
        ):
            token, source = stored_token(stored), stored.token_file
        token = token or ""
        self.named = bool(token)

        url = httpx2.URL(self.api)

        # Anybody on the way could read it, and act as the user.
        if token and url.scheme != "https" and url.host not in ("127.0.0.1", "localhost", "::1"):
            raise InputError(self.api, "a token would travel readable; use https")
        if not token.isascii() or not (token + "x").isprintable():
            raise InputError(source, "is no token; `volery token add` gives one")

        ca = url.scheme == "https" and (os.environ.get(CA_VARIABLE) or client_file().ca)
        self.options: dict[str, Any] = {
            "base_url": self.api,
            "headers": {"authorization": f"Bearer {token}"} if token else {},
            "verify": trusting(Path(ca)) if ca else True,
            "trust_env": False,
        }


def unreachable(api: str, error: httpx2.TransportError | BusyError) -> InputError:
    """The error for an API that gave no answer: it is busy, something else listens there, or nothing does."""
    if isinstance(error, BusyError):
        return error

    text = str(error) or type(error).__name__
    if isinstance(error, httpx2.ConnectError) and "SSL" in text:
        problem = (
            f"is not trusted, or does not speak TLS ({text}); {CA_VARIABLE} names the authority of its certificate"
        )
        return InputError(api, problem)
    if isinstance(error, httpx2.ConnectError):
        problem = f"no federation answers there ({text}); start one with `volery up`, or name one with --api"
        return InputError(api, f"{problem} or {API_VARIABLE}")
    if isinstance(error, httpx2.TimeoutException):
        return InputError(api, f"has not answered in time ({text}); it is busy, or cannot be reached: try again")

    return InputError(api, f"has closed the connection without an answer ({text}); it restarts, or is no federation")
