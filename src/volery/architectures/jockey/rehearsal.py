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
from collections.abc import Sequence
from typing import Final

import msgspec

from volery.architectures.jockey.stages import Indicator, JobStage, Places, progress, sizes
from volery.core.model import Time
from volery.core.streams import Streams

BINS: Final = 100
"""Of progress; what has progressed by 1 is done."""
Samples = Sequence[tuple[float, Time]]
"""(progress, time left) at moments of runs with one allocation."""


class Remaining(msgspec.Struct, frozen=True):
    """The table.

    Args:
        left_us: per allocation and bin of progress, the time left that is reckoned with; 0 where all is done.
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
                few, many = self.left_us[place][column], self.left_us[place + 1][column]
                return round(few + (many - few) * (tokens - low) / (high - low))
        return self.left_us[-1][column]


def tabulated(grid: Sequence[int], samples: Sequence[Samples], percentile: float) -> Remaining:
    """The table from samples.

    Args:
        percentile: of the times left that fall into a bin, by nearest rank; 100: the worst. A bin without any is
            filled by a straight line between its neighbours, the first ones as the first that is not empty.
    """
    return Remaining(tuple(grid), tuple([_row(one, percentile) for one in samples]))


def _row(samples: Samples, percentile: float) -> tuple[Time, ...]:
    found: list[list[Time]] = [[] for _ in range(BINS)]
    for at, left_us in samples:
        if at < 1.0:
            found[int(at * BINS)].append(left_us)
    known = [(column, _ranked(sorted(times), percentile)) for column, times in enumerate(found) if times]
    row = [known[0][1] if known else 0] * BINS
    for (low, before), (high, after) in itertools.pairwise([*known, (BINS, 0)]):
        for column in range(low, high):
            row[column] = round(before + (after - before) * (column - low) / (high - low))
    return (*row, 0)


def _ranked(times: Sequence[Time], percentile: float) -> Time:
    return times[max(0, math.ceil(percentile / 100 * len(times)) - 1)]


def listed(waits: Places, duration_us: Sequence[Time], tokens: int) -> list[Time]:
    """The finish time of each task, microseconds after the job's submission.

    Args:
        tokens: tasks that run at once, at least 1.
    """
    children: list[list[int]] = [[] for _ in waits]
    for child, parents in enumerate(waits):
        for parent in parents:
            children[parent].append(child)
    missing = [len(parents) for parents in waits]
    ready = deque([place for place, count in enumerate(missing) if not count])
    finish_us, running, started, now = [0] * len(waits), list[tuple[Time, int, int]](), 0, 0
    while True:
        while ready and len(running) < tokens:
            place = ready.popleft()
            heapq.heappush(running, (now + duration_us[place], started, place))
            started += 1
        if not running:
            return finish_us
        now, _, place = heapq.heappop(running)
        finish_us[place] = now
        for child in children[place]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)


def samples_of(
    finish_us: Sequence[Time],
    stage_of: Sequence[int],
    stages: Sequence[JobStage],
    indicator: Indicator,
    period_us: Time,
) -> list[tuple[float, Time]]:
    """(progress, time left) at the beginning of a run and after every period of it."""
    counts, ended = sizes(stage_of), [0] * len(stages)
    order = sorted(range(len(finish_us)), key=finish_us.__getitem__)
    samples, place, end_us = list[tuple[float, Time]](), 0, max(finish_us, default=0)
    for at in range(0, end_us, period_us):
        while finish_us[order[place]] <= at:
            ended[stage_of[order[place]]] += 1
            place += 1
        done = [finished / count for finished, count in zip(ended, counts, strict=True)]
        samples.append((progress(indicator, stages, done), end_us - at))
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


def rehearse(asked: Rehearsal) -> Remaining:
    """`solve`, for `Port.compute`: the table of a job."""
    how, samples = asked.rehearsing, list[list[tuple[float, Time]]]()
    for tokens in how.grid:
        found: list[tuple[float, Time]] = []
        for repetition in range(how.repetitions):
            duration_us = drawn(asked.run_us, asked.stage_of, f"{tokens}/{repetition}", asked.seed)
            finish_us = listed(asked.waits, duration_us, tokens)
            found += samples_of(finish_us, asked.stage_of, asked.stages, how.indicator, how.period_us)
        samples.append(found)
    return tabulated(how.grid, samples, how.percentile)


def drawn(run_us: Sequence[Sequence[Time]], stage_of: Sequence[int], name: str, seed: int) -> list[Time]:
    """Per task, one of the run times of its stage, from a stream of this name."""
    random = Streams(seed).of(f"rehearsal/{name}").random
    return [run_us[stage][int(random() * len(run_us[stage]))] for stage in stage_of]
