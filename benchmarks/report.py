"""How large a report is, and how long a browser takes to open it: `python benchmarks/report.py DIR`.

Needs chromium and the extra [dev] (playwright). Prints JSON; times are of one opening each, in seconds: until the page
and every view of its scripts stood, until the browser had painted something, and the processor time of the page's
thread, which a busy machine does not stretch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

TIMES = """() => {
  const [opened] = performance.getEntriesByType("navigation");
  const [painted] = performance.getEntriesByName("first-contentful-paint");
  return [opened.loadEventEnd / 1000, painted ? painted.startTime / 1000 : null];
}"""


def opened(browser: Browser, report: Path) -> dict[str, Any]:
    """One opening, in a page of its own."""
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    probe = page.context.new_cdp_session(page)
    probe.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(report.resolve().as_uri())
    page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    ready_s, painted_s = page.evaluate(TIMES)
    told = {one["name"]: one["value"] for one in probe.send("Performance.getMetrics")["metrics"]}
    views = page.locator("[data-view].explore").count()
    page.context.close()
    found = {"ready_s": ready_s, "painted_s": painted_s, "main_thread_cpu_s": told["TaskDuration"]}
    return {name: round(value, 3) for name, value in found.items()} | {"views": views, "complaints": complaints}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    report = given.folder / "report.html"
    if not report.exists():
        parser.error(f"{report} is missing; volery report {given.folder} writes it")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        parser.error("no chromium is installed")
    with sync_playwright() as started:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium refuses to start otherwise
        browser = started.chromium.launch(executable_path=program, args=arguments)
        found = [opened(browser, report) for _ in range(given.times)]
        browser.close()
    print(json.dumps({"bytes": report.stat().st_size, "openings": found}, indent=2))


if __name__ == "__main__":
    main()
