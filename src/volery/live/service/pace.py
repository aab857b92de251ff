"""How fast tasks end: counts of the last minute, noted as batches are written, whether or not somebody looks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

SPAN_S: Final = 60.0
STEP_S: Final = 1.0


class AttemptCounts:
    """Reports of attempts since the API's start.

    Attributes:
        told: how many, by state.
        pace: counts ended attempts over time.
    """

    def __init__(self) -> None:
        self.told: dict[str, int] = {}
        self.pace = Pace()

    def note(self) -> None:
        """Note how many attempts have ended so far."""
        self.pace.note(ended_of(self.told))


def ended_of(told: Mapping[str, int]) -> int:
    """Attempts that have ended, of what nodes have told of attempts by state."""
    return sum(count for state, count in told.items() if state not in ("running", "unknown"))


class Pace:
    """Counts over time.

    Args:
        clock_s: seconds that never go back.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._noted: deque[tuple[float, int]] = deque([(clock_s(), 0)])

    def note(self, ended: int) -> None:
        """So many have ended so far; at most one note per second is kept."""
        now_s = self._clock_s()
        if now_s - self._noted[-1][0] >= STEP_S:
            self._noted.append((now_s, ended))
            self._forget(now_s)

    def per_second(self, ended: int) -> float | None:
        """Per second over the last minute, or since the start, given how many have ended so far; None: too soon."""
        now_s = self._clock_s()
        self._forget(now_s)
        since_s, before = self._noted[0]
        # Nothing has happened between a note and what was before the next one but for a second's worth.
        span_s = min(now_s - since_s, SPAN_S)
        return (ended - before) / span_s if span_s >= STEP_S else None

    def _forget(self, now_s: float) -> None:
        while len(self._noted) > 1 and self._noted[1][0] <= now_s - SPAN_S:
            self._noted.popleft()
