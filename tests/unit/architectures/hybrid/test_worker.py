"""What a worker of the hybrid designs does when."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone, launched, messages, tasks

from volery.architectures.hybrid.messages import Assign, Ended, LongProbe, Probe, Rejected, Steal, Stolen
from volery.core.events import TaskFinished
from volery.core.model import Cluster
from volery.policies.reservations import Completed, NoTask, TaskRequest, Withdraw

SCHEDULER, CENTRAL, NODE = "scheduler/0", "central/0", "node/0"
TASKS = tasks(0, *[0] * 6)
VECTOR = b"\x03"


def worker(design: str = "eagle", slots: int = 1, **parameters: Any) -> Alone:
    return Alone(design, NODE, Cluster((0, 0), (slots, 1)), schedulers=1, short_part=0.0, **parameters)


def probe(number: int, estimate_us: int, left: int = 1, batch: int = 0, *, final: bool = True) -> Probe:
    return Probe(number, batch, estimate_us, estimate_us * left, 0, final)


def long_probe(number: int, version: int = 1) -> LongProbe:
    return LongProbe(number, 1, 9_000, 9_000, version, VECTOR)


def asked(effects: list[Any]) -> list[int]:
    """The reservations that are asked for."""
    return [message.number for _, message in messages(effects, TaskRequest)]


def test_a_worker_with_a_long_task_rejects_short_probes_and_tells_what_it_knows() -> None:
    alone = worker()
    assert asked(alone.hear(long_probe(1, version=7), CENTRAL)) == [1]
    assert alone.hear(probe(2, 10, final=False), SCHEDULER) == [(SCHEDULER, Rejected(0, 2, 7, VECTOR))]
    assert alone.hear(probe(4, 10), SCHEDULER) == [], "a final one stays"


def test_the_end_of_a_long_task_is_told_to_its_job_and_to_the_central_scheduler() -> None:
    alone = worker()
    alone.hear(long_probe(1), CENTRAL)
    alone.hear(Assign(1, TASKS[0], 0), CENTRAL)
    said = alone.hear(TaskFinished(TASKS[0], 0), NODE)
    assert said == [(CENTRAL, Ended(1, 0, 0)), (SCHEDULER, Completed(0, 0))]
    assert asked(alone.hear(probe(2, 10, final=False), SCHEDULER)) == [2]


def test_a_sticky_reservation_serves_its_batch_until_nothing_is_left() -> None:
    alone = worker()
    alone.hear(probe(2, 10, left=3), SCHEDULER)
    assert launched(alone.hear(Assign(1, TASKS[0], 1), SCHEDULER)) == [0]
    assert asked(alone.hear(TaskFinished(TASKS[0], 0), NODE)) == [2]
    alone.hear(Assign(2, TASKS[1], 0), SCHEDULER)
    assert asked(alone.hear(TaskFinished(TASKS[1], 0), NODE)) == []


def busy(**parameters: Any) -> Alone:
    """A worker whose one slot is taken."""
    alone = worker(**parameters)
    alone.hear(probe(100, 10, batch=50), SCHEDULER)
    alone.hear(Assign(1, TASKS[5], 0), SCHEDULER)
    return alone


def test_the_least_remaining_work_goes_first() -> None:
    alone = busy()
    alone.hear(probe(2, 30, left=3, batch=2), SCHEDULER)
    alone.hear(probe(4, 40, left=1, batch=4), SCHEDULER)
    assert asked(alone.hear(TaskFinished(TASKS[5], 0), NODE)) == [4]


def test_nothing_is_passed_for_longer_than_five_times_its_estimate() -> None:
    """Section 3's bound: a reservation of 10 us is passed by five tasks of 10 us, not by a sixth."""
    alone = busy()
    alone.hear(probe(2, 10, left=9, batch=2), SCHEDULER)
    order = []
    running = TASKS[5]
    for k in range(6):
        number = 10 + 2 * k
        alone.hear(probe(number, 10, left=1, batch=number), SCHEDULER)
        order += asked(alone.hear(TaskFinished(running, 0), NODE))
        running = TASKS[k % 5]
        alone.hear(Assign(2 + k, running, 0), SCHEDULER)
    assert order == [10, 12, 14, 16, 18, 2]


def test_a_task_that_is_too_long_for_the_slack_in_front_does_not_pass() -> None:
    alone = busy()
    alone.hear(probe(2, 10, left=9, batch=2), SCHEDULER)
    alone.hear(probe(4, 60, left=1, batch=4), SCHEDULER)
    assert asked(alone.hear(TaskFinished(TASKS[5], 0), NODE)) == [2]


def test_a_withdrawn_reservation_is_dropped() -> None:
    alone = busy()
    alone.hear(probe(2, 10), SCHEDULER)
    alone.hear(Withdraw(2), SCHEDULER)
    assert asked(alone.hear(TaskFinished(TASKS[5], 0), NODE)) == []


def victim(*kinds: str, running_long: bool) -> Alone:
    """A Hawk worker that runs something and has these reservations: l(ong) or s(hort), numbered from 10."""
    alone = worker("hawk")
    alone.hear(long_probe(1) if running_long else probe(1, 10), CENTRAL if running_long else SCHEDULER)
    alone.hear(Assign(1, TASKS[0], 0), CENTRAL)
    for number, kind in enumerate(kinds, 10):
        alone.hear(long_probe(number) if kind == "l" else probe(number, 10), SCHEDULER)
    return alone


def given(alone: Alone) -> list[int]:
    (_, stolen), *_ = messages(alone.hear(Steal(0), "node/1"), Stolen)
    return [reservation.number for reservation in stolen.probes]


def test_the_first_group_behind_a_long_task_is_given() -> None:
    assert given(victim(*"sslssls", running_long=False)) == [13, 14]
    assert given(victim(*"ssls", running_long=True)) == [10, 11]
    assert given(victim(*"llss", running_long=True)) == [12, 13]
    assert given(victim(*"sss", running_long=False)) == []


def test_what_the_thief_cannot_run_is_left() -> None:
    alone = victim(running_long=True)
    alone.hear(Probe(10, 0, 5, 5, 0b10), SCHEDULER)
    alone.hear(Probe(11, 0, 5, 5, 0b01), SCHEDULER)
    (_, stolen), *_ = messages(alone.hear(Steal(0b01), "node/1"), Stolen)
    assert [reservation.number for reservation in stolen.probes] == [11]


def test_a_thief_asks_up_to_ten_victims_and_serves_what_it_gets() -> None:
    alone = worker("hawk")
    alone.hear(probe(1, 10), SCHEDULER)
    said = alone.hear(NoTask(1), SCHEDULER)
    for _ in range(9):
        assert len(messages(said, Steal)) == 1
        said = alone.hear(Stolen(()), "node/1")
    assert len(messages(said, Steal)) == 1
    assert alone.hear(Stolen(()), "node/1") == []
    assert asked(alone.hear(Stolen((probe(7, 10),)), "node/1")) == [7]
