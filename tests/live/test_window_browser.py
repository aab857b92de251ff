"""The live page in a real browser: every view is walked, orders are given, and nothing is left on the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.live.bench import LIMIT_S
from tests.live.browsing import BROWSER, chromium, opened
from tests.live.serving import at_work, serving

from volery.live.service.tokens import TokenFile

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
EVIL = "<script>throw 1</script> \u05e9\u05dc\u05d5\u05dd \U0001f426"
MACHINES = [{"count": 9, "labels": {"zone": "<b>" + "x" * 10_000 + "\u202eturned"}}]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def fits(page: Page) -> bool:
    """Whether the page itself does not scroll sideways, once it has its style."""
    page.wait_for_load_state()
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def facts(page: Page) -> dict[str, str]:
    names, values = page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts()
    return dict(zip(names, values, strict=True))


def test_a_federation_is_walked_and_given_orders(browser: Browser, tmp_path: Path) -> None:
    keys = {"machines": MACHINES, "executor": "sleep", "parameters": {"gms": 2, "lms": 3, "why": True}}
    with at_work(tmp_path, **keys) as url, httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http:
        job = {"command": "true", "estimate_s": 600, "tasks": 12, "name": EVIL, "user": EVIL}
        number = http.post("/jobs", json=job).json()["id"]
        page, complaints = opened(browser, url, 400, "dark")
        expect(page.locator("dd").nth(2)).to_have_text("9")
        assert facts(page)["slots"] == "9"
        assert [row.split()[0] for row in page.locator("section tbody tr").all_inner_texts()][:3] == [
            "lm/0",
            "lm/1",
            "lm/2",
        ]
        assert "gm/0" in page.locator("section", has_text="Views").inner_text()
        assert fits(page)

        page.get_by_role("link", name="Jobs", exact=True).click()
        assert EVIL in page.locator("tbody").inner_text()
        assert fits(page)
        page.get_by_role("link", name="tasks", exact=True).click()
        assert page.locator("th", has_text="tasks").first.get_attribute("aria-sort") == "ascending"
        page.locator(f"#job-{number}").click()
        told = http.get(f"/jobs/{number}").json()
        assert facts(page)["running"] == str(told["running"]) == "9"
        assert page.locator(".cell").count() == 12
        steps = [step["machines"] for step in http.get(f"/jobs/{number}/why").json()["funnel"]]
        assert page.locator("ol.funnel .count").all_inner_texts() == [str(step) for step in steps]
        page.locator("#task-0").focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == "task-1"
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Task 1 of job {number}")
        assert page.locator("section", has_text="Why").locator("tbody tr").count() >= 1

        page.get_by_role("link", name="Nodes", exact=True).click()
        assert page.locator("tbody tr").count() == 9
        assert fits(page)
        page.get_by_role("button", name="drain", exact=True).first.click()
        page.get_by_role("button", name="no, leave it").click()
        assert not any(node["drained"] for node in http.get("/nodes").json())
        page.get_by_role("button", name="drain", exact=True).first.click()
        page.get_by_role("button", name="yes").click()
        expect(page.get_by_role("button", name="undrain")).to_have_count(1)
        (drained,) = [node["address"] for node in http.get("/nodes").json() if node["drained"]]
        page.get_by_role("link", name=drained).click()
        assert f"{number}/" in page.locator("section tbody").inner_text()

        page.get_by_role("link", name="Users", exact=True).click()
        assert [text.split("\t")[1:4] for text in page.locator("tbody tr").all_inner_texts()] == [
            ["\u2013", "100.0 %", "9"]
        ]
        page.get_by_role("link", name=EVIL).click()
        page.locator(f"#job-{number}").click()
        page.get_by_role("button", name="cancel this job").click()
        page.get_by_role("button", name="yes").click()
        expect(page.locator("dd").nth(2)).to_have_text("cancelled")
        assert http.get(f"/jobs/{number}").json()["state"] == "cancelled"
        assert complaints == []


def test_a_page_follows_what_happens(browser: Browser, tmp_path: Path) -> None:
    with (
        at_work(tmp_path, machines=[{"count": 3}], parameters={"gms": 1, "lms": 1}) as url,
        httpx2.Client(base_url=url, trust_env=False) as http,
    ):
        page, complaints = opened(browser, f"{url}/window/jobs")
        expect(page.locator("#live")).to_contain_text("No such jobs.")
        http.post("/jobs", json={"command": "true", "name": "later"})
        expect(page.locator("tbody")).to_contain_text("later")
        assert complaints == []


def test_users_sign_in_and_see_their_own(browser: Browser, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    ada, bob = tokens.add("ada", "user")[0], tokens.add("bob", "user")[0]
    with serving(tmp_path, tokens=tokens) as (url, _):
        for name, token in (("ada", ada), ("bob", bob)):
            with httpx2.Client(headers={"authorization": f"Bearer {token}"}, trust_env=False) as http:
                http.post(f"{url}/jobs", json={"command": "sleep 60", "name": f"of {name}"})
        page, complaints = opened(browser, f"{url}/window/jobs")
        page.get_by_label("token").fill(ada)
        page.get_by_role("button", name="sign in").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        assert "of ada" in page.locator("tbody").inner_text()
        assert page.evaluate("document.cookie") == "", "scripts cannot read it"
        page.get_by_role("link", name="Nodes", exact=True).click()
        assert page.get_by_role("button", name="drain").count() == 0
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.locator("tbody a").first.click()
        page.get_by_role("button", name="cancel this job").click()
        page.get_by_role("button", name="yes").click()
        expect(page.locator("dd").nth(2)).to_have_text("cancelled")
        assert complaints == []
        page.get_by_role("button", name="sign out").click()
        expect(page.get_by_label("token")).to_be_visible()
