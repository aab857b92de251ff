"""Gangs of the pipeline: rigid jobs start whole, in their shapes, and backfill as in the textbook."""

from __future__ import annotations

import gzip
import itertools
from array import array
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.unit.architectures.pipeline.textbook import RigidJob, replay

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.capabilities import CrashRecovery, GangPlacement
from volery.core.component import Deployment
from volery.core.events import GANG_TASKS_REFUSED
from volery.core.gangs import with_gangs
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import NO_GANG, Trace
from volery.sim import Network, Options, simulate
from volery.sim.faults import Crash, FaultPlan

TRACES = Path(__file__).parents[5] / "shared" / "traces" / "swf"


def built(cluster: Cluster, **parameters: str) -> Deployment:
    entry = lookup("pipeline")
    return entry.build(cluster, configure(entry, parameters), Streams(0))


def played(trace: Trace, cluster: Cluster, **parameters: str) -> Records:
    """A run without delays, in which all invariants are checked after each event."""
    return simulate(
        built(cluster, **parameters), trace, cluster, network=Network(delay_us=0), options=Options(check=True)
    )


def rigid(jobs: list[RigidJob]) -> Trace:
    """Rigid jobs as gangs of tasks that take a slot each."""
    trace = trace_of("rigid", [job.submit for job in jobs], [[job.run] * job.size for job in jobs])
    estimates = array("q", [job.estimate for job in jobs])
    return with_gangs(msgspec.structs.replace(trace, estimate_us=estimates), [0] * len(jobs))


def starts_of(records: Records) -> list[int]:
    """The starts of gangs; all members of each start together."""
    first = records.trace.first
    starts = [{*records.start_us[low:high]} for low, high in itertools.pairwise(first)]
    assert all(len(group) == 1 for group in starts)
    return [group.pop() for group in starts]


def drawn(seed: int, count: int = 120, processors: int = 16) -> list[RigidJob]:
    """Jobs that mostly wait, of which some run longer and most shorter than estimated; times in microseconds."""
    draw = Random(seed)
    submits = sorted(draw.randrange(0, 60 * count) for _ in range(count))
    jobs = []
    for submit in submits:
        run = draw.choice((1, 30, 300, 900))
        size = min(processors, 1 << draw.randrange(0, 5))
        estimate = round(run * draw.choice((0.8, 1, 2, 5)) * SECOND)
        jobs.append(RigidJob(submit * SECOND, run * SECOND, estimate, size))
    return jobs


@pytest.mark.parametrize("policy", ["easy", "conservative"])
@pytest.mark.parametrize("machines", [1, 8, 16])
@pytest.mark.parametrize("seed", range(3))
def test_backfilling_is_that_of_the_textbook(policy: str, machines: int, seed: int) -> None:
    jobs = drawn(seed)
    records = played(rigid(jobs), Cluster.uniform(machines, slots=16 // machines), T3=policy)
    expected = replay(jobs, 16, policy)
    assert starts_of(records) == expected
    assert sum(start > job.submit for start, job in zip(expected, jobs, strict=True)) > len(jobs) // 2, "most wait"
    assert not records.held_us


def test_both_policies_differ_here() -> None:
    jobs = drawn(0)
    assert replay(jobs, 16, "easy") != replay(jobs, 16, "conservative")


def test_first_come_first_served_lets_none_overtake() -> None:
    jobs = drawn(1)
    starts = starts_of(played(rigid(jobs), Cluster.uniform(16), T3="strict"))
    assert starts == sorted(starts)


def log(name: str) -> list[RigidJob]:
    """The jobs of a published log that ran, by requested processors and times; without these, by those that it used."""
    path = TRACES / f"{name}.swf.gz"
    if not path.is_file():
        pytest.skip(f"the published logs ({path.parent}) are not here")

    jobs = []
    with gzip.open(path, "rt", errors="replace") as lines:
        for line in lines:
            words = line.split()
            if not words or words[0].startswith(";"):
                continue
            submit, _, run, used, _, _, requested, estimate = [int(float(word)) for word in words[1:9]]
            size = requested if requested > 0 else used
            if run > 0 and size > 0:
                limit = estimate if estimate > 0 else run
                jobs.append(RigidJob(submit * SECOND, run * SECOND, limit * SECOND, size))
    return sorted(jobs, key=lambda job: job.submit)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["easy", "conservative"])
@pytest.mark.parametrize("name", ["SDSC-SP2-1998_first5000lines", "NASA-iPSC-1993-3.1-cln"])
def test_published_logs_are_replayed_as_by_the_textbook(name: str, policy: str) -> None:
    """With requested times as estimates (SDSC), and with run times (NASA): every start is the same."""
    jobs, cluster = log(name), Cluster.uniform(128)
    deployment = built(cluster, T3=policy)
    records = simulate(deployment, rigid(jobs), cluster, network=Network(delay_us=0))
    assert starts_of(records) == replay(jobs, 128, policy)


def ganged(*rows: tuple[float, float, int], nodes: int = 0, constraints: list[list[int]] | None = None) -> Trace:
    """Rows of arrival, duration (s) and members."""
    durations = [[round(run * SECOND)] * size for _, run, size in rows]
    trace = trace_of("ganged", [round(at * SECOND) for at, _, _ in rows], durations, constraints or [])
    return with_gangs(trace, [nodes] * len(rows))


@pytest.mark.parametrize("policy", ["skip", "strict", "easy", "conservative", "every"])
def test_gangs_keep_their_shapes(policy: str) -> None:
    trace = with_gangs(
        ganged((0, 5, 4), (0, 5, 1), (1, 5, 4), (2, 3, 6), (2, 3, 7), (3, 3, 2), (4, 1, 3)), [2, NO_GANG, 4, 2, 3, 1, 0]
    )
    records = played(trace, Cluster.uniform(4, slots=3), T3=policy)  # the lab refuses what is not of the shape
    assert NEVER not in records.finish_us
    machines = records.worker[trace.first[4] : trace.first[5]]
    assert sorted(machines.count(machine) for machine in set(machines)) == [1, 3, 3]


@pytest.mark.parametrize("policy", ["skip", "easy", "conservative"])
def test_members_that_need_other_machines_start_together(policy: str) -> None:
    """First fit would give the machine that one member needs to another; the gang has room all the same."""
    cluster = Cluster((3, 1, 2, 0), (1,) * 4)
    trace = ganged((0, 5, 3), (1, 5, 2), constraints=[[0, 1, 2], [3, 1]])
    records = played(trace, cluster, T3=policy)
    assert [{*records.start_us[low:high]} for low, high in ((0, 3), (3, 5))] == [{0}, {5 * SECOND}]


def test_amounts_of_gangs_fit_beside_each_other() -> None:
    cluster = Cluster((0,) * 3, (1,) * 3, resources=("cpu_milli", "memory_mb"), capacities=((4000, 800),) * 3)
    trace = msgspec.structs.replace(
        ganged((0, 5, 6), (0, 5, 4), (1, 2, 2), (1, 2, 3)),
        resources=cluster.resources,
        requests=((2000, 100), (1000, 300), (3000, 700)),
        request=array("H", [0] * 6 + [1] * 4 + [2] * 2 + [0, 1, 1]),
    )
    for policy in ("skip", "easy", "conservative"):
        records = played(trace, cluster, T3=policy)
        assert NEVER not in records.finish_us
        assert all(len({*records.start_us[low:high]}) == 1 for low, high in ((0, 6), (6, 10), (10, 12), (12, 15)))


def test_a_gang_that_the_empty_cluster_cannot_hold_is_refused_whole() -> None:
    records = played(ganged((0, 5, 2), (0, 5, 2), constraints=[[1, 1], [0, 1]]), Cluster((1, 0), (1, 1)))
    assert list(records.unsatisfiable) == [2, 0]
    assert records.counters[GANG_TASKS_REFUSED] == 2
    assert records.start_us[0] == records.start_us[1] == NEVER


def test_a_large_gang_comes_in_chunks_and_starts_whole() -> None:
    records = played(ganged((0, 5, 5000)), Cluster.uniform(50, slots=100))
    assert {*records.start_us} == {0}


def test_a_machine_that_crashes_makes_all_members_wait_again() -> None:
    cluster = Cluster.uniform(4)
    deployment = built(cluster, T11="restart")
    assert deployment.capability(CrashRecovery)
    plan = FaultPlan(crashes=(Crash(2 * SECOND, "node/1", 4 * SECOND),))
    records = simulate(deployment, ganged((0, 5, 3)), cluster, options=Options(check=True, plan=plan))

    assert {key for key, at in records.killed.items() if at == 2 * SECOND} == {(0, 0), (1, 0), (2, 0)}
    assert len({*records.start_us}) == 1
    assert records.start_us[0] > 2 * SECOND
    assert {*records.finish_us} == {records.start_us[0] + 5 * SECOND}


def test_a_machine_that_crashes_before_the_launch_arrives_makes_all_members_wait_again() -> None:
    """The driver has begun nothing then: the scheduler itself calls back the members that hold their machines."""
    cluster = Cluster.uniform(4)
    plan = FaultPlan(crashes=(Crash(200, "node/1", 1000),))
    deployment = built(cluster, T11="restart")
    records = simulate(deployment, ganged((0, 5, 3)), cluster, options=Options(check=True, plan=plan))
    assert len({*records.start_us}) == 1
    assert sum(records.held_us.values()) > 0


def test_a_member_that_is_preempted_makes_all_members_wait_again() -> None:
    trace = with_gangs(ganged((0, 50, 2), (1, 2, 1)), [0, NO_GANG])
    urgent = msgspec.structs.replace(trace, priority=array("q", [0, 9]))
    records = played(urgent, Cluster.uniform(2), T10="priority", T2="priority")
    assert records.start_us[2] == SECOND, "the urgent task takes a place of the gang"
    assert list(records.start_us[:2]) == [3 * SECOND] * 2
    assert {(0, 0), (1, 0)} == {*records.killed}


@pytest.mark.parametrize("parameters", [{"lrms": "2"}, {"T9": "fixed"}, {"T12": "consolidate"}, {"alloc_s": "5"}])
def test_parameters_beside_which_gangs_are_not_started_whole(parameters: dict[str, str]) -> None:
    assert built(Cluster.uniform(4), **parameters).capability(GangPlacement) is None
