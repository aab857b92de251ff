"""Two levels: a scheduler passes tasks to local resource managers (LRMs), each with machines and a queue of its own.

Andreadis et al., SC18, section III-D3: stages M2 to M6 at the upper level, T2 to T5 and R1 to R5 at the lower one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from volery.architectures.pipeline.broker import Outside, message_of
from volery.architectures.pipeline.exits import Then
from volery.architectures.pipeline.messages import Completed, Kill, Launch, Pass, Risen
from volery.architectures.pipeline.mortal import MortalNode
from volery.architectures.pipeline.node import Node
from volery.architectures.pipeline.placing import BACKFILLING, Assembly, Place, Placing
from volery.architectures.pipeline.policies import JobRecord, Kind, Manager, Running, State, Waiting, vector_of
from volery.architectures.pipeline.policies.migrating import NoMigration
from volery.architectures.pipeline.policies.preempting import NoPreemption
from volery.architectures.pipeline.policies.replicating import NoCopies
from volery.architectures.pipeline.scheduler import Scheduler
from volery.architectures.pipeline.tending import Tending
from volery.core.component import sent_to
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import Address, Amounts, Cluster, JobId, Task, Time
from volery.core.resources import Packing
from volery.policies.match import positions
from volery.roles.submission import ANSWERS

PASSED = 0
"""Attempts are the lower level's: to the upper one a task that it has passed has this one alone."""


class ManagersState(State):
    """What the upper level knows: a "machine" is a local resource manager, and whatever is passed to it fits.

    Args:
        places: the machines of each.
    """

    def __init__(self, places: Sequence[Place], half_life_us: Time) -> None:
        self.parts = [State(place.cluster, place.numbers) for place in places]
        names = places[0].cluster.resources
        capacities = tuple([part.capacity for part in self.parts])
        count = len(capacities)
        cluster = Cluster((0,) * count, (1,) * count, "managers", names or ("slots",), capacities)
        super().__init__(cluster, (), half_life_us, Packing(len(cluster.resources)))  # a manager has no devices
        self._tokens: list[tuple[int, ...]] = []

    def access(self, machines: Iterable[int] | None) -> int:
        """What stands for the machines of a user."""
        wanted = None if machines is None else tuple(machines)
        tokens = tuple([part.access(wanted) for part in self.parts])
        if tokens not in self._tokens:
            self._tokens.append(tokens)
        return self._tokens.index(tokens)

    def _make_kind(self, task: Task, access: int) -> Kind:
        """It suits the managers of which some machine holds the task when empty, and takes nothing from their room."""
        tokens = self._tokens[access]
        suitable = vector_of(n for n, part in enumerate(self.parts) if part.kind(task, tokens[n]).possible)
        kind = Kind(0, self.ladders[task.request], suitable, bool(suitable))
        kind.packed = 0
        return kind


class GlobalScheduler(Scheduler):
    """The upper level: J stages, T1 to T3, and whom a task is passed to.

    Args:
        places: the machines of each local resource manager; `nodes` are their own addresses here.
        managers: addresses of the local resource managers.
        assembly: of policies.
        stream: its own.
        outside: the broker, if there is one.
    """

    __slots__ = ("_managed", "_select_manager", "_taken", "_usable")

    def __init__(
        self,
        places: Sequence[Place],
        managers: Sequence[Address],
        assembly: Assembly,
        stream: Random,
        outside: Outside | None = None,
    ) -> None:
        self._managed = [0] * len(places)
        self._usable = assembly.policies["M4"].usable
        self._select_manager = assembly.policies["M5"].select
        iteration = "skip" if assembly.iteration in BACKFILLING else assembly.iteration
        policies = {**assembly.policies, "T9": NoCopies(), "T10": NoPreemption(), "T12": NoMigration()}
        whole = msgspec.structs.replace(assembly, iteration=iteration, policies=policies, per_instant=False)
        super().__init__(
            Place(places[0].cluster, managers, ()), whole, stream, outside, lambda us: ManagersState(places, us)
        )
        self._taken = [[0] * len(self._state.capacity) for _ in places]

    def _manager(self, number: int) -> Manager:
        capacity = self._state.capacities[number]
        free: Amounts = tuple([all_ - taken for all_, taken in zip(capacity, self._taken[number], strict=True)])
        assert isinstance(self._state, ManagersState)
        count = len(self._state.parts[number].capacities)
        return Manager(number, capacity, free, self._managed[number], count)

    def _fitting(self, waiting: Waiting) -> list[Manager] | None:
        """Stages M3 and M4: the usable managers among those that have a machine for the task; None: none is."""
        found = [self._manager(number) for number in positions(waiting.kind.suitable)]
        return [one for one in found if self._usable(self._view, waiting, one)] or None

    def _select(self, waiting: Waiting, machines: Sequence[Manager]) -> int:
        """Stage M5: one of them."""
        chosen: int = self._select_manager(self._view, waiting, machines, self._draw)
        if all(chosen != one.number for one in machines):
            policy = type(self._assembly.policies["M5"]).__name__
            raise ValueError(f"{policy} has selected manager {chosen!r} for task {waiting.task.id}: no candidate")
        return chosen

    def _submit_task(self, waiting: Waiting, machine: int, now: Time) -> None:
        """Stage M2: the task is that manager's from now on."""
        self._count(waiting.task, machine, 1)
        super()._submit_task(waiting, machine, now)

    def _release(self, running: Running, now: Time) -> None:
        self._count(running.task, running.machine, -1)
        super()._release(running, now)

    def _count(self, task: Task, manager: int, sign: int) -> None:
        self._managed[manager] += sign
        taken = self._taken[manager]
        for k, amount in enumerate(task.request or (1,)):
            taken[k] += sign * amount

    def _launch(self, running: Running) -> None:
        """Stage M6: pass it on."""
        self._launches += 1
        running.sent = True
        self._port.send(self._nodes[running.machine], message_of(self._launches, running.waiting))

    def check(self) -> None:
        """What managers have been passed is what has not ended."""
        self._state.check()
        self._queue.check()
        for number, managed in enumerate(self._managed):
            assert managed == len(self._state.on_machine[number])

    sends = ANSWERS | sent_to("lrm", Pass, Kill) | sent_to("broker", Pass, Kill)


class LocalManager(Tending):
    """The lower level: queues what it is passed, gives it machines, and tells of its end.

    Args:
        place: its machines.
        assembly: of policies.
        stream: its own.
        above: who passes tasks to it.
        delay_us: how long it keeps a task before it joins the queue.
    """

    __slots__ = ("_above", "_delay_us", "_delayed", "_open", "_passed")

    def __init__(self, place: Place, assembly: Assembly, stream: Random, above: Address, delay_us: Time = 0) -> None:
        super().__init__(place, assembly, stream)
        self._above = above
        self._delay_us = delay_us
        self._delayed: dict[int, Pass] = {}
        self._open: dict[JobId, int] = {}
        self._passed = 0

    def on_pass(self, message: Pass, source: Address, now: Time) -> None:
        """Queue the task; a repeated or overtaken message is ignored."""
        if message.number <= self._passed:
            return
        self._passed = message.number
        if self._delay_us:
            self._delayed[message.task.id] = message
            self._port.set_timer(message.task.id, now + self._delay_us)
        else:
            self._take(message, now)

    def _take(self, message: Pass, now: Time) -> None:
        task = message.task
        job = self._state.jobs.get(task.job)
        if job is None:
            job = self._state.jobs[task.job] = JobRecord(
                task.job, message.user, message.priority, message.deadline_us, message.submit_us, task.estimate_us,
                message.task_count, eligible=True,
            )  # fmt: skip
        self._open[task.job] = self._open.get(task.job, 0) + 1
        work = self._state.work_us(task)
        job.work_us += work
        job.left_us += work
        waiting = self._record(task, job, self._kind(task, job), message.rank_us, message.came_us, now)
        self._enqueue(waiting)
        self._changed(now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Also a task that was kept for a while."""
        if isinstance(event.key, int):
            self._take(self._delayed.pop(event.key), now)
        else:
            super().on_timer(event, source, now)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """The task is not wanted any more."""
        number = message.task
        if number in self._delayed:
            del self._delayed[number]
            self._port.cancel_timer(number)
            self._port.send(self._above, Completed(number, PASSED))
            return
        waiting, running = self._state.waiting.get(number), self._state.running.get(number)
        if waiting is not None:
            self._queue.remove(waiting)
            del self._state.waiting[number]
            self._finish(waiting, now)
        elif running is not None and self._call_off(running, now):
            self._finish(running.waiting, now)
        for leaving in self._exits.of_task(number):
            if leaving.then is Then.QUEUE:
                leaving.then = Then.OVER
        self._changed(now)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Tell of the end, and use the machine again."""
        waiting = self._ended(message, now)
        if waiting is not None:
            self._finish(waiting, now)
            self._changed(now)

    def _finish(self, waiting: Waiting, now: Time) -> None:
        job = waiting.job
        job.left_us -= waiting.work_us
        self._open[job.id] -= 1
        if not self._open[job.id]:
            del self._open[job.id], self._state.jobs[job.id]
        self._port.send(self._above, Completed(waiting.task.id, PASSED))

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Pass: on_pass,
        Kill: on_kill,
        Completed: on_completed,
        TimerFired: on_timer,
        PeerLost: Placing.on_lost,
        PeerBack: Placing.on_back,
        Risen: Placing.on_risen,
    }
    sends = sent_to("node", Launch, Kill) | sent_to("scheduler", Completed)


class ManagedNode(Node):
    """A machine of a manager: who launches is who is told."""

    __slots__ = ()
    sends = sent_to("lrm", Completed) | sent_to("broker", Completed)


class ManagedMortalNode(MortalNode):
    """Such a machine that may die and come back."""

    __slots__ = ()
    sends = ManagedNode.sends | sent_to("lrm", Risen) | sent_to("broker", Risen)
