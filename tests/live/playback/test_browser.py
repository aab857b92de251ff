"""The recording that explains Megha, in a real browser: played, stopped and walked through without a complaint."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.live.browsing import BROWSER, chromium, opened
from tests.live.playback.shown import showing

from volery.playback.recording import Recording
from volery.playback.server import playback_app
from volery.playback.traced_runs import demonstration

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def moment(page: Page, words: str) -> None:
    """Go on by the keyboard until the caption says so."""
    caption = page.locator("#caption")
    for _ in range(20):
        if words in caption.inner_text():
            return
        before = caption.inner_text()
        page.keyboard.press("n")
        expect(caption).not_to_have_text(before)
    raise AssertionError(f"no moment says {words!r}")


def field(page: Page, cell: int) -> str:
    """What the field says of a cell."""
    canvas = page.locator("#field canvas")
    canvas.press("Escape")
    for _ in range(cell + 1):
        canvas.press("ArrowRight")
    return page.locator("#field p").inner_text()


def test_megha_is_explained_and_walked_through(browser: Browser) -> None:
    traced = demonstration()
    with showing(playback_app(Recording(traced.log, traced.source))) as url:
        page, complaints = opened(browser, url, 400, "dark")
        expect(page.locator("#pulse")).to_have_text("recorded")
        moment(page, "an internal match")
        expect(page.locator("dt", has_text="jobs pending").locator("+ dd")).to_have_text("1")
        moment(page, "an external match")
        moment(page, "An inconsistency: gm/0's view was old")
        page.locator("#view").select_option("gm/0")
        expect(page).to_have_url(re.compile(r"\?at=2\.94&view=gm%2F0$"))
        page.wait_for_function("JSON.parse(document.getElementById('cells').dataset.cells).some((cell) => cell[6])")
        moment(page, "it waits")
        moment(page, "node/4 crashes")
        expect(page.locator("#live")).to_contain_text("slots100.0 %")  # 17 of 17: not the lost node
        assert ", lost" in field(page, 4)
        page.locator("h1").click()
        moment(page, "places it anew")
        moment(page, "node/4 is restarted")
        assert ", lost" not in field(page, 4)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

        page.get_by_role("link", name="Jobs", exact=True).click()
        expect(page).to_have_url(re.compile(r"/dashboard/jobs\?at=9\.5"))
        expect(page.locator("tbody tr")).to_have_count(7)
        page.locator("#back").click()
        page.locator("#at").fill("2.5")
        page.locator("#at").press("Enter")
        expect(page.locator("tbody tr")).to_have_count(3)
        page.locator("#job-2").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Job 2")
        expect(page.get_by_role("button", name=re.compile("cancel|drain|change"))).to_have_count(0)
        page.locator("#task-0").focus()
        page.keyboard.press("Enter")
        expect(page.locator("section", has_text="Why")).to_contain_text("gm/2")

        page.goto(f"{url}/?at=12")
        page.locator("#hold").uncheck()
        page.locator("#lasts").select_option("15")
        page.locator("h1").click()
        page.keyboard.press(" ")
        expect(page.locator("#play")).to_have_text("pause")
        expect(page.locator("#play")).to_have_text("play", timeout=8_000)  # it has ended
        expect(page.locator("dt", has_text="tasks that run").locator("+ dd")).to_have_text("0")
        assert complaints == []
