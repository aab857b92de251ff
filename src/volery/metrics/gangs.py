"""Gangs of a run: how many ran, how far apart, and what their members held while others of them waited."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from volery.core.model import NEVER, Cluster, JobId
from volery.core.records import HOUR, Records
from volery.core.trace import NO_GANG
from volery.metrics.arrays import asked


class GangSummary(msgspec.Struct, frozen=True):
    """Jobs whose tasks run only together.

    Args:
        gangs: Count of these jobs.
        ran: Count of those that ran.
        largest: Count of the tasks of the largest.
        held: Count of those whose launched members waited on their machines for others.
        held_machine_h: Time for which members held machines so, in hours of one machine; a member holds the share of
            a machine that its request is of the largest resource.
        held_share: Share of the time of all machines from the first submission to the last finish (0 to 1).
        machines_mean: Count of the machines on which the tasks of a gang ran, its mean over gangs of several tasks:
            the spread over servers of Jeon et al. (USENIX ATC 2019); None where none ran.
        racks_mean: Count of the racks of these machines, its mean; None where the cluster names no racks.
        one_rack: Share of these gangs that ran in one rack (0 to 1); None where the cluster names no racks.
    """

    gangs: int
    ran: int
    largest: int
    held: int
    held_machine_h: float
    held_share: float
    machines_mean: float | None = None
    racks_mean: float | None = None
    one_rack: float | None = None


def gang_summary(records: Records, cluster: Cluster) -> GangSummary | None:
    """Measures of gangs; None where no job is one."""
    trace = records.trace
    gangs = [job for job, nodes in enumerate(trace.gang_nodes) if nodes != NO_GANG]
    if not gangs:
        return None

    sizes = [trace.first[job + 1] - trace.first[job] for job in gangs]
    ran = sum(records.finish_us[trace.first[job]] != NEVER for job, size in zip(gangs, sizes, strict=True) if size)
    job_of = trace.job_of_task() if records.held_us else ()
    held_us = _held_machine_us(records, cluster)
    span_us = max(records.finish_us, default=0) - min(trace.arrival_us, default=0)

    return GangSummary(
        len(gangs),
        ran,
        max(sizes),
        len({job_of[task] for task in records.held_us}),
        held_us / HOUR,
        held_us / (span_us * len(cluster.slots)) if span_us > 0 else 0.0,
        *_distances(records, cluster, gangs),
    )


def _distances(
    records: Records, cluster: Cluster, gangs: Sequence[JobId]
) -> tuple[float | None, float | None, float | None]:
    """The mean counts of machines and racks of gangs of several tasks, and the share of them in one rack."""
    first, finish_us = records.trace.first, records.finish_us
    places = [
        {records.worker[task] for task in range(first[job], first[job + 1]) if finish_us[task] != NEVER}
        for job in gangs
        if first[job + 1] - first[job] > 1
    ]
    places = [machines for machines in places if machines]
    if not places:
        return None, None, None

    machines_mean = sum(map(len, places)) / len(places)
    if not cluster.racks:
        return machines_mean, None, None
    racks = [len({cluster.racks[machine] for machine in machines}) for machines in places]
    return machines_mean, sum(racks) / len(racks), racks.count(1) / len(racks)


def _held_machine_us(records: Records, cluster: Cluster) -> float:
    """The time for which members held machines, microseconds of one machine."""
    machines = len(cluster.slots)
    if not cluster.resources:
        return sum(records.held_us.values()) * machines / cluster.slot_count
    if not records.held_us:
        return 0.0

    held_us = 0.0
    columns = [asked(records.trace, place) for place in range(len(cluster.resources))]
    totals = [sum(offered[place] for offered in cluster.capacities) for place in range(len(cluster.resources))]
    for task, time_us in records.held_us.items():
        shares = [column[task] / total for column, total in zip(columns, totals, strict=True) if total]
        held_us += time_us * machines * float(max(shares, default=0.0))
    return held_us
