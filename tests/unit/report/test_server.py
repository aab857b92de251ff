"""The server of a results folder: what it answers, to whom, and what a browser may do with it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from volery.core.errors import InputError
from volery.report.explore.server import Page, Site, open_server, url_of

PAGE = Page(HTTPStatus.OK, b"<p>page</p>", "default-src 'none'; x")


def answer(question: str, query: dict[str, str]) -> Any:
    if question != "jobs":
        raise InputError(f"/{question}", "is not here")
    if "labels" not in query:
        raise InputError("labels", "is missing")
    return query


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    found = open_server(Site(lambda: PAGE, answer), "127.0.0.1", 0)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def get(
    server: ThreadingHTTPServer, path: str, *, host: str = "localhost", method: str = "GET"
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    try:
        connection.request(method, path, headers={"Host": f"{host}:{server.server_address[1]}"})
        found = connection.getresponse()
        return found.status, found.read(), dict(found.getheaders())
    finally:
        connection.close()


def test_the_page_comes_with_its_policy_and_is_not_kept_or_framed(server: ThreadingHTTPServer) -> None:
    status, body, headers = get(server, "/")
    assert (status, body) == (200, b"<p>page</p>")
    assert headers["Content-Security-Policy"] == "default-src 'none'; x"
    assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
    assert headers["Cache-Control"] == "no-store"
    assert get(server, "/", method="HEAD")[:2] == (200, b"")


def test_questions_are_answered_or_refused_with_a_reason(server: ThreadingHTTPServer) -> None:
    status, body, headers = get(server, "/jobs?labels=1%2C2&class=all")
    assert (status, json.loads(body)) == (200, {"labels": "1,2", "class": "all"})
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert get(server, "/jobs")[:2] == (400, b'{"place":"labels","problem":"is missing"}')
    assert get(server, "/../etc/passwd")[0] == 404
    assert get(server, f"/jobs?labels={'1' * 20_000}")[0] == 414


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", ""])
def test_other_names_are_refused(server: ThreadingHTTPServer, host: str) -> None:
    """A page of another site can make its name point here, but cannot make the browser call it otherwise."""
    assert get(server, "/", host=host)[0] == 403


def test_it_only_reads(server: ThreadingHTTPServer) -> None:
    assert get(server, "/", method="POST")[0] == 501


def test_a_port_that_is_taken_is_told(server: ThreadingHTTPServer) -> None:
    assert url_of(server) == f"http://127.0.0.1:{server.server_address[1]}/"
    with pytest.raises(InputError, match="cannot listen there"):
        open_server(Site(lambda: PAGE, answer), "127.0.0.1", server.server_address[1])
