"""The event loop that live processes run on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final

COLLECT_EVERY: Final = 50_000
"""Messages are never part of a cycle: looking for cycles after every 700 objects would only walk the queues."""


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on uvloop where it is installed."""
    gc.set_threshold(COLLECT_EVERY, 20, 20)
    try:
        from uvloop import new_event_loop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)
