"""Server of recordings: the pages of the live federation, each at the moment that its address names.

It listens on this machine alone, changes nothing, and refuses requests to other host names (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from volery.core.errors import InputError
from volery.live.dashboard import frame
from volery.live.dashboard.frame import PageView, page
from volery.live.dashboard.routes import dashboard_script, dashboard_style, file_of, pages, problem_view
from volery.live.service.authentication import Principal
from volery.live.service.requests import NotThereError
from volery.look.html import joined
from volery.playback import snapshot as snapshots
from volery.playback.pages import DESIGN, VIEW, MessagePanel, asked_us, bar
from volery.playback.recording import Recording
from volery.playback.snapshot import Snapshot

LOOPBACK: Final = "127.0.0.1"
LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
VIEWER: Final = Principal("", "operator", known=False)
"""The user of every request: may read all, and there is nothing to change."""

Shown = Callable[[Snapshot, Request], Awaitable[PageView]]


class PlaybackApp:
    """The web application of a recording.

    Args:
        design: makes the page of the design; None: there is none.
        lasts_s: initial length of the playback, without its pauses.
    """

    def __init__(self, recording: Recording, design: Callable[[], PageView] | None = None, lasts_s: int = 30) -> None:
        self._lasts_s = lasts_s
        self._recording = recording
        self._panel = MessagePanel(recording)
        self._design = None if design is None else functools.cache(design)

    def app(self) -> Starlette:
        """The application: pages, style sheet and script."""
        shown = [Route(path, self._page(place)) for place, (path, _) in enumerate(self._pages(self._first))]

        return Starlette(
            routes=[
                *shown,
                Route(DESIGN, self._answering(self._of_design)),
                Route(frame.STYLE, file_of("text/css; charset=utf-8", dashboard_style() + _text("playback.css"))),
                Route(frame.SCRIPT, file_of("text/javascript; charset=utf-8", _script())),
            ],
            exception_handlers={HTTPException: self._missing},
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(LOCAL_NAMES), www_redirect=False)],
        )

    @property
    def _first(self) -> Snapshot:
        return snapshots.at(self._recording, self._recording.begin_us)

    def _pages(self, snapshot: Snapshot) -> tuple[tuple[str, Callable[[Request], Awaitable[PageView]]], ...]:
        return pages(snapshot, None, snapshot)

    def _page(self, place: int) -> Callable[[Request], Awaitable[Response]]:
        async def show(snapshot: Snapshot, request: Request) -> PageView:
            path, make_view = self._pages(snapshot)[place]

            view = await make_view(request)
            if path != frame.HOME:
                return view

            live = joined((view.live, self._panel.content(snapshot)))
            return msgspec.structs.replace(view, live=live, still=joined((view.still, self._panel.canvas())))

        return self._answering(show)

    async def _of_design(self, _snapshot: Snapshot, _request: Request) -> PageView:
        if self._design is None:
            raise NotThereError(DESIGN, "this recording has no design page")
        return await asyncio.to_thread(self._design)

    def _answering(self, show: Shown) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            request.state.principal = VIEWER
            snapshot = self._first
            status = 200

            try:
                snapshot = snapshots.at(self._recording, asked_us(request, self._recording))
                view = await show(snapshot, request)
            except InputError as error:
                view = problem_view(error.place, error.problem)
                status = 422
            except NotThereError as error:
                view = problem_view(error.place, error.problem)
                status = 404

            clock_bar = bar(snapshot, request.url.path, request.query_params.get(VIEW, ""), self._lasts_s)
            return page(view, VIEWER, self._recording.source.title, status, film=clock_bar)

        return answer

    async def _missing(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        view = problem_view(request.url.path[:80], f"{error.detail}; there is no such page")
        above = bar(self._first, frame.HOME, "", self._lasts_s)
        return page(view, VIEWER, self._recording.source.title, error.status_code, film=above)


def _script() -> str:
    return "\n".join((dashboard_script(), _text("playback.js"), _text("message_panel.js")))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


class PlaybackServer:
    """The HTTP server of a recording, on this machine.

    Args:
        port: port to listen at; 0: any free one.

    Raises:
        InputError: it cannot listen there.
    """

    def __init__(self, app: Starlette, port: int = 0) -> None:
        # Only of sockets that say TCP does asyncio switch off the wait for more to send, 40 ms per answer.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)

        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((LOOPBACK, port))
            self._socket.listen(128)  # who comes before `run` waits, and is not refused
        except OSError as error:
            self._socket.close()
            problem = f"cannot listen there ({error.strerror or error}); give another --port"
            raise InputError(f"{LOOPBACK}:{port}", problem) from None

        self.url = f"http://{LOOPBACK}:{self._socket.getsockname()[1]}/"

        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until `stop` or Ctrl-C."""
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except KeyboardInterrupt:
            pass
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._server.should_exit = True
