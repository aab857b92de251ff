"""Random durations of tasks, from past durations of their kind.

Tasks of one job resemble each other more than tasks of two. So an earlier job of the kind is drawn for each job, and
the durations of its tasks from that one. Earlier jobs are weighted by their likelihood, given the elapsed times of
running tasks and the durations of ended ones. The next job is rarely one of the few in the past, so a smooth kernel is
laid around each (Silverman, Density Estimation, 1986, section 6.4: the smoothed bootstrap). A running task draws among
longer durations; one that has run longer than all takes up to as long again.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import Final

from volery.core.forecast import Lifetime
from volery.core.model import SECOND, Time

ESTIMATE_OFF: Final = 2.0
"""Without past estimates, a task takes between a half and twice its estimate."""
NOT_STARTED: Final = -1
SAMPLE_MAX: Final = 20
"""Tasks of a job that enter its likelihood."""
DEVIATION_MIN: Final = 0.1
"""The least deviation of logarithms of durations."""
IMPOSSIBLE: Final = 1e-12
UNKNOWN_US: Final = (SECOND, 3600 * SECOND)
"""Bounds of durations of a kind without past."""
BANDWIDTH: Final = 1.06
"""Of the kernel, in standard deviations, for one job; it shrinks with the fifth root of their number."""


class TaskKind:
    """Distribution of durations of a kind of tasks.

    Args:
        lifetime: of the kind.

    Attributes:
        spread: standard deviation of the logarithm of the next job's durations around an earlier job's. With one
            earlier job, it comes from that job's tasks.
    """

    def __init__(self, lifetime: Lifetime) -> None:
        self.lifetime = lifetime
        estimate_us, past = lifetime.estimate_us, lifetime.past
        if not past and estimate_us:  # estimates are wrong by job
            past = tuple((max(1, estimate_us * ratio // 1000),) for ratio in lifetime.ratios)
        self.past = past
        logs = [math.log(max(1, statistics.fmean(took))) for took in past]
        if len(past) == 1:
            logs = [math.log(max(1, took)) for took in past[0]]
        self._shapes = [_shape(took) for took in past]
        self.spread = BANDWIDTH * statistics.stdev(logs) * len(past) ** -0.2 if len(logs) > 1 else 0.0

    def job(self, stream: Random, elapsed_us: Sequence[Time] = (), took_us: Sequence[Time] = ()) -> JobLifetimes:
        """A job of this kind, given elapsed times of running tasks and durations of ended ones."""
        past, factor = self.past, math.exp(stream.gauss(0.0, self.spread))
        if not past and self.lifetime.estimate_us:
            off = math.log(ESTIMATE_OFF)
            past, factor = ((self.lifetime.estimate_us,),), math.exp(stream.uniform(-off, off))
        if len(past) < 2 or not (elapsed_us or took_us):
            return JobLifetimes(past, stream.choice(past) if past else (), factor, stream)
        running, ended = _some(elapsed_us, stream), _some(took_us, stream)
        shift = math.log(factor)
        likely = [_likelihood(mean + shift, deviation, running, ended) for mean, deviation in self._shapes]
        most = max(likely)
        return JobLifetimes(past, stream.choices(past, [math.exp(one - most) for one in likely])[0], factor, stream)


def _shape(took_us: Sequence[Time]) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm."""
    logs = [math.log(max(1, took)) for took in took_us]
    return statistics.fmean(logs), max(DEVIATION_MIN, statistics.pstdev(logs))


def _some(times_us: Sequence[Time], stream: Random) -> list[float]:
    """Logarithms of a sample of times."""
    some = times_us if len(times_us) <= SAMPLE_MAX else stream.sample(times_us, SAMPLE_MAX)
    return [math.log(max(1, one)) for one in some]


def _likelihood(mean: float, deviation: float, running: Sequence[float], ended: Sequence[float]) -> float:
    """Log-likelihood of elapsed times and durations under a log-normal distribution.

    Only this weight assumes a distribution; draws come from past durations.
    """
    still = (math.erfc((one - mean) / deviation / math.sqrt(2)) / 2 for one in running)
    off = ((one - mean) / deviation for one in ended)
    return sum(math.log(max(one, IMPOSSIBLE)) for one in still) - sum(
        one * one / 2 + math.log(deviation) for one in off
    )


class JobLifetimes:
    """The durations of one job's tasks in one run.

    Args:
        jobs: durations of earlier jobs' tasks, each in order; empty: there are none.
        past: durations of the earlier job that was drawn.
        factor: of this job's durations, relative to that job's.
        stream: of the run.
    """

    def __init__(self, jobs: Sequence[Sequence[Time]], past: Sequence[Time], factor: float, stream: Random) -> None:
        self._jobs = jobs
        self._past = past
        self._factor = factor
        self._stream = stream

    def total_us(self, elapsed_us: Time = NOT_STARTED) -> Time:
        """The duration of a task, longer than its elapsed time."""
        if not self._past:
            low, high = UNKNOWN_US
            return max(0, elapsed_us) + round(math.exp(self._stream.uniform(math.log(low), math.log(high))))
        found = self._longer(self._past, elapsed_us)
        if found is None:
            longer = [past for past in self._jobs if past[-1] * self._factor > elapsed_us]
            found = self._longer(self._stream.choice(longer), elapsed_us) if longer else None
        return found if found is not None else elapsed_us + 1 + round(elapsed_us * self._stream.random())

    def _longer(self, past: Sequence[Time], elapsed_us: Time) -> Time | None:
        at = bisect_right(past, elapsed_us / self._factor)
        if at == len(past):
            return None
        return max(elapsed_us + 1, round(past[self._stream.randrange(at, len(past))] * self._factor))
