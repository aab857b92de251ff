"""The claims on a cell, and the log of its changes."""

from __future__ import annotations

import pytest

from volery.architectures.omega.claims import LOG_MIN, CellClaim, ChangeLog, Claims
from volery.architectures.omega.firstfit import Rings
from volery.architectures.omega.layout import Layout
from volery.core.model import Cluster, Task, Time
from volery.core.streams import Streams
from volery.roles.node import Completed, Kill, Launch
from volery.sim.effects import RecordingPort, Sent


class Cell:
    """Claims on two machines with two slots, and the claims that have ended."""

    def __init__(self) -> None:
        cluster = Cluster.uniform(2, slots=2)
        self.layout = Layout(cluster, Rings(cluster, Streams(0).of("rings")))
        self.claims, self.port = Claims(self.layout), RecordingPort("cell/0")
        self.freed: list[tuple[CellClaim, Time]] = []
        self.claims.open(self.port, lambda claim, now: self.freed.append((claim, now)))

    def begun(self, task: int, machine: int) -> CellClaim:
        claim = self.claims.claim("scheduler/0", Task(task, 0), machine)
        assert claim is not None
        self.claims.begin(claim)
        return claim


def test_a_full_machine_gives_nothing_until_a_task_has_ended() -> None:
    cell = Cell()
    first, _ = cell.begun(0, 0), cell.begun(1, 0)
    assert cell.claims.claim("scheduler/1", Task(2, 0), 0) is None
    cell.claims.ended(Completed(0), 7)
    assert cell.freed == [(first, 7)]
    assert cell.claims.claim("scheduler/1", Task(2, 0), 0) is not None


def test_tasks_are_launched_and_killed_on_their_machines() -> None:
    cell = Cell()
    cell.begun(0, 1)
    cell.claims.withdraw((0, 5), 0)
    sent = [(effect.to, type(effect.message)) for effect in cell.port.drain() if isinstance(effect, Sent)]
    assert sent == [("node/1", Launch), ("node/1", Kill)]


def test_a_claim_that_is_undone_leaves_nothing() -> None:
    cell = Cell()
    claim = cell.claims.claim("scheduler/0", Task(0, 0), 0)
    assert claim is not None
    with pytest.raises(AssertionError):
        cell.claims.check_rest()
    cell.claims.undo(claim)
    cell.claims.check()
    cell.claims.check_rest()


def test_an_end_that_is_reported_again_frees_nothing() -> None:
    cell = Cell()
    cell.begun(0, 0)
    cell.claims.ended(Completed(0), 1)
    cell.claims.ended(Completed(0), 2)
    assert [now for _, now in cell.freed] == [1]
    cell.claims.check_rest()


def test_what_others_hold_is_part_of_the_account() -> None:
    cell = Cell()
    claim = cell.claims.claim("scheduler/0", Task(0, 0), 0)
    assert claim is not None
    with pytest.raises(AssertionError, match="amounts without a task"):
        cell.claims.check()
    cell.claims.check([(claim.machine, claim.packed)])


def test_each_scheduler_is_sent_each_changed_machine_once() -> None:
    log = ChangeLog(5)
    for machine in (3, 1, 3):
        log.add(machine)
    assert log.unseen("scheduler/0") == [3, 1]
    assert log.unseen("scheduler/0") == []
    log.add(2)
    assert log.unseen("scheduler/0") == [2]
    assert log.unseen("scheduler/1") == [3, 1, 2]


def test_a_scheduler_that_has_not_looked_for_long_is_sent_all_machines() -> None:
    log = ChangeLog(5)
    log.add(4)
    assert log.unseen("scheduler/0") == [4]
    for _ in range(2 * LOG_MIN):
        log.add(0)
    log.trim()
    assert log.unseen("scheduler/0") == [0, 1, 2, 3, 4]
    log.add(1)
    assert log.unseen("scheduler/0") == [1]
