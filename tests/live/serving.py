"""The API of a federation, or of a loopback, on a free port, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.live.loopback import Loopback, loopback

from volery.cli.federation import choose
from volery.live.assembly import LiveHost, running
from volery.live.config.federation import FederationFile, resolve
from volery.live.dashboard.routes import dashboard_routes
from volery.live.messages import TaskReport
from volery.live.node.sleep import Duration, SleepExecutor
from volery.live.service.api import ApiServer
from volery.live.service.authentication import Authenticator, TokenFile


@contextmanager
def serving(folder: Path, port: int = 0, tokens: TokenFile | None = None) -> Iterator[tuple[str, Loopback]]:
    """Its address, and the federation behind it (to be looked at, not to be called)."""
    ready, stop = threading.Event(), asyncio.Event()
    found: list[tuple[str, Loopback, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        async with loopback(folder) as it:
            server = ApiServer(
                it.service, folder / "tasks", port=port, gate=Authenticator(tokens), pages=dashboard_routes
            )
            await server.start()
            found.append((server.url, it, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()
            await it.agent.close()
            await it.service.close()
            await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    url, it, loop = found[0]
    try:
        yield url, it
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()


def at_work(folder: Path, **keys: Any) -> AbstractContextManager[str]:
    """The address of a whole federation, whose tasks end at once unless `keys` of its file say otherwise."""
    return _at_work(folder, None, keys)


def sleeping_at_work(folder: Path, duration_us: Duration, **keys: Any) -> AbstractContextManager[str]:
    """Likewise; its tasks sleep for as long as is said."""
    return _at_work(folder, duration_us, keys)


@contextmanager
def _at_work(folder: Path, duration_us: Duration | None, keys: Mapping[str, Any]) -> Iterator[str]:
    given: dict[str, Any] = {"executor": "instant", "journal": False, "api": "127.0.0.1:0", **keys}
    federation = resolve(FederationFile(folder=str(folder), **given), Path(), choose)
    ready, stop = threading.Event(), asyncio.Event()
    found: list[tuple[LiveHost, asyncio.AbstractEventLoop]] = []

    def report(told: TaskReport) -> None:
        found[0][0].host.inbox.report(told)

    async def serve() -> None:
        executor = SleepExecutor(duration_us, report) if duration_us is not None else None
        async with running(federation, executor=executor) as it:
            found.append((it, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    it, loop = found[0]
    assert it.front is not None
    try:
        yield it.front.url
        assert it.host.failed is None, "a component has raised"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
