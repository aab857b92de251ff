"""The clock of a live process, its event loop, and lines of logs."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

import msgspec

from volery.core.model import SECOND, Address, TaskId, Time
from volery.look.text import utc

log = logging.getLogger(__name__)

_STEP_US: Final = 100_000
"""Deviation above which a clock was set; below, it was adjusted."""
_READINGS: Final = 5
"""Readings of both clocks for one offset between them."""
COLLECT_EVERY: Final = 50_000
"""Objects between two searches for cycles. Messages are in none: a search after every 700 would only walk queues."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where it is installed, else one of asyncio; the tests of live processes run on it as well."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    gc.set_threshold(COLLECT_EVERY, 20, 20)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


SLICE_S: Final = 0.005
"""Time of one turn of long work: a request needs a few turns, each of which waits for a slice of all long work."""

T = TypeVar("T")


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield all items; others have a turn whenever items and their user have taken `SLICE_S`.

    Not in a thread, which would hold the interpreter for longer than a slice takes.
    """
    began_s = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began_s > SLICE_S:
            await asyncio.sleep(0)
            began_s = time.perf_counter()


async def is_set_within(event: asyncio.Event, limit_s: float) -> bool:
    """Wait for an event, at most so long; true if it is set.

    `asyncio.wait_for` swallows, up to Python 3.11, a cancellation that comes in the turn in which its event is set. A
    limit around it, `asyncio.timeout`, cancels once: a wait in slices then goes on for ever. This wait swallows none.
    """
    if event.is_set():
        return True

    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((waiting,), timeout=limit_s)
    finally:
        waiting.cancel()
    return event.is_set()


async def ended_within(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    """The result of work that is waited for at most so long.

    The work is cancelled when the limit is over, and nobody waits for its end: it may swallow the cancellation.

    Raises:
        TimeoutError: the limit is over.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=limit_s)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_forget_end)

    if not task.done():
        raise TimeoutError(f"not within {limit_s:g} s")

    return task.result()


def _forget_end(task: asyncio.Future[Any]) -> None:
    """Take the exception of abandoned work, which the loop would log otherwise."""
    if not task.cancelled():
        task.exception()


_background: set[asyncio.Task[None]] = set()
"""Tasks that run: the loop itself has only weak references to them."""


def in_background(work: Coroutine[Any, Any, None], title: str) -> asyncio.Task[None]:
    """Begin work whose end nobody awaits; an exception that ends it is logged at once.

    Args:
        title: name of the work, for the log.
    """
    task = asyncio.get_running_loop().create_task(work, name=title)
    _background.add(task)
    task.add_done_callback(_note_end)
    return task


def _note_end(task: asyncio.Task[None]) -> None:
    _background.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("%s has failed, and is not tried again: %r", task.get_name(), error, exc_info=error)


Clock = Callable[[], Time]


def clock_from_now() -> Clock:
    """Microseconds since this call."""
    origin, read = time.monotonic_ns(), time.monotonic_ns
    return lambda: (read() - origin) // 1000


def unix_now_us() -> Time:
    """The wall clock, microseconds since 1970."""
    return time.time_ns() // 1000


def monotonic_now_us() -> Time:
    """The clock for durations, which nobody sets; microseconds since some moment."""
    return time.monotonic_ns() // 1000


class PlainLines(logging.Formatter):
    """Formats a record as a line of text: time, level, message, and the exception where there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - its name
        return utc(round(record.created * SECOND))


class JsonLines(logging.Formatter):
    """Formats a record as an object: time, level, logger, message, host, and the exception where there is one."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "host": self._host,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)

        return msgspec.json.encode(fields).decode()


class AttemptTimes:
    """The moments of attempts that this process has started.

    Between start and end the system's clock may be set: the time between them is taken from the monotonic clock.
    """

    def __init__(
        self, wall_us: Callable[[], Time] = unix_now_us, monotonic_us: Callable[[], Time] = monotonic_now_us
    ) -> None:
        self._wall_us = wall_us
        self._monotonic_us = monotonic_us
        self._starts: dict[tuple[Address, TaskId, int], tuple[Time, Time]] = {}

    def at_unix_us(self, attempt: tuple[Address, TaskId, int], *, is_start: bool) -> Time:
        """The moment of a start or an end that is now, in microseconds since 1970."""
        now_us = self._monotonic_us()
        if is_start:
            wall_us = self._wall_us()
            self._starts[attempt] = wall_us, now_us
            return wall_us

        start = self._starts.pop(attempt, None)
        if start is None:
            return self._wall_us()

        wall_us, began_us = start
        return wall_us + now_us - began_us


def _unix_offset_us() -> Time:
    """The wall clock less the monotonic one, now.

    Another process may run between two readings, for milliseconds on a busy machine: the wall clock is read between
    two readings of the monotonic one, and of a few such readings the closest counts.
    """
    readings = [(monotonic_now_us(), unix_now_us(), monotonic_now_us()) for _ in range(_READINGS)]
    began_us, unix_us, ended_us = min(readings, key=lambda reading: reading[2] - reading[0])
    return unix_us - (began_us + ended_us) // 2


class ClockSteps:
    """The steps of the clock that people set, as far as this process has seen them.

    A report names a moment by that clock, which may have been set since: an end is its start and the time between.
    """

    def __init__(self) -> None:
        self._offsets_us = [_unix_offset_us()]

    def monotonic_us(self, unix_us: Time) -> Time:
        """The moment of a report that comes soon after it, by the clock that nobody sets."""
        now_us = monotonic_now_us()
        if abs(unix_now_us() - now_us - self._offsets_us[-1]) > _STEP_US:
            offset_us = _unix_offset_us()  # or this process was only held up between the two readings
            if abs(offset_us - self._offsets_us[-1]) > _STEP_US:
                self._offsets_us.append(offset_us)

        if len(self._offsets_us) == 1:
            return unix_us - self._offsets_us[0]

        # Which setting of the clock the report was made under is not known: the moment next to now is taken.
        return min((unix_us - offset for offset in self._offsets_us), key=lambda moment: abs(moment - now_us))
