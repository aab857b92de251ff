"""The Python SDK: jobs and callables on a federation, with futures, or for programs that await.

with Client() as client:
    job = client.submit({"command": "make test"})
    squares = client.map(lambda n: n * n, range(100))
    print(job.result().state, [future.result() for future in squares])
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, TypeVar

import httpx2

from volery.core.errors import InputError
from volery.live import api_calls
from volery.live.api_calls import ApiCall, ApiMethod, EventReader, JobLike
from volery.live.follower import RECONNECT_S, FutureFollower, opened
from volery.live.jobs import TASKS_MAX
from volery.live.node.output import OUTPUT_BYTES_MAX
from volery.live.status import (
    Forecast,
    JobPlan,
    JobStatus,
    Receipt,
    TaskStatus,
)

NOTHING_MORE: Final = 204
TIMEOUT: Final = httpx2.Timeout(30.0, read=60.0)

FOLLOWERS_MAX: Final = 2
"""Followers that are tried: one may just have ended, but where the next one ends at once the reason lasts."""

AnswerT = TypeVar("AnswerT")


class JobFuture(Future[JobStatus]):
    """A submitted job: its result is its last status, also when it has failed.

    Attributes:
        id: the job's number.
        receipt: the API's answer to the submission.
    """

    def __init__(self, client: Client, receipt: Receipt) -> None:
        super().__init__()
        self.id = receipt.id
        self.receipt = receipt
        self._client = client
        opened(self)

    def cancel(self) -> bool:
        """Ask the federation to give the job up; the future ends when the job has."""
        return not self._client.cancel(self.id).ended


class ApiMethods:
    """The requests of both clients that need nothing but their arguments; see `api_calls`."""

    job = ApiMethod(api_calls.job)
    jobs = ApiMethod(api_calls.jobs)
    task = ApiMethod(api_calls.task)
    definition = ApiMethod(api_calls.definition)
    log_piece = ApiMethod(api_calls.log_piece)
    log_end = ApiMethod(api_calls.log_end)
    cancel = ApiMethod(api_calls.cancel)
    why = ApiMethod(api_calls.why)
    forecast_of = ApiMethod(api_calls.forecast_of)
    forecasts = ApiMethod(api_calls.forecasts)
    nodes = ApiMethod(api_calls.nodes)
    hosts = ApiMethod(api_calls.hosts)
    drain = ApiMethod(api_calls.drain)
    undrain = ApiMethod(api_calls.undrain)
    users = ApiMethod(api_calls.users)
    shares = ApiMethod(api_calls.shares)
    share = ApiMethod(api_calls.share)
    reweighs = ApiMethod(api_calls.reweighs)
    preemptions = ApiMethod(api_calls.preemptions)
    revision = ApiMethod(api_calls.revision)


class Client(ApiMethods):
    """A client of the API of a federation; a thread that follows its events resolves futures.

    Args:
        api, token: see `volery.live.api_calls.Credentials`.
    """

    def __init__(self, api: str | None = None, token: str | None = None) -> None:
        credentials = api_calls.Credentials(api, token)
        self.api, self._has_token = credentials.api, credentials.named
        self._options = credentials.options
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._http = httpx2.Client(timeout=TIMEOUT, **self._options)
        self._start_lock = threading.Lock()
        self._follower: FutureFollower | None = None

    def _check_process(self) -> None:
        """Begin again in a process that was forked: connections and threads are those of the other one."""
        if os.getpid() != self._process:
            self._begin()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; futures that are open fail. In a process that was forked, those of the other one go on."""
        self._check_process()
        if self._follower is not None:
            self._follower.close()
        self._http.close()

    def _request(self, call: ApiCall[AnswerT]) -> AnswerT:
        return call.answer(self._http.request(**call.request))

    def _ask(self, call: ApiCall[AnswerT]) -> AnswerT:
        self._check_process()
        try:
            return self._request(call)
        except httpx2.TransportError as error:
            raise api_calls.unreachable(self.api, error) from None

    def submit(self, job: JobLike) -> JobFuture:
        """Submit a job; it is stored when this returns.

        Raises:
            InputError: the job is wrong somewhere, or no federation answers.
        """
        with self._paused_follower() as follower:
            future = JobFuture(self, follower.send(job))
            follower.jobs[future.id] = future
        return future

    def send(self, job: JobLike) -> Receipt:
        """Submit a job without following it."""
        return self._ask(api_calls.submit(job, self._has_token))

    def send_many(self, jobs: Iterable[JobLike]) -> list[Receipt]:
        """Submit up to 1,000 jobs in one request, all of them or none, without following them.

        Raises:
            InputError: one of them is wrong, named by its place, or no federation answers.
        """
        return self._ask(api_calls.submit_many(jobs, self._has_token))

    def run(self, function: Callable[..., Any], *arguments: Any, **words: Any) -> Future[Any]:
        """Call a function on some node; `words` are further keys of a job, as `constraints`."""
        (future,) = self.map(function, [arguments], unpack=True, **words)
        return future

    def map(
        self, function: Callable[..., Any], items: Iterable[Any], *, unpack: bool = False, **words: Any
    ) -> list[Future[Any]]:
        """Call a function on each item (or with each tuple of arguments), one task each, all in one job."""
        argument_lists = [tuple(item) if unpack else (item,) for item in items]
        if not argument_lists:
            return []

        job = api_calls.calls(function, argument_lists, **words)
        futures: list[Future[Any]] = [Future() for _ in argument_lists]
        for future in futures:
            opened(future)

        with self._paused_follower() as follower:
            follower.calls[follower.send(job).id] = dict(enumerate(futures))

        return futures

    def tasks(self, number: int, first: int = 0, count: int = TASKS_MAX) -> Iterator[TaskStatus]:
        """Tasks of a job from a place on, in order: all, or so many."""
        end = first + count
        while first < end and (page := self._ask(api_calls.tasks(number, first, min(api_calls.PAGE, end - first)))):
            yield from page
            first += len(page)

    def logs(self, number: int, index: int = 0, stream: str = "stdout", offset: int = 0) -> bytes:
        """Output of a task's last attempt, from an offset on, so far; without what was dropped of it."""
        content = b""
        piece = self.log_piece(number, index, stream, offset)
        while len(piece.content) == OUTPUT_BYTES_MAX:
            content += piece.content
            piece = self.log_piece(number, index, stream, piece.end)
        return content + piece.content

    def value(self, ended: TaskStatus) -> Any:
        """The value that the call of a task returned; raises what it raised."""
        return api_calls.value_of(ended, self._ask(api_calls.result(ended.job, ended.index)))

    def plan(self, job: JobLike) -> JobPlan:
        """The prospects of a job if it were submitted now; nothing is submitted.

        Raises:
            InputError: the job is wrong somewhere, or no federation answers.
        """
        return self._ask(api_calls.plan(job, self._has_token))

    def forecast(self, job: JobLike) -> Forecast:
        """Forecast start and end of a job if it were submitted now, and its preemptions; takes some seconds.

        Raises:
            InputError: the job is wrong somewhere, or no federation answers.
        """
        return self._ask(api_calls.forecast(job, self._has_token))

    def events(self, job: int | None = None, after: int | None = None) -> Iterator[JobStatus | TaskStatus]:
        """Jobs and tasks as they change, of one job to its end; comes back by itself when the connection breaks."""
        return self._events(EventReader(after), job)

    def _events(
        self, reader: EventReader, job: int | None, follower: FutureFollower | None = None
    ) -> Iterator[JobStatus | TaskStatus]:
        waits: Iterator[float] = iter(())
        while True:
            query = follower.opening() if follower is not None else {} if job is None else {"job": str(job)}
            try:
                with self._http.stream("GET", "/events", params=query, headers=reader.headers()) as response:
                    # The job had ended, and all of its events were read before.
                    if response.status_code == NOTHING_MORE:
                        return

                    if not response.is_success:
                        response.read()

                    api_calls.check(response)
                    if follower is not None:
                        follower.connected(response)

                    # A connection that was made: the next failure is waited for from the shortest pause on again.
                    waits = iter(RECONNECT_S)
                    for line in response.iter_lines():
                        if status := reader.feed(line):
                            yield status
                            if isinstance(status, JobStatus) and status.id == job and status.ended:
                                return
                wait_s = next(waits, None)
            except (httpx2.TransportError, api_calls.BusyError) as error:
                wait_s = next(waits, None)
                if wait_s is None and not (follower is not None and follower.reopens):
                    raise api_calls.unreachable(self.api, error) from None
            except InputError as error:
                if follower is None or not follower.has_lost(error):
                    raise
                # The job that the API no longer knows has failed its future; the stream is opened for the others.
                wait_s = None

            wait_s = wait_s or RECONNECT_S[-1]
            if follower is None:
                time.sleep(wait_s)
            elif follower.closing.wait(0 if follower.reopens else wait_s):
                return

    def _followed(self, reader: EventReader, follower: FutureFollower) -> Iterator[JobStatus | TaskStatus]:
        return self._events(reader, None, follower)

    def _running_follower(self) -> FutureFollower:
        """A follower that runs."""
        self._check_process()
        with self._start_lock:
            if self._follower is None or self._follower.end is not None:
                self._follower = FutureFollower(self.api, self._has_token, self._request, self._followed)
            return self._follower

    @contextmanager
    def _paused_follower(self) -> Iterator[FutureFollower]:
        """A follower that runs and passes no event on, so that a job can be submitted and its future be entered.

        Raises:
            InputError, ApiError: events cannot be followed.
        """
        # A follower may end between two looks at it, with futures of its own: the next one starts without them.
        end: BaseException | None = None
        for _ in range(FOLLOWERS_MAX):
            follower = self._running_follower()
            with follower.pause:
                if follower.end is None:
                    yield follower
                    return
                end = follower.end

        assert end is not None
        raise end


class AsyncClient(ApiMethods):
    """A client of the API of a federation, for programs that await.

    Args:
        api, token: see `volery.live.api_calls.Credentials`.
    """

    def __init__(self, api: str | None = None, token: str | None = None) -> None:
        credentials = api_calls.Credentials(api, token)
        self.api, self._has_token = credentials.api, credentials.named
        self._http = httpx2.AsyncClient(timeout=TIMEOUT, **credentials.options)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def _ask(self, call: ApiCall[AnswerT]) -> AnswerT:
        try:
            return call.answer(await self._http.request(**call.request))
        except httpx2.TransportError as error:
            raise api_calls.unreachable(self.api, error) from None

    async def submit(self, job: JobLike) -> Receipt:
        """Submit a job; it is stored when this returns.

        Raises:
            InputError: the job is wrong somewhere, or no federation answers.
        """
        return await self._ask(api_calls.submit(job, self._has_token))

    async def submit_many(self, jobs: Iterable[JobLike]) -> list[Receipt]:
        """Submit up to 1,000 jobs in one request, all of them or none.

        Raises:
            InputError: one of them is wrong, named by its place, or no federation answers.
        """
        return await self._ask(api_calls.submit_many(jobs, self._has_token))

    async def wait(self, number: int) -> JobStatus:
        """The last status of a job, once it has ended."""
        async for status in self.events(number):
            if isinstance(status, JobStatus) and status.ended:
                return status
        return await self.job(number)

    async def run(self, function: Callable[..., Any], *arguments: Any, **words: Any) -> Any:
        """Call a function on some node and bring back what it returns or raises; `words` are further keys of a job."""
        job = api_calls.calls(function, [arguments], **words)
        ended = await self.wait((await self.submit(job)).id)
        return await self.value(await self.task(ended.id, 0))

    async def tasks(self, number: int, first: int = 0, limit: int = api_calls.PAGE) -> list[TaskStatus]:
        """Tasks of a job from a place on, in order."""
        return await self._ask(api_calls.tasks(number, first, limit))

    async def logs(self, number: int, index: int = 0, stream: str = "stdout", offset: int = 0) -> bytes:
        """Output of a task's last attempt, from an offset on, so far, or the next 64 MB of it."""
        return (await self.log_piece(number, index, stream, offset)).content

    async def value(self, ended: TaskStatus) -> Any:
        """The value that the call of a task returned; raises what it raised."""
        return api_calls.value_of(ended, await self._ask(api_calls.result(ended.job, ended.index)))

    async def forecast(self, job: JobLike) -> Forecast:
        """Forecast start and end of a job if it were submitted now, and its preemptions; takes some seconds."""
        return await self._ask(api_calls.forecast(job, self._has_token))

    async def events(self, job: int | None = None, after: int | None = None) -> AsyncIterator[JobStatus | TaskStatus]:
        """Jobs and tasks as they change, of one job to its end; comes back by itself when the connection breaks."""
        reader = EventReader(after)
        waits: Iterator[float] = iter(())
        query = {} if job is None else {"job": str(job)}

        while True:
            try:
                async with self._http.stream("GET", "/events", params=query, headers=reader.headers()) as response:
                    if response.status_code == NOTHING_MORE:
                        return

                    if not response.is_success:
                        await response.aread()

                    api_calls.check(response)
                    # A connection that was made: the next failure is waited for from the shortest pause on again.
                    waits = iter(RECONNECT_S)
                    async for line in response.aiter_lines():
                        if status := reader.feed(line):
                            yield status
                            if isinstance(status, JobStatus) and status.id == job and status.ended:
                                return
                wait_s = next(waits, None)
            except (httpx2.TransportError, api_calls.BusyError) as error:
                wait_s = next(waits, None)
                if wait_s is None:
                    raise api_calls.unreachable(self.api, error) from None
            await asyncio.sleep(wait_s or RECONNECT_S[-1])
