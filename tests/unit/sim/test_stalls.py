"""Runs in which time goes on and nothing is done end; those that only take long do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.sim.actors import Actor, answer, launch_all, play

from volery.conformance.cases import trace_of
from volery.core.events import Event, Submit, TaskFinished
from volery.core.model import SECOND, Address, Time
from volery.core.port import Port
from volery.sim import Stalled, stalls


def ticking(every_us: Time, until_us: Time, then: Callable[[Port, Event, Address, Time], None]) -> Actor:
    """Wakes up again and again, and does something else with everything but its timers."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, (Submit, TaskFinished)):
            then(port, event, source, now)
        if now < until_us and not isinstance(event, TaskFinished):
            port.set_timer("tick", now + every_us)

    return Actor(react)


FOR_EVER = 1 << 60
ONE = trace_of("one", [0], [[SECOND]])


def nothing(port: Port, event: Event, source: Address, now: Time) -> None:
    """Never answers."""


def test_a_design_that_retries_for_ever_is_ended_and_what_waits_is_named() -> None:
    with pytest.raises(
        Stalled, match=r"nothing is done.*1 of 1 jobs were never answered; the first is job 0, 1 of its 1 tasks"
    ):
        play({"node/0": ticking(7, FOR_EVER, nothing)}, ONE)


def test_a_design_that_does_not_become_quiet_is_ended() -> None:
    with pytest.raises(Stalled, match="every job is answered and the design does not become quiet"):
        play({"node/0": ticking(7, FOR_EVER, answer)}, trace_of("empty", [0], [[]]))


def test_an_instant_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.sim.kernel.STEPS_MAX", 1000)
    with pytest.raises(Stalled, match="one instant has no end"):
        play({"node/0": ticking(0, FOR_EVER, nothing)}, ONE)


@pytest.mark.parametrize("what", ["task", "arrival"])
def test_heartbeats_during_a_long_task_or_before_a_late_job_are_no_stall(what: str) -> None:
    """Half a million instants pass before anything is done."""
    long_us = 10 * (3 * stalls.INSTANTS_MAX)
    trace = trace_of("long", [0], [[long_us]]) if what == "task" else trace_of("late", [0, long_us], [[1], [1]])
    records = play({"node/0": ticking(10, long_us, launch_all)}, trace)
    assert records.answered_us[-1] >= long_us
