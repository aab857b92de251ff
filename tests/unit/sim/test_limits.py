"""Limits of jobs in the lab: what runs longer ends there with its task, and nothing else changes."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.sim.actors import Actor, launch_all, play
from tests.unit.sim.test_gangs import OneByOne, built, gangs

from volery.architectures import lookup
from volery.conformance.cases import trace_of
from volery.core.events import TaskFinished
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.sim import Network, Options, simulate
from volery.sim.execution import LabPort

LIMIT = 60 * SECOND


def limited(durations_s: list[list[int]], limits_us: list[int]) -> Trace:
    trace = trace_of("limits", [0] * len(durations_s), [[s * SECOND for s in job] for job in durations_s])
    return msgspec.structs.replace(trace, limit_us=array("q", limits_us))


def runs_s(trace: Trace, design: str = "oracle", cluster: Cluster | None = None) -> tuple[list[float], Records]:
    architecture = lookup(design)
    cluster = cluster or Cluster.uniform(8)
    deployment = architecture.build(cluster, architecture.defaults, Streams(0))
    records = simulate(deployment, trace, cluster, options=Options(check=True, graphs=architecture.graphs))
    runs = zip(records.start_us, records.finish_us, strict=True)
    return [(finish - start) / SECOND for start, finish in runs], records


def test_an_attempt_that_exceeds_its_limit_ends_there_and_the_component_sees_why() -> None:
    node = Actor(launch_all)
    trace = limited([[100], [60], [59], [61], [100]], [LIMIT, LIMIT, LIMIT, LIMIT, NEVER])
    records = play({"node/0": node}, trace, Cluster.uniform(1, 5))
    ends = {event.task.id: (now, event.outcome) for now, event, _ in node.seen if isinstance(event, TaskFinished)}
    assert ends == {
        0: (LIMIT, "limit"),
        1: (LIMIT, "finished"),
        2: (59 * SECOND, "finished"),
        3: (LIMIT, "limit"),
        4: (100 * SECOND, "finished"),
    }
    assert records.over_limit == {(0, 0), (3, 0)}
    assert NEVER not in records.answered_us


def test_an_attempt_that_ends_with_others_at_the_same_time_keeps_its_own_outcome() -> None:
    """The calendar has one list per time: only the entry of the attempt that was cut changes."""
    node = Actor(launch_all)
    trace = limited([[60], [100], [60]], [NEVER, LIMIT, NEVER])
    play({"node/0": node}, trace, Cluster.uniform(1, 3))
    outcomes = [event.outcome for _, event, _ in node.seen if isinstance(event, TaskFinished)]
    assert outcomes == ["finished", "limit", "finished"]


def test_a_limit_is_wall_clock_time_on_a_machine_of_any_speed() -> None:
    cluster = msgspec.structs.replace(Cluster.uniform(2), speeds=(100, 200), reference_speed=100)
    runs, records = runs_s(limited([[50, 50], [100, 100]], [40 * SECOND, 40 * SECOND]), cluster=cluster)
    assert sorted(runs) == [25, 40, 40, 40]
    assert len(records.over_limit) == 3


def test_what_waits_for_a_task_that_its_limit_has_ended_runs_then() -> None:
    trace = with_parents(limited([[100, 10]], [LIMIT]), [(), (0,)])
    _, records = runs_s(trace)
    assert records.finish_us[0] <= records.start_us[1] <= records.finish_us[0] + 1_000
    assert records.finish_us[0] - records.start_us[0] == LIMIT


def test_a_killed_attempt_does_not_count_and_the_next_has_the_whole_limit() -> None:
    def react(port: LabPort, event: object, source: str, now: int) -> None:
        if isinstance(event, TaskFinished) and event.outcome == "killed":
            port.launch(event.task, 1)
        elif type(event).__name__ == "TimerFired":
            port.kill(0, 0)
        else:
            if type(event).__name__ == "Submit":
                port.set_timer("kill", 50 * SECOND)
            launch_all(port, event, source, now)  # type: ignore[arg-type]  # any event

    node = Actor(react)  # type: ignore[arg-type]  # the port is the lab's
    records = play({"node/0": node}, limited([[100]], [LIMIT]))
    assert (records.start_us[0], records.finish_us[0]) == (50 * SECOND, 110 * SECOND)
    assert records.over_limit == {(0, 1)}


@pytest.mark.parametrize("speeds", [(), (100, 200, 400)])
def test_the_limit_of_a_gang_counts_from_the_launch_of_its_last_member(speeds: tuple[int, ...]) -> None:
    trace = msgspec.structs.replace(gangs((0, [100, 200, 900])), limit_us=array("q", [LIMIT]))
    cluster = msgspec.structs.replace(Cluster.uniform(3), speeds=speeds, reference_speed=100 if speeds else 0)
    deployment = built(OneByOne(SECOND), 3)
    records = simulate(deployment, trace, cluster, network=Network(delay_us=0), options=Options(may_hold=True))
    assert list(records.start_us) == [2 * SECOND] * 3
    assert list(records.finish_us) == [2 * SECOND + LIMIT] * 3
    assert {task for task, _ in records.over_limit} == {0, 1, 2}
    assert records.answered_us[0] == 2 * SECOND + LIMIT


def test_a_run_without_limits_has_no_rule_for_them() -> None:
    trace = limited([[100]], [NEVER])
    plain, with_column = (
        runs_s(each)[1].digest() for each in (msgspec.structs.replace(trace, limit_us=array("q")), trace)
    )
    assert plain == with_column
