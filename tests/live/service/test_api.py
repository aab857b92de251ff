"""The API over HTTP, as any client sees it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.live.bench import LIMIT_S
from tests.live.loopback import loopback
from tests.live.serving import serving

from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.node.output import bound
from volery.live.service.api import ApiServer


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx2.Client]:
    with serving(tmp_path) as (url, _), httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as client:
        yield client


def submit(http: httpx2.Client, **job: object) -> int:
    response = http.post("/jobs", json=job)
    assert response.status_code == 201, response.text
    return int(response.json()["id"])


def events(http: httpx2.Client, query: str, last: int | None = None) -> list[tuple[int, str, Any]]:
    """All events of a stream that ends: id, type and content."""
    headers = {} if last is None else {"last-event-id": str(last)}
    response = http.get(f"/events?{query}", headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in response.text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return found


def test_a_job_from_submission_to_its_output(http: httpx2.Client) -> None:
    number = submit(http, name="hello", command="echo out $VOLERY_INDEX; echo err >&2", tasks=2)
    told = events(http, f"job={number}")
    assert [event[0] for event in told] == sorted({event[0] for event in told})
    assert told[-1][1] == "job"
    assert (told[-1][2]["state"], told[-1][2]["finished"]) == ("done", 2)
    assert http.get(f"/jobs/{number}").json() == told[-1][2]
    assert [task["state"] for task in http.get(f"/jobs/{number}/tasks").json()] == ["finished"] * 2
    task = http.get(f"/jobs/{number}/tasks/1").json()
    assert (task["exit_code"], task["node"]) == (0, "node/0")
    logs = http.get(f"/jobs/{number}/tasks/1/logs")
    assert (logs.content, logs.headers["volery-task-state"]) == (b"out 1\n", "finished")
    assert http.get(f"/jobs/{number}/tasks/1/logs?stream=stderr").content == b"err\n"
    assert http.get(f"/jobs/{number}/tasks/1/logs?offset=4").content == b"1\n"
    assert http.get(f"/jobs/{number}/tasks/1/logs?offset=99").content == b""
    assert [job["name"] for job in http.get("/jobs").json()] == ["hello"]
    assert http.get("/jobs?state=running").json() == []


def test_a_row_that_was_damaged_under_the_api_is_an_error_with_its_place_and_hides_no_other_job(
    http: httpx2.Client, tmp_path: Path
) -> None:
    whole, number = submit(http, command="true"), submit(http, command="true", name="damaged")
    events(http, f"job={number}")
    events(http, f"job={whole}")
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite", timeout=LIMIT_S, isolation_level=None)) as sql:
        sql.execute("UPDATE jobs SET finished = 7 WHERE id = ?", (number,))
    for path in (f"/jobs/{number}", f"/jobs/{number}/tasks"):
        answer = http.get(path)
        assert answer.status_code == 500
        problem = answer.json()["error"]["problem"]
        assert f"the row of table jobs with id {number} is damaged; `volery check` lists what is damaged" in problem
    assert http.get(f"/events?jobs={whole},{number}").json()["error"]["place"] == f"jobs/{number}"
    listed = {job["id"]: job["state"] for job in http.get("/jobs").json()}
    assert listed == {whole: "done", number: "damaged"}
    assert {job["id"] for _, kind, job in events(http, f"job={whole}&after=0") if kind == "job"} == {whole}
    page = http.get("/", headers={"accept": "text/html"})
    assert page.status_code == 200
    assert http.get(f"/jobs/{whole}").json()["finished"] == 1


def test_output_is_served_by_ranges_and_without_what_was_dropped(http: httpx2.Client, tmp_path: Path) -> None:
    number = submit(http, command="seq -w 400000")
    events(http, f"job={number}")
    path, size = f"/jobs/{number}/tasks/0/logs", 7 * 400_000
    answer = http.get(path, headers={"range": "bytes=7-20"})
    assert (answer.status_code, answer.content) == (206, b"000002\n000003\n")
    assert answer.headers["content-range"] == f"bytes 7-20/{size}"
    assert http.get(path, headers={"range": "bytes=-7"}).content == b"400000\n"
    assert http.get(path, headers={"range": "lines=1"}).headers["volery-log-offset"] == "0"
    beyond = http.get(path, headers={"range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    assert bound(str(tmp_path / "tasks" / str(number) / f"{number}.0" / "stdout"), os.geteuid(), 1 << 20)
    rest = http.get(path)
    start = int(rest.headers["volery-log-offset"])
    assert start + len(rest.content) == size
    assert rest.content.startswith(b"[volery: the first ")
    cut = http.get(path, headers={"range": "bytes=0-"})
    assert cut.headers["content-range"] == f"bytes {start}-{size - 1}/{size}"
    with Client(str(http.base_url)) as client:
        assert client.logs(number) == rest.content
        assert client.log_piece(number, offset=start + 5).end == size


def test_several_jobs_in_one_request(http: httpx2.Client) -> None:
    one = {"command": "true", "key": "k"}
    response = http.post("/jobs/many", json=[one, {"command": "true", "tasks": 3}])
    assert (response.status_code, [receipt["tasks"] for receipt in response.json()]) == (201, [1, 3])
    again = http.post("/jobs/many", json=[one])
    assert (again.status_code, again.json()[0]["known"]) == (200, True)
    for wrong, place in (
        ([], "jobs"),
        ({}, "jobs"),
        ([one] * 1001, "jobs"),
        ([one, {"command": 3}], "jobs[1].command"),
        ([one, {}], "jobs[1].command"),
        ([{"command": "true", "tasks": 600_000}] * 2, "jobs"),
    ):
        refused = http.post("/jobs/many", json=wrong)
        assert (refused.status_code, refused.json()["error"]["place"]) == (422, place), refused.text
    conflict = http.post("/jobs/many", json=[{"command": "true"}, one | {"command": "false"}])
    assert (conflict.status_code, conflict.json()["error"]["place"]) == (409, "jobs[1].key")
    assert len(http.get("/jobs").json()) == 2


def test_output_that_is_not_on_this_host_is_said_to_be_elsewhere(http: httpx2.Client, tmp_path: Path) -> None:
    number = submit(http, command="true")
    events(http, f"job={number}")
    shutil.rmtree(tmp_path / "tasks")
    response = http.get(f"/jobs/{number}/tasks/0/logs")
    assert response.status_code == 404
    assert "neither here nor on the host of node/0" in response.json()["error"]["problem"]


def test_events_are_resumed_where_they_stopped(http: httpx2.Client) -> None:
    number = submit(http, command="true", tasks=3)
    told = events(http, f"job={number}")
    last_state = {(kind, content.get("index")): number for number, kind, content in told}
    for seen in (0, told[0][0], told[-2][0]):
        left = [event for event in told if event[0] in last_state.values() and event[0] > seen]
        assert events(http, f"job={number}", last=seen) == left
        assert events(http, f"job={number}&after={seen}") == left
    assert http.get(f"/events?job={number}", headers={"last-event-id": str(told[-1][0])}).status_code == 204


def test_a_running_job_is_cancelled(http: httpx2.Client) -> None:
    number = submit(http, command="sleep 60")
    response = http.post(f"/jobs/{number}/cancel", json={})
    assert (response.status_code, response.json()["reason"]) == (202, "cancelled on request")
    assert events(http, f"job={number}")[-1][2]["state"] == "cancelled"


@pytest.mark.parametrize(
    ("job", "place", "problem"),
    [
        ({"comand": "true"}, "job.comand", "did you mean 'command'?"),
        ({"command": "true", "constraints": ["core > 1"]}, "job.constraints[0]", "did you mean 'cores'?"),
        ({"command": "true", "cwd": "here"}, "job.cwd", "not an absolute path"),
        ([], "job", "expected object, got array"),
    ],
)
def test_a_wrong_job_is_refused_with_place_and_fix(http: httpx2.Client, job: object, place: str, problem: str) -> None:
    response = http.post("/jobs", json=job)
    assert response.status_code == 422
    assert response.json()["error"]["place"] == place
    assert problem in response.json()["error"]["problem"]


@pytest.mark.parametrize(
    ("path", "status", "place"),
    [
        ("/jobs/7", 404, "jobs/7"),
        (f"/jobs/{1 << 70}", 404, f"/jobs/{1 << 70}"),
        ("/jobs/7/tasks", 404, "jobs/7"),
        ("/jobs/0/tasks/1", 404, "jobs/0/tasks/1"),
        ("/jobs/0/tasks/1/logs", 404, "jobs/0/tasks/1"),
        ("/jobs/0/tasks/0/logs?stream=x", 422, "query.stream"),
        ("/jobs?limit=many", 422, "query.limit"),
        ("/jobs?limit=10001", 422, "query.limit"),
        ("/events?job=7", 404, "jobs/7"),
        ("/nothing", 404, "/nothing"),
    ],
)
def test_what_is_not_there_is_named(http: httpx2.Client, path: str, status: int, place: str) -> None:
    submit(http, command="true")
    response = http.get(path)
    assert (response.status_code, response.json()["error"]["place"]) == (status, place)


def test_pages_of_other_sites_cannot_give_orders(http: httpx2.Client) -> None:
    assert http.post("/jobs", content=b'{"command": "true"}').status_code == 415
    assert http.post("/jobs", content=b"{", headers={"content-type": "application/json"}).status_code == 422
    assert http.get("/jobs", headers={"host": "elsewhere.example"}).status_code == 400
    assert http.get("/jobs").json() == []


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
def test_without_tokens_too_an_order_that_another_site_has_caused_is_refused(
    http: httpx2.Client, headers: dict[str, str]
) -> None:
    refused = http.post("/jobs", json={"command": "true"}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["place"]) == (403, "origin")
    assert http.get("/jobs").json() == []
    own = {"origin": str(http.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert http.post("/jobs", json={"command": "true"}, headers=own).status_code == 201


def test_nodes_and_health_are_told(http: httpx2.Client) -> None:
    first, second = http.get("/nodes").json()
    assert (first["address"], first["cores"], first["labels"], first["running"]) == ("node/0", 4, {"zone": "a"}, 0)
    assert second["address"] == "node/1"
    assert http.get("/healthz").json()["status"] == "ok"


def test_the_description_covers_every_operation_and_its_schemas_resolve(http: httpx2.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert {"get", "post"} == set(document["paths"]["/jobs"])
    assert "/jobs/{id}/tasks/{index}/logs" in document["paths"]
    schemas = document["components"]["schemas"]
    assert {"JobDescription", "JobStatus", "TaskStatus", "NodeStatus", "Receipt", "ErrorResponse"} <= set(schemas)
    text = json.dumps(document)
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in schemas
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert operation["operationId"]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        async with loopback(tmp_path) as it:
            with socket.create_server(("127.0.0.1", 0)) as other:
                port = other.getsockname()[1]
                with pytest.raises(InputError, match=f"127.0.0.1:{port}: the API cannot listen there"):
                    ApiServer(it.service, tmp_path, port=port)

    asyncio.run(run())


def test_a_key_that_means_another_job_is_a_conflict(http: httpx2.Client) -> None:
    first = submit(http, command="true", key="k")
    again = http.post("/jobs", json={"command": "true", "key": "k"}).json()
    assert (again["id"], again["known"]) == (first, True)
    refused = http.post("/jobs", json={"command": "false", "key": "k"})
    assert (refused.status_code, refused.json()["error"]["place"]) == (409, "job.key")
