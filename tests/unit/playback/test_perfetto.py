"""A Chrome trace of a recording: every attempt in a lane of its machine, every job, messages, counters."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from tests.unit.playback.test_tracer import WORKERS, driven

from volery.playback.perfetto import chrome_trace
from volery.playback.run_log import RunLog

Event = dict[str, Any]


@pytest.fixture(scope="module")
def log() -> RunLog:
    found = driven("megha")[1]
    assert found is not None
    return found


@pytest.fixture(scope="module")
def events(log: RunLog) -> list[Event]:
    found: list[Event] = msgspec.json.decode(chrome_trace(log, WORKERS, "megha"))["traceEvents"]
    return found


def test_every_attempt_stands_on_its_machine_and_no_two_overlap_in_a_lane(log: RunLog, events: list[Event]) -> None:
    ran = [one for one in events if "outcome" in one.get("args", {})]
    assert {one["args"]["task"] for one in ran} == set(log.attempts["task"])
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name" and one["pid"] == 1}
    machine_of = dict(zip(log.attempts["task"], log.attempts["machine"], strict=True))
    assert all(names[one["tid"]].split(",")[0] == f"machine {machine_of[one['args']['task']]}" for one in ran)
    for lane in {one["tid"] for one in ran}:
        spans = sorted((one["ts"], one["ts"] + one["dur"]) for one in ran if one["tid"] == lane)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_every_job_and_every_arrow_has_two_ends(log: RunLog, events: list[Event]) -> None:
    for begin, end, key in (("b", "e", "id"), ("s", "f", "id")):
        ends = {ph: {one[key]: one["ts"] for one in events if one["ph"] == ph} for ph in (begin, end)}
        assert ends[begin].keys() == ends[end].keys()
        assert all(ends[end][one] >= at for one, at in ends[begin].items())
    assert sum(one["ph"] == "b" for one in events) == len(log.jobs)
    assert sum(one["ph"] == "s" for one in events) == len(log.flights)


def test_counters_are_those_of_the_recording(log: RunLog, events: list[Event]) -> None:
    waiting = [one["args"]["count"] for one in events if one["ph"] == "C" and one["name"] == "waiting at gm"]
    assert waiting == next(role.waiting for role in log.roles if role.name == "gm")
    launches = [event["args"]["count"] for event in events if event["name"] == "sent: Launch"]
    assert launches == log.sent[log.kinds.index("Launch")]
    wrong = [event["args"]["count"] for event in events if event["name"] == "wrongly free for gm/0"]
    assert max(wrong) == max(next(view.free for view in log.views if view.by == "gm/0")) > 0
