"""A federation that has as much to do as it can, with pages open and without: the part `throughput` of dashboard.py.

The server has the first processor to itself. The clients and the browser share the others, the browser with less
priority, so that it takes time from neither the scheduler nor the clients that keep it busy. Clients form a closed
loop: so many jobs of ten no-op tasks, one per request, have not ended, and their ends are heard of by one stream of
events. Processors of one machine share caches, and often more, so that a browser beside a server slows it down whatever
its pages show. Three kinds of windows therefore alternate within one life of the process:

    without     the browser shows nothing
    elsewhere   it shows the pages of another federation, which has hardly anything to do, on the other processors
    here        it shows the pages of this one

in the order of these, then the other way round, so that drift cancels in pairs of neighbours; a new life begins with
the same store. What pages cost a scheduler is told by `here` against `elsewhere`; what a browser costs that runs beside
it, by `elsewhere` against `without`.

Figures per window: tasks per CPU second of the server; tasks per second, which falls also where clients or the browser
get in the way; `server_busy`, how much of its processor the server had; `views_ms_per_s`, what it tells itself of the
CPU time that views took.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from benchmarks.serving import SIZE, Connection, Ends, Server, described, quantiles, run
from playwright.async_api import Page, async_playwright

from volery.statistics import paired_difference

KINDS: Final = ("without", "elsewhere", "here")
SETTLE_S: Final = 4.0
"""After pages were opened or closed, until a window begins."""
FETCHES: Final = "performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length"


class Busy(NamedTuple):
    """A federation that is kept busy, and its pages.

    Args:
        filled: a folder with a store of jobs.
        serve: a context that yields the federation of a folder, on the first processor.
        serve_elsewhere: likewise, on the processors that are left.
        views: addresses of the pages that are open.
        chromium, arguments: the browser.
        connections, under_way: of the clients, and their jobs that have not ended.
    """

    filled: Path
    serve: Callable[[Path], AbstractContextManager[Server]]
    serve_elsewhere: Callable[[Path], AbstractContextManager[Server]]
    views: Sequence[str]
    chromium: str
    arguments: Sequence[str]
    connections: int = 20
    under_way: int = 400


class Window(msgspec.Struct, frozen=True):
    """What a window has shown."""

    kind: str
    tasks_per_cpu_s: float
    tasks_per_s: float
    server_busy: float
    client_busy: float
    views_ms_per_s: float
    fetches: int
    took_s: list[float]

    def told(self) -> dict[str, Any]:
        """As it is printed."""
        words = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("kind", "took_s")}
        words = {name: round(value, None if "tasks" in name else 2) for name, value in words.items()}
        return {"pages": self.kind} | words | quantiles("submission", self.took_s)


class Load:
    """Clients that keep a federation busy.

    Args:
        connections: theirs.
        ends: the jobs that have ended.
        under_way: so many have not.
    """

    def __init__(self, connections: Sequence[Connection], ends: Ends, under_way: int) -> None:
        self.ends = ends
        self.took_s: list[float] = []
        self._under_way = under_way
        self._submitted = 0
        self._clients = [asyncio.ensure_future(self._submit(one)) for one in connections]

    def _is_room(self) -> bool:
        return self._submitted - len(self.ends.ended) < self._under_way

    async def _submit(self, connection: Connection) -> None:
        body = described(SIZE)
        while True:
            await self.ends.until(self._is_room)
            self._submitted += 1
            began = time.perf_counter()
            status, answer = await connection.ask("POST", "/jobs", body)
            assert status == 201, answer
            self.took_s.append(time.perf_counter() - began)

    async def close(self) -> None:
        """No more of it."""
        for client in self._clients:
            client.cancel()
        await asyncio.wait(self._clients)


async def fetched(pages: Sequence[Page]) -> int:
    """How often pages have fetched themselves again since they were opened."""
    return sum([await page.evaluate(FETCHES) for page in pages])


async def ask(server: Server, method: str, path: str, body: bytes = b"") -> bytes:
    """The content of an answer, by a connection of its own: one that idles for seconds is closed."""
    connection = await server.connect()
    _, content = await connection.ask(method, path, body)
    connection.close()
    return content


async def views_s(server: Server) -> float:
    """CPU seconds that views have taken, as the server tells; versions that do not tell: 0."""
    told = await ask(server, "GET", "/metrics")
    found = re.search(rb"^volery_view_cpu_seconds_total{} (.*)$", told, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


async def window(kind: str, server: Server, load: Load, pages: Sequence[Page], seconds: float) -> Window:
    """Watch for so long."""
    views, fetches = await views_s(server), await fetched(pages)
    load.took_s.clear()
    ended, cpu_s, own_s, began = len(load.ends.ended), server.cpu_s(), time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    took_s, cpu_s, own_s = time.perf_counter() - began, server.cpu_s() - cpu_s, time.process_time() - own_s
    tasks, answered = SIZE * (len(load.ends.ended) - ended), load.took_s[:]
    views, fetches = await views_s(server) - views, await fetched(pages) - fetches
    return Window(
        kind, tasks / cpu_s, tasks / took_s, cpu_s / took_s, own_s / took_s, 1000 * views / took_s, fetches, answered
    )


@asynccontextmanager
async def blank_pages(busy: Busy) -> AsyncIterator[list[Page]]:
    """Pages of a browser that yields to everything else; each a window of its own that believes itself to be seen."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        yielding = Path(folder) / "chromium"
        yielding.write_text(f'#!/bin/sh\nexec nice -n 15 {busy.chromium} "$@"\n')
        yielding.chmod(0o755)
        play = await stack.enter_async_context(async_playwright())
        browser = await play.chromium.launch(executable_path=yielding, args=busy.arguments)
        stack.push_async_callback(browser.close)
        yield [await (await browser.new_context()).new_page() for _ in busy.views]


@asynccontextmanager
async def loaded(busy: Busy) -> AsyncIterator[tuple[Server, Load]]:
    """A new life of the process, with the store as it was filled."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(busy.filled, folder, dirs_exist_ok=True)
        with busy.serve(Path(folder)) as server:
            async with server.connections(busy.connections) as (connections, ends):
                load = Load(connections, ends, busy.under_way)
                await asyncio.sleep(SETTLE_S)
                yield server, load
                await load.close()


async def go(pages: Sequence[Page], addresses: Sequence[str]) -> None:
    """Have each page show another address."""
    both = zip(pages, addresses, strict=True)
    await asyncio.gather(*(page.goto(address, wait_until="commit", timeout=0) for page, address in both))
    await asyncio.sleep(SETTLE_S)


@asynccontextmanager
async def elsewhere(busy: Busy) -> AsyncIterator[Server]:
    """Another federation, on the processors that are left, in which a job ends twice a second."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(busy.filled, folder, dirs_exist_ok=True)
        with busy.serve_elsewhere(Path(folder)) as server:

            async def now_and_then() -> None:
                while True:
                    await ask(server, "POST", "/jobs", described(SIZE))
                    await asyncio.sleep(0.5)

            slow = asyncio.ensure_future(now_and_then())
            yield server
            slow.cancel()


async def life(busy: Busy, pages: Sequence[Page], other: Server, seconds: float, rounds: int) -> AsyncIterator[Window]:
    """All windows of one life of the process."""
    async with loaded(busy) as (server, load):
        where = {"without": "about:blank", "elsewhere": other.url, "here": server.url}
        shown = "without"
        for turn in range(2 * rounds):
            for kind in KINDS if turn % 2 == 0 else reversed(KINDS):
                if kind != shown:
                    await go(pages, [where[kind] + (view if kind != "without" else "") for view in busy.views])
                    shown = kind
                yield await window(kind, server, load, pages, seconds)
        await go(pages, ["about:blank"] * len(pages))


def compared(found: Sequence[Window], before: str, after: str) -> dict[str, Any]:
    """By how much throughput falls, as a part, with a 95 % interval of the paired difference."""
    neighbours = [pair for pair in pairwise(found) if {one.kind for one in pair} == {before, after}]
    pairs = [(one, other) if one.kind == before else (other, one) for one, other in neighbours]
    told: dict[str, Any] = {"pairs": len(pairs)}
    for name in ("tasks_per_cpu_s", "tasks_per_s"):
        falls = [1 - getattr(second, name) / getattr(first, name) for first, second in pairs]
        difference = paired_difference(falls, [0.0] * len(falls))
        told[name] = [
            None if value is None else round(value, 4) for value in (difference.mean, difference.low, difference.high)
        ]
    return told


def verdict(found: Sequence[Window]) -> dict[str, Any]:
    """What all windows say together."""
    told: dict[str, Any] = {}
    for kind in KINDS:
        of = [one for one in found if one.kind == kind]
        names = ("tasks_per_cpu_s", "tasks_per_s", "server_busy", "views_ms_per_s")
        means = {name: round(statistics.mean(getattr(one, name) for one in of), 2) for name in names}
        told[kind] = means | quantiles("submission", [took for one in of for took in one.took_s])
    told["pages_cost"] = compared(found, "elsewhere", "here")
    told["a_browser_beside_costs"] = compared(found, "without", "elsewhere")
    return told


def throughput(busy: Busy, seconds: float, lives: int, rounds: int) -> dict[str, Any]:
    """Print all windows; returns what they say together.

    Args:
        busy: the federation.
        seconds: of a window.
        lives, rounds: of the process, and in each of all kinds of windows, there and back.
    """
    step_aside()
    found: list[Window] = []

    async def all_lives() -> None:
        async with blank_pages(busy) as pages, elsewhere(busy) as other:
            for _ in range(lives):
                async for one in life(busy, pages, other, seconds, rounds):
                    found.append(one)
                    print(msgspec.json.encode(one.told()).decode(), flush=True)

    run(all_lives())
    return verdict(found)


def memory(busy: Busy, minutes: int) -> None:
    """Print each minute what memory the server has, with pages open, and how fast it is."""
    step_aside()

    async def watch() -> None:
        async with blank_pages(busy) as pages, loaded(busy) as (server, load):
            await go(pages, [server.url + view for view in busy.views])
            for minute in range(minutes):
                told = await window("here", server, load, pages, 60.0)
                words = {"part": "memory", "minute": minute + 1, "jobs": len(load.ends.ended)}
                print(msgspec.json.encode(words | server.memory_mb() | told.told()).decode(), flush=True)

    run(watch())


def step_aside() -> None:
    """Leave the first processor to the server."""
    os.sched_setaffinity(0, set(range(1, os.cpu_count() or 1)) or {0})
