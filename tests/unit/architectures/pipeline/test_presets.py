"""Presets of published schedulers: stages against the paper's tables, and what each of them decides."""

from __future__ import annotations

import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, job_of, run, seconds, starts, trace_of_rows

from volery import architectures
from volery.architectures import configure, lookup
from volery.architectures.pipeline.presets import MAPPED, PRESETS
from volery.core.model import SECOND, Cluster
from volery.core.stages import Stage
from volery.core.streams import Streams
from volery.report import mappings
from volery.sim import Options, simulate
from volery.sim.faults import Crash, FaultPlan
from volery.sim.network import Network

ROWS = {row.name.lower(): row for row in mappings.from_paper()}
NAMES = [entry.name for entry in MAPPED]
ALWAYS = frozenset(stage for stage, found in lookup("pipeline").stages.items() if not found.when)
"""Stages that every assembly has: no setting leaves them out."""
ON_REQUEST = {
    "apollo": {Stage.B, Stage.M1},
    "dryad": {Stage.B, Stage.M1, Stage.M2, Stage.M3, Stage.M4, Stage.M5, Stage.M6},
}
"""Stages of the tables that a preset has under a setting alone, as its page says."""
OF_SYSTEMS = {"Mesos", "Sparrow", "Quincy", "Firmament", "Borg", "Condor"}


def test_each_of_the_fourteen_has_a_design() -> None:
    assert {row.name for row in mappings.from_paper()} == OF_SYSTEMS | {ROWS[name].name for name in NAMES}
    assert {name.lower() for name in OF_SYSTEMS} < set(architectures.REGISTRY)


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_are_those_of_the_tables_as_far_as_the_pipeline_has_them(name: str) -> None:
    declared, marks = lookup(name).stages, ROWS[name].marks
    given = {stage for stage, mark in marks.items() if mark in ("full", "partial")}
    empty = {stage for stage, mark in marks.items() if mark == "none"}
    assert given & set(lookup("pipeline").stages) <= set(declared)
    assert empty & set(declared) <= ALWAYS
    assert {stage for stage in given & set(declared) if declared[stage].when} == ON_REQUEST.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_every_optional_stage_that_a_preset_declares_can_be_switched_on(name: str) -> None:
    entry = lookup(name)
    for when in {found.when for found in entry.stages.values() if found.when}:
        parameter, _, value = when.partition("=")
        more = {"broker_machines": "1"} if parameter == "M1" else {}
        entry.build(Cluster.uniform(8), configure(entry, {parameter: value, **more}), Streams(0))


def test_a_preset_declares_no_setting_for_a_stage_that_it_has_by_default() -> None:
    assert lookup("fuxi").stages[Stage.T10].when == ""
    assert lookup("pipeline").stages[Stage.T10].when == "T10=priority"
    assert lookup("borg").stages == lookup("pipeline").stages
    assert lookup("apollo").conformance.hops == lookup("pipeline").conformance.hops + 2


def test_fuxi_serves_priorities_first_and_preempts_for_them() -> None:
    rows = [(0.0, 1, 9.0), (0.0, 1, 1.0), (1.0, 1, 1.0)]
    trace = trace_of_rows(rows, priority=(2, 0, 5))
    assert starts(run("fuxi", trace, cores_cluster(1))) == [2, 11, 1]


def test_fuxi_balances_the_load() -> None:
    rows = [(0.0, 1, 9.0), (0.1, 1, 9.0), (0.2, 1, 9.0), (0.3, 1, 9.0)]
    assert sorted(run("fuxi", trace_of_rows(rows), cores_cluster(2, 2)).worker) == [0, 0, 1, 1]


def test_apollo_passes_a_task_to_the_queue_with_the_least_work() -> None:
    """Four managers with a machine each; the fifth task waits in one of their queues."""
    rows = [(0.0, 1, 9.0), (0.1, 1, 9.0), (0.2, 1, 9.0), (0.3, 1, 9.0), (0.4, 1, 1.0)]
    records = run("apollo", trace_of_rows(rows), cores_cluster(1, 1, 1, 1))
    assert sorted(records.worker[:4]) == [0, 1, 2, 3]
    assert starts(records) == [0, 0.1, 0.2, 0.3, 9]


def test_apollo_may_have_a_queue_for_each_machine() -> None:
    rows = [(0.0, 1, 9.0)] * 6
    records = run("apollo", trace_of_rows(rows), cores_cluster(*[1] * 6), lrms="6")
    assert sorted(records.worker) == list(range(6))


def test_apollo_lets_regular_tasks_preempt_opportunistic_ones() -> None:
    trace = trace_of_rows([(0.0, 1, 9.0)] * 4 + [(1.0, 1, 1.0)], priority=(0, 0, 0, 0, 5))
    records = run("apollo", trace, cores_cluster(1, 1, 1, 1))
    assert starts(records)[4] == 1
    assert len(records.preemptions) == 1


@pytest.mark.parametrize("name", ["autopilot", "fuxi", "pegasus", "dryad"])
def test_the_task_of_a_failed_machine_runs_again(name: str) -> None:
    cluster, entry = Cluster.uniform(1), lookup(name)
    deployment = entry.build(cluster, entry.defaults, Streams(0))
    plan = FaultPlan(crashes=(Crash(4 * SECOND, "node/0", 60 * SECOND),))
    options = Options(check=True, graphs=True, plan=plan)
    records = simulate(deployment, job_of([10.0]), cluster, network=Network(delay_us=500), options=options)
    assert 60 < seconds(records.start_us[0]) < 60.1
    assert list(records.attempt) == [1]


def test_no_preset_repeats_the_assembly_of_another() -> None:
    assert len({entry.defaults for entry in PRESETS}) == len(PRESETS)


@pytest.mark.parametrize(("name", "order"), [("iceni", [0, 1, 2, 3, 4]), ("askalon", [2, 3, 0, 1, 4])])
def test_tasks_run_on_the_fastest_machine_and_in_askalon_the_critical_path_first(name: str, order: list[int]) -> None:
    trace = job_of((1, 1, 1, 1, 1), [[], [], [], [2], [3]])
    assert starts(run(name, trace, Cluster.uniform(1))) == order
    fast = run(name, trace_of_rows([(0.0, 1, 4.0)]), cores_cluster(1, 1, 1, speeds=(1, 1, 4)))
    assert list(fast.worker) == [2]


@pytest.mark.parametrize("name", ["triana", "pegasus"])
def test_tasks_run_in_the_order_in_which_they_become_ready(name: str) -> None:
    """A chain of two and a job that arrives meanwhile: the second task of the chain is ready after that job."""
    trace = job_of((3, 1, 2), [[], [0], []])
    assert starts(run(name, trace, Cluster.uniform(1))) == [0, 5, 3]


def test_pegasus_stages_files_for_the_job_and_for_each_task() -> None:
    trace = job_of((1, 1), [[], [0]])
    given = {"J5": "stage-in/mb:200", "T5": "stage-in/mb:100"}
    assert starts(run("pegasus", trace, Cluster.uniform(1), **given)) == [3, 5]
    assert starts(run("pegasus", trace, Cluster.uniform(1))) == [0, 1], "without a size nothing is staged"


def test_dryad_runs_a_slow_vertex_twice() -> None:
    """Expected after 1 s, so a copy is made at 1.5 s, and both take 10 s."""
    records = run("dryad", trace_of_rows([(0.0, 1, 10.0, 1.0)]), cores_cluster(1, 1), T9="straggler/cap:1")
    assert len(records.lost) == 1
    assert seconds(records.finish_us[0]) == 10
