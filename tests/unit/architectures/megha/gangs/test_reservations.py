"""Reservations of a Local Master for gangs: all units or none, in order of age, and never for ever."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.megha.words import request
from tests.unit.architectures.parts import Alone, messages, tasks

from volery.architectures.megha.gangs.messages import (
    CommitRequest,
    MembersReleased,
    PrepareRequest,
    PrepareVote,
    ReleaseRequest,
)
from volery.architectures.megha.gangs.reservations import LEASE_PERIODS, LEASES
from volery.architectures.megha.messages import Refusal, Withdraw
from volery.core.events import Drain, TimerFired
from volery.core.model import SECOND, Cluster, Task
from volery.roles.node import Completed, Launch

PERIOD_US = 5 * SECOND
A, B, C = tasks(1, 0, 0, 0)
D, E = tasks(2, 0, 0)


def lm() -> Alone:
    """lm/0 of two GMs: partition 0 (node/0, node/1) is gm/0's, partition 1 (node/2, node/3) gm/1's."""
    return Alone("megha", "lm/0", Cluster.uniform(4), gms=2, lms=1)


def prepare(
    number: int, partition: int, *placements: tuple[Task, int], since_us: int = 0, is_patient: bool = False
) -> PrepareRequest:
    """Members at positions of a partition."""
    members, places = zip(*placements, strict=True)
    return PrepareRequest(number, partition, members, places, since_us=since_us, is_patient=is_patient)


def votes(effects: list[Any]) -> list[tuple[str, int, int]]:
    return [(to, vote.job, vote.number) for to, vote in messages(effects, PrepareVote)]


def released(effects: list[Any]) -> list[tuple[str, tuple[int, ...]]]:
    return [(to, message.tasks) for to, message in messages(effects, MembersReleased)]


def look(master: Alone, now: int) -> list[Any]:
    """The Local Master looks after its reservations."""
    return master.hear(TimerFired(LEASES), "lm/0", now)


def test_units_are_reserved_and_launched_with_the_commit_once() -> None:
    master = lm()
    effects = master.hear(prepare(1, 0, (A, 0), (B, 1)), "gm/0")
    assert votes(effects) == [("gm/0", 1, 1)]
    assert not messages(effects, Launch), "nothing runs before all have voted"
    assert messages(master.hear(request(1, 0, (D, 0)), "gm/1"), Refusal), "the unit is taken for all others"

    launches = messages(master.hear(CommitRequest((1,)), "gm/0"), Launch)
    assert launches == [("node/0", Launch(1, A)), ("node/1", Launch(2, B))]
    assert not messages(master.hear(CommitRequest((1,)), "gm/0"), Launch), "a repeat launches nothing"


def test_one_unit_that_is_taken_refuses_all_and_takes_nothing() -> None:
    master = lm()
    master.hear(request(1, 0, (D, 1)), "gm/1")
    effects = master.hear(prepare(1, 0, (A, 0), (B, 1)), "gm/0")
    assert released(effects) == [("gm/0", (A.id, B.id))]
    assert not votes(effects)
    assert messages(master.hear(request(2, 0, (E, 0)), "gm/1"), Launch), "the other unit is free for anybody"
    assert not messages(master.hear(CommitRequest((1,)), "gm/0"), Launch)


def test_a_refusal_carries_the_state_as_it_is() -> None:
    master = lm()
    master.hear(request(1, 0, (D, 1)), "gm/1")
    ((_, message),) = messages(master.hear(prepare(1, 0, (A, 0), (B, 1)), "gm/0"), MembersReleased)
    (change,) = message.update.changes
    assert (change.partition, change.freed, change.taken) == (0, b"\x01", b""), "gm/0 has taken both off its view"


def test_what_is_released_is_free() -> None:
    master = lm()
    master.hear(prepare(1, 0, (A, 0), (B, 1)), "gm/0")
    assert released(master.hear(ReleaseRequest((A.id, B.id), (0, 0)), "gm/0")) == [("gm/0", (A.id, B.id))]
    assert messages(master.hear(request(1, 0, (D, 0), (E, 1)), "gm/1"), Launch)
    assert not messages(master.hear(CommitRequest((1,)), "gm/0"), Launch), "a commit that comes too late"


def test_a_reservation_ends_by_itself_unless_it_is_repeated() -> None:
    master, asked = lm(), prepare(1, 0, (A, 0), (B, 1))
    master.hear(asked, "gm/0", 0)
    end_us = LEASE_PERIODS * PERIOD_US
    assert not released(look(master, end_us - 1))
    master.hear(asked, "gm/0", end_us - 1)
    assert not released(look(master, end_us))
    assert released(look(master, 2 * end_us)) == [("gm/0", (A.id, B.id))]
    assert messages(master.hear(request(1, 0, (D, 0)), "gm/1"), Launch)


def test_a_cancelled_gang_is_released_whatever_it_waits_for() -> None:
    master = lm()
    master.hear(prepare(1, 0, (A, 0), (B, 1)), "gm/0")
    assert released(master.hear(Withdraw((A.id, B.id)), "gm/0")) == [("gm/0", (A.id, B.id))]


# Two gangs.


def test_a_younger_gang_is_refused_and_an_older_one_waits() -> None:
    master = lm()
    master.hear(prepare(1, 0, (A, 0), since_us=5), "gm/0")
    assert released(master.hear(prepare(1, 0, (D, 0), (E, 1), since_us=6), "gm/1")) == [("gm/1", (D.id, E.id))]

    effects = master.hear(prepare(2, 0, (D, 0), (E, 1), since_us=4), "gm/1")
    assert not votes(effects)
    assert not released(effects), "it waits for the younger one"


@pytest.mark.parametrize("is_committed", [False, True])
def test_who_waits_for_a_younger_gang_is_answered_with_its_outcome(is_committed: bool) -> None:
    master = lm()
    master.hear(prepare(1, 0, (A, 0), since_us=5), "gm/0")
    master.hear(prepare(1, 0, (D, 0), (E, 1), since_us=4), "gm/1")
    outcome = CommitRequest((1,)) if is_committed else ReleaseRequest((A.id,), (0,))
    effects = master.hear(outcome, "gm/0")
    if is_committed:
        assert ("gm/1", (D.id, E.id)) in released(effects)
    else:
        assert votes(effects) == [("gm/1", 2, 1)]


def test_gangs_of_the_same_instant_have_an_order_too() -> None:
    master = lm()
    master.hear(prepare(1, 0, (D, 0)), "gm/0")
    assert not released(master.hear(prepare(1, 0, (A, 0), (B, 1)), "gm/1")), "job 1 is older than job 2"


# Patience.


def test_machines_are_kept_until_what_runs_there_has_ended() -> None:
    master = lm()
    master.hear(request(1, 0, (C, 1)), "gm/1")
    effects = master.hear(prepare(1, 0, (D, 0), (E, 1), is_patient=True), "gm/0")
    assert not votes(effects)
    assert not released(effects)
    assert messages(master.hear(request(2, 0, (B, 0)), "gm/1"), Refusal), "its free machine is closed to others"
    assert not votes(look(master, PERIOD_US))

    master.hear(Completed(C.id), "node/1")
    assert messages(master.hear(request(3, 0, (B, 1)), "gm/1"), Refusal), "so is the one that has become free"
    assert votes(look(master, 2 * PERIOD_US)) == [("gm/0", 2, 1)]
    assert len(messages(master.hear(CommitRequest((1,)), "gm/0"), Launch)) == 2


def test_a_patient_gang_gives_way_to_an_older_one() -> None:
    master = lm()
    master.hear(request(1, 1, (C, 0)), "gm/1")
    master.hear(prepare(1, 1, (D, 0), since_us=7, is_patient=True), "gm/0")
    effects = master.hear(prepare(2, 1, (A, 0), (B, 1), since_us=6, is_patient=True), "gm/1")
    assert released(effects) == [("gm/0", (D.id,))]
    assert released(master.hear(prepare(2, 1, (D, 0), since_us=7, is_patient=True), "gm/0")) == [("gm/0", (D.id,))]
    master.hear(Completed(C.id), "node/2")
    assert votes(look(master, PERIOD_US)) == [("gm/1", 1, 2)]


def test_a_free_machine_that_was_kept_for_a_younger_gang_is_given_to_the_older_one() -> None:
    """Nothing ran on the machine, so nothing ended there, and the older gang waited for ever (a storm)."""
    master = lm()
    master.hear(request(1, 1, (C, 1)), "gm/1")
    master.hear(prepare(1, 1, (D, 0), (E, 1), since_us=7, is_patient=True), "gm/0")
    assert not votes(master.hear(prepare(2, 1, (A, 0), since_us=6, is_patient=True), "gm/1"))
    assert votes(look(master, PERIOD_US)) == [("gm/1", 1, 2)]


def test_a_machine_that_is_drained_cannot_be_waited_for() -> None:
    master = lm()
    master.hear(Drain("node/1", drained=True), "service/0")
    ((_, message),) = messages(master.hear(prepare(1, 0, (A, 0), (B, 1), is_patient=True), "gm/0"), MembersReleased)
    assert message.unusable_tasks == (B.id,)


def test_a_machine_that_is_drained_while_it_is_kept_ends_the_wait() -> None:
    master = lm()
    master.hear(request(1, 0, (C, 1)), "gm/1")
    master.hear(prepare(1, 0, (D, 0), (E, 1), is_patient=True), "gm/0")
    master.hear(Drain("node/1", drained=True), "service/0")
    ((_, message),) = messages(look(master, PERIOD_US), MembersReleased)
    assert message.unusable_tasks == (E.id,)
    assert messages(master.hear(request(2, 0, (B, 0)), "gm/1"), Launch), "the other machine is free again"
