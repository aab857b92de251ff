"""Drawing seeds: undecided claims get more, decided ones do not, and the record says why it stopped."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from experiments.experiment import Experiment, read_experiment
from experiments.records import Record, judged_again, make_record, read_record, record_path, write_record
from experiments.reruns import (
    again,
    reproduce_again,
    reproduce_until_decided,
    spot_check,
)
from experiments.undecided import planned_looks, seeds_of
from experiments.values import RunDigest
from volery.core.errors import InputError
from volery.study.spec import AutoSeeds

FOLDER = Path(__file__).parents[2] / "experiments"
TEXT = """
title = "queues"
paper = "test"
figure = "Figure 0"
seeds = [3, 5]
network = { delay_us = 0 }

[quick]
jobs = 3

[[population]]
label = "0"

[[workload]]
label = "busy"
trace = "poisson:load=0.8,workers=2,fanout=1,mean=1,jobs=60"
workers = 2
constraints = "none"
is_source = "section 1"

[[workload]]
label = "idle"
trace = "poisson:load=0.05,workers=50,fanout=1,mean=1,jobs=60"
workers = 50
constraints = "none"
is_source = "section 1"

[architectures]
one = "oracle"
other = "sparrow"

[[claim]]
id = "clear"
section = "2"
sentence = "No job ends before it begins."
says = "Response times exceed 1 ms."
published = "above 1 ms"
left = { metric = "jrt_s.mean", of = ["one", "other"] }
relation = ">="
right = 0.001

[[claim]]
id = "open"
section = "2"
sentence = "The jobs of a busy cluster wait."
says = "The mean response time is 1.5 s."
published = "1.5 s"
left = { metric = "jrt_s.mean", of = "one" }
on = ["busy"]
relation = "about"
right = 1.5
printed = "1.5"
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    (tmp_path / "small.toml").write_text(TEXT, encoding="utf-8")
    return read_experiment(tmp_path, "small")


def drawn(experiment: Experiment, tmp_path: Path, seeds_max: int = 8, budget_s: float | None = None) -> Record:
    found = reproduce_until_decided(
        experiment, AutoSeeds(seeds_max, budget_s), folder=tmp_path / "kept", traces=tmp_path
    )
    return make_record(found, quick=False)


def seeds_by_place(record: Record) -> dict[tuple[str, str], int]:
    places = [(row.of, row.workload) for row in record.digests]
    return {place: places.count(place) for place in places}


def test_seeds_are_drawn_for_the_runs_of_undecided_claims_alone(experiment: Experiment, tmp_path: Path) -> None:
    record = drawn(experiment, tmp_path)
    counts = seeds_by_place(record)
    assert counts.pop(("one", "busy")) == len(record.seeds) > 2
    assert set(counts.values()) == {2}
    assert record.seeds[:3] == (3, 5, 6)
    assert record.complete


@pytest.mark.slow
def test_tables_compare_designs_over_the_same_seeds(experiment: Experiment, tmp_path: Path) -> None:
    record = drawn(experiment, tmp_path)
    assert len(set(seeds_by_place(record).values())) > 1
    assert {(fact.workload, fact.runs) for fact in record.facts if fact.of} == {("busy", 2), ("idle", 2)}


@pytest.mark.slow
def test_the_looks_together_keep_the_confidence_of_one(experiment: Experiment, tmp_path: Path) -> None:
    looks = planned_looks(experiment, 30)
    assert looks[0].seeds == 2
    assert looks[-1].seeds == 30
    assert sum(1 - look.confidence for look in looks) == pytest.approx(0.05)
    record = drawn(experiment, tmp_path)
    assert record.looks == planned_looks(experiment, 8)[: len(record.looks)]
    assert all(case.seeds in [look.seeds for look in record.looks] for one in record.judgements for case in one.cases)


@pytest.mark.slow
def test_the_record_says_why_no_further_seed_was_drawn(experiment: Experiment, tmp_path: Path) -> None:
    record = drawn(experiment, tmp_path)
    undecided = [one for one in record.judgements if one.verdict == "not decided"]
    expected = "8 seeds are the limit" if undecided else "every claim that seeds can decide"
    assert record.stopped.startswith(expected)
    poor = drawn(experiment, tmp_path / "poor", budget_s=1e-9)
    assert poor.stopped.startswith("the budget of 1e-09 CPU seconds does not pay the next look at 1 undecided claims")
    assert poor.seeds == (3, 5)


@pytest.mark.slow
def test_a_record_with_drawn_seeds_is_judged_again_and_kept_by_the_next_run(
    experiment: Experiment, tmp_path: Path
) -> None:
    path = record_path(tmp_path, "small")
    record = drawn(experiment, tmp_path)
    write_record(record, path)
    read = read_record(path)
    assert read == record
    assert judged_again(experiment, read) is read
    again = make_record(reproduce_again(experiment, read, folder=tmp_path / "new", traces=tmp_path), quick=False)
    assert again == record


@pytest.mark.slow
def test_drawn_seeds_are_checked_as_those_of_the_file(experiment: Experiment, tmp_path: Path) -> None:
    record = drawn(experiment, tmp_path)
    found = spot_check(experiment, record, len(record.digests), traces=tmp_path)
    assert (found.runs, found.differing) == (len(record.digests), ())


def test_seeds_follow_those_of_the_file(experiment: Experiment) -> None:
    assert seeds_of(experiment, 2) == (3, 5)
    assert seeds_of(experiment, 4) == (3, 5, 6, 7)


def test_fewer_seeds_than_those_of_the_file_are_refused(experiment: Experiment) -> None:
    with pytest.raises(InputError, match="--seeds-max: 1 is below the first look of small; give 2 or more"):
        planned_looks(experiment, 1)


@pytest.mark.parametrize(
    ("cpu_s", "runs", "text"),
    [
        (10.0, 30, "--runs 30` (30 runs, 300 CPU seconds)"),
        (10.0, 40, "--runs 30` (30 of 40 runs, 300 CPU seconds)"),
        (1000.0, 4, "--runs 1` (1 of 4 runs, 1000 CPU seconds)"),
    ],
)
def test_the_command_that_runs_a_record_again_takes_some_minutes(cpu_s: float, runs: int, text: str) -> None:
    record = read_record(record_path(FOLDER, "osdi2016_solver"))
    assert record is not None
    digests = tuple(RunDigest("m", "w", "0", seed, "digest", cpu_s=cpu_s) for seed in range(runs))
    command = again(msgspec.structs.replace(record, digests=digests))
    assert command == f"`.venv/bin/python -m experiments check osdi2016_solver {text}"
