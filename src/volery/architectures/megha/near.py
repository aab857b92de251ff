"""View of a Global Master that places a task where its input lies, if a slot is free there (future work of 2023, 8).

A task whose machines with input are busy, in the view, is placed as any other: nothing waits for locality, so that a
free slot and a task that fits it never wait for each other. Internal partitions come before external ones here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import TasksEnded
from volery.architectures.megha.partitions import Layout, SearchOrder
from volery.architectures.megha.view import SlotView, ViewHost
from volery.core.model import Task, TaskId
from volery.policies.queues import ConstraintQueue

if TYPE_CHECKING:
    from volery.architectures.megha.priorities import PriorityQueue


class NearView(SlotView):
    """View of slots that knows where the input of tasks lies.

    Args:
        units: Slots of each machine.
    """

    def __init__(
        self,
        host: ViewHost,
        layout: Layout,
        search: SearchOrder,
        config: MeghaConfig,
        stream: Random,
        queue: ConstraintQueue | PriorityQueue | None,
        units: Mapping[int, Sequence[tuple[int, int]]],
    ) -> None:
        super().__init__(host, layout, search, config, stream, queue)
        self._units = units
        self._replicas: dict[TaskId, tuple[int, ...]] = {}

    def locate(self, tasks: Sequence[Task], replicas: Sequence[tuple[int, ...]]) -> None:
        """Note the machines that hold the input of tasks, before they are placed."""
        self._replicas.update({task.id: machines for task, machines in zip(tasks, replicas, strict=False) if machines})

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks, those with input first; return those that fit nowhere in the view."""
        elsewhere: list[Task] = []
        batches: dict[int, tuple[list[Task], list[int]]] = {}

        for task in tasks:
            unit = self._nearest(task)
            if unit is None:
                elsewhere.append(task)
                continue
            partition, position = unit
            # Taken in the view at once: the next task must not be matched to it.
            self._free[partition] ^= self._layout.bits[position]
            self.placed[task.id] = (task, partition, position)
            near_tasks, places = batches.setdefault(partition, ([], []))
            near_tasks.append(task)
            places.append(position)

        self._host.request_all(batches)

        # What waits takes whatever becomes free: where its input lies is of no use any more.
        unplaced = super().place(elsewhere)
        for task in unplaced:
            self._replicas.pop(task.id, None)
        return unplaced

    def _nearest(self, task: Task) -> tuple[int, int] | None:
        """A free slot on a machine with the task's input, an internal one if there is one; None: there is none."""
        free, layout, external = self._free, self._layout, self.search.external
        external_unit = None
        for machine in self._replicas.get(task.id, ()):
            for partition, position in self._units[machine]:
                if free[partition] & layout.matches[partition][task.constraints] & layout.bits[position]:
                    if not external[partition]:
                        return partition, position
                    external_unit = external_unit or (partition, position)
        return external_unit

    def end(self, message: TasksEnded, lm: int) -> None:
        """Forget where the input of ended tasks lies."""
        for task in message.tasks:
            self._replicas.pop(task, None)
        super().end(message, lm)
