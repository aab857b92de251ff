"""A scheduler's cycle: tasks in order, machines by filter and selection, each by the policy of its stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from volery.architectures.pipeline.exits import Exit, Exits, Then
from volery.architectures.pipeline.iterations import Easy, Iteration, Skipping, Strict
from volery.architectures.pipeline.kinds import Kinds
from volery.architectures.pipeline.messages import Completed, Kill, Launch, Risen
from volery.architectures.pipeline.policies import Candidates, Choice, JobRecord, Kind, Running, State, View, Waiting
from volery.architectures.pipeline.policies.policy import Preempting
from volery.architectures.pipeline.policies.preempting import NoPreemption
from volery.architectures.pipeline.queues import KeyedQueue, Queue, RandomQueue, TurnsQueue
from volery.architectures.pipeline.reserving import Conservative
from volery.core.component import Component
from volery.core.events import PeerBack, PeerLost, Preemption, PreemptionReason, TimerFired
from volery.core.model import NEVER, SECOND, Address, Cluster, Task, TaskId, Time
from volery.policies.match import positions

BACKFILLING: Final[dict[str, type[Easy | Conservative]]] = {"easy": Easy, "conservative": Conservative}
"""Iterations that reserve: they need an order that is fixed when a task is queued, and estimates of what runs."""
CYCLE = "cycle"
DECIDED = "decided"


class Assembly(msgspec.Struct, frozen=True):
    """The policies that a scheduler is assembled from, and what its cycles cost.

    Args:
        policies: by the id of their stage: of J2, J3, J5, T2, T5, T9, T10, T11, T12, M1, M4, M5, R2, R5, R6 and R7.
        iteration: how stage T3 goes on where a task does not fit: skip, strict, easy or conservative.
        cycle_us: the period of cycles; 0: whenever something has changed.
        decision_us: what a cycle costs.
        task_us: what it costs more for each task that is tried.
        per_instant: without a period, whether there is one cycle after all that happens in an instant, not after each
            event.
        ways: how many tasks are tried at once (stage J4); it divides what they cost.
    """

    policies: dict[str, Any]
    iteration: str = "skip"
    cycle_us: Time = 0
    decision_us: Time = 0
    task_us: Time = 0
    ways: int = 1
    per_instant: bool = False

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
    """Whoever gives tasks machines: stages T2 to T5, T10 and R1 to R5.

    Args:
        place: the machines.
        assembly: of policies.
        stream: its own.
        make_state: from the half-life of averages; what a State makes of the machines, if it is another.
    """

    __slots__ = ("_access", "_aside", "_assembly", "_busy", "_decided", "_deciding", "_doomed", "_draw", "_due",
                 "_exits", "_iteration", "_launches", "_lives", "_nodes", "_numbered", "_preempting",
                 "_queue", "_reason", "_select_machine", "_setup", "_state", "_view")  # fmt: skip
    kinds_role: ClassVar[type[Kinds]] = Kinds

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
        self._preempting = None if isinstance(policies["T10"], NoPreemption) else policies["T10"]
        self._reason: PreemptionReason = policies["T10"].reason
        if self._preempting is not None:
            self._state.priorities = {}
            self._state.held_by = {}
        self._exits = Exits()
        self._lives: dict[Address, int] = {}
        self._doomed: list[Exit] = []
        self._queue = self._make_queue(policies["T2"], policies["J3"])
        self._iteration = self._make_iteration()
        self._access: dict[str, int] = {}
        self._aside: list[Waiting] = []
        self._decided: list[Running] = []
        self._launches = self._numbered = 0
        self._due = self._busy = self._deciding = False

    def _make_queue(self, tasks: Any, jobs: Any) -> Queue:
        kinds = self.kinds_role(self._state.packing, self._state.cluster.constraints)
        if getattr(tasks, "drawn", False):
            return RandomQueue(self._draw, kinds)
        if hasattr(tasks, "turns"):
            return TurnsQueue(self._view, tasks, jobs, kinds)
        if hasattr(jobs, "turns"):
            return TurnsQueue(self._view, jobs, None, kinds)
        return KeyedQueue(self._view, tasks, jobs, kinds)

    def _make_iteration(self) -> Iteration:
        if self._assembly.iteration in BACKFILLING:
            assert isinstance(self._queue, KeyedQueue), "other orders are refused"
            return BACKFILLING[self._assembly.iteration](self._state, self._queue)
        return (Strict if self._assembly.iteration == "strict" else Skipping)(self._state, self._queue)

    def _kind(self, task: Task, job: JobRecord) -> Kind:
        """Stages R2 and R3: the machines that the user may have and that suit the task."""
        access = self._access.get(job.user)
        if access is None:
            machines = self._assembly.policies["R2"].machines(self._view, job.user)
            access = self._access[job.user] = self._state.access(machines)
        claim = None if self._preempting is None else self._preempting.claim(job)
        return self._state.kind(task, access, claim)

    def _record(self, task: Task, job: JobRecord, kind: Kind, rank_us: Time, came_us: Time, now: Time) -> Waiting:
        """A task that is ready, the next in number."""
        self._numbered += 1
        self._state.now = now
        return Waiting(task, job, kind, self._numbered, now, self._state.work_us(task), rank_us, came_us)

    def _enqueue(self, waiting: Waiting) -> None:
        """Stage J3, and T2: a task takes its place among those that wait."""
        self._state.waiting[waiting.task.id] = waiting
        self._queue.push(waiting)
        self._iteration.joined(waiting)

    def _changed(self, now: Time) -> None:
        """Something that a cycle reads has changed: let there be one."""
        if self._busy:
            self._due = True
        elif not (self._assembly.cycle_us or self._assembly.per_instant):
            self._cycle(now)
        elif not self._due:
            self._due = True
            period = self._assembly.cycle_us or 1
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
        if self._preempting is not None:  # who may be preempted changes with more than what is given back
            for kind in list(kinds.closed):
                kinds.reopen(kind)
        if not kinds.open:
            return
        self._queue.begin()
        tried, self._deciding = 0, bool(self._assembly.decision_us or self._assembly.task_us)
        while (waiting := self._next_task()) is not None:
            tried += 1
            machines = self._fitting(waiting)
            if machines is None:
                if self._preempting is None or not self._preempt(self._preempting, waiting, now):
                    kinds.close(waiting.kind)
                continue
            machine = self._select(waiting, machines)
            if machine >= 0:
                self._submit_task(waiting, machine, now)
            elif self._set_aside(waiting):
                break
        self._deciding = False
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
        running = self._state.launched(waiting, machine, now, self._iteration.takes(waiting, machine))
        self._queue.served(waiting)
        self._iteration.started(machine)
        self._start(running)

    def _start(self, running: Running) -> None:
        """Tell the machine, as soon as the decision has taken its time and what has to end there has ended."""
        if self._deciding:
            self._decided.append(running)
        elif not self._exits.holds(running):
            self._launch(running)

    def _runs(self, running: Running) -> bool:
        """Whether this attempt runs, or is about to."""
        return self._state.on_machine[running.machine].get(running.task.id) is running

    def _preempt(self, policy: Preempting, waiting: Waiting, now: Time) -> bool:
        """Stage T10: end what runs where a task shall run that fits nowhere; False: the policy would not."""
        eviction = policy.evict(self._view, waiting, positions(self._iteration.among(waiting)))
        if eviction is None:
            return False
        losers = [self._state.on_machine[eviction.machine][number] for number in eviction.tasks]
        if not self._view.makes_room(waiting, eviction.machine, losers):
            name, task = type(policy).__name__, waiting.task.id
            raise ValueError(f"{name} makes no room for task {task} on machine {eviction.machine}")
        for running in losers:
            self._end(running, Then.QUEUE, now, waiting.task.id)
        self._submit_task(waiting, eviction.machine, now)
        return True

    def _end(self, running: Running, then: Then, now: Time, beneficiary: TaskId = NEVER) -> Exit:
        """End an attempt on purpose: its room is given back, and its task is nobody's until its end is heard of."""
        self._release(running, now)
        leaving = Exit(running, running.attempt, then, beneficiary)
        self._exits.add(leaving)
        if self._deciding:
            self._doomed.append(leaving)
        else:
            self._send_kill(leaving)
        return leaving

    def _send_kill(self, leaving: Exit) -> None:
        self._port.send(self._nodes[leaving.running.machine], Kill(leaving.waiting.task.id, leaving.attempt))

    def _decide(self, now: Time) -> None:
        """The cycle has taken its time: what it decided happens, unless it is not wanted any more."""
        decided, self._decided = self._decided, []
        doomed, self._doomed = self._doomed, []
        for leaving in doomed:
            self._send_kill(leaving)
        for running in decided:
            if self._runs(running) and not self._exits.holds(running):
                self._launch(running)
        self._busy = False
        if self._due:
            self._due = False
            self._changed(now)

    def _launch(self, running: Running) -> None:
        """Stage T5: tell the node, and how long files come in before."""
        waiting = running.waiting
        self._launches += 1
        node = self._nodes[running.machine]
        stage_us, life = self._setup(self._view, waiting), self._lives.get(node, 0)
        running.sent = True
        task = self._state.packing.naming(waiting.task, running.took)
        self._port.send(node, Launch(self._launches, task, running.attempt, stage_us, life))

    def _ended(self, message: Completed, now: Time) -> Waiting | None:
        """Stage T7: an attempt has ended; returns the task if that was its end, too."""
        running = self._state.running.get(message.task)
        if running is not None and running.attempt != message.attempt:
            copies = self._state.copies.get(message.task, ())
            running = next((copy for copy in copies if copy.attempt == message.attempt), None)
        if running is None:
            return self._left(message, now)
        if message.task in self._state.copies:
            self._end_copies(running, now)
        self._release(running, now)
        return running.waiting

    def _end_copies(self, running: Running, now: Time) -> None:
        """End the other attempts of a task."""
        raise NotImplementedError

    def _left(self, message: Completed, now: Time) -> Waiting | None:
        """Of an attempt that was to end: what was given its place is launched."""
        leaving, held = self._exits.close(message.task, message.attempt)
        if leaving is None:
            return None
        self._state.now = now
        for running in held:
            self._launch(running)
        waiting = leaving.waiting
        if leaving.then is Then.NOTHING or (leaving.target and message.killed and self._move_on(leaving.target, now)):
            return None
        if leaving.target and self._runs(leaving.target):
            self._release(leaving.target, now)
        if not message.killed or leaving.then is Then.OVER:
            return waiting
        if leaving.beneficiary != NEVER:
            self._port.observe(Preemption(now, message.task, message.attempt, leaving.beneficiary, self._reason))
        waiting.attempt += 1
        self._enqueue(waiting)
        self._changed(now)
        return None

    def _move_on(self, running: Running, now: Time) -> bool:
        """A task that moves has left; False: it is not wanted any more."""
        raise NotImplementedError

    def on_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """A node has died."""
        machine = self._nodes.index(event.peer)
        self._state.online &= ~(1 << machine)
        self._lose(machine, now)

    def on_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """A node lives again; it says so itself, and which life that is."""

    def on_risen(self, message: Risen, source: Address, now: Time) -> None:
        """A node has begun a new life, which may be the first that is heard of its death."""
        if message.life > self._lives.get(source, 0):
            self._lives[source] = message.life
            machine = self._nodes.index(source)
            self._lose(machine, now)
            self._state.online |= 1 << machine
            self._iteration.given_back(machine)
            self._changed(now)

    def _lose(self, machine: int, now: Time) -> None:
        """Stage T11: all that ran on a machine is dead; place it again."""
        self._state.now = now
        for running in list(self._state.on_machine[machine].values()):
            self._exits.drop(running)
            others = running.task.id in self._state.copies
            self._release(running, now)
            if running.ending:
                self._finish(running.waiting, now)
            elif not others:
                running.waiting.attempt += running.sent
                self._enqueue(running.waiting)
        for leaving in self._exits.clear(machine):
            if leaving.then is Then.OVER:
                self._finish(leaving.waiting, now)
            elif leaving.then is not Then.NOTHING:
                leaving.waiting.attempt += 1
                self._enqueue(leaving.waiting)
        self._changed(now)

    def _finish(self, waiting: Waiting, now: Time) -> None:
        """A task is over."""
        raise NotImplementedError

    def _release(self, running: Running, now: Time) -> None:
        if running.task.id in self._state.copies:
            self._state.copy_ended(running, now)
        else:
            self._state.ended(running.task.id, now)
        self._iteration.given_back(running.machine)

    def _give_up(self, job: JobRecord, now: Time) -> int:
        """Drop what waits of a job and kill what runs; returns how many tasks ended by that at once."""
        dropped = [waiting for waiting in self._state.waiting.values() if waiting.job is job]
        for waiting in dropped:
            self._queue.remove(waiting)
            del self._state.waiting[waiting.task.id]
        dropped += [running.waiting for running in list(self._state.running.values())
                    if running.job is job and self._call_off(running, now)]  # fmt: skip
        for leaving in self._exits.open.values():
            if leaving.waiting.job is job and leaving.then is Then.QUEUE:
                leaving.then = Then.OVER
        return len(dropped)

    def _call_off(self, running: Running, now: Time) -> bool:
        """A task that runs is not wanted any more; returns whether that was its end, because no machine knew of it."""
        if running.task.id in self._state.copies:
            self._end_copies(running, now)
        if running.sent:
            running.ending = True
            self._port.send(self._nodes[running.machine], Kill(running.task.id, running.attempt))
        else:
            self._exits.drop(running)
            self._release(running, now)
            moving = [one for one in self._exits.of_task(running.task.id) if one.target is running]
            for leaving in moving:
                leaving.then = Then.OVER
            return not moving
        return False

    def check_rest(self) -> None:
        """Nothing runs, waits or is being ended."""
        self._exits.check_rest()
        assert not self._state.running, "something is said to run"
        assert not self._state.waiting, "something is said to wait"

    def check(self) -> None:
        """Free, held and running agree; and no machine has room for a task of a kind that is said to fit nowhere."""
        self._state.check()
        self._queue.check()
        machines = self._state.online & ~self._iteration.withheld()
        for kind in self._queue.kinds.closed:
            fitting = self._state.index.fitting(kind.need, kind.suitable & machines)
            assert not fitting, f"machines {fitting:#x} have room for a kind that is said to fit nowhere"
