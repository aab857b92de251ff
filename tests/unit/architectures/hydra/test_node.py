"""A node of Hydra alone: it starts each task once, and reports ends to proxies at once and in heartbeats."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, launched
from tests.unit.effects import Killed, TimerSet

from volery.architectures.hydra.messages import Completed, Container, Kill, Start, Vacated, Welcome
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import SECOND, Cluster, Task

NODE, RM, PROXY, OTHER = "node/0", "rm/0", "proxy/0/0", "proxy/0/1"


def node(beat_s: float, **parameters: Any) -> Alone:
    return Alone("hydra", NODE, Cluster((0,), (2,)), subclusters=1, node_heartbeat_s=beat_s, **parameters)


def start(number: int, task: int, attempt: int = 0) -> Start:
    return Start(number, Container(task, 0, 0, 7, 0), "", Task(task, 7), attempt)


def test_a_task_is_started_once_and_overtaken_starts_of_the_same_proxy_are_ignored() -> None:
    alone = node(0.0)
    assert launched(alone.hear(start(2, 5), PROXY)) == [5]
    assert alone.hear(start(2, 5), PROXY) == []
    assert alone.hear(start(1, 4), PROXY) == [], "it was overtaken"
    assert launched(alone.hear(start(1, 6), OTHER)) == [6], "each proxy counts for itself"


def test_without_heartbeats_an_end_is_reported_to_both_at_once() -> None:
    alone = node(0.0)
    alone.hear(start(1, 5), PROXY)
    ended = alone.hear(TaskFinished(Task(5, 7), 0), NODE)
    assert ended == [(PROXY, Completed(7, 5, 0, False)), (RM, Vacated((5,)))]


def test_with_heartbeats_the_resource_manager_gets_all_ends_in_the_next_one() -> None:
    alone = node(1.0)
    alone.hear(start(1, 5), PROXY)
    alone.hear(start(2, 6), PROXY)
    first = alone.hear(TaskFinished(Task(5, 7), 0), NODE, 10)
    assert first == [(PROXY, Completed(7, 5, 0, False)), TimerSet("heartbeat", SECOND)]
    assert alone.hear(TaskFinished(Task(6, 7), 0, "killed"), NODE, 20) == [(PROXY, Completed(7, 6, 0, True))]
    with pytest.raises(AssertionError, match="not reported"):
        alone.component.check_rest()
    assert alone.hear(TimerFired("heartbeat"), NODE, SECOND) == [(RM, Vacated((5, 6)))]
    assert alone.hear(TimerFired("heartbeat"), NODE, 2 * SECOND) == [], "empty heartbeats are not sent"
    alone.component.check_rest()


def test_only_the_attempt_that_runs_is_killed() -> None:
    alone = node(0.0)
    alone.hear(start(1, 5, attempt=1), PROXY)
    assert alone.hear(Kill(5, 0), PROXY) == []
    assert alone.hear(Kill(5, 1), PROXY) == [Killed(5, 1)]
    assert alone.hear(Kill(6, 0), PROXY) == [], "it never ran"
    with pytest.raises(AssertionError, match="1 tasks run"):
        alone.component.check_rest()


def test_events_of_recovery_are_taken_where_something_restarts_alone() -> None:
    assert Welcome not in node(0.0).component.takes()
    assert {target for _, target in node(0.0).component.emits()} == {"proxy", "rm"}
