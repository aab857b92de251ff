"""Log records as lines: as text for people, as JSON for whoever collects logs."""

from __future__ import annotations

import logging
import time

import msgspec

from volery.live.times import SECOND_US, utc


class PlainLines(logging.Formatter):
    """Formats a record as a line of text: time, level, message, and the exception where there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - its name
        """The time of a record."""
        return utc(round(record.created * SECOND_US))


class JsonLines(logging.Formatter):
    """Formats a record as an object: time, level, logger, message, host, and the exception where there is one.

    Args:
        host: the name of the host of the federation.
    """

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
