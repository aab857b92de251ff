"""The event loop that live processes run on."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, Final, TypeVar

COLLECT_EVERY: Final = 50_000
"""Messages are never part of a cycle: looking for cycles after every 700 objects would only walk the queues."""


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
"""A request needs a few turns of the loop to be answered, each of which waits for a slice of every long request."""

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
