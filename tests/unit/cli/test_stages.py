"""`volery stages`: the matrix, the paper's beside ours, the heat map."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery import architectures
from volery.cli.main import main
from volery.core.stages import Stage


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever width the process that runs the tests was given, tables are not cut."""
    monkeypatch.setenv("COLUMNS", "200")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["stages", *words])
    return int(str(left.value.code)), capsys.readouterr().out


def test_all_designs_have_a_line_with_percentages(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys)
    assert status == 0
    for name in architectures.REGISTRY:
        assert any(line.lstrip("│ ").startswith(f"{name} ") for line in text.splitlines()), name
    assert "Condor" not in text
    assert "undetermined" not in text


def test_named_designs_tell_their_methods(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "hawk")
    assert status == 0
    assert "Worker.on_steal" in text
    assert "Migration" in text
    assert "pigeon" not in text


def test_a_stage_that_needs_a_setting_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = answer(capsys, "megha")
    assert "with reliable=true" in " ".join(text.replace("│", " ").split())


def test_the_papers_mappings_stand_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "sparrow", "--paper")
    lines = text.splitlines()
    assert status == 0
    assert any("Apollo" in line and "FFFFFF." in line and "?.?FF??" in line for line in lines)
    assert any("Sparrow" in line and "??~F????.???" in line for line in lines)
    assert "Apollo J 85 for 85.7" in " ".join(text.split())


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "megha", "--paper", "--json")
    content = json.loads(text)
    assert status == 0
    assert [stage["id"] for stage in content["stages"]] == [stage.value for stage in Stage]
    assert content["stages"][0]["mode_by"] == "the paper"
    (megha,) = content["architectures"]
    assert megha["stages"]["T11"] == {
        "match": "full",
        "method": "ReportRecovery.on_lost",
        "how": "another attempt, before all that waits",
        "when": "reliable=true",
    }
    assert megha["stages"]["J3"] == {"match": "none"}
    borg = content["paper"][2]
    assert (borg["name"], borg["designed"], borg["percent_printed"]) == (
        "Borg", "industry", {"J": 57, "T": 79, "M": 0, "R": 64},
    )  # fmt: skip
    assert borg["stages"]["R6"] == {"match": "undetermined"}
    assert len(content["paper"]) == 14


def test_without_paper_there_is_no_paper_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert "paper" not in json.loads(answer(capsys, "--json")[1])


def test_the_heat_map_needs_nothing_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "heat.html"
    status, text = answer(capsys, "--paper", "--html", str(path))
    page = path.read_text(encoding="utf-8")
    assert status == 0
    assert "heat map:" in text
    for fact in ("Since 2010", "ReportRecovery.on_lost", "Quincy", "cell undetermined"):
        assert fact in page
    assert page.count('<div class="panel">') == 5
    assert page.count('class="box printed"') == 40, "ten stages in each of four classes"
    assert "<b>T11</b>83</div>" in page
    assert not any(word in page for word in ("<script", "<link", "url(", "http:", "https:"))


def test_the_heat_map_of_ours_alone_has_one_panel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "heat.html"
    answer(capsys, "pigeon", "pigeonc", "--html", str(path))
    page = path.read_text(encoding="utf-8")
    assert page.count('<div class="panel">') == 1
    assert "<b>R2</b>25</div>" in page, "partial in one of two"
    assert "Condor" not in page


def test_an_unknown_name_is_answered_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "sparow", "--json")
    assert status == 2
    assert "did you mean 'sparrow'" in json.loads(text)["error"]["problem"]


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "--html", str(tmp_path / "nowhere" / "heat.html"), "--json")
    assert status == 2
    assert "heat.html" in json.loads(text)["error"]["place"]
