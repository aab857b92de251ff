"""A scheduler's cycle: tasks in order, machines by filter and selection, each by the policy of its stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from volery.architectures.pipeline.iterations import Easy, Iteration, Skipping, Strict
from volery.architectures.pipeline.kinds import Kinds
from volery.architectures.pipeline.messages import Completed, Kill, Launch
from volery.architectures.pipeline.queues import KeyedQueue, Queue, RandomQueue, TurnsQueue
from volery.core.component import Component
from volery.core.events import TimerFired
from volery.core.model import SECOND, Address, Cluster, Task, Time
from volery.policies.stages import Candidates, Choice, JobRecord, Kind, Running, State, View, Waiting

CYCLE = "cycle"
DECIDED = "decided"


class Assembly(msgspec.Struct, frozen=True):
    """The policies that a scheduler is assembled from, and what its cycles cost.

    Args:
        policies: by the id of their stage: of J2, J3, J5, T2, T5, M1, M4, M5, R2 and R5.
        iteration: how stage T3 goes on where a task does not fit: skip, strict or easy.
        cycle_us: the period of cycles; 0: whenever something has changed.
        decision_us: what a cycle costs.
        task_us: what it costs more for each task that is tried.
        ways: how many tasks are tried at once (stage J4); it divides what they cost.
    """

    policies: dict[str, Any]
    iteration: str = "skip"
    cycle_us: Time = 0
    decision_us: Time = 0
    task_us: Time = 0
    ways: int = 1

    def cost_us(self, tried: int) -> Time:
        """What a cycle costs in which so many tasks are tried."""
        return self.decision_us + self.task_us * -(-tried // self.ways)


class Place(NamedTuple):
    """The machines that a scheduler manages.

    Args:
        cluster: of these alone.
        nodes: their addresses.
        numbers: their numbers in the whole cluster.
    """

    cluster: Cluster
    nodes: Sequence[Address]
    numbers: Sequence[int]


class Placing(Component):
    """Whoever gives tasks machines: stages T2 to T5 and R1 to R5.

    Args:
        place: the machines.
        assembly: of policies.
        stream: its own.
        make_state: from the half-life of averages; what a State makes of the machines, if it is another.
    """

    __slots__ = ("_access", "_aside", "_assembly", "_busy", "_decided", "_draw", "_due", "_iteration", "_launches",
                 "_nodes", "_numbered", "_queue", "_select_machine", "_setup", "_state", "_view")  # fmt: skip

    def __init__(
        self, place: Place, assembly: Assembly, stream: Random, make_state: Callable[[Time], State] | None = None
    ) -> None:
        policies = assembly.policies
        half_life_s = getattr(policies["T2"], "half_life_s", 0)
        self._nodes = place.nodes
        self._assembly = assembly
        self._draw = stream
        half_life_us = round(half_life_s * SECOND)
        self._state = make_state(half_life_us) if make_state else State(place.cluster, place.numbers, half_life_us)
        self._view = View(self._state)
        self._select_machine = policies["R5"].select
        self._setup = policies["T5"].stage_us
        self._queue = self._make_queue(policies["T2"], policies["J3"])
        self._iteration = self._make_iteration()
        self._access: dict[str, int] = {}
        self._aside: list[Waiting] = []
        self._decided: list[Running] = []
        self._launches = self._numbered = 0
        self._due = self._busy = False

    def _make_queue(self, tasks: Any, jobs: Any) -> Queue:
        kinds = Kinds(self._state.packing, self._state.cluster.constraints)
        if getattr(tasks, "drawn", False):
            return RandomQueue(self._draw, kinds)
        if hasattr(tasks, "turns"):
            return TurnsQueue(self._view, tasks, jobs, kinds)
        if hasattr(jobs, "turns"):
            return TurnsQueue(self._view, jobs, None, kinds)
        return KeyedQueue(self._view, tasks, jobs, kinds)

    def _make_iteration(self) -> Iteration:
        if self._assembly.iteration == "easy":
            assert isinstance(self._queue, KeyedQueue), "other orders are refused"
            return Easy(self._state, self._queue)
        return (Strict if self._assembly.iteration == "strict" else Skipping)(self._state, self._queue)

    def _kind(self, task: Task, user: str) -> Kind:
        """Stages R2 and R3: the machines that the user may have and that suit the task."""
        access = self._access.get(user)
        if access is None:
            machines = self._assembly.policies["R2"].machines(self._view, user)
            access = self._access[user] = self._state.access(machines)
        return self._state.kind(task, access)

    def _record(self, task: Task, job: JobRecord, kind: Kind, rank_us: Time, now: Time) -> Waiting:
        """A task that is ready, the next in number."""
        self._numbered += 1
        self._state.now = now
        return Waiting(task, job, kind, self._numbered, now, self._state.work_us(task), rank_us)

    def _enqueue(self, waiting: Waiting) -> None:
        """Stage J3, and T2: a task takes its place among those that wait."""
        self._state.waiting[waiting.task.id] = waiting
        self._queue.push(waiting)
        self._iteration.joined(waiting)

    def _changed(self, now: Time) -> None:
        """Something that a cycle reads has changed: let there be one."""
        if self._busy:
            self._due = True
        elif not self._assembly.cycle_us:
            self._cycle(now)
        elif not self._due:
            self._due = True
            period = self._assembly.cycle_us
            self._port.set_timer(CYCLE, -(-now // period) * period)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """A periodic cycle, or the end of one that takes time."""
        if event.key == DECIDED:
            self._decide(now)
            return
        self._due = False
        self._cycle(now)

    def _cycle(self, now: Time) -> None:
        """Stage T3: try what waits and may fit, in order; what fits nowhere stays."""
        state, kinds = self._state, self._queue.kinds
        state.now = now
        self._admit(now)
        if not kinds.open:
            return
        self._queue.begin()
        tried = 0
        while (waiting := self._next_task()) is not None:
            tried += 1
            machines = self._fitting(waiting)
            if machines is None:
                kinds.close(waiting.kind)
                continue
            machine = self._select(waiting, machines)
            if machine >= 0:
                self._submit_task(waiting, machine, now)
            elif self._set_aside(waiting):
                break
        for waiting in self._aside:
            self._enqueue(waiting)
        self._aside.clear()
        cost = self._assembly.cost_us(tried)
        if cost:
            self._busy = True
            self._port.set_timer(DECIDED, now + cost)

    def _admit(self, now: Time) -> None:
        """Stage J2, where there are jobs."""

    def _next_task(self) -> Waiting | None:
        """Stage T2: the task to try now."""
        return self._iteration.following()

    def _fitting(self, waiting: Waiting) -> Any:
        """Stage R4: the suitable machines that have enough; None: none has."""
        among = self._iteration.among(waiting)
        if self._state.index.pick(waiting.kind.need, among, "first") < 0:
            return None
        return Candidates(self._state, waiting, among)

    def _select(self, waiting: Waiting, machines: Any) -> int:
        """Stage R5: one of them; -1: the policy would rather wait."""
        found = self._select_machine(self._view, waiting, machines, self._draw)
        if type(found) is Choice:
            found, self._state.resume = found
        if found is None:
            return -1
        if found not in machines:
            policy = type(self._assembly.policies["R5"]).__name__
            raise ValueError(f"{policy} has selected machine {found!r} for task {waiting.task.id}: no candidate")
        return int(found)

    def _set_aside(self, waiting: Waiting) -> bool:
        """The policy would rather wait: not in this cycle. Returns whether that ends the cycle."""
        self._queue.remove(waiting)
        del self._state.waiting[waiting.task.id]
        self._aside.append(waiting)
        return self._assembly.iteration == "strict"

    def _submit_task(self, waiting: Waiting, machine: int, now: Time) -> None:
        """Stage T4: the machine is the task's from now on."""
        self._queue.remove(waiting)
        running = self._state.launched(waiting, machine, now)
        self._queue.served(waiting)
        self._iteration.started(machine)
        if self._assembly.decision_us or self._assembly.task_us:
            self._decided.append(running)
        else:
            self._launch(running)

    def _decide(self, now: Time) -> None:
        """The cycle has taken its time: what it decided happens, unless it is not wanted any more."""
        decided, self._decided = self._decided, []
        for running in decided:
            if self._state.running.get(running.task.id) is running:
                self._launch(running)
        self._busy = False
        if self._due:
            self._due = False
            self._changed(now)

    def _launch(self, running: Running) -> None:
        """Stage T5: tell the node, and how long files come in before."""
        waiting = running.waiting
        self._launches += 1
        launch = Launch(self._launches, waiting.task, waiting.attempt, self._setup(self._view, waiting))
        self._port.send(self._nodes[running.machine], launch)

    def _ended(self, message: Completed, now: Time) -> Running | None:
        """Stage T7: an attempt has ended; None where that is no news."""
        running = self._state.running.get(message.task)
        if running is None or running.waiting.attempt != message.attempt:
            return None
        self._release(running, now)
        return running

    def _release(self, running: Running, now: Time) -> None:
        self._state.ended(running.task.id, now)
        self._iteration.given_back(running.machine)

    def _give_up(self, job: JobRecord, now: Time) -> int:
        """Drop what waits of a job and kill what runs; returns how many tasks ended by that at once."""
        dropped = [waiting for waiting in self._state.waiting.values() if waiting.job is job]
        for waiting in dropped:
            self._queue.remove(waiting)
            del self._state.waiting[waiting.task.id]
        unsent = {running.task.id for running in self._decided}
        for running in [running for running in self._state.running.values() if running.job is job]:
            if running.task.id in unsent:
                self._release(running, now)
                dropped.append(running.waiting)
            else:
                self._port.send(self._nodes[running.machine], Kill(running.task.id, running.waiting.attempt))
        return len(dropped)

    def check(self) -> None:
        """Free, held and running agree; and no machine has room for a task of a kind that is said to fit nowhere."""
        self._state.check()
        self._queue.check()
        machines = self._state.online & ~self._iteration.withheld()
        for kind in self._queue.kinds.closed:
            fitting = self._state.index.fitting(kind.need, kind.suitable & machines)
            assert not fitting, f"machines {fitting:#x} have room for a kind that is said to fit nowhere"
