"""Theory first: a group of Pigeon without reserved workers and delays is an M/M/c queue (Wang et al., section 3).

Each claim is tested over independent seeds: the deviation from the closed form is measured in standard errors of the
seeds' mean, and these errors are small, so that a wrong formula or a wrong queue cannot hide behind noise.
"""

from __future__ import annotations

import math
import statistics

import msgspec
import pytest

from volery import theory
from volery.architectures import configure, lookup
from volery.core.component import Architecture
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.sim import Network, simulate
from volery.workload import synthesize

SEEDS = 10
WARM_UP = 0.15
"""Share of the jobs that see a queue which is still filling."""
ERRORS_MAX = 5.0
"""Student's t with 9 degrees of freedom exceeds it once in 1,300."""


def one_group(groups: int = 1, **parameters: object) -> Architecture:
    pigeon = lookup("pigeon")
    return msgspec.structs.replace(
        pigeon, defaults=configure(pigeon, {"groups": groups, "reserved": 0, "distributors": 1, **parameters})
    )


def waits_of_seeds(design: Architecture, workers: int, spec: str, delay_us: int = 0) -> list[list[float]]:
    """Per seed, the times from submission to start of all tasks after the warm-up, seconds."""
    cluster, found = Cluster.uniform(workers), []
    for seed in range(SEEDS):
        trace = synthesize(spec, seed)
        deployment = design.build(cluster, design.defaults, Streams(seed))
        records = simulate(deployment, trace, cluster, network=Network(delay_us=delay_us), seed=seed)
        skipped = int(trace.job_count * WARM_UP)
        found.append(
            [
                (records.start_us[task] - trace.arrival_us[job]) / SECOND
                for job in range(skipped, trace.job_count)
                for task in range(trace.first[job], trace.first[job + 1])
            ]
        )
    return found


def assert_agrees(samples: list[float], expected: float, precision: float) -> None:
    """The mean of the seeds is within the allowed standard errors, which are themselves a small part of it."""
    error = statistics.stdev(samples) / math.sqrt(len(samples))
    assert error < precision * expected, f"{samples} are too noisy to say anything about {expected}"
    assert abs(statistics.fmean(samples) - expected) < ERRORS_MAX * error, (statistics.fmean(samples), expected, error)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "load", "jobs"), [(1, 0.6, 15_000), (5, 0.7, 15_000), (20, 0.75, 20_000)])
def test_one_group_is_an_mmc_queue(workers: int, load: float, jobs: int) -> None:
    """Pigeon's equations (1), the probability of no wait, and (2), the mean wait; and the tail."""
    spec = f"poisson:load={load},workers={workers},fanout=1,mean=1,jobs={jobs}"
    waits = waits_of_seeds(one_group(), workers, spec)
    mean_waits = [statistics.fmean(seed) for seed in waits]
    no_waits = [sum(wait == 0 for wait in seed) / len(seed) for seed in waits]
    assert_agrees(mean_waits, theory.pigeon_task_wait(workers, load, 1.0), 0.1)
    assert_agrees(no_waits, theory.pigeon_task_zero_queue(workers, load), 0.02)
    assert theory.pigeon_task_wait(workers, load, 1.0) == pytest.approx(theory.mmc_wait(workers, load * workers, 1.0))
    for limit in (0.2, 0.5):
        shares = [sum(wait > limit for wait in seed) / len(seed) for seed in waits]
        assert_agrees(shares, theory.mmc_wait_exceeds(workers, load * workers, 1.0, limit), 0.15)


@pytest.mark.slow
def test_groups_of_a_job_with_fewer_tasks_than_groups_are_mmc_queues_too() -> None:
    """Section 3: F <= N_g tasks on distinct groups thin a Poisson stream at random."""
    groups, workers, load, fanout = 5, 10, 0.8, 3
    spec = f"poisson:load={load},workers={groups * workers},fanout={fanout},mean=1,jobs=10000"
    waits = waits_of_seeds(one_group(groups), groups * workers, spec)
    assert_agrees([statistics.fmean(seed) for seed in waits], theory.pigeon_task_wait(workers, load, 1.0), 0.06)


def test_dividing_the_cluster_costs_multiplexing_gain() -> None:
    """Smaller groups wait longer, by as much as the closed form says: the test above can fail."""
    small, large = (theory.pigeon_task_wait(workers, 0.8, 1.0) for workers in (10, 50))
    assert small > 10 * large


def test_the_oracle_is_an_mmc_queue() -> None:
    workers, load = 8, 0.75
    waits = waits_of_seeds(
        lookup("oracle"), workers, f"poisson:load={load},workers={workers},fanout=1,mean=1,jobs=20000"
    )
    assert_agrees([statistics.fmean(seed) for seed in waits], theory.mmc_wait(workers, load * workers, 1.0), 0.06)


def test_the_published_delay_adds_two_hops_to_every_start() -> None:
    """Distributor to master to worker, 0.5 ms each, before an idle worker starts."""
    cluster, design = Cluster.uniform(1000), one_group()
    trace = synthesize("poisson:load=0.05,workers=1000,fanout=1,mean=1,jobs=500", 0)
    records = simulate(design.build(cluster, design.defaults, Streams(0)), trace, cluster)
    assert {start - at for start, at in zip(records.start_us, trace.arrival_us, strict=True)} == {1_000}


@pytest.mark.slow
def test_the_way_to_the_worker_and_that_of_the_idle_notice_count_as_service() -> None:
    """What Pigeon's simulation has and its equations have not (section 3): a worker is held for two messages more."""
    workers, load, delay_s = 10, 0.8, 0.02
    spec = f"poisson:load={load},workers={workers},fanout=1,mean=1,jobs=15000"
    waits = waits_of_seeds(one_group(), workers, spec, round(delay_s * SECOND))
    found = statistics.fmean(statistics.fmean(seed) - 2 * delay_s for seed in waits)
    plain, held = (theory.pigeon_task_wait(workers, load, 1.0, extra) for extra in (0.0, 2 * delay_s))
    assert held > 1.2 * plain
    assert abs(found - held) < abs(found - plain) / 2, (found, held, plain)
    never = statistics.fmean(sum(wait <= 2 * delay_s for wait in seed) / len(seed) for seed in waits)
    idle_plain, idle_held = (theory.pigeon_task_zero_queue(workers, load * busy) for busy in (1.0, 1 + 2 * delay_s))
    assert abs(never - idle_held) < abs(never - idle_plain) / 2, (never, idle_held, idle_plain)
