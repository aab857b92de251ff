"""Copies: several attempts of one task at once, of which the first to finish is the task's."""

from __future__ import annotations

import pytest
from tests.unit.sim.actors import Actor, Reaction

from volery.conformance.cases import trace_of
from volery.core.capabilities import Replication
from volery.core.component import Deployment
from volery.core.events import Event, JobDone, Submit, TaskFinished, TimerFired
from volery.core.model import NEVER, SUBMITTER, Address, Cluster, Task, Time
from volery.core.port import Port
from volery.core.records import Records
from volery.sim import simulate
from volery.sim.execution import BrokenRule

LONG, SHORT = 1000, 400
SLOW_FIRST = Cluster((0, 0, 0), (1, 1, 1), speeds=(400, 1000, 1000), reference_speed=1000)
"""Three machines, of which the first needs 2.5 times as long."""


def replicated(starts: dict[str, tuple[int, Time]], react: Reaction | None = None, copies: int = 2) -> Records:
    """One task with an attempt per node, each at its own time; `react` may kill attempts when one has finished."""

    def acted(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            tasks.extend(event.job.tasks)
        elif isinstance(event, TimerFired) and event.key == 0:
            port.launch(tasks[0], starts[port.address][0])
        elif isinstance(event, TaskFinished) and event.outcome == "finished" and not done:
            done.append(event.attempt)
            port.send(SUBMITTER, JobDone(0))
        if react is not None:
            react(port, event, source, now)

    def started(port: Port) -> None:
        if port.address in starts:
            port.set_timer(0, starts[port.address][1])

    tasks, done = list[Task](), list[int]()
    nodes = {f"node/{number}": Actor(acted, started) for number in range(3)}
    machines = {address: number for number, address in enumerate(nodes)}
    deployment = Deployment(nodes, machines, lambda _: "node/0", capabilities=(Replication(copies),))
    return simulate(deployment, trace_of("one", [0], [[SHORT]]), SLOW_FIRST)


def test_the_first_attempt_to_finish_is_the_tasks_and_the_other_is_beside_the_table() -> None:
    records = replicated({"node/0": (0, 10), "node/1": (1, 20)})
    assert (records.worker[0], records.attempt[0], records.finish_us[0]) == (1, 1, 20 + SHORT)
    assert [(one.worker, one.attempt, one.finish_us) for one in records.lost] == [(0, 0, 10 + LONG)]


def test_an_attempt_that_is_killed_beside_another_never_finishes() -> None:
    def kill(port: Port, event: Event, source: Address, now: Time) -> None:
        if port.address == "node/0" and isinstance(event, Submit):
            port.set_timer(1, 100)
        elif isinstance(event, TimerFired) and event.key == 1:
            port.kill(0, 0)

    records = replicated({"node/0": (0, 10), "node/1": (1, 20)}, kill)
    assert records.finish_us[0] == 20 + SHORT
    assert records.killed == {(0, 0): 100}
    assert [(one.attempt, one.finish_us) for one in records.lost] == [(0, NEVER)]


def test_more_attempts_at_once_than_the_design_declares_are_refused() -> None:
    with pytest.raises(BrokenRule, match="already started"):
        replicated({"node/0": (0, 10), "node/1": (1, 20), "node/2": (2, 30)})
    assert replicated({"node/0": (0, 10), "node/1": (1, 20), "node/2": (2, 30)}, copies=3).finish_us[0] == 20 + SHORT


def test_an_attempt_number_is_used_once() -> None:
    with pytest.raises(BrokenRule, match="already started as attempt 0"):
        replicated({"node/0": (0, 10), "node/1": (0, 20)})
