"""A federation that has as much to do as it can, with pages open and without: the part `throughput` of window.py.

The server has the first processor to itself. The clients and the browser share the others, the browser with less
priority, so that it takes time from neither the scheduler nor the clients that keep it busy. Clients form a closed
loop: so many jobs of ten no-op tasks, one per request, have not ended, and their ends are heard of by one stream of
events. Windows without pages and with them alternate, as ABBA, within one life of the process, so that drift cancels
in pairs of neighbours; a new life begins with the same store.

Two figures per window: tasks per CPU second of the server, whatever else the machine does, and tasks per second, which
falls also where clients or browser get in the way. `server_busy` tells how much of its processor the server had.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from benchmarks.serving import SIZE, Connection, Ends, Server, described, quantiles, run
from playwright.async_api import Page, async_playwright

from volery.metrics.difference import paired_difference

SETTLE_S: Final = 4.0
"""After pages were opened or closed, until a window begins."""
FETCHES: Final = "performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length"


class Busy(NamedTuple):
    """A federation that is kept busy, and its pages.

    Args:
        filled: a folder with a store of jobs.
        serve: a context that yields the federation of a folder, on the first processor.
        views: addresses of the pages that are open.
        chromium, arguments: the browser.
        connections, under_way: of the clients, and their jobs that have not ended.
    """

    filled: Path
    serve: Callable[[Path], AbstractContextManager[Server]]
    views: Sequence[str]
    chromium: str
    arguments: Sequence[str]
    connections: int = 20
    under_way: int = 400


class Window(msgspec.Struct, frozen=True):
    """What a window has shown."""

    pages: int
    tasks_per_cpu_s: float
    tasks_per_s: float
    server_busy: float
    client_busy: float
    fetches: int
    took_s: list[float]

    def told(self) -> dict[str, Any]:
        """As it is printed."""
        words = {name: getattr(self, name) for name in self.__struct_fields__ if name != "took_s"}
        words = {name: round(value, 2 if "busy" in name else None) for name, value in words.items()}
        return words | quantiles("submission", self.took_s)


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


async def window(server: Server, load: Load, pages: Sequence[Page], seconds: float) -> Window:
    """Watch for so long."""
    fetches = await fetched(pages)
    load.took_s.clear()
    ended, cpu_s, own_s, began = len(load.ends.ended), server.cpu_s(), time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    took_s, cpu_s, own_s = time.perf_counter() - began, server.cpu_s() - cpu_s, time.process_time() - own_s
    tasks, answered = SIZE * (len(load.ends.ended) - ended), load.took_s[:]
    fetches = await fetched(pages) - fetches
    return Window(len(pages), tasks / cpu_s, tasks / took_s, cpu_s / took_s, own_s / took_s, fetches, answered)


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


async def life(busy: Busy, pages: Sequence[Page], seconds: float, rounds: int) -> AsyncIterator[Window]:
    """All windows of one life of the process."""
    blank = ["about:blank"] * len(pages)
    async with loaded(busy) as (server, load):
        shown = False
        for turn in range(rounds):
            for seen in (False, True, True, False) if turn % 2 == 0 else (True, False, False, True):
                if seen != shown:
                    await go(pages, [server.url + view for view in busy.views] if seen else blank)
                    shown = seen
                yield await window(server, load, pages if seen else (), seconds)
        await go(pages, blank)


def verdict(pairs: Sequence[tuple[Window, Window]]) -> dict[str, Any]:
    """By how much throughput falls with pages, as a part, with a 95 % interval of the paired difference."""
    told: dict[str, Any] = {"pairs": len(pairs), "pages": pairs[0][1].pages}
    for name in ("tasks_per_cpu_s", "tasks_per_s"):
        falls = [1 - getattr(seen, name) / getattr(unseen, name) for unseen, seen in pairs]
        found = paired_difference(falls, [0.0] * len(falls))
        told[name] = {
            "without": round(statistics.mean(getattr(unseen, name) for unseen, _ in pairs)),
            "with": round(statistics.mean(getattr(seen, name) for _, seen in pairs)),
            "falls_by": [round(value, 4) for value in (found.mean, found.low, found.high)],
        }
    for at, which in enumerate(("without", "with")):
        told |= quantiles(f"submission_{which}", [took for pair in pairs for took in pair[at].took_s])
    return told


def throughput(busy: Busy, seconds: float, lives: int, rounds: int) -> dict[str, Any]:
    """Print all windows; returns what they say together.

    Args:
        busy: the federation.
        seconds: of a window.
        lives, rounds: of the process, and of windows ABBA in each.
    """
    step_aside()
    found: list[Window] = []

    async def all_lives() -> None:
        async with blank_pages(busy) as pages:
            for _ in range(lives):
                async for one in life(busy, pages, seconds, rounds):
                    found.append(one)
                    print(msgspec.json.encode(one.told()).decode(), flush=True)

    run(all_lives())
    neighbours = zip(found[::2], found[1::2], strict=True)
    return verdict([(one, other) if other.pages else (other, one) for one, other in neighbours])


def memory(busy: Busy, minutes: int) -> None:
    """Print each minute what memory the server has, with pages open, and how fast it is."""
    step_aside()

    async def watch() -> None:
        async with blank_pages(busy) as pages, loaded(busy) as (server, load):
            await go(pages, [server.url + view for view in busy.views])
            for minute in range(minutes):
                told = await window(server, load, pages, 60.0)
                words = {"part": "memory", "minute": minute + 1, "jobs": len(load.ends.ended)}
                print(msgspec.json.encode(words | server.memory_mb() | told.told()).decode(), flush=True)

    run(watch())


def step_aside() -> None:
    """Leave the first processor to the server."""
    os.sched_setaffinity(0, set(range(1, os.cpu_count() or 1)) or {0})
