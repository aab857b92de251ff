"""Stages R6 and R7: machines that come and go. Schedules are worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.architectures.pipeline.runs import Row, cores_cluster, job_of, run, starts, trace_of_rows
from tests.unit.architectures.pipeline.test_preemption import design, stormy
from tests.unit.architectures.pipeline.test_recovery import crashed

from volery.architectures import configure, lookup
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.faults import draw, run_scenario
from volery.metrics.provisioning import provisioning_summary

MINUTES = {"boot_s": "20", "scale_s": "60", "billing_s": "600", "rest_s": "100"}
"""Decisions at each minute, 20 s to boot, paid by ten minutes."""
BURST: Sequence[Row] = [(10, 1, 30), (11, 1, 30), (12, 4, 100), (400, 1, 10)]
MACHINES = cores_cluster(4, 4, 2, 2)


def switches(records: Records) -> list[tuple[float, int, str]]:
    """When which machine was switched to what, in seconds."""
    return [(fact.at_us / SECOND, fact.machine, fact.power) for fact in records.switches]


def test_react_provisions_what_is_asked_for_and_releases_it_before_it_is_paid_for_again() -> None:
    """At 60 s 6 cores are asked for: two machines of 4. Paid until 660 s, and idle at 600 s."""
    records = run("pipeline", trace_of_rows(BURST), MACHINES, R7="react", **MINUTES)
    assert starts(records) == [80, 80, 80, 400]
    booted = [(60, 0, "booting"), (60, 1, "booting"), (80, 0, "on"), (80, 1, "on")]
    assert switches(records) == [*booted, (600, 1, "off"), (600, 0, "off")]


def test_at_once_a_machine_is_released_as_soon_as_it_is_not_needed() -> None:
    """At 120 s only the task of 4 cores runs, on machine 1, until 180 s. The job of 400 s finds nothing."""
    records = run("pipeline", trace_of_rows(BURST), MACHINES, R7="react", R6="first/release_at:once", **MINUTES)
    assert starts(records) == [80, 80, 80, 440]
    off = [(at, machine) for at, machine, power in switches(records) if power == "off"]
    assert off == [(120, 0), (240, 1), (480, 0)]


def test_thrift_waits_for_cheaper_hours_with_what_does_not_run() -> None:
    """At 60 s it is dear: the waiting task that fits nowhere gets one machine, the others wait for the next hour."""
    records = run(
        "pipeline",
        trace_of_rows([(10, 4, 7200), (11, 4, 30), (12, 4, 30)]),
        MACHINES,
        R7="thrift",
        prices="2+1",
        **MINUTES,
    )
    assert starts(records) == [80, 3620, 3650]


def test_static_has_all_machines_from_the_beginning() -> None:
    records = run("pipeline", trace_of_rows(BURST), MACHINES, R7="static", **MINUTES)
    assert starts(records) == [10, 11, 12, 400]
    assert switches(records) == [(0, machine, "on") for machine in range(4)]


def test_what_is_always_there_is_there_at_first_and_stays() -> None:
    """Two cores are had with the first machine, which has four: enough for all, one after another."""
    records = run("pipeline", trace_of_rows(BURST), MACHINES, R7="react/least:2", R6="first/release_at:once", **MINUTES)
    assert starts(records) == [10, 11, 41, 400]
    assert switches(records) == [(0, 0, "on")]


@pytest.mark.parametrize(("policy", "booted"), [("first", [0, 1, 2]), ("biggest", [2, 1]), ("cheapest", [0, 2])])
def test_provisioning_chooses(policy: str, booted: list[int]) -> None:
    """10 cores of machines with 2 fast ones, 4 and 8.

    A machine costs 1 an hour and a core 1: per core and speed 0.75 for the first, then 1.25 and 1.125.
    """
    cluster = cores_cluster(2, 4, 8, speeds=(2, 1, 1))
    rows: list[Row] = [(1, 1, 500)] * 10
    records = run("pipeline", trace_of_rows(rows), cluster, R7="react", R6=policy, machine_price="1", **MINUTES)
    assert [machine for _, machine, power in switches(records) if power == "booting"] == booted


def test_a_task_that_only_an_absent_machine_can_hold_gets_it() -> None:
    """3 cores are asked for and 4 are there, in two machines: the third one has to boot."""
    rows: list[Row] = [(1, 2, 100), (1, 2, 100), (300, 3, 10)]
    records = run(
        "pipeline", trace_of_rows(rows), cores_cluster(2, 2, 4), R7="react", **{**MINUTES, "billing_s": "3600"}
    )
    assert starts(records) == [80, 80, 380]
    assert [at for at, machine, power in switches(records) if machine == 2 and power == "booting"] == [360]


def test_two_levels_provision_each_for_itself() -> None:
    records = run("pipeline", trace_of_rows(BURST), MACHINES, R7="react", lrms="2", **MINUTES)
    assert {machine for _, machine, power in switches(records) if power == "booting"} == {0, 1, 2}
    assert starts(records) == [80, 80, 80, 400]


def test_the_machines_of_the_broker_are_always_on() -> None:
    records = run(
        "pipeline",
        trace_of_rows(BURST),
        MACHINES,
        R7="react",
        broker_machines="2",
        M1="long/estimate_s:90",
        broker_delay_s="0",
        **MINUTES,
    )
    assert records.billing is not None
    assert records.billing.machines == {0, 1}


def test_easy_reserves_nothing_where_nothing_is_on() -> None:
    records = run("pipeline", trace_of_rows(BURST), MACHINES, R7="react", T2="fifo", T3="easy", **MINUTES)
    assert starts(records) == [80, 80, 80, 400]


def test_workflow_aware_policies_have_machines_booted_before_tasks_are_ready() -> None:
    """One task of 100 s, then three, of which one finds its machine. React sees them at 180 s, the plan at 120 s."""
    trace = job_of([100, 100, 100, 100], [[], [0], [0], [0]])
    trace.estimate_us[0] = 100 * SECOND
    cluster = Cluster.uniform(4)
    found = {
        policy: starts(run("pipeline", trace, cluster, R7=policy, **MINUTES))[1:]
        for policy in ("react", "plan", "token")
    }
    assert found["react"] == [180, 260, 260]
    assert found["plan"] == [180, 180, 180]
    assert found["token"] == [180, 180, 180]


def test_hist_remembers_the_same_hour_of_the_day_before() -> None:
    """A day of three hours: five cores in each first one, for which at the end of the third five are on again."""
    rows: list[Row] = [(hour * 3600 + 1800, 5 if hour % 3 == 0 else 1, 60) for hour in range(7)]
    cluster = cores_cluster(5, 1)
    given = {**MINUTES, "rest_s": "20000", "R6": "first/release_at:once"}
    react = run("pipeline", trace_of_rows(rows), cluster, R7="react", **given)
    hist = run("pipeline", trace_of_rows(rows), cluster, R7="hist/day_h:3", **given)
    assert [starts(react)[k] - 3600 * k for k in (3, 6)] == [1880, 1880]
    assert [starts(hist)[k] - 3600 * k for k in (3, 6)] == [1800, 1800]


def test_a_dead_machine_is_off_and_paid_for_until_then() -> None:
    """It dies at 100 s, and its task begins anew on another one that was provisioned for it."""
    records = crashed(job_of([60.0]), Cluster.uniform(2), (100.0, 0, 500.0), R7="react", **MINUTES)
    assert records.worker[0] == 1
    assert 140 < records.start_us[0] / SECOND < 140.1
    assert (100, 0, "off") in switches(records)


def test_a_machine_that_dies_while_it_boots_can_be_had_again() -> None:
    records = crashed(job_of([60.0]), Cluster.uniform(1), (70.0, 0, 90.0), R7="react", **MINUTES)
    assert [(round(at), power) for at, _, power in switches(records)][:4] == [
        (60, "booting"),
        (70, "off"),
        (120, "booting"),
        (140, "on"),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"R7": "react"},
        {"R7": "threshold/pause_s:0.5", "lrms": "3", "R6": "biggest/release_at:once"},
        {"R7": "plan", "T3": "easy", "T2": "fifo", "billing_s": "0"},
    ],
)
def test_storms_that_kill_machines_are_weathered(given: dict[str, str]) -> None:
    quick = {"boot_s": "0.3", "scale_s": "0.5", "billing_s": "2", "rest_s": "3"}
    entry = design(T11="restart", **{**quick, **given})
    entry = stormy(entry)
    repeated = sum(run_scenario(entry, draw(entry, seed)).repeated for seed in range(20))
    assert repeated > 3


def test_links_that_fail_are_weathered_where_messages_are_reliable() -> None:
    entry = design(reliable="true", R7="react", boot_s="0.3", scale_s="0.5", billing_s="2", rest_s="3")
    classes = frozenset({"loss", "duplication", "delay", "partition"})
    entry = stormy(entry, tolerates=classes)
    for seed in range(10):
        run_scenario(entry, draw(entry, seed))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"R6": "biggest"}, "all are always on without a policy of R7"),
        ({"R7": "plan", "lrms": "2"}, "take lrms=0"),
        ({"R7": "raect"}, "did you mean 'react'"),
    ],
)
def test_what_does_not_go_together_is_told(given: dict[str, str], problem: str) -> None:
    entry = lookup("pipeline")
    with pytest.raises(InputError, match=problem):
        entry.build(MACHINES, configure(entry, given), Streams(0))


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 4), st.integers(1, 200)), min_size=1, max_size=12),
    st.sampled_from(["react", "threshold/pause_s:0", "hist/day_h:1", "plan", "token", "react/spare:0.5/least:3"]),
    st.sampled_from(["first", "biggest/release_at:once", "cheapest"]),
    st.sampled_from(["0", "100", "600"]),
    st.sampled_from(["skip", "easy"]),
)
def test_everything_runs_on_machines_that_are_on_and_the_bill_is_right(
    rows: list[Row], scaling: str, provisioning: str, billing_s: str, iteration: str
) -> None:
    """Judged from the record of switches alone, by another way than the driver's and the summary's."""
    given = {**MINUTES, "billing_s": billing_s, "R7": scaling, "R6": provisioning, "T2": "fifo", "T3": iteration}
    records = run("pipeline", trace_of_rows(sorted(rows)), MACHINES, machine_price="0.5", **given)
    end = max(records.answered_us)
    cost = 0.0
    for machine, (cores,) in enumerate(MACHINES.capacities):
        came = off = None
        spans, ons = [], []
        for fact in [*records.switches]:
            if fact.machine != machine:
                continue
            if came is None:
                came = fact.at_us
            if fact.power == "on":
                ons.append([fact.at_us, 1 << 60])
            if fact.power == "off":
                ons[-1][1] = off = fact.at_us
                spans.append((came, off))
                came = None
        spans += [] if came is None else [(came, end)]
        tasks = [task for task, worker in enumerate(records.worker) if worker == machine]
        for task in tasks:
            assert any(on <= records.start_us[task] and records.finish_us[task] <= off_ for on, off_ in ons)
        interval = int(billing_s) * SECOND
        for begin, until in spans:
            if begin < end:
                last = min(until, end)
                paid = -(-(last - begin) // interval) * interval if interval else last - begin
                cost += paid / SECOND / 3600 * (0.5 + cores)
    summary = provisioning_summary(records, MACHINES)
    assert summary is not None
    assert summary.cost == pytest.approx(cost)
