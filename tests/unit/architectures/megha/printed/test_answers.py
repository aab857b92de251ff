"""Answers of a Local Master to launches (arXiv 2103.08413, section IV-A), and ends that wait for an update."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.megha.amounts.test_vectors import BIG, CLUSTER, SMALL, WHOLE, free_in
from tests.unit.architectures.parts import Alone, messages, tasks
from tests.unit.effects import TimerSet

from volery.architectures.megha.messages import Refusal, Request, StateUpdate, TasksEnded
from volery.core.events import TimerFired
from volery.core.model import Cluster, Message, Task
from volery.roles.node import Completed, Launch


def lm(design: str = "megha-2021", cluster: Cluster = CLUSTER, **parameters: Any) -> Alone:
    """One LM of two GMs: node/0 and node/1 are gm/0's partition 0, node/2 and node/3 gm/1's partition 1."""
    return Alone(design, "lm/0", cluster, **{"gms": 2, "lms": 1, **parameters})


def asked(number: int, position: int, task: int, request: Any = BIG) -> Request:
    """A request of a task of job 1 for a machine of partition 0."""
    return Request(number, 0, (Task(task, 1, request=request),), (position,))


def test_a_launch_has_no_answer_by_default() -> None:
    assert [type(message) for _, message in messages(lm().hear(asked(1, 0, 10), "gm/0"), Message)] == [Launch]


def test_each_answer_to_a_launch_shows_what_others_have_taken() -> None:
    master = lm(answers="all")
    master.hear(asked(1, 1, 10), "gm/1")
    (answer,) = messages(master.hear(asked(1, 0, 20), "gm/0"), StateUpdate)
    assert answer[0] == "gm/0"
    assert answer[1].last_request == 1
    assert free_in(answer[1]) == {0: [(1000, 7168), (1000, 7168)], 1: [WHOLE, WHOLE]}


def test_a_refusal_is_the_only_answer_to_a_request_that_is_refused() -> None:
    master = lm(answers="all")
    master.hear(asked(1, 0, 10), "gm/1")
    effects = master.hear(asked(1, 0, 20), "gm/0")
    assert len(messages(effects, Refusal)) == 1
    assert not messages(effects, StateUpdate)


def test_what_an_answer_has_shown_is_not_sent_with_the_heartbeat_again() -> None:
    master = lm(answers="all")
    master.hear(asked(1, 1, 10), "gm/1")
    master.hear(asked(1, 0, 20), "gm/0")
    updates = messages(master.hear(TimerFired("heartbeat"), "lm/0", 10_000_000), StateUpdate)
    assert [to for to, _ in updates] == ["gm/1"], "gm/0 has caused the last change itself"


@pytest.mark.parametrize(("launch", "answers"), [("asynchronous", 0), ("synchronous", 1)])
def test_an_answer_of_changes_is_sent_without_any_only_to_a_gm_that_waits_for_it(launch: str, answers: int) -> None:
    master = lm("megha", Cluster.uniform(4), answers="all", launch=launch)
    effects = master.hear(Request(1, 0, tasks(1, 0), (0,)), "gm/0")
    assert len(messages(effects, StateUpdate)) == answers


def test_answers_of_changes_on_slots_show_what_others_have_taken() -> None:
    master = lm("megha", Cluster.uniform(4), answers="all")
    master.hear(Request(1, 0, tasks(1, 0), (1,)), "gm/1")
    ((_, update),) = messages(master.hear(Request(1, 0, tasks(2, 0), (0,)), "gm/0"), StateUpdate)
    assert [(change.partition, change.freed, change.taken) for change in update.changes] == [(0, b"", b"\x02")]


def test_a_gm_that_waits_is_answered_without_a_state_where_only_refusals_carry_one() -> None:
    effects = lm(launch="synchronous").hear(asked(1, 0, 10), "gm/0")
    assert messages(effects, TasksEnded) == [("gm/0", TasksEnded((), 1))]
    assert not messages(effects, StateUpdate)


@pytest.mark.parametrize("answers", ["refusals", "all"])
def test_ends_wait_for_the_next_update(answers: str) -> None:
    master = lm(answers=answers, completion_notice="with-updates")
    master.hear(asked(1, 0, 10, SMALL), "gm/0")
    effects = master.hear(Completed(10, 0), "node/0", 5_000)
    assert not messages(effects, TasksEnded)
    assert not [effect for effect in effects if isinstance(effect, TimerSet) and effect.key == "notices"]
    heartbeat = master.hear(TimerFired("heartbeat"), "lm/0", 10_000_000)
    assert ("gm/0", TasksEnded((10,), 1)) in heartbeat


def test_an_answer_is_an_update_that_brings_ends() -> None:
    master = lm(answers="all", completion_notice="with-updates")
    master.hear(asked(1, 0, 10, SMALL), "gm/0")
    master.hear(Completed(10, 0), "node/0", 5_000)
    effects = master.hear(asked(2, 1, 11, SMALL), "gm/0", 6_000)
    kinds = [type(message) for to, message in messages(effects, Message) if to == "gm/0"]
    assert kinds == [TasksEnded, StateUpdate], "the end first: the state contains it"


def test_ends_on_slots_come_before_the_update_that_contains_them() -> None:
    master = lm("megha", Cluster.uniform(4), completion_notice="with-updates")
    master.hear(Request(1, 0, tasks(1, 0), (0,)), "gm/0")
    master.hear(Request(1, 0, tasks(2, 0), (1,)), "gm/1")
    master.hear(Completed(100, 0), "node/0", 5_000)
    effects = master.hear(TimerFired("heartbeat"), "lm/0", 10_000_000)
    kinds = [type(message) for to, message in messages(effects, Message) if to == "gm/0"]
    assert kinds == [TasksEnded, StateUpdate]
