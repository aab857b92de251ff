"""The order in which tasks start, by the policies of J2, J3, T1, T2 and T3."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.architectures.pipeline.runs import Row, cores_cluster, job_of, run, starts, trace_of_rows

from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster

BURST: list[Row] = [(0, 1, 9), (0.1, 1, 4, 4), (0.2, 1, 2, 2), (0.3, 1, 3, 3)]
"""While the first runs, three wait: of 4, 2 and 3 seconds."""


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [0, 9, 13, 15]),
        ({"T2": "fifo"}, [0, 9, 13, 15]),
        ({"T2": "sjf"}, [0, 14, 9, 11]),
        ({"T2": "srtf"}, [0, 14, 9, 11]),
        ({"T2": "ljf"}, [0, 9, 16, 13]),
        ({"J3": "sjf"}, [0, 14, 9, 11]),
        ({"J3": "srtf"}, [0, 14, 9, 11]),
        ({"J3": "ljf", "T2": "fifo"}, [0, 9, 13, 15]),
    ],
)
def test_the_order_of_tasks_then_of_jobs_decides(parameters: dict[str, str], expected: list[float]) -> None:
    records = run("pipeline", trace_of_rows(BURST), cores_cluster(1), **parameters)
    assert starts(records) == expected


def test_srtf_counts_processors_and_sjf_does_not() -> None:
    rows: list[Row] = [(0, 4, 9), (0.1, 4, 2), (0.2, 1, 4)]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4), T2="sjf")) == [0, 9, 11]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4), T2="srtf")) == [0, 13, 9]


def test_deadlines_and_priorities() -> None:
    trace = trace_of_rows(BURST, deadline_s=(-1, -1, 99, 50), priority=(0, 3, 1, 2))
    assert starts(run("pipeline", trace, cores_cluster(1), T2="edf")) == [0, 14, 12, 9]
    assert starts(run("pipeline", trace, cores_cluster(1), T2="priority")) == [0, 9, 16, 13]
    assert starts(run("borg", trace, cores_cluster(1))) == [0, 9, 16, 13]


def test_what_does_not_fit_holds_nothing_up_unless_the_order_is_strict() -> None:
    """3 of 4 cores are taken: the task of 4 has to wait, and the one of 1 behind it need not."""
    rows: list[Row] = [(0, 3, 9), (1, 4, 2), (2, 1, 3)]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4))) == [0, 9, 2]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4), T3="strict")) == [0, 9, 11]


def test_a_random_order_is_drawn_anew_from_the_scheduler_s_stream() -> None:
    rows: list[Row] = [(0, 1, 9), *[(0.1, 1, 1)] * 5]
    firsts = Counter(
        starts(run("pipeline", trace_of_rows(rows), cores_cluster(1), seed, T2="random")).index(9) for seed in range(60)
    )
    assert set(firsts) == {1, 2, 3, 4, 5}


def test_a_user_has_so_many_eligible_jobs_and_no_more() -> None:
    """Two machines; the first user's second job waits for its first, the other user's runs at once."""
    trace = trace_of_rows([(0, 1, 5), (0.1, 1, 2), (0.2, 1, 2)], users="aab")
    assert starts(run("pipeline", trace, cores_cluster(2), J2="per-user")) == [0, 5, 0.2]
    assert starts(run("pipeline", trace, cores_cluster(2), J2="per-user/jobs:2")) == [0, 0.1, 2.1]


def test_flow_control_holds_jobs_back_while_tasks_wait() -> None:
    """With one task in the queue no other is let in: a short one that comes later is not seen before it has left."""
    trace = trace_of_rows([(0, 1, 5), (1, 1, 9), (2, 1, 3), (3, 1, 1)])
    assert starts(run("pipeline", trace, cores_cluster(1), T2="sjf")) == [0, 9, 6, 5]
    assert starts(run("pipeline", trace, cores_cluster(1), T2="sjf", J2="flow-control/tasks:1")) == [0, 5, 14, 17]


def test_a_task_starts_when_all_that_it_waits_for_has_finished() -> None:
    """A diamond on three machines: 0 (2 s), then 1 (1 s) and 2 (5 s), then 3."""
    trace = job_of((2, 1, 5, 1), [[], [0], [0], [1, 2]])
    records = run("pipeline", trace, Cluster.uniform(3))
    assert starts(records) == [0, 2, 2, 7]
    assert records.answered_us[0] == 8 * SECOND


def test_heft_starts_the_longest_chain_first() -> None:
    """One machine: of the chain 2 > 3 > 4, 2 and 3 come before the lone tasks 0 and 1, and 4 does not."""
    trace = job_of((1, 1, 1, 1, 1), [[], [], [], [2], [3]])
    assert starts(run("pipeline", trace, Cluster.uniform(1), T2="heft")) == [2, 3, 0, 1, 4]
    assert starts(run("pipeline", trace, Cluster.uniform(1))) == [0, 1, 2, 3, 4]


def test_tasks_below_one_that_fits_no_machine_never_run_and_are_counted() -> None:
    rows = trace_of_rows([(0, 1, 1)])
    trace = type(rows)(
        "graph",
        rows.arrival_us,
        type(rows.first)("q", [0, 4]),
        type(rows.first)("q", [SECOND] * 4),
        rows.estimate_us,
        resources=("cores",),
        requests=((1,), (9,)),
        request=type(rows.first)("H", [0, 1, 0, 0]),
        parent_first=type(rows.first)("q", [0, 0, 0, 1, 2]),
        parents=type(rows.first)("q", [1, 2]),
    )
    records = run("pipeline", trace, cores_cluster(4))
    assert records.unsatisfiable[0] == 3
    assert starts(records)[0] == 0


def test_periodic_cycles_start_tasks_on_their_beat_and_decisions_take_time() -> None:
    rows: list[Row] = [(0, 1, 1), (0.5, 1, 1), (10.5, 1, 1)]
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(4), cycle_s="10")) == [0, 10, 20]
    costly = run("pipeline", trace_of_rows(rows), cores_cluster(4), cycle_cost_us="300000", task_cost_us="100000")
    assert starts(costly) == [0.4, 0.9, 10.9]
    burst = trace_of_rows([(0, 1, 1)] + [(0.1, 1, 1)] * 4)
    one = run("pipeline", burst, cores_cluster(8), task_cost_us="200000")
    two = run("pipeline", burst, cores_cluster(8), task_cost_us="200000", J4="2")
    assert starts(one) == [0.2, 1, 1, 1, 1], "four tasks that came while it was deciding: one after another"
    assert starts(two) == [0.2, 0.6, 0.6, 0.6, 0.6], "two at a time"


def test_files_come_in_before_a_job_is_queued_and_before_a_task_runs() -> None:
    rows: list[Row] = [(0, 1, 1), (0, 1, 1)]
    given = {"J5": "stage-in/mb:200", "T5": "stage-in/latency_s:0.5"}
    assert starts(run("pipeline", trace_of_rows(rows), cores_cluster(1), **given)) == [2.5, 4]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"R5": "best-fti"}, "pipeline:R5: there is no policy 'best-fti' for stage R5; did you mean 'best-fit'"),
        ({"R5": "kubernetes/balance:1"}, "pipeline:R5: 'kubernetes' has no parameter 'balance'; did you mean"),
        ({"R5": "kubernetes/balanced:x"}, "pipeline:R5/balanced: 'x' does not fit"),
        ({"R5": "best-fit/x:1"}, "'best-fit' has no parameter 'x'; it has none"),
        ({"R5": "kubernetes/balanced"}, "is not parameter:value"),
        ({"R5": "kubernetes/balanced:1/balanced:2"}, "gives 'balanced' twice"),
        ({"R2": "acl/users:ann"}, "'ann' is not USER=MACHINE"),
        ({"T2": "drf/shares:a:0"}, "pipeline:T2/shares: .* is not a weight"),
        ({"J3": "srtf", "T2": "sjf"}, "pipeline:J3: .*needs T2=by-job"),
        ({"T3": "easy", "T2": "drf"}, "pipeline:T3: easy reserves for the first task"),
        ({"M1": "long"}, "pipeline:broker_machines"),
        ({"lrms": "9"}, "4 machines are too few"),
    ],
)
def test_what_cannot_be_assembled_is_refused_with_its_place(parameters: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        run("pipeline", trace_of_rows(BURST), cores_cluster(1, 1, 1, 1), **parameters)


def test_trying_every_task_gives_the_same_schedule_as_trying_one_of_each_kind() -> None:
    rows = [(k % 7, 1 + k % 3, 3 + k % 5) for k in range(40)]
    for order in ("fifo", "srtf"):
        skip, every = (
            run("pipeline", trace_of_rows(rows), cores_cluster(4, 2), T2=order, T3=kind) for kind in ("skip", "every")
        )
        assert skip.digest() == every.digest()
