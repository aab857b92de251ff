"""The recording port: these events in, these effects out."""

from __future__ import annotations

from tests.unit.effects import (
    ComputeAsked,
    Killed,
    Launched,
    Observed,
    RecordingPort,
    Sent,
    TimerCancelled,
    TimerSet,
)
from tests.unit.sim.actors import Note

from volery.core.component import Component
from volery.core.events import Counted
from volery.core.model import Task
from volery.core.port import Port, Problem


def test_every_effect_is_recorded_in_the_order_of_the_calls() -> None:
    recording = RecordingPort("gm/0")
    port: Port = recording
    problem = Problem(sum, (1, 2))
    port.send("lm/1", Note(3))
    port.set_timer("beat", 500)
    port.cancel_timer("beat")
    port.launch(Task(1, 0), 2, 9)
    port.kill(1, 2)
    port.compute("plan", problem)
    port.observe(Counted("conflicts"))
    assert recording.drain() == [
        Sent("lm/1", Note(3)),
        TimerSet("beat", 500),
        TimerCancelled("beat"),
        Launched(Task(1, 0), 2, 9),
        Killed(1, 2),
        ComputeAsked("plan", problem),
        Observed(Counted("conflicts")),
    ]
    assert recording.drain() == []


def test_only_messages_can_be_asked_for() -> None:
    port = RecordingPort("gm/0")
    port.observe(Counted("conflicts"))
    port.send("lm/1", Note(3))
    assert port.sent() == [Sent("lm/1", Note(3))]
    assert port.effects == []


def test_it_can_stand_under_any_component() -> None:
    class Says(Component):
        def start(self, now: int) -> None:
            self._port.send("lm/1", Note(now))

    component = Says()
    port = RecordingPort.under(component, "gm/0")
    component.start(4)
    assert port.drain() == [Sent("lm/1", Note(4))]
