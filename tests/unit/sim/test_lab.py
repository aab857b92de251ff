"""The parts that features are made of: the calendar and lanes of a `Lab`, and rules of launches, without a kernel."""

from __future__ import annotations

import pytest
from tests.unit.sim.actors import Actor, Note

from volery.conformance.cases import trace_of
from volery.core.capabilities import Resumption
from volery.core.component import Component, UnknownMessageError
from volery.core.events import TaskFinished
from volery.core.model import Cluster, Task, Time
from volery.sim.execution import Attempts, BrokenRule, LabPort, LaunchRule, port_class
from volery.sim.lab import Door, Lab
from volery.sim.network import Network

TASK = Task(0, 0, 0, 10)


def lab_of(network: Network | None = None) -> Lab:
    trace, cluster = trace_of("one", [0], [[10, 10]]), Cluster.uniform(1, 2)
    return Lab(trace, cluster, network or Network(), 0, delays={}, keeps_progress=False, copy_messages=False)


def port_of(lab: Lab, *rules: LaunchRule) -> LabPort:
    actor = Actor()
    attempts = Attempts(lab, Resumption(), lambda *_: 0)
    port = port_class(lab, attempts, lab.routes_of("node"), lab.left_us, rules)("node/0", Door.of(actor))
    port.take_machine(0, 0)
    return port


class Diary(LaunchRule):
    """Writes down what a rule is asked."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name = name
        self.lines = lines

    def placed(self, port: LabPort) -> None:
        self.lines.append(f"{self.name} placed")

    def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:
        self.lines.append(f"{self.name} before")

    def launched(self, port: LabPort, task: Task, attempt: int) -> None:
        self.lines.append(f"{self.name} after")

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:
        self.lines.append(f"{self.name} finished")

    def killed(self, port: LabPort, event: TaskFinished) -> None:
        self.lines.append(f"{self.name} killed")


def test_actions_of_a_time_keep_their_order_and_none_is_in_the_past() -> None:
    lab, called = lab_of(), list[tuple[str, Time]]()
    lab.now = 50

    def call(name: str, _: None, now: Time) -> None:
        called.append((name, now))

    for name, at in (("late", 70), ("early", 20), ("late too", 70)):
        lab.schedule(at, call, name, None)
    assert lab.times == [70], "an action of this instant needs no entry of the heap"
    for at in (50, 70):
        for function, first, second in lab.actions.pop(at):
            function(first, second, at)
    assert called == [("early", 50), ("late", 70), ("late too", 70)]


def test_messages_of_a_phase_keep_its_path() -> None:
    lab, actor = lab_of(Network(500)), Actor()
    lab.doors["node/0"] = Door.of(actor)
    lane, receiver, handlers = lab.routes_of("gm").to("node/0")
    lane.sent.append((receiver, handlers, Note(1), "gm/0"))
    lab.enter(7)
    lane.sent.append((receiver, handlers, Note(2), "gm/0"))
    lab.enter(7)
    assert [(due, path) for due, path, _ in lane.batches] == [(500, 0)], "the same path is the same phase"
    assert lab.is_busy()
    assert lab.pending_until() == 500
    lab.enter(0)
    assert [(due, path) for due, path, _ in lane.batches] == [(500, 0), (500, 7)]


def test_links_of_one_delay_share_a_lane_and_the_longest_delay_comes_first() -> None:
    lab = lab_of(Network(500, {("lm", "node"): 9, ("gm", "lm"): 500}))
    for address in ("lm/0", "node/0"):
        lab.doors[address] = Door.of(Actor())
    near, far, further = (lab.routes_of(a).to(b)[0] for a, b in (("lm", "node/0"), ("gm", "lm/0"), ("gm", "node/0")))
    assert further is far
    assert lab.delayed == [far, near]
    with pytest.raises(KeyError, match="'gm/9', which is not an address"):
        lab.routes_of("lm").to("gm/9")


def test_a_door_refuses_what_its_component_does_not_list() -> None:
    lab, door = lab_of(), Door.of(Component())
    with pytest.raises(UnknownMessageError):
        lab.deliver([(door.owner, door.handlers, Note(), "gm/0")], 0, 0)


def test_rules_are_asked_in_order_before_a_launch_and_in_reverse_order_after_it() -> None:
    lab, lines = lab_of(), list[str]()
    port = port_of(lab, Diary("a", lines), Diary("b", lines))
    assert lines == ["a placed", "b placed"]
    lines.clear()
    port.launch(TASK, 0)
    assert lines == ["a before", "b before", "b after", "a after"]
    lines.clear()
    ((ended, event),) = lab.finishes[10]
    ended.finished(ended.owner, event, ended.address, 10)
    assert lines == ["a finished", "b finished"]
    lines.clear()
    port.release(event)
    assert lines == ["a killed", "b killed"]


def test_a_rule_that_refuses_a_launch_leaves_no_record() -> None:
    class Never(LaunchRule):
        def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:
            raise BrokenRule("never")

    lab = lab_of()
    port = port_of(lab, Never())
    with pytest.raises(BrokenRule, match="never"):
        port.launch(TASK, 0)
    assert port.is_idle()
    assert not lab.finishes


def test_a_port_without_rules_is_the_plain_one() -> None:
    assert type(port_of(lab_of())).__mro__[1] is LabPort
