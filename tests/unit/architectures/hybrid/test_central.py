"""Placement by least estimated waiting time."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np

from volery.architectures.hybrid.central import LeastWait
from volery.core.model import SECOND

ALL = np.arange(6)


def least_wait(stale_us: int = 0) -> LeastWait:
    return LeastWait(6, Random(3).random, stale_us=stale_us)


def test_empty_units_come_first_then_the_least_wait() -> None:
    wait = least_wait()
    assert sorted(wait.place(4, 10, ALL, 0)) == sorted(set(wait.wait_us.nonzero()[0].tolist()))
    chosen = wait.place(4, 3, ALL, 0)
    assert sorted(Counter(chosen).values()) == [2, 2], "twice 3 on the two empty ones is less than 10"


def test_placement_equals_one_by_one_to_the_least() -> None:
    stream, wait = Random(5), least_wait()
    plain = [0] * 6
    for _ in range(200):
        count, estimate = stream.randint(1, 9), stream.randint(1, 50)
        wait.place(count, estimate, ALL, 0)
        for _ in range(count):
            plain[plain.index(min(plain))] += estimate
        assert sorted(wait.wait_us.tolist()) == sorted(plain)


def test_what_a_running_task_has_done_counts() -> None:
    wait = least_wait()
    wait.place(6, 100, ALL, 0)
    wait.started(2, 100, 0)
    assert wait.place(1, 100, ALL, 60) == [2]


def test_only_eligible_units_are_taken() -> None:
    assert set(least_wait().place(8, 5, np.array([1, 4]), 0)) == {1, 4}


def test_what_has_ended_waits_no_longer() -> None:
    wait = least_wait()
    unit, _ = wait.place(2, 7, np.array([3]), 0)
    assert not wait.ended(unit, 7, 1)
    assert wait.ended(unit, 7, 2)


def test_a_stale_view_changes_at_its_period_only() -> None:
    wait = least_wait(stale_us=8 * SECOND)
    only = np.array([0, 1])
    for _ in range(4):
        wait.place(50, 60 * SECOND, only, SECOND)
    placed = int(wait.wait_us.sum())
    assert placed == 200 * 60 * SECOND
    assert abs(int(wait.wait_us[0] - wait.wait_us[1])) <= 4 * 68 * SECOND
