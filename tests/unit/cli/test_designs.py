"""`volery flow`, `stages` and `policy`: what they list, draw and judge, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery import architectures
from volery.architectures.pipeline.policies import METHODS
from volery.cli.main import main
from volery.core.stages import Stage


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


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever width the process that runs the tests was given, tables are not cut."""
    monkeypatch.setenv("COLUMNS", "200")


def matrix(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["stages", *words])
    return int(str(left.value.code)), capsys.readouterr().out


def test_all_designs_have_a_line_with_percentages(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = matrix(capsys)
    assert status == 0
    for name in architectures.REGISTRY:
        assert any(line.lstrip("│ ").startswith(f"{name} ") for line in text.splitlines()), name
    assert "Condor" not in text
    assert "undetermined" not in text


def test_named_designs_tell_their_methods(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = matrix(capsys, "hawk")
    assert status == 0
    assert "Worker.on_steal" in text
    assert "Migration" in text
    assert "pigeon" not in text


def test_a_stage_that_needs_a_setting_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = matrix(capsys, "megha")
    assert "with reliable=true" in " ".join(text.replace("│", " ").split())


def test_the_papers_mappings_stand_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = matrix(capsys, "sparrow", "--paper")
    lines = text.splitlines()
    assert status == 0
    assert any("Apollo" in line and "FFFFFF." in line and "?.?FF??" in line for line in lines)
    assert any("Sparrow" in line and "??~F????.???" in line for line in lines)
    assert "Apollo J 85 for 85.7" in " ".join(text.split())


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = matrix(capsys, "megha", "--paper", "--json")
    content = json.loads(text)
    assert status == 0
    assert [stage["id"] for stage in content["stages"]] == [stage.value for stage in Stage]
    assert content["stages"][0]["mode_by"] == "the paper"
    (megha,) = content["architectures"]
    assert megha["stages"]["T11"] == {
        "match": "full",
        "method": "ReportRecovery.on_attempts_lost",
        "how": "another attempt, before all that waits",
        "when": "reliable=true",
    }
    assert megha["stages"]["J3"] == {"match": "none"}
    borg = content["paper"][2]
    assert (borg["name"], borg["designed"], borg["percent_printed"]) == (
        "Borg",
        "industry",
        {"J": 57, "T": 79, "M": 0, "R": 64},
    )
    assert borg["stages"]["R6"] == {"match": "undetermined"}
    assert len(content["paper"]) == 14


def test_without_paper_there_is_no_paper_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert "paper" not in json.loads(matrix(capsys, "--json")[1])


def test_the_heat_map_needs_nothing_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "heat.html"
    status, text = matrix(capsys, "--paper", "--html", str(path))
    page = path.read_text(encoding="utf-8")
    assert status == 0
    assert "heat map:" in text
    for fact in ("Since 2010", "ReportRecovery.on_attempts_lost", "Quincy", "cell undetermined"):
        assert fact in page
    assert page.count('<div class="panel">') == 5
    assert page.count('class="box printed"') == 40, "ten stages in each of four classes"
    assert "<b>T11</b>83</div>" in page
    assert not any(word in page for word in ("<script", "<link", "url(", "http:", "https:"))


def test_the_heat_map_of_ours_alone_has_one_panel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "heat.html"
    matrix(capsys, "pigeon", "pigeonc", "--html", str(path))
    page = path.read_text(encoding="utf-8")
    assert page.count('<div class="panel">') == 1
    assert "<b>R2</b>25</div>" in page, "partial in one of two"
    assert "Condor" not in page


def test_a_picture_shows_borg_as_the_paper_maps_it_beside_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "stages", "borg", "-o", tmp_path / "borg.svg")[0] == 0
    drawn = (tmp_path / "borg.svg").read_text(encoding="utf-8")
    assert "square 1: Borg, as the paper maps it" in drawn
    assert "square 2: borg, as the code declares it" in drawn
    status, _, problem = said(capsys, "stages", "-o", tmp_path / "all.svg")
    assert (status, "name them" in problem) == (2, True)


def test_an_unknown_name_is_answered_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = matrix(capsys, "sparow", "--json")
    assert status == 2
    assert "did you mean 'sparrow'" in json.loads(text)["error"]["problem"]


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = matrix(capsys, "--html", str(tmp_path / "nowhere" / "heat.html"), "--json")
    assert status == 2
    assert "heat.html" in json.loads(text)["error"]["place"]


def judge(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["policy", *words])
    told = capsys.readouterr()
    return int(str(left.value.code)), told.out + told.err


def test_every_policy_is_listed_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = judge(capsys, "list", "--json")
    assert status == 0
    listed = json.loads(text)
    assert list(listed) == [stage.value for stage in METHODS]
    assert all(one["summary"] for policies in listed.values() for one in policies)
    assert all(each["description"] for policies in listed.values() for one in policies for each in one["parameters"])


def test_tables_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = judge(capsys, "list", "R5")
    assert "best-fit" in text
    assert "per-user" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["R5=worst-fit", "T2=bands", "T2=hdrf/shares:ann:2+org:1(bob:1+eve:1)", "J3=srtf", "J2=per-user", "M4=managed"],
)
def test_ours_keep_what_every_policy_has_to(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, text = judge(capsys, "check", name, "--budget-us", "100000")
    assert status == 0, text
    assert text.count("passed") == 5


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("list", "R1"), "'R1' has no policies by name"),
        (("check", "best-fti"), "did you mean 'best-fit'"),
        (("check", "T2=best-fit"), "there is no policy 'best-fit' for stage T2"),
        (("check", "R5=kubernetes/balanced:-1"), "R5/balanced: '-1' does not fit"),
    ],
)
def test_what_there_is_not_is_told_with_the_nearest(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    status, text = judge(capsys, *words)
    assert status == 2
    assert problem in text
