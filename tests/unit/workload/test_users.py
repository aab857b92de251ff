"""Jobs are dealt to users by weight."""

from __future__ import annotations

from collections import Counter

import pytest

from volery.core.errors import InputError
from volery.workload import deal_to_users, load_trace

QUEUES = "q1:10+q2:25+q3:15+q4:50"


def test_users_get_their_part_of_the_jobs() -> None:
    trace = deal_to_users(load_trace("syn:1x20000"), QUEUES, seed=3)
    jobs = Counter(trace.user)
    for user, percent in (("q1", 10), ("q2", 25), ("q3", 15), ("q4", 50)):
        assert abs(jobs[user] / 20_000 - percent / 100) < 0.01  # three standard deviations


def test_the_first_jobs_have_the_same_users_however_many_follow() -> None:
    long, short = (deal_to_users(load_trace(f"syn:1x{jobs}"), QUEUES, seed=3).user for jobs in (500, 100))
    assert long[:100] == short
    assert deal_to_users(load_trace("syn:1x500"), QUEUES, seed=4).user != long


def test_without_users_the_trace_stays_as_it_is() -> None:
    trace = load_trace("syn:2x3")
    assert deal_to_users(trace, None, seed=1) is trace
    assert set(deal_to_users(trace, "ann", seed=1).user) == {"ann"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:1+", "'' in 'a:1+' is not NAME:WEIGHT"),
        ("a:0", "with a weight from 1"),
        ("a:x", "is not NAME:WEIGHT"),
        ("a:1+a:2", "'a' stands in 'a:1+a:2' twice"),
        ("+".join(f"u{i}" for i in range(100_001)), "at most 100000"),
    ],
)
def test_what_is_not_a_list_of_users_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match="users") as caught:
        deal_to_users(load_trace("syn:2x3"), text, seed=1)
    assert problem in str(caught.value)
