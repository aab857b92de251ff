"""`volery watch`: writes the page of the run that is asked for, or says which there are."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    assert said(capsys, folder)[:2] == (0, f"{folder / 'watch.html'}\n")
    page = tmp_path / "one.html"
    assert said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", page)[0] == 0
    first = page.read_bytes()
    assert b"<h1>sparrow, seed 1</h1>" in first
    said(capsys, folder, "--run", "sparrow", "--seed", 1, "-o", page)
    assert page.read_bytes() == first
    status, _, error = said(capsys, folder, "--seed", 7)
    assert status == 2
    assert "oracle with seed 0" in error
    assert "must end in .html" in said(capsys, folder, "-o", tmp_path / "one.svg")[2]
