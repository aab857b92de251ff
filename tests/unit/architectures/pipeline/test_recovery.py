"""Stage T11: what becomes of tasks whose machine has died; and links that fail."""

from __future__ import annotations

import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, job_of, run, seconds, trace_of_rows
from tests.unit.architectures.pipeline.test_preemption import design, stormy

from volery.architectures import configure, lookup
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.faults import draw, run_scenario
from volery.sim import Options, simulate
from volery.sim.faults import Crash, FaultPlan
from volery.sim.network import Network


def crashed(trace: Trace, cluster: Cluster, *crashes: tuple[float, int, float], **given: str) -> Records:
    """Crashes of nodes: when, which, and until when."""
    entry = lookup("pipeline")
    deployment = entry.build(cluster, configure(entry, {"T11": "restart", **given}), Streams(0))
    plan = FaultPlan(
        crashes=tuple(Crash(round(at * SECOND), f"node/{node}", round(back * SECOND)) for at, node, back in crashes)
    )
    options = Options(check=True, graphs=True, plan=plan)
    return simulate(deployment, trace, cluster, network=Network(delay_us=500), options=options)


def test_a_task_of_a_dead_machine_runs_elsewhere_from_zero() -> None:
    """10 s on machine 0, which dies after 4 s; that is detected within a second, and machine 1 has room."""
    records = crashed(job_of([10.0]), Cluster.uniform(2), (4.0, 0, 60.0))
    assert records.worker[0] == 1
    assert 4.1 < seconds(records.start_us[0]) <= 5.1
    assert records.finish_us[0] - records.start_us[0] == 10 * SECOND
    assert [(one.worker, one.kept_us) for one in records.lost] == [(0, 0)]


def test_without_another_machine_it_waits_for_the_new_life() -> None:
    records = crashed(job_of([10.0]), Cluster.uniform(1), (4.0, 0, 60.0))
    assert 60 < seconds(records.start_us[0]) < 60.1
    assert list(records.attempt) == [1]


def test_a_death_too_short_to_be_detected_is_told_by_the_new_life() -> None:
    records = crashed(job_of([10.0]), Cluster.uniform(1), (4.0, 0, 4.001))
    assert 4 < seconds(records.start_us[0]) < 4.1


def test_the_work_since_the_last_checkpoint_is_lost() -> None:
    """Checkpoints every 3 s: of 4 s before the crash 3 are kept, of 10 s 7 are left."""
    records = crashed(job_of([10.0]), Cluster.uniform(2), (4.0, 0, 60.0), T11="checkpoint/period_s:3")
    assert [one.kept_us for one in records.lost] == [3 * SECOND]
    assert 6.999 < (records.finish_us[0] - records.start_us[0]) / SECOND < 7.001


def test_a_crash_keeps_nothing_though_preemption_does() -> None:
    records = crashed(job_of([10.0]), Cluster.uniform(2), (4.0, 0, 60.0), progress="keep")
    assert [one.kept_us for one in records.lost] == [0]


def test_what_is_preempted_goes_on_from_its_checkpoint_too() -> None:
    trace = trace_of_rows([(0.0, 1, 9.0), (5.0, 1, 1.0)], priority=(0, 5))
    records = run("pipeline", trace, cores_cluster(1), T10="priority", T11="checkpoint/period_s:2")
    assert [one.kept_us for one in records.lost] == [4 * SECOND]
    assert [seconds(at) for at in records.finish_us] == [11, 6]


def test_a_new_life_that_dies_again_is_lost_again() -> None:
    records = crashed(job_of([10.0]), Cluster.uniform(1), (1.0, 0, 2.0), (3.0, 0, 4.0), (5.0, 0, 6.0))
    assert list(records.attempt) == [3]
    assert len(records.lost) == 3


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"lrms": "3"},
        {"T10": "fairness", "T2": "drf", "cycle_cost_us": "300"},
        {"T3": "easy", "T5": "stage-in/latency_s:0.2"},
        {"lrms": "2", "broker_machines": "4", "M1": "overflow/tasks:5", "cycle_s": "0.3"},
    ],
)
def test_storms_that_kill_machines_are_weathered(given: dict[str, str]) -> None:
    entry = design(T11="restart", **given)
    entry = stormy(entry)
    repeated = 0
    for seed in range(25):
        repeated += run_scenario(entry, draw(entry, seed)).repeated
    assert repeated > 3


@pytest.mark.parametrize("given", [{}, {"lrms": "3"}, {"T10": "fairness", "T2": "drf"}])
def test_links_that_fail_are_weathered_where_messages_are_reliable(given: dict[str, str]) -> None:
    entry = design(reliable="true", **given)
    classes = frozenset({"loss", "duplication", "delay", "partition"})
    entry = stormy(entry, tolerates=classes)
    for seed in range(15):
        run_scenario(entry, draw(entry, seed))


def test_recovery_and_reliable_links_exclude_each_other() -> None:
    with pytest.raises(InputError, match="reliable and T11 exclude each other"):
        run("pipeline", job_of([1.0]), Cluster.uniform(2), reliable="true", T11="restart")
