"""The lab and tags: it refuses launches that break a constraint, and gives up jobs whose tags are gone."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.capabilities import TagPlacement
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.events import TAG_TASKS_GIVEN_UP
from volery.core.model import NEVER, SECOND, UNLIMITED, Cluster, TagConstraint
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.tags import with_tags
from volery.core.trace import Trace
from volery.sim import Network, Options, simulate
from volery.sim.execution import BrokenRule
from volery.sim.faults import Crash, FaultPlan

CLUSTER = Cluster((0,) * 4, (2,) * 4, racks=(0, 0, 1, 1))
NEAR = TagConstraint(("worker",), ("cache",), 1, UNLIMITED, "rack")
APART = TagConstraint(("web",), ("web",), 0, 0, "node")
HEEDING = ("pipeline", "omega")


def built(design: str, **parameters: Any) -> Deployment:
    entry = lookup(design)
    return entry.build(CLUSTER, configure(entry, parameters), Streams(0))


def cheating() -> Deployment:
    """A scheduler that knows no tags and says that it heeds them."""
    oracle = built("oracle")
    return msgspec.structs.replace(oracle, capabilities=(*oracle.capabilities, TagPlacement()))


def jobs(*rows: tuple[float, int, float, tuple[str, ...]], constraints: tuple[TagConstraint, ...]) -> Trace:
    """Rows of arrival, tasks, duration (s) and tags."""
    durations = [[round(run * SECOND)] * tasks for _, tasks, run, _ in rows]
    trace = trace_of("tagged", [round(at * SECOND) for at, *_ in rows], durations)
    return with_tags(trace, [row[3] for row in rows], constraints)


def played(design: str, trace: Trace, **parameters: Any) -> Records:
    return simulate(built(design, tags="true", **parameters), trace, CLUSTER, options=Options(check=True))


def test_the_lab_refuses_a_launch_beside_one_that_must_be_alone() -> None:
    trace = jobs((0, 5, 1, ("web",)), constraints=(APART,))
    with pytest.raises(BrokenRule, match=r"1 others there have the target of .*\{web, \{web, 0, 0\}, node\}"):
        simulate(cheating(), trace, CLUSTER)


def test_the_lab_refuses_a_target_that_joins_a_subject() -> None:
    alone = TagConstraint(("quiet",), ("loud",), 0, 0, "rack")
    trace = jobs((0, 5, 9, ("quiet",)), (1, 1, 1, ("loud",)), constraints=(alone,))
    with pytest.raises(BrokenRule, match="task 5 "):
        simulate(cheating(), trace, CLUSTER)


def test_the_lab_refuses_a_worker_far_from_its_cache() -> None:
    trace = jobs((0, 1, 9, ("cache",)), (1, 7, 1, ("worker",)), constraints=(NEAR,))
    with pytest.raises(BrokenRule, match="0 others there have the target"):
        simulate(cheating(), trace, CLUSTER)


def test_with_jitter_the_lab_refuses_too_many_and_not_too_few() -> None:
    few = jobs((0, 1, 9, ("cache",)), (1, 7, 1, ("worker",)), constraints=(NEAR,))
    simulate(cheating(), few, CLUSTER, network=Network(jitter_us=10))
    many = jobs((0, 5, 1, ("web",)), constraints=(APART,))
    with pytest.raises(BrokenRule):
        simulate(cheating(), many, CLUSTER, network=Network(jitter_us=10))


@pytest.mark.parametrize("design", [*HEEDING, "megha", "monolithic", "oracle"])
def test_a_design_that_does_not_heed_tags_gets_none(design: str) -> None:
    trace = jobs((0, 1, 1, ("web",)), constraints=(APART,))
    defaults = {"gms": 1, "lms": 1} if design == "megha" else {}
    with pytest.raises(InputError, match="which this design does not heed; take one that does"):
        simulate(built(design, **defaults), trace, CLUSTER)


@pytest.mark.parametrize("design", HEEDING)
def test_services_keep_apart_in_waves(design: str) -> None:
    records = played(design, jobs((0, 10, 1, ("web",)), constraints=(APART,)))
    starts = sorted(records.start_us)
    assert starts[3] - starts[0] < SECOND <= starts[4] - starts[3], "four machines hold four at once"
    assert min(records.finish_us) != NEVER


@pytest.mark.parametrize("design", HEEDING)
def test_workers_wait_for_a_cache_and_run_in_its_rack(design: str) -> None:
    records = played(design, jobs((0, 3, 1, ("worker",)), (2, 1, 60, ("cache",)), constraints=(NEAR,)))
    rack = {CLUSTER.racks[machine] for machine in records.worker}
    assert len(rack) == 1
    assert min(records.start_us[:3]) >= records.start_us[3]


@pytest.mark.parametrize("design", HEEDING)
def test_workers_whose_cache_has_ended_are_given_up(design: str) -> None:
    """Six workers want two slots beside the cache, one round long; a job behind them runs."""
    most = TagConstraint(("worker",), ("worker",), 0, 0, "rack")
    rows = [(0, 1, 5, ("cache",)), (1, 6, 10, ("worker",)), (1, 1, 1, ())]
    records = played(design, jobs(*rows, constraints=(NEAR, most)))
    ran = [task for task in range(8) if records.start_us[task] != NEVER]
    assert len(ran) == 3, "the cache, a worker, and the last job"
    assert list(records.unsatisfiable) == [0, 5, 0]
    assert NEVER not in records.answered_us


@pytest.mark.parametrize("design", HEEDING)
def test_jobs_that_waited_for_a_job_that_was_given_up_are_given_up_too(design: str) -> None:
    """The cache ends in a second: the first worker job finds no room, and the second waits for it in vain."""
    second = TagConstraint(("client",), ("worker",), 1, UNLIMITED, "rack")
    quiet = TagConstraint(("cache",), ("worker",), 0, 0, "rack")
    rows = [(0, 1, 1, ("cache",)), (0.1, 2, 1, ("worker",)), (0.2, 3, 1, ("client",))]
    records = played(design, jobs(*rows, constraints=(NEAR, quiet, second)))
    assert list(records.unsatisfiable) == [0, 2, 3]


def test_a_job_that_comes_after_its_cache_is_given_up_at_once() -> None:
    records = played("pipeline", jobs((0, 1, 1, ("cache",)), (5, 2, 1, ("worker",)), constraints=(NEAR,)))
    assert list(records.unsatisfiable) == [0, 2]
    assert records.answered_us[1] < 5.1 * SECOND


def test_runs_without_tags_have_no_rules_for_them() -> None:
    """Nothing is paid for tags: the digest is the same with the parameter and without it."""
    trace = trace_of("plain", [0, 1000], [[SECOND] * 9, [SECOND] * 3])
    for design in HEEDING:
        plain = simulate(built(design), trace, CLUSTER).digest()
        assert played(design, trace).digest() == plain


@pytest.mark.parametrize("design", HEEDING)
def test_jobs_that_wait_for_tasks_that_fit_no_machine_are_given_up(design: str) -> None:
    """The cache demands a machine that is not there; its workers, and those who wait for these, never start."""
    client = TagConstraint(("client",), ("worker",), 1, UNLIMITED, "rack")
    rows = [(0, 1, 9, ("cache",)), (0.1, 3, 1, ("worker",)), (0.2, 2, 1, ("client",)), (0.3, 1, 1, ())]
    trace = jobs(*rows, constraints=(NEAR, client))
    trace = msgspec.structs.replace(trace, constraints=array("q", [1, 0, 0, 0, 0, 0, 0]))
    records = played(design, trace)
    assert list(records.unsatisfiable) == [1, 3, 2, 0]
    assert records.counters[TAG_TASKS_GIVEN_UP] == 5, "and the cache fits no machine"
    assert NEVER not in records.answered_us


def test_a_job_of_which_an_attempt_ended_with_its_machine_is_given_up() -> None:
    """All machines crash when the cache has ended and workers run, which cannot run again."""
    rows = [(0, 1, 2, ("cache",)), (1, 8, 60, ("worker",))]
    trace = jobs(*rows, constraints=(NEAR,))
    plan = FaultPlan(crashes=tuple([Crash(3 * SECOND, f"node/{machine}", 5 * SECOND) for machine in range(4)]))
    deployment = built("pipeline", tags="true", T11="restart")
    records = simulate(deployment, trace, CLUSTER, options=Options(plan=plan))
    assert list(records.unsatisfiable) == [0, 8]
