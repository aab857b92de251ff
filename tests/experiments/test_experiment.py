"""Experiments: every file of the project is sound, and what is wrong in one is named by its place."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from experiments.claims import Claim, Side
from experiments.experiment import (
    Experiment,
    MachinePopulation,
    NetworkCosts,
    Quick,
    Workload,
    experiments_folder,
    names,
    read_experiment,
    traces_folder,
)
from experiments.records import content_sha256, judged_again, read_record, record_path, runs_sha256
from experiments.reproduction import plan_experiment
from volery.core.errors import InputError
from volery.study.spec import is_synthetic
from volery.workload import states_gangs

FOLDER = Path(__file__).parents[2] / "experiments"
SMALL = """
title = "small"
paper = "test"
figure = "Figure 0"
seeds = [0, 1]

[quick]
jobs = 2

[[population]]
label = "drawn"

[[workload]]
label = "w"
trace = "syn:5x4"
workers = 30
is_source = "section 5"

[architectures]
m = "megha"
p = { exact = "pigeonc", published-code = "pigeonc:constraint_counting=published-code" }

[[claim]]
id = "c"
section = "6"
sentence = "Megha performs no worse than Pigeon."
says = "Megha is no worse."
published = "in words"
left = { metric = "delay_s.p50", of = "m" }
relation = "<="
right = { metric = "delay_s.p50", of = "p" }
"""


def write(folder: Path, text: str) -> Path:
    (folder / "small.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", names(FOLDER))
def test_every_experiment_is_sound_and_without_its_traces_still_has_a_plan(name: str, tmp_path: Path) -> None:
    experiment = read_experiment(FOLDER, name)
    planned = plan_experiment(experiment, tmp_path)
    assert all("is not here" in missing.why for missing in planned.missing.values())
    from_files = [workload for workload in experiment.workload if not is_synthetic(workload.trace)]
    assert len(planned.missing) == len(from_files) * len(experiment.population)


@pytest.mark.parametrize("name", names(FOLDER))
def test_every_quick_variant_is_smaller(name: str) -> None:
    experiment = read_experiment(FOLDER, name)
    cheap = experiment.cheap()
    assert len(cheap.seeds) * len(cheap.population) == 1
    assert all(workload.jobs is not None for workload in cheap.workload)


def test_a_record_of_every_experiment_that_was_run_fits_its_claims() -> None:
    for name in names(FOLDER):
        record = read_record(record_path(FOLDER, name))
        if record is not None and not record.is_former:
            experiment = read_experiment(FOLDER, name)
            expected = [(claim.id, reading) for claim in experiment.claim for reading in experiment.readings(claim)]
            judged = [(one.claim, one.reading) for one in record.judgements]
            assert list(dict.fromkeys(judged)) == expected
            assert judged_again(experiment, record).judgements == record.judgements
            assert record.complete == (record.runs == record.planned)
            assert not record.quick


@pytest.mark.parametrize(
    ("old", "new", "place", "problem"),
    [
        ("workers = 30", 'workers = "30"', "small.workload[0].workers", "expected int, got str"),
        ("workers = 30", "workers = 0", "small.workload[0].workers", ">= 1"),
        ("workers = 30", "wrokers = 30", "small.workload[0]", "did you mean 'workers'"),
        ('relation = "<="', 'relation = "=<"', "small.claim[0].relation", "=<"),
        ('relation = "<="', 'relation = "within"', "small.claim[0].relation", "needs a percent"),
        (
            'metric = "delay_s.p50", of = "m"',
            'metric = "delay_s.p51", of = "m"',
            "small.claim[0].left.metric",
            "part 'p51'",
        ),
        ('metric = "delay_s.p50", of = "m"', 'metric = "delay_s", of = "m"', "small.claim[0].left.metric", "no number"),
        ('of = "m"', 'of = "n"', "small.claim[0].left.of", "no architecture 'n'"),
        ('of = "m" }', 'of = "m", on = "v" }', "small.claim[0].left.on", "no workload 'v'"),
        ('of = "m" }', 'off = "m" }', "small.claim[0].left", "did you mean 'of'"),
        ('m = "megha"', 'm = "mega"', "small.architectures.m", "did you mean 'megha'"),
        ('m = "megha"', 'm = "megha:gsm=2"', "small.architectures.m", "did you mean 'gms'"),
        ('m = "megha"', 'm = "megha:gms"', "small.architectures.m", "is not parameter=value"),
        ('label = "drawn"', 'label = "drawn"\nmachines = "x.csv"', "small.population[0]", "machine_count"),
        ('id = "c"', 'id = "c"\npopulations = ["drawm"]', "small.claim[0].populations", "did you mean 'drawn'"),
        ("seeds = [0, 1]", "seeds = []", "small.seeds", "length >= 1"),
        ("seeds = [0, 1]", "seeds = [0", "small.toml", "is not TOML"),
        ('id = "c"', 'id = "c"\nfactor = 0', "small.claim[0].factor", "> 0"),
        ("[quick]\njobs = 2", "", "small", "missing required field quick; add it"),
        ('id = "c"\n', "", "small.claim[0]", "missing required field id; add it"),
        ('sentence = "Megha performs no worse than Pigeon."\n', "", "small.claim[0].sentence", "is missing; give the"),
        ('"Megha performs no worse than Pigeon."', '""', "small.claim[0].sentence", "quoted = false"),
        ('id = "c"', 'id = "c"\nquoted = false', "small.claim[0].quoted", "our own words go to says"),
        ('id = "c"', 'id = "c"\nours = true', "small.claim[0].ours", "the source says it"),
        ('relation = "<="', 'relation = "about"', "small.claim[0].printed", "is missing: 'about' needs the number"),
        ('relation = "<="', 'relation = "about"\nprinted = "ten"', "small.claim[0].printed", "'ten' is no number"),
        ('relation = "<="', 'relation = "about"\nprinted = "3"', "small.claim[0].printed", "3 is printed and 1 is"),
        ('relation = "<="', 'relation = "<="\nprinted = "1"', "small.claim[0].printed", "goes with relation 'about'"),
        (
            'relation = "<="',
            'relation = "within"\npercent = 5',
            "small.claim[0].tolerance",
            "is missing: 'within' needs",
        ),
        (
            'relation = "<="',
            'relation = "<"\ntolerance = "x"',
            "small.claim[0].tolerance",
            "goes with relation 'within'",
        ),
        ('relation = "<="', 'relation = "<="\npercent = 5', "small.claim[0].percent", "has no tolerance of its own"),
        ('relation = "<="', 'relation = ">"\nmargin = 5', "small.claim[0].margin", "has no tolerance of its own"),
        ('relation = "<="', 'relation = "<"\neffect = 2', "small.claim[0].effect", "published names no size"),
        ('relation = "<="', 'relation = "<="\neffect = 2', "small.claim[0].effect", "goes with relation '<' or '>'"),
        (
            'relation = "<="',
            'relation = "<"\neffect = 0',
            "small.claim[0].effect",
            "0 belongs to first forms that came back",
        ),
        ('is_source = "section 5"', "", "small.workload[0].stands_for", "'syn:5x4' is made here"),
        (
            'trace = "syn:5x4"\nworkers = 30\nis_source = "section 5"',
            'trace = "a.tr"\nworkers = 30\njobs = 9',
            "small.workload[0].stands_for",
            "the first 9 jobs are a slice",
        ),
        (
            'is_source = "section 5"',
            'is_source = "5"\nstands_for = "x"',
            "small.workload[0].is_source",
            "leave one of them",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_place(tmp_path: Path, old: str, new: str, place: str, problem: str) -> None:
    assert old in SMALL
    folder = write(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        plan_experiment(read_experiment(folder, "small"), tmp_path)
    assert place in error.value.place
    assert problem in error.value.problem


def test_a_label_that_stands_twice_is_refused(tmp_path: Path) -> None:
    claim = SMALL[SMALL.index("[[claim]]") :]
    folder = write(tmp_path, SMALL + claim)
    with pytest.raises(InputError, match=r"small.claim\[1\].id: 'c' stands here twice"):
        read_experiment(folder, "small")


def test_an_unknown_experiment_is_answered_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'iot2023_figure06'"):
        read_experiment(FOLDER, "iot2023_figure6")


def test_a_claim_is_judged_once_per_reading_of_its_architectures(tmp_path: Path) -> None:
    experiment = read_experiment(write(tmp_path, SMALL), "small")
    assert experiment.readings(experiment.claim[0]) == ["exact", "published-code"]
    assert list(experiment.variants()) == [
        ("m", "", "megha"),
        ("p", "exact", "pigeonc"),
        ("p", "published-code", "pigeonc:constraint_counting=published-code"),
    ]


def test_a_workload_may_have_its_own_delay_and_requests_from_beside_the_experiments(tmp_path: Path) -> None:
    text = SMALL.replace("workers = 30", 'workers = 30\ndelay_us = 7\nusers = "a+b"\nrequests = "asked.toml"')
    experiment = read_experiment(write(tmp_path, text), "small")
    missing = plan_experiment(experiment, tmp_path / "traces").missing
    assert [one.why for one in missing.values()] == ["requests asked.toml are not here"]
    (tmp_path / "asked.toml").write_text('resources = ["gpus"]\nclasses = [{ weight = 1, request = [1] }]\n')
    runs = plan_experiment(experiment, tmp_path / "traces").runs
    specs = [run.spec for planned in runs.values() for run in planned]
    assert {(one.delay_us, one.requests) for one in specs} == {(7, str(tmp_path / "asked.toml"))}


def test_rigid_jobs_are_read_as_tasks_whatever_the_design_unless_a_workload_says_otherwise(tmp_path: Path) -> None:
    """Each design is planned alone: one that starts gangs whole would run other work than the others."""
    (tmp_path / "log.swf").write_text("1 0 -1 9 4 -1 -1 4 9 -1 1 1 -1 -1 -1 -1 -1 -1\n")
    text = SMALL.replace('m = "megha"', 'm = "backfill"')
    swf = text.replace('trace = "syn:5x4"', 'trace = "log.swf"')
    hashes = set()
    for named, is_whole in (("", False), ('gangs = "task"', False), ('gangs = "whole"', True)):
        experiment = read_experiment(write(tmp_path, swf.replace("workers = 30", f"workers = 30\n{named}")), "small")
        runs = plan_experiment(experiment, tmp_path).runs
        assert {run.spec.has_gangs for planned in runs.values() for run in planned} == {is_whole}
        hashes.add((content_sha256(experiment), runs_sha256(experiment)))
    assert len(hashes) == 2, "to name the reading of all earlier records changes no hash"

    made = plan_experiment(read_experiment(write(tmp_path, text), "small"), tmp_path).runs
    assert {run.spec.gangs for planned in made.values() for run in planned} == {None}


def test_experiments_on_rigid_jobs_name_their_reading() -> None:
    traces = traces_folder(FOLDER)
    by_trace: dict[str, list[Path]] = {}
    for path in FOLDER.glob("*.toml"):
        for trace in set(re.findall('^trace = "(.*)"', path.read_text(encoding="utf-8"), re.MULTILINE)):
            by_trace.setdefault(trace, []).append(path)
    rigid = [trace for trace in by_trace if (traces / trace).is_file() and states_gangs(str(traces / trace))]
    silent = [path.name for trace in rigid for path in by_trace[trace] if "\ngangs = " not in path.read_text()]
    assert silent == []


def test_machines_from_a_file_are_used_where_the_cluster_has_as_many_and_drawn_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "machines.csv").write_text("c0\n" + "1\n" * 30, encoding="utf-8")
    text = SMALL.replace('label = "drawn"', 'label = "file"\nmachines = "machines.csv"\nmachine_count = 30\nseed = 7')
    text = text.replace(
        "[architectures]",
        '[[workload]]\nlabel = "v"\ntrace = "syn:5x4"\nis_source = "5"\nworkers = 40\n[architectures]',
    )
    planned = plan_experiment(read_experiment(write(tmp_path, text), "small"), tmp_path)
    read, drawn = (planned.inputs[label, "file"][0].spec for label in ("w", "v"))
    assert (read.machines, read.population) == (str(tmp_path / "machines.csv"), None)
    assert (drawn.machines, drawn.population) == (None, 7)


def test_folders_come_from_the_option_then_the_environment_then_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert experiments_folder() == FOLDER
    assert traces_folder(FOLDER) == FOLDER.parent.parent / "shared" / "traces"
    monkeypatch.setenv("VOLERY_EXPERIMENTS", str(tmp_path))
    monkeypatch.setenv("VOLERY_TRACES", str(tmp_path / "traces"))
    assert experiments_folder() == tmp_path
    assert traces_folder(FOLDER) == tmp_path / "traces"
    assert traces_folder(FOLDER, FOLDER) == FOLDER
    with pytest.raises(InputError, match="is no folder"):
        experiments_folder(tmp_path / "gone")


def test_a_first_form_is_free_in_its_tolerance_and_not_in_its_printed_number(tmp_path: Path) -> None:
    first = SMALL.replace('id = "c"', 'id = "c-first"')
    free = first.replace('relation = "<="', 'relation = "<="\npercent = 5')
    assert read_experiment(write(tmp_path, free), "small").claim[0].percent == 5.0
    with pytest.raises(InputError, match=r"small.claim\[0\].printed: 3 is printed and 1 is tested"):
        read_experiment(write(tmp_path, first.replace('relation = "<="', 'relation = "about"\nprinted = "3"')), "small")


@pytest.mark.parametrize("kind", [Experiment, Workload, MachinePopulation, NetworkCosts, Quick, Claim, Side])
def test_the_readme_names_every_key_of_a_file(kind: type[msgspec.Struct]) -> None:
    words = set(re.findall(r"\w+", (FOLDER / "README.md").read_text(encoding="utf-8")))
    assert [key for key in kind.__struct_fields__ if key not in words] == []
