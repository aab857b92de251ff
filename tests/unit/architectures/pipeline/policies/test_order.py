"""Stages J3 and T2: worked examples of every order."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from tests.unit.architectures.pipeline.policies.states import Made, cores, pairs

from volery.architectures.pipeline.policies import Policy, Turn
from volery.architectures.pipeline.policies.jobs import (
    Bands,
    ByJob,
    ByUsage,
    EarliestDeadline,
    Fifo,
    FifoJobs,
    LeastLeft,
    LeastWork,
    LongestJob,
    LongestTask,
    MostUrgent,
    PoorestBranch,
    PoorestUser,
    ShortestJob,
    ShortestTask,
    UpwardRank,
)
from volery.core.model import SECOND, Cluster
from volery.core.resources import SLOT


def turn(line: Hashable, served: int = 0, given: int = 0) -> Turn:
    return Turn(line, 1, served, given, SLOT)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ByJob(), [0, 1, 2]),
        (Fifo(), [0, 1, 2]),
        (FifoJobs(), [0, 1, 2]),
        (ShortestTask(), [2, 0, 1]),
        (LongestTask(), [1, 0, 2]),
        (LeastWork(), [0, 2, 1]),
        (ShortestJob(), [1, 0, 2]),
        (LongestJob(), [2, 0, 1]),
        (EarliestDeadline(), [2, 0, 1]),
        (UpwardRank(), [1, 0, 2]),
        (MostUrgent(), [1, 2, 0]),
    ],
)
def test_keys_sort_tasks(policy: Policy, expected: list[int]) -> None:
    """Three tasks of 2 s on 1 core, 5 s on 2, 1 s on 4; jobs of 5, 1 and 20 tasks; one without a deadline."""
    made = Made(cores(8))
    jobs = [
        made.job(0, estimate_us=2 * SECOND, task_count=5, deadline_us=90 * SECOND, priority=1),
        made.job(1, estimate_us=5 * SECOND, task_count=1, at=1, priority=7),
        made.job(2, estimate_us=1 * SECOND, task_count=20, at=2, deadline_us=80 * SECOND, priority=2),
    ]
    requests = ((1,), (2,), (4,))
    tasks = [made.wait(job, request, 0, job.estimate_us) for job, request in zip(jobs, requests, strict=True)]
    keys = [policy.key(made.view, task) for task in tasks]  # type: ignore[attr-defined]  # it is a keyed order
    assert sorted(range(3), key=keys.__getitem__) == expected


def test_the_job_with_the_least_left_is_next() -> None:
    made = Made(cores(8))
    made.job(0).left_us, made.job(1).left_us = 50, 40
    assert list(LeastLeft().turns(made.view, [turn(0), turn(1)])) == [1]
    made.state.jobs[0].left_us = 30
    assert list(LeastLeft().turns(made.view, [turn(0), turn(1)])) == [0]


def test_users_take_turns_inside_a_priority() -> None:
    """Borg: from high to low priority, round robin inside one."""
    made = Made(cores(8))
    lines = [turn((0, "x")), turn((9, "a"), served=4), turn((9, "b"), served=3)]
    assert list(Bands().turns(made.view, lines)) == [(9, "b")]
    assert Bands().line(made.wait(made.job(0, "a", priority=9), (1,))) == (9, "a")


def test_drf_serves_the_poorest_user() -> None:
    """NSDI 2011, section 4.1: of 9 CPU and 18 GB, A with tasks of <1, 4> gets 3, B with tasks of <3, 1> gets 2."""
    made = Made(pairs((9, 18)))
    demands = {"a": (1, 4), "b": (3, 1)}
    jobs = {"a": made.job(0, "a"), "b": made.job(1, "b")}
    order = []
    while lines := [turn(user) for user, asked in demands.items() if made.candidates_exist(jobs[user], asked)]:
        user = str(next(iter(PoorestUser().turns(made.view, lines))))
        made.run(jobs[user], 0, demands[user])
        order.append(user)
    assert sorted(order) == ["a", "a", "a", "b", "b"]
    assert made.view.used("a") == (3, 12)


def test_weights_and_trees_of_shares() -> None:
    made = Made(cores(30))
    for number, (user, units) in enumerate((("ann", 6), ("bob", 4), ("web", 7))):
        made.run(made.job(number, user), 0, (units,))
    lines = [turn("ann"), turn("bob"), turn("web")]
    assert list(PoorestUser().turns(made.view, lines)) == ["bob"]
    assert list(PoorestUser(shares="ann:3+bob:1+web:3").turns(made.view, lines)) == ["ann"]
    assert list(PoorestBranch(shares="web:1+dev:1(ann:1+bob:1)").turns(made.view, lines)) == ["web"]
    assert list(PoorestBranch(shares="web:1+dev:2(ann:1+bob:1)").turns(made.view, lines)) == ["bob"]
    with pytest.raises(ValueError, match="hdrf for a tree"):
        PoorestUser(shares="a:1+b:2(c:1)")
    with pytest.raises(ValueError, match="not a weight"):
        PoorestBranch(shares="a:0")


def test_effective_priorities_give_pie_slices_of_4_2_1() -> None:
    """HTCondor's manual: effective priorities 5, 10 and 20 have shares of 4 : 2 : 1."""
    made = Made(Cluster.uniform(14), half_life_us=86_400 * SECOND)
    for user, value in (("a", 5.0), ("b", 10.0), ("c", 20.0)):
        made.average(user, value)
    given = {"a": 0, "b": 0, "c": 0}
    for machine in range(14):
        lines = [turn(user, given=count) for user, count in given.items()]
        user = str(next(iter(ByUsage().turns(made.view, lines))))
        made.run(made.job(machine, user), machine)
        given[user] += 1
    assert given == {"a": 8, "b": 4, "c": 2}


def test_real_priorities_halve_with_the_half_life() -> None:
    """HTCondor's manual: a real priority of 10 is 5 after a day, and 2.5 after two, when nothing is used."""
    made = Made(Cluster.uniform(2), half_life_us=86_400 * SECOND)
    made.average("a", 10.0)
    found = []
    for days in (0, 1, 2, 30):
        made.state.now = days * 86_400 * SECOND
        found.append(made.view.average_use("a"))
    assert found == [10.0, 5.0, 2.5, 0.5]
