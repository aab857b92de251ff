"""Pigeon's master and nodes: events in, effects out (Wang et al., SoCC 2019, section 2.2; PigeonC, section 4.2)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, launched, messages, tasks
from tests.unit.effects import TimerSet

from volery.architectures.pigeon.messages import Completed, GroupTasks, Launch, QueueLengths
from volery.architectures.pigeon.queues import FairQueues
from volery.core.errors import InputError
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import Cluster, Task

WHO = "distributor/0"


class Group(Alone):
    """A master alone, with numbered deliveries from one distributor."""

    def __init__(self, cluster: Cluster, **parameters: Any) -> None:
        super().__init__("pigeon", "master/0", cluster, **{"groups": 1, "reserved": 0, **parameters})
        self._number = 0

    def give(self, short: bool, *given: Task) -> dict[int, str]:
        """Tasks of one job arrive; task > node of what is launched."""
        self._number += 1
        return started(self.hear(GroupTasks(self._number, short, given), WHO))

    def idle(self, task: int) -> dict[int, str]:
        """The worker of a task is idle again."""
        return started(self.hear(Completed(task), "node/0"))


def timers(effects: list[Any]) -> list[int]:
    return [effect.at for effect in effects if isinstance(effect, TimerSet)]


def started(effects: list[Any]) -> dict[int, str]:
    return {message.task.id: to for to, message in messages(effects, Launch)}


def test_a_short_task_takes_a_low_priority_worker_before_a_reserved_one() -> None:
    group = Group(Cluster.uniform(3), reserved=1)
    a, b, c, d = tasks(0, 0, 0, 0, 0)
    assert set(group.give(True, a, b).values()) == {"node/1", "node/2"}
    assert group.give(True, c) == {c.id: "node/0"}
    assert group.give(True, d) == {}


def test_a_long_task_never_runs_on_a_reserved_worker() -> None:
    group = Group(Cluster.uniform(2), reserved=1)
    a, b = tasks(0, 0, 0)
    assert group.give(False, a, b) == {a.id: "node/1"}
    short = tasks(1, 0)[0]
    assert group.give(True, short) == {short.id: "node/0"}
    assert group.idle(short.id) == {}, "an idle reserved worker leaves the long task waiting"
    assert group.idle(a.id) == {b.id: "node/1"}


def test_an_idle_reserved_worker_takes_a_waiting_short_task() -> None:
    group = Group(Cluster.uniform(2), reserved=1)
    a, b, c = tasks(0, 0, 0, 0)
    group.give(True, a, b, c)
    assert group.idle(b.id) == {c.id: "node/0"}


def order_of_service(short: int, long: int, **parameters: Any) -> str:
    """One worker is busy while short and long tasks queue up; S or L as it serves them."""
    group = Group(Cluster.uniform(1), **parameters)
    first = Task(0, 0)
    group.give(True, first)
    group.give(False, *(Task(100 + k, 1) for k in range(long)))
    group.give(True, *(Task(200 + k, 2) for k in range(short)))
    served, running = "", first.id
    while launch := group.idle(running):
        (running,) = launch
        served += "S" if running >= 200 else "L"
    return served


@pytest.mark.parametrize(
    ("weight", "counting", "served"),
    [
        (1, "paper", "LLLSSSSSSS"),
        (2, "paper", "SLSLSLSSSS"),
        (3, "paper", "SSLSSLSSLS"),
        (0, "paper", "SSSSSSSLLL"),
        (100_000, "paper", "SSSSSSSLLL"),
        (1, "short-per-long", "SLSLSLSSSS"),
        (3, "short-per-long", "SSSLSSSLSL"),
        (0, "short-per-long", "SSSSSSSLLL"),
        (1, "published-code", "SSLSSLSSLS"),
        (3, "published-code", "SSSSLSSSLL"),
    ],
)
def test_out_of_every_w_tasks_one_is_long_while_long_ones_wait(weight: int, counting: str, served: str) -> None:
    assert order_of_service(7, 3, weight=weight, weight_counting=counting) == served


@pytest.mark.parametrize(
    ("weights", "served"),
    [((3, 2), "SSMSSLSSM"), ((3, 0), "SSMSSMSSM"), ((0, 2), "SSSSSSMLM"), ((1, 1), "LLLLLLMMM")],
)
def test_a_weight_stands_between_a_type_and_all_longer_ones(weights: tuple[int, ...], served: str) -> None:
    queues = FairQueues(weights, "paper")
    for number in range(18):
        queues.push(Task(number, 0), number % 3)
    assert "".join("SML"[task.id % 3] for _ in served if (task := queues.pop(0)) is not None) == served


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"longer_cutoffs_s": (5.0,), "longer_weights": (2,), "cutoff_s": 5.0}, "ascend"),
        ({"longer_cutoffs_s": (5000.0,), "longer_weights": (-1,)}, "negative"),
        ({"longer_cutoffs_s": (5000.0,)}, "one per limit"),
    ],
)
def test_types_of_jobs_without_order_or_weight_are_refused(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Group(Cluster.uniform(2), **parameters)


def test_only_dispatches_that_pass_a_waiting_long_task_count() -> None:
    """The paper's counting: short tasks that were served while no long one waited are not held against it."""
    group = Group(Cluster.uniform(1), weight=2)
    group.give(True, *(Task(k, 0) for k in range(4)))
    for done in (0, 1):
        group.idle(done)
    group.give(False, Task(100, 1))
    assert group.idle(2) == {3: "node/0"}, "one short task may pass"
    group.give(True, Task(4, 0))
    assert group.idle(3) == {100: "node/0"}


def test_a_task_that_does_not_fit_the_idle_worker_is_passed_over() -> None:
    """PigeonC: a long task that fits is served before a short one that does not."""
    strong, weak = 0b11, 0b01
    group = Group(Cluster((strong, weak), (1, 1)))
    a, b = Task(0, 0, strong), Task(1, 0, weak)
    group.give(True, a, b)
    group.give(True, Task(10, 1, strong), Task(11, 1, strong))
    group.give(False, Task(20, 2, weak))
    assert group.idle(b.id) == {20: "node/1"}
    assert group.idle(a.id) == {10: "node/0"}


def test_minimum_constraints_takes_the_worker_with_the_fewest() -> None:
    """Section 4.3.2's workers A (1,2,3,4) and B (1,2)."""
    a, b = 0b11110, 0b00110
    group = Group(Cluster((a, b), (1, 1)), match="min-constraints")
    assert group.give(True, Task(0, 0, b)) == {0: "node/1"}
    assert group.give(True, Task(1, 0, 0b01000)) == {1: "node/0"}


def test_queue_lengths_are_reported_once_per_period_while_they_change() -> None:
    group = Group(Cluster.uniform(1), reports_s=0.5, distributors=2)
    assert timers(group.hear(GroupTasks(1, True, tasks(0, 0)), WHO)) == [], "nothing waits"
    assert timers(group.hear(GroupTasks(2, False, tasks(1, 0, 0)), WHO)) == [500_000]
    assert timers(group.hear(GroupTasks(3, True, tasks(2, 0)), WHO)) == [], "a report is due"
    sent = messages(group.hear(TimerFired("queue lengths"), "master/0"), QueueLengths)
    assert sent == [(f"distributor/{number}", QueueLengths((1, 2))) for number in range(2)]
    assert timers(group.hear(Completed(0), "node/0")) == [500_000]


def test_the_queue_is_measured_by_tasks_of_a_type_that_waits_already() -> None:
    group = Group(Cluster.uniform(1))
    group.give(False, *tasks(0, 0, 0))
    assert group.facts(GroupTasks(8, True, tasks(1, 0)), WHO) == {}, "it joins an empty queue"
    assert group.facts(GroupTasks(9, True, tasks(2, 0)), WHO) == {"queued_tasks": 2}


def test_a_repeated_delivery_or_notice_changes_nothing() -> None:
    group = Group(Cluster.uniform(2))
    delivery = GroupTasks(1, True, tasks(0, 0))
    assert len(group.hear(delivery, WHO)) == 1
    assert group.hear(delivery, WHO) == []
    group.hear(Completed(0), "node/0")
    assert group.hear(Completed(0), "node/0") == []


def test_distributors_are_numbered_apart_and_hear_their_own_results() -> None:
    group = Group(Cluster.uniform(2))
    for who, task in (("distributor/0", Task(0, 0)), ("distributor/1", Task(1, 1))):
        ((_, launch),) = messages(group.hear(GroupTasks(1, True, (task,)), who), Launch)
        assert launch.distributor == who
    group.hear(GroupTasks(2, True, (Task(2, 1),)), "distributor/1")
    ((_, queued),) = messages(group.hear(Completed(0), "node/0"), Launch)
    assert (queued.task.id, queued.distributor) == (2, "distributor/1"), "a task that waited keeps its distributor"


def test_a_node_launches_each_number_once_and_reports_result_and_idleness() -> None:
    node = Alone("pigeon", "node/1", Cluster.uniform(2), groups=1, reserved=0)
    task = Task(5, 0)
    assert launched(node.hear(Launch(1, task, "distributor/3"), "master/0")) == [5]
    assert node.hear(Launch(1, task, "distributor/3"), "master/0") == []
    assert node.hear(TaskFinished(task, 0), "node/1") == [
        ("distributor/3", Completed(5)),
        ("master/0", Completed(5)),
    ]
