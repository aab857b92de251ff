"""Stage R3 by distance: jobs of pipeline wait a while for machines that hold their input (Zaharia et al., 2010)."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.comparison import compare
from tests.unit.architectures.pipeline.runs import job_of, run, starts

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.locality import with_replicas
from volery.core.model import SECOND, Cluster
from volery.core.trace import Trace

WAITS = {"R3": "delay/node_wait_s:2/rack_wait_s:3"}
SIX = Cluster(constraints=(0,) * 6, slots=(1,) * 6, racks=(0, 0, 1, 1, 2, 2))


def placed(durations_s: list[float], *held: tuple[int, ...]) -> Trace:
    return with_replicas(job_of(durations_s), held, (1000, 1000))


def test_a_task_runs_where_its_input_lies() -> None:
    assert list(run("pipeline", placed([1.0, 1.0], (5,), (2,)), SIX, **WAITS).worker) == [5, 2]
    assert list(run("pipeline", placed([1.0, 1.0], (5,), (2,)), SIX).worker) != [5, 2]


def test_it_waits_for_that_machine_then_for_its_rack_then_for_none() -> None:
    """Four tasks whose input lies on machine 0: it, after 2 s its neighbour, after 3 s more any."""
    records = run("pipeline", placed([10.0] * 4, *[(0,)] * 4), SIX, **WAITS)
    assert list(records.worker[:2]) == [0, 1]
    assert starts(records) == [0, 2, 5, 5]


def test_a_machine_that_is_free_in_time_is_worth_the_wait() -> None:
    records = run("pipeline", placed([1.0, 1.0], (3,), (3,)), SIX, **WAITS)
    assert list(records.worker) == [3, 3]
    assert starts(records) == [0, 1]


def test_a_job_that_waits_lets_others_go_first() -> None:
    """The first job has input on a machine that is taken; the second takes the machine that the first leaves free."""
    trace = with_replicas(trace_of("two", [0, 1], [[4 * SECOND] * 2, [SECOND]]), [(0,), (0,), ()], (1000, 1000))
    records = run("pipeline", trace, Cluster.uniform(2), R3="delay/node_wait_s:60")
    assert list(records.worker) == [0, 0, 1]
    assert starts(records) == [0, 4, 0]


def test_tasks_without_input_never_wait() -> None:
    records = run("pipeline", placed([1.0] * 3, (), (), ()), SIX, **WAITS)
    plain = run("pipeline", job_of([1.0] * 3), SIX)
    assert records.digest() == plain.digest()


def test_a_task_that_no_near_machine_satisfies_waits_its_time_and_runs_elsewhere() -> None:
    trace = with_replicas(job_of([1.0]), [(0,)], (1000, 1000))
    constrained = msgspec.structs.replace(trace, constraints=array("q", [1]))
    cluster = Cluster(constraints=(0, 1, 1), slots=(1, 1, 1), racks=(0, 0, 1))
    records = run("pipeline", constrained, cluster, **WAITS)
    assert records.worker[0] == 1
    assert starts(records) == [2]


@pytest.mark.parametrize("given", [{"T9": "fixed"}, {"T10": "priority"}, {"T3": "easy"}, {"lrms": "2"}])
def test_what_looks_at_other_machines_does_not_go_with_it(given: dict[str, str]) -> None:
    with pytest.raises(InputError, match="R3"):
        run("pipeline", placed([1.0], (0,)), SIX, **WAITS, **given)


@pytest.mark.slow
def test_locality_rises_on_a_workload_with_input() -> None:
    """Like `hfs`, which offers machines to jobs, it reaches 95 % where pipeline without it does not."""
    work = "hdfs:20x12,workers=40,racks=4,duration=4,gap=1,rack=1.5,any=2"
    results = compare("pipeline", "pipeline:R3=delay", "hfs", trace=work, workers=40, racks=4)
    near = [run.locality.node for run in results.runs if run.locality is not None]
    assert near[0] < 0.4
    assert min(near[1:]) > 0.95
