"""`volery policy`: what there is, and how it is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.architectures.pipeline.policies import METHODS
from volery.cli.main import main

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "pipeline.md"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["policy", *words])
    told = capsys.readouterr()
    return int(str(left.value.code)), told.out + told.err


def test_every_policy_is_listed_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "list", "--json")
    assert status == 0
    listed = json.loads(text)
    assert list(listed) == [stage.value for stage in METHODS]
    assert all(one["summary"] for policies in listed.values() for one in policies)
    assert all(each["description"] for policies in listed.values() for one in policies for each in one["parameters"])


def test_the_reference_page_holds_the_tables_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """`volery policy list --markdown` prints them."""
    _, text = answer(capsys, "list", "--markdown")
    assert PAGE.read_text(encoding="utf-8").endswith(f"## The policies\n\n{text}")


def test_tables_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = answer(capsys, "list", "R5")
    assert "best-fit" in text
    assert "per-user" not in text


@pytest.mark.parametrize(
    "name",
    ["R5=worst-fit", "T2=bands", "T2=hdrf/shares:ann:2+org:1(bob:1+eve:1)", "J3=srtf", "J2=per-user", "M4=managed"],
)
def test_ours_keep_what_every_policy_has_to(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, text = answer(capsys, "check", name, "--budget-us", "100000")
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
    status, text = answer(capsys, *words)
    assert status == 2
    assert problem in text
