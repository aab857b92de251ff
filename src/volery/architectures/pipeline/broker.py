"""Stages M1 and B: the broker outside, which manages some tasks for a scheduler."""

from __future__ import annotations

from typing import Final

from volery.architectures.pipeline.messages import Pass
from volery.architectures.pipeline.policies import State, View, Waiting
from volery.architectures.pipeline.policies.policy import Management
from volery.architectures.pipeline.targets import MachineInventory, message_of
from volery.core.model import Address, Task, TaskId

ADDRESS: Final[Address] = "broker/0"


class Broker:
    """The tasks that are with the broker, and the policy that sends them there.

    Args:
        inventory: the broker's machines.
        management: the policy of stage M1.
    """

    __slots__ = ("_machines", "_management", "_passes", "tasks")

    def __init__(self, inventory: MachineInventory, management: Management) -> None:
        self._machines = State(inventory.cluster, inventory.numbers)
        self._machines.access(None)
        self._management = management
        self._passes = 0
        self.tasks: dict[TaskId, Waiting] = {}

    def possible(self, task: Task) -> bool:
        """True where one of its machines holds the task when it is empty."""
        return self._machines.kind(task, 0).possible

    def takes(self, view: View, waiting: Waiting) -> bool:
        """True for a task that goes there: each that no other machine can run, none that the broker cannot."""
        if not self.possible(waiting.task):
            return False
        return not waiting.kind.possible or self._management.brokered(view, waiting)

    def passed(self, waiting: Waiting) -> Pass:
        """The message that hands a task over."""
        self.tasks[waiting.task.id] = waiting
        self._passes += 1
        return message_of(self._passes, waiting)
