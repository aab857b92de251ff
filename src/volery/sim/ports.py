"""The ports of a role: the plain ones of the lab, and what runs with capacities, speeds, replicas or workflows add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volery.core.locality import Pace
from volery.core.model import Cluster, Task, TaskId, Time
from volery.sim.execution import LabPort, Routes, port_class
from volery.sim.flows import flow_port_class
from volery.sim.vectors import vector_port_class

if TYPE_CHECKING:
    from volery.sim.kernel import Kernel


class Paced:
    """True durations on the machine on which the next attempt starts.

    Args:
        left_us: per task, at the reference speed, on a machine that holds its input.
        pace: of the run.

    Attributes:
        machine: that one's number.
    """

    def __init__(self, left_us: Sequence[Time], pace: Pace) -> None:
        self._left_us = left_us
        self._attempt_us = pace.attempt_us
        self.machine = 0

    def __getitem__(self, task: TaskId) -> Time:
        """How long an attempt of a task takes there."""
        return self._attempt_us(task, self._left_us[task], self.machine)


class PacedPort(LabPort):
    """A port of a machine that is not like all others for every task; the rest is up to the class that follows in line.

    Attributes:
        durations: of the run.
    """

    __slots__ = ()
    durations: Paced

    def launch(self, task: Task, attempt: int, waited_us: Time = 0) -> None:
        """Have the task take as long as it does here."""
        self.durations.machine = self.machine
        super().launch(task, attempt, waited_us)


def role_port_class(kernel: Kernel, routes: Routes, cluster: Cluster) -> type[LabPort]:
    """The ports of one role in one run; what is not asked for costs nothing.

    Args:
        kernel: of the run.
        routes: of the role.
        cluster: its machines.
    """
    if cluster.speeds or kernel.trace.replicas:
        durations = Paced(kernel.left_us, kernel.pace)
        plain = port_class(kernel, routes, durations)
        made: type[LabPort] = type("PacedRolePort", (PacedPort, plain), {"__slots__": (), "durations": durations})
    else:
        made = port_class(kernel, routes, kernel.left_us)
    if cluster.resources:
        made = vector_port_class(made, cluster)
    return made if kernel.flow is None else flow_port_class(made, kernel.flow)
