"""Local limits: what the tasks of one scheduler may hold of the cell, and the monitoring that shows it afterwards."""

from __future__ import annotations

import pytest

from volery.architectures import configure, lookup
from volery.architectures.omega.jobs import LocalLimit
from volery.conformance.cases import trace_of
from volery.core.model import NEVER, SECOND, Cluster, Task
from volery.core.streams import Streams
from volery.core.workflows import with_parents
from volery.metrics import transaction_summary
from volery.sim import Options, simulate
from volery.workload import load_cluster, load_trace


def test_the_first_tasks_that_fit_beside_what_is_held_may_be_claimed() -> None:
    limit = LocalLimit(0.5, (10, 8))
    small, large = Task(0, 0, request=(2, 1)), Task(1, 0, request=(2, 4))
    assert limit.room([small, large]) == 1
    assert not limit.allows([small, large])
    limit.take([small])
    assert limit.room([large]) == 0
    limit.give(0)
    assert limit.room([large]) == 1


@pytest.mark.parametrize("limit", [1.0, 0.25])
def test_a_scheduler_holds_no_more_than_its_limit_and_monitoring_shows_what_it_held(limit: float) -> None:
    """The blog: no explicit fairness; each scheduler has local limits, and there is after-the-fact monitoring."""
    trace = load_trace("cell:span=100,workers=100,cpus=1,fill=0.3,batch_gap=2,batch_tasks=10", seed=1)
    cluster = load_cluster(100, resources=trace.resources, capacity="cpu_milli=1000,memory_mb=4096")
    omega = lookup("omega")
    deployment = omega.build(cluster, configure(omega, {"batch_limit": limit}), Streams(1))
    found = transaction_summary(simulate(deployment, trace, cluster))
    assert found is not None
    held = found.schedulers["scheduler/0"]
    assert (held.tasks_most == 25) == (limit < 1), "of 100 CPUs"
    assert 0 < held.machine_time < 1 - found.schedulers["scheduler/1"].machine_time


@pytest.mark.parametrize(
    ("tasks", "parents", "at_once"), [(4, (), 4), (6, (), 0), (7, ((),) * 6 + (tuple(range(6)),), 4)]
)
def test_a_gang_within_the_limit_starts_at_once_and_the_tasks_of_a_wide_workflow_in_turn(
    tasks: int, parents: tuple[tuple[int, ...], ...], at_once: int
) -> None:
    """A gang larger than the limit is refused; a workflow comes in parts, so that its tasks are placed one by one."""
    trace, cluster = trace_of("gang", [0], [[5 * SECOND] * tasks]), Cluster.uniform(10)
    omega = lookup("omega")
    deployment = omega.build(cluster, configure(omega, {"batch_limit": 0.4, "gang": True}), Streams(1))
    records = simulate(
        deployment, with_parents(trace, parents) if parents else trace, cluster, options=Options(check=True)
    )
    starts = [start for start in records.start_us if start != NEVER]
    assert len(starts) == (tasks if at_once else 0)
    assert starts.count(min(starts, default=0)) == at_once
    assert records.answered_us[0] != NEVER
