"""Megha's Global Master of amounts where components may crash (arXiv 2103.08413, section IV-D): rebuilt from states."""

from __future__ import annotations

from msgspec.structs import replace

from volery.architectures.megha.messages import Ended, Lost, Refusal, Report, StateUpdate, place_of
from volery.architectures.megha.surviving_gm import Surviving
from volery.architectures.megha.vector_gm import VectorGlobalMaster
from volery.core.events import Cancel, Look, MoreTasks, Moved, Submit
from volery.core.model import Address, Message, Task, Time
from volery.roles.recovery.leases import Active, Inquire


class SurvivingVectorMaster(Surviving, VectorGlobalMaster):
    """Its view is of amounts on machines."""

    def _adopt_report(self, message: Report, source: Address) -> list[tuple[int, int]]:
        assert isinstance(message.update, StateUpdate), "a report of amounts"
        return self._learn_state(message.update, source)

    def _begin_epoch(self, lm: int) -> None:
        """What was under way to the leader of before is void; all that its successor says is news."""
        while self._under_way[lm]:
            self._promise(self._under_way[lm].popleft(), -1)
        for partition in self._layout.partitions_of_lm(lm):
            self._seen.pop(partition, None)

    def _layout_lm(self, source: Address) -> int:
        return self._lm_at[source]

    def _entry_of(self, task: Task, active: Active) -> tuple[Task, int, int]:
        return replace(task, request=active.request), *place_of(active.unit)

    def _offer_unit(self, active: Active) -> None:
        partition, position = place_of(active.unit)
        index = self._index[partition]
        index.put(position, self._packing.settled(index.free[position] + self._packing[active.request]))
        self._dirty[partition] |= 1 << position
        if self._lines.length:
            self._offer(partition, [position])

    def _push_front(self, task: Task) -> None:
        self._lines.push_front(task)

    def _asking(self, number: int, partition: int, tasks: tuple[Task, ...], places: tuple[int, ...]) -> Message:
        return self._placement(number, partition, tasks, places)

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Tasks have ended; what the leader of before says, its successor repeats."""
        jobs = self._keep_results(message.tasks, self._lm_at[source])
        super().on_ended(message, source, now)
        for job in jobs:
            self._maybe_forget(job)

    def check_rest(self) -> None:
        """No task is left, and everything is free in the view."""
        super().check_rest()
        assert not any(self._under_way), "requests are under way"
        for partition, (index, whole) in enumerate(zip(self._index, self._vectors.whole_index, strict=True)):
            assert index.free == whole.free, f"machines of partition {partition} are taken in the view"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: Surviving.on_submit,
        MoreTasks: Surviving.on_more_tasks,
        Cancel: Surviving.on_cancel,
        Look: Surviving.on_look,
        Ended: on_ended,
        StateUpdate: VectorGlobalMaster.on_state_update,
        Refusal: VectorGlobalMaster.on_refusal,
        Report: Surviving.on_report,
        Lost: Surviving.on_lost,
        Moved: Surviving.on_moved,
        Inquire: Surviving.on_inquire,
    }
