"""Times as people read them: the command line, the page and logs show every moment in this one form."""

from __future__ import annotations

import time
from typing import Final

SECOND_US: Final = 1_000_000


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
