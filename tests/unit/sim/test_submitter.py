"""The submitter: answers, rejections, and events that it refuses."""

from __future__ import annotations

import pytest
from tests.unit.sim.actors import Actor, Note, play

from volery.conformance.cases import trace_of
from volery.core.events import (
    Event,
    JobAccepted,
    JobDone,
    JobRejected,
    Submit,
)
from volery.core.model import SECOND, Address, Time
from volery.core.port import Port

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
