"""`volery theory` prints the closed forms; their values are tested in tests/unit/test_theory.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.cli.main import main


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["theory", *words])
    return int(str(left.value.code)), capsys.readouterr().out


def test_pigeons_table_has_the_values_of_its_equations(capsys: pytest.CaptureFixture[str]) -> None:
    """Section 3: groups of 50 and 200 at loads 0.8 and 0.9, 100 ms tasks."""
    status, text = answer(capsys, "pigeon", "--load", "0.8,0.9", "--workers", "50,200", "--json")
    rows = json.loads(text)["rows"]
    assert status == 0
    assert [(row["load"], row["workers"]) for row in rows] == [(0.8, 50), (0.8, 200), (0.9, 50), (0.9, 200)]
    assert [row["task_never_waits"] for row in rows] == pytest.approx([0.9130, 0.9986, 0.6361, 0.9055], abs=5e-5)
    assert [row["task_wait_ms"] for row in rows] == pytest.approx([0.870, 0.003, 7.277, 0.472], abs=5e-4)


@pytest.mark.parametrize(
    ("words", "column", "expected"),
    [
        (("mm1", "--load", "0.5"), "wait_ms", 100.0),
        (("mmc", "--load", "0.5", "--workers", "1"), "waits", 0.5),
        (("sparrow", "--load", "0.5", "--fanout", "50"), "job_never_waits", 0.5398),
        (("choices", "--load", "0.5", "--choices", "1"), "wait_ms", 100.0),
    ],
)
def test_every_model_answers(
    words: tuple[str, ...], column: str, expected: float, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = answer(capsys, *words, "--json")
    assert json.loads(text)["rows"][0][column] == pytest.approx(expected, abs=5e-5)


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = answer(capsys, "mmc")
    assert status == 0
    assert "wait ms" in text


@pytest.mark.parametrize("words", [("mm1", "--load", "1"), ("mmc", "--workers", "many"), ("mm1", "--load", "0.5,x")])
def test_what_makes_no_sense_is_refused_with_status_2(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = answer(capsys, *words, "--json")
    assert status == 2
    assert json.loads(text)["error"]["place"] == words[1]


SIMULATED = [
    ("mm1", ("--load", "0.5"), "wait_ms", 0.1),
    ("mmc", ("--load", "0.8", "--workers", "5"), "wait_ms", 0.1),
    ("mmc", ("--load", "0.8", "--workers", "5"), "waits", 0.05),
    ("pigeon", ("--load", "0.8", "--workers", "5", "--fanout", "2"), "task_never_waits", 0.1),
    ("pigeon", ("--load", "0.8", "--workers", "5", "--fanout", "2"), "job_never_waits_equal_tasks", 0.2),
    ("sparrow", ("--load", "0.5", "--fanout", "4"), "job_never_waits", 0.1),
    ("choices", ("--load", "0.8", "--choices", "2"), "response_ms", 0.05),
    ("choices", ("--load", "0.5", "--choices", "1"), "response_ms", 0.05),
]


@pytest.mark.parametrize(("model", "words", "column", "tolerance"), SIMULATED)
def test_simulation_stands_beside_analysis_and_agrees(
    model: str, words: tuple[str, ...], column: str, tolerance: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run of the lab's own components per row; the wrong load, queue or number of choices is further off."""
    _, text = answer(capsys, model, *words, "--simulate", "20000", "--json")
    [row] = json.loads(text)["rows"]
    assert row["simulated"][column] == pytest.approx(row[column], rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_picture_is_the_same_every_time(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for path in pictures:
        words = ("mmc", "--load", "0.5,0.8", "--workers", "2,4", "--simulate", "500", "--picture", str(path))
        status, text = answer(capsys, *words)
        assert (status, f"picture: {path}" in text, "waits (simulated)" in " ".join(text.split())) == (0, True, True)
    first, second = (path.read_bytes() for path in pictures)
    assert first == second
    if suffix == ".svg":
        assert b"waits, 4 workers" in first


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("--picture", "out.gif"), "--picture"),
        (("--load", "0,0.5", "--simulate", "100"), "--load"),
        (("--picture", "no/such/folder.svg", "--simulate", "100"), "no/such/folder.svg"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(
    words: tuple[str, ...], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = answer(capsys, "mm1", *words, "--json")
    assert status == 2
    assert json.loads(text)["error"]["place"] == place


def test_delay_scheduling_stands_beside_its_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    """Stuck without delay, local with it, and a wait within the analysis."""
    words = ("--fanout", "100", "--jobs", "10", "--mean-ms", "1000", "--simulate", "1000", "--json")
    status, text = answer(capsys, "delay", *words)
    naive, delayed = json.loads(text)["rows"]
    assert status == 0
    assert naive["simulated"]["locality"] < 0.45 < 0.9 < delayed["simulated"]["locality"]
    assert 0 < delayed["simulated"]["wait_ms"] < delayed["wait_ms"]
