"""Stages T6, T8 and J7: reports on running tasks, reclaimed room, and the deletion of files."""

from __future__ import annotations

from collections import Counter
from operator import ge

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.architectures.pipeline.runs import cores_cluster, job_of, run, starts, trace_of_rows
from tests.unit.architectures.pipeline.test_recovery import crashed

from volery.architectures import configure, lookup
from volery.architectures.pipeline.monitor import Monitor, ReclaimedRoom
from volery.architectures.pipeline.policies import Waiting
from volery.architectures.pipeline.policies.tasks import EndOverrun, Reclaim
from volery.core.errors import InputError
from volery.core.model import SECOND, Amounts, Cluster, Time
from volery.core.streams import Streams
from volery.faults import draw, run_scenario

TWO = cores_cluster(4, 4)
HALF_USED = {"use_least": "0.3", "use_most": "0.3"}


def test_a_machine_is_taken_until_the_files_of_a_task_are_deleted_and_its_end_is_reported_before() -> None:
    """2,000 files at 1,000 a second: the third job waits until 12 s, and a child of a task starts at 10 s elsewhere."""
    rows = trace_of_rows([(0, 4, 10), (0, 4, 10), (1, 4, 10)])
    assert starts(run("pipeline", rows, TWO, T8="delete/files:2000")) == [0, 0, 12]
    flow = job_of([10, 10, 10], [(), (0,), (1,)])
    assert starts(run("pipeline", flow, Cluster.uniform(2), T8="delete/files:2000")) == [0, 10, 20]
    assert starts(run("pipeline", flow, Cluster.uniform(1), T8="delete/files:2000")) == [0, 12, 24]


def test_files_of_a_job_count_against_its_user_until_they_are_deleted() -> None:
    rows = trace_of_rows([(0, 1, 10), (0, 1, 10), (0, 1, 10)], users=("ann", "ann", "bob"))
    assert starts(run("pipeline", rows, TWO, J2="per-user", J7="delete/files:5000")) == [0, 15, 0]


def test_a_task_that_overruns_is_ended_once_and_begins_again() -> None:
    """Expected for 10 s: at the first report after 20 s it is ended, and its second attempt may last."""
    records = run("pipeline", trace_of_rows([(0, 4, 100, 10)]), TWO, T6="overrun/period_s:1/factor:2")
    assert (starts(records), records.attempt[0]) == ([21], 1)
    assert records.counters["overruns"] == 1


def test_borg_gives_away_what_is_reserved_and_not_used_below_the_production_band_alone() -> None:
    """Two production tasks reserve both machines and use 30 %; with the margin 60 % can be given away, 2 of 4 cores."""
    rows = [(0, 4, 1000), (0, 4, 1000), (1, 2, 100), (1, 2, 100), (1, 2, 100)]
    priority = (10, 10, 0, 0, 10)
    kept = run("borg", trace_of_rows(rows, priority=priority), TWO)
    assert starts(kept)[2:] == [1000, 1000, 1000]
    records = run("borg", trace_of_rows(rows, priority=priority), TWO, T6="reclaim/settle_s:60", **HALF_USED)
    assert starts(records)[2:] == [140, 140, 1000], "60 s of settling, then 20 % of the distance each 10 s"
    assert records.counters["reclaimed_starts"] == 2


def test_a_task_moves_into_free_room_before_it_would_have_to_end() -> None:
    """The production task ends at 300 s, and with it what it did not use; its own room is free then."""
    rows = trace_of_rows([(0, 4, 300), (1, 2, 1000)], priority=(10, 0))
    records = run("borg", rows, cores_cluster(4), T6="reclaim/settle_s:0", **HALF_USED)
    assert starts(records) == [0, 90]
    assert not records.lost


def test_tasks_on_reclaimed_room_end_when_others_use_more_again() -> None:
    rows = trace_of_rows([(0, 4, 2000), (1, 1, 500)], priority=(10, 0))
    given = {"use_least": "0.1", "use_most": "1", "use_jumps": "0.1"}
    records = run("borg", rows, cores_cluster(4), T6="reclaim/settle_s:0", **given)
    assert records.counters["reclaimed_ends"] >= 1
    assert len(records.lost) == records.counters["reclaimed_ends"]


def test_room_that_preemption_makes_is_not_taken_by_tasks_on_reclaimed_room() -> None:
    """At 200 s the higher band takes the place of the task that reserves; what ran on its rest has to end."""
    rows = trace_of_rows([(0, 4, 500), (1, 1, 300), (1, 1, 300), (200, 4, 100)], priority=(9, 0, 0, 200))
    records = run("borg", rows, cores_cluster(4), T6="reclaim/settle_s:0", T10="priority", **HALF_USED)
    assert starts(records)[3] == 200
    assert (records.attempt[0], records.counters["reclaimed_ends"]) == (1, 2)


@pytest.mark.parametrize(
    ("use", "run_us", "reserved", "then"),
    [(300, 0, 1000, 1000), (300, 300 * SECOND, 1000, 880), (300, 300 * SECOND, 401, 400), (700, 0, 400, 800)],
)
def test_a_reservation_falls_slowly_and_rises_at_once(use: int, run_us: int, reserved: int, then: int) -> None:
    running = type("Reported", (), {"use": use, "run_us": run_us, "reserved": reserved})
    assert Reclaim().reserved(None, running) == then  # type: ignore[arg-type]  # policies read these fields alone


def test_the_machine_of_a_reported_task_may_fail_while_others_run_on_reclaimed_room() -> None:
    rows = trace_of_rows([(0, 4, 1000), (1, 2, 100)], priority=(10, 0))
    records = crashed(rows, cores_cluster(4), (150, 0, 160), T6="reclaim/settle_s:0", **HALF_USED)
    assert Counter(records.attempt) == {1: 2}


@pytest.mark.parametrize(
    "given",
    [
        {"T8": "delete/files:300"},
        {"T6": "overrun/period_s:0.2/factor:1.5"},
        {"J7": "delete/files:300", "J2": "flow-control"},
    ],
)
def test_storms_with_reports_and_files(given: dict[str, str]) -> None:
    pipeline = lookup("pipeline")
    conformance = msgspec.structs.replace(pipeline.conformance, tags="")  # none of these goes with tags
    pipeline = msgspec.structs.replace(pipeline, conformance=conformance)
    for seed in range(12):
        scenario = draw(pipeline, seed)
        run_scenario(pipeline, msgspec.structs.replace(scenario, parameters={**scenario.parameters, **given}))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"T6": "reclaim", "T3": "easy"}, "taken back"),
        ({"T6": "reclaim", "T9": "fixed"}, "taken back"),
        ({"use_least": "0.5", "use_most": "0.2"}, "lower it"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, str], problem: str) -> None:
    pipeline = lookup("pipeline")
    with pytest.raises(InputError, match=problem):
        pipeline.build(TWO, configure(pipeline, given), Streams(0))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 4), st.integers(-2, 4), st.booleans()), max_size=60),
    st.integers(0, 63),
)
def test_the_machine_with_the_most_reclaimed_room_is_the_one_that_a_look_at_all_finds(
    changes: list[tuple[int, int, int, bool]], among: int
) -> None:
    """Room that has shrunk unseen is met as such."""
    truth = [(0, 0)] * 6
    room = ReclaimedRoom(truth.__getitem__, 63, 2, 1)
    for machine, a, b, shrinks in changes:
        before = truth[machine]
        truth[machine] = (min(a, before[0]), min(b, before[1])) if shrinks else (a, b)
        if not shrinks:
            room.measure(machine)
        for asked in ((0, 0), (1, 0), (1, 2), (2, 1)):
            fits = [k for k in range(6) if among >> k & 1 and all(map(ge, truth[k], asked))]
            assert room.largest(asked, among) == max(fits, key=lambda k: (truth[k][1], -k), default=-1)


def test_placing_on_reclaimed_room_does_not_look_at_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, per_task = 0, []
    room_on, place = Monitor._room_on, Monitor.place

    def counted(monitor: Monitor, machine: int) -> Amounts:
        nonlocal looks
        looks += 1
        return room_on(monitor, machine)

    def placed(monitor: Monitor, waiting: Waiting, among: int, now: Time) -> bool:
        before = looks
        found = place(monitor, waiting, among, now)
        per_task.append(looks - before)
        return found

    monkeypatch.setattr(Monitor, "_room_on", counted)
    monkeypatch.setattr(Monitor, "place", placed)
    rows = trace_of_rows([(0, 4, 1000)] * 60 + [(1, 2, 100)] * 30, priority=[10] * 60 + [0] * 30)
    records = run("borg", rows, cores_cluster(*[4] * 60), T6="reclaim/period_s:100/settle_s:0", **HALF_USED)
    assert records.counters["reclaimed_starts"] == 30
    assert max(per_task) < 30, "those on which others were placed since the last report"


def test_nothing_is_reclaimed_of_slots_so_that_is_refused() -> None:
    pipeline = lookup("pipeline")
    with pytest.raises(InputError, match=r"pipeline:T6: 'reclaim/settle_s:60' .* slots alone; give"):
        pipeline.build(Cluster.uniform(2), configure(pipeline, {"T6": "reclaim/settle_s:60"}), Streams(0))
    assert pipeline.build(cores_cluster(4), configure(pipeline, {"T6": "reclaim"}), Streams(0)).components


def test_only_a_first_attempt_overruns() -> None:
    task = {"start_us": 0, "expected_end_us": SECOND, "run_us": 4 * SECOND}
    first, second = [type("Reported", (), task | {"attempt": attempt}) for attempt in (0, 1)]
    assert EndOverrun().ends(None, first)  # type: ignore[arg-type]  # policies read these fields alone
    assert not EndOverrun().ends(None, second)  # type: ignore[arg-type]  # policies read these fields alone
