"""How long tasks may still take, drawn from what is known of their kind.

Tasks of one job resemble each other more than tasks of two: of each job first one earlier job of its kind is drawn, and
then each of its tasks from the tasks of that one. A task that runs already is drawn among those that took longer than
it has; one that has outlived them all takes up to as long again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import Final

from volery.core.model import SECOND, Time
from volery.core.standing import Lifetime

ESTIMATE_OFF: Final = 2.0
"""Nobody has been seen to estimate here: a task takes between a half and twice what is estimated."""
NOT_STARTED: Final = -1
UNKNOWN_US: Final = (SECOND, 3600 * SECOND)
"""Of a kind of which nothing is known."""


class JobLifetimes:
    """The durations of one job's tasks in one run.

    Args:
        lifetime: what is known of the kind.
        stream: of the run.
    """

    def __init__(self, lifetime: Lifetime, stream: Random) -> None:
        self._stream = stream
        self._all = lifetime.past
        self._past: Sequence[Time] = stream.choice(lifetime.past) if lifetime.past else ()
        if not self._past and lifetime.estimate_us:
            self._past = self._estimated(lifetime)

    def _estimated(self, lifetime: Lifetime) -> Sequence[Time]:
        """One duration for all: estimates are wrong by job. Other jobs' errors stand by for tasks that outlive it."""
        stream, estimate_us = self._stream, lifetime.estimate_us
        if lifetime.ratios:
            self._all = tuple((max(1, estimate_us * ratio // 1000),) for ratio in lifetime.ratios)
            return stream.choice(self._all)
        off = math.log(ESTIMATE_OFF)
        self._all = ((round(estimate_us * ESTIMATE_OFF),),)
        return (max(1, round(estimate_us * math.exp(stream.uniform(-off, off)))),)

    def total_us(self, elapsed_us: Time = NOT_STARTED) -> Time:
        """From start to end, for a task that has been running so long."""
        if not self._past:
            low, high = UNKNOWN_US
            return max(0, elapsed_us) + round(math.exp(self._stream.uniform(math.log(low), math.log(high))))
        found = self._longer(self._past, elapsed_us)
        if found is None:
            longer = [past for past in self._all if past[-1] > elapsed_us]
            found = self._longer(self._stream.choice(longer), elapsed_us) if longer else None
        return found if found is not None else elapsed_us + 1 + round(elapsed_us * self._stream.random())

    def _longer(self, past: Sequence[Time], elapsed_us: Time) -> Time | None:
        at = bisect_right(past, elapsed_us)
        return past[self._stream.randrange(at, len(past))] if at < len(past) else None
