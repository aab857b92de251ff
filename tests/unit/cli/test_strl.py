"""`volery strl` reads an expression in either form and plans it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.cli.main import main


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["strl", *words])
    return int(str(left.value.code)), capsys.readouterr().out


def test_a_job_falls_back_while_the_gpus_are_busy(capsys: pytest.CaptureFixture[str]) -> None:
    """Vector S2 on the command line."""
    text = "max(nCk(g, 2, 0, 2, 4), nCk(g, 2, 1, 2, 3), nCk(g+n, 2, 0, 3, 3))"
    status, shown = answer(capsys, text, "--set", "g=0-1", "--set", "n=2-3", "--busy", "0-1:1")
    assert status == 0
    assert "worth 3" in shown
    assert "now: machines 2, 3 for nCk(g+n, 2, 0, 3, 3.0)" in shown


def test_both_forms_are_read_from_a_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, shown = answer(capsys, "LnCk(all, 4, 8)", "--json")
    assert status == 0
    (tmp_path / "job.json").write_text(json.dumps(json.loads(shown)["expression"]))
    assert json.loads(answer(capsys, str(tmp_path / "job.json"), "--json")[1]) == json.loads(shown)
    planned = json.loads(answer(capsys, "LnCk(all, 4, 8)", "--set", "all=0-2", "--json")[1])
    assert (planned["worth"], planned["now"]) == (6.0, [{"leaf": 0, "machines": [0, 1, 2]}])


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("nCk(all, 2)",), "STRL:1:10"),
        (("nCk(all, 2, 1)", "--set", "all"), "--set"),
        (("nCk(all, 2, 1)", "--set", "all=3-1"), "--set"),
        (("nCk(all, 2, 1)", "--set", "all=0-3", "--busy", "1:0"), "--busy"),
        (("nCk(al, 2, 1)", "--set", "all=0-3"), "STRL"),
    ],
)
def test_what_is_wrong_is_refused_with_status_2(
    words: tuple[str, ...], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, shown = answer(capsys, *words, "--json")
    assert status == 2
    assert json.loads(shown)["error"]["place"] == place
