"""One run: what is read once, what is refused, and what its measures say of the input."""

from __future__ import annotations

from array import array
from pathlib import Path

import msgspec
import pytest

from volery import architectures
from volery.core.component import Learning
from volery.core.errors import InputError
from volery.core.events import TAG_TASKS_GIVEN_UP
from volery.core.limits import LimitSummary
from volery.core.model import Cluster
from volery.core.records import Records
from volery.core.trace import Trace, longs
from volery.study.plan import inputs_key
from volery.study.runs import (
    NEVER_RAN,
    NO_MACHINE,
    build,
    check_roles,
    execute,
    larger_than_a_slot,
    learned,
    never_ran,
    read_inputs,
    rehearse,
)
from volery.study.spec import RunSpec

RUN = RunSpec(trace="syn:5x4", workers=20, architecture="megha")


def trace_of(requests: tuple[tuple[int, ...], ...]) -> Trace:
    """Two jobs of two tasks; the last task alone asks for the second of the requests."""
    return Trace(
        "made",
        longs(2),
        array("q", [0, 2, 4]),
        array("q", [1_000_000] * 4),
        longs(2),
        resources=("cpu_milli", "memory_mb"),
        requests=requests,
        request=array("I", [0, 0, 0, 1]),
    )


def test_the_input_of_the_run_before_is_not_read_again() -> None:
    first = read_inputs(RUN)
    again = read_inputs(msgspec.structs.replace(RUN, architecture="pigeon"))
    assert again.trace is first.trace
    assert again.facts.read_s == 0
    assert read_inputs(msgspec.structs.replace(RUN, seed=1)).trace is not first.trace


def test_limits_of_a_log_are_counted_and_enforced_where_the_run_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    rows = ["1 0 -1 100 1 -1 -1 1 60 -1", "2 0 -1 60 1 -1 -1 1 60 -1", "3 0 -1 50 1 -1 -1 1 -1 -1"]
    log.write_text("; MaxProcs: 4\n" + "\n".join(f"{row} 1 1 -1 -1 -1 -1 -1 -1" for row in rows) + "\n")
    run = RunSpec(trace=str(log), workers=1, architecture="backfill", capacity="cpu_milli=4000")
    enforced = msgspec.structs.replace(run, limits="enforce")
    ignoring, ending = execute(run).summary, execute(enforced).summary
    assert ignoring.limits == LimitSummary(enforced=False, jobs=2, over_jobs=1, over_tasks=1)
    assert ending.limits == LimitSummary(enforced=True, jobs=2, over_jobs=1, over_tasks=1)
    assert (ignoring.ideal_s.max, ending.ideal_s.max) == (100, 60)
    assert ignoring.digest == execute(msgspec.structs.replace(run, limits="ignore")).summary.digest != ending.digest
    assert len({inputs_key(run), inputs_key(enforced)}) == 2
    kept = execute(msgspec.structs.replace(enforced, architecture="kubernetes")).summary
    assert (kept.kept_by_driver, ending.kept_by_driver, ignoring.kept_by_driver) == (("limits",), (), ())


def test_limits_that_a_trace_does_not_have_are_not_enforced() -> None:
    with pytest.raises(InputError, match=r"limits: the trace 'syn:5x4' states no limits; leave it out"):
        execute(msgspec.structs.replace(RUN, limits="enforce"))


def test_tasks_that_a_slot_does_not_hold_are_counted() -> None:
    trace = trace_of(((1000, 100), (2000, 100)))
    found = larger_than_a_slot(trace, "cpu_milli=1000,memory_mb=256")
    assert found is not None
    (one,) = found.reasons
    assert (one.jobs, one.tasks) == (1, 1)
    assert one.machine_share == pytest.approx(2 / 5)
    assert larger_than_a_slot(trace, "cpu_milli=2000,memory_mb=256") is None
    assert larger_than_a_slot(trace_of(((1, 1), (1, 1))), "cpu_milli=1,memory_mb=1") is None


def test_tasks_that_never_started_are_counted() -> None:
    trace = trace_of(((1000, 100), (2000, 100)))
    records = Records(trace)
    for task in range(3):
        records.start_us[task] = 0
    found = never_ran(records, trace)
    assert found is not None
    assert [(one.tasks, one.reason) for one in found.reasons] == [(1, NEVER_RAN)]
    found = never_ran(records, trace, 1)
    assert found is not None
    assert found.reasons[0].reason == NO_MACHINE
    records.start_us[3] = 0
    assert never_ran(records, trace) is None


def test_parameters_that_do_not_fit_the_cluster_name_the_run() -> None:
    small = msgspec.structs.replace(RUN, parameters={"gms": 50}, label="the small one")
    with pytest.raises(InputError, match="partitions, more than 20 workers"):
        rehearse(small)
    with pytest.raises(InputError, match="partitions, more than 20 workers"):
        build(small, Cluster.uniform(20), architectures.choose("megha", small.parameters))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"links": {"gm:node": 5}}, None),
        ({"links": {"gm-node": 5}}, "links: 'gm-node' is not SENDER:RECEIVER, as lm:node"),
        ({"links": {"gm:nodes": 5}}, "links: no architecture here has the role 'nodes'; did you mean 'node'"),
        ({"costs": {"lms": 5}}, "costs: no architecture here has the role 'lms'; did you mean 'lm'"),
    ],
)
def test_roles_that_no_design_has_are_refused(changes: dict[str, dict[str, int]], problem: str | None) -> None:
    run, roles = msgspec.structs.replace(RUN, **changes), frozenset({"gm", "lm", "node"})
    if problem is None:
        check_roles(run, roles)
        return
    with pytest.raises(InputError) as refused:
        check_roles(run, roles)
    assert problem in str(refused.value)


def test_a_design_learns_once_from_the_runs_before() -> None:
    jockey = architectures.choose("jockey", {"tokens_step": 10})
    learning = jockey.architecture.capability(Learning)
    assert learning is not None
    jobs = "recurring:2x2,tasks=20,mean=10,workers=20,tokens=4"
    run = RunSpec(trace=jobs, workers=20, architecture="jockey", history=jobs)
    cluster = Cluster.uniform(20)
    taught, omissions = learned(jockey, learning, run, cluster)
    assert taught != jockey
    assert omissions is None, "synthetic work is complete"
    again, _ = learned(jockey, learning, run, cluster)
    assert getattr(again.config, learning.parameter) is getattr(taught.config, learning.parameter)


def test_designs_of_one_name_learn_apart() -> None:
    jobs = "recurring:2x2,tasks=20,mean=10,workers=20,tokens=4"
    run = RunSpec(trace=jobs, workers=20, architecture="mine", history=jobs)
    lessons: list[int] = []

    def of(number: int) -> Learning:
        def learn(*_: object) -> int:
            lessons.append(number)
            return number

        return Learning("schedulers", (), learn)

    for number in (3, 4):
        learning = of(number)
        mine = msgspec.structs.replace(architectures.lookup("sparrow"), name="mine", capabilities=(learning,))
        token = architectures.SESSION.set({"mine": mine})
        try:
            learned(architectures.ConfiguredDesign(mine, mine.defaults), learning, run, Cluster.uniform(20))
        finally:
            architectures.SESSION.reset(token)
    assert lessons == [3, 4]


@pytest.mark.parametrize("design", ["megha", "omega", "sparrow"])
def test_work_with_tags_is_refused_for_a_design_that_does_not_heed_them(design: str) -> None:
    with pytest.raises(InputError, match=f"^{design}: .*does not heed; take one that does: pipeline:tags=true"):
        execute(RunSpec(trace="medea:2,batch=3", workers=60, architecture=design))


def test_tasks_of_jobs_that_were_given_up_are_counted() -> None:
    """Of 40 workers, one to a machine, four at a time run in the rack of the cache, until it ends."""
    spec = RunSpec(
        trace="medea:2,batch=0,workers=40,worker=60,per_node=1",
        workers=8,
        racks=2,
        slots=2,
        architecture="pipeline",
        parameters={"tags": "true"},
    )
    summary = execute(spec).summary
    assert 0 < summary.unsatisfiable_tasks == summary.counters[TAG_TASKS_GIVEN_UP] < 40
    assert summary.jobs == 3
