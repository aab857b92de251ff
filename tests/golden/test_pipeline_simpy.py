"""An independent simulator agrees with `pipeline` on first come first served, start by start (SimPy, its resources)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, run, trace_of_rows

from volery.core.model import SECOND

Lived = list[tuple[int, int, int]]
"""Per job, its start, its finish and its machine."""

simpy = pytest.importorskip("simpy", reason="SimPy is an extra of development")


def work(seed: int, count: int, load: float, cores_max: int) -> list[tuple[float, int, float]]:
    """Jobs of one task each; times are whole microseconds, no two alike."""
    draw = Random(seed)
    rows = []
    at = 0.0
    for _ in range(count):
        at += draw.expovariate(load)
        rows.append((round(at, 6), draw.randint(1, cores_max), round(draw.expovariate(1.0), 6) + 1e-6))
    return rows


def simpy_starts(rows: list[tuple[float, int, float]], capacity: int) -> list[int]:
    """When each job starts where it has to get its cores from one pool, in the order in which jobs came."""
    environment: Any = simpy.Environment()
    pool: Any = simpy.Container(environment, capacity=capacity, init=capacity)
    started = [-1] * len(rows)

    def life(number: int, cores: int, duration_us: int) -> Iterator[Any]:
        yield pool.get(cores)
        started[number] = environment.now
        yield environment.timeout(duration_us)
        yield pool.put(cores)

    def source() -> Iterator[Any]:
        for number, (at, cores, duration) in enumerate(rows):
            yield environment.timeout(round(at * SECOND) - environment.now)
            environment.process(life(number, cores, round(duration * SECOND)))

    environment.process(source())
    environment.run()
    return started


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("machines", "load"), [(1, 0.9), (4, 3.8), (16, 20.0)])
def test_machines_of_one_slot_are_a_queue_with_so_many_servers(seed: int, machines: int, load: float) -> None:
    rows = work(seed, 1500, load, 1)
    expected = simpy_starts(rows, machines)
    assert list(run("pipeline", trace_of_rows(rows), cores_cluster(*[1] * machines), T2="fifo").start_us) == expected
    assert sum(at > round(row[0] * SECOND) for at, row in zip(expected, rows, strict=True)) > 300, "there were queues"


@pytest.mark.parametrize("seed", range(4))
def test_one_machine_of_many_cores_is_a_pool_that_nobody_overtakes_in(seed: int) -> None:
    """A container of SimPy's serves its getters strictly in order, as T3=strict does."""
    rows = work(seed, 1500, 1.6, 6)
    found = run("pipeline", trace_of_rows(rows), cores_cluster(8), T2="fifo", T3="strict").start_us
    assert list(found) == simpy_starts(rows, 8)


def simpy_first_fit(rows: list[tuple[float, int, float]], machines: list[int], *, strict: bool) -> Lived:
    """The same where each job gets all of its cores from the first machine that has them, a container of its own."""
    environment: Any = simpy.Environment()
    pools = [simpy.Container(environment, capacity=cores, init=cores) for cores in machines]
    queue: list[int] = []
    lived: Lived = [(-1, -1, -1)] * len(rows)

    def life(number: int, machine: int) -> Iterator[Any]:
        _, cores, duration = rows[number]
        began = environment.now
        yield environment.timeout(round(duration * SECOND))
        lived[number] = began, environment.now, machine
        yield pools[machine].put(cores)
        place()

    def place() -> None:
        for number in list(queue):
            cores = rows[number][1]
            machine = next((k for k, pool in enumerate(pools) if pool.level >= cores), None)
            if machine is not None:
                pools[machine].get(cores)
                queue.remove(number)
                environment.process(life(number, machine))
            elif strict:
                return

    def source() -> Iterator[Any]:
        for number, (at, _, _) in enumerate(rows):
            yield environment.timeout(round(at * SECOND) - environment.now)
            queue.append(number)
            place()

    environment.process(source())
    environment.run()
    return lived


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("iteration", ["strict", "skip"])
def test_several_machines_of_many_cores_are_filled_by_first_fit(seed: int, iteration: str) -> None:
    """Starts, finishes and machines of every task agree, whether or not small tasks may overtake."""
    machines = [4, 2, 8, 3]
    rows = work(seed, 1000, 4.4 if iteration == "skip" else 3.5, 4)
    found = run("pipeline", trace_of_rows(rows), cores_cluster(*machines), T2="fifo", T3=iteration, R5="first-fit")
    expected = simpy_first_fit(rows, machines, strict=iteration == "strict")
    assert list(zip(found.start_us, found.finish_us, found.worker, strict=True)) == expected
    waited = sum(began > round(row[0] * SECOND) for (began, _, _), row in zip(expected, rows, strict=True))
    assert waited > 200, "there were queues"


def test_the_two_can_disagree() -> None:
    """Where small tasks may overtake, they do not agree: the comparison can fail."""
    rows = work(0, 1500, 1.6, 6)
    found = run("pipeline", trace_of_rows(rows), cores_cluster(8), T2="fifo").start_us
    assert list(found) != simpy_starts(rows, 8)
