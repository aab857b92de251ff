"""An experiment that holds a simulation against a closed form, from its file to the page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from experiments.details import details
from experiments.experiment import read_experiment
from experiments.pictures import draw
from experiments.records import make_record, record_path, reusable, write_record
from experiments.reproduction import reproduce
from volery.core.errors import InputError

TEXT = """
title = "one server"
paper = "test"
figure = "Figure 0"
seeds = [0, 1, 2]
columns = ["settled.load", "settled.queueing_s"]
network = { delay_us = 0 }
pictures = ["analysis"]

[quick]
jobs = 3

[settled]
warm_up_s = 100

[[population]]
label = "0"

[[workload]]
label = "w"
trace = "poisson:load=0.5,workers=1,fanout=1,mean=1,jobs=4000"
workers = 1
constraints = "none"
is_source = "the definition of an M/M/1 queue"

[architectures]
one = "oracle"

[[claim]]
id = "wait"
section = "2"
sentence = "The wait is rho / (1 - rho)."
tolerance = "4,000 jobs do not give the mean closer"
says = "It is an M/M/1 queue."
published = "theory"
left = { metric = "settled.queueing_s", of = "one" }
relation = "within"
right = "mmc_wait(servers=1, arrival_rate=settled.load, service_mean=1)"
percent = 25
"""
PAPERS = """
introduction = "introduction"
[[paper]]
key = "test"
title = "A paper"
citation = "Somebody, once"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "explanations").mkdir()
    (tmp_path / "explanations" / "introduction.md").write_text("# Claims\n")
    (tmp_path / "papers.toml").write_text(PAPERS)
    (tmp_path / "small.toml").write_text(TEXT)
    return tmp_path


def test_a_queue_is_held_against_theory_at_the_load_that_it_had(folder: Path, tmp_path: Path) -> None:
    experiment = read_experiment(folder, "small")
    found = reproduce(experiment, folder=tmp_path / "kept", traces=tmp_path)
    record = make_record(found, quick=False)
    [judgement] = record.judgements
    assert judgement.verdict == "reproduced"
    right = judgement.cases[0].right
    assert right is not None
    assert right.of == "theory"
    assert 0.8 < right.mean < 1.2
    assert [fact.metric for fact in record.facts] == ["settled.load", "settled.queueing_s"]
    [(file, picture)] = draw(found)
    assert file == "analysis.svg"
    assert "Figure 0: analysis (lines), simulation (circles)" in picture
    assert ">wait<" in picture
    write_record(record, record_path(folder, "small"))
    page = details(folder)["test.html"]
    assert "<th>settled load</th><th>settled queueing s</th>" in page
    assert "settled.queueing_s of one within mmc_wait(servers=1, arrival_rate=settled.load, service_mean=1)" in page


@pytest.mark.slow
def test_recorded_values_of_another_warm_up_are_not_taken(folder: Path, tmp_path: Path) -> None:
    experiment = read_experiment(folder, "small")
    record = make_record(reproduce(experiment, folder=tmp_path / "kept", traces=tmp_path), quick=False)
    assert experiment.settled is not None
    window = msgspec.structs.replace(experiment.settled, warm_up_s=2000.0)
    moved = msgspec.structs.replace(experiment, settled=window)
    same, other = reusable(experiment, record), reusable(moved, record)
    assert same is not None
    assert other is not None
    assert (same.runs, other.runs) == (record.digests, ())
    found = reproduce(moved, folder=tmp_path / "new", traces=tmp_path, recorded=other)
    assert make_record(found, quick=False).facts != record.facts


@pytest.mark.parametrize(
    ("old", "new", "place", "problem"),
    [
        ("[settled]\nwarm_up_s = 100", "", r"small.columns\[0\]", r"needs a table \[settled\]"),
        ('settled.queueing_s", of', 'settled.queue", of', r"small.claim\[0\].left.metric", "unknown part 'queue'"),
        ("mmc_wait", "mmc_weight", r"small.claim\[0\].right", "no closed form"),
        ("=settled.load", "=load.mean", r"small.claim\[0\].right", "not of the input"),
        ('columns = ["settled.load"', 'columns = ["load.mean"', r"small.columns\[0\]", "take a measure of a run"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(folder: Path, old: str, new: str, place: str, problem: str) -> None:
    assert old in TEXT
    (folder / "small.toml").write_text(TEXT.replace(old, new))
    with pytest.raises(InputError, match=f"{place}.*{problem}"):
        read_experiment(folder, "small")
