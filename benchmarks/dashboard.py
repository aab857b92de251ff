"""What the live page costs, as JSON lines: `python -m benchmarks.dashboard [PART ...]`; needs chromium.

A store of 100,000 jobs, one of them with a million tasks of which each has a row. Then, in the system's chromium:

    paint       per view: first contentful paint in milliseconds, on a page that was never open before, in a window of
                1200 and of 400 pixels; beside it the CPU time that the server's process spent on it
    work        per view: what the page's main thread did per second, in milliseconds (DevTools' TaskDuration), while
                jobs end the whole time, so that the page fetches itself as often as it ever does
    core        the part of a core that the server takes while jobs come and end at a steady pace, without pages and
                with ten real pages open, of all views, in turn; each is a window of its own that believes itself to be
                seen
    throughput  tasks per CPU second and per second of a server that is kept busy, and how long submissions take,
                without pages and with ten, in turn: see benchmarks/saturated.py
    memory      the memory of a server that is kept busy with ten pages open, each minute

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
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any, Final

import msgspec
from benchmarks.saturated import Busy, memory, throughput
from benchmarks.serving import Server
from playwright.sync_api import Browser, sync_playwright

from volery.live.client import Client
from volery.live.jobs import JobDescription
from volery.live.service.store import JobStore

JOBS: Final = 100_000
TASKS: Final = 1_000_000
NODES: Final = 1_000
USERS: Final = 50
PAGES: Final = 10
WIDTHS: Final = (1200, 400)
WATCHED_S: Final = 10.0
BUSY_S: Final = 30.0
"""A window is as long as pages leave costly views as they are, so that each costs what it costs on average."""
CHUNK: Final = 50_000
VIEWS: Final = {
    "federation": "/",
    "jobs": "/dashboard/jobs",
    "jobs by name": "/dashboard/jobs?sort=name",
    "large job": "/dashboard/jobs/0",
    "its last tasks": f"/dashboard/jobs/0?first={TASKS - 500}",
    "a task": "/dashboard/jobs/0/tasks/999999",
    "nodes": "/dashboard/nodes",
    "a node": "/dashboard/nodes/node/5",
    "users": "/dashboard/users",
    "preemptions": "/dashboard/preemptions",
}
PARTS: Final = ("paint", "work", "core", "throughput", "memory")
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
                    number,
                    encoded(tasks_of(number)),
                    TASKS + number if number else 0,
                    f"job {number}",
                    f"user{number % USERS}",
                    tasks_of(number),
                    tasks_of(number),
                    begin_us + number,
                    begin_us + number + 500,
                    begin_us + 2000 * number,
                    TASKS + number + 1,
                )
                for number in range(JOBS)
            ),
        )
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
def served(folder: Path, source: str, *before: str) -> Iterator[Server]:
    """A federation at work.

    Args:
        folder: of it, with its store of jobs.
        source: the source tree of its package; empty: what is installed.
        before: words that stand before the command, such as `taskset`.
    """
    (folder / "federation.toml").write_text(FILE)
    words = [*before, sys.executable, "-m", "volery.cli.main", "up", "federation.toml"]
    environment = os.environ | ({"PYTHONPATH": source} if source else {})
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=folder, env=environment) as up:
        assert up.stdout is not None
        try:
            url = next(line.split()[1] for line in up.stdout if line.startswith(b"api:"))
            yield Server(up, url.decode(), "")
        finally:
            up.terminate()
            up.wait(60)


def paint_ms(browser: Browser, url: str, width: int) -> float:
    """First contentful paint of a page in a browser that knows nothing yet, in a window of so many pixels."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(url)
    found = None
    while found is None:  # the page's policy allows no waiting by text that is evaluated
        found = page.evaluate("(performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime ?? null")
    context.close()
    return float(found)


def work_ms(browser: Browser, url: str, width: int, client: Client, seconds: float) -> float:
    """Main-thread work of an open page per second, while a job ends ten times a second."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(url)
    page.locator("#pulse", has_text="live").wait_for()
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


def core_of(client: Client, server: Server, seconds: float) -> float:
    """The part of a core that the server takes while ten jobs of ten no-op tasks come in per second."""
    before, began = server.cpu_s(), time.monotonic()
    for count in range(round(10 * seconds)):
        client.send(NO_OP | {"tasks": 10})
        time.sleep(max(0.0, began + (count + 1) / 10 - time.monotonic()))
    return (server.cpu_s() - before) / (time.monotonic() - began)


def measure_paint(browser: Browser, server: Server, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every view, wide and narrow."""
    paint_ms(browser, server.url, WIDTHS[0])
    for width, (name, view) in product(WIDTHS, VIEWS.items()):
        before = server.cpu_s()
        painted = [paint_ms(browser, server.url + view, width) for _ in range(given.paints)]
        told = {"view": name, "width": width, "first_paint_ms": statistics.median(painted), "worst_ms": max(painted)}
        yield told | {"server_cpu_ms": round(1000 * (server.cpu_s() - before) / given.paints, 1)}


def measure_work(browser: Browser, server: Server, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every view, wide and narrow."""
    with Client(server.url) as client:
        for width, (name, view) in product(WIDTHS, VIEWS.items()):
            spent = work_ms(browser, server.url + view, width, client, given.seconds or WATCHED_S)
            yield {"view": name, "width": width, "main_thread_ms_per_s": round(spent, 1)}


def measure_core(browser: Browser, server: Server, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Without pages and with them."""
    found: dict[int, list[float]] = {0: [], given.pages: []}
    with Client(server.url) as client:
        core_of(client, server, 2.0)
        for _ in range(given.rounds):
            for pages in found:
                contexts = [browser.new_context() for _ in range(pages)]
                for context, view in zip(contexts, cycle(VIEWS.values()), strict=False):
                    context.new_page().goto(server.url + view)
                found[pages].append(core_of(client, server, given.seconds or WATCHED_S))
                for context in contexts:
                    context.close()
    more = statistics.mean(found[given.pages]) - statistics.mean(found[0])
    yield {"core": found, "pages_take": round(more, 4)}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; by default all but the last")
    parser.add_argument("--seconds", type=float, help="how long each page, or window, is watched: 10; throughput: 30")
    parser.add_argument("--rounds", type=int, default=2, help="of windows: core: two; throughput: six")
    parser.add_argument("--lives", type=int, default=2, help="of the server, in throughput")
    parser.add_argument("--pages", type=int, default=PAGES, help="that are open, of all views")
    parser.add_argument("--view", help="throughput: the address of a view that all pages show")
    parser.add_argument("--paints", type=int, default=5, help="of each page")
    parser.add_argument("--minutes", type=int, default=10, help="memory: how long")
    parser.add_argument("--source", default="", help="a src folder; by default the package that is installed")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; known are: {', '.join(PARTS)}")
    parts = given.parts or PARTS[:-1]
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as name:
        filled = Path(name)
        fill(filled / "federation")
        alone = {"paint": measure_paint, "work": measure_work, "core": measure_core}
        for part in parts:
            if part not in alone:
                continue
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                shutil.copytree(filled, folder, dirs_exist_ok=True)
                server = stack.enter_context(served(folder, given.source))
                play = stack.enter_context(sync_playwright())
                with play.chromium.launch(executable_path=path, args=arguments) as browser:
                    for told in alone[part](browser, server, given):
                        print(json.dumps({"part": part} | told), flush=True)
        views = tuple(islice(cycle([given.view] if given.view else VIEWS.values()), given.pages))
        busy = Busy(
            filled,
            lambda folder: served(folder, given.source, "taskset", "-c", "0"),
            lambda folder: served(folder, given.source),
            views,
            path,
            arguments,
        )
        if "throughput" in parts:
            told = throughput(busy, given.seconds or BUSY_S, given.lives, given.rounds)
            print(json.dumps({"part": "throughput"} | told), flush=True)
        if "memory" in parts:
            memory(busy, given.minutes)


if __name__ == "__main__":
    main()
