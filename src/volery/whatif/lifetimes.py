"""How long tasks may still take, drawn from what is known of their kind.

Tasks of one job resemble each other more than tasks of two: of each job first one earlier job of its kind is drawn, and
then each of its tasks from the tasks of that one. Those earlier jobs are likelier that the job resembles so far: by how
long its tasks have been running, and by how long those took that have ended. As the next job is as a rule none of the
few that were seen, a smooth kernel is laid around each (Silverman, Density Estimation, 1986, section 6.4: the smoothed
bootstrap). A task that runs is drawn among those that took longer than it has; one that has outlived them all takes up
to as long again.
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
"""Nobody has been seen to estimate here: a task takes between a half and twice what is estimated."""
NOT_STARTED: Final = -1
TOLD_MAX: Final = 20
"""So many running tasks tell what their job is like."""
DEVIATION_MIN: Final = 0.1
"""Nothing takes the same for ever."""
IMPOSSIBLE: Final = 1e-12
UNKNOWN_US: Final = (SECOND, 3600 * SECOND)
"""Of a kind of which nothing is known."""
BANDWIDTH: Final = 1.06
"""Of the kernel, in standard deviations, for one job; it shrinks with the fifth root of their number."""


class Kind:
    """A kind of tasks, made ready for many draws.

    Args:
        lifetime: what is known of it.

    Attributes:
        spread: how far the logarithm of the next job's durations may lie from an earlier one's: a standard deviation.
            Of one job alone the tasks have to tell how much jobs differ.
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
        """A job of this kind, of whose tasks some have been running for so long, and others ended after so long."""
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
    """The logarithms of some of them."""
    some = times_us if len(times_us) <= TOLD_MAX else stream.sample(times_us, TOLD_MAX)
    return [math.log(max(1, one)) for one in some]


def _likelihood(mean: float, deviation: float, running: Sequence[float], ended: Sequence[float]) -> float:
    """How likely a job with these durations has tasks that run for so long, and tasks that took so long; a logarithm.

    Durations are taken for log-normal here; all else draws from those that were seen.
    """
    still = (math.erfc((one - mean) / deviation / math.sqrt(2)) / 2 for one in running)
    off = ((one - mean) / deviation for one in ended)
    return sum(math.log(max(one, IMPOSSIBLE)) for one in still) - sum(
        one * one / 2 + math.log(deviation) for one in off
    )


class JobLifetimes:
    """The durations of one job's tasks in one run.

    Args:
        jobs: the durations of earlier jobs' tasks, each in order; nothing where nothing is known.
        past: of the one that this job resembles.
        factor: by which it differs from that.
        stream: of the run.
    """

    def __init__(self, jobs: Sequence[Sequence[Time]], past: Sequence[Time], factor: float, stream: Random) -> None:
        self._jobs = jobs
        self._past = past
        self._factor = factor
        self._stream = stream

    def total_us(self, elapsed_us: Time = NOT_STARTED) -> Time:
        """From start to end, for a task that has been running so long."""
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
