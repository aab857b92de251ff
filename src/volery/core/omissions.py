"""Work of a trace that a run leaves out, counted by reason: jobs, tasks and machine time.

Traces carry it from workload to metrics and report, which share nothing but core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

LARGE: Final = 0.01
"""A share of the machine time above which a run states in its first line what it leaves out."""
UNITS: Final = {
    "cpu_milli": ("core-seconds", 1e-3), "memory_mb": ("MB-seconds", 1.0), "gpu_milli": ("GPU-seconds", 1e-3)
}  # fmt: skip


def machine_unit(resources: Sequence[str]) -> tuple[str, float]:
    """The unit of machine time, and how many of it are a second of one unit of the first resource.

    Args:
        resources: that a trace asks for, by any names; empty: tasks are counted alike.
    """
    if not resources:
        return "task-seconds", 1.0
    return UNITS.get(resources[0], (f"{resources[0]}-seconds", 1.0))


class Omission(msgspec.Struct, frozen=True):
    """Tasks that are left out for one reason.

    Args:
        reason: in plain words, to be read after "left out:".
        jobs: that lose a task for this reason.
        tasks: how many are left out.
        machine_time: of these tasks as far as it is known, in the unit of `Omissions`.
        machine_share: the same as a share of all machine time, 0 to 1.
        unmeasured: tasks among these whose machine time is not known, or only in part.
    """

    reason: str
    jobs: int
    tasks: int
    machine_time: float = 0.0
    machine_share: float = 0.0
    unmeasured: int = 0


class Omissions(msgspec.Struct, frozen=True):
    """Work that is left out of a trace, and the size of the whole trace.

    Args:
        jobs, tasks: of the trace, with those that are left out.
        machine_time: of all tasks where it is known, with those that are left out.
        unit: of machine time, for example "core-seconds".
        jobs_left_out: jobs of which no task is left.
        reasons: why, the largest machine time first; empty: nothing is left out.
    """

    jobs: int
    tasks: int
    machine_time: float
    unit: str
    jobs_left_out: int = 0
    reasons: tuple[Omission, ...] = ()

    @property
    def tasks_left_out(self) -> int:
        """Tasks that are left out, over all reasons."""
        return sum(one.tasks for one in self.reasons)

    @property
    def machine_share(self) -> float:
        """Share of the machine time that is left out, as far as it is known."""
        return sum(one.machine_share for one in self.reasons)

    @property
    def unmeasured(self) -> int:
        """Tasks that are left out and whose machine time is not known."""
        return sum(one.unmeasured for one in self.reasons)

    @property
    def is_large(self) -> bool:
        """True if over 1 % of the machine time is left out, or over 1 % of all tasks with unknown machine time."""
        return self.machine_share > LARGE or self.unmeasured > LARGE * self.tasks
