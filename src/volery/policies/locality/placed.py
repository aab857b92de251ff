"""Waiting tasks of a job by where their input lies, so that "a task for this machine" is found without a search."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from volery.core.locality import ANY, NODE, RACK, UNPLACED, racks_of
from volery.core.model import Cluster, Task, TaskId


class Sites:
    """The constraints and racks of machines: the same for all jobs.

    Args:
        cluster: the machines.

    Attributes:
        constraints: per machine, the set that it satisfies.
        racks: per machine, its number.
    """

    __slots__ = ("constraints", "racks")

    def __init__(self, cluster: Cluster) -> None:
        self.constraints = cluster.constraints
        self.racks = racks_of(cluster)


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
        found: Task | None = None
        for mask, line in list(self._lines.items()):
            if mask & ~offered:
                continue
            while line and line[0].id not in waiting:
                line.popleft()
            if not line:
                del self._lines[mask]
            elif found is None or line[0].id < found.id:
                found = line[0]
        return found


class PlacedTasks:
    """The waiting tasks of one job.

    Every task stands in a line per machine and per rack that holds its input, and in one for all. It is taken out of
    one of them; the others skip it when they meet it.

    Args:
        sites: of the cluster.

    Attributes:
        waiting: number -> task.
        masks: constraint set -> how many waiting tasks have it.
    """

    __slots__ = ("_all", "_machines", "_racks", "_replicas", "_sites", "_unplaced", "masks", "waiting")

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self.waiting: dict[TaskId, Task] = {}
        self.masks: dict[int, int] = {}
        self._machines: dict[int, list[Task]] = {}
        self._racks: dict[int, _Lines] = {}
        self._all = _Lines()
        self._unplaced = _Lines()
        self._replicas: dict[TaskId, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, task: Task, replicas: Sequence[int] = ()) -> None:
        """Let a task wait.

        Args:
            task: that some machine satisfies.
            replicas: machines that hold its input; nothing: it has none.
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
        self._all.add(task)

    def again(self, task: Task) -> None:
        """A task that was taken waits once more."""
        self.add(task, self._replicas.get(task.id, ()))

    def machines(self) -> list[int]:
        """Machines that hold input of tasks that may wait."""
        return list(self._machines)

    def fits(self, machine: int) -> bool:
        """True if the machine satisfies any task that waits."""
        lacking = ~self._sites.constraints[machine]
        return any(not mask & lacking for mask in self.masks)

    def find(self, machine: int, allowed: int) -> tuple[Task, int] | None:
        """The task to launch on a machine, and how far from its input that is; the nearest, then the oldest.

        Args:
            machine: its number.
            allowed: the farthest that is allowed.
        """
        waiting, offered = self.waiting, self._sites.constraints[machine]
        here = self._machines.get(machine)
        if here is not None:
            while here and here[0].id not in waiting:
                here.pop(0)
            if here:
                return here[0], NODE
            del self._machines[machine]
        task = self._unplaced.first(offered, waiting)
        if task is not None:
            return task, UNPLACED
        lines = self._racks.get(self._sites.racks[machine]) if allowed >= RACK else None
        task = lines.first(offered, waiting) if lines is not None else None
        if task is not None:
            return task, RACK
        task = self._all.first(offered, waiting) if allowed >= ANY else None
        return (task, ANY) if task is not None else None

    def take(self, task: Task) -> None:
        """It waits no longer."""
        del self.waiting[task.id]
        left = self.masks[task.constraints] - 1
        if left:
            self.masks[task.constraints] = left
        else:
            del self.masks[task.constraints]

    def check(self) -> None:
        """Raise AssertionError where the counts are not those of the tasks."""
        counted: dict[int, int] = {}
        for task in self.waiting.values():
            counted[task.constraints] = counted.get(task.constraints, 0) + 1
        assert counted == self.masks, "constraint sets are not those of the waiting tasks"
