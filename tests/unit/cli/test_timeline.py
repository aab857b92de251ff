"""`volery timeline`: draws one run of a folder, prints its columns, and says which runs there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.cli.main import main
from volery.study import compare


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "kept"
    compare("oracle", "sparrow", trace="syn:4x5", workers=10, seeds=2, folder=path)
    return path


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["timeline", *map(str, words)])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


def test_it_draws_the_run_that_is_asked_for(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.svg"
    assert said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", path)[:2] == (0, f"{path}\n")
    first = path.read_bytes()
    assert b"<title>sparrow, seed 1</title>" in first
    said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", path)
    assert path.read_bytes() == first


def test_columns_as_json_and_runs_as_a_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(said(capsys, folder, "--seed", 1, "--json")[1])
    assert (content["label"], content["seed"], content["kind"]) == ("oracle", 1, "task runs")
    assert sorted(content["columns"]["task"]) == list(range(20))
    assert said(capsys, folder)[1].count("task runs, 10 machines") == 4


def test_what_is_not_there_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = said(capsys, folder, "--seed", 7)
    assert status == 2
    assert error == "error: --seed: there is no such run; its seeds are 0, 1\n"
    status, _, error = said(capsys, folder, "--run", "sparow")
    assert status == 2
    assert error == "error: --run: there is no run 'sparow'; did you mean 'sparrow'?\n"
    status, _, error = said(capsys, folder, "-o", tmp_path / "one.png")
    assert status == 2
    assert "must end in .svg" in error
    for name in ("task_runs.parquet", "heat.parquet"):
        (folder / name).unlink(missing_ok=True)
    status, _, error = said(capsys, folder)
    assert status == 2
    assert "run the study again" in error
