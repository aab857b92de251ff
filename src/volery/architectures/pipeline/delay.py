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
        held: Machines that hold the input of a task, of tasks that have one.
        level: Distance from it for which they are queued.
        waiting: Tasks with input that wait.
        kinds: Class of each task, at any distance.
        counts: Number of waiting tasks of each of these classes.
        narrowed: Class at any distance, and machines near enough -> narrower class.
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
        # One that returns has a narrower class by now.
        kind = self.kinds.setdefault(number, waiting.kind)
        self.waiting[number] = waiting
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def leaves(self, task: TaskId) -> None:
        """Note a task with input that waits no longer."""
        if self.waiting.pop(task, None) is not None:
            kind = self.kinds[task]

            count = self.counts[kind] - 1
            if count:
                self.counts[kind] = count
            else:
                del self.counts[kind]


class DelayScheduling:
    """Lets jobs wait a while for machines that hold their input.

    Args:
        cluster: Cluster with racks.
        delay: Time that jobs wait.
    """

    __slots__ = ("_cycle", "_delay", "_inputs", "_machines_in_rack", "_racks", "_waiting_jobs")
    _cycle: Placements

    def __init__(self, cluster: Cluster, delay: ByTime) -> None:
        self._delay = delay
        self._inputs: dict[JobId, InputLocations] = {}
        self._waiting_jobs: dict[JobId, InputLocations] = {}
        self._racks = racks_of(cluster)

        self._machines_in_rack: dict[int, int] = {}
        for machine, rack in enumerate(self._racks):
            self._machines_in_rack[rack] = self._machines_in_rack.get(rack, 0) | 1 << machine

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle

    def locate(self, job: JobId, tasks: Sequence[Task], replicas: Sequence[tuple[int, ...]]) -> None:
        """Note the machines that hold the input of a chunk."""
        if any(replicas):
            inputs = self._inputs.setdefault(job, InputLocations())
            inputs.held |= {task.id: holders for task, holders in zip(tasks, replicas, strict=True) if holders}

    def on_timer(self, key: Key, now: Time) -> bool:
        """Let a job go farther; returns whether the timer is for that."""
        if key == FARTHER:
            self._cycle.changed(now)
        return key == FARTHER

    def joining(self, waiting: Waiting) -> None:
        """Narrow the class of a task with input to machines that are near enough."""
        inputs = self._inputs.get(waiting.job.id)
        if inputs is not None and waiting.task.id in inputs.held:
            # One that R5 has set aside has waited all the time.
            if waiting.task.id not in inputs.waiting:
                inputs.joins(waiting)

            self._waiting_jobs[waiting.job.id] = inputs
            waiting.kind = self._near_class(inputs, waiting.task.id)

    def maybe_block(self, kind: Kind) -> None:
        """Block a narrow class none of whose few machines has room: not to try each of thousands in vain."""
        classes = self._cycle.queue.classes
        if kind.machines and kind in classes.unblocked and not self._has_room(kind):
            classes.block(kind)

    def _near_class(self, inputs: InputLocations, task: TaskId) -> Kind:
        """The class of a task, narrowed to the distance that its job may go at present."""
        kind = inputs.kinds[task]
        # At any distance all tasks of the same needs are of one class again.
        if inputs.level == ANY:
            return kind

        key = kind, self._near(inputs.held[task], inputs.level)
        near_kind = inputs.narrowed.get(key)

        if near_kind is None:
            machines = inputs.held[task] if inputs.level == NODE else ()
            near_kind = Kind(kind.constraints, kind.need, kind.suitable & key[1], kind.possible, machines)
            inputs.narrowed[key] = near_kind

        return near_kind

    def _near(self, holders: tuple[int, ...], level: int) -> int:
        """Vector of the machines so near to these."""
        if level == NODE:
            return vector_of(holders)

        vector = 0
        for machine in holders:
            vector |= self._machines_in_rack[self._racks[machine]]
        return vector

    def widen(self, now: Time) -> None:
        """Let jobs that have waited long enough go farther."""
        self._delay.opportunity(now)
        for job, inputs in list(self._waiting_jobs.items()):
            self._adjust(job, inputs)

    def _adjust(self, job: JobId, inputs: InputLocations) -> None:
        """Queue a job's waiting tasks for as far as it may go now."""
        level = self._delay.allowed(job)
        cycle = self._cycle
        if level == inputs.level:
            return

        inputs.level = level
        for number, waiting in inputs.waiting.items():
            # One that R5 has set aside is queued when the cycle ends.
            if number in cycle.state.waiting:
                cycle.queue.remove(waiting)
                waiting.kind = self._near_class(inputs, number)
                cycle.queue.push(waiting)
                cycle.iteration.joined(waiting)
                self.maybe_block(waiting.kind)

    def pass_over(self, now: Time) -> None:
        """Let jobs wait that could have had the room that is left, elsewhere."""
        due: list[Time] = []
        for job, inputs in self._waiting_jobs.items():
            # A job waits only while there is room that it could have: a full cluster is no reason to give up locality.
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
        holders = inputs.held.get(waiting.task.id) if inputs is not None else None
        if holders is None:
            return among

        for level in (NODE, RACK):
            nearer_machines = among & self._near(holders, level)
            if self._cycle.state.index.pick(waiting.kind.need, nearer_machines, "first") >= 0:
                return nearer_machines
        return among

    def submitted(self, waiting: Waiting, machine: int) -> None:
        """Restart the wait of a job by the distance of a task that it has launched."""
        job = waiting.job.id
        number = waiting.task.id

        inputs = self._inputs.get(job)
        if inputs is None or number not in inputs.held:
            return

        inputs.leaves(number)
        if not inputs.waiting:
            self._waiting_jobs.pop(job, None)

        holders = inputs.held[number]
        is_in_rack = any(self._racks[holder] == self._racks[machine] for holder in holders)
        self._delay.launched(job, NODE if machine in holders else RACK if is_in_rack else ANY)

        self._adjust(job, inputs)

    def dropped(self, job: JobId) -> None:
        """Forget the waiting tasks of a job."""
        inputs = self._waiting_jobs.pop(job, None)
        if inputs is not None:
            inputs.waiting.clear()
            inputs.counts.clear()

    def forget(self, job: JobId) -> None:
        """Forget a job that is done."""
        self._delay.forget(job)
        self._inputs.pop(job, None)
        self._waiting_jobs.pop(job, None)

    def check(self) -> None:
        """Raise AssertionError where a task that waits is queued for another distance than its job may go."""
        for job, inputs in self._inputs.items():
            queued = {number: task for number, task in inputs.waiting.items() if number in self._cycle.state.waiting}
            assert queued == inputs.waiting, f"tasks of job {job} wait for machines nearby and are not queued"
            assert sum(inputs.counts.values()) == len(queued)
            for number, waiting in queued.items():
                assert waiting.kind is self._near_class(inputs, number), f"task {number} is queued for another distance"
        assert self._waiting_jobs.keys() == {job for job, inputs in self._inputs.items() if inputs.waiting}
