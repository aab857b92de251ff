"""Every file and folder of a state folder missing, older, damaged or unreadable, before a start and under way.

What was promised is there, or the federation refuses, names the file and ends with status 2; it never blesses a loss.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.live.commands import LIMIT_S, Serving, serving
from tests.live.conftest import CALLS, RUN_AS

from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.status import JobStatus

CONFIG = f"""
run_as = "{RUN_AS}"
calls = {CALLS}
api = "127.0.0.1:0"
[parameters]
gms = 1
lms = 1
[[machines]]
count = 2
"""
HARMS = ("missing", "older", "damaged", "unreadable")
JOBS = 4
PARTS = (
    "agents",
    "agents/all",
    "jobs.lock",
    "jobs.mark",
    "jobs.sqlite",
    "jobs.sqlite-shm",
    "jobs.sqlite-wal",
    "journal",
    "journal/all-1.journal",
    "journal/all-2.journal",
    "lives",
    "lives/all",
    "lives/all.lock",
    "tasks",
    "tasks/0",
)
OFTEN = ("jobs.sqlite", "missing")
"""The case of `make test`."""
CASES = [
    pytest.param(part, harm, marks=() if (part, harm) == OFTEN else pytest.mark.slow, id=f"{part}-{harm}")
    for part in PARTS
    for harm in HARMS
]


def at_work(folder: Path) -> list[str]:
    return ["up", str(folder / "federation.toml")]


def ended(client: Client, number: int) -> JobStatus | None:
    """A job that has ended; None: the federation ends before."""
    for status in client.events(number):
        if isinstance(status, JobStatus) and status.ended:
            return status
    return None


def run_job(client: Client) -> int:
    number = client.send({"command": "true"}).id
    job = ended(client, number)
    assert job is not None
    assert job.state == "done"
    return number


@pytest.fixture(scope="module")
def seed() -> Iterator[Path]:
    """A folder with `old`, the state after half of the jobs, and `federation`, that of a machine that was killed."""
    folder = Path(tempfile.mkdtemp(prefix="volery-"))
    folder.chmod(0o755)
    (folder / "federation.toml").write_text(CONFIG)
    with serving(at_work(folder)) as (api,):
        with Client(api.ready()["api"]) as client:
            assert [run_job(client) for _ in range(JOBS // 2)] == [0, 1]
        api.stop()
    shutil.copytree(folder / "federation", folder / "old")
    with serving(at_work(folder)) as (api,):
        with Client(api.ready()["api"]) as client:
            assert [run_job(client) for _ in range(JOBS // 2)] == [2, 3]
        api.running.send_signal(signal.SIGKILL)
        api.running.wait(LIMIT_S)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def folder(seed: Path, open_folder: Path) -> Path:
    shutil.copytree(seed, open_folder / "copy")
    return open_folder / "copy"


def harm(folder: Path, part: str, how: str) -> None:
    """Harm a part of the state folder; skips what there is nothing to harm in."""
    path, old = folder / "federation" / part, folder / "old" / part
    if not path.exists() or (how == "older" and not old.exists()) or (how == "damaged" and path.is_dir()):
        pytest.skip(f"{part} cannot be {how}")
    is_folder, content = path.is_dir(), b"" if path.is_dir() else path.read_bytes()
    if how == "damaged" and not content:
        pytest.skip(f"{part} is empty")
    shutil.rmtree(path) if is_folder else path.unlink()
    match how:
        case "older":
            shutil.copytree(old, path) if is_folder else shutil.copy(old, path)
        case "damaged":
            damaged = bytearray(content)
            for place in range(0, len(damaged), max(1, len(damaged) // 40)):
                damaged[place] ^= 0x55
            path.write_bytes(damaged)
        case "unreadable":  # even to root
            path.write_text("x") if is_folder else path.mkdir()


def refused(api: Serving, folder: Path) -> bool:
    """True if a host has ended with an error that names a file of the folder."""
    _, errors = api.running.communicate(timeout=LIMIT_S)
    assert api.running.returncode == 2, errors
    assert "Traceback" not in errors
    assert str(folder) in errors, "no file is named"
    return True


def starts_with_all(folder: Path, jobs: int) -> bool:
    """True if a federation starts with so many jobs, brings them to their ends, and runs another; False: it refuses."""
    with serving(at_work(folder)) as (api,):
        try:
            url = api.ready()["api"]
        except (AssertionError, KeyError):
            return not refused(api, folder)
        with Client(url) as client:
            assert sorted(job.id for job in client.jobs()) == list(range(jobs))
            states = [job.state for number in range(jobs) if (job := ended(client, number)) is not None]
            assert states == ["done"] * jobs
            assert run_job(client) >= jobs
        return True


@pytest.mark.parametrize(("part", "how"), CASES)
def test_a_state_folder_that_was_harmed_has_everything_or_is_refused(folder: Path, part: str, how: str) -> None:
    harm(folder, part, how)
    starts = starts_with_all(folder, JOBS)
    if part == "jobs.sqlite" and how != "older":
        assert not starts, "no empty store takes its place"


@pytest.mark.parametrize(("part", "how"), CASES)
def test_a_state_folder_that_is_harmed_under_way_keeps_what_is_promised(folder: Path, part: str, how: str) -> None:
    promised = JOBS
    with serving(at_work(folder)) as (api,), Client(url := api.ready()["api"]) as client:
        harm(folder, part, how)
        try:
            number = client.send({"command": "true"}).id
            promised += 1
            ended(client, number)
        except InputError as error:
            if api.running.poll() is None and "cannot be written" in str(error):
                health = httpx2.get(f"{url}/healthz")
                assert (health.status_code, part in health.text) == (503, True)
        if api.running.poll() is None:
            api.running.send_signal(signal.SIGTERM)
        _, errors = api.running.communicate(timeout=LIMIT_S)
        assert "Traceback" not in errors
    starts_with_all(folder, promised)
