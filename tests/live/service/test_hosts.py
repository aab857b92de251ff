"""Hosts as operators see them: which answer, what they hold, and what becomes of one whose disk was replaced."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
import pytest
from msgspec import structs
from tests.live.commands import LIMIT_S, serving, volery
from tests.live.serving import at_work

from volery.architectures import choose
from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.config.federation import FederationFile, resolve
from volery.live.jobs import JobDescription
from volery.live.messages import HostReport
from volery.live.runtime import failure_detector
from volery.live.runtime.failure_detector import MISSED_MAX, HostRegister, Presence, this_host
from volery.live.runtime.host import Host
from volery.live.runtime.incarnations import host_lock
from volery.live.runtime.mailboxes import Inbox
from volery.live.service.authentication import Principal
from volery.live.service.figures import summary_of
from volery.live.service.forecaster import Forecaster
from volery.live.service.rows import UserLoad
from volery.live.status import HostStatus, JobStatus, NodeStatus
from volery.live.transport.delivery import Codec
from volery.live.transport.transport import Memory, MemoryTransport

HOSTS: Final = ("gm-0", "gm-1", "lm", "node-a", "node-b", "api")
LAYOUT: Final = {"gm-0": ["gm/0"], "node-a": ["node/0", "node/1"], "node-b": ["node/2"], "api": ["submitter"]}
FILE: Final = """
name = "{name}"
broker = "{broker}"
api = "127.0.0.1:0"
executor = "instant"
folder = "{folder}"

[parameters]
gms = 2
lms = 2
reliable = true
why = true
detection_s = 2.0

[[machines]]
count = 4

[[machines]]
count = 2
labels = {{ zone = "b" }}

[hosts]
gm-0 = ["gm/0"]
gm-1 = ["gm/1"]
lm = ["lm/*"]
node-a = ["node/0", "node/1", "node/2", "node/3"]
node-b = ["node/*"]
"""


def until(holds: Callable[[], Any]) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def write(path: Path, **words: str) -> Path:
    path.write_text(FILE.format(**words))
    return path


def host_of(client: Client, name: str, state: str) -> HostStatus | None:
    return next((host for host in client.hosts() if (host.name, host.state) == (name, state)), None)


def ended(words: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "volery.cli.main", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return done.returncode, done.stderr


def test_what_does_not_answer_is_named_everywhere_and_a_replaced_machine_comes_back(
    broker: str, tmp_path: Path
) -> None:
    config = write(tmp_path / "federation.toml", name="seen", broker=broker, folder="federation")
    with serving(*(["serve", host, "-c", str(config)] for host in HOSTS)) as started:
        url = [one.ready() for one in started][-1]["api"]
        with Client(url) as client:
            until(lambda: all(host.state == "up" for host in client.hosts()))
            _everything_is_up(client, url)
            for host in (started[0], started[4]):
                host.stop(signal.SIGKILL)
            until(lambda: host_of(client, "gm-0", "lost") and host_of(client, "node-b", "lost"))
            _what_is_gone_is_named(client, url, tmp_path)
            for journal in (tmp_path / "federation" / "journal").glob("gm-0-*"):  # others stop without theirs
                journal.unlink()
            (tmp_path / "federation" / "lives" / "gm-0").unlink()
            with serving(["serve", "gm-0", "-c", str(config)]) as (again,):
                again.ready()
                back = until(lambda: host_of(client, "gm-0", "up"))
                assert back.incarnation == 2
                job = client.send({"command": "true", "tasks": 4})
                later = client.send({"command": "true", "tasks": 4})
                until(lambda: all(client.job(one.id).state == "done" for one in (job, later)))
                _, said = again.stop()
                assert "host gm-0 begins incarnation 2, not 1 as in its folder" in said
        _, said = started[-1].stop()
    assert "gm/0 (host gm-0) has not answered since" in said
    assert "host gm-0 (gm/0) answers again" in said


def _everything_is_up(client: Client, url: str) -> None:
    found = {host.name: host for host in client.hosts()}
    assert list(found) == list(HOSTS)
    assert (found["lm"].components, found["node-b"].nodes, found["api"].components) == (
        ("lm/0", "lm/0/standby", "lm/1", "lm/1/standby"),
        2,
        ("submitter",),
    )
    me = this_host()
    assert all((host.version, host.hostname) == (me.version, me.hostname) for host in found.values())
    assert {host.incarnation for host in found.values()} == {1}
    assert [(node.host, node.hostname) for node in client.nodes(text="node/5")] == [("node-b", me.hostname)]
    shown = volery("hosts", "--api", url)
    assert "lm/0/standby" in shown
    assert "4 nodes" in shown
    assert "lost" not in shown


def _what_is_gone_is_named(client: Client, url: str, folder: Path) -> None:
    """In the order of a worried operator."""
    assert "lost" in volery("hosts", "--api", url)
    told = json.loads(volery("hosts", "--json", "--api", url))
    assert [host["name"] for host in told if host["state"] == "lost"] == ["gm-0", "node-b"]
    lost = client.nodes(state="lost")
    assert [node.address for node in lost] == ["node/4", "node/5"]
    assert [node.address for node in client.nodes(host="node-b")] == ["node/4", "node/5"]
    table = volery("nodes", "--state", "lost", "--api", url)
    assert "node/4" in table
    assert "lost" in table
    assert "node-b" in table
    assert "node/1" not in table
    metrics = httpx2.get(f"{url}/metrics").text
    assert 'volery_host_up{host="gm-0"} 0' in metrics
    assert 'volery_host_up{host="gm-1"} 1' in metrics
    assert 'volery_nodes{state="lost"} 2' in metrics
    assert 'volery_nodes{state="in use"} 4' in metrics
    assert "volery_slots_usable{} 4" in metrics
    summary = httpx2.get(f"{url}/summary").json()
    assert (summary["nodes"], summary["lost"], summary["slots"], summary["usable"]) == (6, 2, 6, 4)
    job = folder / "job.toml"
    job.write_text('command = "true"\n')
    planned = volery("plan", job, "--quick", "--api", url)
    assert "2 nodes do not answer; this plan counts only what answers" in planned
    assert "gm/0 (host gm-0) has not answered since 20" in planned
    assert "room for 1 now" in planned
    assert client.plan({"command": "true", "tasks": 9}).groups[0].at_once == 4
    assert any("gm/0 (host gm-0) has not answered" in words for words in client.plan({"command": "true"}).absent)
    waits = client.send({"command": "true", "constraints": ['label.zone == "b"']})
    why = client.why(waits.id)
    assert any(words.startswith("gm/0 (host gm-0) has not answered since") for words in why.absent)
    assert {step.demand: step.machines for step in why.funnel}["answer"] == 0
    assert "gm/0 (host gm-0) has not answered since" in volery("why", str(waits.id), "--api", url)
    client.cancel(waits.id)
    page = httpx2.get(f"{url}/dashboard/hosts").text
    assert "gm/0 (host gm-0) has not answered since" in page
    assert ">lost</span>" in page
    assert "node-b on " in httpx2.get(f"{url}/dashboard/nodes?state=lost").text


@pytest.mark.slow
def test_a_second_process_under_a_taken_name_is_refused_with_one_message(broker: str, tmp_path: Path) -> None:
    config = write(tmp_path / "federation.toml", name="taken", broker=broker, folder="first")
    other = write(tmp_path / "other.toml", name="taken", broker=broker, folder="second")
    with serving(["serve", "gm-0", "-c", str(config)]) as (first,):
        until(lambda: (tmp_path / "first" / "lives" / "gm-0").exists())
        status, said = ended(["serve", "gm-0", "-c", str(other)])
        assert (status, said) == (2, "error: host gm-0: another process uses the name gm-0; every host runs once\n")
        status, said = ended(["serve", "gm-0", "-c", str(config)])
        assert status == 2
        assert f"process {first.running.pid} runs this host already" in said
        assert said.count("\n") == 1
        assert first.running.poll() is None
        assert (tmp_path / "first" / "lives" / "gm-0").read_text() == "1\n"
        assert not (tmp_path / "second" / "lives" / "gm-0").exists()


@pytest.mark.slow
def test_a_second_volery_up_leaves_the_first_as_it_is(tmp_path: Path) -> None:
    with at_work(tmp_path / "federation", machines=[{"count": 3}], parameters={"gms": 1, "lms": 1}) as url:
        port, lives = url.rpartition(":")[2], tmp_path / "federation" / "lives" / "all"
        assert lives.read_text() == "1\n"
        for folder in ("federation", "elsewhere"):
            status, said = ended(["up", "-o", str(tmp_path / folder), "--api", f"127.0.0.1:{port}", "--nodes", "3"])
            assert (status, said.count("error: ")) == (2, 1), said
        assert lives.read_text() == "1\n", "it has counted the one that failed"
        assert not (tmp_path / "elsewhere" / "lives" / "all").exists()
        with Client(url) as client:
            (host,) = client.hosts()
            assert (host.name, host.state, host.nodes) == ("all", "up", 3)


def test_the_lock_of_a_host_is_free_again_when_its_process_has_ended(tmp_path: Path) -> None:
    with host_lock(tmp_path, "gm"):
        with pytest.raises(InputError, match="runs this host already"), host_lock(tmp_path, "gm"):
            pass
        with host_lock(tmp_path, "lm"):
            pass
    with host_lock(tmp_path, "gm"):
        pass


# The register.


class Clock:
    now_us = 1_000_000_000_000_000

    def __call__(self) -> int:
        return self.now_us


def register_at(clock: Clock, assigned: Callable[[], dict[str, int]] = dict) -> HostRegister:
    return HostRegister(LAYOUT, {"node/0", "node/1", "node/2"}, "api", 3, clock, assigned)


TOLD: Final = HostReport("1.0", "machine-7", 42, 5)


def test_a_host_whose_journal_has_no_room_is_named_until_it_goes_on() -> None:
    register, lack = register_at(Clock()), "short of disk space: its journal cannot be written"
    register.receive("gm-0", structs.replace(TOLD, shortage=lack), 8)
    register.check(lack)
    assert register.absent() == [f"gm/0 (host gm-0) has to wait, {lack}", f"submitter (host api) has to wait, {lack}"]
    assert [host.state for host in register.statuses() if host.name in ("gm-0", "api")] == ["up", "up"]
    register.receive("gm-0", TOLD, 8)
    register.check()
    assert not register.absent()


def test_a_host_is_lost_after_some_checks_in_a_row_without_a_message_and_up_with_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    register = register_at(clock, lambda: {"gm/0": 14})
    register.receive("gm-0", TOLD, 8)
    register.receive("stranger", TOLD, 8)
    assert [(host.name, host.state) for host in register.statuses()] == [
        ("gm-0", "up"),
        ("node-a", "unseen"),
        ("node-b", "unseen"),
        ("api", "up"),
    ]
    assert not register.lost_nodes, "they may be about to come"
    register.receive("node-a", TOLD, 1)
    for _ in range(MISSED_MAX - 1):
        clock.now_us += 3_600_000_000
        register.check()
    assert not register.absent(), "time that this host slept is no one else's absence"
    register.receive("node-a", TOLD, 1)
    register.check()
    assert register.lost_nodes == {"node/2"}
    assert register.absent() == [
        "gm/0 (host gm-0) has not answered since 2001-09-09 01:46:40Z; 14 jobs are assigned to it",
        "host node-b (1 node) has never answered since this API started at 2001-09-09 01:46:40Z",
    ]
    assert [(host.name, host.state, host.jobs, host.incarnation) for host in register.statuses()] == [
        ("gm-0", "lost", 14, 8),
        ("node-a", "up", 0, 1),
        ("node-b", "unseen", 0, 0),
        ("api", "up", 0, 3),
    ]
    register.check()
    assert caplog.text.count("has not answered since") == 1, "the log names it once"
    register.receive("gm-0", TOLD, 9)
    assert "host gm-0 (gm/0) answers again" in caplog.text
    assert register.statuses()[0].incarnation == 9
    assert register.place_of("node/1") == ("node-a", "machine-7")
    assert register.place_of("node/2") == ("node-b", "")


def test_a_host_that_waits_for_others_is_opening_and_one_that_was_absent_at_the_start_is_lost() -> None:
    register = register_at(Clock(), lambda: {"gm/0": 2})
    register.receive("gm-0", HostReport("1.0", "machine-7", 42, 5, ("node-a", "node-b")), 8)
    told = "gm/0 (host gm-0) has not opened yet, waiting for node-a, node-b; 2 jobs are assigned to it"
    assert register.absent() == [told]
    assert register.unanswering("gm/0") == told
    (host, *_) = register.statuses()
    assert (host.state, host.waits_for, host.wait) == ("opening", ("node-a", "node-b"), "waits for node-a, node-b")
    register.receive("gm-0", TOLD, 8)
    assert not register.absent()
    assert not register.unanswering("gm/0")
    register.miss(["gm-0", "node-b", "stranger"])
    assert register.statuses()[0].state == "up", "it has sent a report, whatever its hello"
    assert register.lost_nodes == {"node/2"}
    for _ in range(MISSED_MAX):
        register.check()
    assert register.statuses()[0].state == "lost"
    assert register.unanswering("gm/0").startswith("gm/0 (host gm-0) has not answered since")


def test_a_job_whose_scheduler_does_not_answer_has_no_forecast(tmp_path: Path) -> None:
    federation = resolve(FederationFile(machines=[{"count": 1}], folder=str(tmp_path)), tmp_path, choose)
    absence = "gm/0 (host gm-0) has not answered since noon"
    forecaster = Forecaster(federation, {"node/0": 0}, unanswering=lambda user, job: absence)
    who = Principal("ann", "user")
    found = asyncio.run(forecaster.forecast(JobDescription(command=("true",)), who))
    assert (found.moments, absence in found.problem) == (None, True)
    waits = JobStatus(id=1, name="", user="ann", state="pending", tasks=1, submitted_us=0, revision=1)
    assert absence in asyncio.run(forecaster.of_job(waits, who)).problem


def test_a_host_sends_its_presence_again_and_again_until_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "PRESENCE_S", 0.001)
    sent: list[tuple[str, Any]] = []

    async def scenario() -> None:
        one = Presence("api")
        one.start(lambda to, told: sent.append((to, told)))
        while len(sent) < 3:
            await asyncio.sleep(0.001)
        one.close()
        count = len(sent)
        await asyncio.sleep(0.02)
        assert len(sent) == count

    asyncio.run(scenario())
    assert {to for to, _ in sent} == {"api"}
    assert sent[0][1] == this_host().__class__(*msgspec.structs.astuple(sent[0][1]))


def test_a_host_that_disconnects_sends_no_presence_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detector, "PRESENCE_S", 0.001)
    medium, sent, late = Memory(), list[str](), list[str]()

    class Slow(MemoryTransport):
        closing = False

        def send(self, to: str, frame: bytes) -> None:
            (late if self.closing else sent).append(to)

        async def close(self) -> None:
            self.closing = True
            for _ in range(20):
                await asyncio.sleep(0.001)
            await super().close()

    async def scenario() -> None:
        where = {"gm/0": "gm", "submitter": "api"}
        gm = Host("gm", {}, Inbox(where), codec=Codec(()), transport=Slow(medium), presence=Presence("api"))
        api = MemoryTransport(medium)
        await api.open("api", lambda sender, frame: None)
        await gm.open()
        gm.start()
        while len(sent) < 3:
            await asyncio.sleep(0.001)
        await gm.close()
        await api.close()

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))
    assert not late


def test_utilisation_is_over_slots_that_can_be_used() -> None:
    machine: dict[str, Any] = {"arch": "", "os": "", "kernel": "", "cores": 1, "memory_mb": 1, "labels": {}}
    nodes = [
        NodeStatus(address="node/0", slots=4, running=2, **machine),
        NodeStatus(address="node/1", slots=4, running=1, drained=True, **machine),
        NodeStatus(address="node/2", slots=4, running=3, lost=True, **machine),
        NodeStatus(address="node/3", slots=4, running=0, lost=True, drained=True, **machine),
    ]

    class Desk:
        def loads(self, user: str | None) -> list[UserLoad]:
            return []

    found = summary_of(Desk(), None, {}, "ann", nodes)  # type: ignore[arg-type]  # it is asked for no more
    assert (found.slots, found.usable, found.running, found.used) == (16, 4, 6, 2)
    assert (found.drained, found.lost) == (2, 2)
    assert [node.state for node in nodes] == ["in use", "drained", "lost", "lost"]
