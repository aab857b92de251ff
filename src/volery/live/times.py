"""The clock of a host, and times as people read them: command line, page and logs show moments in one form."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from volery.core.model import Time

SECOND_US: Final = 1_000_000

Clock = Callable[[], Time]


def clock_from_now() -> Clock:
    """Microseconds since this call."""
    origin, read = time.monotonic_ns(), time.monotonic_ns
    return lambda: (read() - origin) // 1000


def utc(unix_us: int, *, fine: bool = False) -> str:
    """Show a moment as `2026-11-22 14:03:12Z`.

    Args:
        unix_us: microseconds since 1970-01-01 UTC.
        fine: show milliseconds, too.

    Raises:
        OverflowError, OSError, ValueError: it is beyond what the platform's calendar knows.
    """
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(unix_us // SECOND_US))
    return f"{shown}.{unix_us % SECOND_US // 1000:03d}Z" if fine else f"{shown}Z"
