"""The forwarding port: every effect reaches the port behind."""

from __future__ import annotations

from tests.unit.effects import ComputeAsked, Killed, Launched, Observed, RecordingPort, Sent, TimerCancelled, TimerSet

from volery.core.events import Counted, JobDone
from volery.core.model import Task
from volery.core.port import ForwardingPort, Problem


def test_every_effect_is_passed_on_in_order() -> None:
    behind = RecordingPort("gm/0")
    port = ForwardingPort(behind)
    task, problem, fact = Task(0, 0, 0, 10), Problem(len, ()), Counted("conflicts")
    port.send("lm/0", JobDone(1))
    port.set_timer("beat", 7)
    port.cancel_timer("beat")
    port.launch(task, 1, 5)
    port.kill(0, 1)
    port.compute("plan", problem)
    port.observe(fact)
    assert (port.address, port.is_reliable) == ("gm/0", False)
    assert behind.drain() == [
        Sent("lm/0", JobDone(1)),
        TimerSet("beat", 7),
        TimerCancelled("beat"),
        Launched(task, 1, 5),
        Killed(0, 1),
        ComputeAsked("plan", problem),
        Observed(fact),
    ]
