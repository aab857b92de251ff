"""What designs that know nothing of workflows make of tasks that come one part after the other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.model import SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.sim import Options, simulate

CHAIN = [(), (0,), (1,)]
FORK_JOIN = [(), (0,), (0,), (0,), (1, 2, 3)]


def run(name: str, given: Mapping[str, str], trace: Trace, cluster: Cluster | None = None) -> Records:
    design, machines = lookup(name), cluster or Cluster.uniform(40)
    deployment = design.build(machines, configure(design, given), Streams(1))
    return simulate(deployment, trace, machines, options=Options(check=True))


def job(durations: list[int], parents: list[tuple[int, ...]]) -> Trace:
    return with_parents(trace_of("flow", [0], [durations]), parents)


@pytest.mark.parametrize(("parents", "tasks"), [(CHAIN, 3), (FORK_JOIN, 5)])
def test_sparrow_probes_for_each_part_by_itself(parents: list[tuple[int, ...]], tasks: int) -> None:
    """Sparrow, section 3: d probes per task, d = 2; late binding works within a part."""
    records = run("sparrow", {}, job([SECOND] * tasks, parents))
    assert records.counters["probes"] == 2 * tasks
    assert records.finish_us[tasks - 1] >= 3 * SECOND


@pytest.mark.parametrize("name", ["hawk", "eagle", "phoenix"])
def test_hybrid_designs_call_a_job_short_or_long_once(name: str) -> None:
    """The estimate is the job's, so that the parts of a long job all go to the central scheduler, short tasks too."""
    mixed = [100 * SECOND, SECOND, SECOND, SECOND, 100 * SECOND]
    long = run(name, {"cutoff_s": "10"}, job(mixed, FORK_JOIN))
    assert "probes" not in long.counters
    short = run(name, {"cutoff_s": "50"}, job(mixed, FORK_JOIN))
    assert short.counters["probes"] >= 2 * 5


@pytest.mark.parametrize("name", ["hawk", "eagle", "phoenix"])
def test_a_wrong_estimate_is_drawn_once_for_all_parts(name: str) -> None:
    """Hawk, section 4.8: the estimate of a job is off by a factor, which may not change from part to part."""
    given = {"cutoff_s": "10", "estimate_low": "0.1", "estimate_high": "1.9"}
    probed = run(name, {"cutoff_s": "10"}, job([SECOND] * 3, CHAIN)).counters["probes"]
    for seconds in (6, 8, 10, 12, 14, 16):
        records = run(name, given, job([seconds * SECOND] * 3, CHAIN))
        assert records.counters.get("probes", 0) in (0, probed), "all parts are probed for, or none"


def test_eagles_sticky_reservations_end_with_their_part() -> None:
    """Eagle, section 4.3: a worker keeps a job while tasks of it are left; those that are not ready are not left."""
    records = run("eagle", {"cutoff_s": "10"}, job([SECOND] * 5, FORK_JOIN), Cluster.uniform(2))
    assert max(records.finish_us) < 5 * SECOND, "the second of two workers is not left idle beside three ready tasks"
    assert records.start_us[4] >= max(records.finish_us[:4])


def test_pigeon_keeps_all_parts_of_a_long_job_off_its_reserved_workers() -> None:
    """Pigeon, section 2.2: reserved workers serve short tasks alone."""
    durations = [100 * SECOND, *[SECOND] * 30, 100 * SECOND]
    parents: list[tuple[int, ...]] = [(), *[(0,)] * 30, tuple(range(1, 31))]
    trace = job(durations, parents)
    long = run("pigeon", {"groups": "1", "reserved": "35", "cutoff_s": "5"}, trace)
    assert len(set(long.worker)) <= 5
    short = run("pigeon", {"groups": "1", "reserved": "35", "cutoff_s": "50"}, trace)
    assert len(set(short.worker)) > 5


@pytest.mark.parametrize("name", ["megha", "megha-2021", "central", "oracle"])
def test_views_place_what_becomes_ready_at_once_side_by_side(name: str) -> None:
    records = run(name, {}, job([SECOND] * 32, [(), *[(0,)] * 30, tuple(range(1, 31))]), Cluster.uniform(60))
    assert max(records.finish_us) < 4 * SECOND
    assert len(set(records.worker[1:31])) == 30
