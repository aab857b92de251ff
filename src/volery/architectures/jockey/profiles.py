"""Models of recurring jobs from earlier runs: profiles, and tables from simulated runs on the same components."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import msgspec

from volery.architectures.jockey.rehearsal import RehearsalSetting, Remaining, drawn, listed, samples_of, tabulated
from volery.architectures.jockey.stages import JobStage, Places, parents_of, sizes, stages_of, with_paths
from volery.core.component import Deployment, Simulate
from volery.core.model import NEVER, Cluster, JobId, Time
from volery.core.records import Records
from volery.core.trace import Trace, longs
from volery.core.workflows import with_parents


class JobRun(msgspec.Struct, frozen=True):
    """An earlier run, as it was recorded; times in microseconds since its submission."""

    waits: tuple[tuple[int, ...], ...]
    ready_us: tuple[Time, ...]
    start_us: tuple[Time, ...]
    finish_us: tuple[Time, ...]

    @property
    def run_us(self) -> list[Time]:
        """Per task, how long its last attempt ran."""
        return [end - begin for begin, end in zip(self.start_us, self.finish_us, strict=True)]


class JobProfile(msgspec.Struct, frozen=True):
    """A recurring job.

    Args:
        waits: per task of its latest run, places of those that it waits for.
        run_us: per stage, the run times of its tasks in all runs, in order.
    """

    waits: tuple[tuple[int, ...], ...]
    stage_of: tuple[int, ...]
    stages: tuple[JobStage, ...]
    run_us: tuple[tuple[Time, ...], ...]


class JobModel(msgspec.Struct, frozen=True):
    """The model of a recurring job."""

    job: str
    profile: JobProfile
    table: Remaining


def profiled(runs: Sequence[JobRun]) -> JobProfile:
    """The profile from earlier runs, of which those with the stages of the last one count.

    Args:
        runs: at least one, the last one has tasks.
    """
    last = runs[-1]
    stage_of = stages_of(last.waits)
    parents = parents_of(last.waits, stage_of)
    alike = [(run, numbers) for run in runs if parents_of(run.waits, numbers := stages_of(run.waits)) == parents]
    pooled: list[list[Time]] = [[] for _ in parents]
    queued: list[list[Time]] = [[] for _ in parents]
    for run, numbers in alike:
        for stage, ran_us, ready_us, start_us in zip(numbers, run.run_us, run.ready_us, run.start_us, strict=True):
            pooled[stage].append(ran_us)
            queued[stage].append(start_us - ready_us)
    spans = _spans(last.start_us, last.finish_us, stage_of)
    ended_us = listed(last.waits, last.run_us, len(last.waits))
    ideal = _spans([end - ran for end, ran in zip(ended_us, last.run_us, strict=True)], ended_us, stage_of)
    stages = [
        JobStage(
            tasks=count,
            parents=parents[stage],
            work_us=count * sum(pooled[stage]) // len(pooled[stage]),
            queued_us=count * sum(queued[stage]) // len(queued[stage]),
            longest_us=max(pooled[stage]),
            begin=spans[stage][0],
            end=spans[stage][1],
            ideal_begin=ideal[stage][0],
            ideal_end=ideal[stage][1],
        )
        for stage, count in enumerate(sizes(stage_of))
    ]
    return JobProfile(last.waits, stage_of, with_paths(stages), tuple([tuple(sorted(times)) for times in pooled]))


def _spans(start_us: Sequence[Time], finish_us: Sequence[Time], stage_of: Sequence[int]) -> list[tuple[float, float]]:
    """Per stage, when its first task began and its last one ended, as shares of the whole."""
    whole = max(finish_us) or 1
    begins, ends = [whole] * len(sizes(stage_of)), [0] * len(sizes(stage_of))
    for stage, start, finish in zip(stage_of, start_us, finish_us, strict=True):
        begins[stage], ends[stage] = min(begins[stage], start), max(ends[stage], finish)
    return [(begin / whole, end / whole) for begin, end in zip(begins, ends, strict=True)]


def estimated(waits: Places, estimate_us: Sequence[Time]) -> tuple[tuple[int, ...], tuple[JobStage, ...]]:
    """Per task its stage, and the stages, of a job of which nothing is known but estimates of its tasks."""
    stage_of = stages_of(waits)
    work, longest = [0] * len(sizes(stage_of)), [0] * len(sizes(stage_of))
    for stage, us in zip(stage_of, estimate_us, strict=True):
        work[stage] += us
        longest[stage] = max(longest[stage], us)
    rows = zip(sizes(stage_of), parents_of(waits, stage_of), work, longest, strict=True)
    return stage_of, with_paths([JobStage(count, above, us, 0, most) for count, above, us, most in rows])


Alone = Callable[[Cluster], Deployment]
"""The design's components for a cluster that a job has to itself."""


def learned(earlier: Records, how: RehearsalSetting, alone: Alone, simulate: Simulate) -> tuple[JobModel, ...]:
    """The models of the recurring jobs of earlier runs: those that have a name and a deadline.

    Args:
        earlier: records; the runs of a job have its name as their user.
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
