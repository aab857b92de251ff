"""The folder of the API restored from a copy, emptied and moved, beside hosts that run on, over NATS."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.live.commands import Serving, serving
from tests.live.conftest import CALLS, RUN_AS

from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.status import ENDED_JOBS, JobStatus

LIMIT_S = 60
CONFIG = f"""
run_as = "{RUN_AS}"
calls = {CALLS}
api = "127.0.0.1:0"
folder = "f"
broker = "BROKER"
name = "NAME"
[parameters]
gms = 2
lms = 2
reliable = true
detection_s = 2.0
[[machines]]
count = 4
slots = 2
[hosts]
gm-0 = ["gm/0"]
gm-1 = ["gm/1"]
rest = ["lm/*", "node/*"]
"""
OTHERS = ("gm-0", "gm-1", "rest")
GIVE_UP = "--give-up-jobs"


class Site:
    """A federation of which the API has a folder of its own.

    Args:
        name: of the federation: the tests share a broker.
    """

    def __init__(self, folder: Path, broker: str, name: str) -> None:
        self.folder = folder
        self.api, self.others = folder / "api", folder / "others"
        self.notes = folder / "notes"
        self.notes.touch()
        self.notes.chmod(0o666)
        for machine in (self.api, self.others):
            machine.mkdir()
            (machine / "federation.toml").write_text(CONFIG.replace("BROKER", broker).replace("NAME", name))

    def serve_others(self) -> list[list[str]]:
        return [["serve", host, "--config", str(self.others / "federation.toml")] for host in OTHERS]

    def serve_api(self, *more: str) -> list[str]:
        return ["serve", "api", "--config", str(self.api / "federation.toml"), *more]

    @contextmanager
    def api_at_work(self, *more: str) -> Iterator[tuple[Serving, Client]]:
        with serving(self.serve_api(*more)) as (api,), Client(api.ready()["api"]) as client:
            yield api, client

    def noting(self, text: str) -> str:
        """A command that leaves a text in a file once it has run."""
        return f"echo {text} >> {self.notes}"

    def noted(self) -> list[str]:
        return self.notes.read_text().split()

    def copy(self, to: str) -> Path:
        """Back up what the API's machine has, while it runs, too."""
        shutil.copytree(self.api, self.folder / to, ignore=shutil.ignore_patterns("jobs.sqlite*"))
        store = Path("f", "jobs.sqlite")
        with (
            closing(sqlite3.connect(self.api / store)) as one,
            closing(sqlite3.connect(self.folder / to / store)) as other,
        ):
            one.backup(other)
        return self.folder / to

    def restore(self, copy: Path) -> None:
        shutil.rmtree(self.api)
        shutil.copytree(copy, self.api)

    def empty(self) -> None:
        shutil.rmtree(self.api / "f")


def ended(client: Client, number: int) -> JobStatus:
    for status in client.events(number):
        if isinstance(status, JobStatus) and status.ended:
            return status
    raise AssertionError("its events have ended before the job")


@pytest.fixture
def site(open_folder: Path, broker: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    name = f"r{abs(hash(request.node.name)) % 10**9}"
    found = Site(open_folder, broker, name)
    with serving(*found.serve_others()):
        yield found


def run(client: Client, site: Site, texts: list[str]) -> list[int]:
    """Jobs that have run, each of which has left its text."""
    numbers = [client.send({"command": site.noting(text)}).id for text in texts]
    assert [ended(client, number).state for number in numbers] == ["done"] * len(texts)
    return numbers


def test_an_api_restored_from_an_older_copy_is_refused_until_the_jobs_since_are_given_up(site: Site) -> None:
    with site.api_at_work() as (api, client):
        before = run(client, site, ["a", "b"])
        api.stop()
    copy = site.copy("monday")
    with site.api_at_work() as (api, client):
        since = run(client, site, ["c", "d", "e"])
        api.stop()
    site.restore(copy)
    told = serving_fails(site)
    assert "jobs.sqlite: is older than it was: it has 2 jobs" in told
    assert "knows 5 jobs" in told
    assert GIVE_UP in told
    with site.api_at_work(GIVE_UP) as (api, client):
        after = run(client, site, ["f", "g", "h"])
        assert [client.job(number).state for number in before] == ["done"] * 2
        with pytest.raises(InputError, match="no such job"):
            client.job(since[0])
        api.stop()
    assert len({*before, *since, *after}) == 8, "no number is given twice"
    assert sorted(site.noted()) == list("abcdefgh")
    with site.api_at_work() as (_, client):
        assert run(client, site, ["i"]) == [8], "it is asked for once"


def serving_fails(site: Site) -> str:
    """The error of an API that does not start."""
    with serving(site.serve_api()) as (api,):
        _, errors = api.running.communicate(timeout=LIMIT_S)
        assert api.running.returncode == 2, errors
        assert "Traceback" not in errors
        return errors


@pytest.mark.slow
def test_an_api_with_an_empty_folder_is_refused_and_then_gives_no_number_again(site: Site) -> None:
    with site.api_at_work() as (api, client):
        before = run(client, site, ["a", "b"])
        api.running.kill()
    site.empty()
    told = serving_fails(site)
    assert "jobs.sqlite: is missing" in told
    assert not (site.api / "f" / "jobs.sqlite").exists(), "nothing is made"
    with site.api_at_work(GIVE_UP) as (_, client):
        after = run(client, site, ["c", "d"])
    assert len({*before, *after}) == 4
    assert sorted(site.noted()) == list("abcd")


@pytest.mark.slow
def test_an_api_moves_to_another_machine_with_its_folder_and_nothing_else_is_asked(site: Site) -> None:
    with site.api_at_work() as (api, client):
        before = run(client, site, ["a"])
        api.stop()
    moved = site.copy("moved")
    shutil.rmtree(site.api)
    site.api = moved
    with site.api_at_work() as (_, client):
        assert [client.job(number).state for number in before] == ["done"]
        assert run(client, site, ["b"]) == [1]


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.slow
def test_a_job_that_runs_on_is_recognised_by_a_restored_api_and_runs_once(site: Site) -> None:
    go = site.folder / "go"
    with site.api_at_work() as (api, client):
        number = client.send({"command": f"{site.noting('begun')}; while ! test -e {go}; do sleep 0.05; done"}).id
        until(lambda: site.noted() == ["begun"], "it begins")
        copy = site.copy("copy")
        run(client, site, ["since"])
        api.running.kill()
    site.restore(copy)
    with site.api_at_work(GIVE_UP) as (_, client):
        until(lambda: client.job(number).running == 1, "it is shown as running again")
        go.touch()
        assert ended(client, number).state == "done"
        assert run(client, site, ["after"]) == [2]
    assert site.noted() == ["begun", "since", "after"]


@pytest.mark.slow
def test_a_job_of_which_the_end_is_lost_with_the_store_fails_and_why_tells_it_before(site: Site) -> None:
    go = site.folder / "go"
    with site.api_at_work() as (api, client):
        number = client.send({"command": f"while ! test -e {go}; do sleep 0.05; done"}).id
        until(lambda: client.job(number).running == 1, "it runs")
        copy = site.copy("copy")
        go.touch()
        assert ended(client, number).state == "done"
        run(client, site, ["x"])  # stored on the disk, so that the node's host keeps the end no longer
        api.stop()
    site.restore(copy)
    with site.api_at_work(GIVE_UP) as (_, client):
        until(lambda: "its scheduler has finished it" in client.why(number).reason, "why is not silent")
        job = ended(client, number)
        assert (job.state, job.reason) == ("failed", "the ends of 1 tasks were not reported")


class Load:
    """Users who submit one job after the other, whatever happens to the API.

    Attributes:
        receipts: number of a job and the text that it leaves, for each receipt.
    """

    def __init__(self, site: Site, origin: str) -> None:
        self.site = site
        self.origin = origin
        self.receipts: list[tuple[int, str]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self.url = ""

    def begin(self, url: str) -> None:
        self.url = url
        self._thread.start()

    def reach(self, count: int) -> None:
        end = time.monotonic() + LIMIT_S
        while len(self.receipts) < count:
            assert time.monotonic() < end, f"{len(self.receipts)} of {count} jobs were submitted"
            time.sleep(0.01)

    def end(self) -> None:
        self._stopping.set()
        self._thread.join(LIMIT_S)

    def _submit(self) -> None:
        with Client(self.url) as client:
            while not self._stopping.is_set():
                text = f"{self.origin}{len(self.receipts)}"
                try:
                    receipt = client.send({"command": f"{self.site.noting(text)}; sleep 0.05"})
                except InputError:
                    continue
                self.receipts.append((receipt.id, text))


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["restored", "emptied", "moved"])
def test_an_api_that_loses_its_folder_under_load_shows_nothing_as_done_that_did_not_finish(
    site: Site, harm: str
) -> None:
    loads = [Load(site, "x"), Load(site, "y")]  # each text tells of which store its job was
    with site.api_at_work() as (api, client):
        loads[0].begin(client.api)
        loads[0].reach(15)
        copy = site.copy("copy")
        loads[0].reach(30)
        api.running.kill()
        loads[0].end()
    if harm == "restored":
        site.restore(copy)
    elif harm == "emptied":
        site.empty()
    if harm != "moved":
        serving_fails(site)
    with site.api_at_work(*([] if harm == "moved" else [GIVE_UP])) as (_, client):
        loads[1].begin(client.api)
        loads[1].reach(15)
        loads[1].end()
        end = time.monotonic() + 180
        while any(job.state not in ENDED_JOBS for job in client.jobs(limit=1000)):
            assert time.monotonic() < end, [job for job in client.jobs(limit=1000) if job.state not in ENDED_JOBS]
            time.sleep(0.1)
        states = {job.id: job.state for job in client.jobs(limit=1000)}
    noted = set(site.noted())
    receipts = [receipt for load in loads for receipt in load.receipts]
    assert len({number for number, _ in receipts}) == len(receipts), "a number was given twice"
    for number, text in receipts:
        if states.get(number) == "done":
            assert text in noted, f"job {number} is shown as done and never ran"
    assert all(states[number] == "done" for number, _ in loads[1].receipts), "jobs after the restore run"
    if harm == "moved":
        assert [states[number] for number, _ in loads[0].receipts] == ["done"] * len(loads[0].receipts)
