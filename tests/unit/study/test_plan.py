"""Keys: everything that a result depends on, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from volery import architectures, workload
from volery.architectures.megha.designs import MEGHA
from volery.core.errors import InputError
from volery.study.plan import (
    code_digest,
    in_table_order,
    inputs_code_digest,
    outline,
    plan,
    recorded_parameters,
    run_key,
)
from volery.study.runner import compare_spec
from volery.study.sources import PACKAGE, closure
from volery.study.spec import RunSpec, StudySpec

BASE: dict[str, Any] = {"architecture": "megha", "trace": "syn:5x6", "workers": 50}


def key(**changes: Any) -> str:
    return run_key(RunSpec(**(BASE | changes)))


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": "central"},
        {"parameters": {"gms": 2}},
        {"seed": 1},
        {"trace": "syn:5x7"},
        {"workers": 51},
        {"slots": 2},
        {"constraints": "sharma2011"},
        {"jobs": 3},
        {"durations": "whole-seconds"},
        {"arrivals": "dephased"},
        {"users": "a:1+b:2"},
        {"blocks": "replicas=3"},
        {"cutoff_s": 1.0},
        {"delay_us": 501},
        {"jitter_us": 1},
        {"crashes": "node/0@1+1"},
        {"links": {"lm:node": 1}},
        {"costs": {"gm": 1}},
        {"hosts": {"a": {"roles": {"gm": {}}}}},
    ],
)
def test_a_key_changes_with_what_a_result_depends_on(change: dict[str, Any]) -> None:
    assert key(**change) != key()


def test_a_key_ignores_names_and_spelled_out_defaults() -> None:
    assert key(label="another name") == key()
    assert key(parameters={"gms": "5"}) == key(parameters={"gms": 5}) == key()


def test_a_drawn_population_counts_only_where_one_is_drawn() -> None:
    assert key(population=7) == key()
    drawn = {"constraints": "sharma2011"}
    assert key(population=7, **drawn) != key(**drawn) == key(population=0, **drawn)


def test_a_trace_counts_by_content_not_by_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a.tr", tmp_path / "b.tr"
    first.write_text("0 1 1 1\n")
    second.write_text("0 1 1 1\n")
    assert key(trace=str(first)) == key(trace=str(second))
    second.write_text("0 1 1 2\n")
    assert key(trace=str(first)) != key(trace=str(second))


def test_a_trace_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        key(trace=str(tmp_path / "gone.tr"))


def a_study(**changes: Any) -> StudySpec:
    setting = {"trace": "syn:5x6", "workers": 50} | changes
    return compare_spec(("megha", "central"), setting, 2)


def test_runs_that_share_inputs_stand_together_and_tables_are_by_architecture() -> None:
    study = a_study()
    runs = plan(study)
    assert [(run.spec.architecture, run.spec.seed) for run in runs] == [
        ("megha", 0),
        ("central", 0),
        ("megha", 1),
        ("central", 1),
    ]
    assert [(run.spec.architecture, run.spec.seed) for run in in_table_order(runs, study)] == [
        ("megha", 0),
        ("megha", 1),
        ("central", 0),
        ("central", 1),
    ]


def test_names_are_checked_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'megha'"):
        plan(compare_spec(("mega",), {"trace": "syn:5x6", "workers": 50}, 1))
    with pytest.raises(InputError, match="did you mean 'gms'"):
        plan(compare_spec(("megha:gmz=1",), {"trace": "syn:5x6", "workers": 50}, 1))


def test_the_cutoff_goes_to_architectures_that_take_one_unless_they_were_given_theirs() -> None:
    study = compare_spec(
        ("megha", "pigeon", "pigeon:cutoff_s=7"), {"trace": "syn:5x6", "workers": 50, "cutoff_s": 3.0}, 1
    )
    assert [run.spec.parameters for run in plan(study)] == [{}, {"cutoff_s": 3.0}, {"cutoff_s": "7"}]
    assert {run.spec.cutoff_s for run in plan(study)} == {3.0}


def files(*modules: str) -> set[str]:
    return {path.relative_to(PACKAGE).as_posix() for path in closure(set(modules))}


def test_a_design_depends_on_its_own_folder_the_kernel_and_its_policies_and_on_no_other_design() -> None:
    found = files("volery.sim", "volery.architectures.megha.designs")
    assert {"architectures/megha/global_master.py", "sim/kernel.py", "policies/match.py", "core/model.py"} <= found
    assert not {name for name in found if "pigeon" in name or name.startswith(("study/", "cli/", "report/"))}
    assert "architectures/__init__.py" not in found, "the index names every design"


def test_number_tables_belong_to_the_inputs() -> None:
    assert "workload/data/sharma2011.json" in files("volery.workload")


def test_designs_differ_and_presets_of_one_design_agree() -> None:
    assert code_digest("megha") == code_digest("central") != code_digest("pigeon")
    assert len({code_digest(), code_digest("megha", "pigeon"), code_digest("megha"), inputs_code_digest()}) == 4


@pytest.mark.slow
def test_foreign_code_counts_by_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise NotImplementedError

    mine = msgspec.structs.replace(MEGHA, name="mine", build=build)
    monkeypatch.setattr(architectures, "REGISTRY", architectures.REGISTRY | {"mine": mine})
    assert len({code_digest("mine"), code_digest("megha"), code_digest()}) == 3


def test_a_recorded_study_with_gangs_is_outlined_where_its_design_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "states_gangs", lambda *_: True)
    study = compare_spec(("mine", "sparrow"), {"trace": "syn:5x4", "workers": 50}, [0])
    assert [run.spec.architecture for run in outline(study, recorded_parameters)] == ["mine", "sparrow"]
    with pytest.raises(InputError, match="mine"):
        outline(study)
