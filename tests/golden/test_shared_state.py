"""What the Omega paper says of shared state and its baselines, in shape, on a small cell (experiments/omega2013_*)."""

from __future__ import annotations

import functools

import pytest

from volery.architectures import configure, lookup
from volery.core.model import Cluster
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.metrics.transactions import TransactionSummary, transaction_summary
from volery.sim import simulate
from volery.workload import load_cluster, load_trace


@functools.cache
def cell() -> tuple[Trace, Cluster]:
    """Half an hour on 300 machines of 16 CPUs: batch jobs come every 10 s, service jobs every 20 s."""
    trace = load_trace("cell:span=1800,workers=300,cpus=16", seed=2)
    return trace, load_cluster(300, resources=trace.resources, capacity="cpu_milli=16000,memory_mb=65536")


@functools.cache
def played(design: str, **given: str | float | bool) -> TransactionSummary:
    architecture = lookup(design)
    trace, cluster = cell()
    records = simulate(architecture.build(cluster, configure(architecture, given), Streams(2)), trace, cluster)
    found = transaction_summary(records)
    assert found is not None
    return found


def conflicts(**given: str | float | bool) -> float:
    return played("omega", batch_schedulers=4, batch_job_s=20.0, **given).conflict_fraction


@pytest.mark.slow
def test_gangs_conflict_more_often_and_sequence_numbers_find_more_conflicts_than_either() -> None:
    """Section 5.2: incremental and fine <= gang and fine < coarse."""
    fine, gang = conflicts(), conflicts(gang=True)
    coarse, coarse_gang = conflicts(conflicts="coarse"), conflicts(conflicts="coarse", gang=True)
    assert 0 < fine <= gang < coarse < coarse_gang


def test_more_batch_schedulers_bear_longer_decisions_at_the_price_of_conflicts() -> None:
    """Section 4.3 and 5.1."""
    one, three = (played("omega", batch_schedulers=n, batch_job_s=12.0).workloads["batch"] for n in (1, 3))
    assert one.busyness > 0.95
    assert three.busyness < 0.75
    assert one.wait_first_s.mean > 30 > three.wait_first_s.mean
    assert one.conflict_fraction < three.conflict_fraction


@pytest.mark.slow
def test_slow_service_decisions_hold_up_batch_jobs_in_one_queue_and_on_offers_and_not_under_shared_state() -> None:
    """Sections 4.1 to 4.3."""
    quick = {name: played(name).workloads["batch"].wait_first_s.mean for name in ("monolithic", "mesos", "omega")}
    slow = {name: played(name, service_job_s=12.0).workloads["batch"] for name in quick}
    assert slow["monolithic"].wait_first_s.mean > 10 * quick["monolithic"]
    assert slow["mesos"].wait_full_s.mean > 2 * quick["mesos"]
    assert slow["omega"].wait_first_s.mean < 1.2 * quick["omega"] + 0.01
    assert slow["mesos"].attempts > 1.2 * slow["monolithic"].attempts, "offers of what little is not locked"


def test_a_single_path_makes_all_jobs_wait_alike_and_is_busy_in_proportion_to_its_decisions() -> None:
    """Section 4.1."""
    short, long = (played("monolithic", path="single", service_job_s=t).workloads for t in (1.0, 4.0))
    assert 2.5 * short["batch"].busyness < long["batch"].busyness < 4 * short["batch"].busyness
    assert abs(long["batch"].wait_first_s.mean / long["service"].wait_first_s.mean - 1) < 0.25
