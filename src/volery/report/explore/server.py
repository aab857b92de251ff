"""A small HTTP server that shows one results folder to browsers of this machine.

It only reads. It answers to the names that it was given alone, so that no other site's page can reach it through a
browser (DNS rebinding), and its pages may run their own script and ask their own server, nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from volery.core.errors import InputError

LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
QUERY_MAX: Final = 10_000
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class Page(NamedTuple):
    """HTML with its status and its content security policy."""

    status: HTTPStatus
    body: bytes
    policy: str


class Site(msgspec.Struct, frozen=True, eq=False):
    """The pages and answers that a server sends.

    Args:
        page: gives what / shows now.
        answer: tells what a path (without its stroke) asks, given its query.
        names: host names that requests may be addressed to.
    """

    page: Callable[[], Page]
    answer: Callable[[str, dict[str, str]], Any]
    names: Sequence[str] = LOCAL_NAMES


def open_server(site: Site, host: str, port: int) -> ThreadingHTTPServer:
    """A server that listens; `serve_forever` serves, `server_close` ends it.

    Raises:
        InputError: when it cannot listen there.
    """
    handler = type("Handler", (_Handler,), {"site": site})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except (OSError, OverflowError) as error:
        place, reason = f"{host}:{port}", getattr(error, "strerror", None) or str(error)
        raise InputError(place, f"cannot listen there ({reason}); give another --port or --host") from None
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "volery", ""
    timeout = 60

    def do_GET(self) -> None:
        if self._is_foreign():
            self._refuse(HTTPStatus.FORBIDDEN, "host", f"this server answers to {', '.join(self.site.names)} alone")
            return
        asked = urlsplit(self.path)
        if asked.path == "/":
            found = self.site.page()
            self._send(found.status, found.body, "text/html; charset=utf-8", found.policy)
        elif len(asked.query) > QUERY_MAX:
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, asked.path, f"a query has at most {QUERY_MAX:,} letters")
        else:
            self._tell(asked.path.removeprefix("/"), dict(parse_qsl(asked.query)))

    do_HEAD = do_GET  # noqa: N815 (http.server calls it so)

    def _tell(self, question: str, query: dict[str, str]) -> None:
        try:
            found = self.site.answer(question, query)
        except InputError as error:
            missing = error.place.startswith("/")
            self._refuse(HTTPStatus.NOT_FOUND if missing else HTTPStatus.BAD_REQUEST, error.place, error.problem)
            return
        self._send(HTTPStatus.OK, msgspec.json.encode(found), "application/json")

    def _is_foreign(self) -> bool:
        host = self.headers.get("Host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] if ":" in host else host
        return "*" not in self.site.names and name.lower() not in self.site.names

    def _refuse(self, status: HTTPStatus, place: str, problem: str) -> None:
        self._send(status, msgspec.json.encode({"place": place, "problem": problem}), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        headers = HEADERS | {"Content-Security-Policy": policy, "Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of http.server
        """Nothing: the terminal belongs to whoever started the server."""


def url_of(server: ThreadingHTTPServer) -> str:
    """The address of a server for a browser."""
    host, port = server.server_address[:2]
    name = f"[{host!s}]" if server.address_family == socket.AF_INET6 else str(host)
    return f"http://{name}:{port}/"
