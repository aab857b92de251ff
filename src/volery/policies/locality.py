"""Locality: delay scheduling (Zaharia et al., EuroSys 2010), and waiting tasks by the machines that hold their input.

A job whose turn it is and that has no task with input on the machine in question lets the next job go first, for a
while. Then it takes machines in a rack that holds input of its, and after a further while any machine. A task that is
launched settles how far the job may go at once the next time: the level of that launch, from where it waits anew.

An *opportunity* is a machine with something free that is offered to the jobs in their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from volery.core.locality import ANY, NODE, RACK, UNPLACED, racks_of
from volery.core.model import Cluster, JobId, Task, TaskId, Time


class DelayPolicy(ABC):
    """Base of the two measures of waiting.

    Args:
        node_wait: Time that a job waits for machines that hold its input (W1, D1): microseconds, or opportunities.
        rack_wait: Time that it waits, after that, for racks that do (W2, D2).

    Raises:
        ValueError: a negative wait.

    Attributes:
        each_counts: True if several machines in one instant are more opportunities than one of them.
        predicts: True if `reaches` has to report how near input is.
    """

    __slots__ = ("_levels", "_needed", "_waited")
    each_counts: ClassVar[bool] = True
    predicts: ClassVar[bool] = False

    def __init__(self, node_wait: int, rack_wait: int) -> None:
        if min(node_wait, rack_wait) < 0:
            raise ValueError(f"jobs cannot wait {node_wait} and {rack_wait}: give at least 0")
        self._needed = (node_wait, rack_wait)
        self._levels: dict[JobId, int] = {}
        self._waited: dict[JobId, int] = {}

    def allowed(self, job: JobId) -> int:
        """The largest distance from its input at which a task of the job may run now: `NODE`, `RACK` or `ANY`."""
        return self._reached(job)[0]

    def remaining(self, job: JobId) -> int:
        """The time that a job which is passed over waits before it may go farther; 0 where it may go anywhere."""
        level, waited = self._reached(job)
        return self._needed[level] - waited if level < ANY else 0

    def _reached(self, job: JobId) -> tuple[int, int]:
        """A level, and how long the job has waited there."""
        level, waited = self._levels.get(job, NODE), self._waited.get(job, 0)
        while level < ANY and waited >= self._needed[level]:
            waited -= self._needed[level]
            level += 1
        return level, waited

    def launched(self, job: JobId, level: int) -> None:
        """A task of the job has been launched so far from its input; the job waits anew, from that level on.

        One without input is launched without a call: it shows nothing about how far its job has to go.
        """
        self._waited.pop(job, None)
        if level == NODE:
            self._levels.pop(job, None)
        else:
            self._levels[job] = level

    def forget(self, job: JobId) -> None:
        """The job has nothing more to launch."""
        self._waited.pop(job, None)
        self._levels.pop(job, None)

    def reaches(self, job: JobId, machines: float, racks: float) -> None:  # noqa: B027 - most policies ignore it
        """Learn the shares of all machines, and of all racks, that hold input of the job's waiting tasks."""

    def awaited(self, now: Time) -> None:  # noqa: B027 - most policies ignore it
        """Note that tasks wait from now on, where none did."""

    @abstractmethod
    def opportunity(self, now: Time) -> None:
        """A machine is about to be offered to the jobs; where no task waits none is."""

    @abstractmethod
    def passed_over(self, job: JobId) -> None:
        """The job had its turn at this opportunity and launched nothing: its tasks have no input near enough."""


class BySkips(DelayPolicy):
    """Counts the opportunities that a job has let pass (section 3.3 of the paper, and its remark on racks).

    With `rack_wait` 0 and one rack it is the paper's algorithm 2: after D skips a job launches anywhere, and goes on to
    do so until it launches on a machine that holds its input. With no waits at all it is naive fair sharing.
    """

    __slots__ = ()

    def opportunity(self, now: Time) -> None:
        pass

    def passed_over(self, job: JobId) -> None:
        self._waited[job] = self._waited.get(job, 0) + 1


class ByTime(DelayPolicy):
    """Adds up the time during which a job was passed over (section 4 of the paper, and the Hadoop Fair Scheduler).

    The time from one opportunity to the next counts for the jobs that were passed over at the first.
    """

    __slots__ = ("_passed_over_jobs", "_seen_us")
    each_counts = False

    def __init__(self, node_wait: Time, rack_wait: Time) -> None:
        super().__init__(node_wait, rack_wait)
        self._passed_over_jobs: dict[JobId, None] = {}
        self._seen_us: Time = 0

    def opportunity(self, now: Time) -> None:
        """Charge the time since the one before to those that it passed over."""
        elapsed_us, self._seen_us = now - self._seen_us, now
        if elapsed_us:
            for job in self._passed_over_jobs:
                self._waited[job] = self._waited.get(job, 0) + elapsed_us
            self._passed_over_jobs.clear()

    def passed_over(self, job: JobId) -> None:
        """Note that the job waits from now until the next opportunity."""
        self._passed_over_jobs[job] = None

    def launched(self, job: JobId, level: int) -> None:
        self._passed_over_jobs.pop(job, None)
        super().launched(job, level)

    def forget(self, job: JobId) -> None:
        self._passed_over_jobs.pop(job, None)
        super().forget(job)


class ByRates(ByTime):
    """Waits by time, but only where an offer near its input is to be expected within the wait.

    The idea of a blog on the paper: estimate from the rate of offers when one comes that is in the locality preference,
    before choosing to wait or to run. The rate is that of the last `OFFERS` opportunities while tasks waited, and every
    machine is taken to be as likely the next. An idle machine on which all is passed over does not keep a job that has
    no hope waiting.
    """

    __slots__ = ("_gap_us", "_last_us", "_reach")
    predicts = True

    def __init__(self, node_wait: Time, rack_wait: Time) -> None:
        super().__init__(node_wait, rack_wait)
        self._gap_us = 0.0
        self._last_us: Time = 0
        self._reach: dict[JobId, tuple[float, float]] = {}

    def reaches(self, job: JobId, machines: float, racks: float) -> None:
        self._reach[job] = (machines, racks)

    def awaited(self, now: Time) -> None:
        self._last_us = now

    def opportunity(self, now: Time) -> None:
        """Count the offer, and charge the time since the one before."""
        self._gap_us += (now - self._last_us - self._gap_us) / OFFERS
        self._last_us = now
        super().opportunity(now)

    def _reached(self, job: JobId) -> tuple[int, int]:
        level, waited = super()._reached(job)
        near = self._reach.get(job, (1.0, 1.0))
        # No offer near the input is to be expected within the wait: the job goes on to the next level at once.
        while level < ANY and self._gap_us > self._needed[level] * near[level]:
            level, waited = level + 1, 0
        return level, waited

    def forget(self, job: JobId) -> None:
        self._reach.pop(job, None)
        super().forget(job)


OFFERS: Final = 100
"""Opportunities over which the time between two is averaged."""


def delay_policy(kind: str, node_wait: int, rack_wait: int) -> DelayPolicy:
    """The policy of a name: "time", "rates" or "skips", or "off", which waits for nothing."""
    if kind == "off":
        return BySkips(0, 0)
    if kind == "rates":
        return ByRates(node_wait, rack_wait)
    return BySkips(node_wait, rack_wait) if kind == "skips" else ByTime(node_wait, rack_wait)


class Sites:
    """The constraints and racks of machines: the same for all jobs.

    Attributes:
        constraints: Constraint set that each machine satisfies.
        racks: Number of each machine's rack.
        rack_count: Count of the racks.
    """

    __slots__ = ("constraints", "rack_count", "racks")

    def __init__(self, cluster: Cluster) -> None:
        self.constraints = cluster.constraints
        self.racks = racks_of(cluster)
        self.rack_count = len(set(self.racks))


class _Lines:
    """Tasks in lines, one per constraint set, first come first served; those that have gone are skipped when met."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[int, deque[Task]] = {}

    def add(self, task: Task) -> None:
        line = self._lines.get(task.constraints)
        if line is None:
            line = self._lines[task.constraints] = deque()
        line.append(task)

    def first(self, offered: int, waiting: dict[TaskId, Task]) -> Task | None:
        """The oldest line's first task that waits and that a machine with these constraints satisfies."""
        oldest: Task | None = None
        for mask, line in list(self._lines.items()):
            if mask & ~offered:
                continue
            while line and line[0].id not in waiting:
                line.popleft()
            if not line:
                del self._lines[mask]
            elif oldest is None or line[0].id < oldest.id:
                oldest = line[0]
        return oldest


NEAR_MAX: Final = 8
"""Tasks of a job above which all its lines count, also of tasks that wait no longer and that nobody has met since."""


class PlacedTasks:
    """The waiting tasks of one job.

    Every task stands in a line per machine and per rack that holds its input, and in one for all. It is taken out of
    one of them; the others skip it when they meet it.

    Attributes:
        waiting: Number -> waiting task.
        masks: Constraint set -> count of waiting tasks that have it.
    """

    __slots__ = ("_all_lines", "_machines", "_racks", "_replicas", "_sites", "_unplaced", "masks", "waiting")

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self.waiting: dict[TaskId, Task] = {}
        self.masks: dict[int, int] = {}
        self._machines: dict[int, list[Task]] = {}
        self._racks: dict[int, _Lines] = {}
        self._all_lines = _Lines()
        self._unplaced = _Lines()
        self._replicas: dict[TaskId, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, task: Task, replicas: Sequence[int] = ()) -> None:
        """Let a task wait.

        Args:
            task: Task that some machine satisfies.
            replicas: Machines that hold its input; nothing: it has none.
        """
        self.waiting[task.id] = task
        self.masks[task.constraints] = self.masks.get(task.constraints, 0) + 1

        if not replicas:
            self._unplaced.add(task)
            return
        self._replicas[task.id] = tuple(replicas)

        sites = self._sites
        for machine in replicas:
            if not task.constraints & ~sites.constraints[machine]:
                self._machines.setdefault(machine, []).append(task)
        for rack in sorted({sites.racks[machine] for machine in replicas}):
            self._racks.setdefault(rack, _Lines()).add(task)
        self._all_lines.add(task)

    def again(self, task: Task) -> None:
        """A task that was taken waits once more."""
        self.add(task, self._replicas.get(task.id, ()))

    def machines(self) -> list[int]:
        """Machines that hold input of tasks that may wait."""
        return list(self._machines)

    def near(self) -> tuple[float, float]:
        """The shares of all machines, and of all racks, that hold input of waiting tasks; of many tasks, at most."""
        sites, machines, racks = self._sites, len(self._machines), len(self._racks)

        if len(self.waiting) <= NEAR_MAX:
            input_machines = {machine for task in self.waiting for machine in self._replicas.get(task, ())}
            machines, racks = len(input_machines), len({sites.racks[machine] for machine in input_machines})
        return machines / len(sites.constraints), racks / sites.rack_count

    def fits(self, machine: int) -> bool:
        """True if the machine satisfies any task that waits."""
        lacking = ~self._sites.constraints[machine]
        return any(not mask & lacking for mask in self.masks)

    def find(self, machine: int, allowed: int) -> tuple[Task, int] | None:
        """The task to launch on a machine, and how far from its input that is; the nearest, then the oldest.

        Args:
            allowed: Farthest distance that is allowed.
        """
        waiting, offered = self.waiting, self._sites.constraints[machine]

        local_line = self._machines.get(machine)
        # Tasks that were taken through another line are skipped.
        if local_line is not None:
            while local_line and local_line[0].id not in waiting:
                local_line.pop(0)
            if local_line:
                return local_line[0], NODE
            del self._machines[machine]

        task = self._unplaced.first(offered, waiting)
        if task is not None:
            return task, UNPLACED

        lines = self._racks.get(self._sites.racks[machine]) if allowed >= RACK else None
        task = lines.first(offered, waiting) if lines is not None else None
        if task is not None:
            return task, RACK

        task = self._all_lines.first(offered, waiting) if allowed >= ANY else None
        return (task, ANY) if task is not None else None

    def take(self, task: Task) -> None:
        """Remove a task, which waits no longer."""
        del self.waiting[task.id]
        remaining = self.masks[task.constraints] - 1
        if remaining:
            self.masks[task.constraints] = remaining
        else:
            del self.masks[task.constraints]

    def check(self) -> None:
        """Raise AssertionError where the counts are not those of the tasks."""
        counted: dict[int, int] = {}
        for task in self.waiting.values():
            counted[task.constraints] = counted.get(task.constraints, 0) + 1
        assert counted == self.masks, "constraint sets are not those of the waiting tasks"
