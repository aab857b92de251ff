"""The event loop that live processes run on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final

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
    """Run to the end."""
    gc.set_threshold(COLLECT_EVERY, 20, 20)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)
