"""`volery watch`: plays the run that is asked for, or writes its page, or says which there are."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest
from uvicorn import Server

from volery.cli.main import main
from volery.study import compare


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["watch", *map(str, words)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


def test_it_writes_the_page_of_a_kept_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kept"
    compare("oracle", "sparrow", trace="syn:4x5", workers=10, seeds=2, folder=folder)
    page = tmp_path / "one.html"
    assert said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", page)[:2] == (0, f"{page}\n")
    first = page.read_bytes()
    assert b"<h1>sparrow, seed 1</h1>" in first
    said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", page)
    assert page.read_bytes() == first
    status, _, error = said(capsys, folder, "--seed", 7)
    assert status == 2
    assert "its seeds are 0, 1" in error
    assert "must end in .html" in said(capsys, folder, "-o", tmp_path / "one.svg")[2]


def test_the_film_on_disk_shows_a_part_and_says_what_is_wrong_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = tmp_path / "kept", tmp_path / "page.html"
    compare("sparrow", trace="syn:4x5", workers=10, folder=folder)
    assert said(capsys, folder, "-o", page, "--from", 1.5, "--to", 3)[0] == 0
    assert b'"begin_s":1.5,"end_s":3.0' in page.read_bytes()
    assert said(capsys, folder, "-o", page, "--messages", "--from", 1.5, "--to", 3)[0] == 0
    assert b'"begin_s":1.5,"step_s":0.00375' in page.read_bytes()
    for words, problem in (
        (("--from", 3, "--to", 3), "--to: 3 s is not after 3 s"), (("--from", 99), "--from: 99 s is after its end"),
        (("--to", -1), "--to: -1 s is before its beginning"), (("--demo",), "PLACE: give a results folder or journals"),
        (("--messages",), "--messages: is for a page of its own"),
    ):  # fmt: skip
        status, _, error = said(capsys, folder, *words)
        assert (status, problem in error) == (2, True), error
    assert said(capsys)[0] == said(capsys, "--demo", "--seed", 1)[0] == 2


def test_the_demonstration_can_be_kept_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "megha.html"
    assert said(capsys, "--demo", "-o", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert "An inconsistency: gm/0's view was old" in text


def test_it_serves_a_run_on_the_live_page_until_it_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    compare("sparrow", trace="syn:4x5", workers=10, folder=folder)

    async def ended(server: Server, sockets: list[socket.socket]) -> None:
        assert [one.getsockname()[0] for one in sockets] == ["127.0.0.1"]

    monkeypatch.setattr(Server, "serve", ended)
    status, printed, _ = said(capsys, folder, "--json")
    told = msgspec.json.decode(printed)
    assert (status, told["label"], told["seed"]) == (0, "sparrow", 0)
    assert told["url"].startswith("http://127.0.0.1:")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, _, error = said(capsys, "--demo", "--port", taken.getsockname()[1])
        assert (status, "give another --port" in error) == (2, True)
