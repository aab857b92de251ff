"""A federation that is killed goes on with what it was doing when it begins anew; hosts say what they bear."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.live.commands import serving, volery
from tests.live.conftest import CALLS, RUN_AS

from volery.architectures import configure, lookup
from volery.core.model import Cluster
from volery.live.client import Client
from volery.live.config.plan import FederationPlan, host_recovery, recovery_in_words
from volery.live.status import JobStatus

CONFIG = f"""
run_as = "{RUN_AS}"
calls = {CALLS}
api = "127.0.0.1:0"
folder = "f"
[parameters]
gms = 2
lms = 2
reliable = true
[[machines]]
count = 4
"""
JOB = {"command": "echo begun $$; read x < FOLDER/$VOLERY_INDEX; echo ended; exit 7", "tasks": 2}


def test_tasks_outlive_the_federation_and_their_exit_codes_come_home(open_folder: Path) -> None:
    for place in ("0", "1"):
        os.mkfifo(open_folder / place)
        (open_folder / place).chmod(0o666)
    (open_folder / "federation.toml").write_text(CONFIG)
    words = ["up", str(open_folder / "federation.toml")]
    with serving(words) as (first,), Client(first.ready()["api"]) as client:
        number = client.send({**JOB, "command": str(JOB["command"]).replace("FOLDER", str(open_folder))}).id
        begun = [_written(client, number, place, 1) for place in (0, 1)]
        first.running.kill()
        first.running.wait(30)
    (open_folder / "0").write_text("x\n")  # one ends while nobody is there
    with serving(words) as (second,), Client(second.ready()["api"]) as client:
        (open_folder / "1").write_text("x\n")
        job = _ended(client, number)
        assert (job.state, job.failed) == ("failed", 2)
        assert job.reason == "2 of 2 tasks failed; the first: exit code 7"
        assert [_written(client, number, place, 2) for place in (0, 1)] == [f"{text}ended\n" for text in begun]
        assert second.stop()[0] == 0
    assert "All 2 journals replay" in volery("replay", open_folder / "f")


def _ended(client: Client, number: int) -> JobStatus:
    for status in client.events(number):
        if isinstance(status, JobStatus) and status.ended:
            return status
    raise AssertionError("its events have ended before the job")


def _written(client: Client, job: int, place: int, line_count: int) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        text = client.logs(job, place).decode()
        if text.count("\n") == line_count:
            return text
        time.sleep(0.05)
    raise AssertionError("the task does not write what it should")


@pytest.mark.parametrize(
    ("name", "given", "bears"),
    [
        ("megha", {"reliable": True}, "recovers when any host of gm, lm, node fails"),
        ("megha", {}, "with reliable = true it would recover from that"),
        ("pigeon", {"reliable": True}, "recovers when any host of master, node fails"),
        ("sparrow", {"reliable": True}, "has no parameter for that"),
        ("pipeline", {"T11": "restart"}, "has no parameter for that"),
        ("oracle", {}, "recovers from lost frames only"),
    ],
)
def test_what_a_design_bears_is_said(name: str, given: dict[str, object], bears: str) -> None:
    architecture = lookup(name)
    deployment = FederationPlan(architecture, configure(architecture, given), Cluster.uniform(100)).build()
    assert bears in recovery_in_words(architecture, deployment)
    assert (host_recovery(architecture, deployment) is not None) == ("recovers when any host" in bears)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("count = 6", "count = 4", "2 attempts ran on node/4, node/5, which this host has no more"),
        ("count = 6\nslots = 2", "count = 6\nslots = 1", "attempts run where the cluster has no place for them"),
    ],
    ids=["fewer nodes", "fewer slots"],
)
def test_a_federation_that_begins_anew_with_less_runs_what_has_no_place_again(
    open_folder: Path, before: str, after: str, said: str
) -> None:
    file = open_folder / "federation.toml"
    size = 12 if "slots" in before else 6
    file.write_text(CONFIG.replace("count = 4", before))
    command = f"echo begun; while ! test -e {open_folder}/go; do sleep 0.05; done"
    with serving(["up", str(file)]) as (first,), Client(first.ready()["api"]) as client:
        number = client.send({"command": command, "tasks": size}).id
        for place in range(size):
            _written(client, number, place, 1)
        first.running.kill()
        first.running.wait(30)
    file.write_text(CONFIG.replace("count = 4", after))
    with serving(["up", str(file)]) as (second,), Client(second.ready()["api"]) as client:
        (open_folder / "go").touch()
        job = _ended(client, number)
        assert (job.state, job.finished) == ("done", size)
        status, errors = second.stop()
    assert status == 0
    assert said in errors
