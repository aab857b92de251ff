"""What the live page costs, as JSON lines: `python benchmarks/window.py`; needs chromium.

A store of 100,000 jobs, one of them with a million tasks of which each has a row. Then, in the system's chromium:

    paint     per view: first contentful paint in milliseconds, on a page that was never open before; beside it the CPU
              time that the server's process spent on it
    work      per view: what the page's main thread did per second, in milliseconds (DevTools' TaskDuration), while jobs
              end the whole time, so that the page fetches itself as often as it ever does
    core      the part of a core that the server takes while jobs come and end the whole time, without pages and with
              ten real pages open, of all views, in turn; each is a window of its own that believes itself to be seen.
              The difference is what the scheduler lacks where it has no more than that core: its throughput falls by so
              much, because pages ask by the clock, however fast jobs end

Times are those of a machine that nobody else uses; CPU time is of `volery up` alone, a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from playwright.sync_api import Browser, sync_playwright

from volery.live.client import Client
from volery.live.jobs import JobDescription
from volery.live.service.store import JobStore

JOBS: Final = 100_000
TASKS: Final = 1_000_000
NODES: Final = 1_000
USERS: Final = 50
PAGES: Final = 10
CHUNK: Final = 50_000
VIEWS: Final = {
    "federation": "/", "jobs": "/window/jobs", "jobs by name": "/window/jobs?sort=name", "large job": "/window/jobs/0",
    "its last tasks": f"/window/jobs/0?first={TASKS - 500}", "a task": "/window/jobs/0/tasks/999999",
    "nodes": "/window/nodes", "users": "/window/users", "preemptions": "/window/preemptions",
}  # fmt: skip
NO_OP: Final = {"command": "true"}
FILE: Final = f"""
architecture = "megha"
executor = "instant"
api = "127.0.0.1:0"
[parameters]
gms = 3
lms = 3
why = true
[[machines]]
count = {NODES}
"""


def fill(folder: Path) -> None:
    """Jobs that have ended, the first of them large."""
    store = JobStore(folder / "jobs.sqlite")
    store.close()

    def tasks_of(number: int) -> int:
        return 1 if number else TASKS

    def encoded(tasks: int) -> bytes:
        return msgspec.json.encode(JobDescription(command="true", tasks=tasks), order="deterministic")

    with sqlite3.connect(folder / "jobs.sqlite") as sql:
        begin_us = time.time_ns() // 1000 - 3600 * 1_000_000
        sql.executemany(
            "INSERT INTO jobs (id, description, first_task, name, user, state, tasks, finished, submitted_us, "
            "started_us, ended_us, revision) VALUES (?, ?, ?, ?, ?, 'done', ?, ?, ?, ?, ?, ?)",
            (
                (
                    number, encoded(tasks_of(number)), TASKS + number if number else 0, f"job {number}",
                    f"user{number % USERS}",
                    tasks_of(number), tasks_of(number), begin_us + number, begin_us + number + 500,
                    begin_us + 2000 * number, TASKS + number + 1,
                )
                for number in range(JOBS)
            ),
        )  # fmt: skip
        for first in range(0, TASKS, CHUNK):
            sql.executemany(
                "INSERT INTO tasks (job, place, state, node, started_us, ended_us, revision) "
                "VALUES (0, ?, 'finished', ?, ?, ?, ?)",
                (
                    (k, f"node/{k % NODES}", begin_us + k, begin_us + k + 500, k + 1)
                    for k in range(first, first + CHUNK)
                ),
            )
    sql.close()


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a federation, and the number of its process."""
    (folder / "federation.toml").write_text(FILE)
    program = Path(sys.executable).with_name("volery")
    with subprocess.Popen([program, "up", "federation.toml"], stdout=subprocess.PIPE, text=True, cwd=folder) as up:
        assert up.stdout is not None
        try:
            url = next(line.split()[1] for line in up.stdout if line.startswith("api:"))
            yield url, up.pid
        finally:
            up.terminate()
            up.wait(60)


def cpu_s(server: int) -> float:
    """CPU seconds of all threads of a process so far."""
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def paint_ms(browser: Browser, url: str) -> float:
    """First contentful paint of a page in a browser that knows nothing yet."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(url)
    found = None
    while found is None:  # the page's policy allows no waiting by text that is evaluated
        found = page.evaluate("(performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime ?? null")
    context.close()
    return float(found)


def work_ms(browser: Browser, url: str, client: Client, seconds: float) -> float:
    """Main-thread work of an open page per second, while a job ends ten times a second."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(url)
    page.get_by_text("live", exact=True).wait_for()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")

    def spent_s() -> float:
        told = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in told if one["name"] == "TaskDuration"))

    before, began = spent_s(), time.monotonic()
    while time.monotonic() < began + seconds:
        client.send(NO_OP | {"tasks": 10})
        page.wait_for_timeout(100)
    spent = 1000 * (spent_s() - before) / (time.monotonic() - began)
    context.close()
    return spent


def core_of(client: Client, server: int, seconds: float) -> float:
    """The part of a core that the server takes while ten jobs of ten no-op tasks come in per second."""
    before, began = cpu_s(server), time.monotonic()
    for count in range(round(10 * seconds)):
        client.send(NO_OP | {"tasks": 10})
        time.sleep(max(0.0, began + (count + 1) / 10 - time.monotonic()))
    return (cpu_s(server) - before) / (time.monotonic() - began)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each page is watched")
    parser.add_argument("--rounds", type=int, default=3, help="without pages and with them")
    parser.add_argument("--only-core", action="store_true", help="leave out paint and work")
    given = parser.parse_args()
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fill(folder / "federation")
        url, server = stack.enter_context(served(folder))
        client = stack.enter_context(Client(url))
        play = stack.enter_context(sync_playwright())
        browser = play.chromium.launch(executable_path=path, args=arguments)
        paint_ms(browser, url)
        for name, view in ({} if given.only_core else VIEWS).items():
            before = cpu_s(server)
            painted = [paint_ms(browser, url + view) for _ in range(5)]
            told = {"view": name, "first_paint_ms": statistics.median(painted), "worst_ms": max(painted)}
            print(json.dumps(told | {"server_cpu_ms": 200 * (cpu_s(server) - before)}), flush=True)
        for name, view in ({} if given.only_core else VIEWS).items():
            spent = work_ms(browser, url + view, client, given.seconds)
            print(json.dumps({"view": name, "main_thread_ms_per_s": round(spent, 1)}), flush=True)
        core_of(client, server, 2.0)
        found: dict[int, list[float]] = {0: [], PAGES: []}
        for _ in range(given.rounds):
            for pages in found:
                contexts = [browser.new_context() for _ in range(pages)]
                for context, view in zip(contexts, [*VIEWS.values(), "/"], strict=False):
                    context.new_page().goto(url + view)
                found[pages].append(core_of(client, server, given.seconds))
                for context in contexts:
                    context.close()
        more = statistics.mean(found[PAGES]) - statistics.mean(found[0])
        print(json.dumps({"core": found, "pages_take": round(more, 4)}), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
