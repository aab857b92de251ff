"""The last hours of a federation as figures: use, queue and failures, noted every ten seconds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
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
    """Samples of a federation, the oldest first; they are not kept over a restart of the API.

    Attributes:
        samples: at most `KEPT`.
    """

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
