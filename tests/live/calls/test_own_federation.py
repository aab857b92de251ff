"""A task knows its federation: it submits work as its user, while its job runs, and `why` names it where it waits."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.live.bench import LIMIT_S
from tests.live.conftest import RUN_AS
from tests.live.serving import at_work

from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.service.authentication import TASK_KEY, TokenFile

SMALL = {"gms": 1, "lms": 1}
PRINTS = "echo $VOLERY_API; echo $VOLERY_TOKEN; sleep 600"


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def printed(client: Client, job: int, line_count: int) -> list[str]:
    until(lambda: client.task(job, 0).state == "running" and client.logs(job).count(b"\n") >= line_count)
    return client.logs(job).decode().splitlines()


def test_a_task_acts_as_its_user_until_its_job_has_ended(open_folder: Path) -> None:
    tokens, address = TokenFile(open_folder), free_address()
    (ada, _), (bob, _), (root, _) = (
        tokens.add("ada", "operator"),
        tokens.add("bob", "user"),
        tokens.add("root", "admin"),
    )
    keys = {
        "executor": "agent",
        "parameters": SMALL,
        "machines": [{"count": 3}],
        "run_as": RUN_AS,
        "calls": False,
        "api": address,
    }
    with at_work(open_folder, **keys) as api, ExitStack() as stack:
        client, other, admin = (stack.enter_context(Client(api, token)) for token in (ada, bob, root))
        outer, foreign = client.send({"command": PRINTS}).id, other.send({"command": PRINTS}).id
        url, token = printed(client, outer, 2)
        assert url == api
        assert token not in (open_folder / TASK_KEY).read_bytes().hex()
        with Client(url, token) as task:
            child = task.send({"command": "true"}).id
            assert task.job(child).user == "ada"
            until(lambda: client.job(child).state == "done")
            with pytest.raises(InputError, match="no such job"):
                task.cancel(foreign)
            with pytest.raises(InputError, match="operator"):
                task.drain("node/0")  # whatever the role of its user
        forged = token.replace(f"task-{outer}_", f"task-{foreign}_")
        _, others = printed(other, foreign, 2)
        assert others not in (token, forged)
        for wrong in (forged, token[:-1] + ("0" if token[-1] != "0" else "1"), "volery_task-_", "volery_task-99_00"):
            with Client(api, wrong) as stranger, pytest.raises(InputError, match="token"):
                stranger.jobs()
        # A user without a token of their own has tasks without one.
        alone = admin.send({"command": PRINTS, "user": "eve"}).id
        assert printed(admin, alone, 2) == [api, ""]
        admin.cancel(alone)

        client.cancel(outer)
        until(lambda: bool(client.job(outer).ended))
        tokens.revoke("bob")
        for void in (token, others):
            with Client(api, void) as late, pytest.raises(InputError, match="token"):
                late.jobs()
        admin.cancel(foreign)


def test_a_site_gives_its_tasks_no_token_or_another_address(open_folder: Path) -> None:
    token, _ = TokenFile(open_folder).add("ada", "user")
    keys = {"task_tokens": False, "api_url": "https://cluster.example:8642"}
    with at_work(
        open_folder, executor="agent", parameters=SMALL, machines=[{"count": 1}], run_as=RUN_AS, calls=False, **keys
    ) as api:
        with Client(api, token) as client:
            job = client.send({"command": PRINTS}).id
            assert printed(client, job, 2) == ["https://cluster.example:8642", ""]
            own = client.send({"command": PRINTS, "env": {"VOLERY_API": "mine", "VOLERY_TOKEN": "too"}}).id
            client.cancel(job)
            assert printed(client, own, 2) == ["mine", "too"]
            client.cancel(own)
        assert not (open_folder / TASK_KEY).exists()


def test_why_names_the_task_that_waits_for_its_child_on_a_full_fleet(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        at_work(
            open_folder, executor="agent", parameters=SMALL, machines=[{"count": 1}], run_as=RUN_AS, calls=False
        ) as api,
        Client(api) as client,
    ):
        outer = client.send({"command": "echo; sleep 600"}).id
        printed(client, outer, 1)
        stranger = client.send({"command": "true"}).id
        monkeypatch.setenv("VOLERY_JOB", str(outer))
        monkeypatch.setenv("VOLERY_INDEX", "0")
        child, keyed = client.send({"command": "true"}).id, client.send({"command": "true", "key": "once"}).id
        until(lambda: f"task {outer}/0, which submitted this job, runs on node/0" in client.why(child).reason)
        until(lambda: f"job {child}, which it has submitted, finds no node with room" in client.why(outer).reason)
        assert "submitted" not in client.why(stranger).reason
        assert "submitted" not in client.why(keyed).reason
        client.cancel(child)
        until(lambda: client.job(child).ended)
        assert "submitted" not in client.why(outer).reason
        child = client.send({"command": "true"}).id
        client.cancel(outer)
        until(lambda: client.job(child).state == "done")
        assert "submitted" not in client.why(child).reason
