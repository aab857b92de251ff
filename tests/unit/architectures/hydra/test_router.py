"""A router alone: homes of jobs, and what is passed on to their hosts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import Alone, messages, submit

from volery.architectures.hydra.messages import Directory, Hosted, Locate, Located
from volery.architectures.hydra.router import by_hash, draw_weighted
from volery.core.events import Cancel, JobAccepted, JobDone, MoreTasks, Submit
from volery.core.model import Cluster, Task
from volery.core.streams import Streams

STORE = "store/0"
MORE = MoreTasks(0, 1, (Task(1, 0),))


def router(**parameters: Any) -> Alone:
    return Alone("hydra", "router/0", Cluster.uniform(4), subclusters=2, proxies=1, **parameters)


def home(effects: list[Any]) -> int:
    ((to, locate),) = messages(effects, Locate)
    assert to == STORE
    return int(locate.candidate)


def test_what_comes_before_the_home_is_known_is_handed_over_with_the_job() -> None:
    one, job = router(), submit(0, 0).job
    assert messages(one.hear(Submit(job)), Locate)
    assert not one.hear(MORE)
    assert one.hear(Located(0, 1), STORE) == [("proxy/1/0", Hosted(job)), ("proxy/1/0", MORE)]
    assert not one.hear(Located(0, 0), STORE), "the first answer counts"
    assert one.hear(Cancel(0)) == [("proxy/1/0", Cancel(0))]
    assert one.hear(Submit(job)) == [("proxy/1/0", Hosted(job))], "submitted again"


def test_answers_are_handed_back_and_a_job_that_is_done_is_answered_again() -> None:
    one, job = router(), submit(0, 0).job
    one.hear(Submit(job))
    one.hear(Located(0, 0), STORE)
    assert one.hear(JobAccepted(0), "proxy/0/0") == [("submitter", JobAccepted(0))]
    assert one.hear(JobDone(0), "proxy/0/0") == [("submitter", JobDone(0))]
    assert not one.hear(JobDone(0), "proxy/0/0"), "repeated"
    assert one.hear(Submit(job)) == [("submitter", JobAccepted(0)), ("submitter", JobDone(0))]
    one.component.check_rest()


def test_a_job_that_is_not_known_is_cancelled_at_once() -> None:
    one = router()
    assert one.hear(Cancel(7)) == [("submitter", JobDone(7))]
    assert one.hear(submit(7, 0)) == [("submitter", JobAccepted(7)), ("submitter", JobDone(7))], "it never runs"


def test_homes_by_load_weight_user_and_input() -> None:
    news = Directory(1, (True, True), (200, 800), (5, 1))
    by_load = router(routing="load")
    by_load.hear(news, STORE)
    assert home(by_load.hear(submit(0, 0))) == 0
    by_weight = router(routing="priority")
    by_weight.hear(news, STORE)
    assert home(by_weight.hear(submit(0, 0))) == 1
    one, other = (home(router(routing="hash").hear(submit(job, 0))) for job in (0, 1))
    assert one == other, "jobs of one user"
    near = msgspec.structs.replace(submit(0, 0).job, replicas=((3,),))
    assert home(router(routing="locality").hear(Submit(near))) == 1


def test_a_lost_subcluster_is_no_home() -> None:
    one = router(routing="priority")
    one.hear(Directory(1, (True, False), (0, 1000), (1, 1)), STORE)
    assert home(one.hear(submit(0, 0))) == 0


def test_draws_follow_weights_and_a_hash_always_says_the_same() -> None:
    random = Streams(0).of("router/0")
    drawn = [draw_weighted([0, 2], [1, 5, 3], random) for _ in range(4000)]
    assert drawn.count(2) / len(drawn) == pytest.approx(0.75, abs=0.03)
    assert set(drawn) == {0, 2}
    assert {draw_weighted([1, 2], [5, 0, 0], random) for _ in range(50)} == {1, 2}, "no weight at all: alike"
    assert len({by_hash([0, 1, 2], "web") for _ in range(9)}) == 1
    assert len({by_hash([0, 1, 2], f"user{k}") for k in range(20)}) == 3
