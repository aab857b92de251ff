"""What a large results folder costs to look at, as JSON lines: `python benchmarks/browse.py`; needs chromium.

A folder is made by the project's own writer: short simulations give its summaries, and their jobs are drawn at random,
by default 1,000,000 of ten tasks under five architectures and two seeds; `--folder DIR` measures one that is there.

    address   seconds from the start of `volery serve results DIR` to the line that tells the address, and until the
              page is ready; CPU seconds and the peak of resident memory of the server's process by then
    page      in the system's chromium, on a page never open before: its size; first contentful paint and the end of
              its scripts in milliseconds, and CPU milliseconds of the main thread until then
    first, later   milliseconds from a drag, a choice or a click until the page shows the answer: jobs of a range and
              their next page, sorting them, a pair, a zoom into time; driving the browser is in them. Beside it CPU
              milliseconds of the server per action, and of the page's main thread per action of each kind
    answers   milliseconds per answer of the server, over random ranges, parts far down a list, pairs, and why the
              tasks of a job waited where runs tell, to one reader and to several at once
    report, show   CPU seconds, peak memory, and the size of report.html

Wall-clock times are those of a machine that nobody else uses.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from volery.metrics import distribution
from volery.study import compare_spec, execute, plan
from volery.study.writer import ResultsWriter

ARCHITECTURES: Final = ("megha", "pigeonc", "sparrow", "oracle", "central")
TASKS: Final = 10
VOLERY: Final = Path(sys.executable).with_name("volery")
DELAYS: Final = "[data-view=delays]"
PAIRS: Final = "[data-view=pairs]"
COURSE: Final = "[data-view=course]"


def fill(folder: Path, architectures: tuple[str, ...], seeds: int, jobs: int) -> None:
    """A study whose runs have so many jobs, with delays over six decades, some of them zero."""
    setting = {"trace": f"poisson:load=0.9,workers=100,fanout={TASKS},jobs=300", "workers": 100, "cutoff_s": 1.0}
    study = compare_spec(architectures, setting, seeds)
    keep = ResultsWriter.begin(study, plan(study), folder, force=False, command="benchmarks/browse.py")
    for number, run in enumerate(keep.planned):
        outcome = execute(run.spec)
        shared, own = (np.random.default_rng([run.spec.seed, part]) for part in (0, number + 1))
        submit_s, ideal_s = np.sort(shared.random(jobs)) * 86_400, shared.exponential(10, jobs)
        is_short = shared.random(jobs) < 0.8
        drawn = own.lognormal(-2 + 0.3 * (number % 5), 2, jobs)
        delay_s = np.where(own.random(jobs) < 0.1, 0, np.round(drawn, 6))
        outcome.jobs = {
            "job": np.arange(jobs),
            "submit_s": submit_s,
            "tasks": np.full(jobs, TASKS),
            "unsatisfiable": np.zeros(jobs, dtype=np.int64),
            "ideal_s": ideal_s,
            "jrt_s": ideal_s + delay_s,
            "delay_s": delay_s,
            "is_short": is_short,
            "wait_s": delay_s,
        }
        outcome.summary = msgspec.structs.replace(
            outcome.summary, jobs=jobs, tasks=TASKS * jobs, delay_s=distribution(delay_s)
        )
        keep.add(run, outcome)
    keep.write_tables()


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """The address of a folder, the process that serves it, and when that was started."""
    began = time.monotonic()
    command = [str(VOLERY), "serve", "results", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            text = ""
            while not text.rstrip().endswith("}"):
                text += server.stdout.readline()
            yield str(json.loads(text)["url"]), server, began
        finally:
            server.terminate()
            server.wait(60)


def cpu_s(server: int) -> float:
    """CPU seconds of all threads of a process so far."""
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(server: int, name: str) -> float:
    """Resident memory of a process, now (VmRSS) or at most (VmHWM)."""
    status = Path(f"/proc/{server}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) * 1024 / 1e6


def get(url: str, path: str, query: dict[str, Any] | None = None) -> tuple[int, bytes]:
    """An answer of the server: status and body."""
    at = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=600)
    try:
        connection.request("GET", f"/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else ""))
        found = connection.getresponse()
        return found.status, found.read()
    finally:
        connection.close()


def content_of(page: bytes) -> dict[str, Any]:
    """What a page embeds."""
    begin = page.index(b">", page.index(b'id="volery-content"')) + 1
    found: dict[str, Any] = json.loads(page[begin : page.index(b"</script>", begin)])
    return found


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return float(np.percentile(values, 95))


def asked_at_random(url: str, content: dict[str, Any], rounds: int, seed: int) -> dict[str, list[float]]:
    """Milliseconds per answer, by what was asked."""
    draw, labels = random.Random(seed), range(len(content["labels"]))
    top, found = content["grid"]["bins"], dict[str, list[float]]()

    def ask(kind: str, path: str, query: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        status, body = get(url, path, query | {"edition": content["edition"]})
        found.setdefault(kind, []).append(1000 * (time.perf_counter() - began))
        if status != http.client.OK:
            raise SystemExit(f"{path}: {body.decode()}")
        told: dict[str, Any] = json.loads(body)
        return told

    def every(value: int) -> str:
        return ",".join([str(value)] * len(labels))

    for _ in range(rounds):
        low, high = sorted(draw.sample(range(-1, top + 1), 2))
        jobs: dict[str, Any] = {"labels": ",".join(map(str, labels)), "from": every(low), "to": every(high)}
        jobs |= {"class": draw.choice(("all", "short", "long")), "count": 50}
        total = ask("range", "jobs", jobs | {"first": 0})["total"]
        ask("far down", "jobs", jobs | {"first": draw.randrange(max(1, total))})
        if len(labels) > 1:
            a, b = draw.sample(labels, 2)
            ask("pair", "pair", {"a": a, "b": b})
        for run, one in enumerate(content["why"]):
            ask("why", "why", {"run": run, "question": draw.randint(0, max(task[0] for task in one["tasks"]))})
    return found


def told(found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median, 95th percentile and longest, milliseconds."""
    return {
        kind: {"p50": round(statistics.median(ms), 1), "p95": round(p95(ms), 1), "max": round(max(ms), 1)}
        for kind, ms in found.items()
    }


def at_once(url: str, content: dict[str, Any], readers: int, rounds: int) -> dict[str, list[float]]:
    """The same of several readers that ask all the time."""
    found: dict[str, list[float]] = {}

    def read(seed: int) -> None:
        for kind, ms in asked_at_random(url, content, rounds, seed).items():
            found.setdefault(kind, []).extend(ms)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(1, readers + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def opened(browser: Browser, url: str) -> tuple[Page, dict[str, float]]:
    """A page that was never open before, and what opening it took."""
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    session = work_of(page)
    page.goto(url, wait_until="load")
    page.locator(f"{DELAYS} svg.chart path").first.wait_for()
    ready = page.evaluate("performance.now()")
    paint = page.evaluate("(performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime ?? -1")
    took = {"first_paint_ms": round(paint), "ready_ms": round(ready), "main_thread_cpu_ms": round(session())}
    return page, took


def work_of(page: Page) -> Callable[[], float]:
    """Tells the CPU milliseconds that the page's main thread has spent."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent_ms() -> float:
        told = session.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(one["value"] for one in told if one["name"] == "TaskDuration"))

    return spent_ms


def drag(page: Page, view: str, begin: float, end: float) -> None:
    """Over a drawing, from one share of its width to another."""
    chart = page.locator(f"{view} svg.chart")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=3)
    page.mouse.up()


def changes(page: Page, selector: str, act: Callable[[], None]) -> float:
    """Milliseconds from an action until a part of the page is another."""
    part = page.locator(selector)
    before = part.inner_html()
    began = time.perf_counter()
    act()
    while part.inner_html() == before:
        if time.perf_counter() - began > 60:
            raise SystemExit(f"{selector} does not change")
    return 1000 * (time.perf_counter() - began)


def choose(options: Locator, value: str) -> None:
    """One of several."""
    options.select_option(value)


def walked(page: Page, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds per action of a reader, by kind, the first of each first; and CPU ones of the main thread."""
    found: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    work = work_of(page)
    listed = f"{DELAYS} > div:nth-of-type(5)"

    def act(kind: str, selector: str, action: Callable[[], None]) -> None:
        before = work()
        found.setdefault(kind, []).append(changes(page, selector, action))
        spent.setdefault(kind, []).append(work() - before)

    draw = random.Random(0)
    for _ in range(rounds):
        begin = draw.uniform(0.05, 0.5)
        page.locator(DELAYS).get_by_role("button", name="whole range").click()
        act("range", listed, partial(drag, page, DELAYS, begin, begin + 0.3))
        following = page.locator(listed).get_by_role("button", name="next")
        if following.count() and following.is_enabled():
            act("next jobs", listed, following.click)
        heads = page.locator(f"{listed} th button")
        if heads.count():
            act("sort", listed, heads.nth(2).click)
        act("zoom", f"{COURSE} [role=status]", partial(drag, page, COURSE, begin, begin + 0.2))
        page.locator(COURSE).get_by_role("button", name="whole run").click()
        page.mouse.move(0, 0)
        seconds = page.locator(f"{PAIRS} select").last
        if seconds.count():
            values = seconds.locator("option").evaluate_all("all => all.map(one => one.value)")
            others = [value for value in values[1:] if value != seconds.input_value()]
            if others:
                chosen = draw.choice(others)
                act("pair", f"{PAIRS} [role=status]", partial(choose, seconds, chosen))
    return found, spent


def command(folder: Path, word: str) -> dict[str, Any]:
    """What a command on the folder costs."""
    began = time.monotonic()
    with subprocess.Popen([VOLERY, word, folder], stdout=subprocess.DEVNULL) as running:
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    return {
        "command": f"volery {word}",
        "status": running.returncode,
        "wall_s": round(time.monotonic() - began, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss * 1024 / 1e6),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="measure this one, and make none")
    parser.add_argument("--architectures", default=";".join(ARCHITECTURES), help="with semicolons between them")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="per run, each of ten tasks")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--readers", type=int, default=5)
    parser.add_argument("--no-report", action="store_true", help="leave out volery report and volery show")
    given = parser.parse_args()
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    with ExitStack() as stack:
        folder = given.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "study"
            fill(folder, tuple(given.architectures.split(";")), given.seeds, given.jobs)
        say({"folder_mb": round(sum(one.stat().st_size for one in folder.glob("*.parquet")) / 1e6)})
        play = stack.enter_context(sync_playwright())
        browser = play.chromium.launch(executable_path=browser_path, args=arguments)
        url, server, began = stack.enter_context(served(folder))
        address_s = time.monotonic() - began
        status, page = get(url, "")
        while status == http.client.ACCEPTED:
            time.sleep(0.1)
            status, page = get(url, "")
        ready = {"address_s": round(address_s, 2), "ready_s": round(time.monotonic() - began, 2)}
        say({**ready, "cpu_s": cpu_s(server.pid), "peak_mb": round(memory_mb(server.pid, "VmHWM"))})
        browser.new_page().goto("about:blank")
        visit, took = opened(browser, url)
        say({"page_mb": round(len(page) / 1e6, 2)} | took)
        before = cpu_s(server.pid)
        actions, spent = walked(visit, given.rounds)
        count = sum(map(len, actions.values()))
        say({"first": {kind: round(ms[0]) for kind, ms in actions.items()}})
        say({"actions": count, "server_cpu_ms": round(1000 * (cpu_s(server.pid) - before) / count, 1)})
        say({"main_thread_cpu_ms": told(spent)})
        say({"later": told({kind: ms[1:] for kind, ms in actions.items() if ms[1:]})})
        content = content_of(page)
        for readers in (1, given.readers):
            before = cpu_s(server.pid)
            answers = at_once(url, content, readers, given.rounds)
            spent_ms = 1000 * (cpu_s(server.pid) - before) / sum(map(len, answers.values()))
            say({"readers": readers, "server_cpu_ms": round(spent_ms, 1), "answers": told(answers)})
        say({"rss_mb": round(memory_mb(server.pid, "VmRSS")), "peak_mb": round(memory_mb(server.pid, "VmHWM"))})
        browser.close()
        if not given.no_report:
            for word in ("report", "show"):
                say(command(folder, word))
            say({"report_mb": round((folder / "report.html").stat().st_size / 1e6, 2)})


if __name__ == "__main__":
    main()
