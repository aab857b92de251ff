"""Stage T9: several attempts of one task, of which the first to finish wins."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, job_of, run, seconds, starts, trace_of_rows
from tests.unit.architectures.pipeline.test_preemption import design
from tests.unit.architectures.pipeline.test_recovery import crashed

from volery.conformance.cases import busy_cases, flow_cases
from volery.conformance.outcomes import demand_all_finished, demand_capacity, demand_constraints
from volery.conformance.verdict import run as conformance_run
from volery.core.capabilities import Replication
from volery.core.component import Component, Deployment
from volery.core.errors import InputError
from volery.core.events import Submit, TaskFinished
from volery.core.model import SECOND, Address, Cluster, Time
from volery.core.streams import Streams
from volery.metrics.occupancy import mean_utilisation
from volery.sim import Options, simulate
from volery.sim.execution import BrokenRule


def test_by_default_a_task_runs_once() -> None:
    assert not run("pipeline", job_of([3.0]), Cluster.uniform(3)).lost


def test_the_faster_copy_wins_and_the_other_is_ended() -> None:
    """Speeds 1 and 3: 9 s on the first machine, 3 s on the second, which the copy gets."""
    trace = trace_of_rows([(0.0, 1, 9.0)])
    records = run("pipeline", trace, cores_cluster(1, 1, speeds=(1, 3)), T9="fixed", R5="first-fit")
    assert list(records.worker) == [1]
    assert list(records.attempt) == [1]
    assert [seconds(at) for at in records.finish_us] == [3]
    assert records.killed == {(0, 0): 3 * SECOND}
    assert [(one.attempt, one.worker) for one in records.lost] == [(0, 0)]


def test_the_first_attempt_may_win_too() -> None:
    trace = trace_of_rows([(0.0, 1, 9.0), (4.0, 2, 1.0)])
    records = run("pipeline", trace, cores_cluster(2, 2, speeds=(3, 1)), T9="fixed", R5="first-fit")
    assert list(records.worker) == [0, 0]
    assert records.killed[0, 1] == 3 * SECOND
    assert starts(records) == [0, 4]


def test_there_are_as_many_copies_as_have_room() -> None:
    """3 attempts on 2 machines: 2; and a second task waits for both."""
    trace = trace_of_rows([(0.0, 1, 2.0), (0.1, 1, 2.0)])
    records = run("pipeline", trace, cores_cluster(1, 1), T9="fixed/n:3")
    assert starts(records) == [0, 2]
    assert len(records.lost) == 2
    assert mean_utilisation(records, cores_cluster(1, 1)) == 1, "copies are busy, too"


def test_a_task_that_runs_longer_than_estimated_is_tried_elsewhere() -> None:
    """10 s of which 2 were estimated, on speed 1; after twice the estimate speed 4 is tried: 4 + 2.5 s."""
    trace = trace_of_rows([(0.0, 1, 10.0, 2.0)])
    records = run("pipeline", trace, cores_cluster(1, 1, speeds=(1, 4)), T9="straggler/times:2", R5="first-fit")
    assert [seconds(at) for at in records.finish_us] == [6.5]
    assert starts(records) == [4]
    assert list(records.worker) == [1]


def test_a_straggler_waits_until_there_is_room() -> None:
    """The fast machine is taken until second 5; the task is asked about again at 4 + 1, when it is 5 s old."""
    trace = trace_of_rows([(0.0, 1, 5.0), (0.0, 1, 20.0, 2.0)])
    records = run("pipeline", trace, cores_cluster(1, 1, speeds=(4, 1)), T9="straggler/times:2", R5="fastest")
    assert list(records.worker) == [0, 0]
    assert seconds(records.finish_us[1]) == 4 + 5, "asked at 4 s, when the other has ended at 1.25 s"


def test_few_tasks_run_twice_at_once() -> None:
    rows = [(0.0, 1, 10.0, 1.0) for _ in range(10)]
    records = run("pipeline", trace_of_rows(rows), cores_cluster(*[1] * 20), T9="straggler/cap:0.2")
    assert len(records.lost) == 2


def test_a_copy_survives_the_machine_of_the_first() -> None:
    """10 s; the first machine dies after 4 s: nothing is begun anew."""
    records = crashed(job_of([10.0]), Cluster.uniform(3), (4.0, 0, 60.0), T9="fixed", R5="first-fit")
    assert seconds(records.finish_us[0]) == 10.0 or seconds(records.finish_us[0]) == 10.001
    assert list(records.worker) == [1]
    assert len(records.lost) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"T9": "fixed/n:3"},
        {"T9": "fixed", "lrms": "2"},
        {"T9": "straggler/times:0.3/cap:1", "cycle_cost_us": "90"},
        {"T9": "fixed", "T5": "stage-in/latency_s:0.01", "T11": "restart"},
    ],
)
def test_random_work_keeps_all_rules(given: dict[str, str]) -> None:
    copies = 0
    for case in busy_cases(seed=60, vectors=True) + flow_cases(60)[:2]:
        records = conformance_run(design(**given), case, options=Options(check=True, graphs=True))
        demand_all_finished(case, records)
        demand_capacity(case, records)
        demand_constraints(case, records)
        copies += len(records.lost)
    assert copies > 20


def test_whoever_does_not_declare_copies_may_not_make_them() -> None:
    """The driver refuses the same run of a deployment that says nothing."""
    entry = design(T9="fixed")
    cluster = Cluster.uniform(3)

    deployment = entry.build(cluster, entry.defaults, Streams(0))
    silent = msgspec.structs.replace(deployment, capabilities=())
    with pytest.raises(BrokenRule, match="already started"):
        simulate(silent, job_of([3.0]), cluster, options=Options(graphs=True))


class Thrice(Component):
    """Launches each task three times."""

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """At once."""
        for attempt in range(3):
            self._port.launch(message.job.tasks[0], attempt)

    def on_end(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Nothing follows."""

    receives = {Submit: on_submit, TaskFinished: on_end}  # noqa: RUF012 - the base class replaces it


def test_no_more_attempts_run_at_once_than_were_declared() -> None:
    deployment = Deployment({"node/0": Thrice()}, {"node/0": 0}, lambda _: "node/0", capabilities=(Replication(2),))
    with pytest.raises(BrokenRule, match="already started"):
        simulate(deployment, job_of([3.0]), Cluster.uniform(1, 3))


@pytest.mark.parametrize("given", [{"T10": "priority"}, {"T3": "easy"}, {"progress": "keep"}, {"T11": "checkpoint"}])
def test_what_does_not_go_together_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InputError, match="copies of tasks cannot be combined"):
        run("pipeline", job_of([1.0]), Cluster.uniform(2), T9="fixed", **given)
