"""Both clients ask the same; answers are read, refusals are raised, and a stream is resumed where it stopped."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from volery.core.errors import InputError
from volery.live import api_calls
from volery.live.api_calls import (
    ApiError,
    BusyError,
    CallFailedError,
    Credentials,
    EventReader,
    api_address,
    check,
    named_jobs,
    value_of,
)
from volery.live.client import AsyncClient, Client
from volery.live.command import API_VARIABLE, TOKEN_VARIABLE
from volery.live.jobs import JobDescription
from volery.live.status import ErrorDetail, ErrorResponse, JobStatus, TaskStatus

REFUSAL = msgspec.json.encode(ErrorResponse(ErrorDetail("jobs/7", "there is no such job")))
JOB = {"command": "true", "user": "ada"}

Asked = list[tuple[str, str, bytes]]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # and no file of whoever runs the test
    for name in (API_VARIABLE, TOKEN_VARIABLE, api_calls.CA_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def refusing(asked: Asked) -> httpx2.MockTransport:
    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, str(request.url), request.content))
        return httpx2.Response(404, content=REFUSAL)

    return httpx2.MockTransport(answer)


CALLS: list[Callable[[Any], Any]] = [
    lambda client: client.job(7),
    lambda client: client.jobs("done", "ada", 9, 5),
    lambda client: client.task(7, 3),
    lambda client: client.logs(7, 3, "stderr", 10),
    lambda client: client.value(TaskStatus(job=7, index=3)),
    lambda client: client.cancel(7),
    lambda client: client.forecast(JOB),
    lambda client: client.forecast_of(7),
    lambda client: client.forecasts(),
    lambda client: client.nodes("lost", "h1", "lm/0", "ssd"),
    lambda client: client.hosts(),
    lambda client: client.shares(),
    lambda client: client.share("a/b", 3),
    lambda client: client.share("a/b"),
    lambda client: client.preemptions("ada", 7, 9, 5),
]


@pytest.mark.parametrize("call", CALLS)
def test_both_clients_ask_the_same_and_raise_the_refusal(call: Callable[[Any], Any]) -> None:
    by_one, by_other = Asked(), Asked()
    with Client() as client:
        client._http = httpx2.Client(transport=refusing(by_one), base_url=client.api)
        with pytest.raises(InputError, match="there is no such job"):
            call(client)

    async def ask() -> None:
        async with AsyncClient() as client:
            client._http = httpx2.AsyncClient(transport=refusing(by_other), base_url=client.api)
            with pytest.raises(InputError, match="there is no such job"):
                await call(client)

    asyncio.run(ask())
    assert by_one == by_other
    assert len(by_one) == 1


def test_a_job_is_sent_with_its_user_unless_a_token_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_calls, "user_name", lambda: "olga")
    assert api_calls.description_of({"command": "true"}).user == "olga"
    assert api_calls.description_of({"command": "true"}, named=True).user == ""
    assert api_calls.description_of(JOB).user == "ada"


def test_what_is_not_volery_is_no_refusal() -> None:
    check(httpx2.Response(200))
    with pytest.raises(ApiError, match="502: Bad Gateway"):
        check(httpx2.Response(502, text="Bad Gateway", request=httpx2.Request("GET", "http://proxy/jobs")))
    with pytest.raises(ApiError, match="not Volery's"):
        api_calls.job(7).answer(httpx2.Response(200, text="{}", request=httpx2.Request("GET", "http://other/jobs/7")))


def test_an_address_is_given_by_hand_by_the_environment_or_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert api_address(None) == "http://127.0.0.1:8642"
    monkeypatch.setenv(API_VARIABLE, "https://there:1/")
    assert api_address(None) == "https://there:1"
    assert api_address("http://here:2") == "http://here:2"
    with pytest.raises(InputError, match="no address of an API"):
        api_address("there")


@pytest.mark.parametrize(
    ("api", "token", "problem"),
    [
        ("http://there:1", "volery_a_b", "travel readable"),
        ("https://there:1", "volery_\N{LATIN SMALL LETTER E WITH ACUTE}", "is no token"),
        ("https://there:1", "volery\n", "is no token"),
    ],
)
def test_a_token_that_could_be_read_or_is_none_is_not_sent(api: str, token: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Credentials(api, token)


def test_a_token_goes_over_tls_and_to_this_machine() -> None:
    for api in ("https://there:1", "http://127.0.0.1:1", "http://[::1]:1"):
        found = Credentials(api, "volery_a_b")
        assert found.named
        assert found.options["headers"] == {"authorization": "Bearer volery_a_b"}
    assert not Credentials("http://there:1", "").named


def test_the_value_of_a_call_is_what_it_returned_or_raised() -> None:
    ended = TaskStatus(job=1, index=2, state="finished", node="node/3")
    assert value_of(ended, pickle.dumps({"a": 1})) == {"a": 1}
    assert value_of(ended, b"") is None
    failed = msgspec.structs.replace(ended, state="failed", reason="exit code 1")
    with pytest.raises(KeyError, match="who") as raised:
        value_of(failed, pickle.dumps(KeyError("who")))
    assert "volery logs 1/2 --stderr" in raised.value.__notes__[0]
    for pickled in (b"", pickle.dumps("no exception")):
        with pytest.raises(CallFailedError, match="task 2 is failed: exit code 1"):
            value_of(failed, pickled)


def test_events_are_read_line_by_line_and_resumed_after_the_last_whole_one() -> None:
    reader = EventReader()
    assert reader.headers() == {}
    job = JobStatus(id=7, name="", user="", state="done", tasks=1, submitted_us=1, revision=12)
    lines = ["id: 12", "event: job", f"data: {msgspec.json.encode(job).decode()}"]
    assert [reader.feed(line) for line in (": volery", "", *lines)] == [None] * 5
    assert reader.headers() == {}, "it is not whole yet"
    assert reader.feed("") == job
    task = TaskStatus(job=7, index=0, revision=13)
    for line in ("id: 13", "event: task", f"data: {msgspec.json.encode(task).decode()}"):
        reader.feed(line)
    assert reader.feed("") == task
    assert reader.headers() == {"last-event-id": "13"}


def test_a_node_that_is_none_is_not_asked_for() -> None:
    with pytest.raises(InputError, match="looks like node/3"):
        api_calls.drain("../jobs/7/cancel")
    assert api_calls.undrain("node/3").request["url"] == "/nodes/node/3/undrain"


def test_bytes_of_another_encoding_do_not_leave_the_client_as_a_traceback() -> None:
    """As `os.environ` and the command line hold them."""
    byte = b"\xff".decode(errors="surrogateescape")
    described = JobDescription(command="true", env={"A": byte})
    for call, place in (
        (lambda: api_calls.submit({"command": "true", "env": {"A": byte}}), "job.env.A"),
        (lambda: api_calls.submit(described), "job.env.A"),
        (lambda: api_calls.submit_many([described]), r"job[0].env.A"),
        (lambda: api_calls.jobs(None, byte, None, 5), "query.user"),
        (lambda: api_calls.share(byte), "name"),
    ):
        with pytest.raises(InputError) as refused:
            call()
        assert refused.value.place == place


@pytest.mark.parametrize("address", ["127.0.0.1:7077", "localhost:80", "[::1]:7077", "node-1.example.org:7077"])
def test_an_address_is_taken_as_the_option_of_up_takes_it(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api_address(address) == api_address(f"http://{address}/") == f"http://{address}"
    monkeypatch.setenv("VOLERY_API", address)
    assert api_address(None) == Credentials(None, "").api == f"http://{address}"


@pytest.mark.parametrize("address", ["localhost", "ftp://a:1", "http://", "http://[::1", ":7077", "a:b", "h:1/x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="is no address of an API; write it as http://127"):
        api_address(address)


def test_numbers_of_jobs_are_named_as_ranges() -> None:
    assert named_jobs([]) == ""
    assert named_jobs([9, 3, 7, 8, 20]) == "3,7-9,20"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx2.ConnectError("[Errno 111] Connection refused"), "no federation answers there"),
        (httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] .."), "is not trusted"),
        (httpx2.ReadTimeout(""), "has not answered in time (ReadTimeout); it is busy"),
        (httpx2.RemoteProtocolError("Server disconnected"), "closed the connection without an answer"),
        (BusyError("connections", "500 are open"), "500 are open"),
    ],
)
def test_an_api_that_gives_no_answer_is_refused_busy_or_not_there(error: Exception, words: str) -> None:
    assert isinstance(error, httpx2.TransportError | BusyError)
    assert words in api_calls.unreachable("http://127.0.0.1:7077", error).problem
