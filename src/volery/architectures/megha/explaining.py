"""A Global Master that says of every task what it decided and why; its decisions are those of one that is silent.

What is passed over is counted on the view that each task met: the tasks of a batch are told one by one, in the order in
which they were matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.messages import Inconsistency, Notice, Update
from volery.core.events import Event
from volery.core.model import Address, Task, Time
from volery.core.why import Chosen, Decision, Reason, Rejected, Scope


class ExplainingMaster(GlobalMaster):
    """Reports a `Decision` per task that it places, cannot place, or is refused; arguments as for `GlobalMaster`."""

    __slots__ = ("_heard_at", "_matching", "_now")

    def start(self, now: Time) -> None:
        """Open the ledger of jobs; the view is that of an empty cluster, which is true now."""
        super().start(now)
        self._now = now
        self._heard_at = dict.fromkeys(self._lms, now)
        self._matching = False

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Keep the time, and when each Local Master was last heard of."""
        self._now = now
        if isinstance(event, Update | Notice | Inconsistency):
            self._heard_at[source] = now
        super().handle(event, source, now)

    def _place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request, then tell what each task met."""
        chosen = list(tasks)
        view, start = list(self._free), self._next
        self._matching = True
        unplaced = super()._place(chosen)
        self._matching = False
        waiting = {task.id for task in unplaced}
        for task in chosen:
            order = self._orders[start]
            if task.id in waiting:
                fits = self._satisfiable(task.constraints)
                self._tell(task, "queued" if fits else "unsatisfiable", self._passed(task, view, order))
                continue
            _, partition, bit = self._placed[task.id]
            passed = self._passed(task, view, order[: order.index(partition)])
            self._tell(task, "placed", passed, partition, bit)
            view[partition] ^= bit
            start = self._after[partition]
        return unplaced

    def _request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Ask the Local Master; a task that waited for these units has passed over nothing."""
        super()._request(partition, tasks, places)
        if not self._matching:
            for task, position in zip(tasks, places, strict=True):
                self._tell(task, "placed", (), partition, self._layout.bits[position])

    def on_inconsistency(self, message: Inconsistency, source: Address, now: Time) -> None:
        """Tell what was refused, then learn and try again."""
        if message.update.number > self._heard[source]:
            for number in message.tasks:
                if number in self._placed:
                    task, partition, bit = self._placed[number]
                    refused = (Rejected(self._scope(partition), Reason.INCONSISTENCY, 1),)
                    self._tell(task, "refused", refused, partition, bit)
        super().on_inconsistency(message, source, now)

    def _passed(self, task: Task, view: Sequence[int], partitions: Iterable[int]) -> tuple[Rejected, ...]:
        """The units of these partitions by why the task does not run there."""
        counts: dict[tuple[Scope, Reason], int] = {}
        for partition in partitions:
            scope, suits = self._scope(partition), self._layout.matches[partition][task.constraints]
            lacking, busy = self._layout.size[partition] - suits.bit_count(), (suits & ~view[partition]).bit_count()
            for reason, count in ((Reason.CONSTRAINT, lacking), (Reason.BUSY, busy)):
                if count:
                    counts[scope, reason] = counts.get((scope, reason), 0) + count
        return tuple([Rejected(*key, count) for key, count in counts.items()])

    def _scope(self, partition: int) -> Scope:
        return "external" if self._outside[partition] else "internal"

    def _tell(
        self, task: Task, chosen: Chosen, rejected: tuple[Rejected, ...], partition: int = -1, bit: int = 0
    ) -> None:
        if partition < 0:
            asked, machine, age_us = "", -1, self._now - min(self._heard_at.values())
        else:
            asked = self._lms[self._layout.lm_of[partition]]
            machine = self._layout.machines[partition][bit.bit_length() - 1]
            age_us = self._now - self._heard_at[asked]
        self._port.observe(Decision(task.id, task.job, chosen, partition, machine, asked, age_us, rejected))
