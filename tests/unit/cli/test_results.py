"""`volery timeline` and `browse`: one run of a folder is drawn, a folder is served, and what is none is refused."""

from __future__ import annotations

import json
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.comparison import compare

from volery.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "kept"
    compare("oracle", "sparrow", trace="syn:4x5", workers=10, seeds=2, folder=path)
    return path


def drawn(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["timeline", *map(str, words)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


@pytest.mark.slow
def test_it_draws_the_run_that_is_asked_for(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.svg"
    assert drawn(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", path)[:2] == (0, f"{path}\n")
    first = path.read_bytes()
    assert b"<title>sparrow, seed 1</title>" in first
    drawn(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", path)
    assert path.read_bytes() == first


def test_columns_as_json_and_runs_as_a_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(drawn(capsys, folder, "--seed", 1, "--json")[1])
    assert (content["label"], content["seed"], content["kind"]) == ("oracle", 1, "task runs")
    assert sorted(content["columns"]["task"]) == list(range(20))
    assert drawn(capsys, folder)[1].count("task runs, 10 machines") == 4


def test_what_is_not_there_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = drawn(capsys, folder, "--seed", 7)
    assert status == 2
    assert error == "error: --seed: there is no such run; its seeds are 0, 1\n"
    status, _, error = drawn(capsys, folder, "--run", "sparow")
    assert status == 2
    assert error == "error: --run: there is no run 'sparow'; did you mean 'sparrow'?\n"
    status, _, error = drawn(capsys, folder, "-o", tmp_path / "one.png")
    assert status == 2
    assert "must end in .svg" in error
    for name in ("task_runs.parquet", "heat.parquet"):
        (folder / name).unlink(missing_ok=True)
    status, _, error = drawn(capsys, folder)
    assert status == 2
    assert "run the study again" in error


def browsed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["browse", *map(str, words)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


@pytest.fixture
def fresh_folder(tmp_path: Path) -> Path:
    compare("oracle", "sparrow", trace="syn:4x5", workers=10, folder=tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.slow
def test_it_serves_this_machine_until_it_is_interrupted(
    fresh_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[ThreadingHTTPServer] = []

    def interrupted(server: ThreadingHTTPServer) -> None:
        opened.append(server)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupted)
    status, out, _ = browsed(capsys, fresh_folder, "--json")
    assert status == 0
    host, port = opened[0].server_address[:2]
    assert json.loads(out) == {"folder": str(fresh_folder), "url": f"http://127.0.0.1:{port}/"}
    assert host == "127.0.0.1"
    assert opened[0].socket.fileno() == -1, "it is closed"


def test_what_is_no_results_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = browsed(capsys, tmp_path)
    assert status == 2
    assert "is not a results folder" in error


@pytest.mark.slow
def test_a_table_that_turns_out_to_be_damaged_ends_it(fresh_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = fresh_folder / "jobs.parquet"
    sound = table.read_bytes()
    table.write_bytes(sound[:40] + bytes(400) + sound[440:])
    status, _, error = browsed(capsys, fresh_folder)
    assert status == 2
    assert "jobs.parquet: is damaged" in error
