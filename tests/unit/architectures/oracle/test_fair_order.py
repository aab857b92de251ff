"""The yardstick that lets users take turns."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import Alone, messages, submit

from volery.architectures import configure, lookup
from volery.core.errors import InputError
from volery.core.events import Cancel, Submit
from volery.core.model import SECOND, Cluster, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.roles.node import Completed, Launch
from volery.sim import Options, simulate
from volery.workload import deal_to_users, load_trace

WEAK, STRONG = 0b01, 0b11
QUEUES = {"q1": 10, "q2": 25, "q3": 15, "q4": 50}


def of(user: str, job: int, *constraints: int) -> Submit:
    message = submit(job, *constraints)
    return msgspec.structs.replace(message, job=msgspec.structs.replace(message.job, user=user))


def launched(effects: list[Any]) -> list[int]:
    return [message.task.id for _, message in messages(effects, Launch)]


def busy_slots(trace: Trace, records: Records, low: Time, high: Time) -> dict[str, float]:
    """Per user, how many of its tasks run at once, over time."""
    busy: Counter[str] = Counter()
    for task, job in enumerate(trace.job_of_task()):
        end = records.finish_us[task]
        busy[trace.user[job]] += max(0, min(end, high) - max(end - trace.duration_us[task], low))
    return {user: time_us / (high - low) for user, time_us in busy.items()}


def scheduler(machines: tuple[int, ...] = (WEAK, WEAK), **parameters: str) -> Alone:
    given: dict[str, Any] = {"order": "drf"} | parameters
    return Alone("oracle", "oracle/0", Cluster(machines, (1,) * len(machines)), **given)


@pytest.mark.parametrize("order", ["drf", "hdrf"])
def test_a_freed_slot_goes_to_the_poorest_user_and_not_to_the_oldest_task(order: str) -> None:
    oracle = scheduler(order=order)
    oracle.hear(of("ann", 1, WEAK, WEAK, WEAK))
    oracle.hear(of("bob", 2, WEAK, WEAK))
    assert launched(oracle.hear(Completed(100), "node/0")) == [200], "bob has nothing, ann one"
    assert launched(oracle.hear(Completed(200), "node/0")) == [201]
    assert launched(oracle.hear(Completed(101), "node/1")) == [102], "bob has one, ann nothing"


def test_weights_count() -> None:
    oracle = scheduler((0,) * 6, shares="ann:2+bob:1")
    oracle.hear(of("cid", 1, *[0] * 6))
    oracle.hear(of("ann", 2, *[0] * 9))
    oracle.hear(of("bob", 3, *[0] * 9))
    served = [task for number in range(100, 106) for task in launched(oracle.hear(Completed(number), "node/0"))]
    assert Counter(task // 100 for task in served) == {2: 4, 3: 2}


def test_a_user_whose_tasks_do_not_fit_the_slot_is_passed_over_and_not_forgotten() -> None:
    for order in ("drf", "hdrf"):
        oracle = scheduler((WEAK, STRONG), order=order)
        oracle.hear(of("cid", 1, WEAK, STRONG))
        oracle.hear(of("ann", 2, STRONG))
        oracle.hear(of("bob", 3, WEAK, WEAK))
        assert launched(oracle.hear(Completed(100), "node/0")) == [300], "ann's turn, but her task needs the other"
        assert launched(oracle.hear(Completed(101), "node/1")) == [200]


def test_cancelled_tasks_give_up_their_turn() -> None:
    oracle = scheduler()
    oracle.hear(of("ann", 1, WEAK, WEAK))
    oracle.hear(of("bob", 2, WEAK))
    oracle.hear(of("cid", 3, WEAK))
    oracle.hear(Cancel(2))
    assert launched(oracle.hear(Completed(100), "node/0")) == [300]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"order": "fifo", "shares": "a"}, "has no shares"),
        (
            {"order": "fifo", "patience_s": "1"},
            "oracle:patience_s: needs order=drf or order=hdrf: first come first served has no turns",
        ),
        ({"order": "drf", "shares": "a+b(c)"}, "takes no tree of shares; give order=hdrf"),
        ({"order": "drf", "hierarchy": "naive"}, "oracle:hierarchy: needs order=hdrf"),
        ({"order": "hdrf", "hierarchy": "collapsed", "patience_s": "1"}, "oracle:hierarchy: needs order=hdrf"),
        ({"order": "hdrf", "shares": "a:0"}, "oracle:shares.a.weight: 0 is not a weight"),
    ],
)
def test_shares_that_the_order_cannot_use_are_refused(parameters: dict[str, str], problem: str) -> None:
    oracle = lookup("oracle")
    with pytest.raises(InputError) as caught:
        oracle.build(Cluster.uniform(2), configure(oracle, parameters), Streams(0))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "due"),
    [
        ({"order": "drf", "shares": "q1:10+q2:25+q3:15+q4:50"}, QUEUES),
        ({"order": "hdrf", "shares": "web:40(q2:25+q3:15)+dev:60(q1:10+q4:50)"}, QUEUES),
        ({"order": "drf"}, dict.fromkeys(QUEUES, 25)),
    ],
)
def test_under_contention_every_user_has_its_share_of_the_slots(
    parameters: dict[str, str], due: dict[str, int]
) -> None:
    """Within 2 % over time, from when the first tasks have ended to when the first user runs out of work."""
    trace = deal_to_users(load_trace("poisson:load=50,workers=100,jobs=2000,fanout=20,mean=1"), "q1+q2+q3+q4", seed=1)
    oracle, cluster = lookup("oracle"), Cluster.uniform(100)
    deployment = oracle.build(cluster, configure(oracle, parameters), Streams(0))
    records = simulate(deployment, trace, cluster, options=Options(check=False))
    busy = busy_slots(trace, records, 20 * SECOND, 120 * SECOND)
    for user, percent in due.items():
        assert abs(busy[user] - percent) < 0.02 * percent, (user, busy)


@pytest.mark.parametrize("order", ["drf", "hdrf"])
def test_users_of_different_resources_have_equal_dominant_shares(order: str) -> None:
    """The DRF paper's example (D1), twenty times as large and under churn: two thirds of memory, two thirds of CPUs."""
    trace = deal_to_users(load_trace("poisson:load=50,workers=100,jobs=4000,fanout=10,mean=1"), "A+B", seed=1)
    requests = [0 if trace.user[job] == "A" else 1 for job in trace.job_of_task()]
    names = ("cpu", "memory_mb")
    trace = msgspec.structs.replace(trace, resources=names, requests=((1, 4), (3, 1)), request=array("H", requests))
    cluster = msgspec.structs.replace(Cluster.uniform(1), resources=names, capacities=((180, 360),))
    oracle = lookup("oracle")
    deployment = oracle.build(cluster, configure(oracle, {"order": order}), Streams(0))
    records = simulate(deployment, trace, cluster)
    low, high = 20 * SECOND, 120 * SECOND
    tasks = busy_slots(trace, records, low, high)
    assert abs(tasks["A"] * 4 / 360 - 2 / 3) < 0.02
    assert abs(tasks["B"] * 3 / 180 - 2 / 3) < 0.02
