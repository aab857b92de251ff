"""Workflows through a whole comparison: every architecture, cores and speeds of a described cluster, the measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.study import compare
from volery.study.plan import inputs_key
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


def test_every_architecture_runs_workflows_on_slots_made_of_cores(cores: Path) -> None:
    designs = ("oracle", "megha", "central", "megha-2021", "sparrow", "hawk", "eagle", "phoenix")
    found = compare(
        *designs, "pigeon:groups=2,reserved=1", "pigeonc:groups=2,reserved=1", trace=cores / "flow.gwf", workers=50,
        machines=cores / "cluster.csv", reference_mhz=4000, slot_request="cpu_milli=1000", cutoff_s=60,
    )  # fmt: skip
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
