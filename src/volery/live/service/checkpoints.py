"""When the log of the database is moved to its place: beside the commits, in a thread of its own, and seldom."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

IDLE_S: Final = 1.0
"""A log that nothing was written to for so long is moved as a whole, and its file emptied."""
PAUSE_S: Final = 0.25
"""Between two checkpoints. One waits for the disk twice, and commits that meet it there take longer."""
LOG_PAGES_MAX: Final = 16_384
"""A log that is longer, 64 MiB, is moved as a whole before anything more is written, and its file is emptied."""

log = logging.getLogger(__name__)


class Checkpoints:
    """Checkpoints of a database that is written in batches.

    Args:
        checkpoint: see `Database.checkpoint`.
    """

    def __init__(self, checkpoint: Callable[[bool], int]) -> None:
        self._checkpoint = checkpoint
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._moving: asyncio.Future[int] | None = None
        self._moved_s = 0.0
        self._written = True
        """Whether the log's file may hold something; at the start, what an earlier life has left."""

    async def until(self, something: asyncio.Event) -> None:
        """Wait until there is something to write; while there is nothing, the log is moved and its file emptied."""
        loop = asyncio.get_running_loop()
        while self._written and not something.is_set():
            try:
                async with asyncio.timeout(IDLE_S):
                    await something.wait()
            except TimeoutError:
                if self._moving is not None:
                    await self._moving
                    self._moving = None
                await loop.run_in_executor(self._thread, self._move, False)
                if not something.is_set():
                    self._written = bool(await loop.run_in_executor(self._thread, self._move, True))
        await something.wait()

    async def after_batch(self) -> None:
        """Begin one if it is time; returns at once, unless the log is too long."""
        loop = asyncio.get_running_loop()
        self._written = True
        if self._moving is None:
            if loop.time() - self._moved_s >= PAUSE_S:
                self._moving = loop.run_in_executor(self._thread, self._move, False)
        elif self._moving.done():
            pages, self._moving = self._moving.result(), None
            if pages > LOG_PAGES_MAX:
                await loop.run_in_executor(self._thread, self._move, True)
            self._moved_s = loop.time()

    def _move(self, whole: bool) -> int:
        try:
            return self._checkpoint(whole)
        except sqlite3.Error as error:  # a full disk, for example: it stays in the log, and writes go on
            log.warning("the database could not be tidied, and keeps its log: %s", error)
            return 0

    def close(self) -> None:
        """Wait for what is under way."""
        self._thread.shutdown()
