"""How often pages are made anew: all of them together take a small part of what this process has of a processor."""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, Final, TypeVar

PART_OF_WORK: Final = 0.01
"""Where this process is busy all the time, making pages takes so much of what it gets."""
PART_OF_REST: Final = 0.1
"""And so much of the time in which it would do nothing."""
ANSWER_S: Final = 0.0005
"""CPU seconds that an answer takes where the view is made already."""
EVERY_MAX_S: Final = 60.0
SAMPLE_S: Final = 1.0

T = TypeVar("T")


class Meter:
    """CPU seconds that a coroutine takes by itself, whatever else its thread does while it waits."""

    def __init__(self) -> None:
        self.cpu_s = 0.0

    @types.coroutine
    def of(self, made: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """What the coroutine returns."""
        send: Callable[[Any], Any] = made.send
        given: Any = None
        while True:
            began_s = time.thread_time()
            try:
                awaited = send(given)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return] # it is what the coroutine returns
            finally:
                self.cpu_s += time.thread_time() - began_s
            try:
                send, given = made.send, (yield awaited)
            except BaseException as error:
                send, given = made.throw, error


def thread_use() -> tuple[float, float]:
    """Seconds that this thread has run, and that it has waited for a processor (0 where nobody tells)."""
    try:
        ran_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return time.thread_time(), 0.0
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


class Pacer:
    """Tells how long to leave a page as it is.

    Args:
        clock_s: seconds that never go back.
        use: seconds that the thread has run, and has waited for a processor.
    """

    def __init__(
        self, clock_s: Callable[[], float] = time.monotonic, use: Callable[[], tuple[float, float]] = thread_use
    ) -> None:
        self._clock_s = clock_s
        self._use = use
        self._sampled_s = clock_s()
        self._ran_s, self._waited_s = use()
        self._part = PART_OF_REST

    def _allowed(self) -> float:
        """The part of a processor that pages may take."""
        now_s = self._clock_s()
        if (passed_s := now_s - self._sampled_s) >= SAMPLE_S:
            ran_s, waited_s = self._use()
            ran, waited = (ran_s - self._ran_s) / passed_s, (waited_s - self._waited_s) / passed_s
            self._part = PART_OF_WORK * min(1.0, ran) + PART_OF_REST * max(0.0, 1.0 - ran - waited)
            self._sampled_s, self._ran_s, self._waited_s = now_s, ran_s, waited_s
        return max(self._part, PART_OF_WORK / 4)

    def every_s(self, least_s: float, cost_s: float, made: int, pages: int) -> float:
        """How long a view stays as it is, in seconds; all that are made are given the same part.

        Args:
            least_s: never shorter than this.
            cost_s: CPU seconds that it took to make it.
            made: how many different views are made again and again.
            pages: how many show one of them.
        """
        wanted_s = cost_s * made + ANSWER_S * pages
        return max(least_s, min(EVERY_MAX_S, wanted_s / self._allowed()))
