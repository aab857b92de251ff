"""Placement by least estimated waiting time (Hawk: Delgado et al., USENIX ATC 2015).

The waiting time of a unit (a worker slot) is the sum of the estimates of what was placed there and has not ended, less
what the running task has done of its own. One numpy pass over all units per placement, and a heap of as many units as
there are tasks: no other unit can be reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from volery.core.model import SECOND, Time

IDLE: Time = -1
Units = npt.NDArray[np.int64]


class LeastWait:
    """Estimates the wait of each unit from the tasks that were placed there.

    Args:
        units: how many.
        random: uniform on [0, 1).
        in_order: of the empty units the first are taken, as in the Eagle authors' simulator, else random ones. Taking
            the first keeps long tasks on as few units as do.
        request_us: added where a task runs: the time that its request took.
        stale_us: above 0, placements see the state at the last multiple of this time, and whole seconds up to it are
            added at random to spread ties, as in DLWL of the Eagle authors' simulator.
    """

    def __init__(
        self,
        units: int,
        random: Callable[[], float],
        *,
        in_order: bool = False,
        request_us: Time = 0,
        stale_us: Time = 0,
    ) -> None:
        self.wait_us: Units = np.zeros(units, dtype=np.int64)
        self._start_us: Units = np.full(units, IDLE, dtype=np.int64)
        self._running_us: Units = np.zeros(units, dtype=np.int64)
        self._random = random
        self._in_order = in_order
        self._request_us = request_us
        self._stale_us = stale_us
        self._seen_wait_us = self.wait_us
        self._epoch = 0

    def _look(self, now: Time) -> None:
        """Keep the state as it was at the last multiple of `stale_us`, before it changes or is looked at."""
        if self._stale_us and now // self._stale_us > self._epoch:
            self._epoch = now // self._stale_us
            self._seen_wait_us = self.wait_us.copy()

    def place(self, count: int, estimate_us: Time, eligible: Units, now: Time) -> list[int]:
        """Units for so many tasks; empty ones first, then always the one with the least estimated wait.

        Args:
            count: of tasks.
            estimate_us: of each.
            eligible: the units that may be taken, at least one.
            now: time.
        """
        self._look(now)
        wait_us = (self._seen_wait_us if self._stale_us else self.wait_us)[eligible]
        start_us = self._start_us[eligible]
        done_us = np.minimum(now - start_us, self._running_us[eligible]) - self._request_us
        busy_us = np.where((start_us != IDLE) & (wait_us > 0), np.maximum(wait_us - done_us, 0), wait_us)
        if self._stale_us:
            seconds = self._stale_us // SECOND
            spread = [int(self._random() * (seconds + 1)) * SECOND for _ in range(len(eligible))]
            chosen = self._by_heap(count, estimate_us, busy_us + np.array(spread, dtype=np.int64), eligible)
        else:
            chosen = self._empty_first(count, estimate_us, busy_us, wait_us, eligible)
        for unit in chosen:
            self.wait_us[unit] += estimate_us
        return chosen

    def _empty_first(self, count: int, estimate_us: Time, busy_us: Units, wait_us: Units, eligible: Units) -> list[int]:
        empty = np.flatnonzero(wait_us == 0)
        if len(empty) >= count:
            if self._in_order:
                first: list[int] = eligible[empty[:count]].tolist()
                return first
            return self._some(eligible[empty].tolist(), count)
        chosen: list[int] = eligible[empty].tolist()
        busy_us[empty] = max(estimate_us, 1)
        return chosen + self._by_heap(count - len(empty), estimate_us, busy_us, eligible)

    def _some(self, units: list[int], count: int) -> list[int]:
        random, left = self._random, len(units)
        for place in range(count):
            other = place + int(random() * left)
            left -= 1
            units[place], units[other] = units[other], units[place]
        return units[:count]

    def _by_heap(self, count: int, estimate_us: Time, busy_us: Units, eligible: Units) -> list[int]:
        """One by one to the least wait; where two are equal the same unit goes on, as in the published code."""
        nearest = np.argpartition(busy_us, count - 1)[:count] if count < len(eligible) else np.arange(len(eligible))
        line = list(zip(busy_us[nearest].tolist(), eligible[nearest].tolist(), strict=True))
        heapq.heapify(line)
        chosen: list[int] = []
        step_us = max(estimate_us, 1)
        while len(chosen) < count:
            wait_us, unit = heapq.heappop(line)
            following = line[0][0] if line else wait_us + step_us * count
            while wait_us <= following and len(chosen) < count:
                chosen.append(unit)
                wait_us += step_us
            heapq.heappush(line, (wait_us, unit))
        return chosen

    def started(self, unit: int, estimate_us: Time, now: Time) -> None:
        """A task that was placed here runs."""
        self._look(now)
        self._start_us[unit] = now
        self._running_us[unit] = estimate_us

    def ended(self, unit: int, estimate_us: Time, now: Time) -> bool:
        """Take off a task that has ended or will never run; True if nothing is left."""
        self._look(now)
        self._start_us[unit] = IDLE
        self.wait_us[unit] -= estimate_us
        return not self.wait_us[unit]
