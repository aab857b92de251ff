"""Simulated runs of a job on a number of tokens, and C(progress, allocation): how long it still takes, read from them.

Ready tasks start in the order in which they have become ready. The lab's own kernel makes the table of a job before it
runs. While it runs, a scheduler cannot reach the kernel: what is here answers then, and tests demand that both agree to
the microsecond where no message takes time.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from volery.architectures.jockey.stages import Indicator, JobStage, Places, progress, sizes
from volery.core.model import Time
from volery.core.streams import Streams

BINS: Final = 100
"""Number of bins of progress; what has progressed by 1 is done."""
Samples = Sequence[tuple[float, Time]]
"""Progress and time left at moments of runs with one allocation."""


class Remaining(msgspec.Struct, frozen=True):
    """The table.

    Args:
        left_us: Per allocation and bin of progress, the time left that is reckoned with; 0 where all is done.
    """

    grid: tuple[int, ...]
    left_us: tuple[tuple[Time, ...], ...]

    def at(self, progress: float, tokens: float) -> Time:
        """The time left; between allocations by a straight line, beyond the ends as at the ends."""
        column = min(BINS, int(progress * BINS))
        grid = self.grid

        if tokens <= grid[0]:
            return self.left_us[0][column]

        for place, (low, high) in enumerate(itertools.pairwise(grid)):
            if tokens <= high:
                time_with_fewer, time_with_more = self.left_us[place][column], self.left_us[place + 1][column]
                return round(time_with_fewer + (time_with_more - time_with_fewer) * (tokens - low) / (high - low))
        return self.left_us[-1][column]


def tabulated(grid: Sequence[int], samples_of_rows: Sequence[Samples], percentile: float) -> Remaining:
    """The table from samples.

    Args:
        percentile: Percentile of the times left that fall into a bin, by nearest rank; 100: the worst. A bin without
            any is filled by a straight line between its neighbours, the first ones as the first that is not empty.
    """
    return Remaining(tuple(grid), tuple([_row(row, percentile) for row in samples_of_rows]))


def _row(samples: Samples, percentile: float) -> tuple[Time, ...]:
    times_of: list[list[Time]] = [[] for _ in range(BINS)]
    for sample_progress, left_us in samples:
        if sample_progress < 1.0:
            times_of[int(sample_progress * BINS)].append(left_us)
    known_columns = [(column, _ranked(sorted(times), percentile)) for column, times in enumerate(times_of) if times]

    row = [known_columns[0][1] if known_columns else 0] * BINS

    # Beyond the last known bin the line goes to 0 at the end of the job.
    for (low, time_before), (high, time_after) in itertools.pairwise([*known_columns, (BINS, 0)]):
        for column in range(low, high):
            row[column] = round(time_before + (time_after - time_before) * (column - low) / (high - low))

    return (*row, 0)


def _ranked(times: Sequence[Time], percentile: float) -> Time:
    return times[max(0, math.ceil(percentile / 100 * len(times)) - 1)]


def listed(waits: Places, duration_us: Sequence[Time], tokens: int) -> list[Time]:
    """The finish time of each task, microseconds after the job's submission.

    Args:
        tokens: Number of tasks that run at once, at least 1.
    """
    children: list[list[int]] = [[] for _ in waits]
    for child, parents in enumerate(waits):
        for parent in parents:
            children[parent].append(child)

    missing_parents = [len(parents) for parents in waits]
    ready = deque([place for place, count in enumerate(missing_parents) if not count])
    finish_us = [0] * len(waits)
    running: list[tuple[Time, int, int]] = []
    start_count = 0
    now = 0

    while True:
        # First ready, first started, as the scheduler does when a job is alone.
        while ready and len(running) < tokens:
            place = ready.popleft()
            heapq.heappush(running, (now + duration_us[place], start_count, place))
            start_count += 1

        if not running:
            return finish_us

        now, _, place = heapq.heappop(running)
        finish_us[place] = now
        for child in children[place]:
            missing_parents[child] -= 1
            if not missing_parents[child]:
                ready.append(child)


def samples_of(
    finish_us: Sequence[Time],
    stage_of: Sequence[int],
    stages: Sequence[JobStage],
    indicator: Indicator,
    period_us: Time,
) -> list[tuple[float, Time]]:
    """(progress, time left) at the beginning of a run and after every period of it."""
    counts = sizes(stage_of)
    ended_counts = [0] * len(stages)
    order = sorted(range(len(finish_us)), key=finish_us.__getitem__)
    samples: list[tuple[float, Time]] = []
    place = 0
    end_us = max(finish_us, default=0)

    for time_us in range(0, end_us, period_us):
        while finish_us[order[place]] <= time_us:
            ended_counts[stage_of[order[place]]] += 1
            place += 1

        done_shares = [ended_count / count for ended_count, count in zip(ended_counts, counts, strict=True)]
        samples.append((progress(indicator, stages, done_shares), end_us - time_us))

    return samples


class RehearsalSetting(msgspec.Struct, frozen=True):
    """The parameters of simulated runs."""

    grid: tuple[int, ...]
    repetitions: int
    indicator: Indicator
    percentile: float
    period_us: Time


class Rehearsal(msgspec.Struct, frozen=True):
    """The problem of `rehearse`."""

    waits: tuple[tuple[int, ...], ...]
    stage_of: tuple[int, ...]
    stages: tuple[JobStage, ...]
    run_us: tuple[tuple[Time, ...], ...]
    rehearsing: RehearsalSetting
    seed: int


Runs = Callable[[int, Sequence[Sequence[Time]]], Iterable[Sequence[Time]]]
"""Function from tokens, and durations of tasks per run, to the finish times of the tasks of each run."""


def rehearsed(problem: Rehearsal, run: Runs) -> Remaining:
    """The table of a job from runs that a function simulates."""
    setting = problem.rehearsing
    samples: list[Samples] = []

    for tokens in setting.grid:
        names = [f"{tokens}/{repetition}" for repetition in range(setting.repetitions)]
        durations = [drawn(problem.run_us, problem.stage_of, name, problem.seed) for name in names]
        samples_of_runs = [
            samples_of(finish_us, problem.stage_of, problem.stages, setting.indicator, setting.period_us)
            for finish_us in run(tokens, durations)
        ]
        samples.append([sample for run_samples in samples_of_runs for sample in run_samples])

    return tabulated(setting.grid, samples, setting.percentile)


def rehearse(problem: Rehearsal) -> Remaining:
    """`solve`, for `Port.compute`: the table of a job."""

    def run(tokens: int, durations: Sequence[Sequence[Time]]) -> list[list[Time]]:
        return [listed(problem.waits, duration_us, tokens) for duration_us in durations]

    return rehearsed(problem, run)


def drawn(run_us: Sequence[Sequence[Time]], stage_of: Sequence[int], name: str, seed: int) -> list[Time]:
    """A run time of its stage for each task, drawn from a stream of this name."""
    random = Streams(seed).of(f"rehearsal/{name}").random
    return [run_us[stage][int(random() * len(run_us[stage]))] for stage in stage_of]
