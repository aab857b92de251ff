"""How often the live page's views are made, and for whom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from volery.core.errors import InputError
from volery.live.dashboard.frame import PageView
from volery.live.dashboard.renderings import EVERY_MAX_S, KEPT_MAX, Meter, Pacer, Renderings, thread_use
from volery.live.service.authentication import Principal
from volery.live.service.requests import Traffic
from volery.look.html import Markup


def test_the_kernel_tells_what_a_thread_has_used() -> None:
    (ran_s, waited_s), began_s = thread_use(), time.thread_time()
    while time.thread_time() < began_s + 0.05:
        pass
    now_s, later_s = thread_use()
    assert now_s - ran_s == pytest.approx(0.05, abs=0.02)
    assert later_s >= waited_s >= 0


def test_all_pages_together_take_a_small_part_of_what_there_is() -> None:
    now_s, used = [0.0], [0.0, 0.0]
    pacer = Pacer(lambda: now_s[0], lambda: (used[0], used[1]))
    assert pacer.every_s(2.0, 0.02, 10, 10) == pytest.approx(2.05)  # nothing else to do
    now_s[0], used[0] = 4.0, 4.0  # busy all the time
    assert pacer.every_s(2.0, 0.005, 1, 1) == 2.0
    assert pacer.every_s(2.0, 0.005, 10, 10) == pytest.approx(5.5)
    assert pacer.every_s(2.0, 5.0, 10, 10) == EVERY_MAX_S
    now_s[0], used[0], used[1] = 8.0, 6.0, 2.0  # busy, and others take half of the processor
    assert pacer.every_s(2.0, 0.005, 10, 10) == pytest.approx(11.0)
    now_s[0] = 12.0  # idle
    assert pacer.every_s(2.0, 0.005, 10, 10) == 2.0


def test_a_meter_counts_what_a_coroutine_takes_and_not_what_happens_meanwhile() -> None:
    def toil() -> None:
        until_s = time.thread_time() + 0.03
        while time.thread_time() < until_s:
            pass

    async def made(fail: bool) -> str:
        toil()
        try:
            await asyncio.sleep(0.02)
        finally:
            await asyncio.sleep(0)
        if fail:
            raise InputError("here", "wrong")
        return "made"

    async def both() -> None:
        for fail in (False, True):
            meter = Meter()
            metered = asyncio.ensure_future(metered_by(meter, made(fail)))
            await asyncio.sleep(0.001)
            toil()
            toil()
            if fail:
                with pytest.raises(InputError):
                    await metered
            else:
                assert await metered == "made"
            assert 0.03 <= meter.cpu_s < 0.06
        cancelled = asyncio.ensure_future(metered_by(Meter(), made(False)))
        await asyncio.sleep(0.04)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    async def metered_by(meter: Meter, coroutine: Coroutine[Any, Any, str]) -> str:
        return await meter.of(coroutine)

    asyncio.run(both())


def test_a_view_is_made_once_for_all_pages_that_show_it() -> None:
    revision, now_s, traffic = [1], [0.0], Traffic()
    made: list[int] = []
    pacer = Pacer(lambda: now_s[0], lambda: (0.0, 0.0))
    renderings = Renderings(pacer, lambda: revision[0], traffic, lambda: now_s[0])

    async def show() -> PageView:
        made.append(len(made))
        await asyncio.sleep(0)
        return PageView("counted", Markup(str(len(made))), every_s=2.0)

    async def main() -> None:
        ada, bob = Principal("ada", "user"), Principal("bob", "user")
        first, same = await asyncio.gather(*(renderings.shared((ada, "/"), show) for _ in range(2)))
        assert first is same
        assert renderings.again_s(first) == pytest.approx(2.0, abs=0.5)
        assert not renderings.again(first).behind
        revision[0], now_s[0] = 2, 1.0
        assert await renderings.shared((ada, "/"), show) is first
        again = renderings.again(first)
        assert (again.behind, again.age_s, again.tag) == (True, 1.0, first.tag)
        assert (await renderings.shared((bob, "/"), show)).view.live == "2"
        assert (await renderings.shared((ada, "/?sort=id"), show)).view.live == "3"
        fresh = await renderings.fresh((ada, "/"), show)  # whoever has given an order sees what it has done
        assert fresh.tag != first.tag
        assert await renderings.shared((ada, "/"), show) is fresh
        now_s[0] = 10.0
        assert (await renderings.shared((ada, "/"), show)).view.live == "5"
        for number in range(3 * KEPT_MAX):
            await renderings.shared((ada, f"/{number}"), show)
        assert len(renderings._kept) == KEPT_MAX
        assert traffic.views_made == len(made) == 5 + 3 * KEPT_MAX

    asyncio.run(main())
