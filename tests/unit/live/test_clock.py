"""Times are shown in one form, lines of logs carry them, and waits end within their limits."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import pytest

from volery.live.clock import JsonLines, PlainLines, clock_from_now, ended_within, in_background, is_set_within
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


PATIENCE_S = 10
"""More than any wait below takes on a busy machine."""


async def ends(work: asyncio.Task[None]) -> bool:
    """True if a task ends in time; the loop of a test must not wait for one that does not."""
    done, _ = await asyncio.wait({work}, timeout=PATIENCE_S)
    work.cancel()
    return bool(done)


@pytest.mark.parametrize("turns", range(4))
def test_a_wait_in_slices_ends_though_its_event_is_set_in_the_turn_in_which_its_limit_is_over(turns: int) -> None:
    """With `asyncio.wait_for` in place of `is_set_within`, Python 3.11 waits here for ever."""

    async def scenario() -> None:
        changed = asyncio.Event()

        async def meet() -> None:
            while True:
                changed.clear()
                await is_set_within(changed, 0.5)

        async def limited() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await meet()

        async def set_late() -> None:
            await asyncio.sleep(0.02)
            time.sleep(0.05)
            for _ in range(turns):
                await asyncio.sleep(0)
            changed.set()

        waiting, setting = asyncio.create_task(limited()), asyncio.create_task(set_late())
        assert await ends(waiting)
        await setting

    asyncio.run(scenario())


def test_a_wait_that_is_cancelled_in_the_turn_in_which_its_event_is_set_is_cancelled() -> None:
    async def scenario() -> None:
        event = asyncio.Event()
        waiting = asyncio.create_task(is_set_within(event, PATIENCE_S))
        for _ in range(3):
            await asyncio.sleep(0)
        event.set()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())


def test_a_wait_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        event = asyncio.Event()
        assert not await is_set_within(event, 0.001)
        event.set()
        assert await is_set_within(event, 0.0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_work_that_swallows_its_cancellation_is_given_up_at_its_limit() -> None:
    async def scenario() -> None:
        swallowed = asyncio.Event()

        async def stubborn() -> None:
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                swallowed.set()
                await asyncio.sleep(0.01)
                raise ValueError("nobody waits for this") from None

        with pytest.raises(TimeoutError):
            await ended_within(stubborn(), 0.01)
        assert await is_set_within(swallowed, PATIENCE_S)

    asyncio.run(scenario())


def test_work_that_ends_in_time_gives_its_result_or_its_exception() -> None:
    async def scenario() -> None:
        async def five() -> int:
            return 5

        async def wrong() -> int:
            raise ValueError("wrong")

        assert await ended_within(five(), PATIENCE_S) == 5
        with pytest.raises(ValueError, match="wrong"):
            await ended_within(wrong(), PATIENCE_S)

    asyncio.run(scenario())


def test_the_failure_of_work_that_nobody_awaits_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def wrong() -> None:
            raise ValueError("it is wrong")

        task = in_background(wrong(), "the move of jobs")
        await asyncio.wait({task}, timeout=PATIENCE_S)
        await asyncio.sleep(0)
        await asyncio.wait({in_background(asyncio.sleep(0), "a nap")}, timeout=PATIENCE_S)

    asyncio.run(scenario())
    (record,) = caplog.records
    assert record.getMessage().startswith("the move of jobs has failed, and is not tried again: ValueError")
