"""Stage R3 by distance: delay scheduling (Zaharia et al., EuroSys 2010) where tasks choose machines.

The distance at which a task may run from its input depends on how long its job has waited. While it is not any
distance, a task is of a narrower class: machines farther away do not suit it. So it is blocked and unblocked like every
other class (docs/decisions/0013), and only when its job may go farther, or not so far any more, are the job's waiting
tasks queued anew. A job waits while a cycle leaves room that one of its waiting tasks could take at some distance.

Where `hfs` offers a machine to jobs, which give it the nearest of their tasks, a task here looks for the nearest
machine of those that it may take, in the order of T2 and J3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.architectures.pipeline.attempts import Placements
from volery.architectures.pipeline.policies import Kind, Waiting, vector_of
from volery.core.locality import ANY, NODE, RACK, racks_of
from volery.core.model import Cluster, JobId, Key, Task, TaskId, Time
from volery.policies.locality import ByTime

FARTHER: Final = "farther"
"""The timer of the first job that may go farther from its input."""


class InputLocations:
    """The machines that hold the input of a job's tasks, and those of these tasks that wait.

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


class DelayScheduling:
    """Lets jobs wait a while for machines that hold their input.

    Args:
        cluster: with racks.
        delay: how long jobs wait.
    """

    __slots__ = ("_cycle", "_delay", "_inputs", "_racks", "_vectors", "_wanting")
    _cycle: Placements

    def __init__(self, cluster: Cluster, delay: ByTime) -> None:
        self._delay = delay
        self._inputs: dict[JobId, InputLocations] = {}
        self._wanting: dict[JobId, InputLocations] = {}
        self._racks = racks_of(cluster)
        self._vectors: dict[int, int] = {}
        for machine, rack in enumerate(self._racks):
            self._vectors[rack] = self._vectors.get(rack, 0) | 1 << machine

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle

    def locate(self, job: JobId, tasks: Sequence[Task], replicas: Sequence[tuple[int, ...]]) -> None:
        """Note the machines that hold the input of a chunk."""
        if any(replicas):
            inputs = self._inputs.setdefault(job, InputLocations())
            inputs.held |= {task.id: held for task, held in zip(tasks, replicas, strict=True) if held}

    def on_timer(self, key: Key, now: Time) -> bool:
        """Let a job go farther; returns whether the timer is for that."""
        if key == FARTHER:
            self._cycle.changed(now)
        return key == FARTHER

    def joining(self, waiting: Waiting) -> None:
        """Narrow the class of a task with input to machines that are near enough."""
        inputs = self._inputs.get(waiting.job.id)
        if inputs is not None and waiting.task.id in inputs.held:
            if waiting.task.id not in inputs.waiting:  # one that R5 has set aside has waited all the time
                inputs.joins(waiting)
            self._wanting[waiting.job.id] = inputs
            waiting.kind = self._narrowed(inputs, waiting.task.id)

    def maybe_block(self, kind: Kind) -> None:
        """Block a narrow class none of whose few machines has room: not to try each of thousands in vain."""
        classes = self._cycle.queue.classes
        if kind.machines and kind in classes.unblocked and not self._has_room(kind):
            classes.block(kind)

    def _narrowed(self, inputs: InputLocations, task: TaskId) -> Kind:
        """The class of a task, as far as its job may go."""
        kind = inputs.kinds[task]
        if inputs.level == ANY:
            return kind
        key = kind, self._near(inputs.held[task], inputs.level)
        found = inputs.narrowed.get(key)
        if found is None:
            machines = inputs.held[task] if inputs.level == NODE else ()
            found = Kind(kind.constraints, kind.need, kind.suitable & key[1], kind.possible, machines)
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

    def widen(self, now: Time) -> None:
        """Let jobs that have waited long enough go farther."""
        self._delay.opportunity(now)
        for job, inputs in list(self._wanting.items()):
            self._adjust(job, inputs)

    def _adjust(self, job: JobId, inputs: InputLocations) -> None:
        """Queue a job's waiting tasks for as far as it may go now."""
        level, cycle = self._delay.allowed(job), self._cycle
        if level == inputs.level:
            return
        inputs.level = level
        for number, waiting in inputs.waiting.items():
            if number in cycle.state.waiting:  # one that R5 has set aside is queued when the cycle ends
                cycle.queue.remove(waiting)
                waiting.kind = self._narrowed(inputs, number)
                cycle.queue.push(waiting)
                cycle.iteration.joined(waiting)
                self.maybe_block(waiting.kind)

    def pass_over(self, now: Time) -> None:
        """Let jobs wait that could have had the room that is left, elsewhere."""
        due: list[Time] = []
        for job, inputs in self._wanting.items():
            if inputs.level < ANY and any(self._has_room(kind) for kind in inputs.counts):
                self._delay.passed_over(job)
                due.append(now + self._delay.remaining(job))
        if due:
            self._cycle.port.set_timer(FARTHER, min(due))
        else:
            self._cycle.port.cancel_timer(FARTHER)

    def _has_room(self, kind: Kind) -> bool:
        state = self._cycle.state
        return state.index.pick(kind.need, kind.suitable & state.online, "first") >= 0

    def nearest(self, waiting: Waiting, among: int) -> int:
        """The nearest machines with room, of those that a task may take."""
        inputs = self._inputs.get(waiting.job.id)
        held = inputs.held.get(waiting.task.id) if inputs is not None else None
        if held is None:
            return among
        for level in (NODE, RACK):
            nearer = among & self._near(held, level)
            if self._cycle.state.index.pick(waiting.kind.need, nearer, "first") >= 0:
                return nearer
        return among

    def submitted(self, waiting: Waiting, machine: int) -> None:
        """Settle by a launch from how far its job waits anew."""
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

    def dropped(self, job: JobId) -> None:
        """Forget the waiting tasks of a job."""
        inputs = self._wanting.pop(job, None)
        if inputs is not None:
            inputs.waiting.clear()
            inputs.counts.clear()

    def forget(self, job: JobId) -> None:
        """Forget a job that is done."""
        self._delay.forget(job)
        self._inputs.pop(job, None)
        self._wanting.pop(job, None)

    def check(self) -> None:
        """Raise AssertionError where a task that waits is queued for another distance than its job may go."""
        for job, inputs in self._inputs.items():
            queued = {number: one for number, one in inputs.waiting.items() if number in self._cycle.state.waiting}
            assert queued == inputs.waiting, f"tasks of job {job} wait for machines nearby and are not queued"
            assert sum(inputs.counts.values()) == len(queued)
            for number, waiting in queued.items():
                assert waiting.kind is self._narrowed(inputs, number), f"task {number} is queued for another distance"
        assert self._wanting.keys() == {job for job, inputs in self._inputs.items() if inputs.waiting}
