"""Fair orders of stage T2 on a machine that is filled at once: DRF, H-DRF, use, and turns inside a priority."""

from __future__ import annotations

from array import array
from collections import Counter
from random import Random

import pytest
from tests.unit.architectures.pipeline.runs import run

from volery.core.model import NEVER, SECOND, Amounts, Cluster
from volery.core.trace import Trace


def all_at_once(demands: dict[str, Amounts], durations_us: list[int]) -> Trace:
    """A job of each user, all at once, with tasks of these durations."""
    users, each = list(demands), len(durations_us)
    return Trace(
        "fair",
        array("q", [0] * len(users)),
        array("q", [each * k for k in range(len(users) + 1)]),
        array("q", durations_us * len(users)),
        array("q", [SECOND] * len(users)),
        user=tuple(users),
        resources=tuple(f"r{k}" for k in range(len(next(iter(demands.values()))))),
        requests=tuple(demands.values()),
        request=array("H", [k for k in range(len(users)) for _ in range(each)]),
    )


def first_cycle(
    capacity: Amounts, demands: dict[str, Amounts], each: int, order: str, stage: str = "T2"
) -> dict[str, int]:
    """How many tasks of each user run after one cycle in which all want much more than there is."""
    users, trace = list(demands), all_at_once(demands, [1000 * SECOND] * each)
    cluster = Cluster((0,), (1,), "one", trace.resources, (capacity,))
    records = run("pipeline", trace, cluster, cycle_s="10", **{stage: order})
    first = min(at for at in records.start_us if at != NEVER)
    started = Counter(users[task // each] for task, at in enumerate(records.start_us) if at == first)
    return {user: started[user] for user in users}


def test_drf_gives_equal_dominant_shares() -> None:
    """NSDI 2011, section 4.1: <9 CPU, 18 GB>, A <1, 4>, B <3, 1>: 3 and 2 tasks; with weights 2 : 1 A has 4."""
    demands: dict[str, Amounts] = {"a": (1, 4), "b": (3, 1)}
    assert first_cycle((9, 18), demands, 9, "drf") == {"a": 3, "b": 2}
    assert first_cycle((9, 18), demands, 9, "drf/shares:a:2+b:1") == {"a": 4, "b": 1}


def test_hdrf_gives_what_a_branch_does_not_use_to_its_siblings() -> None:
    """The slides of H-DRF: 10 CPU, 10 GPU; n1 <0, 1>, n2 of n21 <1, 0> and n22 <0, 1>: 5 GPU, 10 CPU, 5 GPU."""
    demands: dict[str, Amounts] = {"n1": (0, 1), "n21": (1, 0), "n22": (0, 1)}
    assert first_cycle((10, 10), demands, 15, "hdrf/shares:n1:1+n2:1(n21:1+n22:1)") == {"n1": 5, "n21": 10, "n22": 5}


def test_hdrf_keeps_weights_of_branches() -> None:
    """40 of both; n1 <1, 1> with weight 1, n2 with weight 3 of n21 <1, 0> and n22 <0, 1>: 10, 30, 30."""
    demands: dict[str, Amounts] = {"n1": (1, 1), "n21": (1, 0), "n22": (0, 1)}
    assert first_cycle((40, 40), demands, 45, "hdrf/shares:n1:1+n2:3(n21:1+n22:1)") == {"n1": 10, "n21": 30, "n22": 30}


def test_users_share_alike_by_turns_and_by_use() -> None:
    demands: dict[str, Amounts] = {"a": (1,), "b": (1,), "c": (1,)}
    assert first_cycle((9,), demands, 9, "bands") == {"a": 3, "b": 3, "c": 3}
    assert first_cycle((9,), demands, 9, "usage") == {"a": 3, "b": 3, "c": 3}
    assert first_cycle((9,), demands, 9, "fifo") == {"a": 9, "b": 0, "c": 0}


def test_jobs_can_be_ordered_fairly_as_tasks_can() -> None:
    demands: dict[str, Amounts] = {"a": (1, 4), "b": (3, 1)}
    assert first_cycle((9, 18), demands, 9, "drf", "J3") == {"a": 3, "b": 2}
    assert first_cycle((9, 18), demands, 9, "fifo", "J3") == {"a": 4, "b": 1}


@pytest.mark.parametrize(("whole", "little"), [(20_000, 0), (20_500, 0), (20_000, 1)])
def test_hdrf_starves_nobody_as_tasks_end_whatever_crumbs_they_leave(whole: int, little: int) -> None:
    """H1 under churn, and with half a task left over of each resource, or a little of the other in each task."""
    demands: dict[str, Amounts] = {"n1": (little, 1000), "n21": (1000, little), "n22": (little, 1000)}
    stream = Random(7)
    trace = all_at_once(demands, [stream.randrange(SECOND // 2, 2 * SECOND) for _ in range(150)])
    cluster = Cluster((0,), (1,), "one", trace.resources, ((whole, whole),))
    records = run("pipeline", trace, cluster, T2="hdrf/shares:n1:1+n2:1(n21:1+n22:1)")
    ended = Counter(job for job, at in zip(trace.job_of_task(), records.finish_us, strict=True) if at < 9 * SECOND)
    assert ended[2] > 0.7 * ended[0], ended
