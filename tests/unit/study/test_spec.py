"""A study: checked values, distinct axes, the product in a fixed order, the baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from volery.core.errors import InputError
from volery.setting import Setting
from volery.study import load_results, read_study, run_study
from volery.study.plan import outline, plan
from volery.study.spec import (
    ArchitectureChoice,
    StudySpec,
    is_synthetic,
    make_study,
    parse_architecture,
    point_label,
)

MEGHA = ArchitectureChoice("megha")
GOOD = """
[study]
baseline = "oracle"
[workload]
trace = "poisson:workers=20,fanout=3,mean=1,jobs=60"
constraints = "sharma2011"
workers = 20
warmup = "10%"
[axes]
architectures = ["sparrow", "oracle"]
load = [0.5, 0.9]
"sparrow.probe_ratio" = [1, 2]
sparrow.schedulers = [5]
seeds = 2
"""


def study(axes: dict[str, list[Any]], seeds: tuple[Any, ...] = (0,), chosen: tuple[Any, ...] = (MEGHA,)) -> StudySpec:
    return make_study("test", chosen, axes, seeds, lambda axis, i: axis if i is None else f"{axis}[{i}]")


def test_an_architecture_is_a_name_with_parameters() -> None:
    assert parse_architecture("pigeon: weight = 20 ,reserved=9", "ARCH") == ArchitectureChoice(
        "pigeon", {"weight": "20", "reserved": "9"}
    )
    assert parse_architecture("pigeon:weight=20,reserved=9", "ARCH").label == "pigeon:weight=20,reserved=9"
    assert parse_architecture("megha", "ARCH").label == "megha"


@pytest.mark.parametrize("text", ["", ":gms=1", "megha:", "megha:gms", "megha:gms=", "megha:=3", "megha:gms=1,,lms=2"])
def test_an_architecture_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^ARCH: "):
        parse_architecture(text, "ARCH")


def test_a_parameter_cannot_be_given_twice() -> None:
    with pytest.raises(InputError, match="gives 'gms' twice"):
        parse_architecture("megha:gms=1,gms=2", "ARCH")


def test_settings_are_the_product_of_the_axes_in_the_order_of_the_fields() -> None:
    spec = study({"slots": [1, 2], "workers": [10, 20], "trace": ["a.tr"]})
    assert [(s.workers, s.slots) for s in spec.settings()] == [(10, 1), (10, 2), (20, 1), (20, 2)]
    assert spec.varying() == ("workers", "slots")
    assert point_label(next(spec.settings()), spec.varying()) == "workers=10 slots=1"


def test_axes_that_are_absent_have_their_defaults() -> None:
    assert list(study({"trace": ["a.tr"], "workers": [5]}).settings()) == [Setting(trace="a.tr", workers=5)]


def test_a_default_that_is_spelled_out_makes_no_other_study() -> None:
    spelled = study({"trace": ["a.tr"], "workers": [5], "slots": [1], "links": [{}], "jobs": [None]})
    assert spelled == study({"trace": ["a.tr"], "workers": [5]})
    assert study({"trace": ["a.tr"], "workers": [5], "slots": [1, 2]}) != spelled


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"workers": [10, 0]}, r"workers\[1\]: expected int >= 1, not 0"),
        ({"workers": [True]}, r"workers\[0\]: expected int, got bool, not True"),
        ({"workers": ["ten"]}, r"workers\[0\]: expected int, got str, not 'ten'"),
        ({"workers": []}, "workers: is missing"),
        ({"workers": [10, 10]}, r"workers\[1\]: 10 stands here twice"),
        (
            {"workers": [10], "durations": ["whole"]},
            r"durations\[0\]: there is no 'whole'; did you mean 'whole-seconds'",
        ),
        ({"workers": [10], "cutoff_s": [-1.0]}, r"cutoff_s\[0\]: expected float > 0"),
        ({"workers": [10], "delay_us": [-1]}, r"delay_us\[0\]: expected int >= 0"),
        ({"workers": [10], "links": [{"lm:node": -1}]}, r"links\[0\]: expected int >= 0"),
        ({"wrokers": [10]}, "wrokers: unknown axis; did you mean 'workers'"),
        ({"workers": [10], "slots": []}, "slots: is empty"),
    ],
)
def test_a_wrong_value_is_named_by_its_place(axes: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study({"trace": ["a.tr"], **axes})


def test_seeds_and_architectures_are_checked_like_axes() -> None:
    axes: dict[str, list[Any]] = {"trace": ["a.tr"], "workers": [5]}
    with pytest.raises(InputError, match=r"seeds\[1\]: expected int >= 0"):
        study(axes, seeds=(0, -1))
    with pytest.raises(InputError, match=r"architectures\[1\]: 'megha' stands here twice"):
        study(axes, chosen=(MEGHA, ArchitectureChoice("megha")))
    with pytest.raises(InputError, match="architectures: is empty"):
        study(axes, chosen=())


def test_synthetic_work_is_told_from_files() -> None:
    assert is_synthetic("syn:250x2000")
    assert not is_synthetic("traces/a.tr.gz")
    assert not is_synthetic("C:/traces/a.tr")


def written(folder: Path, text: str = GOOD) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


@pytest.fixture
def swept(tmp_path: Path) -> StudySpec:
    return read_study(written(tmp_path))


def test_every_choice_of_a_design_is_run_with_each_value_and_others_once(swept: StudySpec) -> None:
    assert [choice.label for choice in swept.choices()] == [
        "sparrow:probe_ratio=1,schedulers=5",
        "sparrow:probe_ratio=2,schedulers=5",
        "oracle",
    ]
    runs = outline(swept)
    assert len(runs) == 2 * 2 * 3
    assert {run.spec.label for run in runs if run.spec.load == 0.5} == {
        "sparrow:probe_ratio=1,schedulers=5 [load=0.5]",
        "sparrow:probe_ratio=2,schedulers=5 [load=0.5]",
        "oracle [load=0.5]",
    }


def test_values_of_all_axes_are_told_run_by_run(swept: StudySpec) -> None:
    values = [swept.axis_values(run.spec) for run in outline(swept)]
    assert values[0] | {"trace": ""} == {
        "trace": "",
        "workers": 20,
        "load": 0.5,
        "sparrow.probe_ratio": 1,
        "sparrow.schedulers": 5,
    }
    assert {one["sparrow.probe_ratio"] for one in values} == {1, 2, None}
    assert list(swept.axis_columns()) == ["trace", "workers", "load", "sparrow.probe_ratio", "sparrow.schedulers"]


@pytest.mark.slow
def test_runs_are_compared_with_the_baseline_of_their_setting(swept: StudySpec, tmp_path: Path) -> None:
    results = run_study(swept, folder=tmp_path / "kept")
    assert {(one.a, one.b.rpartition(" ")[2]) for one in results.differences} == {
        ("oracle [load=0.5]", "[load=0.5]"),
        ("oracle [load=0.9]", "[load=0.9]"),
    }
    loads = {run.axes["load"]: run.load for run in results.runs}
    assert loads == pytest.approx({0.5: 0.5, 0.9: 0.9}, rel=1e-5)
    assert {run.window.jobs for run in results.runs if run.window} < set(range(50, 57))
    other = load_results(tmp_path / "kept", "sparrow:probe_ratio=2,schedulers=5")
    assert {one.a.partition(" ")[0] for one in other.differences} == {"sparrow:probe_ratio=2,schedulers=5"}
    renamed = GOOD.replace('"oracle"\n', '"sparrow:probe_ratio=1,schedulers=5"\n')
    again = run_study(read_study(written(tmp_path, renamed)), folder=tmp_path / "kept")
    assert again.reused == again.planned, "another baseline needs no other runs"


def test_constraints_of_tasks_and_machines_are_the_same_at_every_load(swept: StudySpec) -> None:
    from volery.study.runs import read_inputs

    runs = {run.spec.load: run.spec for run in outline(swept) if run.spec.seed == 0}
    low, high = (read_inputs(runs[load]) for load in (0.5, 0.9))
    assert low.trace.constraints == high.trace.constraints
    assert low.cluster.constraints == high.cluster.constraints
    assert low.trace.duration_us == high.trace.duration_us


def test_keys_of_runs_without_any_of_it_stay_what_they_were(tmp_path: Path) -> None:
    plain = GOOD.replace('baseline = "oracle"', "").replace('warmup = "10%"', "").replace("load = [0.5, 0.9]", "")
    plain = plain.replace('"sparrow.probe_ratio" = [1, 2]', "").replace("sparrow.schedulers = [5]", "")
    spelled = plain.replace("workers = 20\n", 'workers = 20\nestimates = "mean"\nload_by = "arrivals"\nwarmup = 0\n')
    assert [run.key for run in plan(read_study(written(tmp_path, plain)))] == [
        run.key for run in plan(read_study(written(tmp_path, spelled)))
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("[0.5, 0.9]", "[0.5, 0]", r"study\.axes\.load\[1\]: expected float > 0"),
        ("[0.5, 0.9]", "[0.5, -0.9]", r"study\.axes\.load\[1\]: expected float > 0"),
        ("[0.5, 0.9]", "[0.5, 0.9, nan]", r"study\.axes\.load\[2\]: expected a finite number, not nan"),
        ("[0.5, 0.9]", "[0.5, 0.5]", r"study\.axes\.load\[1\]: 0\.5 stands here twice"),
        ("workers=20", "workers=20,load=0.8", r"study\.axes\.load: .* has a load of its own, 0\.8; leave load= out"),
        ("load = [0.5, 0.9]", 'load_by = ["machines"]', r"study\.axes\.load_by: says how to set a load, and none"),
        ("probe_ratio", "probe_ratoi", r"study\.axes\.sparrow\.probe_ratoi: .*did you mean 'probe_ratio'"),
        ("[1, 2]", '[1, "two"]', r"study\.axes\.sparrow\.probe_ratio\[1\]: 'two' does not fit"),
        ("[1, 2]", "[]", r"study\.axes\.sparrow\.probe_ratio: is empty"),
        ('"sparrow.probe_ratio"', '"sparow.probe_ratio"', "no architecture 'sparow' in this study; did you mean"),
        ('["sparrow",', '["sparrow:probe_ratio=3",', r"probe_ratio: is given by 'sparrow:probe_ratio=3'"),
        ('"10%"', '"10"', r"study\.workload\.warmup: '10' is no moment"),
        ('"10%"', '"10%"\nwindow = [5, 1]', r"study\.workload\.window: ends at 1\.0, not after its beginning"),
        ('"10%"', '"10%"\nwindow = [1, 5]', r"study\.workload\.warmup: a window is given as well"),
        ('"10%"', '"10%"\nestimates = "f"', r"study\.workload\.estimates: 'f' needs a number"),
        (
            '"10%"',
            '"10%"\nlimits = "enforced"',
            r"study\.workload\.limits: there is no 'enforced'; did you mean",
        ),
        ('"oracle"\n', '"megha"\n', r"study\.study\.baseline: no architecture 'megha' here"),
        ('"oracle"\n', '"sparrow"\n', r"study\.study\.baseline: 'sparrow' may be each of sparrow:probe_ratio=1"),
    ],
)
def test_a_mistake_is_named_by_its_place(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in GOOD
    with pytest.raises(InputError, match=message):
        read_study(written(tmp_path, GOOD.replace(right, wrong, 1)))


def test_labels_name_files_of_traces_unless_two_have_one_name(tmp_path: Path) -> None:
    names = ("a/one.tr", "a/two.tr", "b/two.tr")
    text = f"[workload]\nworkers = 4\n[axes]\narchitectures = ['oracle']\ntrace = {list(names)}\n"
    labels = [run.spec.label for run in outline(read_study(written(tmp_path, text)))]
    assert labels == ["oracle [trace=one.tr]", *(f"oracle [trace={tmp_path / name}]" for name in names[1:])]
