"""The ports of a role: the plain ones of the lab, and what runs with capacities, speeds, replicas or workflows add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volery.core.locality import Pace
from volery.core.model import Cluster, JobId, Task, TaskId, Time
from volery.core.trace import Trace
from volery.sim.copies import copy_port_class
from volery.sim.execution import LabPort, Routes, port_class
from volery.sim.flows import flow_port_class
from volery.sim.power import power_port_class
from volery.sim.vectors import vector_port_class

if TYPE_CHECKING:
    from volery.sim.kernel import Kernel


class Preferred:
    """How much longer tasks take on machines that their jobs do not prefer, rounded down to microseconds.

    Args:
        trace: with preferences.
        constraints: per machine, the bit set of constraints that it satisfies.
    """

    def __init__(self, trace: Trace, constraints: Sequence[int]) -> None:
        self._trace = trace
        self._constraints = constraints
        self._first: dict[JobId, int] = {}
        self._percent: dict[TaskId, int] = {}

    def starts(self, task: Task, machine: int) -> None:
        """An attempt starts on a machine; where the first of the job has started decides what is together."""
        wish = self._trace.preferences[self._trace.preference[task.job]]
        has = self._constraints[machine]
        shared = has & self._first.setdefault(task.job, has) & wish.together
        preferred = not wish.constraints & ~has and (bool(shared) or not wish.together)
        self._percent[task.id] = 100 if preferred else wish.elsewhere_percent

    def attempt_us(self, duration_us: Time, task: TaskId) -> Time:
        """How long that attempt takes where it would take so long on a preferred machine."""
        return duration_us * self._percent[task] // 100

    def done_us(self, run_us: Time, task: TaskId) -> Time:
        """How much of the duration is behind the task after its last attempt has run so long."""
        return run_us * 100 // self._percent[task]


class Paced:
    """True durations on the machine on which the next attempt starts.

    Args:
        left_us: per task, at the reference speed, on a machine that holds its input and that its job prefers.
        pace: of the run.
        preferred: what the preferences of jobs make of it; None: all are indifferent.
    """

    def __init__(self, left_us: Sequence[Time], pace: Pace, preferred: Preferred | None) -> None:
        self._left_us = left_us
        self._attempt_us = pace.attempt_us
        self._preferred = preferred
        self._machine = 0

    def starts(self, task: Task, machine: int) -> None:
        """The next attempt is of this task, on this machine."""
        self._machine = machine
        if self._preferred is not None:
            self._preferred.starts(task, machine)

    def __getitem__(self, task: TaskId) -> Time:
        """How long it takes."""
        at_best_us = self._attempt_us(task, self._left_us[task], self._machine)
        return at_best_us if self._preferred is None else self._preferred.attempt_us(at_best_us, task)


class PacedPort(LabPort):
    """A port of a machine that is not like all others for every task; the rest is up to the class that follows in line.

    Attributes:
        durations: of the run.
    """

    __slots__ = ()
    durations: Paced

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Have the task take as long as it does here."""
        self.durations.starts(task, self.machine)
        super().launch(task, attempt, waited_us, note)


def role_port_class(kernel: Kernel, routes: Routes, cluster: Cluster) -> type[LabPort]:
    """The ports of one role in one run; what is not asked for costs nothing.

    Args:
        kernel: of the run.
        routes: of the role.
        cluster: its machines.
    """
    if cluster.speeds or kernel.trace.replicas or kernel.preferred is not None:
        durations = Paced(kernel.left_us, kernel.pace, kernel.preferred)
        plain = port_class(kernel, routes, durations)
        made: type[LabPort] = type("PacedRolePort", (PacedPort, plain), {"__slots__": (), "durations": durations})
    else:
        made = port_class(kernel, routes, kernel.left_us)
    if cluster.resources:
        made = vector_port_class(made, cluster)
    if kernel.records.billing is not None:
        made = power_port_class(made, kernel.records.billing, cluster)
    if kernel.copies is not None:
        made = copy_port_class(made, kernel.copies)
    return made if kernel.flow is None else flow_port_class(made, kernel.flow)
