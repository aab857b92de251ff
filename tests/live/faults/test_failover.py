"""A Global Master that is killed for good: its jobs and all new ones run at another, once."""

from __future__ import annotations

import signal
import time
import urllib.request
from pathlib import Path

import pytest
from tests.live.commands import Serving, serving, volery
from tests.live.conftest import CALLS, RUN_AS

from volery.live.client import Client
from volery.live.dashboard import frame
from volery.live.status import JobStatus

DETECTION_S = 0.5
CONFIG = f"""
run_as = "{RUN_AS}"
calls = {CALLS}
api = "127.0.0.1:0"
folder = "f"
broker = "BROKER"
[parameters]
gms = 2
lms = 2
reliable = true
detection_s = {DETECTION_S}
[[machines]]
count = 4
[hosts]
gm-0 = ["gm/0"]
gm-1 = ["gm/1"]
rest = ["lm/*", "node/*"]
"""
NOTES = "echo $VOLERY_JOB/$VOLERY_INDEX >> FOLDER/notes; while ! test -e FOLDER/go; do sleep 0.05; done"
LIMIT_S = 60


def hosts(folder: Path) -> list[list[str]]:
    return [["serve", name, "--config", str(folder / "federation.toml")] for name in ("api", "gm-0", "gm-1", "rest")]


def ended(client: Client, number: int) -> JobStatus:
    for status in client.events(number):
        if isinstance(status, JobStatus) and status.ended:
            return status
    raise AssertionError("its events have ended before the job")


def until_running(client: Client, number: int, count: int) -> None:
    end = time.monotonic() + LIMIT_S
    while client.job(number).running < count:
        assert time.monotonic() < end, f"job {number} has {client.job(number)}"
        time.sleep(0.05)


def sent(client: Client, command: str) -> list[int]:
    """A job of each Global Master; the first has tasks that run, before the second could take every slot."""
    first = client.send({"command": command, "tasks": 6}).id
    until_running(client, first, 1)
    return [first, client.send({"command": command, "tasks": 6}).id]


def until_moved(client: Client, number: int) -> JobStatus:
    end = time.monotonic() + LIMIT_S
    while not (status := client.job(number)).moved:
        assert time.monotonic() < end, f"job {number} stays where it is: {status}"
        time.sleep(0.05)
    return status


def started(folder: Path, broker: str) -> None:
    (folder / "federation.toml").write_text(CONFIG.replace("BROKER", broker))
    (folder / "notes").touch()
    (folder / "notes").chmod(0o666)


def test_jobs_of_a_global_master_that_never_comes_back_run_at_another_once(open_folder: Path, broker: str) -> None:
    started(open_folder, broker)
    command = NOTES.replace("FOLDER", str(open_folder))
    with serving(*hosts(open_folder)) as (api, gm, *_), Client(url := api.ready()["api"]) as client:
        numbers = sent(client, command)
        gm.running.send_signal(signal.SIGKILL)
        moved = until_moved(client, numbers[0])
        assert moved.moved.startswith("at gm/1 since epoch 1, because gm/0 does not answer and was given up at 2")
        numbers += [client.send({"command": command, "tasks": 6}).id for _ in range(2)]
        (open_folder / "go").touch()
        found = [ended(client, number) for number in numbers]
        assert [(job.state, job.finished) for job in found] == [("done", 6)] * 4
        assert found[2].moved == "at gm/1, because gm/0 does not answer"
        told = volery("job", str(numbers[2]), "--api", url)
        assert "scheduled at gm/1, because gm/0 does not answer" in told
        with urllib.request.urlopen(f"{url}{frame.JOBS}/{numbers[2]}") as page:
            assert b"at gm/1, because gm/0 does not answer" in page.read()
    notes = (open_folder / "notes").read_text().split()
    assert sorted(notes) == sorted(f"{number}/{place}" for number in numbers for place in range(6))


@pytest.mark.slow
def test_a_global_master_that_was_only_stopped_starts_nothing_of_what_was_moved(open_folder: Path, broker: str) -> None:
    started(open_folder, broker)
    command = NOTES.replace("FOLDER", str(open_folder))
    with serving(*hosts(open_folder)) as (api, gm, *_), Client(api.ready()["api"]) as client:
        numbers = sent(client, command)
        _stop_and_go(gm, client, numbers[0])
        numbers += [client.send({"command": command, "tasks": 6}).id for _ in range(2)]
        (open_folder / "go").touch()
        assert [(job.state, job.finished) for job in (ended(client, number) for number in numbers)] == [("done", 6)] * 4
    notes = (open_folder / "notes").read_text().split()
    assert sorted(notes) == sorted(f"{number}/{place}" for number in numbers for place in range(6))


def _stop_and_go(gm: Serving, client: Client, number: int) -> None:
    gm.running.send_signal(signal.SIGSTOP)
    until_moved(client, number)
    gm.running.send_signal(signal.SIGCONT)
