"""The picture of time per stage: a panel per architecture, a row per method that was called, the same bytes again."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from volery.core.stages import Stage
from volery.report.pictures import stage_times
from volery.report.schema import MethodTime, StageProfile

PERCENTILES = (5, 25, 50, 75, 95, 99, 100)


def profile(label: str = "megha", *, percentiles: tuple[int, ...] = PERCENTILES) -> StageProfile:
    calls = (1e-6, 2e-6, 3e-6, 4e-6, 8e-6, 1e-5, 2e-4)
    times = [
        MethodTime((Stage.R4, Stage.R5), "Master._place", 100, 100, 0.03, 0.03, calls),
        MethodTime((Stage.J1,), "Master.on_$ubmit", 10, 10, 0.01, 0.01, calls),
        MethodTime((Stage.T11,), "Master.on_lost", 0, 0, 0.0, 0.0, ()),
    ]
    return StageProfile(label, 0.04, (7e-7, 1e-6), times, "ab" * 32, percentiles)


def texts(svg: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_row_per_method_that_was_called_in_the_order_of_stages() -> None:
    shown = texts(stage_times([profile("megha"), profile("pigeon")]))
    rows = [text for text in shown if "Master" in text]
    assert rows == ["J1  Master.on_$ubmit", "R4 R5  Master._place"] * 2
    assert [text for text in shown if re.fullmatch(r"[\d.]+\.\d %", text)] == ["25.0 %", "75.0 %"] * 2
    assert {"megha", "pigeon", "of 40.0 ms", "CPU time of a call (log scale)"} <= set(shown)


def test_the_same_times_give_the_same_bytes() -> None:
    assert stage_times([profile()]) == stage_times([profile()])


def test_without_times_there_is_no_picture() -> None:
    assert stage_times([]) == ""
    assert stage_times([profile(percentiles=(50, 99))]) == "", "of another version"


def test_times_of_zero_stand_at_the_edge_of_the_log_axis() -> None:
    still = StageProfile(
        "megha", 0.0, (0.0, 0.0), [MethodTime((Stage.T2,), "M.m", 1, 1, 0.0, 0.0, (0.0,) * 7)], "", PERCENTILES
    )
    assert "T2  M.m" in texts(stage_times([still]))
