"""Times are shown in one form, and lines of logs carry them."""

from __future__ import annotations

import json
import logging

from volery.live.clock import JsonLines, PlainLines, clock_from_now
from volery.look.text import utc


def record(at_s: float, error: bool = False) -> logging.LogRecord:
    raised = (ValueError, ValueError("wrong"), None) if error else None
    made = logging.LogRecord("volery.x", logging.WARNING, "x.py", 1, "host %s is back", ("lm",), raised)
    made.created, made.msecs = at_s, at_s % 1 * 1000
    return made


def test_a_moment_is_shown_in_seconds_or_milliseconds() -> None:
    assert utc(1_700_000_000_123_456) == "2023-11-14 22:13:20Z"
    assert utc(1_700_000_000_123_456, fine=True) == "2023-11-14 22:13:20.123Z"


def test_a_clock_begins_at_zero_and_does_not_go_back() -> None:
    clock = clock_from_now()
    seen = [clock() for _ in range(100)]
    assert seen == sorted(seen)
    assert 0 <= seen[0] < 1_000_000


def test_a_line_of_text_has_time_level_and_message() -> None:
    assert PlainLines().format(record(1_700_000_000)) == "2023-11-14 22:13:20Z WARNING: host lm is back"


def test_a_line_of_json_names_its_host_and_holds_the_exception() -> None:
    line = json.loads(JsonLines("gm").format(record(1_700_000_000.25, error=True)))
    assert (line["time"], line["level"], line["host"]) == ("2023-11-14T22:13:20.250Z", "warning", "gm")
    assert line["message"] == "host lm is back"
    assert "ValueError: wrong" in line["exception"]
    assert "exception" not in json.loads(JsonLines("gm").format(record(0)))
