"""Log records as JSON, one per line, for whoever collects logs."""

from __future__ import annotations

import logging
import time

import msgspec


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
