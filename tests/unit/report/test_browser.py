"""The page of a study in a real browser: it is walked by mouse and by keyboard, and nothing is left on the console."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
from playwright.sync_api import Browser
from pyarrow import parquet
from tests.comparison import compare
from tests.live.browsing import BROWSER, chromium
from tests.unit.report.samples import LABELS, conflict_rows, delays_s, sample_run, sample_runs, write_sample

from volery.report.explore.content import RunExplanation, TaskExplanation
from volery.report.explore.server import Site, mark_of, open_server, prepared, url_of
from volery.report.html import write_report

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
WHY = [
    RunExplanation(
        "megha", 0, 9, [TaskExplanation(3, 1, 1.0, 2.5, 4.0, 7, [(1.5, "gm/0", "queued", -1, "", 0.1, [], 0)])]
    )
]
EVIL = "<script>throw 1</script>\u202e\u05e9\u05dc\u05d5\u05dd \U0001f426 " + "x" * 10_000

Scheme = Literal["light", "dark"]


class Visit:
    """A page in the browser, and all that it complained of."""

    def __init__(
        self, browser: Browser, url: str, width: int = 1200, scheme: Literal["light", "dark"] = "light"
    ) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(request.url))
        self.page.goto(url)

    def rows(self, selector: str) -> list[list[str]]:
        """The texts of a table's cells."""
        script = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
        found: list[list[str]] = self.page.locator(f"{selector} tbody tr").evaluate_all(script)
        return found

    def drag(self, selector: str, begin: float, end: float) -> None:
        """Over a drawing, from one share of its width to another."""
        self.page.locator(selector).scroll_into_view_if_needed()
        box = self.page.locator(selector).bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + begin * box["width"], middle)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + end * box["width"], middle, steps=3)
        self.page.mouse.up()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def count(text: str) -> int:
    return int(text.replace(",", ""))


def test_a_reader_chooses_sorts_and_toggles(browser: Browser, tmp_path: Path) -> None:
    write_report(write_sample(tmp_path), WHY)
    visit = Visit(browser, f"file://{tmp_path}/report.html")
    table = "[data-view=delays] > div:nth-of-type(4)"
    before = visit.rows(table)
    assert [row[0] for row in before] == list(LABELS)
    assert {count(row[1]) for row in before} == {3 * 399}
    assert visit.page.locator("[data-still=delays]").is_hidden()

    visit.drag("[data-view=delays] svg.chart", 0.3, 0.7)
    chosen = [count(row[1]) for row in visit.rows(table)]
    assert all(0 < inside < 3 * 399 for inside in chosen)
    said = visit.page.locator("[data-view=delays] [role=status]").inner_text()
    assert "delays above" in said
    jobs = visit.rows("[data-view=delays] > div:nth-of-type(5)")
    assert jobs
    known = {(label, str(seed), str(job)) for label in LABELS for seed in range(3) for job in range(399)}
    assert all((label, seed, job) in known for label, seed, job, *_ in jobs)

    visit.page.get_by_role("button", name="percentile").click()
    visit.page.locator("[data-view=delays] svg.chart").focus()
    visit.page.keyboard.press("ArrowUp")
    visit.page.keyboard.press("Shift+PageUp")
    assert {count(row[1]) for row in visit.rows(table)} == {round(0.1 * 3 * 399)}

    visit.page.locator("[data-view=delays] .legend button").nth(1).click()
    assert [row[0] for row in visit.rows(table)] == [LABELS[0], LABELS[2]]
    assert visit.page.locator("[data-view=delays] path[data-label]").count() == 2

    heads = visit.page.locator(f"{table} th")
    heads.nth(5).get_by_role("button").click()
    heads.nth(5).get_by_role("button").click()
    assert heads.nth(5).get_attribute("aria-sort") == "descending"
    assert [row[0] for row in visit.rows(table)] == [LABELS[2], LABELS[0]]
    assert visit.complaints == []


def test_tables_sort_by_value_and_rows_keep_their_architecture(browser: Browser, tmp_path: Path) -> None:
    trace = "poisson:load=0.9,workers=20,fanout=5,mean=2,jobs=60"
    compare("pigeon", "sparrow", trace=trace, workers=20, cutoff_s=2.0, folder=tmp_path)
    visit = Visit(browser, f"file://{tmp_path}/report.html")
    told = {row[0]: row[4:9] for row in visit.rows("[data-view=delays] > div:nth-of-type(4)")}
    table = visit.page.locator("section", has=visit.page.get_by_role("heading", name="Delay", exact=True))
    still = table.locator("table").first
    still.get_by_role("button", name="p99").click()
    script = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    rows: list[list[str]] = still.locator("tbody tr").evaluate_all(script)
    assert {len(row) for row in rows} == {10}
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
    values = [float(number) * units[unit] for number, unit in (row[8].split() for row in rows)]
    assert values == sorted(values)
    assert [row[0] for row in rows].count("sparrow") == 3
    for row in rows:
        if row[1] == "all":
            assert told[row[0]] == [row[3], row[6], row[7], row[8], row[9]], "the same numbers in both tables"
    assert visit.complaints == []


def test_time_is_zoomed_pairs_are_chosen_and_a_task_is_explained(browser: Browser, tmp_path: Path) -> None:
    write_report(write_sample(tmp_path), WHY)
    visit = Visit(browser, f"file://{tmp_path}/report.html", 400, "dark")
    wide = visit.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] == wide[1], "the page itself never scrolls sideways"

    said = visit.page.locator("[data-view=course] [role=status]")
    assert "from 0 s to 33.3 min" in said.inner_text()
    visit.drag("[data-view=course] svg.chart", 0.4, 0.6)
    assert "to 33.3 min" not in said.inner_text()
    visit.page.locator("[data-view=course]").get_by_role("button", name="whole run").click()
    visit.page.mouse.move(0, 0)
    assert "from 0 s to 33.3 min" in said.inner_text()

    visit.page.locator("[data-view=pairs] select").nth(1).select_option("2")
    a, b = (np.concatenate([delays_s(label, seed)[:-1] for seed in range(3)]) for label in (LABELS[0], LABELS[2]))
    assert f"Less delay under a, megha: {int((a < b).sum()):,}" in visit.page.locator("[data-view=pairs]").inner_text()

    visit.page.get_by_role("button", name="3/1").click()
    assert "no place found" in visit.page.locator("[data-view=why]").inner_text()
    assert visit.complaints == []


def seconds(text: str) -> float:
    """A duration as the page writes it."""
    number, unit = text.replace(",", "").split()
    return float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[unit]


def means_over(folder: Path, label: str, low: float, high: float) -> list[float]:
    """Utilisation, waiting tasks and unfinished jobs of a label: means over a stretch of time and over seeds.

    A run that has ended counts as zero.
    """
    curves, jobs = (
        parquet.read_table(folder / name, filters=[("label", "=", label)]).to_pandas()
        for name in ("utilisation.parquet", "jobs.parquet")
    )
    found = np.zeros(3)
    for _, curve in curves.groupby("seed"):
        begin = curve.time_s.to_numpy()
        end = np.append(begin[1:], 2 * begin[-1] - begin[-2])
        inside = np.clip(np.minimum(end, high) - np.maximum(begin, low), 0, None)
        found[:2] += [(curve[name] * inside).sum() for name in ("utilisation", "waiting_tasks")]
    open_until = jobs.submit_s + jobs.jrt_s
    found[2] = (open_until.clip(upper=high) - jobs.submit_s.clip(lower=low)).clip(lower=0).sum()
    return list(found / curves.seed.nunique() / (high - low))


def test_means_under_the_curves_are_those_of_the_stretch_that_the_page_names(browser: Browser, tmp_path: Path) -> None:
    """Designs that end at different times are averaged over the same time, the whole of it or a part."""
    trace = "poisson:load=1.6,workers=20,fanout=5,mean=2,jobs=200"
    compare("oracle", "eagle:schedulers=1", "pigeon", trace=trace, workers=20, cutoff_s=1.0, seeds=2, folder=tmp_path)
    ends = parquet.read_table(tmp_path / "utilisation.parquet").to_pandas().groupby("label").time_s.max()
    assert ends.max() > 1.1 * ends.min(), "the designs end at different times"
    visit = Visit(browser, f"file://{tmp_path}/report.html")
    view = visit.page.locator("[data-view=course]")

    def held(tolerance: float) -> None:
        said = view.locator("[role=status]").inner_text()
        low, high = (seconds(part) for part in re.findall(r"[\d.,]+ (?:ms|s|min|h)\b", said)[:2])
        rows = visit.rows("[data-view=course]")
        assert len(rows) == 3
        for label, busy, waiting, unfinished in rows:
            expected = means_over(tmp_path, label, low, high)
            numbers = [float(text.replace(",", "").removesuffix(" %")) for text in (busy, waiting, unfinished)]
            assert [numbers[0] / 100, *numbers[1:]] == pytest.approx(expected, rel=tolerance, abs=0.002), label

    held(0.02)
    view.locator("svg.chart").focus()
    visit.page.keyboard.press("+")
    held(0.03)
    for _ in range(2):
        visit.page.keyboard.press("Shift+ArrowRight")
    held(0.03)
    assert visit.complaints == []


def test_counts_and_percentiles_of_a_range_of_delays_are_those_of_the_jobs(browser: Browser, tmp_path: Path) -> None:
    trace = "poisson:load=1.2,workers=20,fanout=5,mean=2,jobs=300"
    compare("pigeon", "sparrow", trace=trace, workers=20, cutoff_s=2.0, seeds=2, folder=tmp_path)
    visit = Visit(browser, f"file://{tmp_path}/report.html")
    visit.page.locator("[data-view=delays] svg.chart").focus()
    for key in ["PageDown"] * 4 + ["Shift+PageUp"] * 10:
        visit.page.keyboard.press(key)
    said = visit.page.locator("[data-view=delays] [role=status]").inner_text()
    low, high = (seconds(part) for part in re.findall(r"[\d.,]+ (?:µs|ms|s|min|h)\b", said)[:2])
    step = float(re.findall(r"at most ([\d.]+) %", said)[0]) / 100
    for label, jobs, share, _, *percentiles in visit.rows("[data-view=delays] > div:nth-of-type(4)"):
        delays = np.sort(parquet.read_table(tmp_path / "jobs.parquet", filters=[("label", "=", label)])["delay_s"])
        inside = delays[(delays > low) & (delays <= high)]
        assert inside.size > 50
        assert count(jobs) == pytest.approx(inside.size, abs=3), "the bounds are shown with three digits"
        assert float(share.removesuffix(" %")) == pytest.approx(100 * inside.size / delays.size, abs=0.6)
        exact = [np.percentile(inside, p, method="inverted_cdf") for p in (50, 90, 95, 99, 100)]
        assert all(a * 0.985 <= seconds(b) <= a * (1.02 + step) for a, b in zip(exact, percentiles, strict=True))
    assert visit.complaints == []


def test_conflicts_and_refusals_over_time_are_those_of_the_folder(browser: Browser, tmp_path: Path) -> None:
    write_report(write_sample(tmp_path))
    visit = Visit(browser, f"file://{tmp_path}/report.html", 3840, "dark")
    kept = parquet.read_table(tmp_path / "conflicts.parquet").to_pydict()
    (row,) = visit.rows("[data-view=conflicts]")
    assert [row[0], float(row[2]), float(row[4])] == [
        "syn_250 on 10,000 workers",
        max(kept["waiting_max"]),
        max(kept["collisions_max"]),
    ]
    assert [float(row[1]), float(row[3])] == pytest.approx(
        [np.mean(kept["waiting"]), np.mean(kept["collisions"])], abs=0.005
    )
    chart = visit.page.locator("[data-view=conflicts] svg.chart")
    assert chart.locator("path[data-label]").count() == 2
    chart.focus()
    visit.page.keyboard.press("+")
    said = visit.page.locator("[data-view=conflicts] [role=status]")
    assert "from 8.33 min to 25.0 min" in said.inner_text()
    visit.page.keyboard.press("ArrowRight")
    at = int((1000 + 1000 / 100) // 40)
    (row,) = visit.rows("[data-view=conflicts]")
    assert [float(cell) for cell in row[1:]] == [
        kept[name][at] for name in ("waiting", "waiting_max", "collisions", "collisions_max")
    ]
    table = parquet.read_table(tmp_path / "utilisation.parquet").to_pydict()
    refused = [n for label, n in zip(table["label"], table["refused_tasks"], strict=True) if label == "megha"]
    assert "placements refused per second" in visit.page.locator("[data-view=course] thead").inner_text()
    told = {row[0]: row[2] for row in visit.rows("[data-view=course]")}
    assert told[LABELS[1]] == told[LABELS[2]] == "\u2013"
    assert float(told["megha"]) == pytest.approx(sum(refused) / 3 / 2000, rel=0.01)
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 3840
    assert visit.complaints == []


def test_a_served_folder_answers_about_jobs_pairs_and_tasks(browser: Browser, tmp_path: Path) -> None:
    folder = write_sample(tmp_path, sample_runs(1))
    asked: list[str] = []

    class Told:
        def longest(self) -> list[RunExplanation]:
            return WHY

        def answer(self, run: int, question: str) -> list[TaskExplanation]:
            asked.append(question)
            return WHY[run].tasks

    edition = prepared(folder, mark_of(folder), Told(), lambda _: None)
    server = open_server(Site(lambda: edition.page, edition.answers.answer), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        visit = Visit(browser, url_of(server))
        visit.drag("[data-view=delays] svg.chart", 0.01, 0.99)
        listed = visit.page.locator("[data-view=delays] > div:nth-of-type(5)")
        listed.get_by_text("jobs.").wait_for()
        visit.page.locator("[data-view=pairs] select").first.select_option("1")
        visit.page.locator("[data-view=pairs] select").nth(1).select_option("2")
        visit.page.locator("[data-view=pairs]").get_by_text("399 jobs that both").wait_for()
        visit.page.locator("[data-view=why] input").fill("14/3")
        visit.page.locator("[data-view=why] input").press("Enter")
        visit.page.get_by_text("Task 3/1").wait_for()
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["14/3"]
    assert visit.complaints == []


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    runs = [msgspec.structs.replace(sample_run(), label=label) for label in (EVIL, "other")]
    folder = write_sample(tmp_path, runs)
    parquet.write_table(conflict_rows(EVIL), folder / "conflicts.parquet")
    told = [RunExplanation(EVIL, 0, 1, WHY[0].tasks)]
    write_report(folder, told)
    visit = Visit(browser, f"file://{folder}/report.html", 400)
    assert visit.page.evaluate("document.scripts.length") == 2
    for view in ("delays", "conflicts"):
        assert "<script>throw 1</script>" in visit.page.locator(f"[data-view={view}] .legend").inner_text()
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 400
    assert visit.complaints == []
