"""`--seeds auto`: what the terminal and JSON say of it, what a file says of it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Command

WORK = ("--trace", "syn:20x8", "--workers", "60")
PAIR = ("compare", "megha", "megha:gms=2", *WORK)
STUDY = """
[study]
seeds_max = 5
[workload]
trace = "syn:20x8"
constraints = "sharma2011"
workers = 60
[axes]
architectures = ["megha", "megha:gms=2"]
seeds = "auto"
"""


@pytest.mark.slow
def test_the_terminal_says_how_many_seeds_were_drawn_and_why(command: Command) -> None:
    ended = command(*PAIR, "--seeds", "auto", "--seeds-max", "8")
    assert (ended.status, ended.err) == (0, "")
    assert "3 seeds drawn (one look at 3): every comparison with megha is decided." in ended.out
    assert "Median, mean and p99 delay of all jobs decide." in ended.out
    assert "98.1 % confidence at the last look, so that all looks together keep 95 %" in ended.out


@pytest.mark.slow
def test_json_has_the_looks(command: Command) -> None:
    ended = command(*PAIR, "--constraints", "sharma2011", "--seeds", "auto", "--seeds-max", "3", "--json")
    found = ended.json["stopping"]
    assert (found["reason"], found["seeds_max"], found["budget_s"]) == ("limit", 3, None)
    assert [(look["seeds"], look["undecided"]) for look in found["looks"]] == [(3, 3)]
    assert found["sentence"].endswith("3 seeds are the limit, and 3 of 3 comparisons with megha are not decided.")
    assert "stopping" not in command(*PAIR, "--seeds", "2", "--json").json


@pytest.mark.slow
def test_a_folder_is_shown_and_verified_with_the_reason(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    command(*PAIR, "--seeds", "auto", "-o", folder)
    assert "every comparison with megha is decided" in command("show", folder).out
    assert command("verify", folder).status == 0


@pytest.mark.slow
def test_a_study_file_adds_seeds_and_options_change_its_limits(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    assert "5 seeds drawn (looks at 3 and 5): 5 seeds are the limit" in command("run", path).out
    assert "3 seeds are the limit" in command("run", path, "--seeds-max", "3").out
    assert "5 seeds are the limit" in command("run", path, "--seeds", "auto").out
    assert "seeds drawn" not in command("run", path, "--seeds", "1").out
    path.write_text(STUDY.replace('"auto"', "1").replace("seeds_max = 5\n", ""))
    assert "2 seeds are the limit" in command("run", path, "--seeds", "auto", "--seeds-max", "2").out


def test_a_budget_that_pays_for_no_seed_says_what_to_do(command: Command) -> None:
    ended = command(*PAIR, "--seeds", "auto", "--budget-s", "1e-6")
    assert ended.status == 0
    assert "The budget of 1e-06 CPU seconds is used up before all designs have run one seed" in ended.out
    assert "give more with --budget-s" in ended.out


@pytest.mark.slow
def test_stage_times_and_decisions_go_with_added_seeds(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    ended = command(*PAIR, "--seeds", "auto", "--why", "--profile", "stages", "-o", folder)
    assert (ended.status, ended.err) == (0, "")
    assert "time per stage" in ended.out
    assert command("verify", folder).status == 0
    assert command("why", "--in", folder, "0/0").status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "auto", "--seeds-max", "1"), "--seeds-max: 1 seed decides no comparison; give 2 or more"),
        (("--seeds", "auto", "--budget-s", "0"), "--budget-s: a budget of 0 pays for no run; give CPU seconds above 0"),
        (("--seeds-max", "5"), "--seeds-max: belongs to seeds that are added; set --seeds to auto, or leave it out"),
        (("--seeds", "3", "--budget-s", "60"), "--budget-s: belongs to seeds that are added; set --seeds to auto"),
        (("--seeds", "0,auto"), "--seeds: expected a number of seeds >= 1, or auto, not '0,auto'"),
    ],
)
def test_what_does_not_go_together_is_refused(command: Command, words: tuple[str, ...], message: str) -> None:
    ended = command(*PAIR, *words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {message}")
    assert ended.err.count("\n") == 1


def test_one_design_alone_has_no_comparison_to_decide(command: Command) -> None:
    ended = command("compare", "megha", *WORK, "--seeds", "auto")
    assert ended.status == 2
    assert "--seeds: auto adds seeds until comparisons are decided; give two architectures, or a number" in ended.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds_max = 5", "seeds_max = 1", "study.study.seeds_max: 1 seed decides no comparison"),
        ("seeds_max = 5", "budget_s = 0", "study.study.budget_s: a budget of 0 pays for no run"),
        ('seeds = "auto"', "seeds = [0]", "study.study.seeds_max: belongs to seeds that are added; set "),
        ('seeds = "auto"', 'seeds = [0, "auto"]', 'study.axes.seeds: "auto" is no member of a list'),
        ('seeds = "auto"', 'seeds = "auto"\nseeds_max = 5', "axes.seeds_max: unknown key; it belongs under [study]"),
        ('"megha", ', "", "study.axes.seeds: auto adds seeds until comparisons are decided; give two architectures"),
    ],
)
def test_a_wrong_file_is_refused_by_its_place(
    command: Command, tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in STUDY
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(old, new))
    ended = command("run", path)
    assert ended.status == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1


def test_a_file_of_given_seeds_takes_no_limits(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace('"auto"', "[0, 1]").replace("seeds_max = 5\n", ""))
    ended = command("run", path, "--seeds-max", "5")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: --seeds-max: belongs to seeds that are added; set --seeds to auto")
