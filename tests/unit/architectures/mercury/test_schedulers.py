"""The two schedulers of Mercury: kinds of containers, machines for them, and the coordinator's limits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, messages, submit

from volery.architectures import configure, lookup
from volery.architectures.mercury.node import (
    GuaranteedRequest,
    Heartbeat,
    Limit,
    Loads,
    Place,
    Returned,
    Revoke,
    Revoked,
    Start,
)
from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, TimerFired
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams

CENTRAL, SCHEDULER = "central/0", "scheduler/0"


def one(address: str, machines: int = 4, **parameters: Any) -> Alone:
    return Alone("mercury", address, Cluster((0,) * machines, (1,) * machines), schedulers=1, **parameters)


def kinds(containers: str, estimate_s: int = 1, **parameters: Any) -> tuple[int, int]:
    """How many of ten tasks get guaranteed containers, and how many queueable ones."""
    alone = one(SCHEDULER, containers=containers, **parameters)
    effects = alone.hear(submit(0, *[0] * 10, estimate_us=estimate_s * SECOND))
    asked = sum(len(request.tasks) for _, request in messages(effects, GuaranteedRequest))
    return asked, len(messages(effects, Place))


def test_the_policy_decides_the_kind_of_container() -> None:
    assert kinds("guaranteed") == (10, 0)
    assert kinds("queueable") == (0, 10)
    assert kinds("mixed", share=0.4) == (6, 4)
    assert kinds("hybrid", cutoff_s=2.0) == (0, 10)
    assert kinds("hybrid", cutoff_s=2.0, estimate_s=3) == (10, 0)


def test_queueable_containers_go_to_idle_nodes_first_and_then_to_the_least_wait() -> None:
    alone = one(SCHEDULER, containers="queueable", nodes_used=1)
    alone.hear(Loads((0, 1), (9 * SECOND, 2 * SECOND), (3, 0)), CENTRAL)
    sent = messages(alone.hear(submit(0, 0, 0, 0, estimate_us=3 * SECOND)), Place)
    assert sorted(to for to, _ in sent[:2]) == ["node/2", "node/3"]
    assert sent[2][0] == "node/1", "2 s there, 3 s on those that were idle"


def test_what_finds_every_queue_full_waits_for_news() -> None:
    alone = one(SCHEDULER, machines=1, containers="queueable", queue_max=2, queue_min=1)
    assert len(messages(alone.hear(submit(0, 0, 0, 0, 0)), Place)) == 3, "one to run, two to wait"
    assert len(messages(alone.hear(Loads((0,), (SECOND,), (1,)), CENTRAL), Place)) == 1


def test_a_node_that_sheds_gets_nothing_until_it_reports() -> None:
    alone = one(SCHEDULER, machines=1, containers="queueable")
    [(_, placed)] = messages(alone.hear(submit(0, 0)), Place)
    assert alone.hear(Returned(1, placed.task, 0, 1, True, 0, -1), "node/0") == []
    assert len(messages(alone.hear(Loads((0,), (0,), (-1,)), CENTRAL), Place)) == 1


def test_a_returned_container_of_a_cancelled_job_is_over() -> None:
    alone = one(SCHEDULER, machines=1, containers="queueable")
    [(_, placed)] = messages(alone.hear(submit(0, 0)), Place)
    alone.hear(Cancel(0))
    returned = Returned(1, placed.task, 0, 1, True, 0, -1)
    assert [told.job for _, told in messages(alone.hear(returned, "node/0"), JobDone)] == [0]


def test_a_cancelled_job_gives_its_guaranteed_containers_back() -> None:
    scheduler, coordinator = one(SCHEDULER, containers="guaranteed"), one(CENTRAL, machines=1)
    [(_, request)] = messages(scheduler.hear(submit(0, 0, 0)), GuaranteedRequest)
    assert len(messages(coordinator.hear(request, SCHEDULER), Start)) == 1
    [(_, revoke)] = messages(scheduler.hear(Cancel(0)), Revoke)
    [(_, revoked)] = messages(coordinator.hear(revoke, SCHEDULER), Revoked)
    assert revoked.tasks == (1,), "t0 runs, and is killed"
    assert not messages(scheduler.hear(revoked, CENTRAL), JobDone)


def test_a_guaranteed_container_avoids_busy_nodes_and_is_queued_only_behind_others_of_its_kind() -> None:
    alone = one(CENTRAL, machines=3)
    alone.hear(Heartbeat(1, SECOND, 0, ()), "node/0", now=1)
    alone.hear(Heartbeat(1, SECOND, 2, ()), "node/2", now=2)
    job = submit(0, 0, 0, 0, 0).job
    starts = messages(alone.hear(GuaranteedRequest(1, job.tasks), SCHEDULER, now=3), Start)
    assert starts[0][0] == "node/1"
    assert sorted(to for to, _ in starts) == ["node/0", "node/1", "node/2"]
    [(to, start)] = messages(alone.hear(Heartbeat(2, 0, -1, (job.tasks[0].id,)), "node/1", now=4), Start)
    assert (to, start.task.id) == ("node/1", 3)


def test_the_limit_goes_to_the_nodes_beyond_it_once() -> None:
    alone = one(CENTRAL, load="wait", limit_deviations=1.0)
    for machine, wait_s in enumerate((0, 0, 0, 8)):
        alone.hear(Heartbeat(1, wait_s * SECOND, 1, ()), f"node/{machine}")
    effects = alone.hear(TimerFired("sort"), now=0)
    assert [(to, limit.most) for to, limit in messages(effects, Limit)] == [("node/3", 5464101)], (
        "mean 2 s, deviation 3.46 s"
    )
    alone.hear(Heartbeat(2, 0, 1, ()), "node/0", now=SECOND)
    assert not messages(alone.hear(TimerFired("sort"), now=2 * SECOND), Limit), (
        "waits have become shorter by themselves"
    )


@pytest.mark.parametrize("lengths", [(0, 0, 0, 9), (9, 9, 9, 99)])
def test_a_limit_of_lengths_is_bounded(lengths: tuple[int, ...]) -> None:
    alone = one(CENTRAL, load="length", limit_deviations=0.0)
    for machine, length in enumerate(lengths):
        alone.hear(Heartbeat(1, 0, length, ()), f"node/{machine}")
    limits = messages(alone.hear(TimerFired("sort"), now=0), Limit)
    assert [(to, limit.most) for to, limit in limits] == [("node/3", 5 if lengths[0] == 0 else 15)]


def test_parameters_that_exclude_each_other_are_refused() -> None:
    mercury = lookup("mercury")
    for given in ({"queue_min": "20"}, {"heartbeat_s": "0.001"}):
        with pytest.raises(InputError, match=f"mercury:{next(iter(given))}"):
            mercury.build(Cluster.uniform(2000), configure(mercury, given), Streams(0))
