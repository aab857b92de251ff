"""The Python SDK for programs that await: the same requests as `client.Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import httpx2

from volery.live import api_calls
from volery.live.api_calls import ApiCall, EventReader, JobLike
from volery.live.client import NOTHING_MORE, TIMEOUT
from volery.live.follower import RECONNECT_S
from volery.live.status import (
    Forecast,
    ForecastRecord,
    HostStatus,
    JobStatus,
    NodeStatus,
    PreemptionStatus,
    Receipt,
    ShareStatus,
    TaskStatus,
)

AnswerT = TypeVar("AnswerT")


class AsyncClient:
    """A client of the API of a federation, for programs that await.

    Args:
        api: address of the API; by default VOLERY_API, or this machine.
        token: token of the user; by default VOLERY_TOKEN.
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

    async def job(self, number: int) -> JobStatus:
        """The status of a job."""
        return await self._ask(api_calls.job(number))

    async def jobs(
        self, state: str | None = None, user: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[JobStatus]:
        """Jobs, the newest first."""
        return await self._ask(api_calls.jobs(state, user, before, limit))

    async def tasks(self, number: int, first: int = 0, limit: int = api_calls.PAGE) -> list[TaskStatus]:
        """Tasks of a job from a place on, in order."""
        return await self._ask(api_calls.tasks(number, first, limit))

    async def task(self, number: int, index: int) -> TaskStatus:
        """The status of a task."""
        return await self._ask(api_calls.task(number, index))

    async def logs(self, number: int, index: int = 0, stream: str = "stdout", offset: int = 0) -> bytes:
        """Output of a task's last attempt, from an offset on, so far, or the next 64 MB of it."""
        return (await self._ask(api_calls.logs(number, index, stream, offset))).content

    async def value(self, ended: TaskStatus) -> Any:
        """The value that the call of a task returned; raises what it raised."""
        return api_calls.value_of(ended, await self._ask(api_calls.result(ended.job, ended.index)))

    async def cancel(self, number: int) -> JobStatus:
        """Cancel a job that has not ended."""
        return await self._ask(api_calls.cancel(number))

    async def forecast(self, job: JobLike) -> Forecast:
        """Forecast start and end of a job if it were submitted now, and its preemptions; takes some seconds."""
        return await self._ask(api_calls.forecast(job, self._has_token))

    async def forecast_of(self, number: int) -> Forecast:
        """Forecast start and end of what is left of a job that is under way; takes some seconds."""
        return await self._ask(api_calls.forecast_of(number))

    async def forecasts(self) -> ForecastRecord:
        """The accuracy of earlier forecasts."""
        return await self._ask(api_calls.forecasts())

    async def nodes(
        self, state: str | None = None, host: str | None = None, cluster: str | None = None, text: str | None = None
    ) -> list[NodeStatus]:
        """All nodes, or those in a state, on a host, in a cluster, or whose address or labels contain a text."""
        return await self._ask(api_calls.nodes(state, host, cluster, text))

    async def hosts(self) -> list[HostStatus]:
        """All hosts of the federation, and whether they answer."""
        return await self._ask(api_calls.hosts())

    async def shares(self) -> list[ShareStatus]:
        """The shares of users and organisations, as a tree."""
        return await self._ask(api_calls.shares())

    async def share(self, name: str, weight: int | None = None) -> ShareStatus:
        """The share of a user or an organisation; with a weight, what it is from now on."""
        return await self._ask(api_calls.share(name, weight))

    async def preemptions(
        self, user: str | None = None, job: int | None = None, before: int | None = None, limit: int = 100
    ) -> list[PreemptionStatus]:
        """Attempts that were ended so that others could have their places, the last one first."""
        return await self._ask(api_calls.preemptions(user, job, before, limit))

    async def revision(self) -> int:
        """The revision of the last change of anything, from which `events` can go on."""
        return await self._ask(api_calls.revision())

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
