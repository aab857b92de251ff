"""Forecasts of a live federation: what they say, what then comes, and who hears what of whom."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx2
import pytest
from tests.live.serving import at_work, sleeping_at_work

from volery.cli.forecast import answer
from volery.cli.main import main
from volery.core.errors import InputError
from volery.core.model import SECOND, Task
from volery.live.client import Client
from volery.live.service import forecaster as foretelling
from volery.live.service.authentication import TokenFile
from volery.live.service.forecast_inputs import ForecastReply, ForecastRequest

SLOTS = 6
SHARED = {"gms": 2, "lms": 2, "heartbeat_s": 0.1, "shares": "ada:1+bob:1"}
MOMENTS = ("first_start", "first_end", "last_start", "last_end")


class Users(NamedTuple):
    """Clients of one federation."""

    ada: Client
    bob: Client
    olga: Client
    url: str


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    """Of a federation that two of them share, whose tasks take as long as they estimate."""
    folder = tmp_path_factory.mktemp("federation")
    tokens = TokenFile(folder)
    told = [tokens.add("ada", "user")[0], tokens.add("bob", "user")[0], tokens.add("olga", "admin")[0]]
    with at_work(folder, machines=[{"count": SLOTS}], parameters=SHARED, executor="sleep") as url:
        ada, bob, olga = (Client(url, token) for token in told)
        with ada, bob, olga:
            yield Users(ada, bob, olga, url)


async def in_a_thread(question: ForecastRequest) -> ForecastReply:
    return await asyncio.to_thread(answer, question)


def sleeping(seconds: float, tasks: int, **keys: Any) -> dict[str, Any]:
    return {"command": "true", "estimate_s": seconds, "tasks": tasks} | keys


def until(client: Client, number: int, *, running: int | None = None) -> None:
    """Until the job has ended, or so many of its tasks run."""
    for change in client.events(number, after=0):
        if running is not None and getattr(change, "running", 0) == running:
            return


def test_an_idle_federation_starts_it_now(users: Users) -> None:
    told = users.ada.forecast(sleeping(0.2, SLOTS))
    assert told.problem == ""
    assert told.runs > 1
    assert told.moments is not None
    assert told.moments.last_start.high_us is not None
    assert told.moments.last_start.high_us < 0.2 * SECOND
    assert told.known.estimate == SLOTS
    assert not told.preempts
    assert not users.ada.jobs(), "nothing is submitted"


def test_a_full_federation_starts_it_when_it_says_and_the_record_tells(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All slots are taken for 2.5 s; what then comes lies within what was foretold, and is counted."""
    monkeypatch.setattr(foretelling, "ask_lab", in_a_thread)  # which takes less time than a process of its own
    first = users.ada.send(sleeping(2.5, SLOTS))
    until(users.ada, first.id, running=SLOTS)
    planned = sleeping(0.3, SLOTS)
    told = users.ada.forecast(planned)
    assert told.moments is not None
    median_us = told.moments.first_start.median_us
    assert median_us is not None
    assert median_us > 0.1 * SECOND, "it has to wait"
    job = users.ada.send(planned).id
    until(users.ada, job)
    record = users.ada.forecasts()
    assert [found.job for found in record.last] == [job]
    assert [(one.moment, one.settled, one.covered) for one in record.moments] == [(name, 1, 1) for name in MOMENTS]
    assert all(one.off_us is not None and one.off_us < SECOND for one in record.moments)
    assert users.bob.forecasts().last == (), "it is none of his business"
    assert [found.job for found in users.olga.forecasts().last] == [job]
    text = httpx2.get(users.url + "/metrics", headers=dict(users.olga._http.headers)).text
    assert 'volery_forecasts_covered{moment="first_start"} 1\n' in text
    assert 'volery_forecast_off_seconds{moment="last_end"}' in text


def test_who_would_be_preempted_is_named_to_those_who_may_know(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foretelling, "ask_lab", in_a_thread)
    taken = users.ada.send(sleeping(60, SLOTS, name="secret"))
    until(users.ada, taken.id, running=SLOTS)
    planned = sleeping(0.2, 2)
    (seen,) = users.bob.forecast(planned).preempts
    assert (seen.job, seen.user, seen.tasks) == (None, "", 2)
    (named,) = users.olga.forecast(planned | {"user": "bob"}).preempts
    assert (named.job, named.user, named.tasks) == (taken.id, "ada", 2)
    users.ada.cancel(taken.id)


def test_a_job_under_way_has_a_forecast_that_serves_all_who_ask_soon(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ForecastRequest] = []

    async def counted(question: ForecastRequest) -> ForecastReply:
        asked.append(question)
        return await in_a_thread(question)

    monkeypatch.setattr(foretelling, "ask_lab", counted)
    before, number = users.bob.forecasts().open, users.bob.send(sleeping(60, SLOTS + 2)).id
    until(users.bob, number, running=SLOTS)
    told = users.bob.forecast_of(number)
    assert told.moments is not None
    assert told.moments.last_end.median_us is not None
    assert 100 * SECOND < told.moments.last_end.median_us < 125 * SECOND, "two rounds of a minute"
    assert users.olga.forecast_of(number).moments == told.moments
    assert len(asked) == 1
    with pytest.raises(InputError, match="no such job"):
        users.ada.forecast_of(number)
    users.bob.cancel(number)
    until(users.bob, number)
    assert users.bob.forecast_of(number).problem == "the job has ended"
    assert users.bob.forecasts().open <= before, "forecasts of jobs under way do not count"


def test_what_could_never_run_has_no_forecast(users: Users) -> None:
    told = users.ada.forecast(sleeping(1, 1, constraints=["cores >= 100000"]))
    assert told.moments is None
    assert "could ever run" in told.problem


def test_a_plan_while_all_nodes_that_fit_are_drained_says_so(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of others that wait for drained nodes leave the forecasts of jobs that fit elsewhere as they are."""
    monkeypatch.setattr(foretelling, "ask_lab", in_a_thread)
    nodes = [f"node/{place}" for place in range(SLOTS)]
    for node in nodes:
        users.olga.drain(node)
    waits = users.bob.send(sleeping(1, 2))
    try:
        told = users.ada.forecast(sleeping(1, 3))
        assert told.moments is None
        assert told.problem == (
            "3 of its tasks fit no node that is in use: 6 nodes are drained or lost, "
            "and these tasks wait until one of them is used again"
        )
        assert "2 of its tasks fit no node" in users.bob.forecast_of(waits.id).problem
    finally:
        for node in nodes:
            users.olga.undrain(node)
    until(users.bob, waits.id)


def test_the_command_line_tells_it(
    users: Users, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foretelling, "ask_lab", in_a_thread)
    monkeypatch.setenv("VOLERY_TOKEN", users.ada._http.headers["authorization"].removeprefix("Bearer "))
    file = tmp_path / "job.toml"
    file.write_text('command = "true"\nestimate_s = 2\n')

    def said(*words: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["plan", *words, "--api", users.url])
        assert ended.value.code == status
        return capsys.readouterr().out

    told = said(str(file))
    assert "last task ends" in told
    assert "durations of tasks are known: 1 from estimates" in told
    assert "not known" not in told
    assert json.loads(said(str(file), "--quick", "--json"))["forecast"] is None
    assert "meant to hold 80.0 %" in said("--record")
    said("--record", str(file), status=2)


def test_a_lab_that_fails_or_takes_too_long_is_no_failure_of_the_api(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foretelling, "COMMAND", ("false",))
    assert "has failed" in users.ada.forecast(sleeping(1, 1)).problem
    monkeypatch.setattr(foretelling, "COMMAND", ("sleep", "60"))
    monkeypatch.setattr(foretelling, "LIMIT_S", 0.05)
    assert "not come to an end" in users.ada.forecast(sleeping(1, 1)).problem


@pytest.mark.slow
def test_intervals_hold_what_comes_about_as_often_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty jobs whose tasks take what nobody knows, on a busy federation; a minute and a half."""

    monkeypatch.setattr(foretelling, "ask_lab", in_a_thread)

    def duration_us(task: Task) -> int:
        job, own = Random(f"job {task.job}"), Random(f"task {task.id}")
        return round(math.exp(job.gauss(0, 0.4) + own.gauss(0, 0.4)) * SECOND)

    planned = {"command": "true", "name": "unsteady", "tasks": 8}
    given: dict[str, Any] = {"machines": [{"count": 12}], "parameters": SHARED, "executor": "sleep"}
    with sleeping_at_work(tmp_path, duration_us, **given) as url, Client(url) as client:
        for _ in range(6):
            client.send(planned)
        until(client, 5)
        last = 0
        for _ in range(30):
            while client.jobs("pending"):
                time.sleep(0.2)
            client.send(planned | {"tasks": 12})
            assert client.forecast(planned).runs
            last = client.send(planned).id
        until(client, last)
        record = client.forecasts()
    told = {one.moment: (one.settled, one.covered) for one in record.moments}
    for settled, covered in told.values():
        assert settled >= 25
        assert covered >= 0.6 * settled
    assert told["last_end"][1] < told["last_end"][0] or told["first_end"][1] < told["first_end"][0]
