"""Stages M1 and B: what a scheduler knows of the broker outside that manages some tasks for it."""

from __future__ import annotations

from volery.architectures.pipeline.messages import Pass
from volery.architectures.pipeline.placing import Place
from volery.architectures.pipeline.policies import State, View, Waiting
from volery.architectures.pipeline.policies.policy import Management
from volery.core.model import Address, Task, TaskId

ADDRESS: Address = "broker/0"


class Outside:
    """Which tasks are with the broker, and which go there.

    Args:
        place: the broker's machines.
        management: the policy of stage M1.
    """

    __slots__ = ("_machines", "_management", "_passes", "tasks")

    def __init__(self, place: Place, management: Management) -> None:
        self._machines = State(place.cluster, place.numbers)
        self._machines.access(None)
        self._management = management
        self._passes = 0
        self.tasks: dict[TaskId, Waiting] = {}

    def possible(self, task: Task) -> bool:
        """Whether one of its machines holds the task when it is empty."""
        return self._machines.kind(task, 0).possible

    def takes(self, view: View, waiting: Waiting) -> bool:
        """Whether a task goes there: it must where nobody else can run it, and cannot where the broker cannot."""
        if not self.possible(waiting.task):
            return False
        return not waiting.kind.possible or self._management.brokered(view, waiting)

    def passed(self, waiting: Waiting) -> Pass:
        """The message that hands it over."""
        self.tasks[waiting.task.id] = waiting
        self._passes += 1
        return message_of(self._passes, waiting)


def message_of(number: int, waiting: Waiting) -> Pass:
    """What hands a task to somebody else."""
    job = waiting.job
    return Pass(
        number, waiting.task, job.user, job.priority, job.deadline_us, job.submit_us, job.task_count,
        waiting.rank_us, waiting.came_us,
    )  # fmt: skip
