"""The account of preemption, on records written by hand."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.report.samples import sample_run

from volery.conformance.cases import trace_of
from volery.core.events import MILLIONTHS, Preemption, ShareChange
from volery.core.model import SECOND, Cluster
from volery.core.records import LostAttempt, Records
from volery.metrics.preemption import Loss, preemption_summary, taken_back, user_shares
from volery.report.groups import group_runs
from volery.report.sections import losses, returns

CLUSTER = Cluster.uniform(2)


def played(kept_us: int = 0) -> Records:
    """a runs on both machines; at 4 s b takes one of them for 4 s, and a's second task begins again at 8 s."""
    trace = msgspec.structs.replace(trace_of("t", [0, 0], [[10 * SECOND] * 2, [4 * SECOND]]), user=("a", "b"))
    records = Records(trace)
    for task, start_s, finish_s, worker in ((0, 0, 10, 0), (1, 8, 18 - kept_us // SECOND, 1), (2, 4, 8, 1)):
        records.start_us[task], records.finish_us[task] = start_s * SECOND, finish_s * SECOND
        records.worker[task] = worker
    records.attempt[1] = 1
    records.killed[1, 0] = 4 * SECOND
    records.lost.append(LostAttempt(1, 0, 1, 0, -1, kept_us))
    records.observe(Preemption(4 * SECOND, 1, 0, 2))
    return records


def test_the_account_says_who_lost_what_to_whom_and_what_ran_in_vain() -> None:
    account = preemption_summary(played(), CLUSTER)
    assert account is not None
    assert account.losses == (Loss("a", "b", 1, 4.0, {"slots": 4.0}),)
    assert (account.tasks, account.wasted_s, account.taken_back) == (1, 4.0, 0)
    assert account.wasted_fraction == pytest.approx(4 / 28)


@pytest.mark.parametrize(("due", "below"), [(MILLIONTHS // 2, 0), (MILLIONTHS // 2 + 1, 1)])
def test_who_is_left_with_less_than_its_share_is_counted_by_the_records(due: int, below: int) -> None:
    """a has one of two machines left, whatever the scheduler believed."""
    records = played()
    records.preemptions[0] = msgspec.structs.replace(records.preemptions[0], loser=ShareChange("a", due, 0, 0))
    account = preemption_summary(records, CLUSTER)
    assert account is not None
    assert account.below_due == below


def test_progress_that_is_kept_is_not_wasted() -> None:
    account = preemption_summary(played(kept_us=4 * SECOND), CLUSTER)
    assert account is not None
    assert (account.wasted_s, account.losses[0].tasks) == (0.0, 1)


def test_an_attempt_that_no_other_has_followed_ran_in_vain_too() -> None:
    """Its job was cancelled before the next one."""
    records = played()
    records.lost.clear()
    records.start_us[1], records.finish_us[1], records.attempt[1] = 0, -1, 0
    account = preemption_summary(records, CLUSTER)
    assert account is not None
    assert account.wasted_s == 4.0


def test_shares_are_of_each_users_dominant_resource() -> None:
    trace = msgspec.structs.replace(
        trace_of("t", [0, 0], [[SECOND], [SECOND]]),
        user=("a", "b"),
        resources=("cpu_milli", "gpus"),
        requests=((100, 3), (600, 0)),
        request=array("H", [0, 1]),
    )
    records = Records(trace)
    for task in (0, 1):
        records.start_us[task], records.finish_us[task], records.worker[task] = 0, SECOND, 0
    cluster = msgspec.structs.replace(Cluster.uniform(1), resources=("cpu_milli", "gpus"), capacities=((1000, 4),))
    assert user_shares(records, cluster, 0, 2 * SECOND) == {"a": 0.375, "b": 0.3}


def test_shares_are_time_averages_with_preempted_attempts() -> None:
    assert user_shares(played(), CLUSTER, 0, 8 * SECOND) == {"a": 0.75, "b": 0.25}
    assert user_shares(played(), CLUSTER, 4 * SECOND, 8 * SECOND) == {"a": 0.5, "b": 0.5}


def test_copies_that_ended_too_late_to_count_have_used_their_machine_too() -> None:
    """As in the utilisation of the same run."""
    records = played()
    records.lost.append(LostAttempt(2, 1, 0, 10 * SECOND, 14 * SECOND))
    assert user_shares(records, CLUSTER, 10 * SECOND, 14 * SECOND) == {"a": 0.5, "b": 0.5}


def test_a_run_without_preemption_has_no_account() -> None:
    records = played()
    records.preemptions.clear()
    assert preemption_summary(records, CLUSTER) is None


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([(0, 2), (2, 1)], [("a", "b")]),
        ([(0, 2), (2, 4), (4, 1)], [("a", "c")]),
        ([(0, 2), (3, 1)], []),
        ([(0, 2), (2, 4), (5, 3)], []),
    ],
    ids=["a lost it to b and took it back", "by way of c", "another place", "b took another place from c"],
)
def test_a_place_that_goes_back_to_a_loser_is_found(
    places: list[tuple[int, int]], found: list[tuple[str, str]]
) -> None:
    """Tasks 0 and 1 are a's, 2 and 3 b's, 4 and 5 c's."""
    events = [Preemption(at, task, 0, winner) for at, (task, winner) in enumerate(places)]
    assert taken_back(events, ["a", "a", "b", "b", "c", "c"]) == found


def test_the_tables_have_a_row_for_each_pair_of_users() -> None:
    account = preemption_summary(played(), CLUSTER)
    assert account is not None
    runs = [sample_run("x", seed) for seed in (0, 1)]
    runs = [msgspec.structs.replace(run, preemption=account) for run in runs]
    groups = group_runs(runs)
    assert losses(groups) == [[groups[0].label, "a", "b", "1.00", "4.00 s"]]
    assert returns(groups) == []
    moved = group_runs([msgspec.structs.replace(runs[0], preemption=msgspec.structs.replace(account, taken_back=2))])
    assert "2 places went back" in returns(moved)[0]
