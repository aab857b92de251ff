"""Lottery: every task goes to a random suitable worker, without asking it (the "random" of Sparrow's comparisons).

Roles    Scheduler (one), Node (one per machine, with a queue of tasks).
Flow     Submit > Launch > (a slot frees) > Completed.
Deviates No published system; the shortest complete scheduler that is worth comparing with.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Annotated

import msgspec

from volery.core.component import Architecture, Component, Conformance, Deployment, sent_to
from volery.core.events import Cancel, MoreTasks, Submit, TaskFinished
from volery.core.model import Address, Cluster, Message, Task, TaskId, Time
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.submission import ANSWERS, JobLedger


class Launch(Message, frozen=True):
    """Scheduler > node: run the task when a slot is free. Numbers grow, so that a repeated message is recognised."""

    number: int
    task: Task


class Drop(Message, frozen=True):
    """Scheduler > node: the task is not wanted any more; Completed follows."""

    task: TaskId


class Completed(Message, frozen=True):
    """Node > scheduler: the task has ended."""

    task: TaskId


class LotteryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The only parameter."""

    tickets: Annotated[int, msgspec.Meta(ge=1, description="draws per task; the worker with the fewest tasks wins")] = 1


class Scheduler(Component):
    """Draws a worker for each task."""

    def __init__(self, constraints: tuple[int, ...], tickets: int, stream: Random) -> None:
        self._constraints = constraints
        self._tickets = tickets
        self._stream = stream
        self._sent: dict[TaskId, tuple[Task, int]] = {}
        self._load = [0] * len(constraints)
        self._launches = 0

    def start(self, now: Time) -> None:
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        self._place(self._jobs.admit(message, source, 0))

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._place(self._jobs.more(message))

    def _place(self, tasks: tuple[Task, ...]) -> None:
        for task in tasks:
            suitable = [k for k, offered in enumerate(self._constraints) if not task.constraints & ~offered]
            if not suitable:
                self._jobs.unsatisfiable(task.job)
                continue
            worker = min(self._stream.choices(suitable, k=self._tickets), key=self._load.__getitem__)
            self._load[worker] += 1
            self._sent[task.id] = (task, worker)
            self._launches += 1
            self._port.send(f"node/{worker}", Launch(self._launches, task))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        if message.task in self._sent:
            task, worker = self._sent.pop(message.task)
            self._load[worker] -= 1
            self._jobs.finished(task.job)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        if self._jobs.cancel(message, source):
            for task, worker in self._sent.values():
                if task.job == message.job:
                    self._port.send(f"node/{worker}", Drop(task.id))

    receives = {Submit: on_submit, MoreTasks: on_more_tasks, Cancel: on_cancel, Completed: on_completed}
    sends = ANSWERS | sent_to("node", Launch, Drop)


class Node(Component):
    """Runs its tasks first come first served."""

    def __init__(self, slots: int) -> None:
        self._idle = slots
        self._queue: deque[tuple[Task, Time]] = deque()
        self._seen = 0

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        if message.number > self._seen:
            self._seen = message.number
            self._queue.append((message.task, now))
            self._serve(now)

    def _serve(self, now: Time) -> None:
        while self._idle and self._queue:
            task, came = self._queue.popleft()
            self._idle -= 1
            self._port.launch(task, 0, now - came)

    def on_drop(self, message: Drop, source: Address, now: Time) -> None:
        self._port.kill(message.task, 0)
        kept = [(task, came) for task, came in self._queue if task.id != message.task]
        if len(kept) < len(self._queue):
            self._queue = deque(kept)
            self._port.send("scheduler/0", Completed(message.task))

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        self._idle += 1
        self._port.send("scheduler/0", Completed(event.task.id))
        self._serve(now)

    def check(self) -> None:
        assert not (self._idle and self._queue), "a slot idles while a task waits"

    receives = {Launch: on_launch, Drop: on_drop, TaskFinished: on_task_finished}
    sends = sent_to("scheduler", Completed)


def build(cluster: Cluster, config: LotteryConfig, streams: Streams) -> Deployment:
    """Components for a cluster."""
    machines = {f"node/{machine}": machine for machine in range(len(cluster.constraints))}
    components: dict[Address, Component] = {address: Node(cluster.slots[m]) for address, m in machines.items()}
    components["scheduler/0"] = Scheduler(cluster.constraints, config.tickets, streams.of("scheduler/0"))
    return Deployment(components, machines, lambda job: "scheduler/0")


LOTTERY = Architecture(
    name="lottery",
    summary="every task to a random suitable worker, without asking it",
    source="none; a tutorial",
    defaults=LotteryConfig(),
    messages=frozenset({Launch, Drop, Completed}),
    stages={Stage.J1: Realisation("Scheduler.on_submit"), Stage.R5: Realisation("Scheduler._place")},
    build=build,
    conformance=Conformance(hops=2, tolerates=frozenset({"duplication"})),
    features={"constraints": ""},
)
