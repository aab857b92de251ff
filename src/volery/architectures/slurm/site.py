"""The site of Slurm's controller: its partitions and advance reservations, and which jobs fit them at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from volery.architectures.slurm.jobs import AdvanceReservation, Element, QueuedJob, SlurmPartition, limit_s
from volery.architectures.slurm.nodes import JobNeed, NodeFacts, Nodes
from volery.core.model import Amounts, Job, Task
from volery.core.resources import units_per_processor, work_resource


class SlurmSite(msgspec.Struct, frozen=True):
    """The partitions of a cluster, and what is kept of it.

    Args:
        partitions: Partitions by name.
        default: SlurmPartition of jobs that name none.
        is_exclusive: True if all jobs are given whole nodes (select/linear).
        reservations: Advance reservations.
        is_divided: True where partitions were configured; else the jobs of every partition belong to the one.
    """

    partitions: Mapping[str, SlurmPartition]
    default: SlurmPartition
    is_exclusive: bool = False
    reservations: tuple[AdvanceReservation, ...] = ()
    is_divided: bool = True

    def partition_of(self, job: Job) -> SlurmPartition | None:
        """The partition of a job; None: there is none of that name."""
        return self.partitions.get(job.partition) if job.partition and self.is_divided else self.default

    def allowed(self, job: QueuedJob, begin_s: int, end_s: int) -> tuple[int, int]:
        """Return the nodes that a job may have from a time to another, and the time after which it may have others."""
        nodes, released_s = job.partition.nodes, 0
        for reservation in self.reservations:
            if reservation.bars(job.user, begin_s, end_s):
                nodes &= ~reservation.nodes
                released_s = min(released_s, reservation.end_s) if released_s else reservation.end_s
        return nodes, released_s


class Fit:
    """Needs of jobs, and whether the empty cluster satisfies them.

    Args:
        table: Facts of the nodes.
        resources: Resources that tasks ask for; nothing: slots.
        site: Partitions.
    """

    def __init__(self, table: NodeFacts, resources: Sequence[str], site: SlurmSite) -> None:
        self._table = table
        self._idle_nodes = Nodes(table)
        self._site = site
        self._core_place = work_resource(resources)
        self._units_per_core = units_per_processor(resources)
        self._possible: dict[tuple[JobNeed, str], bool] = {}

    def cores(self, amounts: Amounts) -> float:
        """The cores among the amounts of a request; a slot is a core."""
        return amounts[self._core_place] / self._units_per_core if amounts else 1.0

    def node_cores(self, node: int) -> float:
        """The cores of a node."""
        return self.cores(self._table.capacities[node])

    def elements(
        self, job: Job, tasks: Sequence[Task], partition: SlurmPartition
    ) -> list[tuple[JobNeed, list[Element]]]:
        """The elements of a job by their needs: the whole of a gang, otherwise each task alone."""
        is_exclusive = self._site.is_exclusive or partition.is_exclusive
        if job.gang is not None:
            # Slurm's jobs ask for one kind of task: where tasks differ, for the most of each resource.
            requests = {task.request for task in tasks}
            request = tuple([max(column) for column in zip(*requests, strict=True)])
            constraints = 0
            for task in tasks:
                constraints |= task.constraints
            # Its first tasks may have come alone: the others are taken to be like them.
            count, gang = job.task_count, job.gang
            nodes, cores = min(gang.nodes, count), count * self.cores(request)
            need = JobNeed(count, nodes, gang.tasks_per_node, request, constraints, is_exclusive, cores, gang)
            return [(need, [tuple(tasks)])]

        elements: dict[JobNeed, list[Element]] = {}
        for task in tasks:
            need = JobNeed(1, 1, 1, task.request, task.constraints, is_exclusive, self.cores(task.request))
            elements.setdefault(need, []).append((task,))
        return list(elements.items())

    def is_possible(self, job: Job, need: JobNeed, partition: SlurmPartition) -> bool:
        """True if a job can run in its partition when that is empty."""
        if partition.max_s and limit_s(job.limit_us, partition) > partition.max_s:
            return False
        if need.node_count < partition.min_nodes or 0 < partition.max_nodes < need.node_count:
            return False

        key = need, partition.name
        if key not in self._possible:
            self._possible[key] = self._idle_nodes.choose(need, partition.nodes) is not None
        return self._possible[key]

    def refuses(self, job: Job, task: Task) -> bool:
        """True if a task may run on no node, whatever else runs."""
        partition = self._site.partition_of(job)
        if partition is None:
            return True
        tasks = job.tasks if job.gang is not None else (task,)
        return not all(self.is_possible(job, need, partition) for need, _ in self.elements(job, tasks, partition))
