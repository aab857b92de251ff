"""Locality: shares of the tasks that ran on, near and far from the machines with their input."""

from __future__ import annotations

import msgspec

from volery.core.locality import LEVELS, UNPLACED, Pace
from volery.core.model import NEVER, Cluster
from volery.core.records import Records


class LocalitySummary(msgspec.Struct, frozen=True):
    """Of a run whose tasks have input that lies somewhere; shares of those that ran, by their last attempt.

    Args:
        tasks: that ran and have input.
        node: share on a machine that holds it (0 to 1).
        rack: share on another machine, in a rack that holds it.
        any: share elsewhere.
        node_by_job: mean over jobs of the share of their tasks on a machine that holds their input.
    """

    tasks: int
    node: float
    rack: float
    any: float
    node_by_job: float = 0.0


def locality_summary(records: Records, cluster: Cluster) -> LocalitySummary | None:
    """Shares of a run; None where no task that ran has input anywhere."""
    trace = records.trace
    if not trace.replicas:
        return None
    pace, counts, shares = Pace(trace, cluster), [0] * len(LEVELS), []
    for job in range(trace.job_count):
        of_job = [0] * len(LEVELS)
        for task in range(trace.first[job], trace.first[job + 1]):
            if records.finish_us[task] != NEVER:
                level = pace.level(task, records.worker[task])
                if level != UNPLACED:
                    of_job[level] += 1
        if ran := sum(of_job):
            shares.append(of_job[0] / ran)
            counts = [a + b for a, b in zip(counts, of_job, strict=True)]
    ran = sum(counts)
    if not ran:
        return None
    node, rack, elsewhere = (count / ran for count in counts)
    return LocalitySummary(ran, node, rack, elsewhere, sum(shares) / len(shares))
