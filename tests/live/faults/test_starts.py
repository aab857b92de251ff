"""Starts of hosts while another is dead for good, and orderly ends of all of them (decision 66)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from tests.live.chaos.roles import Role
from tests.live.chaos.starts import DEAD, Starts

from volery.cli.operations import _host_row
from volery.live.client import Client
from volery.live.status import HostStatus

LIMIT_S: Final = 90
DETECTION_S: Final = 3.0
OTHERS: Final = ("gm-1", "lm", "node", "api")


class Bereft(NamedTuple):
    """A federation whose Global Master gm/0 is dead for good, and given up."""

    starts: Starts
    roles: dict[str, Role]
    folder: Path

    def restart(self, name: str) -> None:
        """Kill a host, start it, and wait until it is at work."""
        self.roles[name].kill()
        self.follow(self.starts.started(self.roles[name]))

    def follow(self, *watched: Any) -> None:
        self.starts.follow(list(watched))
        assert not self.starts.wrong, self.starts.wrong


def until(holds: Callable[[], Any]) -> Any:
    """The first true answer; an API that does not answer has none."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if answer := holds():
                return answer
        except httpx2.TransportError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def host_of(client: Client, name: str) -> HostStatus:
    return next(host for host in client.hosts() if host.name == name)


@pytest.fixture(scope="module")
def bereft(broker: str) -> Iterator[Bereft]:
    with tempfile.TemporaryDirectory(prefix="volery-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        starts = Starts(folder, broker, detection_s=DETECTION_S)
        with starts.at_work() as roles, Client(starts.url) as client:
            until(lambda: host_of(client, DEAD).state == "lost")
            numbers = [client.send({"command": "true"}).id for _ in range(2)]
            until(lambda: all(client.job(number).ended for number in numbers))  # one of them was moved
            yield Bereft(starts, roles, folder)


def test_a_host_that_has_not_opened_is_named_everywhere_with_what_it_waits_for(bereft: Bereft) -> None:
    """And while a Local Master comes back, no node is shown as lost."""
    lost = set[str]()
    with Client(bereft.starts.url) as client:
        bereft.roles["lm"].kill()
        until(lambda: host_of(client, "lm").state == "lost")
        waits = client.send({"command": "true"})
        watched = bereft.starts.started(bereft.roles["lm"])

        def is_opening() -> bool:
            lost.update(node.address for node in client.nodes(state="lost"))
            host = host_of(client, "lm")
            return (host.state, host.waits_for) == ("opening", (DEAD,))

        until(is_opening)
        assert _host_row(host_of(client, "lm"))[1] == f"opening, waits for {DEAD}", "a row of `volery hosts`"
        told = f"lm/0, lm/0/standby, lm/1, lm/1/standby (host lm) have not opened yet, waiting for {DEAD}"
        assert told in client.why(waits.id).absent
        assert told in httpx2.get(f"{bereft.starts.url}/dashboard/hosts").text
        assert f'volery_host_waits{{host="lm",for="{DEAD}"}} 1' in httpx2.get(f"{bereft.starts.url}/metrics").text
        bereft.follow(watched)
        end = time.monotonic() + 2 * DETECTION_S
        while time.monotonic() < end or not client.job(waits.id).ended:
            lost.update(node.address for node in client.nodes(state="lost"))
            assert time.monotonic() < end + LIMIT_S
            time.sleep(0.05)
        assert host_of(client, "lm").waits_for == ()
    assert not lost


def test_an_api_that_restarts_does_not_trust_a_global_master_that_is_still_dead(bereft: Bereft) -> None:
    bereft.restart("api")
    with Client(bereft.starts.url) as client:
        absent = client.plan({"command": "true"}).absent
        assert any(words.startswith(f"gm/0 (host {DEAD}) has never answered since this API") for words in absent)
        jobs = [client.send({"command": "true"}).id for _ in range(4)]
        moved = [client.job(number).moved for number in jobs]
        assert sorted(moved) == ["", "", *["at gm/1, because gm/0 does not answer"] * 2]
        until(lambda: all(client.job(number).state == "done" for number in jobs))
        assert host_of(client, DEAD).state == "unseen"


def test_tasks_run_again_once_and_have_not_failed_after_sigterm_of_all_hosts(bereft: Bereft) -> None:
    notes, go = bereft.folder / "notes", bereft.folder / "go"
    notes.touch()
    notes.chmod(0o666)
    script = (
        f"echo began $VOLERY_INDEX $VOLERY_ATTEMPT >> {notes}; trap 'exit 7' TERM; "
        f"while ! test -e {go}; do sleep 0.05; done; echo ended $VOLERY_INDEX $VOLERY_ATTEMPT >> {notes}"
    )
    with Client(bereft.starts.url) as client:
        number = client.send({"command": ["sh", "-c", script], "tasks": 4}).id
        until(lambda: notes.read_text().count("began") == 4)
        others = [bereft.roles[name] for name in OTHERS]
        for role in others:
            role.end_soon()
        assert [role.running.wait(LIMIT_S) for role in others] == [0, 0, 0, 0]
        go.touch()
        bereft.follow(*map(bereft.starts.started, others))
        job = until(lambda: (job := client.job(number)).ended and job)
        assert (job.state, job.finished, job.failed, job.killed) == ("done", 4, 0, 0)
        assert {task.attempt for task in client.tasks(number)} == {1}
    again = [f"{what} {place} 1" for place in range(4) for what in ("began", "ended")]
    assert sorted(notes.read_text().splitlines()) == sorted([*(f"began {place} 0" for place in range(4)), *again])


@pytest.mark.slow
def test_a_host_that_gets_sigterm_while_it_waits_for_others_ends_at_once(bereft: Bereft) -> None:
    role = bereft.roles["lm"]
    with Client(bereft.starts.url) as client:
        role.kill()
        watched = bereft.starts.started(role)
        until(lambda: host_of(client, "lm").state == "opening")
        role.end_soon()
        assert role.running.wait(LIMIT_S) == 0
        watched.look()
        assert watched.start is None
    bereft.follow(bereft.starts.started(role))


def test_hosts_that_start_while_another_is_dead_for_good_are_at_work_within_their_limits(
    open_folder: Path, broker: str
) -> None:
    """`python -m tests.live.chaos.starts` makes it 300 starts."""
    starts = Starts(open_folder, broker)
    starts.play(4)
    assert len(starts.measured) >= 4
    assert not starts.wrong, starts.wrong
