"""A scheduler that is asked for room in its view answers in time, or is not waited for."""

from __future__ import annotations

import asyncio

import pytest

from volery.core.events import Look, Seen
from volery.core.model import Address, Message
from volery.live.service import queries
from volery.live.service.queries import CapacityQueries


def test_answers_are_matched_by_their_numbers_and_late_ones_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "WAIT_S", 0.05)
    asked: list[tuple[Address, Message]] = []

    async def scenario() -> tuple[int | None, int | None, int | None]:
        capacity = CapacityQueries(lambda to, message: asked.append((to, message)), lambda job, user: "gm/0")
        first = asyncio.ensure_future(capacity.machines("gm/0", 3, ()))
        second = asyncio.ensure_future(capacity.machines("gm/1", 5, (7,)))
        await asyncio.sleep(0)
        capacity.seen(Seen(2, 20))
        capacity.seen(Seen(1, 10))
        capacity.seen(Seen(1, 11))
        answers = await first, await second, await capacity.machines("gm/0", 0, ())
        capacity.seen(Seen(3, 30))
        return answers

    assert asyncio.run(scenario()) == (10, 20, None)
    assert asked == [("gm/0", Look(1, 3, ())), ("gm/1", Look(2, 5, (7,))), ("gm/0", Look(3, 0, ()))]
