"""What waits to be written to the store in the next batch, and for whom."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any


class Write:
    """Something to be written in the next batch, and who waits for it."""

    __slots__ = ("_error", "_future", "_given", "_write")

    def __init__(self, write: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self._write = write
        self._future = future
        self._given: Any = None
        self._error: Exception | None = None

    def make(self) -> None:
        """Write."""
        try:
            self._given = self._write()
        except sqlite3.Error:  # it may have ended the whole batch
            raise
        except Exception as error:
            self._error = error

    def tell(self) -> None:
        """It is committed."""
        if self._error is not None:
            self.fail(self._error)
        elif not self._future.done():  # whoever waits may have given up
            self._future.set_result(self._given)

    def fail(self, error: Exception) -> None:
        """It has come to nothing."""
        if not self._future.done():
            self._future.set_exception(error)
