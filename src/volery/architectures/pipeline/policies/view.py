"""The input of a policy: a view of a scheduler's state, and the machines among which it may choose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from volery.architectures.pipeline.policies.state import AVERAGE_MIN, JobRecord, Running, State, Table, Waiting
from volery.core.model import Amounts, Cluster, JobId, Task, Time
from volery.policies.match import positions


class Machine(NamedTuple):
    """A machine, as it is now.

    Args:
        number: Number in the whole cluster.
        constraints: Constraints that it meets.
        capacity: Units of each resource; slots where the cluster has no others.
        free: Units that are not taken.
        speed: Speed in the cluster's unit; 0 where it gives none.
        online: Whether it may be given tasks.
    """

    number: int
    constraints: int
    capacity: Amounts
    free: Amounts
    speed: int
    online: bool


class View:
    """The state of a scheduler, to be read. Machines are numbered from 0 among those that it manages."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def now(self) -> Time:
        """The time of the decision, in microseconds."""
        return self._state.now

    @property
    def cluster(self) -> Cluster:
        """The machines that are managed, empty."""
        return self._state.cluster

    @property
    def machine_count(self) -> int:
        """The number of managed machines, those that are offline included."""
        return len(self._state.capacities)

    @property
    def total(self) -> Amounts:
        """Capacity of all machines together."""
        return self._state.capacity

    @property
    def resume(self) -> int:
        """The machine at which the next search should begin, by the last `Choice`; 0 at first."""
        return self._state.resume

    @property
    def work_resource(self) -> int:
        """Place of the resource that counts processors; 0 where none does."""
        return self._state.work_resource

    def capacity(self, machine: int) -> Amounts:
        """The units of each resource of an empty machine."""
        return self._state.capacities[machine]

    def free(self, machine: int) -> Amounts:
        """The free units of each resource of a machine."""
        return self._state.packing.totals(self._state.index.free[machine])

    def room(self, machine: int) -> int:
        """The free room of a machine, device by device, for `fits`, `with_task` and `without`."""
        return self._state.index.free[machine]

    def fits(self, task: Waiting, room: int) -> bool:
        """True if a room has enough for a task, on devices that it may use."""
        guards = self._state.packing.guards
        return (room - task.kind.packed) & guards == guards

    def with_task(self, task: Waiting, room: int) -> int:
        """The room that is left of one that has enough for a task."""
        packing = self._state.packing
        return packing.settled(room - packing.named(room, task.kind.packed))

    def without(self, run: Running, room: int) -> int:
        """The room of a machine when a task that runs there has ended."""
        return self._state.packing.settled(room + run.took)

    def used_of(self, machine: int, room: int) -> float:
        """The fraction of a machine's processors, or slots, that is in use where it has this room."""
        resource = self._state.work_resource
        capacity = self._state.capacities[machine][resource]
        return (capacity - self._state.packing.totals(room)[resource]) / (capacity or 1)

    def machine(self, machine: int) -> Machine:
        """A machine as it is now."""
        state = self._state
        cluster = state.cluster

        speed = cluster.speeds[machine] if cluster.speeds else 0
        online = bool(state.online >> machine & 1)
        constraints = cluster.constraints[machine]

        return Machine(
            state.numbers[machine], constraints, state.capacities[machine], self.free(machine), speed, online
        )

    def free_table(self) -> Table:
        """The free units of all machines: a row per machine, a column per resource; read only."""
        table = self._state.free_table().view()
        table.flags.writeable = False
        return table

    def running(self) -> Iterator[Running]:
        """Tasks that run, those placed first first."""
        return iter(self._state.running.values())

    def running_on(self, machine: int) -> tuple[Running, ...]:
        """Tasks that run on a machine."""
        return tuple(self._state.on_machine[machine].values())

    def holders(self) -> Collection[str]:
        """Users of whom something runs, for policies of stage T10."""
        return (self._state.held_by or {}).keys()

    def latest_of(self, user: str) -> Iterator[Running]:
        """Attempts of a user that run, those placed last first, for policies of stage T10."""
        return reversed((self._state.held_by or {}).get(user, {}).values())

    def attempts(self, task: Waiting) -> tuple[Running, ...]:
        """The attempts of a task that run, the one placed first first."""
        first = self._state.running.get(task.task.id)
        return () if first is None else (first, *self._state.copies.get(task.task.id, ()))

    @property
    def running_count(self) -> int:
        """The number of tasks that run."""
        return len(self._state.running)

    @property
    def copied_count(self) -> int:
        """The number of tasks that run more than once."""
        return len(self._state.copies)

    def losable(self, machine: int) -> list[Running]:
        """Tasks on a machine that may be ended, those placed last first."""
        runs = reversed(self._state.on_machine[machine].values())
        return [run for run in runs if run.losable]

    def lowest_priority(self) -> int | None:
        """The lowest priority that runs, for policies of stage T10; None: nothing does."""
        counts = self._state.priorities or {}
        return min([priority for priority, count in counts.items() if count], default=None)

    def suits(self, task: Waiting, machine: int) -> bool:
        """True if a machine may be given a task when it has enough: allowed, suitable and online."""
        return bool(task.kind.suitable & self._state.online & 1 << machine)

    def makes_room(self, task: Waiting, machine: int, losers: Iterable[Running]) -> bool:
        """True if a machine has room for a task when these have ended."""
        return self.fits(task, self._state.packing.settled(self.room(machine) + sum([run.took for run in losers])))

    def waiting(self) -> Iterator[Waiting]:
        """Tasks that wait, in the order in which they became ready."""
        return iter(self._state.waiting.values())

    @property
    def waiting_count(self) -> int:
        """The number of tasks that wait."""
        return len(self._state.waiting)

    @property
    def jobs(self) -> Mapping[JobId, JobRecord]:
        """Jobs that are not done."""
        return MappingProxyType(self._state.jobs)

    def ahead(self, task: Task) -> Sequence[tuple[Task, int]]:
        """The tasks of its workflow that wait for this one, each with how many it waits for in all."""
        graph = self._state.graphs.get(task.job)
        return graph.ahead(task.id) if graph is not None else ()

    def units(self, task: Task) -> int:
        """Processors that a task asks for, or slots."""
        return self._state.units(task)

    @property
    def eligible_total(self) -> int:
        """The number of jobs of all users that are eligible (stage J2) and not done."""
        return sum(self._state.eligible.values())

    def eligible_count(self, user: str) -> int:
        """The number of jobs of a user that are eligible (stage J2) and not done."""
        return self._state.eligible.get(user, 0)

    def used(self, user: str) -> Amounts:
        """The units of each resource that the running tasks of a user hold."""
        return tuple(self._state.used.get(user, ())) or (0,) * len(self._state.capacity)

    def average_use(self, user: str) -> float:
        """The average use of a user over time, with the half-life that the order of tasks asks for."""
        average = self._state.averages.get(user)
        return AVERAGE_MIN if average is None else average.value_at(self._state.now, self._state.half_life_us)


class Candidates:
    """The machines that a task may be given: allowed, suitable, online and with enough free.

    Iteration goes by ascending number. A policy of stage R5 is never shown an empty one.

    Args:
        among: Bit vector of the machines that are allowed, suitable and online.

    Attributes:
        vector: Bit vector; bit m is set where machine m is a candidate.
    """

    __slots__ = ("_state", "_waiting", "vector")

    def __init__(self, state: State, waiting: Waiting, among: int) -> None:
        self._state = state
        self._waiting = waiting
        self.vector = state.index.fitting(waiting.kind.need, among)

    def __iter__(self) -> Iterator[int]:
        return iter(positions(self.vector))

    def __len__(self) -> int:
        return self.vector.bit_count()

    def __contains__(self, machine: object) -> bool:
        return isinstance(machine, int) and machine >= 0 and bool(self.vector >> machine & 1)

    def first(self, start: int = 0) -> int:
        """The candidate with the lowest number from a start on, round the cluster."""
        vector = self.vector
        candidates = vector >> start << start or vector
        return (candidates & -candidates).bit_length() - 1

    def fewest_constraints(self) -> int:
        """The candidate that meets the fewest constraints; ties go to the lowest number."""
        return self._state.fewest_constraints(self.vector)

    def least(self) -> int:
        """The candidate with the least free of the resource of which the task takes the largest share.

        Ties go to the machine that meets the fewest constraints, then to the lowest number.
        """
        resource = self._waiting.kind.need.tight[0]
        return self._state.fewest_constraints(self._exact(resource, *self._state.index.least(resource, self.vector), 1))

    def most(self) -> int:
        """As `least`, with the most free."""
        resource = self._waiting.kind.need.tight[0]
        return self._state.fewest_constraints(self._exact(resource, *self._state.index.most(resource, self.vector), -1))

    def _exact(self, resource: int, vector: int, alike: bool, sign: int) -> int:
        """The machines of a vector with the least (sign 1) or most (-1) free."""
        if alike or not vector & (vector - 1):
            return vector

        machines = positions(vector)
        column = self._state.free_table()[:, resource]
        amounts = (column[machines] * sign).tolist()

        best_amount = min(amounts)
        return sum([1 << machine for machine, amount in zip(machines, amounts, strict=True) if amount == best_amount])
