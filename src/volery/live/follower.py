"""The follower of a client: two threads that resolve its futures, one with events and one with results of calls."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

import httpx2

from volery.core.errors import InputError
from volery.live import api_calls
from volery.live.api_calls import ApiCall, EventReader, JobLike
from volery.live.status import ENDED_TASKS, RESULTS_MAX, STREAM, JobStatus, Receipt, TaskStatus

RECONNECT_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Waits between attempts to come back to a stream of events; after the last one the futures fail."""
CLOSE_S: Final = 5.0
NAMED_MAX: Final = 16_000
"""Characters of the numbers of jobs that one stream names; with more, the stream of all jobs is read."""

AnswerT = TypeVar("AnswerT")

log = logging.getLogger(__name__)

_open: Final[WeakSet[Future[Any]]] = WeakSet()
"""Futures of this process that are to be resolved."""


def opened(future: Future[Any]) -> None:
    """Note a new future that a follower of this process will resolve."""
    future.set_running_or_notify_cancel()
    _open.add(future)


def _end_in_copy() -> None:
    """Fail the open futures in a process that was forked: their followers are in the other one, as are those who wait.

    They are made anew: a thread that is not here may have held their locks, and their callbacks are for the other one.
    """
    for future in [*_open]:
        Future.__init__(future)
        future.set_exception(
            InputError("future", "belongs to the process that this one was forked from; ask a client for the job here")
        )
    _open.clear()


os.register_at_fork(after_in_child=_end_in_copy)


class Request(Protocol):
    """Makes a request to the API; raises httpx2.TransportError where no answer comes."""

    def __call__(self, call: ApiCall[AnswerT], /) -> AnswerT: ...


Events = Callable[[EventReader, "FutureFollower"], Iterator[JobStatus | TaskStatus]]


class EndedCall(NamedTuple):
    """A call that has ended; without a status where that is not known yet."""

    future: Future[Any]
    job: int
    place: int
    status: TaskStatus | None = None


class FutureFollower:
    """Resolves futures in a thread of its own, which follows the jobs of its client and no others.

    Events are passed over while `pause` is held. A submission names the stream that is open, which then follows the
    job. Where none is, the stream is opened again. Futures are resolved while it is not held: a callback may submit.
    Whatever ends the thread of events fails all futures that are open; one that fails takes no other along.

    Args:
        named: true if a token names the user.
        events: stream that a reader goes on with, of the jobs in `opening`.

    Attributes:
        end: reason why nothing is resolved any more; None: futures are resolved.
    """

    def __init__(self, api: str, named: bool, request: Request, events: Events) -> None:
        self.pause = threading.Lock()
        self.jobs: dict[int, Future[JobStatus]] = {}
        self.calls: dict[int, dict[int, Future[Any]]] = {}
        self._api = api
        self._has_token = named
        self._request = request
        self._events = events
        self.closing = threading.Event()
        self.end: BaseException | None = None
        self.reopens = False
        self._socket: Any = None
        self._stream = ""
        self._is_open = threading.Event()
        self._ended_calls: SimpleQueue[EndedCall | None] = SimpleQueue()

        reader = EventReader(self._ask(api_calls.revision()))
        self._thread = threading.Thread(target=self._follow, args=(reader,), name="volery-events", daemon=True)
        self._fetcher = threading.Thread(target=self._fetch, name="volery-results", daemon=True)
        self._thread.start()
        self._fetcher.start()
        self._is_open.wait(CLOSE_S)  # without it, the first submission would have to open it again

    def send(self, job: JobLike) -> Receipt:
        """Submit a job that is followed from now on; call it while `pause` is held."""
        receipt, is_followed = self._request_once(api_calls.submit_followed(job, self._has_token, self._stream))

        # The stream ended between two events: it is opened again, with this job among those that it names.
        if not is_followed:
            self.reopens = True
            self._hang_up()
        return receipt

    def _request_once(self, call: ApiCall[AnswerT]) -> AnswerT:
        try:
            return self._request(call)
        except httpx2.TransportError as error:
            raise api_calls.unreachable(self._api, error) from None

    def opening(self) -> dict[str, str]:
        """The query of a stream of events: the jobs that it is to follow."""
        with self.pause:
            self.reopens, self._stream = False, ""
            job_numbers = api_calls.named_jobs({*self.jobs, *self.calls})
        return {"jobs": job_numbers} if len(job_numbers) <= NAMED_MAX else {}

    def has_lost(self, error: InputError) -> bool:
        """Fail the futures of the job that the API does not know any more; true if there were any."""
        place, _, number = error.place.rpartition("/")
        with self.pause:
            job = int(number) if place == "jobs" and number.isdecimal() else -1
            futures: list[Future[Any]] = [*self.calls.pop(job, {}).values()]
            if job in self.jobs:
                futures.append(self.jobs.pop(job))
            self.reopens = bool(futures)

        for future in futures:
            _settle(future, error=error)

        return bool(futures)

    def close(self) -> None:
        self.closing.set()
        self._hang_up()
        _join(self._thread)
        self._ended_calls.put(None)
        _join(self._fetcher)
        self._fail(self._closed())

    def _closed(self) -> InputError:
        return InputError(self._api, "the client was closed before the job had ended")

    def _follow(self, reader: EventReader) -> None:
        error: BaseException = InputError(self._api, "the stream of events has ended; submit again")
        try:
            for status in self._events(reader, self):
                with self.pause:
                    job_future = self._take(status)
                if job_future is not None:
                    _settle(job_future, status)
                if self.closing.is_set():
                    break
        except BaseException as problem:  # whatever it is, nobody would see the end of this thread
            error = problem

        self._fail(self._closed() if self.closing.is_set() else error)
        self._ended_calls.put(None)

    def connected(self, response: httpx2.Response) -> None:
        with self.pause:
            self._socket = response.extensions["network_stream"].get_extra_info("socket")
            self._stream = response.headers.get(STREAM, "")
            if self.closing.is_set() or self.reopens:
                self._hang_up()
        self._is_open.set()

    def _hang_up(self) -> None:
        """End the wait for the next event; closing a socket alone would not wake the thread that reads it."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _take(self, status: JobStatus | TaskStatus) -> Future[JobStatus] | None:
        """The future of a job that has ended; calls that have ended are passed on, to have their results fetched."""
        if isinstance(status, TaskStatus):
            if status.state in ENDED_TASKS and (future := self.calls.get(status.job, {}).pop(status.index, None)):
                self._ended_calls.put(EndedCall(future, status.job, status.index, status))
            return None

        if not status.ended:
            return None

        # Tasks that have never run have no events of their own.
        for index, future in self.calls.pop(status.id, {}).items():
            self._ended_calls.put(EndedCall(future, status.id, index))

        return self.jobs.pop(status.id, None)

    def _fetch(self) -> None:
        """Fetch the results of calls that have ended: while one request is under way, those of the next one gather."""
        batch: list[EndedCall | None] = []
        while None not in batch:
            batch = [self._ended_calls.get()]
            # Whatever has gathered while the last request was under way goes into this one.
            while len(batch) < RESULTS_MAX and not self._ended_calls.empty():
                batch.append(self._ended_calls.get())

            jobs: dict[int, list[EndedCall]] = {}
            for call in batch:
                if call is not None:
                    jobs.setdefault(call.job, []).append(call)

            for number, calls in jobs.items():
                self._settle_calls(number, calls)

    def _settle_calls(self, job: int, calls: list[EndedCall]) -> None:
        while calls:
            try:
                results = self._ask(api_calls.results(job, [call.place for call in calls]))
                if not results:
                    raise api_calls.ApiError(f"{self._api} sends no result of job {job}")
                statuses = [call.status or self._ask(api_calls.task(job, call.place)) for call in calls[: len(results)]]
            except BaseException as error:  # as in `_follow`
                # One by one, so that one damaged result fails its own future alone.
                if isinstance(error, InputError) and len(calls) > 1:  # perhaps because of one of them
                    for call in calls:
                        self._settle_calls(job, [call])
                    return
                for call in calls:
                    _settle(call.future, error=error)
                return

            for call, status, pickled in zip(calls, statuses, results, strict=False):
                _settle_call(call.future, status, pickled)

            calls = calls[len(results) :]

    def _ask(self, call: ApiCall[AnswerT]) -> AnswerT:
        """Ask, and again where the API is away for a moment: the call has ended, and its result is there."""
        for wait_s in (*RECONNECT_S, None):
            if self.closing.is_set():
                raise self._closed()
            try:
                return self._request(call)
            except (httpx2.TransportError, api_calls.BusyError) as error:
                if wait_s is None:
                    raise api_calls.unreachable(self._api, error) from None
                self.closing.wait(wait_s)
        raise AssertionError("the last wait is None")

    def _fail(self, error: BaseException) -> None:
        with self.pause:
            self.end = self.end or error
            futures = [*self.jobs.values(), *(future for calls in self.calls.values() for future in calls.values())]
            self.jobs.clear()
            self.calls.clear()
        self._is_open.set()
        for future in futures:
            _settle(future, error=error)


def _join(thread: threading.Thread) -> None:
    """Wait for the end of a thread, unless it is this one: a callback of a future may close the client."""
    if thread is not threading.current_thread():
        thread.join(CLOSE_S)


def _settle_call(future: Future[Any], ended: TaskStatus, pickled: bytes) -> None:
    try:
        value = api_calls.value_of(ended, pickled)
    except BaseException as error:  # unpickling runs code of others
        _settle(future, error=error)
    else:
        _settle(future, value)


def _settle(future: Future[Any], value: object = None, error: BaseException | None = None) -> None:
    """Resolve a future; what its callbacks raise, and that its holder has resolved it, harms no other future."""
    try:
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    except BaseException:
        log.exception("a future could not be resolved, or its callback has failed")
    _open.discard(future)
