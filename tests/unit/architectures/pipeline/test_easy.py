"""EASY backfilling: who may start before the first in line, and that it is never delayed by that."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.architectures.pipeline.runs import Row, cores_cluster, run, starts, trace_of_rows

from volery.architectures.pipeline.policies import FAR
from volery.core.model import SECOND


def test_what_ends_in_time_or_leaves_enough_is_backfilled() -> None:
    """4 cores, 2 taken until 10. The first in line wants 3, at 10. Behind it: one of 2 for 9 s would delay it, one of 2
    for 5 s would not, and one of 1 for 99 s leaves it its 3.
    """
    rows = [(0, 2, 10), (1, 3, 5), (2, 2, 9), (3, 2, 5), (8.5, 1, 99)]
    assert starts(run("backfill", trace_of_rows(rows), cores_cluster(4))) == [0, 10, 15, 3, 8.5]


def test_other_machines_than_the_reserved_one_are_free_to_all() -> None:
    """The first in line wants 4 of 4 cores; machine 0 will have them at 10, machine 1 at 30."""
    rows = [(0, 3, 10), (0, 2, 30), (1, 4, 5), (2, 1, 99), (2, 1, 99), (2, 1, 99)]
    records = run("backfill", trace_of_rows(rows), cores_cluster(4, 4))
    assert starts(records)[:5] == [0, 0, 10, 2, 2]
    assert list(records.worker[:5]) == [0, 1, 0, 1, 1]
    assert starts(records)[5] == 15, "it would have delayed the first in line"


def test_a_task_that_ends_early_moves_the_reservation() -> None:
    """Machine 1 is expected at 30 and comes free at 4: the first in line starts there."""
    rows: list[Row] = [(0, 4, 10, 10), (0, 4, 4, 30), (1, 4, 5, 5), (2, 4, 1, 1)]
    records = run("backfill", trace_of_rows(rows), cores_cluster(4, 4))
    assert starts(records) == [0, 0, 4, 9]
    assert records.worker[2] == 1


def test_a_task_that_runs_longer_than_estimated_keeps_the_reservation_waiting() -> None:
    """Expected at 10, ends at 20. From 10 on it is due any moment, so that nothing that needs its cores may start."""
    rows: list[Row] = [(0, 2, 20, 10), (1, 4, 5, 5), (11, 2, 1, 1)]
    assert starts(run("backfill", trace_of_rows(rows), cores_cluster(4))) == [0, 20, 25]


def test_it_plans_with_limits_and_not_with_estimates() -> None:
    """2 of 4 cores are taken until 4 by the estimate, 10 by the limit; one of 2 with a limit of 5 s is in time."""
    rows: list[Row] = [(0, 2, 4, 4), (1, 4, 5, 5), (2, 2, 1, 99)]
    assert starts(run("backfill", trace_of_rows(rows), cores_cluster(4))) == [0, 4, 9]
    assert starts(run("backfill", trace_of_rows(rows, limit_s=(10, 5, 5)), cores_cluster(4))) == [0, 4, 2]
    assert starts(run("backfill", trace_of_rows(rows, limit_s=(10, 5, -1)), cores_cluster(4))) == [0, 4, 9]


def test_a_limit_is_as_long_on_a_fast_machine_and_an_estimate_is_not() -> None:
    """At twice the speed one of 8 s, by its limit, is too long for the 4 s until 5; estimated as 8 s it is not."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 4, 5, 5), (1, 2, 8, 8)]
    fast = cores_cluster(4, speeds=(2,))
    assert starts(run("backfill", trace_of_rows(rows, limit_s=(5, 9, -1)), fast)) == [0, 5, 1]
    assert starts(run("backfill", trace_of_rows(rows, limit_s=(5, 9, 8)), fast)) == [0, 5, 7.5]
    assert starts(run("backfill", trace_of_rows(rows, limit_s=(5, 9, 4)), fast)) == [0, 5, 1]


def test_speeds_count() -> None:
    """On a machine of twice the speed a task of 8 s ends in 4 s, in time for the first in line at 5."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 4, 5, 5), (1, 2, 8, 8)]
    assert starts(run("backfill", trace_of_rows(rows), cores_cluster(4, speeds=(2,)))) == [0, 5, 1]


class Textbook:
    """EASY on machines as its definition reads: everything is counted anew for every event."""

    def __init__(self, rows: list[Row], cores: tuple[int, ...]) -> None:
        self.rows = [(round(r[0] * SECOND), r[1], round(r[2] * SECOND), round(r[-1] * SECOND)) for r in rows]
        self.free = list(cores)
        self.running: list[tuple[int, int, int, int]] = []
        self.queue: list[int] = []
        self.starts = [-1] * len(rows)

    def play(self) -> list[int]:
        arrivals = list(range(len(self.rows)))
        while arrivals or self.running:
            ends = min(self.running)[0] if self.running else FAR
            if arrivals and self.rows[arrivals[0]][0] < ends:
                now = self.rows[arrivals[0]][0]
                self.queue.append(arrivals.pop(0))
            else:
                now = ends
                self.running.sort()
                _, _, machine, task = self.running.pop(0)
                self.free[machine] += self.rows[task][1]
            self.cycle(now)
        return self.starts

    def fitting(self, task: int, besides: int = -1) -> list[int]:
        return [m for m, free in enumerate(self.free) if free >= self.rows[task][1] and m != besides]

    def start(self, task: int, machines: list[int], now: int) -> None:
        machine = min(machines, key=lambda m: (self.free[m], m))
        self.queue.remove(task)
        self.free[machine] -= self.rows[task][1]
        self.starts[task] = now
        self.running.append((now + self.rows[task][2], now + self.rows[task][-1], machine, task))

    def cycle(self, now: int) -> None:
        while self.queue and self.fitting(self.queue[0]):
            self.start(self.queue[0], self.fitting(self.queue[0]), now)
        if not self.queue:
            return
        reserved, at = min(((m, self.room(m)) for m in range(len(self.free))), key=lambda pair: pair[1])
        for task in self.queue[1:]:
            machines = self.fitting(task, reserved)
            ends_in_time = now + self.rows[task][-1] <= at
            if reserved in self.fitting(task) and (ends_in_time or self.spare(reserved, at) >= self.rows[task][1]):
                machines.append(reserved)
            if machines:
                self.start(task, machines, now)

    def room(self, machine: int) -> int:
        free = self.free[machine]
        for _, expected, on, task in sorted(self.running, key=lambda run: run[1]):
            if on == machine:
                free += self.rows[task][1]
                if free >= self.rows[self.queue[0]][1]:
                    return expected
        return FAR

    def spare(self, machine: int, at: int) -> int:
        back = sum(self.rows[task][1] for _, expected, on, task in self.running if on == machine and expected <= at)
        return self.free[machine] + back - self.rows[self.queue[0]][1]


@pytest.mark.parametrize("cores", [(8,), (8, 8, 8), (4, 8, 2, 8)])
@pytest.mark.parametrize("seed", range(8))
def test_it_agrees_with_the_definition_on_random_work(seed: int, cores: tuple[int, ...]) -> None:
    """Estimates are wrong in both directions; the times are such that no two events fall together."""
    draw = Random(seed)
    count = 120
    rows: list[Row] = []
    for at in sorted(draw.random() * 30 * count / len(cores) / 2 for _ in range(count)):
        run_s = draw.random() * 60
        estimate_s = run_s * draw.choice((0.3, 1, 1, 2, 10))
        rows.append((round(at, 5), draw.choice((1, 1, 2, 3, 4, 6, 8)), round(run_s, 5), round(estimate_s, 5)))
    found = run("backfill", trace_of_rows(rows), cores_cluster(*cores)).start_us
    assert list(found) == Textbook(rows, cores).play()
    assert found != run("pipeline", trace_of_rows(rows), cores_cluster(*cores), T2="fifo", T3="strict").start_us


@pytest.mark.parametrize("cores", [(8,), (4, 8, 2, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_with_limits_it_agrees_with_the_definition_whatever_the_estimates(seed: int, cores: tuple[int, ...]) -> None:
    """What a limit ends has run for the limit, which is the estimate of the definition; some jobs have none."""
    draw = Random(seed)
    rows, told, limit_s = list[Row](), list[Row](), list[float]()
    for at in sorted(round(draw.random() * 900 / len(cores), 5) for _ in range(120)):
        run_s = round(draw.random() * 60, 5)
        limit = round(run_s * draw.choice((0.5, 1, 1.5, 10)), 5) if draw.random() < 0.8 else -1
        size, estimate_s = draw.choice((1, 1, 2, 3, 4, 6, 8)), round(draw.random() * 99, 5)
        rows.append((at, size, run_s, estimate_s))
        told.append((at, size, run_s if limit < 0 else min(run_s, limit), estimate_s if limit < 0 else limit))
        limit_s.append(limit)
    found = run("backfill", trace_of_rows(rows, limit_s=limit_s), cores_cluster(*cores)).start_us
    assert list(found) == Textbook(told, cores).play()
