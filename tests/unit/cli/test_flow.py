"""`volery flow` lists roles and messages, draws them, and says what is wrong with its arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.cli.main import main


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(map(str, words)))
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


def test_it_lists_roles_and_messages(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = said(capsys, "flow", "megha")
    assert status == 0
    for fact in ("GlobalMaster", "Refusal", "These placements were invalid"):
        assert fact in out


def test_it_draws_and_tells_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.svg"
    status, out, _ = said(capsys, "flow", "sparrow:late_binding=false", "-o", path, "--json")
    found = json.loads(out)
    assert (status, found["picture"]) == (0, str(path))
    assert ("scheduler", "Place", "node") in [(hop["source"], hop["message"], hop["to"]) for hop in found["hops"]]
    assert "Place</text>" in path.read_text(encoding="utf-8")


def test_it_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "flow", "meega")[0] == 2
    status, _, err = said(capsys, "flow", "megha", "-o", tmp_path / "one.png")
    assert status == 2
    assert ".svg" in err
    assert not (tmp_path / "one.png").exists()


def test_pages_are_written_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "architectures", "oracle", "--pages", tmp_path / "pages", "--json")
    assert status == 0
    assert [Path(path).name for path in json.loads(out)["written"]] == ["oracle.svg", "oracle.md"]
