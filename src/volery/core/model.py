"""Jobs, tasks, clusters and the units that everything is counted in.

Time is an integer number of microseconds since the run began, never a float. A placement constraint is one bit: a
task's constraints are the bits that it needs, a machine's are the bits that it has, and a task fits a machine when
its bits are contained in the machine's (Thiyyakat et al., IoT 2023, section 4.1).

A resource is counted in whole units that its name ends in (cpu_milli, memory_mb, gpus). On a cluster with capacities a
task asks for an amount of each resource, in the cluster's order; elsewhere it takes one slot.
"""

from __future__ import annotations

import itertools
from typing import ClassVar, Final, Literal

import msgspec

Time = int
Address = str
JobId = int
TaskId = int
Key = str | int | tuple[str | int, ...]
Amounts = tuple[int, ...]
"""Units of each resource, in the cluster's order."""

SECOND: Final = 1_000_000
NEVER: Final[Time] = -1
"""Stands for a moment that never came, or never comes."""
NO_TASK: Final = -1
"""A number that no task has; every task has a larger one."""
CONSTRAINT_BITS_MAX: Final = 63
"""Constraint sets travel as one MessagePack integer."""
AMOUNT_BITS: Final = 40
AMOUNT_MAX: Final = (1 << AMOUNT_BITS) - 1
"""Units of one resource that a machine may offer or a task ask for."""
CHUNK_TASKS: Final = 4096
"""A job with more tasks than this is submitted in chunks (messages stay below a megabyte)."""
SUBMITTER: Final = "submitter"
"""The address of the submitter of jobs: the driver in the lab, the API live."""


COALESCE_US: Final[Time] = 20_000
"""Time for which a driver may keep a message that is `coalescable`."""


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A message between components: immutable, tagged by class name, encoded as an array.

    Messages hold numbers, strings, bytes, tasks and tuples of those, so they can never be part of a reference cycle and
    are kept out of the garbage collector's sight. A message that was sent is never changed.

    Attributes:
        coalescable: True if nothing waits for it, so that a driver may keep it for `COALESCE_US` at most and send it
            together with a later message to the same host; the order of a link holds.
    """

    coalescable: ClassVar[bool] = False


NodeGroup = Literal["node", "rack"]
"""Machines alone, or racks; each is one node set of the group."""
UNLIMITED: Final = -1


class TagConstraint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A placement constraint between tasks (Garefalakis et al., Medea, EuroSys 2018, section 4.2).

    A task with the subject's tags runs on a node set in which from `least` to `most` other tasks have the target's
    tags: affinity has least 1, anti-affinity most 0, cardinality a range. See `volery.core.tags`.

    Args:
        subject, target: Tags that a task must all have.
        least, most: Other tasks with the target's tags; UNLIMITED: any number.
        group: Kind of the node sets.
    """

    subject: tuple[str, ...]
    target: tuple[str, ...]
    least: int = 0
    most: int = UNLIMITED
    group: NodeGroup = "node"


class Tags(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The tags of a task, and the tag constraints of which it is a subject.

    Args:
        names: Words that name the task's kind or application.
        constraints: Hard constraints; all hold when the task starts, and `most` holds as long as it runs.
    """

    names: tuple[str, ...]
    constraints: tuple[TagConstraint, ...] = ()


class Task(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One unit of work of a job, as schedulers see it: the true duration stays with the driver.

    Args:
        id: Number of the task, unique in a run or a federation.
        job: Number of the job that it belongs to.
        constraints: Bit set of the machine constraints that it needs.
        estimate_us: Assumed duration, for schedulers: the job's mean task duration.
        payload: Work to run, for the executor alone; schedulers carry it and never look.
        request: Units of each resource, in the cluster's order; nothing: one slot.
        tags: Tags of the task with their constraints; None: it has no tags.
    """

    id: TaskId
    job: JobId
    constraints: int = 0
    estimate_us: Time = 0
    payload: bytes = b""
    request: Amounts = ()
    tags: Tags | None = None


class Preference(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Soft constraints of a job: on preferred machines its tasks take their duration, on others longer.

    Args:
        constraints: Bit set of the machine constraints that a preferred machine has, as GPUs.
        together: Bit set of which a preferred machine shares a bit with the machine on which the first task of its job
            has started, as a bit per rack; 0: tasks may lie apart.
        elsewhere_percent: Duration on other machines, in percent of that on preferred ones; at least 100.
    """

    constraints: int = 0
    together: int = 0
    elsewhere_percent: int = 100


INDIFFERENT: Final = Preference()
"""The job is as fast anywhere."""


PREFERS_RACK: Final = 1
"""In `Gang.rack`: all tasks run in one rack if some rack has room for them when they start."""
REQUIRES_RACK: Final = 2
"""In `Gang.rack`: all tasks run in one rack."""


class Gang(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The shape of a gang: all tasks of its job run only together (Ousterhout, ICDCS 1982; rigid jobs of HPC).

    Args:
        nodes: Count of machines over which the tasks are spread; 0: any number of machines.
        tasks_per_node: Largest count of its tasks on one machine; 0: any number of tasks.
        rack: PREFERS_RACK or REQUIRES_RACK; 0: its tasks may lie in any racks.
    """

    nodes: int = 0
    tasks_per_node: int = 0
    rack: int = 0


class Job(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A job as it is submitted; tasks beyond the first chunk follow in `MoreTasks` messages.

    Args:
        id: Number of the job.
        task_count: Count of the tasks of all chunks.
        tasks: Tasks of the first chunk.
        estimate_us: Assumed duration of a task, for schedulers: the mean over the job.
        user: Owner of the job; "": none was given.
        priority: Urgency; a larger number is more urgent.
        deadline_us: Absolute time by which it should be done; NEVER: none.
        parents: Tasks that must finish before each task of this chunk; nothing: all may start. Only designs
            that take workflows whole (`Architecture.graphs`) get it.
        replicas: Numbers of the machines that hold the input of each task of this chunk; nothing: no task has a
            preference.
        preference: Machines on which its tasks are faster.
        limit_us: Wall-clock limit of an attempt of any of its tasks; NEVER: none. The driver ends an attempt that
            would run longer, and the task is over.
        gang: Shape of the gang that its tasks form; None: each task runs for itself.
        partition: Name of the partition (a queue of machines) to which it was submitted; "": none was given.
    """

    id: JobId
    task_count: int
    tasks: tuple[Task, ...]
    estimate_us: Time = 0
    user: str = ""
    priority: int = 0
    deadline_us: Time = NEVER
    parents: tuple[tuple[TaskId, ...], ...] = ()
    replicas: tuple[tuple[int, ...], ...] = ()
    preference: Preference = INDIFFERENT
    limit_us: Time = NEVER
    gang: Gang | None = None
    partition: str = ""


class Variability(msgspec.Struct, frozen=True):
    """The speed of machines over time: each machine draws one factor for each period, and keeps it until the next.

    Args:
        seed: Seed of the factors.
        period_us: Length of a period.
        spread_permille: Spread of the factors: uniform in 1000 - spread to 1000 + spread thousandths.
    """

    seed: int
    period_us: Time
    spread_permille: int


class Cluster(msgspec.Struct, frozen=True):
    """The machines, in order; a machine's place in the order is its number.

    Args:
        constraints: Bit set of the constraints that each machine satisfies.
        slots: Count of tasks that each machine runs at once; not used on a cluster with capacities.
        name: Name in reports.
        resources: Resources that the machines offer, each name with its unit, as "memory_mb"; nothing: slots.
        capacities: Units of each resource on each machine.
        speeds: Speeds of the machines in the unit of `reference_speed`, for example MHz; nothing: durations hold
            everywhere. An attempt on a machine takes duration * reference_speed // speed microseconds, rounded down.
        reference_speed: Speed for which durations and estimates hold; 0 where no speeds are given.
        racks: Number of each machine's rack; nothing: all are in one.
        tick_us: Multiple to which the time of an attempt is rounded down, where speeds are given.
        variability: Variability of the speed over time, unknown to schedulers in advance; None: speeds are constant.
    """

    constraints: tuple[int, ...]
    slots: tuple[int, ...]
    name: str = "cluster"
    resources: tuple[str, ...] = ()
    capacities: tuple[Amounts, ...] = ()
    speeds: tuple[int, ...] = ()
    reference_speed: int = 0
    racks: tuple[int, ...] = ()
    tick_us: Time = 1
    variability: Variability | None = None

    def __post_init__(self) -> None:
        """Refuse a cluster that nothing could run on."""
        if not self.constraints:
            raise ValueError("a cluster needs at least one worker; give --workers N with N >= 1")
        if len(self.constraints) != len(self.slots):
            raise ValueError(f"{len(self.constraints)} machine constraint sets but {len(self.slots)} slot counts")
        if min(self.slots) < 1:
            raise ValueError(
                f"machine {self.slots.index(min(self.slots))} has no slot; every worker needs at least one"
            )

        if self.resources or self.capacities:
            self._check_capacities()
        if self.speeds or self.reference_speed:
            self._check_speeds()
        if self.racks and len(self.racks) != len(self.constraints):
            raise ValueError(f"{len(self.constraints)} machine constraint sets but {len(self.racks)} racks")

    def _check_capacities(self) -> None:
        if len(self.capacities) != len(self.constraints):
            raise ValueError(f"{len(self.constraints)} machine constraint sets but {len(self.capacities)} capacities")
        if not self.resources or len(set(self.resources)) < len(self.resources):
            raise ValueError(f"resources need names, each its own; found {', '.join(self.resources) or 'none'}")
        for machine, offered in enumerate(self.capacities):
            if len(offered) != len(self.resources):
                raise ValueError(f"machine {machine} offers {len(offered)} amounts of {len(self.resources)} resources")
            if min(offered) < 0 or max(offered) > AMOUNT_MAX:
                raise ValueError(f"machine {machine} offers {offered}; amounts are from 0 to {AMOUNT_MAX}")

    def _check_speeds(self) -> None:
        if len(self.speeds) != len(self.constraints):
            raise ValueError(f"{len(self.constraints)} machine constraint sets but {len(self.speeds)} speeds")
        if self.reference_speed < 1:
            raise ValueError(f"the reference speed is {self.reference_speed}; with speeds of machines it is at least 1")
        if min(self.speeds) < 1:
            machine = self.speeds.index(min(self.speeds))
            raise ValueError(f"machine {machine} has the speed {min(self.speeds)}; speeds are at least 1")

    def attempt_us(self, duration_us: Time, machine: int) -> Time:
        """The duration of an attempt on a machine, rounded down to ticks."""
        if not self.speeds:
            return duration_us
        return duration_us * self.reference_speed // self.speeds[machine] // self.tick_us * self.tick_us

    def done_us(self, run_us: Time, machine: int) -> Time:
        """The part of a task's duration that is done after it has run so long on a machine, rounded down."""
        return run_us * self.speeds[machine] // self.reference_speed if self.speeds else run_us

    @property
    def slot_count(self) -> int:
        """The count of tasks that run at once when all is busy."""
        return sum(self.slots)

    @staticmethod
    def uniform(workers: int, slots: int = 1, constraints: int = 0, name: str = "cluster") -> Cluster:
        """A cluster of `workers` equal machines."""
        return Cluster((constraints,) * workers, (slots,) * workers, name)


def split_evenly(count: int, parts: int) -> list[range]:
    """Cut 0..count-1 into `parts` consecutive ranges whose lengths differ by at most one.

    Raises:
        ValueError: when there are more parts than workers.
    """
    if parts < 1 or parts > count:
        raise ValueError(f"cannot split {count} workers into {parts} parts; every part needs at least one worker")
    bounds = [count * i // parts for i in range(parts + 1)]
    return [range(low, high) for low, high in itertools.pairwise(bounds)]
