"""A proxy alone: what it asks of whom, and what it makes of containers that come late, in vain, or not at all."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
from tests.unit.architectures.parts import Alone, messages, submit

from volery.architectures.hydra.messages import (
    Completed,
    Container,
    ContainerRequest,
    Directory,
    Grant,
    Hosted,
    Kill,
    NodeDead,
    Refused,
    Release,
    Start,
)
from volery.architectures.hydra.proxy import proportional
from volery.core.events import Cancel, JobDone, MoreTasks
from volery.core.model import Cluster, Task

CLUSTER = Cluster((1, 1, 0, 0), (1,) * 4)
"""Machines 0 and 1 in sub-cluster 0 satisfy a constraint, 2 and 3 in sub-cluster 1 do not."""
ROUTER = "router/0"


def proxy(**parameters: Any) -> Alone:
    return Alone("hydra", "proxy/0/0", CLUSTER, subclusters=2, **parameters)


def hosted(job: int, *constraints: int) -> Hosted:
    return Hosted(submit(job, *constraints).job)


def container(number: int, machine: int, job: int = 0, mask: int = 0) -> Container:
    return Container(number, machine, 0, job, mask)


def asks(effects: list[Any]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return {to: (ask.masks, ask.counts) for to, ask in messages(effects, ContainerRequest)}


def started(effects: list[Any]) -> dict[str, int]:
    return {to: start.task.id for to, start in messages(effects, Start)}


def test_an_ask_spans_subclusters_and_excess_is_withdrawn_and_released() -> None:
    one = proxy()
    assert asks(one.hear(hosted(0, 0, 0, 0), ROUTER)) == {"rm/0": ((0,), (2,)), "rm/1": ((0,), (2,))}
    effects = one.hear(Grant(1, (container(1, 0), container(2, 1)), 0), "rm/0")
    assert started(effects) == {"node/0": 0, "node/1": 1}
    assert asks(effects) == {"rm/1": ((0,), (-1,))}, "one task is left, two containers are asked for"
    effects = one.hear(Grant(1, (container(7, 2), container(8, 3)), 0), "rm/1")
    assert started(effects) == {"node/2": 2}
    assert messages(effects, Release) == [("rm/1", Release((8,)))]


def test_a_repeated_grant_starts_nothing_twice() -> None:
    one = proxy()
    one.hear(hosted(0, 0, 0), ROUTER)
    assert started(one.hear(Grant(1, (container(1, 0),), 0), "rm/0"))
    assert not one.hear(Grant(1, (container(1, 0),), 0), "rm/0")


def test_only_subclusters_with_such_machines_are_asked() -> None:
    one = proxy()
    assert asks(one.hear(hosted(0, 1, 1), ROUTER)) == {"rm/0": ((1,), (2,))}
    assert messages(one.hear(hosted(1, 2), ROUTER), JobDone) == [(ROUTER, JobDone(1, 1))]


def test_policies_ask_everybody_or_the_home_or_where_the_input_is() -> None:
    assert asks(proxy(split="broadcast").hear(hosted(0, 0, 0, 0), ROUTER)) == {
        "rm/0": ((0,), (3,)),
        "rm/1": ((0,), (3,)),
    }
    assert asks(proxy(split="home").hear(hosted(0, 0, 0, 0), ROUTER)) == {"rm/0": ((0,), (3,))}
    job = msgspec.structs.replace(hosted(0, 0, 0, 0).job, replicas=((2, 3), (0,), (3,)))
    one = proxy(split="locality")
    assert asks(one.hear(Hosted(job), ROUTER)) == {"rm/0": ((0,), (1,)), "rm/1": ((0,), (2,))}
    assert started(one.hear(Grant(1, (container(1, 1),), 0), "rm/0")) == {"node/1": 1}, "the task whose input is there"


def test_what_was_asked_of_a_lost_subcluster_is_asked_of_another() -> None:
    one = proxy(split="home")
    one.hear(hosted(0, 0, 0, 0), ROUTER)
    lost = Directory(1, (False, True), (1000, 1000), (0, 2))
    assert asks(one.hear(lost, "store/0")) == {"rm/0": ((0,), (-3,)), "rm/1": ((0,), (3,))}
    effects = one.hear(Grant(1, (container(1, 0),), 0), "rm/0")
    assert started(effects) == {"node/0": 0}, "one that was granted before is as good"
    assert asks(effects) == {"rm/1": ((0,), (-1,))}


def test_refused_or_dead_attempts_begin_again_and_late_news_of_them_are_ignored() -> None:
    one = proxy(split="home")
    one.hear(hosted(0, 0), ROUTER)
    one.hear(Grant(1, (container(1, 0),), 0), "rm/0")
    assert asks(one.hear(Refused(0, 0, 0), "node/0")) == {"rm/0": ((0,), (1,))}
    ((_, start),) = messages(one.hear(Grant(2, (container(2, 1),), 0), "rm/0"), Start)
    assert (start.task.id, start.attempt) == (0, 1)
    assert not one.hear(Refused(0, 0, 0), "node/0")
    assert asks(one.hear(NodeDead(1), "rm/0")) == {"rm/0": ((0,), (1,))}
    assert not one.hear(Completed(0, 0, 1, False), "node/1"), "it was given up, and runs again"
    one.hear(Grant(3, (container(3, 0),), 0), "rm/0")
    assert messages(one.hear(Completed(0, 0, 2, False), "node/0"), JobDone) == [(ROUTER, JobDone(0))]


def test_a_cancelled_job_wants_nothing_more() -> None:
    one = proxy(split="home")
    one.hear(hosted(0, 0, 0), ROUTER)
    one.hear(Grant(1, (container(1, 0),), 0), "rm/0")
    effects = one.hear(Cancel(0), ROUTER)
    assert messages(effects, Kill) == [("node/0", Kill(0, 0))]
    assert asks(effects) == {"rm/0": ((0,), (-1,))}
    assert messages(one.hear(Grant(2, (container(2, 1),), 0), "rm/0"), Release) == [("rm/0", Release((2,)))]
    assert messages(one.hear(Completed(0, 0, 0, True), "node/0"), JobDone) == [(ROUTER, JobDone(0))]


def test_a_router_that_has_begun_anew_may_know_of_more_tasks() -> None:
    one = proxy(split="home")
    whole = submit(0, 0, 0, 0).job
    known, more = (Hosted(msgspec.structs.replace(whole, tasks=whole.tasks[:count])) for count in (1, 2))
    assert asks(one.hear(known, ROUTER)) == {"rm/0": ((0,), (1,))}
    assert asks(one.hear(more, ROUTER)) == {"rm/0": ((0,), (1,))}, "one is new"
    assert not asks(one.hear(more, ROUTER))
    assert asks(one.hear(MoreTasks(0, 2, (Task(2, 0),)), ROUTER)) == {"rm/0": ((0,), (1,))}


def test_headroom_splits_an_ask_in_proportion_with_at_most_one_too_many_for_each() -> None:
    """ceil(n (a H + (1 - a) w)), LocalityMulticastAMRMProxyPolicy."""
    assert proportional(10, [0, 1, 2], [1000, 1000, 1000], {0: 50, 1: 30, 2: 20}, Fraction(1)) == {0: 5, 1: 3, 2: 2}
    assert proportional(10, [0, 1, 2], [1000, 500, 500], {}, Fraction(0)) == {0: 5, 1: 3, 2: 3}
    assert proportional(4, [0, 1], [1000, 0], {0: 0, 1: 0}, Fraction(1)) == {0: 2, 1: 2}, "nobody has room: equal"
    assert proportional(8, [0, 1], [1000, 1000], {0: 7}, Fraction(1)) == {0: 4, 1: 4}, "one has not answered yet"
    assert proportional(8, [0, 1], [3000, 1000], {0: 1, 1: 3}, Fraction(1, 2)) == {0: 4, 1: 4}


def test_a_full_subcluster_is_asked_for_nothing() -> None:
    assert proportional(3, [0, 1], [1000, 1000], {0: 0, 1: 9}, Fraction(1)) == {1: 3}
