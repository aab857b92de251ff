"""`python -m experiments`: what it prints, writes and answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.experiments.test_reproduction import PAPERS, TEXT

from experiments.commands import main

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lab" / "experiments"
    (made / "explanations").mkdir(parents=True)
    (made / "small.toml").write_text(TEXT, encoding="utf-8")
    (made / "papers.toml").write_text(PAPERS, encoding="utf-8")
    (made / "explanations" / "introduction.md").write_text("What was said.\n", encoding="utf-8")
    return made


@pytest.fixture
def command(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> Command:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("VOLERY_EXPERIMENTS", str(folder))
    monkeypatch.setenv("VOLERY_TRACES", str(tmp_path / "traces"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as leaving:
            main(words)
        out, err = capfd.readouterr()
        return int(leaving.value.code or 0), out, err

    return call


@pytest.mark.slow
def test_an_experiment_prints_its_verdicts_and_writes_pictures_and_the_record(
    command: Command, folder: Path, tmp_path: Path
) -> None:
    status, out, _ = command("run", "small", "-o", "kept")
    assert status == 0
    for text in ("No job is faster than three hops. [exact]", "1.5 ms", "reproduced", "differs", "gone.tr.gz"):
        assert text in out
    assert (tmp_path / "kept" / "small" / "delay_cdf_w.svg").exists()
    assert (folder / "results" / "small.json").read_bytes() == (
        tmp_path / "kept" / "small" / "verdicts.json"
    ).read_bytes()


@pytest.mark.slow
def test_a_quick_run_is_small_and_leaves_the_ledger_alone(command: Command, folder: Path) -> None:
    status, out, _ = command("run", "small", "--quick", "--json")
    assert status == 0
    record = json.loads(out)["records"][0]
    assert record["quick"]
    assert record["seeds"] == [0]
    assert not (folder / "results").exists()


@pytest.mark.slow
def test_the_list_tells_the_state_before_and_after(command: Command) -> None:
    _, out, _ = command("list", "--json")
    assert [(entry["name"], entry["state"]) for entry in json.loads(out)] == [("small", "not run")]
    command("run", "small")
    _, out, _ = command("list")
    assert "3 reproduced, 1 differs, 1 not decidable" in out


def test_the_claims_that_seeds_may_decide_are_listed_cheapest_first(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOLERY_EXPERIMENTS", str(Path(__file__).parents[2] / "experiments"))
    status, out, _ = command("list", "--not-decided", "--json")
    claims = json.loads(out)
    times = [claim["cpu_s"] for claim in claims if claim["cpu_s"] is not None]
    assert status == 0
    assert times == sorted(times)
    assert all(claim["next_seeds"] >= claim["seeds"] for claim in claims)
    _, out, _ = command("list", "--not-decided")
    assert claims[0]["claim"] in out.splitlines()[1]


@pytest.mark.slow
def test_the_pages_stand_beside_the_experiments(command: Command, folder: Path) -> None:
    assert command("run")[0] == 0
    status, out, _ = command("pages")
    root = folder.parent
    assert status == 0
    assert str(root / "docs" / "papers.md") in out
    assert "](papers/test.md)" in (root / "docs" / "papers.md").read_text(encoding="utf-8")
    assert "# A paper" in (root / "docs" / "papers" / "test.md").read_text(encoding="utf-8")
    assert "three-hops" in (root / "build" / "papers" / "test.html").read_text(encoding="utf-8")
    (root / "docs" / "papers.md").unlink()
    (root / "docs" / "papers.md").mkdir()
    status, _, err = command("pages")
    assert (status, "papers.md: cannot be written" in err) == (2, True)


def test_an_unknown_name_is_answered_with_a_suggestion(command: Command) -> None:
    status, _, err = command("run", "smal")
    assert status == 2
    assert "did you mean 'small'" in err


@pytest.mark.slow
def test_recorded_runs_are_checked_and_a_changed_one_is_told_with_status_1(command: Command, folder: Path) -> None:
    assert command("run", "small")[0] == 0
    status, out, _ = command("check", "small")
    assert (status, "small: 1 of 1 runs come out as recorded (" in out) == (0, True)
    status, out, _ = command("check", "--json")
    assert status == 0
    assert [one["runs"] for one in json.loads(out)["checked"]] == [1]
    path = folder / "results" / "small.json"
    record = json.loads(path.read_text())
    record["digests"][0]["digest"] = "0" * 64
    path.write_text(json.dumps(record))
    status, out, _ = command("check", "small")
    assert status == 1
    assert "small: 0 of 1 runs come out as recorded" in out
    assert "differs: " in out


@pytest.mark.slow
def test_a_record_of_other_code_is_not_lost_to_fewer_finished_runs(command: Command, folder: Path) -> None:
    assert command("run", "small", "-o", "kept")[0] == 0
    path = folder / "results" / "small.json"
    record = json.loads(path.read_text())
    for row in record["digests"]:
        row["key"] = "0" * 64
    path.write_text(json.dumps(record))
    before = path.read_bytes()

    status, _, err = command("run", "small", "--finished", "-o", "elsewhere")
    assert status == 2
    assert f"0 runs are finished with the code and the file as they are, and the record has {record['runs']}" in err
    assert "`python -m experiments judge small` judges those" in err
    assert path.read_bytes() == before
    assert command("run", "small", "--finished", "-o", "kept")[0] == 0, "where all of them are finished"


@pytest.mark.slow
def test_runs_of_earlier_code_are_carried_where_a_run_of_every_design_comes_out_as_recorded(
    command: Command, folder: Path, tmp_path: Path
) -> None:
    assert command("run", "small", "-o", "kept")[0] == 0
    path = folder / "results" / "small.json"
    made = json.loads(path.read_text())

    # What a change to the code does to a record: keys that no run has now.
    earlier = made | {"digests": [row | {"key": "0" * 64} for row in made["digests"]]}
    other = earlier | {"digests": [row | {"digest": "0" * 64} for row in earlier["digests"]]}
    path.write_text(json.dumps(other))
    before = path.read_bytes()
    assert command("check", "small", "--carry")[0] == 1
    assert path.read_bytes() == before, "a design that comes out otherwise: nothing is carried"

    path.write_text(json.dumps(earlier))
    status, out, _ = command("check", "small", "--carry")
    designs = len({row["of"] for row in made["digests"]})
    assert (status, f"small: {designs} of {designs} runs come out as recorded" in out) == (0, True)
    assert command("run", "small", "-o", "elsewhere")[0] == 0
    assert not list((tmp_path / "elsewhere" / "runs").glob("*.json")), "no recorded run was run again"
    record = json.loads(path.read_text())
    assert [row["key"] for row in record["digests"]] == [row["key"] for row in made["digests"]]
    assert record["carried"]["runs"] == designs
    assert f"runs of earlier code are among them, of which {designs} came out the same again" in command("list")[1]


@pytest.mark.slow
def test_recorded_values_are_judged_again_without_runs_or_traces(command: Command, folder: Path) -> None:
    assert command("run", "small", "-o", "kept")[0] == 0
    path = folder / "results" / "small.json"
    before = path.read_bytes()
    assert command("judge", "small")[0] == 0
    assert path.read_bytes() == before
    shutil.rmtree("kept")
    text = TEXT.replace('relation = ">"\nright = 1\n', 'relation = "<"\nright = 1\n')
    (folder / "small.toml").write_text(text, encoding="utf-8")
    status, out, err = command("judge", "--json")
    assert (status, err) == (0, "")
    verdicts = [one["verdict"] for one in json.loads(out)["records"][0]["judgements"]]
    assert verdicts == ["reproduced"] * 4 + ["not decidable"]


def test_what_cannot_be_judged_again_is_refused_alone_and_named_among_others(command: Command) -> None:
    status, _, err = command("judge", "small")
    assert status == 2
    assert "experiment small: has no record; `python -m experiments run small` makes one" in err
    status, _, err = command("judge")
    assert status == 0
    assert "left out: experiment small: has no record" in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--seeds", "5"), "--seeds: '5' is not auto; the first seeds of an experiment stand in its file"),
        (("--seeds-max", "5"), "--seeds-max: belongs to seeds that are added; set --seeds to auto"),
        (("--budget-s", "5"), "--budget-s: belongs to seeds that are added; set --seeds to auto"),
        (("--seeds", "auto", "--budget-s", "0"), "--budget-s: a budget of 0 pays for no run"),
        (("--seeds", "auto", "--seeds-max", "1"), "--seeds-max: 1 seed decides no comparison; give 2 or more"),
        (("--seeds", "auto", "--quick"), "--seeds: auto draws further seeds; leave out --quick"),
    ],
)
def test_seeds_that_cannot_be_drawn_are_refused(command: Command, words: tuple[str, ...], problem: str) -> None:
    status, _, err = command("run", "small", *words)
    assert (status, problem in err) == (2, True)


@pytest.mark.slow
def test_drawing_seeds_prints_why_it_stopped(command: Command, folder: Path) -> None:
    status, out, _ = command("run", "small", "--seeds", "auto", "--seeds-max", "3")
    assert status == 0
    assert "Up to 2 seeds, 1 look, the last at a confidence of" in out
    assert "every claim that seeds can decide is decided" in out
    record = json.loads((folder / "results" / "small.json").read_text())
    assert record["stopped"] == "every claim that seeds can decide is decided"
    assert [look["seeds"] for look in record["looks"]] == [2]
