"""Two users over HTTP: what is one's does not exist for the other, whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from tests.live.bench import LIMIT_S
from tests.live.loopback import Loopback
from tests.live.serving import serving

from volery.core.errors import InputError
from volery.live.api_calls import Credentials
from volery.live.client import Client
from volery.live.service.api import ApiServer
from volery.live.service.authentication import Authenticator, TokenFile


class Door(NamedTuple):
    """The API, and clients of it."""

    url: str
    tokens: TokenFile
    behind: Loopback
    ada: httpx2.Client
    bob: httpx2.Client
    operator: httpx2.Client
    admin: httpx2.Client
    nobody: httpx2.Client


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    tokens = TokenFile(tmp_path)
    with serving(tmp_path, tokens=tokens) as (url, behind):

        def client(token: str) -> httpx2.Client:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            return httpx2.Client(base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False)

        roles = (("ada", "user"), ("bob", "user"), ("olga", "operator"), ("root", "admin"))
        clients = [client(tokens.add(user, role)[0]) for user, role in roles]  # type: ignore[arg-type] # they are roles
        clients.append(client(""))
        yield Door(url, tokens, behind, *clients)
        for one in clients:
            one.close()


def submit(http: httpx2.Client, **job: object) -> int:
    response = http.post("/jobs", json=job)
    assert response.status_code == 201, response.text
    return int(response.json()["id"])


def wait(http: httpx2.Client, number: int) -> None:
    assert http.get(f"/events?job={number}").is_success


def test_who_has_no_token_gets_nothing_but_the_description(door: Door) -> None:
    for path in ("/jobs", "/jobs/0", "/jobs/0/tasks/0/logs", "/nodes", "/users", "/metrics", "/events"):
        answer = door.nobody.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/jobs", "/jobs/0/cancel", "/nodes/node/0/drain"):
        assert door.nobody.post(path, json={"command": "true"}).status_code == 401
    assert door.nobody.get("/healthz").is_success
    described = door.nobody.get("/openapi.json").json()
    assert described["paths"]["/nodes/{role}/{node}/drain"]["post"]["description"] == "Takes the role operator."
    assert door.behind.submitted == []


def test_a_job_of_one_user_does_not_exist_for_another(door: Door) -> None:
    mine_is = {"command": "echo mine; sleep 30", "key": "k", "name": "secret"}
    number = submit(door.ada, **mine_is)
    for path in ("", "/tasks", "/tasks/0", "/tasks/0/logs", "/tasks/0/result", "/results?tasks=0"):
        mine, theirs = door.ada.get(f"/jobs/{number}{path}"), door.bob.get(f"/jobs/{number}{path}")
        missing = door.bob.get(f"/jobs/{number + 7}{path}")
        assert mine.is_success
        assert (theirs.status_code, theirs.text) == (404, missing.text.replace(str(number + 7), str(number)))
    assert door.bob.post(f"/jobs/{number}/cancel", json={}).status_code == 404
    assert door.bob.get(f"/events?job={number}").status_code == 404
    assert door.bob.get("/jobs").json() == door.bob.get("/jobs?user=ada").json() == []
    assert [job["name"] for job in door.ada.get("/jobs").json()] == ["secret"]
    assert submit(door.bob, command="true", key="k") != number, "a key of one user is nothing to another"
    assert door.ada.post("/jobs", json=mine_is).json()["id"] == number
    assert door.ada.post("/jobs", json={**mine_is, "name": "other"}).status_code == 409
    assert door.ada.post(f"/jobs/{number}/cancel", json={}).status_code == 202


def test_a_definition_holds_secrets_and_is_for_its_user(door: Door) -> None:
    number = submit(door.ada, command="true", env={"KEY": "secret"}, tasks=[{"count": 2, "index": 5}])
    definition = {"command": "true", "env": {"KEY": "secret"}, "tasks": [{"count": 2, "index": 5}], "user": "ada"}
    assert door.ada.get(f"/jobs/{number}/definition").json() == definition
    assert door.admin.get(f"/jobs/{number}/definition").json() == definition
    assert door.operator.get(f"/jobs/{number}/definition").status_code == 403
    assert door.bob.get(f"/jobs/{number}/definition").status_code == 404


def test_own_jobs_are_those_of_the_token(door: Door) -> None:
    of_olga, of_ada = submit(door.operator, command="true"), submit(door.ada, command="true")
    numbers = {
        path: [job["id"] for job in client.get(path).json()]
        for client, path in (
            (door.operator, "/jobs"),
            (door.operator, "/jobs?mine="),
            (door.operator, "/jobs?mine=&user=ada"),
            (door.ada, "/jobs?mine=olga"),
        )
    }
    assert list(numbers.values()) == [[of_ada, of_olga], [of_olga], [], [of_ada]]


def test_events_tell_each_user_of_their_own_jobs_alone(door: Door) -> None:
    for client in (door.ada, door.bob, door.ada):
        wait(client, submit(client, command="true", name="of " + ("ada" if client is door.ada else "bob")))
    seen: dict[str, list[str]] = {}
    for name, client, most in (("ada", door.ada, 2), ("bob", door.bob, 1), ("olga", door.operator, 3)):
        seen[name] = []
        with client.stream("GET", "/events?after=0") as stream:
            for line in stream.iter_lines():
                if '"name":"of ' in line and '"state":"done"' in line:
                    seen[name].append(line.split('"user":"')[1].split('"')[0])
                if len(seen[name]) == most:
                    break
    assert seen == {"ada": ["ada", "ada"], "bob": ["bob"], "olga": ["ada", "bob", "ada"]}


def test_results_are_asked_for_by_places_that_the_job_has(door: Door) -> None:
    number = submit(door.ada, command="true", tasks=3)
    assert door.ada.get(f"/jobs/{number}/results?tasks=2,0").json() == ["", ""]
    for wrong in ("", "?tasks=", "?tasks=x", "?tasks=-1", "?tasks=3", "?tasks=" + ",".join("0" * 201)):
        refused = door.ada.get(f"/jobs/{number}/results{wrong}")
        assert (refused.status_code, refused.json()["error"]["place"]) == (422, "tasks")


def test_the_token_says_whose_a_job_is(door: Door) -> None:
    refused = door.ada.post("/jobs", json={"command": "true", "user": "bob"})
    assert (refused.status_code, refused.json()["error"]["place"]) == (403, "job.user")
    assert door.operator.post("/jobs", json={"command": "true", "user": "bob"}).status_code == 403
    number = submit(door.admin, command="true", user="bob")
    assert door.bob.get(f"/jobs/{number}").json()["user"] == "bob"
    assert door.ada.get(f"/jobs/{submit(door.ada, command='true')}").json()["user"] == "ada"


def test_operators_see_and_cancel_but_do_not_unpickle(door: Door) -> None:
    number = submit(door.ada, command="sleep 30")
    assert door.operator.get(f"/jobs/{number}").is_success
    assert [job["id"] for job in door.operator.get("/jobs?user=ada").json()] == [number]
    assert door.operator.get(f"/jobs/{number}/tasks/0/result").status_code == 403
    assert door.operator.get(f"/jobs/{number}/results?tasks=0").status_code == 403
    assert door.operator.post(f"/jobs/{number}/cancel", json={}).status_code == 202
    assert {one["user"] for one in door.operator.get("/users").json()} <= {"ada"}


def test_users_neither_drain_nor_read_metrics(door: Door) -> None:
    assert door.ada.post("/nodes/node/0/drain", json={}).status_code == 403
    assert door.ada.get("/metrics").status_code == 403
    assert door.operator.get("/metrics").status_code == 200
    assert [one["user"] for one in door.ada.get("/users").json()] == ["ada"]
    assert door.operator.post("/nodes/node/99/drain", json={}).status_code == 404
    refused = door.operator.post("/nodes/node/0/drain", json={})
    assert (refused.status_code, refused.json()["error"]["problem"][:36]) == (
        422,
        "this scheduler cannot drain nodes; o",
    )


def test_a_revoked_token_is_refused_with_the_next_request(door: Door) -> None:
    assert door.bob.get("/jobs").is_success
    door.tokens.revoke("bob")
    assert door.bob.get("/jobs").status_code == 401
    assert door.ada.get("/jobs").is_success


def test_output_is_served_from_the_task_folders_alone(door: Door, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("secret")
    number = submit(
        door.ada, command=f"cd ..; rm stdout; ln -s {tmp_path}/passwords stdout; mkfifo pipe; mv pipe stderr"
    )
    wait(door.ada, number)
    for stream in ("stdout", "stderr"):
        answer = door.ada.get(f"/jobs/{number}/tasks/0/logs?stream={stream}")
        assert (answer.status_code, "secret" in answer.text) == (404, False)
    number = submit(door.ada, command="cd ..; mv $PWD $PWD.moved; ln -s / $PWD")
    wait(door.ada, number)
    assert door.ada.get(f"/jobs/{number}/tasks/0/logs").status_code == 404
    for path in ("logs?stream=../stdout", "logs?stream=/etc/passwd", "logs?stream=stdout%00"):
        assert door.ada.get(f"/jobs/{number}/tasks/0/{path}").status_code == 422


def test_a_request_with_an_endless_head_is_cut_off(door: Door) -> None:
    assert door.ada.get("/jobs", headers={"x": "y" * 40_000}).status_code == 400
    assert door.ada.get("/jobs/" + "9" * 5000).status_code == 404
    assert door.ada.get("/jobs?before=" + "9" * 5000).status_code == 422


def test_the_client_takes_its_token_from_the_environment(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    token, _ = door.tokens.add("eve", "user")
    monkeypatch.setenv("VOLERY_TOKEN", token)
    with Client(door.url) as client:
        future = client.submit({"command": "echo ${VOLERY_TOKEN:-nothing}"})
        assert (future.result(LIMIT_S).state, client.job(future.id).user) == ("done", "eve")
        assert client.logs(future.id) == b"nothing\n", "tasks must not find the token of whoever runs the agent"
    with Client(door.url, token="volery_x_y") as client, pytest.raises(InputError, match="bearer token is needed"):
        client.jobs()


def test_a_token_never_travels_readable_over_a_network() -> None:
    with pytest.raises(InputError, match="use https"):
        Credentials("http://10.0.0.1:8642", "volery_a_b")
    with pytest.raises(InputError, match="is no token"):
        Credentials("https://10.0.0.1:8642", "a\r\nb: c")
    assert Credentials("http://10.0.0.1:8642", "").options["headers"] == {}


def test_an_api_for_others_needs_tokens_and_certificates(tmp_path: Path) -> None:
    desk: object = None
    with pytest.raises(InputError, match="whoever reaches it could run commands"):
        ApiServer(desk, tmp_path, "0.0.0.0", 0)  # type: ignore[arg-type] # never asked
    TokenFile(tmp_path).add("ada", "user")
    with pytest.raises(InputError, match="tokens would travel readable"):
        ApiServer(desk, tmp_path, "0.0.0.0", 0, gate=Authenticator(TokenFile(tmp_path)))  # type: ignore[arg-type] # never asked


def test_what_is_kept_of_jobs_is_for_the_owner_of_the_federation_alone(door: Door, tmp_path: Path) -> None:
    submit(door.ada, command="true", env={"PASSWORD": "x"})
    for name in ("jobs.sqlite", "jobs.sqlite-wal", "tokens.json", "jobs.lock", "tokens.lock"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


def test_nobody_submits_for_others_among_many(door: Door) -> None:
    refused = door.ada.post("/jobs/many", json=[{"command": "true"}, {"command": "true", "user": "bob"}])
    assert (refused.status_code, refused.json()["error"]["place"]) == (403, "job.user")
    assert door.nobody.post("/jobs/many", json=[{"command": "true"}]).status_code == 401
    assert door.admin.get("/jobs").json() == []
    (receipt,) = door.ada.post("/jobs/many", json=[{"command": "true"}]).json()
    assert door.bob.get(f"/jobs/{receipt['id']}").status_code == 404
    assert door.ada.get(f"/jobs/{receipt['id']}").json()["user"] == "ada"
