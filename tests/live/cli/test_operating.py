"""What operators do to a whole federation: drain nodes, ask why tasks wait, read metrics and logs."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.serving import at_work

from volery.cli.main import main
from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.clock import JsonLines
from volery.live.service.authentication import Authenticator, Principal, TokenFile
from volery.live.status import DecisionStep

MACHINES: list[dict[str, Any]] = [{"count": 3, "labels": {"zone": "a"}}, {"count": 3, "labels": {"zone": "b"}}]
LONG = {"command": "true", "estimate_s": 60}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Of a federation whose nodes hold their slots as long as tasks estimate, and run nothing."""
    with federation(tmp_path) as url, Client(url) as found:
        yield found


def federation(folder: Path, **parameters: Any) -> Any:
    given = {"gms": 2, "lms": 2, "heartbeat_s": 0.05, "why": True} | parameters
    return at_work(folder, machines=MACHINES, parameters=given, executor="sleep")


def nodes_of(client: Client, number: int) -> set[str]:
    return {task.node for task in client.tasks(number) if task.node}


def until_running(client: Client, number: int, tasks: int) -> None:
    for change in client.events(number, after=0):
        if getattr(change, "running", 0) == tasks:
            return


def test_a_drained_node_gets_nothing_until_it_is_undrained(client: Client) -> None:
    assert client.drain("node/1").drained
    assert [node.address for node in client.nodes() if node.drained] == ["node/1"]
    job = client.send(LONG | {"tasks": 6})
    until_running(client, job.id, 5)
    assert nodes_of(client, job.id) == {f"node/{number}" for number in (0, 2, 3, 4, 5)}
    assert not client.undrain("node/1").drained
    until_running(client, job.id, 6)
    assert "node/1" in nodes_of(client, job.id)


def test_what_runs_on_a_drained_node_goes_on(client: Client) -> None:
    job = client.send(LONG | {"tasks": 6})
    until_running(client, job.id, 6)
    assert client.drain("node/4").running == 1
    assert client.job(job.id).running == 6


def test_a_drain_outlives_the_api(tmp_path: Path) -> None:
    with federation(tmp_path) as url, Client(url) as client:
        client.drain("node/0")
    with federation(tmp_path, reliable=True) as url, Client(url) as client:
        assert [node.address for node in client.nodes() if node.drained] == ["node/0"]
        job = client.send(LONG | {"tasks": 6})
        until_running(client, job.id, 5)
        assert "node/0" not in nodes_of(client, job.id)


def last_queued(client: Client, job: int) -> DecisionStep:
    """The decision to leave the job's first task in the queue; on an old view it may be placed and refused before."""
    deadline = time.monotonic() + 20
    while not (found := client.why(job).decisions) or found[-1].chosen != "queued":
        assert time.monotonic() < deadline, f"never queued: {found}"
        time.sleep(0.02)
    return found[-1]


def test_why_a_task_waits_is_told_with_counts_and_history(client: Client) -> None:
    full = client.send(LONG | {"tasks": 3, "constraints": ['label.zone == "a"']})
    until_running(client, full.id, 3)
    client.drain("node/5")
    waiting = client.send(LONG | {"tasks": 2, "constraints": ['label.zone == "a"']})
    found = client.why(waiting.id)
    assert (found.state, found.waiting, found.index) == ("pending", 2, 0)
    decision = last_queued(client, waiting.id)
    assert [(step.machines, step.demand) for step in client.why(waiting.id).funnel] == [
        (6, "machines"),
        (3, "meet its constraints"),
        (3, "are not drained"),
        (0, "have a free slot now"),
        (0, f"have room in the view of {decision.by}"),
        (0, "were given to tasks of the job"),
    ]
    assert decision.by[:3] == "gm/"
    assert sum(one.count for one in decision.passed if one.reason == "busy") == 3
    assert sum(one.count for one in decision.passed if one.reason == "constraint") == 3
    placed = client.why(full.id, 2)
    assert (placed.state, placed.decisions[0].chosen) == ("running", "placed")
    assert (placed.funnel[-1].machines, placed.funnel[-1].demand) == (1, "were given to it")
    assert client.why(full.id).funnel[-1].machines == 3
    assert placed.decisions[0].node in {"node/0", "node/1", "node/2"}


def test_what_no_machine_can_run_says_so(client: Client) -> None:
    job = client.send(LONG | {"constraints": ["cores >= 100000"]})
    found = client.why(job.id)
    assert found.state == "unsatisfiable"
    assert [step.machines for step in found.funnel][:2] == [6, 0]
    assert "cores >= 100000" in found.reason


def test_the_commands_of_operators(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    def volery(*words: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as leaving:
            main([*words, "--api", client.api])
        assert (leaving.value.code or 0) == status
        return capfd.readouterr().out

    job = client.send(LONG | {"tasks": 7})
    until_running(client, job.id, 6)
    assert "1 tasks of the job wait" in volery("why", str(job.id))
    assert json.loads(volery("why", f"{job.id}/6", "--json"))["state"] == "pending"
    assert "it gets no new task; 1 task still runs there" in volery("drain", "node/3")
    assert "drained" in volery("nodes")
    assert "is used again" in volery("undrain", "node/3")
    volery("drain", "node/77", status=2)
    volery("drain", "../users", status=2)
    volery("why", "x", status=2)
    (user,) = json.loads(volery("users", "--json"))
    assert (user["tasks_running"], user["tasks_pending"]) == (6, 1)


def test_tokens_by_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def volery(*words: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as leaving:
            main(["token", *words, "-o", str(tmp_path / "f")])
        assert (leaving.value.code or 0) == status
        return capfd.readouterr().out

    volery("list", status=2)  # a folder that is not there may be a mistyped one
    (tmp_path / "f").mkdir()
    assert "There are no tokens" in volery("list")
    token = volery("add", "ada", "--role", "operator", "--days", "2").strip()
    made = json.loads(volery("add", "bob", "--json"))
    assert Authenticator(TokenFile(tmp_path / "f")).who(f"Bearer {token}") == Principal("ada", "operator")
    listed = volery("list", "--json")
    assert [one["user"] for one in json.loads(listed)["tokens"]] == ["ada", "bob"]
    assert "hash" not in listed
    assert "operator" in volery("list")
    assert json.loads(volery("revoke", made["id"], "--json")) == {"revoked": [made["id"]]}
    volery("revoke", "bob", status=2)
    volery("add", "eve", "--role", "king", status=2)
    volery("add", "a b", status=2)


def test_jobs_are_found_by_reason_and_time(client: Client) -> None:
    odd = client.send(LONG | {"constraints": ["cores >= 100000"]})
    plain = client.send(LONG)
    client.events(odd.id)
    assert [job.id for job in client.jobs(reason="cores >= 100000")] == [odd.id]
    since_us = client.job(plain.id).submitted_us
    assert [job.id for job in client.jobs(since_us=since_us)] == [plain.id]
    assert client.jobs(since_us=since_us, before=plain.id) == []
    with pytest.raises(InputError, match="expected pending, running, done"):
        client.jobs(state="lost")


SAMPLE = re.compile(r'[a-z_]+\{([a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*)?\} -?[0-9.e+-]+')


def test_metrics_are_what_prometheus_reads(client: Client) -> None:
    job = client.send(LONG | {"tasks": 4, "user": 'a"b\\c'})
    until_running(client, job.id, 4)
    lines = client._http.get("/metrics").text.splitlines()
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line.replace(r"\"", "").replace(r"\\", "")) for line in samples), samples
    assert {line.partition("{")[0] for line in samples} <= kinds.keys()
    assert all(kinds[name] == "counter" for name in kinds if name.endswith("_total"))
    assert "volery_slots_taken{} 4" in samples
    assert 'volery_user_tasks{user="a\\"b\\\\c",state="running"} 4' in samples
    assert any(
        line.startswith('volery_http_requests_total{method="POST",path="/jobs",status="201"} 1') for line in lines
    )


def test_log_lines_are_json(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        try:
            raise ValueError("a\nb")
        except ValueError:
            logging.getLogger("volery.x").exception("it went %s", "wrong")
    line = JsonLines("gm").format(caplog.records[0])
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"], found["host"]) == (
        "error",
        "volery.x",
        "it went wrong",
        "gm",
    )
    assert "ValueError" in found["exception"]


def test_a_plan_says_what_a_job_would_meet_and_submits_nothing(
    client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    until_running(client, client.send(LONG | {"tasks": 2, "constraints": ['label.zone == "a"']}).id, 2)
    client.drain("node/5")
    path = tmp_path / "job.toml"
    path.write_text(
        'command = "true"\n[[tasks]]\ncount = 4\nconstraints = [\'label.zone == "a"\']\n'
        '[[tasks]]\nconstraints = ["cores >= 100000"]\n[[tasks]]\ncount = 2\n'
    )
    found = client.plan(path)
    assert (found.tasks, found.waiting) == (7, 0)
    assert [(group.first, group.count, group.at_once) for group in found.groups] == [(0, 4, 1), (4, 1, 0), (5, 2, 2)]
    assert [step.machines for step in found.groups[0].funnel] == [6, 3, 3, 1]
    assert len(found.groups[0].nodes) == 1
    assert "cores >= 100000" in found.groups[1].obstacle
    assert "node/5" not in found.groups[2].nodes
    with pytest.raises(SystemExit) as leaving:
        main(["plan", str(path), "--api", client.api])
    assert leaving.value.code == 1, "a task of it could never run"
    assert "tasks 0 to 3: 6 machines > 3 meet its constraints" in capfd.readouterr().out
    path.write_text("comand = 1")
    with pytest.raises(InputError, match=r"job.toml.comand"):
        client.plan(path)
    assert len(client.jobs()) == 1


def test_records_are_exported_whole_or_not_at_all(
    client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volery.cli.selection.PAGE", 2)
    for _ in range(5):
        client.send({"command": "true", "tasks": 3})

    def export(*words: str) -> int:
        with pytest.raises(SystemExit) as leaving:
            main(["record", "export", *words])
        capfd.readouterr()
        return int(str(leaving.value.code or 0))

    path = tmp_path / "jobs.jsonl"
    assert export("-o", str(path), "--api", client.api, "--json") == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["id"] for line in lines if line["record"] == "job"] == [4, 3, 2, 1, 0]
    assert [(line["job"], line["index"]) for line in lines[1:4]] == [(4, 0), (4, 1), (4, 2)]
    assert len(lines) == 20
    assert export("-o", str(path), "--api", client.api) == 2, "it exists"
    other = tmp_path / "other.jsonl"
    assert export("-o", str(other), "--api", "http://127.0.0.1:1") == 2
    assert export("-o", str(tmp_path / "none" / "x"), "--api", client.api) == 2
    assert not other.exists()
    assert not [*tmp_path.glob("*.part")]
