"""The history holds samples of six hours; throughput is measured over the last minute."""

from __future__ import annotations

import asyncio

import pytest

from volery.live.service import history
from volery.live.service.history import AttemptCounts, History, ThroughputMeter, ended_of


def test_a_sample_counts_failures_since_the_one_before() -> None:
    kept = History()
    for at, failed in enumerate((2, 2, 5)):
        kept.note(at, 1, 4, 0, failed)
    assert [sample.failed for sample in kept.samples] == [2, 0, 3]


def test_the_oldest_samples_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT", 2)
    kept = History()
    for at in range(5):
        kept.note(at, 0, 0, 0, 0)
    assert [sample.at_us for sample in kept.samples] == [3, 4]


def test_samples_are_taken_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEP_S", 0.001)
    taken: list[int] = []

    async def scenario() -> None:
        kept = History()
        kept.start(lambda: taken.append(1))
        async with asyncio.timeout(10):
            while len(taken) < 3:
                await asyncio.sleep(0.001)
        kept.close()
        before = len(taken)
        await asyncio.sleep(0.01)
        assert len(taken) == before

    asyncio.run(scenario())


def test_running_and_unknown_attempts_have_not_ended() -> None:
    counts = AttemptCounts()
    counts.told |= {"running": 5, "finished": 3, "failed": 2, "unknown": 1}
    assert ended_of(counts.told) == 5


def test_throughput_is_that_of_the_last_minute() -> None:
    now = [0.0]
    meter = ThroughputMeter(lambda: now[0])
    assert meter.per_second(0) is None, "too soon"
    for second in range(1, 121):
        now[0] = float(second)
        meter.note(10 * second if second <= 60 else 600)
    assert meter.per_second(600) == 0
