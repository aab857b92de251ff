"""`volery browse`: says where the results are, serves until Ctrl-C, and refuses what is no results folder."""

from __future__ import annotations

import json
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from volery.cli.main import main
from volery.study import compare


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["browse", *map(str, words)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    compare("oracle", "sparrow", trace="syn:4x5", workers=10, folder=tmp_path / "kept")
    return tmp_path / "kept"


def test_it_serves_this_machine_until_it_is_interrupted(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[ThreadingHTTPServer] = []

    def interrupted(server: ThreadingHTTPServer) -> None:
        opened.append(server)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupted)
    status, out, _ = said(capsys, folder, "--json")
    assert status == 0
    host, port = opened[0].server_address[:2]
    assert json.loads(out) == {"folder": str(folder), "url": f"http://127.0.0.1:{port}/"}
    assert host == "127.0.0.1"
    assert opened[0].socket.fileno() == -1, "it is closed"


def test_what_is_no_results_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = said(capsys, tmp_path)
    assert status == 2
    assert "is not a results folder" in error


def test_a_table_that_turns_out_to_be_damaged_ends_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folder / "jobs.parquet"
    sound = table.read_bytes()
    table.write_bytes(sound[:40] + bytes(400) + sound[440:])
    status, _, error = said(capsys, folder)
    assert status == 2
    assert "jobs.parquet: is damaged" in error
