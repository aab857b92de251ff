"""A task that runs again does so as another attempt, in a folder of its own, and people see it numbered 0, 1, 2."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.live.commands import serving
from tests.live.conftest import CALLS, RUN_AS

from volery.live.client import Client
from volery.live.status import JobStatus, TaskStatus

CONFIG = f"""
run_as = "{RUN_AS}"
calls = {CALLS}
api = "127.0.0.1:0"
folder = "f"
[parameters]
gms = 2
lms = 2
reliable = RELIABLE
[[machines]]
count = 4
"""
SCRIPT = "echo $VOLERY_ATTEMPT >> FOLDER/seen; test -e FOLDER/second && exit 0; echo partial > out.txt; sleep 600"


@pytest.fixture
def folder(open_folder: Path) -> Path:
    open_folder.chmod(0o777)
    (open_folder / "federation.toml").write_text(CONFIG.replace("RELIABLE", "false"))
    return open_folder


def until_seen(folder: Path, line_count: int) -> list[str]:
    """The attempts that have begun, as they themselves have seen it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = (folder / "seen").read_text().splitlines() if (folder / "seen").exists() else []
        if len(lines) >= line_count:
            return lines
        time.sleep(0.02)
    raise AssertionError("the task does not begin")


def until_running(client: Client, job: int, attempt: int) -> TaskStatus:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        task = client.task(job, 0)
        if (task.state, task.attempt) == ("running", attempt):
            return task
        time.sleep(0.02)
    raise AssertionError(f"attempt {attempt} is not reported: {task}")


def ended(client: Client, job: int) -> JobStatus:
    return next(told for told in client.events(job) if isinstance(told, JobStatus) and told.ended)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_an_earlier_attempt_has_left_is_no_output_of_a_later_one(folder: Path, how: signal.Signals) -> None:
    words = ["up", str(folder / "federation.toml")]
    job = {"command": SCRIPT.replace("FOLDER", str(folder)), "outputs": ["out.txt"]}
    with serving(words) as (first,), Client(first.ready()["api"]) as client:
        number = client.send(job).id
        before = until_running(client, number, 0)
        until_seen(folder, 1)
        first.running.send_signal(how)
        first.running.wait(30)
    with serving(words) as (second,), Client(second.ready()["api"]) as client:
        again = until_running(client, number, 1)
        assert until_seen(folder, 2) == ["0", "1"]
        assert again.folder != before.folder
        assert Path(before.folder, "out.txt").read_text() == "partial\n", "the earlier one's output is kept"
        second.running.send_signal(how)
        second.running.wait(30)
    (folder / "second").touch()
    with serving(words) as (third,), Client(third.ready()["api"]) as client:
        job_status = ended(client, number)
        assert (job_status.state, "it left no out.txt" in job_status.reason) == ("failed", True)
        assert client.task(number, 0).attempt == 2
        assert until_seen(folder, 3) == ["0", "1", "2"]
        third.stop()


@pytest.mark.slow
def test_where_hosts_may_die_people_see_small_numbers_of_attempts(folder: Path) -> None:
    (folder / "federation.toml").write_text(CONFIG.replace("RELIABLE", "true"))
    words = ["up", str(folder / "federation.toml")]
    job = {"command": SCRIPT.replace("FOLDER", str(folder)).replace("sleep 600", "sleep 600 & wait")}
    with serving(words) as (first,), Client(first.ready()["api"]) as client:
        number = client.send(job).id
        task = until_running(client, number, 0)
        assert Path(task.folder).name == "0.0"
        first.running.send_signal(signal.SIGINT)  # an orderly end takes what runs along
        first.running.wait(30)
    with serving(words) as (second,), Client(second.ready()["api"]) as client:
        task = until_running(client, number, 1)
        assert Path(task.folder).name == "0.1"
        second.running.kill()  # it goes on under its supervisor
        second.running.wait(30)
    with serving(words) as (third,), Client(third.ready()["api"]) as client:
        assert until_running(client, number, 1).folder == task.folder
        assert until_seen(folder, 2) == ["0", "1"]
        client.cancel(number)
        assert ended(client, number).state == "cancelled"
        third.stop()
