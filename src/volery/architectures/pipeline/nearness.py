"""Stage R3 by distance: delay scheduling (Zaharia et al., EuroSys 2010) where tasks choose machines.

How far a task may run from its input is what its job has waited for. While it is not any distance, a task is of a
narrower kind: machines farther away do not suit it. So it is closed and opened like every other kind
(docs/decisions/0013), and only when its job may go farther, or not so far any more, are the job's waiting tasks queued
anew. A job waits while a cycle leaves room that one of its waiting tasks could take at some distance.

Where `hfs` offers a machine to jobs, which give it the nearest of their tasks, a task here looks for the nearest
machine of those that it may take, in the order of T2 and J3.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from volery.architectures.pipeline.kinds import ANYWHERE, Kinds
from volery.architectures.pipeline.placing import Assembly, Place
from volery.architectures.pipeline.policies import Candidates, JobRecord, Kind, Waiting, vector_of
from volery.architectures.pipeline.scheduler import Scheduler
from volery.core.events import MoreTasks, Submit, TimerFired
from volery.core.locality import ANY, NODE, RACK, racks_of
from volery.core.model import Address, JobId, Task, TaskId, Time
from volery.core.resources import Packing
from volery.policies.locality import ByTime

FARTHER: Final = "farther"
"""The timer of the first job that may go farther from its input."""


class NarrowKind(Kind):
    """Tasks that may have machines that hold their input, and no others: almost as many kinds as tasks.

    Attributes:
        machines: these.
    """

    __slots__ = ("machines",)

    def __init__(self, kind: Kind, machines: tuple[int, ...]) -> None:
        super().__init__(kind.constraints, kind.need, kind.suitable & vector_of(machines), kind.possible)
        self.machines = machines


class NearKinds(Kinds):
    """The kinds that wait, with closed narrow ones by machine: what is given back there concerns no others."""

    __slots__ = ("_narrow",)

    def __init__(self, packing: Packing, offered: Sequence[int]) -> None:
        super().__init__(packing, offered)
        self._narrow: dict[int, dict[NarrowKind, None]] = {}

    def left(self, kind: Kind) -> None:
        """See the base."""
        super().left(kind)
        if kind not in self._counts and isinstance(kind, NarrowKind):
            self._take_out(kind)

    def close(self, kind: Kind) -> None:
        """It fits nowhere."""
        if not isinstance(kind, NarrowKind):
            super().close(kind)
            return
        del self.open[kind]
        for machine in kind.machines:
            self._narrow.setdefault(machine, {})[kind] = None

    def reopen(self, kind: Kind, machine: int = ANYWHERE) -> None:
        """It may fit, on this machine if on any."""
        if isinstance(kind, NarrowKind):
            self._take_out(kind)
            self.open[kind] = machine
        else:
            super().reopen(kind, machine)

    def _take_out(self, kind: NarrowKind) -> None:
        for machine in kind.machines:
            self._narrow.get(machine, {}).pop(kind, None)

    def _fitting(self, machine: int, free: int) -> list[Kind]:
        """The closed kinds that fit a machine."""
        guards = self._guards
        near = [
            kind
            for kind in self._narrow.get(machine, ())
            if (free - kind.packed) & guards == guards and kind.suitable >> machine & 1
        ]
        return [*super()._fitting(machine, free), *near]

    def check(self) -> None:
        """Also: a narrow kind that waits is open, or closed on each of its machines."""
        narrow = {kind for kinds in self._narrow.values() for kind in kinds}
        assert all(kind in self._narrow[machine] for kind in narrow for machine in kind.machines)
        assert not narrow & self.open.keys()
        counts, self._counts = self._counts, {k: n for k, n in self._counts.items() if k not in narrow}
        assert narrow <= counts.keys()
        super().check()
        self._counts = counts


class Inputs:
    """Where the input of a job's tasks lies, and which of these tasks wait.

    Attributes:
        held: machines that hold the input of a task, of tasks that have one.
        level: how far from it they are queued for.
        waiting: those of them that wait.
        kinds: of a task, at any distance.
        counts: the same, of those that wait: how many there are.
        narrowed: kind at any distance, machines near enough -> kind.
    """

    __slots__ = ("counts", "held", "kinds", "level", "narrowed", "waiting")

    def __init__(self) -> None:
        self.held: dict[TaskId, tuple[int, ...]] = {}
        self.level = NODE
        self.waiting: dict[TaskId, Waiting] = {}
        self.kinds: dict[TaskId, Kind] = {}
        self.counts: dict[Kind, int] = {}
        self.narrowed: dict[tuple[Kind, int], Kind] = {}

    def joins(self, waiting: Waiting) -> None:
        """A task with input waits."""
        number = waiting.task.id
        kind = self.kinds.setdefault(number, waiting.kind)  # one that returns has a narrower kind by now
        self.waiting[number] = waiting
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def leaves(self, task: TaskId) -> None:
        """It waits no longer."""
        if self.waiting.pop(task, None) is not None:
            kind = self.kinds[task]
            left = self.counts[kind] - 1
            if left:
                self.counts[kind] = left
            else:
                del self.counts[kind]


class NearScheduler(Scheduler):
    """A scheduler whose jobs wait a while for machines that hold their input.

    Args:
        place, assembly, stream: as for `Scheduler`.
        delay: how long they do.
    """

    __slots__ = ("_delay", "_inputs", "_racks", "_vectors", "_wanting")
    kinds_role = NearKinds

    def __init__(self, place: Place, assembly: Assembly, stream: Random, delay: ByTime) -> None:
        super().__init__(place, assembly, stream)
        self._delay = delay
        self._inputs: dict[JobId, Inputs] = {}
        self._wanting: dict[JobId, Inputs] = {}
        self._racks = racks_of(place.cluster)
        self._vectors: dict[int, int] = {}
        for machine, rack in enumerate(self._racks):
            self._vectors[rack] = self._vectors.get(rack, 0) | 1 << machine

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Also: where input lies."""
        job = message.job
        if not (self._jobs.is_open(job.id) or self._jobs.is_done(job.id)):
            self._hold(job.id, job.tasks, job.replicas)
        super().on_submit(message, source, now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Also: where input lies."""
        if message.job in self._state.jobs:
            self._hold(message.job, message.tasks, message.replicas)
        super().on_more_tasks(message, source, now)

    def _hold(self, job: JobId, tasks: Sequence[Task], replicas: Sequence[tuple[int, ...]]) -> None:
        if any(replicas):
            inputs = self._inputs.setdefault(job, Inputs())
            inputs.held |= {task.id: held for task, held in zip(tasks, replicas, strict=True) if held}

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Also: a job may go farther."""
        if event.key == FARTHER:
            self._changed(now)
        else:
            super().on_timer(event, source, now)

    def _enqueue(self, waiting: Waiting) -> None:
        """A task with input waits for machines that are near enough."""
        inputs = self._inputs.get(waiting.job.id)
        if inputs is not None and waiting.task.id in inputs.held:
            if waiting.task.id not in inputs.waiting:  # one that R5 has set aside has waited all the time
                inputs.joins(waiting)
            self._wanting[waiting.job.id] = inputs
            waiting.kind = self._narrowed(inputs, waiting.task.id)
        super()._enqueue(waiting)
        self._maybe_close(waiting.kind)

    def _maybe_close(self, kind: Kind) -> None:
        """Not to try each of thousands of kinds in vain: whether one of its few machines has room is known at once."""
        if isinstance(kind, NarrowKind) and kind in self._queue.kinds.open and not self._has_room(kind):
            self._queue.kinds.close(kind)

    def _narrowed(self, inputs: Inputs, task: TaskId) -> Kind:
        """The kind of a task, as far as its job may go."""
        kind = inputs.kinds[task]
        if inputs.level == ANY:
            return kind
        key = kind, self._near(inputs.held[task], inputs.level)
        found = inputs.narrowed.get(key)
        if found is None:
            found = NarrowKind(kind, inputs.held[task])
            if inputs.level == RACK:
                found = Kind(kind.constraints, kind.need, kind.suitable & key[1], kind.possible)
            inputs.narrowed[key] = found
        return found

    def _near(self, held: tuple[int, ...], level: int) -> int:
        """Vector of the machines so near to these."""
        if level == NODE:
            return vector_of(held)
        vector = 0
        for machine in held:
            vector |= self._vectors[self._racks[machine]]
        return vector

    def _cycle(self, now: Time) -> None:
        """Jobs that have waited long enough go farther; then all that fits is placed, and others wait."""
        self._delay.opportunity(now)
        for job, inputs in list(self._wanting.items()):
            self._adjust(job, inputs)
        super()._cycle(now)
        self._pass_over(now)

    def _adjust(self, job: JobId, inputs: Inputs) -> None:
        """Queue a job's waiting tasks for as far as it may go now."""
        level = self._delay.allowed(job)
        if level == inputs.level:
            return
        inputs.level = level
        for number, waiting in inputs.waiting.items():
            if number in self._state.waiting:  # one that R5 has set aside is queued when the cycle ends
                self._queue.remove(waiting)
                waiting.kind = self._narrowed(inputs, number)
                self._queue.push(waiting)
                self._iteration.joined(waiting)
                self._maybe_close(waiting.kind)

    def _pass_over(self, now: Time) -> None:
        """Whoever could have had what is left, elsewhere, waits from now on."""
        due: list[Time] = []
        for job, inputs in self._wanting.items():
            if inputs.level < ANY and any(self._has_room(kind) for kind in inputs.counts):
                self._delay.passed_over(job)
                due.append(now + self._delay.remaining(job))
        if due:
            self._port.set_timer(FARTHER, min(due))
        else:
            self._port.cancel_timer(FARTHER)

    def _has_room(self, kind: Kind) -> bool:
        state = self._state
        return state.index.pick(kind.need, kind.suitable & state.online, "first") >= 0

    def _fitting(self, waiting: Waiting) -> Any:
        """The nearest of the machines that have enough."""
        found = super()._fitting(waiting)
        inputs = self._inputs.get(waiting.job.id)
        held = inputs.held.get(waiting.task.id) if inputs is not None else None
        if found is None or held is None:
            return found
        among = self._iteration.among(waiting)
        for level in (NODE, RACK):
            nearer = among & self._near(held, level)
            if self._state.index.pick(waiting.kind.need, nearer, "first") >= 0:
                return Candidates(self._state, waiting, nearer)
        return found

    def _submit_task(self, waiting: Waiting, machine: int, now: Time) -> None:
        """A launch settles from how far its job waits anew."""
        super()._submit_task(waiting, machine, now)
        job, number = waiting.job.id, waiting.task.id
        inputs = self._inputs.get(job)
        if inputs is None or number not in inputs.held:
            return
        inputs.leaves(number)
        if not inputs.waiting:
            self._wanting.pop(job, None)
        held = inputs.held[number]
        in_rack = any(self._racks[holder] == self._racks[machine] for holder in held)
        self._delay.launched(job, NODE if machine in held else RACK if in_rack else ANY)
        self._adjust(job, inputs)

    def _give_up(self, job: JobRecord, now: Time) -> int:
        """Nothing of the job waits any more."""
        dropped = super()._give_up(job, now)
        inputs = self._wanting.pop(job.id, None)
        if inputs is not None:
            inputs.waiting.clear()
            inputs.counts.clear()
        return dropped

    def _settle(self, record: JobRecord) -> None:
        """Forget also what was known of its input."""
        super()._settle(record)
        if record.id not in self._state.jobs:
            self._delay.forget(record.id)
            self._inputs.pop(record.id, None)
            self._wanting.pop(record.id, None)

    def check(self) -> None:
        """Also: tasks that wait are queued for as far as their jobs may go."""
        super().check()
        for job, inputs in self._inputs.items():
            queued = {number: one for number, one in inputs.waiting.items() if number in self._state.waiting}
            assert queued == inputs.waiting, f"tasks of job {job} wait for machines nearby and are not queued"
            assert sum(inputs.counts.values()) == len(queued)
            for number, waiting in queued.items():
                assert waiting.kind is self._narrowed(inputs, number), f"task {number} is queued for another distance"
        assert self._wanting.keys() == {job for job, inputs in self._inputs.items() if inputs.waiting}

    receives = Scheduler.receives
    sends = Scheduler.sends
