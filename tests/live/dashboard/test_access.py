"""Who cannot see colours, has no mouse, no scripts, a lost session, or a server that went away for a while."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.live.bench import LIMIT_S
from tests.live.browsing import BROWSER, chromium, opened
from tests.live.dashboard.accessibility import complaints_about, unreachable
from tests.live.serving import at_work, serving

from volery.cli.forecast import answer
from volery.live.service import forecaster as foretelling
from volery.live.service.authentication import TokenFile
from volery.live.service.forecast_inputs import ForecastReply, ForecastRequest

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
KEYS: dict[str, Any] = {
    "machines": [{"count": 6, "labels": {"disk": "ssd"}}],
    "executor": "sleep",
    "parameters": {"gms": 2, "lms": 3, "heartbeat_s": 0.05, "why": True, "shares": "ada:1+bob:1"},
}
VIEWS = (
    "/",
    "/dashboard/jobs",
    "/dashboard/jobs/0",
    "/dashboard/jobs/0/tasks/0",
    "/dashboard/jobs/1",
    "/dashboard/nodes",
    "/dashboard/nodes/node/0",
    "/dashboard/hosts",
    "/dashboard/users",
    "/dashboard/preemptions",
    "/dashboard/plan",
    "/dashboard/jobs/99",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A federation that two share: one has lost tasks to the other, a node is drained, and a job never runs."""
    folder = tmp_path_factory.mktemp("busy")
    with at_work(folder, **KEYS) as url, httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http:
        for job in (
            {"command": "true", "user": "ada", "tasks": 9, "estimate_s": 600, "name": "long"},
            {"command": "true", "user": "bob", "tasks": 3, "constraints": ['label.disk == "hdd"']},
            {"command": "true", "user": "bob", "tasks": 4, "estimate_s": 600},
        ):
            http.post("/jobs", json=job)
            time.sleep(0.5)
        http.post("/nodes/node/5/drain", json={})
        deadline = time.monotonic() + LIMIT_S
        while not http.get("/preemptions").json():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_enough_contrast(browser: Browser, busy: str, scheme: Any) -> None:
    page, _ = opened(browser, busy, 1200, scheme)
    for view in VIEWS:
        page.goto(busy + view)
        assert complaints_about(page) == [], view


def test_the_audit_finds_what_is_wrong(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("""<html lang="en"><title>x</title><body style="background: white"><h1>x</h1><h3>y</h3>
      <p style="color: #999">pale</p><input><button></button><table><th></th></table><svg></svg>
      <b id="a"></b><i id="a"></i>""")
    told = "\n".join(complaints_about(page))
    for word in ("contrast 2.85", "no label", "no name", "empty head", "without words", "are called a", "left out"):
        assert word in told
    page.set_content('<a href="#x" style="outline: none">x</a><button tabindex="-1">y</button>')
    assert len(unreachable(page)) == 2
    page.close()


def test_every_key_comes_to_everything(browser: Browser, busy: str) -> None:
    page, _ = opened(browser, busy, 400)
    for view in ("/", "/dashboard/jobs/0", "/dashboard/users", "/dashboard/plan"):
        page.goto(busy + view)
        expect(page.locator("#pulse")).to_have_text("live" if view != "/dashboard/plan" else "not live")
        page.evaluate("document.getElementById('live').dataset.pulse = ''; every = 0; clearTimeout(planned)")
        assert unreachable(page) == [], view
    page.goto(f"{busy}/dashboard/jobs/0")
    page.locator("#task-0").focus()
    page.keyboard.press("ArrowRight")
    told = page.evaluate("getComputedStyle(document.activeElement, '::after').content")
    assert "task 1: " in told, "what the pointer is told, the keyboard is told, too"


@pytest.mark.parametrize("width", [1280, 768, 400])
def test_no_table_is_cut_off_at_the_side(browser: Browser, busy: str, width: int) -> None:
    page, _ = opened(browser, busy, width)
    for view in VIEWS:
        page.goto(busy + view)
        for table in page.locator(".scroll").all():
            shown, needed = table.evaluate("one => [one.clientWidth, one.scrollWidth]")
            assert needed <= shown + 1, (view, table.get_attribute("aria-label"))


def test_a_job_takes_few_lines_of_a_narrow_page(browser: Browser, busy: str) -> None:
    page, _ = opened(browser, f"{busy}/dashboard/jobs", 400)
    for row in page.locator("table.listed tbody tr").all():
        lines = row.evaluate("one => one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight)")
        assert lines < 6, row.text_content()


def test_on_paper_there_is_all_and_nothing_to_click(browser: Browser, busy: str) -> None:
    page, _ = opened(browser, f"{busy}/dashboard/jobs/0")
    page.emulate_media(media="print")
    for gone in ("nav >> nth=0", "#cancel", "#pulse"):
        expect(page.locator(gone)).to_be_hidden()
    assert page.locator("table").count() >= 2
    for part in page.locator(".scroll").all():
        assert part.evaluate("one => getComputedStyle(one).overflowX") == "visible"


async def in_a_thread(question: ForecastRequest) -> ForecastReply:
    return await asyncio.to_thread(answer, question)


def test_a_forecast_is_made_where_one_asks_when_a_job_ends(
    browser: Browser, busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foretelling, "ask_lab", in_a_thread)  # which takes less time than a process of its own
    page, complaints = opened(browser, f"{busy}/dashboard/jobs/0")
    page.get_by_role("button", name="When will it end?").click()
    shown = page.locator("[data-filled]")
    expect(shown.locator("tbody tr")).to_have_count(4, timeout=LIMIT_S * 1000)
    expect(shown).to_contain_text("of the lab")
    page.evaluate("live.append(document.createElement('hr')); refresh()")
    expect(page.locator("#live > hr")).to_have_count(0)
    expect(shown.locator("tbody tr")).to_have_count(4)  # it stays when the page is fetched again
    page.get_by_role("link", name="Plan", exact=True).click()
    page.get_by_label("tasks").fill("2")
    page.get_by_label("user").fill("bob")
    page.get_by_label("command").fill("true")
    page.get_by_label("constraints").fill('label.disk == "ssd"')
    page.get_by_role("button", name="forecast").click()
    expect(page.get_by_role("heading", name="When it would start, and end")).to_be_visible(timeout=LIMIT_S * 1000)
    assert "constraints=label.disk" in page.url
    told = httpx2.post(
        f"{busy}/plan",
        trust_env=False,
        json={
            "command": "true",
            "user": "bob",
            "tasks": 2,
            "constraints": ['label.disk == "ssd"'],
        },
    ).json()["groups"][0]["funnel"]
    steps = page.locator("ol.funnel .demand").all_inner_texts(), page.locator("ol.funnel .count").all_inner_texts()
    assert list(zip(*steps, strict=True)) == [(step["demand"], str(step["machines"])) for step in told]
    page.get_by_role("button", name="submit this job").click()
    page.get_by_role("button", name="yes").click()
    expect(page.get_by_role("heading", name="Job 3")).to_be_visible()
    (job, *_) = httpx2.get(f"{busy}/jobs", trust_env=False).json()
    assert (job["id"], job["user"], job["tasks"]) == (3, "bob", 2)
    page.go_back()
    page.go_back()
    assert page.url == f"{busy}/dashboard/plan"
    assert complaints == []


def test_output_is_followed_and_stays_in_view(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _), httpx2.Client(base_url=url, trust_env=False) as http:
        talk = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); done; sleep 1; echo '<b>more</b>'; sleep 60"
        number = http.post("/jobs", json={"command": talk}).json()["id"]
        page, complaints = opened(browser, f"{url}/dashboard/jobs/{number}/tasks/0")
        shown = page.locator("pre[data-stream=stdout]")
        expect(shown).to_contain_text("line 399", timeout=LIMIT_S * 1000)
        expect(shown).to_contain_text("<b>more</b>", timeout=LIMIT_S * 1000)
        at_end = "one => one.scrollHeight - one.scrollTop - one.clientHeight < 5"
        assert shown.evaluate(at_end), "who is at the end stays there"
        size = len(http.get(f"/jobs/{number}/tasks/0/logs").content)
        expect(page.locator("#size-stdout")).to_have_text(f"{size:,} bytes")
        http.post(f"/jobs/{number}/cancel", json={})
        expect(page.locator(".state").first).to_have_text("killed", timeout=LIMIT_S * 1000)
        expect(shown).to_contain_text("<b>more</b>")
        shutil.rmtree(tmp_path / "tasks" / str(number))
        page.reload()
        expect(page.locator("#live")).to_contain_text("where the task ran, or no longer")
        assert complaints == []


def test_a_page_comes_back_by_itself_when_its_server_does(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        page, _ = opened(browser, f"{url}/dashboard/jobs")
        expect(page.locator("#pulse")).to_have_text("live")
    expect(page.locator("#pulse")).to_contain_text("not connected; this is how it was at 20")
    with serving(tmp_path, port=int(url.rpartition(":")[2])):
        httpx2.post(f"{url}/jobs", json={"command": "true", "name": "afterwards"}, trust_env=False)
        expect(page.locator("tbody")).to_contain_text("afterwards", timeout=LIMIT_S * 1000)
        expect(page.locator("#pulse")).to_have_text("live")


def test_many_tabs_of_a_browser_share_one_stream(browser: Browser, tmp_path: Path) -> None:
    """Over HTTP/1.1 a browser keeps six connections to a server: the seventh tab would never be shown."""
    with serving(tmp_path) as (url, _):
        context = browser.new_context()
        tabs = [context.new_page() for _ in range(8)]
        for tab in tabs:
            tab.goto(f"{url}/dashboard/jobs", timeout=LIMIT_S * 1000)
        metrics = httpx2.get(f"{url}/metrics", trust_env=False).text
        assert "volery_pages_open{} 1\n" in metrics
        httpx2.post(f"{url}/jobs", json={"command": "true", "name": "for all"}, trust_env=False)
        for tab in tabs:
            expect(tab.locator("tbody")).to_contain_text("for all", timeout=LIMIT_S * 1000)
        tabs[0].close()
        httpx2.post(f"{url}/jobs", json={"command": "true", "name": "for the others"}, trust_env=False)
        expect(tabs[5].locator("tbody")).to_contain_text("for the others", timeout=LIMIT_S * 1000)
        context.close()


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("token").fill(token)
    page.get_by_role("button", name="sign in").click()


def test_whoever_is_signed_out_comes_back_to_where_they_were(browser: Browser, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    ada = tokens.add("ada", "user")[0]
    with serving(tmp_path, tokens=tokens) as (url, _):
        page, _ = opened(browser, f"{url}/dashboard/jobs?state=failed&sort=-tasks")
        sign_in(page, ada)
        expect(page.locator("#pulse")).to_have_text("live")
        assert page.url == f"{url}/dashboard/jobs?state=failed&sort=-tasks"
        tokens.revoke("ada")
        httpx2.post(f"{url}/jobs", trust_env=False, json={})
        page.evaluate("refresh(tag)")  # as it does by itself within half a minute
        expect(page.get_by_role("alert").first).to_contain_text("Your session has ended")
        sign_in(page, tokens.add("ada", "user")[0])
        expect(page.locator("#pulse")).to_have_text("live")
        assert page.url == f"{url}/dashboard/jobs?state=failed&sort=-tasks"


def test_without_scripts_one_reads_and_signs_in_and_no_token_stands_in_an_address(
    browser: Browser, tmp_path: Path
) -> None:
    tokens = TokenFile(tmp_path)
    ada = tokens.add("ada", "user")[0]
    with serving(tmp_path, tokens=tokens) as (url, _):
        with httpx2.Client(headers={"authorization": f"Bearer {ada}"}, trust_env=False) as http:
            http.post(f"{url}/jobs", json={"command": "sleep 60", "name": "mine"})
        page = browser.new_context(java_script_enabled=False).new_page()
        page.goto(f"{url}/dashboard/jobs?user=ada")
        sign_in(page, "volery_x_y")
        assert "not valid" in page.get_by_role("alert").first.inner_text()
        assert "volery_x_y" not in page.url
        sign_in(page, ada)
        assert page.url == f"{url}/dashboard/jobs?user=ada"
        assert "mine" in page.locator("tbody").inner_text()
        assert "Without JavaScript" in page.locator("body").inner_text()
        page.locator("tbody a").first.click()
        expect(page.get_by_role("button", name="cancel this job")).to_have_count(0)  # once the style has come
        forged = {"origin": "http://127.0.0.1:1", "content-type": "application/x-www-form-urlencoded"}
        for headers in (forged, {"content-type": forged["content-type"]}):
            told = httpx2.post(f"{url}/dashboard/session", content=f"token={ada}", headers=headers, trust_env=False)
            assert told.status_code == 403, "a page of another site, or nobody knows of which"
