"""Models of recurring jobs from earlier runs: profiles, and tables from simulated runs on the same components."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import msgspec

from volery.architectures.jockey.rehearsal import Rehearsal, RehearsalSetting, Remaining, listed, rehearsed
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
        """The run time of each task's last attempt."""
        return [end - begin for begin, end in zip(self.start_us, self.finish_us, strict=True)]


class JobProfile(msgspec.Struct, frozen=True):
    """A recurring job.

    Args:
        waits: Per task of its latest run, places of those that it waits for.
        run_us: Per stage, the run times of its tasks in all runs, in order.
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
        runs: At least one run; the last one has tasks.
    """
    last_run = runs[-1]

    stage_of = stages_of(last_run.waits)
    parents = parents_of(last_run.waits, stage_of)
    # Runs with another graph of stages are another job by the same name.
    similar_runs = [(run, numbers) for run in runs if parents_of(run.waits, numbers := stages_of(run.waits)) == parents]

    run_times: list[list[Time]] = [[] for _ in parents]
    queue_times: list[list[Time]] = [[] for _ in parents]

    for run, numbers in similar_runs:
        for stage, ran_us, ready_us, start_us in zip(numbers, run.run_us, run.ready_us, run.start_us, strict=True):
            run_times[stage].append(ran_us)
            queue_times[stage].append(start_us - ready_us)

    # Shares of the latest run alone: those of several runs would be of no run.
    spans = _spans(last_run.start_us, last_run.finish_us, stage_of)
    ended_us = listed(last_run.waits, last_run.run_us, len(last_run.waits))

    # As many tokens as tasks: nothing ever waits for one.
    ideal_spans = _spans([end - ran for end, ran in zip(ended_us, last_run.run_us, strict=True)], ended_us, stage_of)

    stages = [
        JobStage(
            tasks=count,
            parents=parents[stage],
            work_us=count * sum(run_times[stage]) // len(run_times[stage]),
            queued_us=count * sum(queue_times[stage]) // len(queue_times[stage]),
            longest_us=max(run_times[stage]),
            begin=spans[stage][0],
            end=spans[stage][1],
            ideal_begin=ideal_spans[stage][0],
            ideal_end=ideal_spans[stage][1],
        )
        for stage, count in enumerate(sizes(stage_of))
    ]

    return JobProfile(
        last_run.waits, stage_of, with_paths(stages), tuple([tuple(sorted(times)) for times in run_times])
    )


def _spans(start_us: Sequence[Time], finish_us: Sequence[Time], stage_of: Sequence[int]) -> list[tuple[float, float]]:
    """The begin of each stage's first task and the end of its last, as shares of the whole."""
    last_us = max(finish_us) or 1
    stage_count = len(sizes(stage_of))
    begins = [last_us] * stage_count
    ends = [0] * stage_count

    for stage, start, finish in zip(stage_of, start_us, finish_us, strict=True):
        begins[stage] = min(begins[stage], start)
        ends[stage] = max(ends[stage], finish)

    return [(begin / last_us, end / last_us) for begin, end in zip(begins, ends, strict=True)]


def estimated(waits: Places, estimate_us: Sequence[Time]) -> tuple[tuple[int, ...], tuple[JobStage, ...]]:
    """The stage of each task, and the stages, of a job of which only estimates of its tasks are known."""
    stage_of = stages_of(waits)
    stage_count = len(sizes(stage_of))
    work = [0] * stage_count
    longest = [0] * stage_count

    for stage, task_us in zip(stage_of, estimate_us, strict=True):
        work[stage] += task_us
        longest[stage] = max(longest[stage], task_us)

    rows = zip(sizes(stage_of), parents_of(waits, stage_of), work, longest, strict=True)
    return stage_of, with_paths(
        [JobStage(count, parents, work_us, 0, longest_us) for count, parents, work_us, longest_us in rows]
    )


Alone = Callable[[Cluster], Deployment]
"""Builds the design's components for a cluster that a job has to itself."""


def learned(
    earlier: Records, setting: RehearsalSetting, build_alone: Alone, simulate: Simulate
) -> tuple[JobModel, ...]:
    """The models of the recurring jobs of earlier runs: those that have a name and a deadline.

    Args:
        earlier: Records; the runs of a job have its name as their user.
    """
    trace = earlier.trace
    runs: dict[str, list[JobRun]] = {}

    for job in range(trace.job_count if trace.user and trace.deadline_us else 0):
        run = _run(earlier, job)
        if trace.user[job] and trace.deadline_us[job] != NEVER and run is not None:
            runs.setdefault(trace.user[job], []).append(run)

    models = []
    for number, (name, job_runs) in enumerate(sorted(runs.items())):
        profile = profiled(job_runs)
        models.append(JobModel(name, profile, _table(profile, setting, build_alone, simulate, seed=number)))

    return tuple(models)


def _run(records: Records, job: JobId) -> JobRun | None:
    """A job as it ran; None where it has no tasks, or not all of them ran."""
    trace = records.trace

    low = trace.first[job]
    high = trace.first[job + 1]
    arrival_us = trace.arrival_us[job]
    start_us = records.start_us[low:high]
    finish_us = records.finish_us[low:high]

    if low == high or NEVER in start_us or NEVER in finish_us:
        return None

    ready_us = records.ready_us[low:high] if records.ready_us else longs(high - low, arrival_us)
    waits = tuple([tuple([parent - low for parent in trace.parents_of(task)]) for task in range(low, high)])
    # Times count from the job's submission, so that runs can be compared.
    times = [tuple([time_us - arrival_us for time_us in column]) for column in (ready_us, start_us, finish_us)]

    return JobRun(waits, *times)


def _table(
    profile: JobProfile, setting: RehearsalSetting, build_alone: Alone, simulate: Simulate, *, seed: int
) -> Remaining:
    def run(tokens: int, durations: Sequence[Sequence[Time]]) -> list[list[Time]]:
        cluster = Cluster.uniform(tokens)
        records = simulate(build_alone(cluster), _in_turn(profile, durations), cluster)
        first = records.trace.first
        return [
            [finish - records.trace.arrival_us[job] for finish in records.finish_us[low : first[job + 1]]]
            for job, low in enumerate(first[:-1])
        ]

    problem = Rehearsal(profile.waits, profile.stage_of, profile.stages, profile.run_us, setting, seed)
    return rehearsed(problem, run)


APART_US: Time = 1_000_000
"""Time between the latest end of one simulated run and the next one, for the messages that end it."""


def _in_turn(profile: JobProfile, durations: Sequence[Sequence[Time]]) -> Trace:
    """Runs of a job, one after the other: each arrives when the one before has ended, even on a single token."""
    size = len(profile.stage_of)
    arrivals = longs()
    arrival_us = 0

    for duration_us in durations:
        arrivals.append(arrival_us)
        arrival_us += sum(duration_us) + (size + 1) * APART_US

    all_durations = array("q", [task_us for duration_us in durations for task_us in duration_us])
    first = array("q", range(0, len(all_durations) + 1, size))
    trace = Trace("rehearsal", arrivals, first, all_durations, longs(len(durations)))

    return with_parents(
        trace, [[low + parent for parent in parents] for low in first[:-1] for parents in profile.waits]
    )
