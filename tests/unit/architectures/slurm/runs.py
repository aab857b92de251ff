"""Runs of small workloads by hand: rigid jobs with limits on a few nodes, without network delay."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import msgspec

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.gangs import with_gangs
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import NO_GANG, Trace
from volery.sim import Network, Options, simulate

MINUTE = 60


class RigidJob(NamedTuple):
    """A job of these tests; times in seconds.

    Args:
        nodes: Count of nodes; NO_GANG: its tasks are elements of an array.
        limit_s: Limit; 0: none.
        task_count: Count of tasks; 0: one per node.
    """

    submit_s: float
    nodes: int
    run_s: float
    limit_s: int = 0
    user: str = ""
    partition: str = ""
    task_count: int = 0


def trace(*jobs: RigidJob) -> Trace:
    """The jobs as a workload."""
    durations = [[round(job.run_s * SECOND)] * (job.task_count or job.nodes) for job in jobs]
    plain = trace_of("rigid", [round(job.submit_s * SECOND) for job in jobs], durations)
    limits = array("q", [job.limit_s * SECOND if job.limit_s else NEVER for job in jobs])
    partitions = tuple(job.partition for job in jobs)
    plain = msgspec.structs.replace(
        plain, limit_us=limits, user=tuple(job.user for job in jobs), partition=partitions if any(partitions) else ()
    )
    return with_gangs(plain, [job.nodes for job in jobs])


def simulated(jobs: Trace, cluster: Cluster, **parameters: Any) -> Records:
    """The records of a run, in which jobs are tried at their submission and at each end, unless parameters differ."""
    slurm = lookup("slurm")
    prompt = {"Epilog": True, "interactive": True}
    deployment = slurm.build(cluster, configure(slurm, prompt | parameters), Streams(0))
    return simulate(deployment, jobs, cluster, network=Network(0), options=Options(check=True))


def starts(*jobs: RigidJob, cluster: Any = 4, **parameters: Any) -> list[float]:
    """The start of each job, seconds; of an array, those of its elements."""
    machines = Cluster.uniform(cluster) if isinstance(cluster, int) else cluster
    workload = trace(*jobs)
    records = simulated(workload, machines, **parameters)
    first_tasks = [
        task
        for number, job in enumerate(jobs)
        for task in range(
            workload.first[number], workload.first[number + 1] if job.nodes == NO_GANG else workload.first[number] + 1
        )
    ]
    return [records.start_us[task] / SECOND for task in first_tasks]
