"""Broken designs that do not keep to the messages, hops and stages that they declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.conformance.mutation import assemble, mutant

from volery.architectures import oracle
from volery.architectures.oracle import ORACLE, OracleConfig
from volery.architectures.oracle.scheduler import Placed, Scheduler, SlotMachines
from volery.core.component import Component, Deployment, sent_to
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import Address, Cluster, Message, Task, Time
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import Completed, Kill, Launch, Node


class Changeable(Message, frozen=True):
    """Scheduler > node: run the task in the box."""

    number: int
    box: list[Task]


class Changes(Scheduler):
    """Changes a message after it was sent."""

    __slots__ = ("_box",)

    def start(self, now: Time) -> None:
        super().start(now)
        self._box: list[Task] = []

    def _launch(self, placed: Placed) -> None:
        task, unit = placed
        self._running[task.id] = placed
        self._launches += 1
        self._box = [task]
        self._port.send(self._nodes[unit], Changeable(self._launches, self._box))

    def _schedule(self, tasks: Sequence[Task]) -> None:
        super()._schedule(tasks)
        self._box.clear()


class OpensBoxes(Component):
    """Launches what is in the box when it arrives, or asks again."""

    __slots__ = ()

    def on_box(self, message: Changeable, source: Address, now: Time) -> None:
        for task in message.box:
            self._port.launch(task, 0)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        self._port.send("oracle/0", Completed(event.task.id))

    receives = {Changeable: on_box, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced by the base class


@mutant("check_codec_changes_nothing", messages=frozenset({Changeable, Completed}))
def build_changes_a_sent_message(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Changes(SlotMachines(cluster)), lambda _: OpensBoxes(), {})


@mutant("check_messages_survive_the_codec", messages=frozenset({Changeable, Completed}))
def build_sends_lists(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


@mutant("check_messages_are_declared", messages=frozenset({Launch}))
def build_sends_undeclared_messages(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


@mutant("check_lone_task_costs_its_hops", hops=1)
def build_costs_more_hops(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


class Dawdles(Node):
    """Waits a millisecond before it starts a task."""

    __slots__ = ("_waiting",)

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        if message.number > self._launched:
            self._launched = message.number
            self._waiting = message.task
            self._port.set_timer("start", now + 1_000)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._port.launch(self._waiting, 0)

    receives = {**Node.receives, TimerFired: on_timer}  # noqa: RUF012 - replaced by the base class


@mutant("check_allocation_adds_up")
def build_waits_without_saying(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Dawdles, {})


class Telepathic(Scheduler):
    """Calls its nodes instead of sending to them."""

    __slots__ = ("touched",)
    touched: dict[Address, Component]

    def _launch(self, placed: Placed) -> None:
        task, unit = placed
        self._running[task.id] = placed
        self._launches += 1
        self.touched[self._nodes[unit]].handle(Launch(self._launches, task), "oracle/0", 0)


@mutant("check_costly_roles_saturate")
def build_calls_other_components(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    scheduler = Telepathic(SlotMachines(cluster))
    deployment = assemble(cluster, scheduler, Node, {})
    scheduler.touched = dict(deployment.components)
    return deployment


class Tolerant(Node):
    """Ignores what it does not know."""

    __slots__ = ()

    def handle(self, event: Any, source: Address, now: Time) -> None:
        if type(event) in self.receives:
            super().handle(event, source, now)


@mutant("check_unknown_messages_raise")
def build_ignores_unknown_messages(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Tolerant, {})


@mutant("check_stages_exist", stages={Stage.J1: Realisation("Scheduler.on_submission")})
def build_declares_what_it_lacks(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return oracle.build(cluster, config, streams)


@mutant("check_stages_exist", stages={Stage.J1: Realisation("Scheduler.on_submit", when="relyable=true")})
def build_declares_an_unknown_setting(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return oracle.build(cluster, config, streams)


class Secretive(Scheduler):
    """Does not say that it launches."""

    __slots__ = ()
    sends = Scheduler.sends - sent_to("node", Launch)


@mutant("check_flow_is_declared")
def build_hides_what_it_says(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Secretive(SlotMachines(cluster)), Node, {})


class Boastful(Node):
    """Says that it sends what nobody takes."""

    __slots__ = ()
    sends = Node.sends | sent_to("oracle", Launch)


@mutant("check_flow_is_declared")
def build_says_what_nobody_takes(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Boastful, {})


@mutant("check_flow_is_declared", messages=ORACLE.messages - {Kill})
def build_keeps_what_it_seldom_says_from_the_wire(
    cluster: Cluster, config: OracleConfig, streams: Streams
) -> Deployment:
    """Only a job that is cancelled makes it say so."""
    return oracle.build(cluster, config, streams)


class Unsaid(Message, frozen=True):
    """Scheduler > node: nobody sends it."""


class Waits(Node):
    """Takes what nobody says that it sends."""

    __slots__ = ()

    def on_unsaid(self, message: Unsaid, source: Address, now: Time) -> None:
        pass

    receives = {**Node.receives, Unsaid: on_unsaid}  # noqa: RUF012 - replaced by the base class


@mutant("check_flow_is_declared", messages=ORACLE.messages | {Unsaid})
def build_takes_what_nobody_says(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Waits, {})
