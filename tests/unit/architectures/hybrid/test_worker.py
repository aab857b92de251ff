"""What a worker of the hybrid designs does when."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import Alone, launched, messages, tasks

from volery.architectures import configure, lookup
from volery.architectures.hybrid.messages import Assign, Ended, LongProbe, Probe, Rejected, Steal, Stolen
from volery.conformance.cases import Case, lone_task, trace_of
from volery.conformance.verdict import Deliveries, run
from volery.core.component import role_of
from volery.core.events import TaskFinished
from volery.core.model import SUBMITTER, Cluster
from volery.roles.reservations import Completed, NoTask, TaskRequest, Withdraw

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


def test_a_repeated_probe_is_not_rejected_while_its_reservation_is_here() -> None:
    """Else the scheduler would move a reservation that still serves, and the two workers' requests would mix."""
    alone = busy()
    alone.hear(probe(2, 10, final=False), SCHEDULER)
    alone.hear(long_probe(1), CENTRAL)
    assert alone.hear(probe(2, 10, final=False), SCHEDULER) == []
    assert messages(alone.hear(probe(4, 10, final=False), SCHEDULER), Rejected)


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


def robbed(alone: Alone, said: list[Any]) -> int:
    """How many victims a worker asks, one after the other, when none of them has anything."""
    asked_for, said = 0, [effect for effect in said if not isinstance(effect[1], (Completed, Stolen, TaskRequest))]
    while messages(said, Steal):
        assert len(messages(said, Steal)) == 1, "one victim at a time"
        asked_for += 1
        said = alone.hear(Stolen(()), "node/1")
    assert said == [], "then the worker is still"
    return asked_for


def ends_a_task(alone: Alone, number: int) -> list[Any]:
    """A short task comes and ends."""
    (request,) = [message.request for _, message in messages(alone.hear(probe(number, 10), SCHEDULER), TaskRequest)]
    alone.hear(Assign(request, TASKS[number], 0), SCHEDULER)
    return alone.hear(TaskFinished(TASKS[number], 0), NODE)


def test_a_thief_asks_ten_victims_when_its_last_task_has_ended_and_then_waits_for_the_next() -> None:
    """One round per slot that falls idle (section 3.6 and the public simulator's `free_slot`)."""
    alone = worker("hawk")
    assert robbed(alone, ends_a_task(alone, 1)) == 10
    assert alone.hear(Stolen(()), "node/1") == [], "an answer too many does not begin a round"
    assert alone.hear(Withdraw(9), SCHEDULER) == []
    assert robbed(alone, alone.hear(Steal(0), "node/1")) == 0, "nor does a thief who comes by"
    assert robbed(alone, ends_a_task(alone, 2)) == 10


def test_a_worker_steals_after_a_request_in_vain_as_well_unless_told_not_to() -> None:
    alone = worker("hawk")
    alone.hear(probe(1, 10), SCHEDULER)
    assert robbed(alone, alone.hear(NoTask(1), SCHEDULER)) == 10
    sparing = worker("hawk", steal_after_vain=False)
    sparing.hear(probe(1, 10), SCHEDULER)
    assert robbed(sparing, sparing.hear(NoTask(1), SCHEDULER)) == 0
    assert robbed(sparing, ends_a_task(sparing, 2)) == 10


def test_a_worker_does_not_steal_while_anything_waits() -> None:
    alone = busy(design="hawk")
    alone.hear(probe(2, 10), SCHEDULER)
    assert robbed(alone, alone.hear(TaskFinished(TASKS[5], 0), NODE)) == 0


def test_a_thief_serves_what_it_gets_and_asks_nobody_else() -> None:
    alone = worker("hawk")
    assert messages(ends_a_task(alone, 1), Steal)
    assert asked(alone.hear(Stolen((probe(7, 10),)), "node/1")) == [7]
    assert alone.hear(Stolen(()), "node/1") == []


def test_two_slots_that_fall_idle_share_one_round() -> None:
    alone = worker("hawk", slots=2)
    for number in (1, 2):
        alone.hear(probe(number, 10), SCHEDULER)
        alone.hear(Assign(number, TASKS[number], 0), SCHEDULER)
    assert len(messages(alone.hear(TaskFinished(TASKS[1], 0), NODE), Steal)) == 1
    assert messages(alone.hear(TaskFinished(TASKS[2], 0), NODE), Steal) == []
    assert asked(alone.hear(Stolen((probe(7, 10), probe(9, 10))), "node/1")) == [7, 9]


def test_nobody_steals_before_work_has_come() -> None:
    """All 30 workers are idle from the start, and a job without tasks gives them nothing: nobody speaks to a worker."""
    heard = Deliveries()
    run(lookup("hawk"), Case("nothing", 0, trace_of("nothing", [0], [[]]), Cluster.uniform(30)), interceptor=heard)
    assert {role_of(to) for _, _, to, _ in heard.delivered} <= {"scheduler", SUBMITTER}


@pytest.mark.parametrize(("vain", "victims"), [(True, 20), (False, 10)])
def test_on_an_idle_cluster_stealing_costs_two_messages_per_victim_of_each_slot_that_fell_idle(
    vain: bool, victims: int
) -> None:
    """A lone task: its two probes both ask; one slot falls idle after the task, the other after a vain request."""
    hawk = lookup("hawk")
    design = msgspec.structs.replace(hawk, defaults=configure(hawk, {"steal_after_vain": vain}))
    heard = Deliveries()
    run(design, Case("lone", 0, lone_task(), Cluster.uniform(30)), interceptor=heard)
    said = Counter(type(message).__name__ for _, _, to, message in heard.delivered if to != SUBMITTER)
    assert said["Steal"] == said["Stolen"] == victims
    assert said["Probe"] == said["TaskRequest"] == 2
    assert said["Assign"] + said["NoTask"] == 2
