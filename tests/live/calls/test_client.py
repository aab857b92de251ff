"""The SDK against a federation that serves its API."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
import httpx2
import pytest
from tests.live.bench import LIMIT_S
from tests.live.serving import serving

from volery.core.errors import InputError
from volery.live import api_calls as asking
from volery.live.api_calls import ApiError, CallFailedError
from volery.live.client import AsyncClient, Client, JobFuture
from volery.live.status import JobStatus, Receipt, TaskStatus

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def api(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as (url, _):
        yield url


def halve(n: int) -> float:
    if n == 13:
        raise ValueError("thirteen")
    return n / 2


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_jobs_are_futures(api: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('command = "exit 3"')
    with Client(api) as client:
        good, bad = client.submit({"command": "echo hello", "name": "x"}), client.submit(path)
        assert (good.result(LIMIT_S).state, bad.result(LIMIT_S).state) == ("done", "failed")
        assert client.logs(good.id) == b"hello\n"
        assert [job.id for job in client.jobs()] == [bad.id, good.id]
        assert [task.exit_code for task in client.tasks(bad.id)] == [3]
        assert client.job(good.id).name == "x"
        assert [node.address for node in client.nodes()] == ["node/0", "node/1"]


def test_callables_are_futures(api: str) -> None:
    with Client(api) as client:
        futures = client.map(halve, [2, 13, 5])
        assert [futures[0].result(LIMIT_S), futures[2].result(LIMIT_S)] == [1.0, 2.5]
        with pytest.raises(ValueError, match="thirteen") as caught:
            futures[1].result(LIMIT_S)
        assert "job 0, task 1, on node/0" in caught.value.__notes__[0]
        assert client.run(max, 3, 4).result(LIMIT_S) == 4
        assert client.map(halve, []) == []
        assert client.jobs()[-1].name == "halve"


def test_results_of_calls_that_ended_together_are_fetched_together(api: str) -> None:
    with Client(api) as client:
        asked: list[str] = []
        client._http.event_hooks["request"].append(lambda request: asked.append(request.url.path))
        client.run(halve, 0).result(LIMIT_S)
        with client._running_follower().pause:
            number = (
                client._running_follower().send(asking.calls(halve, [(item,) for item in range(40) if item != 13])).id
            )
            futures: list[Future[float]] = [Future() for _ in range(39)]
            client._running_follower().calls[number] = dict(enumerate(futures))
            list(client.events(number))  # to its end
        assert sum(future.result(LIMIT_S) for future in futures) == (sum(range(40)) - 13) / 2
        assert asked.count(f"/jobs/{number}/results") < 20


def test_results_that_are_too_large_for_one_answer_all_come_back(api: str) -> None:
    with Client(api) as client:
        sizes = [400_000 + item for item in range(15)]
        assert [len(future.result(LIMIT_S)) for future in client.map(bytes, sizes)] == sizes


def test_futures_of_calls_fail_when_the_client_is_closed(api: str) -> None:
    with Client(api) as client:
        future = client.run(time.sleep, 60)
        number = client.jobs()[0].id
    with pytest.raises(InputError, match="the client was closed"):
        future.result(LIMIT_S)
    with Client(api) as client:
        client.cancel(number)


def test_a_call_that_never_runs_fails_with_the_reason(api: str) -> None:
    with Client(api) as client:
        future = client.run(halve, 2, constraints=("cores > 8",))
        with pytest.raises(CallFailedError, match="job 0, task 0 is unsatisfiable: no machine has cores > 8"):
            future.result(LIMIT_S)


def test_a_future_can_give_its_job_up(api: str) -> None:
    with Client(api) as client:
        job = client.submit({"command": "sleep 60"})
        assert job.cancel()
        assert job.result(LIMIT_S).state == "cancelled"
        assert not job.cancel()


def test_a_client_that_is_closed_in_a_fork_goes_on_in_its_own_process(api: str) -> None:
    with Client(api) as client:
        job = client.submit({"command": "sleep 60"})
        asked = asked_for_events(client)
        with client._running_follower().pause:  # as its thread may hold it at that moment
            child = os.fork()
            if child == 0:
                client.close()
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        job.cancel()
        assert job.result(LIMIT_S).state == "cancelled"
        assert not asked, "its stream was never broken"


def test_a_callback_may_close_its_client(api: str) -> None:
    closed = threading.Event()

    def close(_: object) -> None:
        client.close()
        closed.set()

    for client, future in ((it := Client(api), it.submit({"command": "true"})), (it := Client(api), it.run(halve, 2))):
        future.add_done_callback(close)
        assert closed.wait(LIMIT_S)
        assert client._http.is_closed
        closed.clear()


def test_a_submission_fails_with_the_reason_where_events_cannot_be_followed(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that lets no stream pass."""

    def refused(*_: object) -> Iterator[JobStatus | TaskStatus]:
        raise asking.ApiError("status 502")

    with Client(api) as client:
        monkeypatch.setattr(client, "_events", refused)
        for _ in range(2):
            with pytest.raises(asking.ApiError, match="status 502"):
                client.submit({"command": "true"})
        monkeypatch.undo()
        assert client.submit({"command": "true"}).result(LIMIT_S).state == "done"


def test_a_client_that_awaits_comes_back_to_an_api_that_was_busy() -> None:
    refusal = {"error": {"place": "connections", "problem": "all are at work"}}
    answers = iter([httpx2.Response(200, text=":\n\n"), httpx2.Response(503, json=refusal), httpx2.Response(204)])

    async def scenario() -> None:
        client = AsyncClient("127.0.0.1:1")
        client._http = httpx2.AsyncClient(
            transport=httpx2.MockTransport(lambda _: next(answers)), base_url="http://127.0.0.1:1"
        )
        assert [status async for status in client.events(0)] == []

    asyncio.run(scenario())
    assert next(answers, None) is None


def test_closing_fails_what_is_open_and_does_not_wait_for_it(api: str) -> None:
    with Client(api) as client:
        job = client.submit({"command": "sleep 60"})
    with pytest.raises(InputError, match="closed before"):
        job.result(0)


def test_events_of_one_job_end_with_it(api: str) -> None:
    with Client(api) as client:
        number = client.send({"command": "true", "tasks": 2}).id
        told = list(client.events(number))
        assert isinstance(told[-1], JobStatus)
        assert told[-1].state == "done"
        assert list(client.events(number, after=told[-1].revision)) == []
        again = list(client.events(number, after=told[-1].revision - 1))
        assert again == told[-1:]


def test_followers_come_back_after_a_restart_of_the_api(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = None
    with serving(tmp_path, port) as (url, _):
        client = Client(url)
        job = client.submit({"command": f"test -e {tmp_path}/go || exec sleep 60"})
    (tmp_path / "go").touch()
    with serving(tmp_path, port):
        assert job.result(LIMIT_S).state == "done"
    client.close()


def asked_for_events(client: Client) -> list[str]:
    """The queries with which a client opens streams of events, from now on."""
    asked: list[str] = []
    client._http.event_hooks["request"].append(
        lambda request: asked.append(str(request.url.params)) if request.url.path == "/events" else None
    )
    return asked


def statuses_of(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[JobStatus | TaskStatus]:
    """All that a client is sent, from now on."""
    follower, found = client._running_follower(), list[JobStatus | TaskStatus]()
    taken = follower._take

    def noted(status: JobStatus | TaskStatus) -> Future[JobStatus] | None:
        found.append(status)
        return taken(status)

    monkeypatch.setattr(follower, "_take", noted)
    return found


def test_a_client_that_waits_is_sent_nothing_of_the_jobs_of_others(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(api) as client, Client(api) as other:
        asked = asked_for_events(client)
        statuses = statuses_of(client, monkeypatch)
        slow = client.submit({"command": "sleep 60"})
        assert other.submit({"command": "true", "tasks": 20}).result(LIMIT_S).state == "done"
        assert [future.result(LIMIT_S) for future in other.map(halve, range(4))] == [0, 0.5, 1, 1.5]
        slow.cancel()
        assert slow.result(LIMIT_S).state == "cancelled"
        assert {status.id if isinstance(status, JobStatus) else status.job for status in statuses} == {slow.id}
        assert asked == ["jobs="], "submissions join the stream that is open"


def test_calls_one_after_the_other_go_over_one_stream(api: str) -> None:
    with Client(api) as client:
        asked = asked_for_events(client)
        assert [client.run(halve, number).result(LIMIT_S) for number in range(8)] == [n / 2 for n in range(8)]
        assert client.submit({"command": "true"}).result(LIMIT_S).state == "done"
        assert asked == ["jobs="]


def test_a_submission_that_finds_no_stream_open_has_it_opened_again(api: str) -> None:
    with Client(api) as client:
        asked = asked_for_events(client)
        follower = client._running_follower()
        follower._stream = "lost"
        first, second = client.submit({"command": "true"}), client.run(halve, 3)
        assert first.result(LIMIT_S).state == "done"
        assert second.result(LIMIT_S) == 1.5
        assert asked[0] == "jobs="
        assert asked[1:], "the submissions were followed by a new stream"


def test_a_job_that_was_submitted_before_under_its_key_ends_its_future(api: str) -> None:
    """Its end is no event of the future."""
    job = {"command": "true", "key": "once"}
    with Client(api) as client:
        assert client.submit(job).result(LIMIT_S).state == "done"
        assert client.submit(job).result(LIMIT_S).state == "done"
    with Client(api) as client:
        client._running_follower()._stream = "lost"
        assert client.submit(job).result(LIMIT_S).state == "done"


def test_a_job_that_the_api_has_lost_fails_its_own_future_alone(api: str) -> None:
    with Client(api) as client:
        following = client._running_follower()
        with following.pause:
            lost = JobFuture(client, Receipt(id=700, tasks=1))
            following.jobs[700] = lost
            following.calls[701] = {0: (call := Future[float]())}
            following._stream = "lost"
        job = client.submit({"command": "true"})
        for future in (lost, call):
            with pytest.raises(InputError, match=r"jobs/70\d: there is no such job"):
                future.result(LIMIT_S)
        assert job.result(LIMIT_S).state == "done"


def test_what_is_wrong_is_the_users_to_mend(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(api) as client:
        with pytest.raises(InputError, match=r"job.constraints\[0\]: unknown attribute"):
            client.send({"command": "true", "constraints": ["core > 1"]})
        with pytest.raises(InputError, match="jobs/7: there is no such job"):
            client.job(7)
        with pytest.raises(InputError, match="jobs/7"):
            list(client.events(7))
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("VOLERY_API", f"http://127.0.0.1:{free.getsockname()[1]}")
    with Client() as client, pytest.raises(InputError, match="start one with `volery up`"):
        client.jobs()
    with Client() as client, pytest.raises(InputError, match="start one with `volery up`"):
        list(client.events())
    with pytest.raises(InputError, match="no address of an API"):
        Client("localhost")


def test_an_answer_that_is_not_volerys_is_said_to_be_none(api: str) -> None:
    with Client(api) as client:
        client._http.base_url = f"{api}/openapi.json?"
        with pytest.raises((ApiError, InputError)):
            client.jobs()


def test_the_client_that_awaits(api: str) -> None:
    async def run() -> None:
        async with AsyncClient(api) as client:
            number = (await client.submit({"command": "echo hello", "tasks": 2})).id
            assert (await client.wait(number)).state == "done"
            assert (await client.wait(number)).state == "done"
            assert await client.logs(number, 1) == b"hello\n"
            assert [task.state for task in await client.tasks(number)] == ["finished"] * 2
            assert await client.run(halve, 3) == 1.5
            with pytest.raises(ValueError, match="thirteen"):
                await client.run(halve, 13)
            slow = (await client.submit({"command": "sleep 60"})).id
            await client.cancel(slow)
            assert (await client.wait(slow)).state == "cancelled"
            assert [job.state for job in await client.jobs(limit=1)] == ["cancelled"]
            assert len(await client.nodes()) == 2

    asyncio.run(run())


def leave(error: BaseException | None) -> str:
    if error is not None:
        raise error
    return "well"


def test_a_call_that_exits_fails_its_own_future_alone(api: str) -> None:
    exits = (SystemExit(3), SystemExit(0), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError())
    with Client(api) as client:
        futures = client.map(leave, [None, *exits, None])
        for error, future in zip(exits, futures[1:], strict=False):
            with pytest.raises(CallFailedError, match=f"is failed: {type(error).__name__}") as caught:
                future.result(LIMIT_S)
            assert isinstance(caught.value.__cause__, type(error))
        assert (futures[0].result(LIMIT_S), futures[-1].result(LIMIT_S)) == ("well", "well")
        assert client.run(leave, None).result(LIMIT_S) == "well"

    async def scenario() -> None:
        async with AsyncClient(api) as awaiting:
            for error in exits:
                with pytest.raises(CallFailedError, match=type(error).__name__):
                    await awaiting.run(leave, error)

    asyncio.run(scenario())


class OnNodesAlone:
    """A result that its caller cannot read."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return (exec, ("import os, sys\nif 'volery.live.client' in sys.modules: raise kind", {"kind": self.kind}))


def test_a_result_that_cannot_be_read_fails_its_own_future_alone(api: str) -> None:
    with Client(api) as client:
        for kind in (ImportError, SystemExit, KeyboardInterrupt):
            bad, good = client.run(OnNodesAlone, kind), client.run(halve, 4)
            with pytest.raises((CallFailedError, kind)):
                bad.result(LIMIT_S)
            assert good.result(LIMIT_S) == 2.0
        assert client.run(halve, 4).result(LIMIT_S) == 2.0


def test_a_callback_may_exit_submit_and_resolve_futures_and_the_others_are_resolved(api: str) -> None:
    with Client(api) as client:
        submitted: list[Future[Any]] = []

        def submits(_: Future[Any]) -> None:
            submitted.extend([client.submit({"command": "true"}), client.run(halve, 6)])

        def exits(_: Future[Any]) -> None:
            raise SystemExit(3)

        job, called, odd = client.submit({"command": "true"}), client.run(halve, 2), client.run(halve, 8)
        for callback in (submits, exits):
            for future in (job, called):
                # One that has ended already calls back at once, here.
                with suppress(SystemExit):
                    future.add_done_callback(callback)
        odd.set_result(0.0)  # its holder wants no other
        assert (job.result(LIMIT_S).state, called.result(LIMIT_S)) == ("done", 1.0)
        until(lambda: len(submitted) == 4)
        assert [future.result(LIMIT_S) for future in submitted if not isinstance(future, JobFuture)] == [3.0, 3.0]
        assert client.run(halve, 4).result(LIMIT_S) == 2.0


def test_a_client_whose_stream_has_failed_follows_later_jobs_over_another(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(api) as client:
        lost = client.run(time.sleep, 60)
        follower = client._running_follower()

        def fails(_: JobStatus | TaskStatus) -> Future[JobStatus] | None:
            raise MemoryError

        monkeypatch.setattr(follower, "_take", fails)
        client.cancel(client.jobs()[0].id)
        with pytest.raises(MemoryError):
            lost.result(LIMIT_S)
        assert client.run(halve, 4).result(LIMIT_S) == 2.0
        assert client.submit({"command": "true"}).result(LIMIT_S).state == "done"


def test_open_futures_fail_in_a_process_that_was_forked_and_go_on_in_their_own(api: str) -> None:
    with Client(api) as client:
        blocked = client.submit({"command": "sleep 60"})
        called = client.run(time.sleep, 60)
        ended = client.run(pow, 2, 5)
        assert ended.result(LIMIT_S) == 32
        heard = list[int]()
        for future in (blocked, called):
            future.add_done_callback(lambda _: heard.append(os.getpid()))
        if not (copy := os.fork()):
            done, _ = wait((blocked, called, ended), LIMIT_S)
            errors = [future.exception(0) for future in (blocked, called)]
            is_well = len(done) == 3 and all(isinstance(error, InputError) for error in errors) and not heard
            os._exit(0 if is_well and ended.result(0) == 32 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 0
        assert not blocked.done()
        assert not called.done()
        for job in client.jobs():
            client.cancel(job.id)
        assert blocked.result(LIMIT_S).state == "cancelled"
        with pytest.raises(CallFailedError):
            called.result(LIMIT_S)
    assert heard == [os.getpid()] * 2


def test_a_client_works_on_in_a_process_that_was_forked(api: str) -> None:
    with Client(api) as client:
        assert client.run(halve, 2).result(LIMIT_S) == 1.0
        copies = []
        for _ in range(3):
            if not (copy := os.fork()):
                right = False
                with suppress(BaseException):
                    right = [client.run(halve, n).result(LIMIT_S) for n in range(4)] == [0.0, 0.5, 1.0, 1.5]
                os._exit(0 if right else 1)
            copies.append(copy)
        assert [client.run(halve, n).result(LIMIT_S) for n in range(8)] == [n / 2 for n in range(8)]
        assert [os.waitpid(copy, 0)[1] for copy in copies] == [0, 0, 0]


def test_the_result_of_a_call_comes_also_where_the_api_was_away_as_it_was_fetched(api: str) -> None:
    with Client(api) as client:
        assert client.run(halve, 2).result(LIMIT_S) == 1.0
        away = iter([True, True, False])

        def answers(request: Any) -> None:
            if request.url.path.endswith("/results") and next(away, False):
                raise httpx2.ConnectError("nobody is there")

        client._http.event_hooks["request"].append(answers)
        assert client.run(halve, 4).result(LIMIT_S) == 2.0
        assert next(away, None) is None
