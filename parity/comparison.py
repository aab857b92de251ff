"""Figures that compare the starts of a recorded run with those of a replay."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from parity.records import RanJob, Record
from parity.replay import LabStart, overheads_ms
from parity.scenarios import CPUS, INTERVAL_S, NODES
from volery.statistics import kendall_tau

TAU_LEAST = 0.95
FIFO_TAU_MOST = 0.8
MEDIAN_MOST_S = 2 * INTERVAL_S
WAITED_LEAST = 0.6
LOAD_LEAST = 1.3


class Agreement(msgspec.Struct, frozen=True):
    """The agreement of a replay with a recorded run, over the jobs that waited.

    Args:
        tau: Kendall's tau-b of the starts in whole seconds, as Slurm's tables have them.
        median_s: Median of the absolute errors of starts.
        p95_s: 95th percentile of these errors.
        same_nodes: Share of the jobs that ran on exactly the same nodes.
    """

    tau: float
    median_s: float
    p95_s: float
    same_nodes: float


class Conditions(msgspec.Struct, frozen=True):
    """Facts of a recorded run that a comparison needs to mean something.

    Args:
        jobs: Count of jobs, an array's tasks each counted.
        load: Work of all jobs over what the nodes can do while they arrive.
        waited: Share of jobs that started more than an interval after they might.
        preempted: Count of attempts that were ended for other jobs.
        overhead_ms: Median of what a job took longer than it was told to sleep.
        overhead_most_ms: Largest of these times.
        loop_most_ms: Longest pass of the main and the backfill loop.
    """

    jobs: int
    load: float
    waited: float
    preempted: int
    overhead_ms: float
    overhead_most_ms: float
    loop_most_ms: float


def has_waited(job: RanJob) -> bool:
    """True if a job started more than an interval after it might."""
    return job.start_ms - max(job.submit_ms, job.eligible_ms) > 1000 * INTERVAL_S


def agreement(record: Record, starts: Sequence[LabStart]) -> Agreement:
    """Compare a replay with its record."""
    pairs = [(job, start) for job, start in zip(record.jobs, starts, strict=True) if has_waited(job)]
    errors_s = sorted(abs(start.start_ms - job.start_ms) / 1000 for job, start in pairs)
    same_count = sum(job.attempts[-1].nodes == start.nodes for job, start in pairs)
    return Agreement(
        kendall_tau(
            [int(job.start_ms // 1000) for job, _ in pairs], [int(start.start_ms // 1000) for _, start in pairs]
        ),
        statistics.median(errors_s),
        errors_s[math.ceil(0.95 * len(errors_s)) - 1],
        same_count / len(pairs),
    )


def conditions(record: Record) -> Conditions:
    """The facts of a recorded run."""
    span_ms = max(job.submit_ms for job in record.jobs)
    work_s = sum(submission.work_s for submission in record.submissions)
    overheads = overheads_ms(record)
    return Conditions(
        len(record.jobs),
        work_s / (NODES * CPUS * span_ms / 1000),
        sum(map(has_waited, record.jobs)) / len(record.jobs),
        sum(not attempt.is_whole for job in record.jobs for attempt in job.attempts),
        statistics.median(overheads),
        max(overheads),
        max(record.loops.get("main max cycle", 0), record.loops.get("backfill max cycle", 0)) / 1000,
    )
