"""The server of a results folder: answers, their readers, their policy, and one edition at a time."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.samples import LABELS, sample_runs, write_sample

from volery.core.errors import InputError
from volery.report.explore import server as module
from volery.report.explore.content import RunExplanation, TaskExplanation
from volery.report.explore.server import Page, ResultsSite, Site, mark_of, open_server, url_of
from volery.report.folder import glance

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


EVERY = {"labels": "0", "from": "-1", "to": "1024", "first": "0", "count": "1"}


class Silent:
    """Says nothing of any task; waits until it may be read."""

    def __init__(self, may: threading.Event | None = None) -> None:
        self._may = may

    def longest(self) -> Sequence[RunExplanation]:
        if self._may is not None:
            assert self._may.wait(30)
        return []

    def answer(self, run: int, question: str) -> Sequence[TaskExplanation]:
        raise InputError(question, f"nothing is known of run {run}")


def test_while_it_is_read_a_page_says_how_far_and_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    may, heard = threading.Event(), list[str]()
    site = ResultsSite(write_sample(tmp_path), lambda: Silent(may), heard.append)
    site.begin()
    waiting = site.page()
    assert waiting.status == HTTPStatus.ACCEPTED
    assert b'http-equiv="refresh"' in waiting.body
    with pytest.raises(InputError, match="got ready"):
        site.answer("jobs", EVERY)
    may.set()
    monkeypatch.setattr(module, "PATIENCE_S", 30)
    ready = site.page()
    assert ready.status == HTTPStatus.OK
    assert LABELS[1].encode() in ready.body
    assert f"{9 * 400:,} of {9 * 400:,} jobs are read" in heard


def test_changed_files_make_a_new_edition_and_old_pages_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 30)
    site = ResultsSite(write_sample(tmp_path), Silent)
    site.begin()
    before, old = site.page(), mark_of(tmp_path)
    assert site.page() is before
    whole = site.answer("jobs", EVERY | {"edition": old})
    write_sample(tmp_path, sample_runs(1))
    assert site.answer("jobs", EVERY | {"edition": old}) == whole, "a page is answered from what it was made of"
    assert site.page().body != before.body
    with pytest.raises(InputError, match="load the page again") as refused:
        site.answer("jobs", EVERY | {"edition": old})
    assert refused.value.place == "edition"
    assert site.answer("jobs", EVERY | {"edition": mark_of(tmp_path)}) != whole


def test_damage_is_told_where_it_begins_and_mended_files_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 30)
    write_sample(tmp_path)
    table = tmp_path / "jobs.parquet"
    sound = table.read_bytes()
    middle = len(sound) // 3
    table.write_bytes(sound[:middle] + bytes(200) + sound[middle + 200 :])
    failed: list[Exception] = []
    site = ResultsSite(tmp_path, Silent, failed=failed.append)
    site.begin()
    told = site.page()
    assert told.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert b"jobs.parquet: is damaged" in told.body
    assert len(failed) == 1
    table.write_bytes(sound)
    assert site.page().status == HTTPStatus.OK


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("manifest.json", None, "is not a results folder: it has no manifest.json"),
        ("manifest.json", b"{", "is damaged or of another version"),
        ("summary.json", None, "summary.json: is missing: 9 of 9 runs are finished.*volery report DIR"),
        ("jobs.parquet", None, "jobs.parquet: is missing"),
        ("jobs.parquet", b"PAR1 and no more", "jobs.parquet: is damaged"),
        ("utilisation.parquet", b"", "utilisation.parquet: is damaged"),
    ],
)
def test_what_shows_at_a_glance_is_told_before_anything_is_served(
    tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    path = write_sample(tmp_path) / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=problem):
        glance(tmp_path)
