"""Models of recurring jobs from earlier runs: profiles, and tables from simulated runs on the same components."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from volery.architectures.jockey.completion import Remaining, tabulated
from volery.architectures.jockey.profiles import JobModel, JobProfile, JobRun, profiled
from volery.architectures.jockey.rehearsal import RehearsalSetting, drawn, samples_of
from volery.core.component import Deployment, Simulate
from volery.core.model import NEVER, Cluster, JobId, Time
from volery.core.records import Records
from volery.core.trace import Trace, longs
from volery.core.workflows import with_parents

Alone = Callable[[Cluster], Deployment]
"""The design's components for a cluster that a job has to itself."""


def learned(earlier: Records, how: RehearsalSetting, alone: Alone, simulate: Simulate) -> tuple[JobModel, ...]:
    """The models of the recurring jobs of earlier runs: those that have a name and a deadline.

    Args:
        earlier: records; the runs of a job have its name as their user.
        how: each is simulated.
        alone, simulate: what with.
    """
    trace, runs = earlier.trace, dict[str, list[JobRun]]()
    for job in range(trace.job_count if trace.user and trace.deadline_us else 0):
        run = _run(earlier, job)
        if trace.user[job] and trace.deadline_us[job] != NEVER and run is not None:
            runs.setdefault(trace.user[job], []).append(run)
    found = []
    for number, (name, theirs) in enumerate(sorted(runs.items())):
        profile = profiled(theirs)
        found.append(JobModel(name, profile, _table(profile, how, alone, simulate, seed=number)))
    return tuple(found)


def _run(records: Records, job: JobId) -> JobRun | None:
    """A job as it ran; None where it has no tasks, or not all of them ran."""
    trace = records.trace
    low, high, at = trace.first[job], trace.first[job + 1], trace.arrival_us[job]
    start_us, finish_us = records.start_us[low:high], records.finish_us[low:high]
    if low == high or NEVER in start_us or NEVER in finish_us:
        return None
    ready_us = records.ready_us[low:high] if records.ready_us else longs(high - low, at)
    waits = tuple([tuple([parent - low for parent in trace.parents_of(task)]) for task in range(low, high)])
    times = [tuple([us - at for us in column]) for column in (ready_us, start_us, finish_us)]
    return JobRun(waits, *times)


def _table(profile: JobProfile, how: RehearsalSetting, alone: Alone, simulate: Simulate, *, seed: int) -> Remaining:
    samples = []
    for tokens in how.grid:
        names = [f"{tokens}/{repetition}" for repetition in range(how.repetitions)]
        durations = [drawn(profile.run_us, profile.stage_of, name, seed) for name in names]
        cluster = Cluster.uniform(tokens)
        records = simulate(alone(cluster), _in_turn(profile, durations), cluster)
        finishes = [
            [us - records.trace.arrival_us[job] for us in records.finish_us[low : records.trace.first[job + 1]]]
            for job, low in enumerate(records.trace.first[:-1])
        ]
        samples.append(
            [
                sample
                for finish_us in finishes
                for sample in samples_of(finish_us, profile.stage_of, profile.stages, how.indicator, how.period_us)
            ]
        )
    return tabulated(how.grid, samples, how.percentile)


APART_US: Time = 1_000_000
"""Between the latest end of one simulated run and the next one, for the messages that end it."""


def _in_turn(profile: JobProfile, durations: Sequence[Sequence[Time]]) -> Trace:
    """Runs of a job, one after the other: each arrives when the one before has ended, even on a single token."""
    size, arrivals, at = len(profile.stage_of), longs(), 0
    for duration_us in durations:
        arrivals.append(at)
        at += sum(duration_us) + (size + 1) * APART_US
    flat = array("q", [us for duration_us in durations for us in duration_us])
    first = array("q", range(0, len(flat) + 1, size))
    trace = Trace("rehearsal", arrivals, first, flat, longs(len(durations)))
    return with_parents(
        trace, [[low + parent for parent in parents] for low in first[:-1] for parents in profile.waits]
    )
