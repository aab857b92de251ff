"""Server of recordings: the pages of the live federation, each at the moment that its address names.

It listens on this machine alone, changes nothing, and refuses requests to other host names (DNS rebinding).
"""

from __future__ import annotations

import asyncio
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
from volery.core.model import SECOND, Time
from volery.live.dashboard import frame
from volery.live.dashboard.frame import page
from volery.live.dashboard.routes import dashboard_script, dashboard_style, file_of, pages, problem_view
from volery.live.service.authentication import Principal
from volery.live.service.requests import NotThereError
from volery.look.html import Markup, address, link, moment, name_of, tag
from volery.playback import snapshot as snapshots
from volery.playback.recording import Recording
from volery.playback.snapshot import Snapshot

LOOPBACK: Final = "127.0.0.1"
LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
VIEWER: Final = Principal("", "operator", known=False)
"""The user of every request: may read all, and there is nothing to change."""
AT: Final = "at"
VIEW: Final = "view"
MOMENTS_MAX: Final = 300
LASTS_S: Final = ((15, "15 s"), (30, "30 s"), (60, "1 min"), (120, "2 min"), (600, "10 min"))
"""Choices of the length of a playback, without its pauses."""
BY_CLOCK: Final = ((-1, "real time"), (-10, "a tenth of real time"), (-1000, "a thousandth of real time"))
DIGITS: Final = 12


def playback_app(recording: Recording) -> Starlette:
    """The web application of a recording: the views of the dashboard, each below the clock of the recording."""
    first = snapshots.at(recording, recording.begin_us)
    title = recording.source.title

    def page_of(place: int) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            request.state.principal = VIEWER
            snapshot, status = first, 200

            try:
                snapshot = snapshots.at(recording, asked_us(request, recording))
                _, make_view = pages(snapshot, None, snapshot)[place]
                view = await make_view(request)
            except InputError as error:
                view, status = problem_view(error.place, error.problem), 422
            except NotThereError as error:
                view, status = problem_view(error.place, error.problem), 404

            clock = bar(snapshot, request.url.path, request.query_params.get(VIEW, ""))
            return page(view, VIEWER, title, status, clock=clock)

        return answer

    async def missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        view = problem_view(request.url.path[:80], f"{error.detail}; there is no such page")
        return page(view, VIEWER, title, error.status_code, clock=bar(first, frame.HOME, ""))

    script = f"{dashboard_script()}\n{_text('playback.js')}"
    return Starlette(
        routes=[
            *(Route(path, page_of(place)) for place, (path, _) in enumerate(pages(first, None, first))),
            Route(frame.STYLE, file_of("text/css; charset=utf-8", dashboard_style() + _text("playback.css"))),
            Route(frame.SCRIPT, file_of("text/javascript; charset=utf-8", script)),
        ],
        exception_handlers={HTTPException: missing},
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(LOCAL_NAMES), www_redirect=False)],
    )


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def asked_us(request: Request, recording: Recording) -> Time:
    """The moment that a request names, by the clock of the recording; its beginning where it names none.

    Raises:
        InputError: it is no time.
    """
    text = request.query_params.get(AT)

    if text is None or not text:
        return recording.begin_us

    try:
        named_s = float(text) if len(text) < 40 else float("nan")
    except ValueError:
        named_s = float("nan")

    if not -1e12 < named_s < 1e12:
        raise InputError(f"query.{AT}", f"expected seconds since the beginning, as 12.5, not {text[:40]!r}")

    return min(max(round(named_s * SECOND), recording.begin_us), recording.end_us)


def seconds(time_us: Time) -> str:
    """A time as addresses hold it."""
    text = f"{time_us / SECOND:.6f}"
    return text.rstrip("0").rstrip(".")


def bar(snapshot: Snapshot, path: str, view: str) -> Markup:
    """The bar above a page.

    Args:
        view: the scheduler with the view that is compared with the truth; empty: none.
    """
    recording, source, now = snapshot.recording, snapshot.recording.source, snapshot.time_us
    begin, end = recording.begin_us, recording.end_us
    moments = recording.moments[:MOMENTS_MAX]

    bounds = {"min": seconds(begin), "max": seconds(end), "step": seconds(max(1, (end - begin) // 1000))}
    scrubber = tag(
        "input", type="range", id="scrub", name=AT, value=seconds(now), aria_label="time, in seconds", **bounds
    )

    form = tag(
        "form",
        tag("label", "at ", tag("input", name=AT, id="at", value=seconds(now), size=DIGITS, inputmode="decimal"), " s"),
        _views(snapshot, view),
        tag("button", "go"),
        tag("span", moment(snapshot.now_us) if source.origin_us else "", id="clock", class_="soft"),
        class_="controls",
        action=path,
    )

    heading = tag(
        "p", tag("strong", "Recorded: "), name_of(source.title, 200), ". ", tag("span", source.subtitle, class_="soft")
    )

    past = [text for at_us, text in moments if at_us <= now]
    caption = tag("p", name_of(past[-1]) if past else "", id="caption", class_="caption", aria_live="polite")
    listed = tag("ol", *(_moment(path, at_us, text, source.origin_us) for at_us, text in moments), class_="moments")
    all_moments = tag("details", tag("summary", f"{len(moments)} moments"), listed) if moments else None

    return tag(
        "section",
        heading,
        scrubber,
        _controls(source.lasts_s),
        form,
        caption,
        all_moments,
        class_="recording",
        id="recording",
        aria_label="the clock of the recording",
        data_begin=seconds(begin),
        data_end=seconds(end),
        data_at=seconds(now),
        data_origin=seconds(source.origin_us),
        data_moments=msgspec.json.encode([(at_us / SECOND, text) for at_us, text in moments]).decode(),
    )


def _controls(lasts_s: int) -> Markup:
    """The buttons that play and step; the script shows them."""
    speeds = [tag("option", words, value=value, selected=value == lasts_s) for value, words in (*LASTS_S, *BY_CLOCK)]
    return tag(
        "div",
        tag("button", "play", type="button", id="play", title="space"),
        tag("button", "\N{BLACK LEFT-POINTING TRIANGLE}|", type="button", id="back", title="one step back: comma"),
        tag("button", "|\N{BLACK RIGHT-POINTING TRIANGLE}", type="button", id="forth", title="one step on: full stop"),
        tag("button", "previous moment", type="button", id="previous", title="p"),
        tag("button", "next moment", type="button", id="next", title="n"),
        tag("label", "all of it in ", tag("select", *speeds, id="lasts")),
        tag("label", tag("input", type="checkbox", id="hold", checked=True), " stop to read"),
        class_="controls",
        id="moved",
        hidden=True,
    )


def _views(snapshot: Snapshot, view: str) -> Markup | None:
    """The choice of a scheduler whose view is compared with the truth."""
    schedulers = [view_errors.by for view_errors in snapshot.recording.log.views]
    if not schedulers:
        return None
    options = [tag("option", by or "nobody", value=by, selected=by == view) for by in ("", *schedulers)]
    return tag("label", "show what is wrong in the view of ", tag("select", *options, name=VIEW, id="view"))


def _moment(path: str, at_us: Time, text: str, origin_us: Time) -> Markup:
    time_link = link(address(path, {AT: seconds(at_us)}), moment(origin_us + at_us))
    return tag("li", time_link, " ", name_of(text))


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
