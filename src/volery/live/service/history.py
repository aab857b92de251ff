"""History of a federation: samples of the last hours, counts of attempts, and their throughput of the last minute."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from volery.core.model import Time
from volery.live.status import UnixMicroseconds

STEP_S: Final = 10.0
KEPT: Final = 2_160
"""Six hours."""


class Sample(msgspec.Struct, frozen=True):
    """A federation at one moment."""

    at_us: UnixMicroseconds
    used: Annotated[int, Meta(description="tasks that run on usable slots; utilisation is used / usable")]
    usable: Annotated[int, Meta(description="slots of nodes that are neither drained nor lost")]
    waiting: Annotated[int, Meta(description="tasks that wait, of everybody")]
    failed: Annotated[int, Meta(description="attempts that have failed since the sample before")]


class History:
    """Samples of a federation, the oldest first; they are not kept over a restart of the API."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self._failed = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, at_us: Time, used: int, usable: int, waiting: int, failed: int) -> None:
        """Keep a sample; `failed` counts attempts since the API's start."""
        self.samples.append(Sample(at_us, used, usable, waiting, failed - self._failed))
        self._failed = failed

    def start(self, take: Callable[[], None]) -> None:
        """Call `take`, which notes a sample, now and every `STEP_S` until `close`."""
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self.start, take)  # a failure ends nothing
        take()

    def close(self) -> None:
        """Take no more samples."""
        if self._timer is not None:
            self._timer.cancel()


SPAN_S: Final = 60.0
PACE_STEP_S: Final = 1.0


class AttemptCounts:
    """Reports of attempts since the API's start.

    Attributes:
        told: how many, by state.
        pace: counts ended attempts over time.
    """

    def __init__(self) -> None:
        self.told: dict[str, int] = {}
        self.pace = ThroughputMeter()

    def note(self) -> None:
        """Note how many attempts have ended so far."""
        self.pace.note(ended_of(self.told))


def ended_of(told: Mapping[str, int]) -> int:
    """Attempts that have ended, of reports counted by state."""
    return sum(count for state, count in told.items() if state not in ("running", "unknown"))


class ThroughputMeter:
    """Counts over time.

    Args:
        clock_s: seconds that never go back.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._noted: deque[tuple[float, int]] = deque([(clock_s(), 0)])

    def note(self, ended: int) -> None:
        """Note how many have ended so far; at most one note per second is kept."""
        now_s = self._clock_s()
        if now_s - self._noted[-1][0] >= PACE_STEP_S:
            self._noted.append((now_s, ended))
            self._forget(now_s)

    def per_second(self, ended: int) -> float | None:
        """Per second over the last minute, or since the start, given how many have ended so far; None: too soon."""
        now_s = self._clock_s()
        self._forget(now_s)
        since_s, before = self._noted[0]
        # Nothing has happened between a note and what was before the next one but for a second's worth.
        span_s = min(now_s - since_s, SPAN_S)
        return (ended - before) / span_s if span_s >= PACE_STEP_S else None

    def _forget(self, now_s: float) -> None:
        while len(self._noted) > 1 and self._noted[1][0] <= now_s - SPAN_S:
            self._noted.popleft()
