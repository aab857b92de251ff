"""The live page in a real browser: every view is walked, orders are given, and nothing is left on the console."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.live.bench import LIMIT_S
from tests.live.browsing import BROWSER, chromium, opened
from tests.live.serving import at_work, serving

from volery.live.jobs import NAME_MAX
from volery.live.service.authentication import TokenFile

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
EVIL = "<script>throw 1</script> \u05e9\u05dc\u05d5\u05dd \U0001f426" + "x" * (NAME_MAX - 60)
EVE = "<b>eve&\u05e9\U0001f426"
"""A user with a share, whose name the text of a tree can hold."""
SHOWN = "<script>throw 1</script> \u05e9\u05dc\u05d5\u05dd"
SLOTS = 9
MACHINES = [{"count": SLOTS, "labels": {"zone": "<b>" + "x" * 10_000 + "\u202eturned"}}]
KEYS = {
    "machines": MACHINES,
    "executor": "sleep",
    "parameters": {"gms": 2, "lms": 3, "heartbeat_s": 0.05, "why": True, "shares": f"bob:1+{EVE}:1"},
}


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


def rows(page: Page, section: str = "") -> list[list[str]]:
    """The cells of a section's table, or of the first one of the page."""
    found = page.locator("section", has=page.get_by_role("heading", name=section, exact=True)) if section else page
    read = "rows => rows.map(row => [...row.children].map(cell => cell.innerText.trim()))"
    cells: list[list[str]] = found.locator("table").first.locator("tbody tr").evaluate_all(read)
    return cells


def go(page: Page, view: str) -> None:
    page.get_by_role("link", name=view, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(view)
    assert fits(page)


def give(page: Page, order: str, answer: str = "yes") -> None:
    """Click an order, and answer its question."""
    page.locator(order).click()
    page.get_by_role("button", name=answer).click()


def test_a_federation_at_work_is_walked_and_given_orders(browser: Browser, tmp_path: Path) -> None:
    """Bob has all slots; eve takes what is hers, and the ledger says so; hostile names hurt nobody anywhere."""
    with at_work(tmp_path, **KEYS) as url, httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http:
        page, complaints = opened(browser, url, 400, "dark")
        of_bob = submit(http, estimate_s=600, tasks=SLOTS + 3, name="long", user="bob")
        until(lambda: http.get(f"/jobs/{of_bob}").json()["running"] == SLOTS)
        refused = http.post("/jobs", json={"command": "true", "name": "x" * 10_000, "user": EVE})
        assert refused.status_code == 422, "nobody has to show that"
        of_eve = submit(http, estimate_s=600, tasks=SLOTS, name=EVIL, user=EVE)
        until(lambda: len(http.get("/preemptions").json()) == 4)
        walk_users(page, http, of_bob, of_eve)
        walk_nodes(page, http, of_eve)
        walk_jobs(page, http, of_eve)
        walk_federation(page, http, of_bob)
        assert complaints == []


def submit(http: httpx2.Client, **job: object) -> int:
    return int(http.post("/jobs", json={"command": "true"} | job).json()["id"])


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def walk_users(page: Page, http: httpx2.Client, of_bob: int, of_eve: int) -> None:
    until(lambda: http.get(f"/jobs/{of_eve}").json()["running"] == 4)
    go(page, "Users")
    told = {one["user"]: one for one in http.get("/users").json()}
    assert [cells[:4] for cells in rows(page)] == [
        ["bob", "50.0 %", "55.6 %", str(told["bob"]["tasks_running"])],
        [EVE, "50.0 %", "44.4 %", str(told[EVE]["tasks_running"])],
    ]
    ledger = http.get("/preemptions").json()
    assert [[cells[1], cells[2], cells[4], cells[5]] for cells in rows(page, "Preemptions")] == [
        ["bob", f"{of_bob}/{one['index']}", EVE, f"{of_eve}/{one['for_index']}"] for one in ledger
    ]
    order = page.locator("section", has_text="Shares").locator("tr", has_text=EVE).get_by_role("button")
    order.click()
    page.locator("#answer").fill("3")
    page.get_by_role("button", name="no, leave it").click()
    assert {share["weight"] for share in http.get("/shares").json()} == {1}
    order.click()
    page.locator("#answer").fill("0")
    page.get_by_role("button", name="yes").click()
    expect(page.locator("dialog")).to_be_visible()  # it is no weight
    page.locator("#answer").fill("2")
    page.keyboard.press("Enter")
    expect(page.locator("section", has_text="Shares").locator("tr", has_text=EVE)).to_contain_text("66.7 %")
    assert [share["weight"] for share in http.get("/shares").json()] == [1, 2]
    assert [(one["name"], one["weight"], one["was"]) for one in http.get("/reweighs").json()] == [(EVE, 2, 1)]
    until(lambda: len(http.get("/preemptions").json()) == 6)
    page.get_by_role("link", name="all of them").click()
    expect(page.locator("tbody tr")).to_have_count(6)
    assert rows(page)[0][-1] == "55.6 % \u2192 66.7 %, due 66.7 %"
    assert fits(page)


def walk_nodes(page: Page, http: httpx2.Client, of_eve: int) -> None:
    go(page, "Nodes")
    expect(page.locator("tbody tr")).to_have_count(SLOTS)
    assert MACHINES[0]["labels"]["zone"][:3] in page.locator("tbody").inner_text()  # type: ignore[index] # it is a table
    node = next(task["node"] for task in http.get(f"/jobs/{of_eve}/tasks").json() if task["node"])
    give(page, f'[id="drain-{node}"]', "no, leave it")
    assert not any(one["drained"] for one in http.get("/nodes").json())
    give(page, f'[id="drain-{node}"]')
    expect(page.get_by_role("button", name="undrain")).to_have_count(1)
    assert [one["address"] for one in http.get("/nodes").json() if one["drained"]] == [node]
    page.get_by_role("link", name=node, exact=True).click()
    expect(page.locator("section tbody")).to_contain_text(f"{of_eve}/")
    assert 'label.zone == "<b>xxx' in page.locator("ul.conditions").inner_text()
    assert fits(page)
    give(page, f'[id="undrain-{node}"]')
    expect(page.get_by_role("button", name="drain", exact=True)).to_be_visible()
    assert not any(one["drained"] for one in http.get("/nodes").json())


def walk_jobs(page: Page, http: httpx2.Client, of_eve: int) -> None:
    until(lambda: http.get(f"/jobs/{of_eve}").json()["running"] == 6)
    go(page, "Jobs")
    assert SHOWN in page.locator("tbody").inner_text()
    page.get_by_role("link", name="tasks", exact=True).click()
    expect(page.locator("th", has_text="tasks").first).to_have_attribute("aria-sort", "ascending")
    page.locator(f"#job-{of_eve}").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Job {of_eve}")
    told = http.get(f"/jobs/{of_eve}").json()
    assert facts(page)["running"] == str(told["running"]) == "6"
    assert facts(page)["name"].startswith(SHOWN)
    expect(page.locator(".cell")).to_have_count(SLOTS)
    funnel = [(step["demand"], str(step["machines"])) for step in http.get(f"/jobs/{of_eve}/why").json()["funnel"]]
    assert funnel == [
        ("machines", "9"),
        ("meet its constraints", "9"),
        ("are not drained", "9"),
        ("have a free slot now", "0"),
        ("have room in the view of gm/1", "0"),
        ("were given to tasks of the job", "6"),
    ]
    shown = page.locator("ol.funnel .demand").all_inner_texts(), page.locator("ol.funnel .count").all_inner_texts()
    assert list(zip(*shown, strict=True)) == funnel
    assert len(rows(page, "Preemptions")) == 6
    assert fits(page)
    page.locator("#task-0").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "task-1"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Task 1 of job {of_eve}")
    expect(page.locator("section", has_text="Why").locator("tbody tr").first).to_be_visible()
    assert fits(page)
    go(page, "Users")
    page.locator("table").first.get_by_role("link", name=EVE).click()
    page.locator(f"#job-{of_eve}").click()
    give(page, "#cancel")
    expect(page.locator("dd .state")).to_have_text("cancelled")
    assert http.get(f"/jobs/{of_eve}").json()["state"] == "cancelled"


def walk_federation(page: Page, http: httpx2.Client, of_bob: int) -> None:
    """Under a load that runs; bob's long tasks have all slots again until they are cancelled."""
    until(lambda: http.get(f"/jobs/{of_bob}").json()["running"] == SLOTS)
    go(page, "Federation")
    assert facts(page)["utilisation of usable slots"] == "100.0 %"
    shown, nodes = facts(page), http.get("/nodes").json()
    assert shown["nodes"] == str(len(nodes))
    assert shown["tasks that run"] == shown["slots"] == str(sum(node["running"] for node in nodes))
    assert [cells[0] for cells in rows(page, "Clusters")] == ["lm/0", "lm/1", "lm/2"]
    assert "gm/0" in page.locator("section", has_text="Views").inner_text()
    load = submit(http, estimate_s=0.02, tasks=200, name="load", user="bob")
    go(page, "Jobs")
    assert http.post(f"/jobs/{of_bob}/cancel", json={}).status_code == 202
    expect(page.locator("tr", has_text="load").locator(".state")).to_have_text("done", timeout=LIMIT_S * 1000)
    assert http.get(f"/jobs/{load}").json()["finished"] == 200
    go(page, "Federation")
    ended = sum(job["finished"] + job["killed"] for job in http.get("/jobs").json())
    assert int(facts(page)["tasks that have ended"].replace(",", "")) >= ended
    assert facts(page)["tasks that wait"] == "0"


def test_a_page_follows_what_happens(browser: Browser, tmp_path: Path) -> None:
    with (
        at_work(tmp_path, executor="sleep", machines=[{"count": 3}], parameters={"gms": 1, "lms": 1}) as url,
        httpx2.Client(base_url=url, trust_env=False) as http,
    ):
        page, complaints = opened(browser, f"{url}/dashboard/jobs")
        expect(page.locator("#live")).to_contain_text("No such jobs.")
        http.post("/jobs", json={"command": "true", "name": "later"})
        expect(page.locator("tbody")).to_contain_text("later", timeout=15_000)
        page.goto(url)
        page.locator("#field canvas").press("ArrowRight")
        expect(page.locator("#field p")).to_have_text("node/0: 0 of 1 slots run a task.")
        http.post("/jobs", json={"command": "true", "estimate_s": 600, "tasks": 3})
        expect(page.locator("#field p")).to_have_text("node/0: 1 of 1 slots run a task.", timeout=15_000)
        assert complaints == []


def test_users_sign_in_and_see_their_own(browser: Browser, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    ada, bob = tokens.add("ada", "user")[0], tokens.add("bob", "user")[0]
    with serving(tmp_path, tokens=tokens) as (url, _):
        for name, token in (("ada", ada), ("bob", bob)):
            with httpx2.Client(headers={"authorization": f"Bearer {token}"}, trust_env=False) as http:
                http.post(f"{url}/jobs", json={"command": "sleep 60", "name": f"of {name}"})
        page, complaints = opened(browser, f"{url}/dashboard/jobs")
        page.get_by_label("token").fill(ada)
        page.get_by_role("button", name="sign in").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        assert "of ada" in page.locator("tbody").inner_text()
        assert page.evaluate("document.cookie") == "", "scripts cannot read it"
        page.get_by_role("link", name="Nodes", exact=True).click()
        expect(page.get_by_role("button", name="drain")).to_have_count(0)
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.locator("tbody a").first.click()
        page.get_by_role("button", name="cancel this job").click()
        page.get_by_role("button", name="yes").click()
        expect(page.locator("dd .state")).to_have_text("cancelled")
        assert complaints == []
        page.get_by_role("button", name="sign out").click()
        expect(page.get_by_label("token")).to_be_visible()
