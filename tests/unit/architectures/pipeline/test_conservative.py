"""Conservative backfilling: nobody who waits is delayed by who came later."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.architectures.pipeline.runs import Row, cores_cluster, run, starts, trace_of_rows
from tests.unit.architectures.pipeline.test_recovery import crashed

from volery.architectures import configure, lookup
from volery.architectures.pipeline.policies import FAR
from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.core.streams import Streams

GIVEN = {"T2": "fifo", "T3": "conservative"}


def test_the_second_in_line_has_a_reservation_too() -> None:
    """4 cores, 2 taken until 10. The first in line wants 3 until 20, the second all 4 from then on.

    One of 1 for 30 s leaves the first its 3, so that EASY starts it, and the second waits for it. One of 1 for 5 s
    delays nobody.
    """
    rows: list[Row] = [(0, 2, 10), (1, 3, 10), (2, 4, 10), (3, 1, 30), (4, 1, 5)]
    assert starts(run("backfill", trace_of_rows(rows), cores_cluster(4))) == [0, 10, 33, 3, 4]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4), **GIVEN)) == [0, 10, 20, 30, 4]


def test_an_early_end_moves_all_reservations_forward() -> None:
    """Expected at 30, it ends at 4: all start 26 s earlier."""
    rows: list[Row] = [(0, 4, 4, 30), (1, 3, 5, 5), (2, 4, 5, 5), (3, 1, 5, 5)]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4), **GIVEN)) == [0, 4, 9, 4]


def test_reservations_last_as_long_as_limits() -> None:
    """By estimates the second ends at 20 and the last would be in time; by its limit it is too long."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 4, 5, 5), (2, 2, 3, 3)]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4), **GIVEN)) == [0, 10, 2]
    limited = trace_of_rows(rows, limit_s=(-1, 5, 9))
    assert starts(run("pipeline", limited, cores_cluster(4), **GIVEN)) == [0, 10, 15]
    limited = trace_of_rows(rows, limit_s=(12, 5, 9))
    assert starts(run("pipeline", limited, cores_cluster(4), **GIVEN)) == [0, 10, 2]


def test_reservations_are_of_a_machine_and_speeds_count() -> None:
    """On the machine of twice the speed 8 s are 4: it ends in time for the first in line, at 5."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 4, 5, 5), (1, 2, 8, 8)]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4, speeds=(2,)), **GIVEN)) == [0, 5, 1]


def test_what_died_is_reserved_for_anew() -> None:
    records = crashed(trace_of_rows([(0, 2, 10), (1, 2, 10)]), cores_cluster(2, 2), (4.0, 0, 60.0), **GIVEN)
    assert min(records.finish_us) > 0


class Textbook:
    """The definition, second by second: everything is reserved anew for every event, on lists of what is taken when."""

    def __init__(self, rows: list[Row], cores: tuple[int, ...]) -> None:
        self.rows = [(round(r[0] * SECOND), r[1], round(r[2] * SECOND), round(r[-1] * SECOND)) for r in rows]
        self.cores = cores
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
                self.running.pop(0)
            self.cycle(now)
        return self.starts

    def cycle(self, now: int) -> None:
        taken = [(m, now, max(expected, now + 1), self.rows[t][1]) for _, expected, m, t in self.running]
        for task in list(self.queue):
            _, cores, lasts, estimate = self.rows[task]
            found = []
            for machine, whole in enumerate(self.cores):
                here = [(begin, end, amount) for m, begin, end, amount in taken if m == machine]
                for at in sorted({now, *[end for _, end, _ in here]}):
                    moments = [at, *[begin for begin, _, _ in here if at < begin < at + estimate]]
                    used = max(sum(a for b, e, a in here if b <= moment < e) for moment in moments)
                    if used + cores <= whole:
                        free = whole - sum(a for b, e, a in here if b <= now < e)
                        found.append((at, free if at == now else 0, machine))
                        break
            if found:
                at, _, machine = min(found)
                taken.append((machine, at, at + estimate, cores))
                if at == now:
                    self.queue.remove(task)
                    self.starts[task] = now
                    self.running.append((now + lasts, now + estimate, machine, task))


@pytest.mark.parametrize("cores", [(8,), (8, 8, 8), (4, 8, 2, 8)])
@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_the_definition_on_random_work(seed: int, cores: tuple[int, ...]) -> None:
    """Estimates are wrong in both directions; the times are such that no two events fall together."""
    draw = Random(seed)
    rows: list[Row] = []
    for at in sorted(draw.random() * 900 / len(cores) for _ in range(60)):
        run_s = draw.random() * 60 + 1
        estimate_s = run_s * draw.choice((0.3, 1, 1, 2, 10))
        rows.append((round(at, 5), draw.choice((1, 1, 2, 3, 4, 6, 8)), round(run_s, 5), round(estimate_s, 5)))
    found = run("pipeline", trace_of_rows(rows), cores_cluster(*cores), **GIVEN).start_us
    assert list(found) == Textbook(rows, cores).play()


@pytest.mark.parametrize("given", [{"T2": "random"}, {"T10": "priority"}, {"T9": "fixed"}, {"T12": "consolidate"}])
def test_what_reserves_excludes_what_easy_excludes(given: dict[str, str]) -> None:
    entry = lookup("pipeline")
    with pytest.raises(InputError, match="conservative"):
        entry.build(cores_cluster(4), configure(entry, {**GIVEN, **given}), Streams(0))
