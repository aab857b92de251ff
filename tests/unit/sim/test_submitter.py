"""The submitter: answers, rejections, and events that it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.sim.actors import Actor, Note, answer, launch_all, play

from volery.conformance.cases import trace_of
from volery.core.component import Deployment
from volery.core.events import (
    Cancel,
    Event,
    JobAccepted,
    JobDone,
    JobRejected,
    Submit,
    TaskFinished,
)
from volery.core.model import SECOND, Address, Cluster, Time
from volery.core.port import Port
from volery.sim import Network, Options, Stalled, submitter
from volery.sim.kernel import Kernel

ONE = trace_of("one", [0], [[]])


def test_a_rejected_job_is_submitted_again_after_the_time_it_was_told() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            refused = now < 3 * SECOND
            port.send(source, JobRejected(event.job.id, "not yet", SECOND) if refused else JobDone(event.job.id))

    actor = Actor(react)
    records = play({"entry/0": actor}, trace_of("t", [500], [[]]))
    assert actor.times(Submit) == [500, SECOND + 500, 2 * SECOND + 500, 3 * SECOND + 500]
    assert records.rejections == 3
    assert records.answered_us[0] == 3 * SECOND + 500


def test_being_told_done_twice_counts_once_and_acceptance_is_no_answer() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.send(source, JobAccepted(event.job.id))
            port.send(source, JobDone(event.job.id, 3))
            port.set_timer("again", 700)
        else:
            port.send("submitter", JobDone(0, 4))

    records = play({"entry/0": Actor(react)}, ONE)
    assert (records.answered_us[0], records.unsatisfiable[0]) == (0, 3)


def test_the_submitter_takes_nothing_but_answers() -> None:
    with pytest.raises(TypeError, match="entry/0 sent the submitter a Note"):
        play({"entry/0": Actor(lambda port, event, source, now: port.send("submitter", Note()))}, ONE)


def ticking(every_us: Time, until_us: Time, then: Callable[[Port, Event, Address, Time], None]) -> Actor:
    """Wakes up again and again, and does something else with everything but its timers."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, (Submit, TaskFinished)):
            then(port, event, source, now)
        if now < until_us and not isinstance(event, TaskFinished):
            port.set_timer("tick", now + every_us)

    return Actor(react)


FOR_EVER = 1 << 60
SHORT = trace_of("one", [0], [[SECOND]])


def nothing(port: Port, event: Event, source: Address, now: Time) -> None:
    """Never answers."""


def test_a_design_that_retries_for_ever_is_ended_and_what_waits_is_named() -> None:
    with pytest.raises(
        Stalled, match=r"nothing is done.*1 of 1 jobs were never answered; the first is job 0, 1 of its 1 tasks"
    ):
        play({"node/0": ticking(7, FOR_EVER, nothing)}, SHORT)


def test_a_design_that_does_not_become_quiet_is_ended() -> None:
    with pytest.raises(Stalled, match="every job is answered and the design does not become quiet"):
        play({"node/0": ticking(7, FOR_EVER, answer)}, trace_of("empty", [0], [[]]))


def test_an_instant_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.sim.kernel.STEPS_MAX", 1000)
    with pytest.raises(Stalled, match="one instant has no end"):
        play({"node/0": ticking(0, FOR_EVER, nothing)}, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["task", "arrival"])
def test_heartbeats_during_a_long_task_or_before_a_late_job_are_no_stall(what: str) -> None:
    """Half a million instants pass before anything is done."""
    long_us = 10 * (3 * submitter.INSTANTS_MAX)
    trace = trace_of("long", [0], [[long_us]]) if what == "task" else trace_of("late", [0, long_us], [[1], [1]])
    records = play({"node/0": ticking(10, long_us, launch_all)}, trace)
    assert records.answered_us[-1] >= long_us


def test_a_cancelled_job_is_cancelled_again_where_it_is_submitted_again() -> None:
    """The entry that was to hear of it may be gone: the next one would wait for ever."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            kernel.submitter.cancel(event.job.id)
            port.send(source, JobRejected(event.job.id, "not yet", SECOND) if not now else JobAccepted(event.job.id))
        elif isinstance(event, Cancel) and now:
            port.send(source, JobDone(event.job, 1))

    actor = Actor(react)
    deployment = Deployment({"entry/0": actor}, {}, lambda _: "entry/0", {})
    kernel = Kernel(deployment, ONE, Cluster.uniform(1), Network(), 0, Options())
    kernel.run(None)
    assert actor.times(Cancel) == [0, SECOND, SECOND]
    assert kernel.lab.records.answered_us[0] == SECOND
