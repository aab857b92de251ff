"""Long work of the API's loop in slices: between two of them whoever else waits has a turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

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
