"""Pending evictions: launches wait for the ends of attempts on the same machine."""

from __future__ import annotations

import pytest

from volery.architectures.pipeline.attempts import AfterEviction, Evictions, PendingEviction
from volery.architectures.pipeline.policies import JobRecord, Kind, Running, Waiting
from volery.core.model import NEVER, Task
from volery.policies.capacity import Ladders

KIND = Kind(0, Ladders([(1,)])[()], 0b11, possible=True)
JOB = JobRecord(0, "", 0, NEVER, 0, 1, 9)


def running(task: int, machine: int, attempt: int = 0) -> Running:
    return Running(Waiting(Task(task, 0), JOB, KIND, task, 0, 1, 1, 0), machine, 0, 1, attempt=attempt)


def evicted(evictions: Evictions, one: Running) -> PendingEviction:
    eviction = PendingEviction(one, one.attempt, AfterEviction.QUEUE, NEVER)
    evictions.add(eviction)
    return eviction


def test_a_launch_waits_for_the_last_eviction_on_its_machine() -> None:
    evictions, heir = Evictions(), running(9, 0)
    first, second = evicted(evictions, running(1, 0)), evicted(evictions, running(2, 0))
    assert evictions.maybe_hold(heir)
    assert not evictions.maybe_hold(running(8, 1)), "nothing is evicted there"
    assert evictions.close(1, 0) == (first, []), "another has not ended"
    assert evictions.close(2, 0) == (second, [heir])
    assert not evictions.maybe_hold(heir)
    evictions.check_rest()


def test_the_end_of_another_attempt_closes_nothing() -> None:
    evictions = Evictions()
    evicted(evictions, running(1, 0, attempt=1))
    assert evictions.close(1, 0) == (None, [])
    assert evictions.any_at(0)
    with pytest.raises(AssertionError, match="were not reported"):
        evictions.check_rest()


def test_a_launch_that_is_dropped_does_not_follow() -> None:
    evictions, heir = Evictions(), running(9, 0)
    eviction = evicted(evictions, running(1, 0))
    evictions.maybe_hold(heir)
    evictions.drop(heir)
    assert evictions.close(1, 0) == (eviction, [])
    evictions.check_rest()


def test_evictions_of_a_machine_that_has_failed_are_closed_together() -> None:
    evictions = Evictions()
    lost = [evicted(evictions, running(1, 0)), evicted(evictions, running(2, 0))]
    kept = evicted(evictions, running(1, 1, attempt=1))
    assert evictions.clear(0) == lost
    assert evictions.of_task(1) == [kept]
    assert not evictions.any_at(0)
