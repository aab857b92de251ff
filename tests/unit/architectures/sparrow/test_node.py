"""Node monitors alone, and the queues of users at one worker."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.unit.architectures.parts import Alone, launched, messages, tasks
from tests.unit.effects import Launched

from volery.architectures.sparrow.node import (
    Assign,
    FairShare,
    Place,
    Probe,
    QueueLength,
    StrictPriority,
    UserOrder,
    UserQueues,
)
from volery.core.events import TaskFinished
from volery.core.model import SECOND, Cluster
from volery.roles.reservations import Completed, Kill, NoTask, TaskRequest, Withdraw


def filled(order: UserOrder, *users: str) -> UserQueues:
    queues = UserQueues(order)
    for number, user in enumerate(users):
        queues.push(number, user)
    return queues


def test_strict_priority_serves_the_smallest_number_first_and_others_last() -> None:
    queues = filled(StrictPriority({"b": 1, "a": 2}), "x", "a", "b", "a", "b")
    assert [queues.pop() for _ in range(5)] == [2, 4, 1, 3, 0]
    assert len(queues) == 0


def test_fair_shares_follow_the_weights() -> None:
    queues = filled(FairShare({"a": 3.0}), *"ab" * 100)
    users = Counter("ab"[queues.pop() % 2] for _ in range(80))
    assert users == {"a": 60, "b": 20}


def test_a_user_who_comes_back_does_not_make_up_for_the_time_away() -> None:
    queues = filled(FairShare({}), *"a" * 50)
    for _ in range(40):
        queues.pop()
    for number in range(100, 110):
        queues.push(number, "b")
    first = [queues.pop() for _ in range(8)]
    assert sum(number >= 100 for number in first) == 4


def test_what_is_discarded_is_not_served() -> None:
    queues = filled(FairShare({}), "a", "b", "a")
    queues.discard(0)
    queues.discard(1)
    assert [queues.pop()] == [2]


ONE, TWO = "scheduler/0", "scheduler/1"
TASKS = tasks(0, *[0] * 6)
LONG = tasks(0, 0, estimate_us=5_000 * SECOND)[0]


def node(slots: int = 1, **parameters: Any) -> Alone:
    return Alone("sparrow", "node/0", Cluster((0,), (slots,)), schedulers=2, **parameters)


def test_an_idle_node_asks_at_once_and_keeps_the_slot_for_the_answer() -> None:
    alone = node()
    assert alone.hear(Probe(3, 10), ONE) == [(ONE, TaskRequest(10, 3, 1, 0))]
    assert alone.hear(Probe(4, 11), TWO) == []
    assert launched(alone.hear(Assign(1, TASKS[0]), ONE)) == [0]


def test_a_reservation_in_vain_makes_room_for_the_next() -> None:
    alone = node()
    alone.hear(Probe(3, 10), ONE)
    alone.hear(Probe(4, 11), TWO)
    assert alone.hear(NoTask(1), ONE) == [(TWO, TaskRequest(11, 4, 2, 0))]


def test_the_end_of_a_task_is_reported_to_its_scheduler_and_the_next_reservation_is_served() -> None:
    alone = node()
    alone.hear(Probe(3, 10), ONE)
    alone.hear(Assign(1, TASKS[0]), ONE)
    alone.hear(Probe(4, 11), TWO, now=100)
    said = alone.hear(TaskFinished(TASKS[0], 0), "node/0", now=700)
    assert said == [(ONE, Completed(0, 0)), (TWO, TaskRequest(11, 4, 2, 0))]
    assert alone.hear(Assign(2, TASKS[1]), TWO, now=1_700) == [Launched(TASKS[1], 0, 600)]


def test_repeated_answers_start_nothing() -> None:
    alone = node(slots=3)
    for number in (3, 4):
        alone.hear(Probe(number, 10), ONE)
    assert launched(alone.hear(Assign(1, TASKS[0]), ONE)) == [0]
    assert launched(alone.hear(Assign(2, TASKS[1]), ONE)) == [1]
    assert alone.hear(Assign(1, TASKS[0]), ONE) == []
    assert alone.hear(NoTask(2), ONE) == []


def test_a_withdrawn_reservation_is_dropped_unless_it_was_asked_for() -> None:
    alone = node()
    alone.hear(Probe(3, 10), ONE)
    alone.hear(Probe(4, 11), TWO)
    alone.hear(Withdraw(3), ONE)
    alone.hear(Withdraw(4), TWO)
    assert launched(alone.hear(Assign(1, TASKS[0]), ONE)) == [0]
    assert messages(alone.hear(TaskFinished(TASKS[0], 0), "node/0"), TaskRequest) == []


def test_every_slot_asks_for_itself() -> None:
    alone = node(slots=2)
    for number in (3, 4, 5):
        alone.hear(Probe(number, 10), ONE)
    assert launched(alone.hear(Assign(1, TASKS[0]), ONE)) == [0]
    assert messages(alone.hear(NoTask(2), ONE), TaskRequest) == [(ONE, TaskRequest(10, 5, 3, 0))]


def test_time_behind_long_tasks_is_told_with_the_request() -> None:
    alone = node()
    alone.hear(Probe(3, 10), ONE)
    alone.hear(Assign(1, LONG), ONE, now=1_000)
    alone.hear(Probe(4, 11), TWO, now=5_000)
    said = alone.hear(TaskFinished(LONG, 0), "node/0", now=9_000)
    assert messages(said, TaskRequest) == [(TWO, TaskRequest(11, 4, 2, 0, 4_000))]


def test_strict_priority_between_users() -> None:
    alone = node(queue="priority", priorities={"eve": 1, "ann": 2})
    alone.hear(Probe(3, 10), ONE)
    alone.hear(Probe(4, 11, "ann"), ONE)
    alone.hear(Probe(5, 12, "eve"), ONE)
    assert messages(alone.hear(NoTask(1), ONE), TaskRequest)[0][1].batch == 12


def test_without_late_binding_a_node_tells_its_length_and_queues_tasks() -> None:
    alone = node(late_binding=False)
    assert launched(alone.hear(Place(3, TASKS[0]), ONE)) == [0]
    assert alone.hear(Place(4, TASKS[2]), ONE, now=50) == []
    assert alone.hear(Place(4, TASKS[2]), ONE, now=60) == []
    assert alone.hear(Probe(5, 12), TWO) == [(TWO, QueueLength(12, 5, 2))]
    said = alone.hear(TaskFinished(TASKS[0], 0), "node/0", now=100)
    assert said == [(ONE, Completed(0, 0)), Launched(TASKS[2], 0, 50)]


def test_without_late_binding_a_killed_task_may_still_wait() -> None:
    alone = node(late_binding=False)
    alone.hear(Place(3, TASKS[0]), ONE)
    alone.hear(Place(4, TASKS[2]), ONE)
    assert alone.hear(Kill(2), ONE) == [(ONE, Completed(2, 0))]
    assert messages(alone.hear(TaskFinished(TASKS[0], 0), "node/0"), Completed) == [(ONE, Completed(0, 0))]
