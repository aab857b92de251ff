"""Workflows through a whole comparison: every architecture, cores and speeds of a described cluster, the measures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.comparison import compare

from volery.core.errors import InputError
from volery.study.plan import inputs_key
from volery.study.runs import execute
from volery.study.spec import RunSpec

GWF = "WorkflowID, JobID, SubmitTime, RunTime, NProcs, ReqNProcs, Dependencies\n"
ROWS = "0,1,5,10,1,1,\n0,2,5,20,4,4,1\n0,3,5,20,2,2,1\n0,4,5,5,1,1,2 3\n"
CLUSTER = "cpu_milli,speed_mhz\n" + "4000,4000\n" * 2 + "2000,2000\n" * 48


@pytest.fixture
def cores(tmp_path: Path) -> Path:
    """A workflow whose tasks take several cores, and a cluster of cores with speeds beside it."""
    (tmp_path / "flow.gwf").write_text(GWF + ROWS)
    (tmp_path / "cluster.csv").write_text(CLUSTER)
    return tmp_path


def test_tasks_of_several_cores_run_on_a_described_cluster(cores: Path) -> None:
    """The task of 4 cores fits machines of 4 GHz alone: it takes 20 s, as on the reference machine."""
    found = compare(
        "oracle", trace=cores / "flow.gwf", workers=50, machines=cores / "cluster.csv", reference_mhz=4000, delay_us=0
    )
    (run,) = found.runs
    assert run.workflows is not None
    assert run.ideal_s.max == 35
    assert run.unsatisfiable_tasks == 0
    assert run.workflows.makespan_s.max >= 35
    assert run.utilisation_mean > 0


@pytest.mark.slow
def test_every_architecture_runs_workflows_on_slots_made_of_cores(cores: Path) -> None:
    designs = ("oracle", "megha", "central", "megha-2021", "sparrow", "hawk", "eagle", "phoenix")
    found = compare(
        *designs,
        "pigeon:groups=2,reserved=1",
        "pigeonc:groups=2,reserved=1",
        trace=cores / "flow.gwf",
        workers=50,
        machines=cores / "cluster.csv",
        reference_mhz=4000,
        slot_request="cpu_milli=1000",
        cutoff_s=60,
    )
    assert len(found.runs) == 10
    for run in found.runs:
        assert run.workflows is not None
        assert run.workflows.workflows == 1
        assert 35 <= run.workflows.makespan_s.max <= 71
        assert run.workflows.task_response_s.count == 4


def test_a_reference_speed_is_part_of_what_determines_the_machines(cores: Path) -> None:
    plain = RunSpec(architecture="oracle", trace="syn:2x2", workers=2, machines=str(cores / "cluster.csv"))
    fast = RunSpec(
        architecture="oracle", trace="syn:2x2", workers=2, machines=str(cores / "cluster.csv"), reference_mhz=1
    )
    assert inputs_key(plain) != inputs_key(fast)
    with pytest.raises(InputError, match="no file says how fast machines are"):
        compare("oracle", trace="syn:2x2", workers=2, reference_mhz=4000)


def test_whole_seconds_and_exact_estimates_are_settings_of_a_run_on_machines_with_speeds(cores: Path) -> None:
    """Cut to whole seconds, 20 s of the reference machine stay 20 s, and all finishes are whole seconds."""
    plain = RunSpec(
        architecture="pipeline",
        trace=str(cores / "flow.gwf"),
        workers=50,
        delay_us=0,
        machines=str(cores / "cluster.csv"),
        reference_mhz=3000,
    )
    cut = msgspec.structs.replace(plain, durations="whole-seconds", estimates="exact")
    assert len({inputs_key(plain), inputs_key(cut), inputs_key(msgspec.structs.replace(plain, estimates="exact"))}) == 3
    fractions = []
    for run in (plain, cut):
        found = execute(run).summary.workflows
        assert found is not None
        fractions.append(found.task_response_s.max % 1)
    assert fractions[0] > 0
    assert fractions[1] == 0


def test_machines_with_speeds_have_the_measures_of_workflows_for_plain_jobs_too(cores: Path) -> None:
    (found,) = compare("pipeline", trace="syn:2x2", workers=2, machines=cores / "cluster.csv", reference_mhz=4000).runs
    assert found.workflows is not None
    assert (found.workflows.workflows, found.workflows.makespan_s.count) == (0, 2)
