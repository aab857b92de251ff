"""Policies of managers: the broker (M1), the usable ones (M4), and the one that is passed a task (M5).

Andreadis et al., SC18, section III-D3.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

from volery.architectures.pipeline.policies.policy import Manager, Policy
from volery.architectures.pipeline.policies.state import Waiting
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import Count, PositiveRatio, Seconds, param
from volery.core.model import SECOND


class NoBroker(Policy, frozen=True):
    """There is no broker."""

    def brokered(self, view: View, task: Waiting) -> bool:
        return False


class LongToBroker(Policy, frozen=True):
    """Tasks whose estimate is at least so long go to the broker."""

    estimate_s: Seconds = param(600.0, "from this estimate on")

    def brokered(self, view: View, task: Waiting) -> bool:
        return task.task.estimate_us >= self.estimate_s * SECOND


class OverflowToBroker(Policy, frozen=True):
    """While so many tasks wait, further ones go to the broker."""

    tasks: Count = param(100, "tasks that wait")

    def brokered(self, view: View, task: Waiting) -> bool:
        return view.waiting_count > self.tasks


class AllManagers(Policy, frozen=True):
    """Every local resource manager may be passed tasks, however many wait there."""

    def usable(self, view: View, task: Waiting, manager: Manager) -> bool:
        return True


class TasksPerMachine(Policy, frozen=True):
    """The managers with fewer tasks than this per machine."""

    per_machine: PositiveRatio = param(2.0, "tasks per machine")

    def usable(self, view: View, task: Waiting, manager: Manager) -> bool:
        """By what was passed and has not ended."""
        return manager.managed < self.per_machine * manager.machine_count


class FreeFraction(Policy, frozen=True):
    """The managers of whose processors at least this fraction is free."""

    least: float = param(0.1, "of the processors, or slots", ge=0, le=1)

    def usable(self, view: View, task: Waiting, manager: Manager) -> bool:
        """By what was passed and has not ended."""
        resource = view.work_resource
        return manager.free[resource] > 0 and manager.free[resource] >= self.least * manager.capacity[resource]


def free_share(manager: Manager, resource: int) -> Fraction:
    """The fraction of a resource that is free; below 0 where more was passed than there is."""
    return Fraction(manager.free[resource], manager.capacity[resource] or 1)


class FirstManager(Policy, frozen=True):
    """The usable manager with the lowest number."""

    def select(self, view: View, task: Waiting, managers: Sequence[Manager], draw: Random) -> int:
        """In the order of numbers."""
        return managers[0].number


class FullestManager(Policy, frozen=True):
    """The manager of which the smallest fraction of processors is free."""

    def select(self, view: View, task: Waiting, managers: Sequence[Manager], draw: Random) -> int:
        """Ties go to the lowest number."""
        return min(managers, key=lambda manager: free_share(manager, view.work_resource)).number


class EmptiestManager(Policy, frozen=True):
    """The manager of which the largest fraction of processors is free."""

    def select(self, view: View, task: Waiting, managers: Sequence[Manager], draw: Random) -> int:
        """Ties go to the lowest number."""
        return max(managers, key=lambda manager: (free_share(manager, view.work_resource), -manager.number)).number


class AnyManager(Policy, frozen=True):
    """A random manager, each with the same probability."""

    def select(self, view: View, task: Waiting, managers: Sequence[Manager], draw: Random) -> int:
        """Each with the same probability."""
        return managers[int(draw.random() * len(managers))].number
