"""What a node of Mercury does with containers of both kinds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, launched, messages
from tests.unit.effects import Killed

from volery.architectures.mercury.node import Heartbeat, Limit, Place, Returned, Start
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import SECOND, Cluster, Task
from volery.roles.reservations import Completed, Kill

CENTRAL, SCHEDULER = "central/0", "scheduler/0"
TASKS = [Task(k, k, estimate_us=(10 - k) * SECOND) for k in range(6)]


def node(slots: int = 1, **parameters: Any) -> Alone:
    return Alone("mercury", "node/0", Cluster((0, 0), (slots, slots)), schedulers=1, **parameters)


def place(task: int, left: int = 1) -> Place:
    return Place(task, TASKS[task], 0, left)


def filled(count: int, **parameters: Any) -> Alone:
    """A node of one slot that runs t0 and has queued the others; the job of t2 has the fewest tasks left."""
    alone = node(**parameters)
    for task in range(count):
        alone.hear(place(task, left=10 - task if task != 2 else 1), SCHEDULER)
    return alone


@pytest.mark.parametrize(("order", "first"), [("fifo", 1), ("job", 2), ("task", 3)])
def test_the_queue_is_served_in_its_order(order: str, first: int) -> None:
    alone = filled(4, order=order)
    assert launched(alone.hear(TaskFinished(TASKS[0], 0), now=SECOND)) == [first]


def test_a_guaranteed_container_kills_what_has_started_last_and_starts_in_its_slot() -> None:
    alone = node(slots=2)
    for task in range(3):
        alone.hear(place(task), SCHEDULER, now=task)
    effects = alone.hear(Start(1, TASKS[5]), CENTRAL, now=SECOND)
    assert [effect.task for effect in effects if isinstance(effect, Killed)] == [1]
    effects = alone.hear(TaskFinished(TASKS[1], 0, "killed"), now=SECOND)
    assert launched(effects) == [5], "not t2, which has waited for longer"
    assert [(told.task.id, told.attempt, told.shed) for _, told in messages(effects, Returned)] == [(1, 1, False)]


def test_a_repeated_start_kills_nothing() -> None:
    alone = node(slots=2)
    for task in range(2):
        alone.hear(place(task), SCHEDULER)
    alone.hear(Start(1, TASKS[5]), CENTRAL)
    assert alone.hear(Start(1, TASKS[5]), CENTRAL) == []


def test_the_heartbeat_reports_the_wait_and_what_was_released() -> None:
    alone = node()
    alone.hear(Start(1, TASKS[0]), CENTRAL)
    alone.hear(place(1), SCHEDULER)
    alone.hear(place(2), SCHEDULER)
    [(_, beat)] = messages(alone.hear(TimerFired("heartbeat"), now=SECOND), Heartbeat)
    assert (beat.wait_us, beat.length, beat.released) == ((9 + 9 + 8) * SECOND, 2, ())
    alone.hear(TaskFinished(TASKS[0], 0), now=2 * SECOND)
    [(_, beat)] = messages(alone.hear(TimerFired("heartbeat"), now=3 * SECOND), Heartbeat)
    assert (beat.wait_us, beat.length, beat.released) == ((8 + 8) * SECOND, 1, (0,))


@pytest.mark.parametrize(("load", "most"), [("wait", 20 * SECOND), ("length", 2)])
def test_what_waits_beyond_the_limit_is_shed_the_last_first(load: str, most: int) -> None:
    alone = filled(5, load=load)
    shed = messages(alone.hear(Limit(most), CENTRAL), Returned)
    assert [told.task.id for _, told in shed] == [4, 3], "t1 waits for 10 s, t2 for 19 s, t3 for 27 s"
    assert all(told.shed and told.moves == 1 and not told.attempt for _, told in shed)


def test_a_container_is_shed_three_times_at_most() -> None:
    alone = node()
    alone.hear(place(0), SCHEDULER)
    alone.hear(Place(1, TASKS[1], 0, 1, moves=3), SCHEDULER)
    assert alone.hear(Limit(0), CENTRAL) == []


def test_a_container_that_is_cancelled_while_it_is_killed_for_another_does_not_return() -> None:
    alone = node()
    alone.hear(place(0), SCHEDULER)
    alone.hear(Start(1, TASKS[5]), CENTRAL)
    alone.hear(Kill(0), SCHEDULER)
    effects = alone.hear(TaskFinished(TASKS[0], 0, "killed"))
    assert not messages(effects, Returned)
    assert [told.task for _, told in messages(effects, Completed)] == [0]


def test_each_guaranteed_container_gets_a_slot_of_its_own_while_killed_ones_still_end() -> None:
    alone = node(slots=2)
    for task in range(2):
        alone.hear(place(task), SCHEDULER)
    alone.hear(Start(1, TASKS[4]), CENTRAL)
    assert not alone.hear(Kill(1), SCHEDULER), "t1 is being killed already"
    effects = alone.hear(Start(2, TASKS[5]), CENTRAL)
    assert [effect.task for effect in effects if isinstance(effect, Killed)] == [0], "not t1 once more"
    assert launched(alone.hear(TaskFinished(TASKS[1], 0, "killed"))) == [4]
    assert launched(alone.hear(TaskFinished(TASKS[0], 0, "killed"))) == [5]


def test_the_slot_made_for_a_cancelled_container_goes_to_the_next_one() -> None:
    alone = node()
    alone.hear(place(0), SCHEDULER)
    alone.hear(Start(1, TASKS[4]), CENTRAL)
    alone.hear(Kill(4), CENTRAL)
    alone.hear(TimerFired("heartbeat"), now=SECOND)
    alone.hear(Start(2, TASKS[5]), CENTRAL, now=2 * SECOND)
    assert launched(alone.hear(TaskFinished(TASKS[0], 0, "killed"), now=3 * SECOND)) == [5]


def test_what_ends_by_itself_in_the_moment_of_its_kill_has_finished() -> None:
    alone = node()
    alone.hear(place(0), SCHEDULER)
    alone.hear(Start(1, TASKS[5]), CENTRAL)
    effects = alone.hear(TaskFinished(TASKS[0], 0))
    assert launched(effects) == [5]
    assert [told.task for _, told in messages(effects, Completed)] == [0]
    assert not messages(effects, Returned)
