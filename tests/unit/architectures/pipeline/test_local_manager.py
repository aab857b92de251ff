"""Two levels, and the broker."""

from __future__ import annotations

import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, run, starts, trace_of_rows

from volery.core.model import SECOND


def test_the_emptiest_manager_is_passed_the_next_task() -> None:
    """Two managers with 4 and 2 cores: 1, 1, 1 and 1 core go to the larger, until half of it is taken."""
    rows = [(0.0, 1, 9.0), (0.1, 1, 9.0), (0.2, 1, 9.0), (0.3, 1, 9.0)]
    records = run("pipeline", trace_of_rows(rows), cores_cluster(2, 2, 1, 1), lrms="2")
    assert [worker // 2 for worker in records.worker] == [0, 1, 0, 0]
    assert starts(records) == [0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("policy", "expected"), [("first-fit", [0, 0, 0]), ("best-fit", [0, 0, 0]), ("worst-fit", [0, 1, 0])]
)
def test_managers_are_selected_by_policy(policy: str, expected: list[int]) -> None:
    rows = [(0.0, 1, 9.0), (0.1, 1, 9.0), (0.2, 1, 9.0)]
    records = run("pipeline", trace_of_rows(rows), cores_cluster(4, 4), lrms="2", M5=policy)
    assert list(records.worker) == expected


def test_a_manager_queues_what_it_was_passed() -> None:
    """First-fit without a filter passes everything to the first manager, where it waits although the other idles."""
    rows = [(0.0, 1, 9.0), (0.1, 1, 9.0)]
    records = run("pipeline", trace_of_rows(rows), cores_cluster(1, 1), lrms="2", M5="first-fit")
    assert starts(records) == [0, 9]
    assert list(records.worker) == [0, 0]


@pytest.mark.parametrize("usable", ["managed/per_machine:1", "free-fraction/least:0.5"])
def test_a_filter_keeps_tasks_from_managers_that_have_enough_to_do(usable: str) -> None:
    rows = [(0.0, 1, 9.0), (0.1, 1, 5.0), (0.2, 1, 1.0)]
    records = run("pipeline", trace_of_rows(rows), cores_cluster(1, 1), lrms="2", M5="first-fit", M4=usable)
    assert list(records.worker) == [0, 1, 1]
    assert starts(records) == [0, 0.1, 5.1]


def test_a_task_goes_where_some_machine_is_large_enough() -> None:
    records = run("pipeline", trace_of_rows([(0.0, 8, 1.0)]), cores_cluster(2, 2, 8, 8), lrms="2", M5="first-fit")
    assert records.worker[0] == 2


def test_users_have_their_machines_at_both_levels() -> None:
    trace = trace_of_rows([(0.0, 1, 1.0)])
    records = run(
        "pipeline", trace, cores_cluster(1, 1, 1, 1), lrms="2", M5="first-fit", R2="acl/users:nobody=3/others:false"
    )
    assert records.unsatisfiable[0] == 1
    trace = trace_of_rows([(0.0, 1, 1.0)], users=["ann"])
    records = run("pipeline", trace, cores_cluster(1, 1, 1, 1), lrms="2", M5="first-fit", R2="acl/users:ann=3")
    assert records.worker[0] == 3


def test_the_broker_runs_what_is_long_after_a_while() -> None:
    rows = [(0.0, 1, 5.0), (0.1, 1, 700.0)]
    given = {"M1": "long", "broker_machines": "1", "broker_delay_s": "30"}
    records = run("pipeline", trace_of_rows(rows), cores_cluster(4, 1), **given)
    assert list(records.worker) == [0, 1]
    assert starts(records) == [0, 30.1]
    assert records.answered_us[1] == round(730.1 * SECOND)


def test_the_broker_takes_what_only_it_can_run_and_nothing_that_it_cannot() -> None:
    rows = [(0.0, 8, 5.0), (0.1, 2, 700.0)]
    given = {"M1": "long", "broker_machines": "1", "broker_delay_s": "0"}
    records = run("pipeline", trace_of_rows(rows), cores_cluster(2, 8), **given)
    assert list(records.worker) == [1, 1]
    records = run("pipeline", trace_of_rows([(0.0, 4, 700.0)]), cores_cluster(4, 1), **given)
    assert list(records.worker) == [0]
