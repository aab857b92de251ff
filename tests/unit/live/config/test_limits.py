"""Limits of a federation's file are refused where they make no sense, and keep everything where none is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from volery.live.config.limits import DAYS_MAX, Isolation, JournalSize, NodeRules, OutputLimits, Retention


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Isolation, {"pids_max": -1}),
        (Isolation, {"cpu": "pin"}),
        (Isolation, {"cgroup": "off"}),
        (OutputLimits, {"keep_days": DAYS_MAX + 1}),
        (OutputLimits, {"stream_mb": -1}),
        (Retention, {"jobs": 1.5}),
        (JournalSize, {"segment_mb": 0}),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(kind: type[msgspec.Struct], given: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, kind)


def test_without_limits_no_folder_and_no_job_is_ever_removed() -> None:
    rules = NodeRules()
    assert (rules.output.keep_days, rules.output.keep_mb) == (0, 0)
    assert Retention() == Retention(days=0, jobs=0)
