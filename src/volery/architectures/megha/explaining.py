"""Global Masters that say of every task what they decided and why; they decide as those do that are silent.

What is passed over is counted on the view that each task met: the tasks of a batch are told one by one, in the order in
which they were matched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from volery.architectures.megha.fair_gm import FairGlobalMaster
from volery.architectures.megha.fair_messages import Denied, Ousted, Yield
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.messages import Inconsistency, Notice, Update
from volery.architectures.megha.vector_gm import VectorGlobalMaster
from volery.architectures.megha.vector_messages import Ended, Refusal, StateUpdate
from volery.core.events import Event
from volery.core.model import Address, Task, TaskId, Time
from volery.core.why import Chosen, Decision, Reason, Rejected, Scope
from volery.policies.capacity import CapacityIndex

Passed = dict[tuple[Scope, Reason], int]


class Explaining(GlobalMaster):
    """Reports a `Decision` per task that it places, cannot place, or is refused; arguments as for the silent role."""

    NEWS: ClassVar[tuple[type, ...]]
    """Messages by which a Local Master tells of its cluster."""
    _heard_at: dict[Address, Time]
    _matching: bool
    _now: Time

    def start(self, now: Time) -> None:
        """Open the ledger of jobs; the view is that of an empty cluster, which is true now."""
        super().start(now)
        self._now = now
        self._heard_at = dict.fromkeys(self._lms, now)
        self._matching = False

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Keep the time, and when each Local Master was last heard of."""
        self._now = now
        if isinstance(event, self.NEWS):
            self._heard_at[source] = now
        super().handle(event, source, now)

    def _view(self) -> list[Any]:
        """A copy of the view, per partition."""
        raise NotImplementedError

    def _pass(self, counts: Passed, task: Task, view: Sequence[Any], partition: int) -> None:
        """Count the units of a partition by why the task does not run there."""
        raise NotImplementedError

    def _use(self, view: list[Any], partition: int, place: int, task: Task) -> int:
        """Take in a copy of the view what a task has taken there; returns the position of the unit."""
        raise NotImplementedError

    def _place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request, then tell what each task met."""
        chosen = list(tasks)
        view, start = self._view(), self._next
        self._matching = True
        unplaced = super()._place(chosen)
        self._matching = False
        waiting = {task.id for task in unplaced}
        for task in chosen:
            order = self._orders[start]
            if task.id in waiting:
                fits = self._satisfiable(task)
                self._tell(task, "queued" if fits else "unsatisfiable", self._passed(task, view, order))
                continue
            _, partition, place = self._placed[task.id]
            passed = self._passed(task, view, order[: order.index(partition)])
            self._tell(task, "placed", passed, partition, self._use(view, partition, place, task))
            start = self._after[partition]
        return unplaced

    def _request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Ask the Local Master; a task that waited for these units has passed over nothing."""
        super()._request(partition, tasks, places)
        if not self._matching:
            for task, position in zip(tasks, places, strict=True):
                self._tell(task, "placed", (), partition, position)

    def _tell_refused(
        self, message: Inconsistency | Refusal, source: Address, position_of: Callable[[int], int]
    ) -> None:
        if message.update.number > self._heard[source]:
            for number in message.tasks:
                if number in self._placed:
                    task, partition, place = self._placed[number]
                    refused = (Rejected(self._scope(partition), Reason.INCONSISTENCY, 1),)
                    self._tell(task, "refused", refused, partition, position_of(place))

    def _passed(self, task: Task, view: Sequence[Any], partitions: Iterable[int]) -> tuple[Rejected, ...]:
        counts: Passed = {}
        for partition in partitions:
            self._pass(counts, task, view, partition)
        return tuple([Rejected(*key, count) for key, count in counts.items() if count])

    def _count(self, counts: Passed, partition: int, **by_reason: int) -> None:
        scope = self._scope(partition)
        for reason, count in by_reason.items():
            key = scope, Reason(reason)
            counts[key] = counts.get(key, 0) + count

    def _scope(self, partition: int) -> Scope:
        return "external" if self._outside[partition] else "internal"

    def _tell(
        self, task: Task, chosen: Chosen, rejected: tuple[Rejected, ...], partition: int = -1, position: int = -1
    ) -> None:
        if partition < 0:
            asked, machine, age_us = "", -1, self._now - min(self._heard_at.values())
        else:
            asked = self._lms[self._layout.lm_of[partition]]
            machine = self._layout.machines[partition][position]
            age_us = self._now - self._heard_at[asked]
        self._port.observe(Decision(task.id, task.job, chosen, partition, machine, asked, age_us, rejected))


class ExplainingMaster(Explaining):
    """Explains placements on slots."""

    NEWS = (Update, Notice, Inconsistency)

    def _view(self) -> list[Any]:
        return list(self._free)

    def _use(self, view: list[Any], partition: int, place: int, task: Task) -> int:
        view[partition] ^= place
        return place.bit_length() - 1

    def _pass(self, counts: Passed, task: Task, view: Sequence[Any], partition: int) -> None:
        suits = self._layout.matches[partition][task.constraints]
        lacking = self._layout.size[partition] - suits.bit_count()
        self._count(counts, partition, constraint=lacking, busy=(suits & ~view[partition]).bit_count())

    def on_inconsistency(self, message: Inconsistency, source: Address, now: Time) -> None:
        """Tell what was refused, then learn and try again."""
        self._tell_refused(message, source, lambda bit: bit.bit_length() - 1)
        super().on_inconsistency(message, source, now)


class ExplainingVectorMaster(Explaining, VectorGlobalMaster):
    """Explains placements of amounts; its units are machines."""

    NEWS: ClassVar[tuple[type, ...]] = (StateUpdate, Ended, Refusal)

    def _view(self) -> list[Any]:
        return [index.copy() for index in self._index]

    def _use(self, view: list[Any], partition: int, place: int, task: Task) -> int:
        index: CapacityIndex = view[partition]
        index.put(place, index.free[place] - self._packing[task.request])
        return place

    def _pass(self, counts: Passed, task: Task, view: Sequence[Any], partition: int) -> None:
        need, suits = self._ladders[task.request], self._layout.matches[partition][task.constraints]
        large = self._vectors.whole_index[partition].fitting(need, suits).bit_count()
        roomy = view[partition].fitting(need, suits).bit_count()
        fitting = suits.bit_count()
        lacking = self._layout.size[partition] - fitting
        self._count(counts, partition, constraint=lacking, resource=fitting - large, busy=large - roomy)

    def on_refusal(self, message: Refusal, source: Address, now: Time) -> None:
        """Tell what was refused, then learn and try again."""
        self._tell_refused(message, source, int)
        super().on_refusal(message, source, now)

    receives = VectorGlobalMaster.receives


class ExplainingFairMaster(ExplainingVectorMaster, FairGlobalMaster):
    """Explains preemptions, too: the GM of the user that loses tells of them."""

    NEWS = (StateUpdate, Ended, Refusal, Denied, Ousted, Yield)

    def _preempt(self, task: Task, loser: int, victims: Sequence[TaskId]) -> None:
        """Tell where the task is to run; what was passed over was told when it began to wait."""
        super()._preempt(task, loser, victims)
        _, partition, position = self._placed[task.id]
        self._tell(task, "placed", (), partition, position)

    def on_ousted(self, message: Ousted, source: Address, now: Time) -> None:
        """Tell whose share it was for, then take the task back."""
        if message.task in self._placed and self._attempt_of(message.task) == message.attempt:
            task, partition, position = self._placed[message.task]
            share = (Rejected(self._scope(partition), Reason.SHARE, 1),)
            self._tell(task, "preempted", share, partition, position)
        super().on_ousted(message, source, now)

    receives = FairGlobalMaster.receives
