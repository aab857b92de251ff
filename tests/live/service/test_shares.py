"""Shares of a real federation: who is due what, who may change it, what it changes, and what is told of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from tests.live.bench import LIMIT_S
from tests.live.serving import at_work

from volery.cli.main import main
from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.service.authentication import TokenFile

MACHINES = 8
LONG = {"command": "true", "estimate_s": 600, "tasks": MACHINES + 2}
PARAMETERS = {"gms": 2, "lms": 2, "heartbeat_s": 0.05, "shares": "ada:1+bob:1"}


class Door(NamedTuple):
    """Clients of a federation whose machines are ada's and bob's."""

    url: str
    ada: Client
    bob: Client
    olga: Client
    root: Client


@contextmanager
def federation(folder: Path, **parameters: Any) -> Iterator[Door]:
    tokens = TokenFile(folder)
    roles = (("ada", "user"), ("bob", "user"), ("olga", "operator"), ("root", "admin"))
    given = [tokens.add(name, role)[0] for name, role in roles]  # type: ignore[arg-type] # they are roles
    keys = {"machines": [{"count": MACHINES}], "executor": "sleep", "parameters": PARAMETERS | parameters}
    with at_work(folder, **keys) as url, ExitStack() as stack:
        yield Door(url, *(stack.enter_context(Client(url, token)) for token in given))


def until_running(door: Door, **tasks: int) -> None:
    """Wait until users have so many tasks running, and nothing is under way."""
    deadline, found = time.monotonic() + LIMIT_S, dict[str, int]()
    while found != tasks:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
        found = {one.user: one.tasks_running for one in door.olga.users()}


@pytest.mark.parametrize("parameters", [{}, {"reliable": True}], ids=["plain", "reliable"])
def test_users_have_what_they_are_due_after_a_change_and_the_ledger_says_who_lost(
    tmp_path: Path, parameters: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with federation(tmp_path, **parameters) as door:
        of_ada, of_bob = door.ada.send(LONG).id, None
        until_running(door, ada=MACHINES, bob=0)
        of_bob = door.bob.send(LONG).id
        until_running(door, ada=4, bob=4)
        told = door.root.share("ada", 3)
        assert (told.weight, told.share) == (3, 0.75)
        until_running(door, ada=6, bob=2)
        door.root.share("bob", 9)
        until_running(door, ada=2, bob=6)
        assert "the weight of 'bob' is 9, and was 1, by root" in caplog.text
        assert [(one.name, one.was, one.weight, one.by) for one in door.olga.reweighs()] == [
            ("bob", 1, 9, "root"),
            ("ada", 1, 3, "root"),
        ]

        ledger = until_noted(door, 4 + 2 + 4)
        assert [one.for_user for one in reversed(ledger)] == ["bob"] * 4 + ["ada"] * 2 + ["bob"] * 4
        assert {(one.job, one.for_job, one.reason) for one in ledger} == {
            (of_ada, of_bob, "share"),
            (of_bob, of_ada, "share"),
        }
        # Two Local Masters preempt at the same time, and either may report first. One that is asked for what another
        # GM has just done with the machine refuses, and is asked again when bob has something elsewhere: that a
        # preemption finds bob with nothing is likely, and not sure.
        equal_weights = ledger[-4:]
        assert max(one.loss.before for one in equal_weights if one.loss is not None) == 1
        assert all(0 <= one.gain.before < one.gain.due for one in equal_weights if one.gain is not None)
        for one in equal_weights:
            assert one.loss is not None
            assert one.gain is not None
            assert (one.loss.due, one.gain.due) == (0.5, 0.5)
            assert (one.loss.before - one.loss.after, one.gain.after - one.gain.before) == (1 / MACHINES, 1 / MACHINES)
        for one in ledger:
            assert one.loss is not None
            assert one.gain is not None
            assert one.loss.after >= one.loss.due, "nobody is starved"
            assert one.gain.after <= one.gain.due

        page = door.olga.preemptions(limit=3)
        assert [*page, *door.olga.preemptions(before=page[-1].number)] == ledger
        assert door.olga.preemptions(user="ada", job=of_bob) == ledger
        own = door.ada.preemptions()
        assert len(own) == len(ledger)
        assert {(one.user, one.for_user) for one in own} == {("ada", ""), ("", "ada")}, "of others she hears nothing"
        assert door.ada.preemptions(user="bob") == []
        with pytest.raises(InputError, match="there is no such job"):
            door.ada.preemptions(job=of_bob)


def until_noted(door: Door, count: int) -> list[Any]:
    """What is in the ledger, once so much is."""
    deadline = time.monotonic() + LIMIT_S
    while len(found := door.olga.preemptions()) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_who_may_change_shares_and_what_lasts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = {"shares": "ada:1+dev:1(bob:1+a/b_c:1)"}
    with federation(tmp_path, **tree) as door:
        for client in (door.ada, door.olga):
            with pytest.raises(InputError, match="takes the role admin"):
                client.share("ada", 9)
        for name, weight, problem in (
            ("eve", 2, "is not in the tree of shares"),
            ("ada", 0, "is not a weight"),
            ("", 2, "is not in the tree"),
            ("ada", 1 << 40, "is not a weight"),
        ):
            with pytest.raises(InputError, match=problem):
                door.root.share(name, weight)
        with pytest.raises(InputError, match="nobody of that name has a share"):
            door.root.share("eve")
        assert door.root.share("a/b_c", 3).share == 3 / 8
        assert door.root.share("dev", 3).organisation
        assert [(one.name, one.within, one.share) for one in door.bob.shares()] == [
            ("dev", (), 0.75),
            ("bob", ("dev",), 0.1875),
        ], "and nobody else's"
        with pytest.raises(InputError, match="nobody of that name"):
            door.bob.share("ada")
        refused = httpx2.put(f"{door.url}/shares/ada", json={"weight": 2}, trust_env=False)
        assert refused.status_code == 401
        authorization = {"authorization": door.root._http.headers["authorization"]}
        for body in (b"", b"[]", b'{"weight": "x"}', b'{"weight": 1, "more": 2}', b" " * 2000):
            headers = authorization | {"content-type": "application/json"}
            assert httpx2.put(f"{door.url}/shares/ada", content=body, headers=headers).status_code == 422
        form = authorization | {"content-type": "text/plain"}
        assert httpx2.put(f"{door.url}/shares/ada", content=b'{"weight": 2}', headers=form).status_code == 415

    with federation(tmp_path, **tree) as door:
        assert {one.name: one.weight for one in door.olga.shares()} == {"ada": 1, "dev": 3, "bob": 1, "a/b_c": 3}
        for name in ("ada", "bob", "a/b_c"):
            door.root.send(LONG | {"user": name})
        until_running(door, **{"ada": 3, "bob": 1, "a/b_c": 4})
        with pytest.raises(SystemExit) as stopped:
            main(["users", "share", "--api", door.url])
        assert stopped.value.code == 2, "it does not know who asks"
        assert "bearer token" in capsys.readouterr().err


def test_the_command_shows_and_changes_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"machines": [{"count": 2}], "executor": "sleep", "parameters": PARAMETERS | {"gms": 1, "lms": 1}}
    with at_work(tmp_path, **keys) as url, Client(url) as client:
        monkeypatch.setenv("VOLERY_API", url)
        monkeypatch.setenv("COLUMNS", "160")  # a row of a table stays on its line

        def said(*words: str) -> str:
            with pytest.raises(SystemExit) as stopped:
                main(["users", *words])
            assert stopped.value.code == 0
            return capsys.readouterr().out

        assert said("share", "ada", "3") == "ada has weight 3 from now on, and is due 75.0 % of the federation\n"
        assert [line.split() for line in said("share").splitlines() if "%" in line] == [
            ["\u2502", "ada", "\u2502", "3", "\u2502", "75.0", "%", "\u2502"],
            ["\u2502", "bob", "\u2502", "1", "\u2502", "25.0", "%", "\u2502"],
        ]
        client.send(LONG | {"user": "bob"})
        client.send(LONG | {"user": "ada"})
        deadline = time.monotonic() + LIMIT_S
        while not client.preemptions() and time.monotonic() < deadline:
            time.sleep(0.02)
        (line,) = [line for line in said("preemptions", "bob").splitlines() if "share" in line]
        assert "100.0 % > 50.0 % of 25.0 %" in line
        assert "bob" in said()
