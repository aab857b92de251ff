"""The input that all components of a build share: machines, packing of amounts, and the rule for service jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from volery.architectures.omega.firstfit import Rings
from volery.core.errors import InputError
from volery.core.model import SECOND, Amounts, Cluster, Job, Task, Time
from volery.core.resources import packing_of

Workload = Literal["batch", "service", "fill"]
WORKLOADS: Final[tuple[Workload, ...]] = ("batch", "service", "fill")
"""Jobs of type "fill" fill the cell when a run begins: they take no decision time and are not measured."""


class Layout:
    """The machines of a cluster with their resources, of which slots are one.

    Args:
        cluster: the machines.
        rings: of these machines.

    Attributes:
        nodes: address per machine.
        packing: of amounts.
        whole: per machine, everything free; to be copied.
        capacity: of all machines together.
        rings: the machines by constraint set.
        state_bytes: bytes of one machine in a message.
    """

    def __init__(self, cluster: Cluster, rings: Rings) -> None:
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self.nodes = [f"node/{machine}" for machine in range(len(capacities))]
        self.packing = packing_of(cluster)
        known: dict[Amounts, int] = {}  # one integer for all machines alike
        self.whole = [known.setdefault(amounts, self.packing.free(amounts)) for amounts in capacities]
        self.capacity = tuple([sum(column) for column in zip(*capacities, strict=True)])
        self.rings = rings
        self.state_bytes = (self.packing.guards.bit_length() + 7) // 8
        self._kinds = list(dict.fromkeys(zip(cluster.constraints, self.whole, strict=True)))
        self._possible: dict[tuple[int, Amounts], bool] = {}

    def fits_somewhere(self, task: Task) -> bool:
        """True if some machine, empty, could run the task."""
        kind = (task.constraints, task.request)
        if kind not in self._possible:
            packed, guards = self.packing[task.request], self.packing.guards
            self._possible[kind] = any(
                not task.constraints & ~has and (whole - packed) & guards == guards for has, whole in self._kinds
            )
        return self._possible[kind]

    def encode(self, free: Sequence[int]) -> bytes:
        """The free amounts of some machines, as bytes."""
        width = self.state_bytes
        return b"".join([amounts.to_bytes(width, "little") for amounts in free])

    def decode(self, octets: bytes) -> list[int]:
        """The free amounts in a message."""
        width = self.state_bytes
        return [int.from_bytes(octets[at : at + width], "little") for at in range(0, len(octets), width)]


class Rule(msgspec.Struct, frozen=True):
    """The rule that makes some jobs service jobs; the others are batch jobs.

    Args:
        users: whose jobs are service jobs.
        beyond_us: jobs with longer estimates are service jobs; None: estimates do not count.
        fill: the user whose jobs fill the cell; "": no user.
    """

    users: tuple[str, ...] = ()
    beyond_us: Time | None = None
    fill: str = ""

    def workload(self, job: Job) -> Workload:
        if self.fill and job.user == self.fill:
            return "fill"
        long = self.beyond_us is not None and job.estimate_us > self.beyond_us
        return "service" if long or job.user in self.users else "batch"


def parse_rule(text: str, place: str) -> Rule:
    """Read `none`, `user:NAME+NAME` or `estimate:SECONDS`.

    Raises:
        InputError: at `place`, when it is none of these.
    """
    kind, _, rest = text.partition(":")
    if text == "none":
        return Rule()
    if kind == "user" and all(rest.split("+")):
        return Rule(users=tuple(rest.split("+")))
    if kind == "estimate":
        try:
            seconds = float(rest)
        except ValueError:
            seconds = math.nan
        if 0 <= seconds < math.inf:
            return Rule(beyond_us=round(seconds * SECOND))
    raise InputError(place, f"{text!r} is neither none, user:NAME+NAME nor estimate:SECONDS")


class DecisionTimes(msgspec.Struct, frozen=True):
    """The decision time of a job: t_job + t_task * n for n tasks that are left (section 4).

    Args:
        job_us: per workload type.
        task_us: likewise.
    """

    job_us: dict[Workload, Time]
    task_us: dict[Workload, Time]

    def decision_us(self, workload: Workload, tasks: int) -> Time:
        return self.job_us[workload] + self.task_us[workload] * tasks
