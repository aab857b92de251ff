"""Megha's Global Master where tasks ask for several resources: amounts in the view, repartition, rescheduling."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from random import Random
from typing import Literal, Protocol

import numpy as np

from volery.architectures.megha.global_master import GlobalMaster, MeghaMatch
from volery.architectures.megha.messages import Ended, Refusal, Request, State, StateUpdate
from volery.architectures.megha.vector_layout import VectorLayout
from volery.core.events import Cancel, Counted, Look, MoreTasks, Submit
from volery.core.model import Address, Amounts, JobId, Message, Task, TaskId, Time
from volery.policies.capacity import Choice
from volery.policies.match import bytes_vector, positions
from volery.policies.queues import Kind, VectorQueue

Rescheduling = Literal["head", "tail"]

CHOICES: dict[MeghaMatch, Choice] = {"random": "random", "min-constraints": "first", "best-fit": "best-fit"}
"""Machines of a partition stand in the order of their constraints, the fewest first."""

Wanted = tuple[int, int, tuple[Task, ...], tuple[int, ...]]
"""Number, partition, tasks and positions of a request."""


class TaskLines(Protocol):
    """Tasks that wait; see `VectorQueue`."""

    length: int

    def __contains__(self, kind: object) -> bool:
        """Whether a task of this kind waits."""

    def kinds(self) -> list[Kind]:
        """The distinct constraint sets and requests that wait."""

    def push(self, task: Task) -> None:
        """Join at the tail."""

    def push_front(self, task: Task) -> None:
        """Join at the head."""

    def pop_fitting(self, offered: int, free: int) -> Task | None:
        """Take the task that is next among those that a machine can take."""

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out."""


class VectorGlobalMaster(GlobalMaster):
    """Searches internal partitions before external ones, from which it asks for logical nodes.

    A state that a Local Master tells is of the moment of sending. What this GM has requested since is under way, and is
    taken off again.

    Args:
        gm, layout, match, batch_max, eager_retry, queue_max, stream, ask: see `GlobalMaster`.
        rescheduling: where a refused task goes that fits nowhere in the view: before all others, as in the published
            code of 2023, or to the tail (arXiv 2103.08413, section IV-B5).
    """

    __slots__ = (
        "_choice", "_dirty", "_guards", "_index", "_ladders", "_lines", "_packing", "_promised", "_refused_at",
        "_seen", "_tail", "_under_way", "_vectors",
    )  # fmt: skip

    def __init__(
        self,
        gm: int,
        layout: VectorLayout,
        *,
        match: MeghaMatch,
        batch_max: int,
        eager_retry: bool,
        queue_max: int,
        stream: Random,
        rescheduling: Rescheduling,
        ask: bool = False,
    ) -> None:
        super().__init__(
            gm,
            layout,
            match=match,
            batch_max=batch_max,
            eager_retry=eager_retry,
            queue_max=queue_max,
            stream=stream,
            ask=ask,
        )
        self._vectors = layout
        self._ladders = layout.ladders
        self._packing = layout.ladders.packing
        self._guards = self._packing.guards
        self._choice: Choice = CHOICES[match]
        self._index = [index.copy() for index in layout.whole_index]
        self._lines: TaskLines = VectorQueue(self._packing)
        self._tail = rescheduling == "tail"
        self._under_way: list[deque[Wanted]] = [deque() for _ in self._lms]
        self._promised: list[dict[int, int]] = [{} for _ in layout.size]
        self._seen: dict[int, bytes] = {}
        self._dirty = [0] * len(layout.size)
        self._refused_at = [f"inconsistencies_gm{gm}_lm{lm}" for lm in range(layout.lm_count)]

    def _queued(self) -> int:
        return self._lines.length

    def _enqueue(self, task: Task) -> None:
        self._lines.push(task)

    def _drop(self, job: JobId) -> list[Task]:
        return self._lines.remove(lambda task: task.job == job)

    def _satisfiable(self, task: Task) -> bool:
        return self._vectors.fits_somewhere(task)

    def _place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request; return what fits nowhere in the view."""
        partition, after = self._next, self._after
        batches: dict[int, tuple[list[Task], list[int]]] = {}
        unplaced: list[Task] = []
        nowhere: set[tuple[int, Amounts]] = set()  # kinds that fit nothing: machines only become fuller here
        waiting: Container[tuple[int, Amounts]] = self._lines if self._eager_retry else ()  # see `check`
        for task in tasks:
            kind = (task.constraints, task.request)
            if kind in nowhere or kind in waiting:
                unplaced.append(task)
                continue
            chosen, position = self._find(partition, task)
            if chosen < 0 or not self._satisfiable(task):  # a view may hold more than the machine has
                nowhere.add(kind)
                unplaced.append(task)
                continue
            claim = self._take(task, chosen, position)
            partition = after[chosen]
            batch = batches.get(chosen)
            if batch is None:
                batch = batches[chosen] = ([], [])
            batch[0].append(claim)
            batch[1].append(position)
        self._next = partition
        for chosen, (batch_tasks, places) in batches.items():
            self._request(chosen, batch_tasks, places)
        external = sum(len(batch[0]) for chosen, batch in batches.items() if self._outside[chosen])
        if external:
            self._port.observe(Counted("external_placements", external))
        return unplaced

    def _room(self, partition: int, constraints: int, request: Amounts) -> int:
        return self._index[partition].fitting(self._ladders[request], self._layout.matches[partition][constraints])

    def _find(self, start: int, task: Task) -> tuple[int, int]:
        """A partition and a machine of it that fits in the view: internal partitions first, round robin; (-1, -1)."""
        need, mask, choice, index = self._ladders[task.request], task.constraints, self._choice, self._index
        matches, size, random = self._layout.matches, self._layout.size, self._stream.random
        for partition in self._orders[start]:
            candidates = index[partition].near(need, matches[partition].every)  # cheaper than a new constraint set
            if candidates:
                candidates &= matches[partition][mask]
            if candidates:
                at = int(random() * size[partition]) if choice == "random" else 0
                position = index[partition].pick(need, candidates, choice, at)
                if position >= 0:
                    return partition, position
        return -1, -1

    def _take(self, task: Task, partition: int, position: int) -> Task:
        """Take what a task asks for; returns the task with the devices that it takes."""
        index, packing = self._index[partition], self._packing
        free = index.free[position]
        took = packing.named(free, packing[task.request])
        index.put(position, packing.settled(free - took))
        self._dirty[partition] |= 1 << position
        claim = packing.naming(task, took)
        self._placed[task.id] = (claim, partition, position)
        return claim

    def _taken_back(self, task: TaskId) -> Task:
        """A task that was placed and has to be placed again, as it was submitted."""
        return self._packing.anywhere(super()._taken_back(task))

    def _request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        lm = self._layout.lm_of[partition]
        for at in range(0, len(tasks), self._batch_max):
            number = self._requests[lm] = self._requests[lm] + 1
            chunk = slice(at, at + self._batch_max)
            wanted = (number, partition, tuple(tasks[chunk]), tuple(places[chunk]))
            self._under_way[lm].append(wanted)
            self._promise(wanted, 1)
            self._port.send(self._lms[lm], self._asking(*wanted))

    def _asking(self, number: int, partition: int, tasks: tuple[Task, ...], places: tuple[int, ...]) -> Message:
        return Request(number, partition, tasks, places)

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Tasks of ours have ended: offer what they took to the queue, and count their jobs down."""
        self._arrived(self._layout_lm(source), message.heard)
        freed: dict[int, int] = {}
        ended: dict[JobId, int] = {}
        for number in message.tasks:
            place = self._placed.pop(number, None)
            if place is None:
                continue
            task, partition, position = place
            index = self._index[partition]
            index.put(position, self._packing.settled(index.free[position] + self._packing[task.request]))
            freed[partition] = freed.get(partition, 0) | 1 << position
            ended[task.job] = ended.get(task.job, 0) + 1
        for partition, machines in freed.items():
            self._dirty[partition] |= machines
            if self._lines.length:
                self._offer(partition, positions(machines))
        for job, count in ended.items():
            self._jobs.finished(job, count)

    def _arrived(self, lm: int, heard: int) -> None:
        under_way = self._under_way[lm]
        while under_way and under_way[0][0] <= heard:
            self._promise(under_way.popleft(), -1)

    def _promise(self, wanted: Wanted, sign: int) -> None:
        """Count what is under way to machines."""
        _, partition, tasks, places = wanted
        promised, packing = self._promised[partition], self._packing
        for task, position in zip(tasks, places, strict=True):
            amount = promised.get(position, 0) + sign * packing[task.request]
            if amount:
                promised[position] = amount
            else:
                promised.pop(position, None)

    def _offer(self, partition: int, places: Iterable[int]) -> None:
        """Give what machines have free in the view to the first queued tasks that fit there."""
        constraints, index = self._layout.constraints[partition], self._index[partition]
        tasks, taken = [], []
        for position in places:
            while self._lines.length:
                task = self._lines.pop_fitting(constraints[position], index.free[position])
                if task is None:
                    break
                tasks.append(self._take(task, partition, position))
                taken.append(position)
        if tasks:
            self._request(partition, tasks, taken)

    def on_state_update(self, message: StateUpdate, source: Address, now: Time) -> None:
        """Take over what a Local Master says about its cluster, and use what has become free."""
        self._offer_all(self._learn_state(message, source))
        self._answered(self._layout_lm(source))

    def _learn_state(self, update: StateUpdate, source: Address) -> list[tuple[int, int]]:
        """Change the view; return per partition the machines that have more free now. An old update is stale."""
        if update.number <= self._heard[source]:
            return []
        self._heard[source] = update.number
        self._port.observe(Counted("updates"))
        lm = self._layout_lm(source)
        self._arrived(lm, update.heard)
        return [(state.partition, freed) for state in update.states if (freed := self._adopt(state))]

    def _adopt(self, state: State) -> int:
        partition, told, width = state.partition, state.free, self._vectors.state_bytes
        promised = self._promised[partition]
        index, more, guards = self._index[partition], 0, self._guards
        if state.positions:
            listed = positions(bytes_vector(state.positions))
            places: Iterable[int] = range(len(listed))
        else:
            places = listed = self._news(partition, told)
        for place, position in zip(places, listed, strict=True):
            free = int.from_bytes(told[place * width : place * width + width], "little")
            if position in promised:
                self._dirty[partition] |= 1 << position
                left = self._packing.settled(free - promised[position])
                free = left if left & guards == guards else guards  # something will be refused, and told of then
            before = index.free[position]
            if free != before:
                index.put(position, free)
                if (before - (free ^ guards)) & guards != guards:
                    more |= 1 << position
        return more

    def _news(self, partition: int, told: bytes) -> list[int]:
        """Machines of which a whole state may say something new: since the last one it or this GM has changed them."""
        dirty, seen = self._dirty[partition], self._seen.get(partition)
        self._dirty[partition], self._seen[partition] = 0, told
        if seen is None:
            return list(range(self._layout.size[partition]))
        if seen == told:
            return positions(dirty)
        rows = (-1, self._vectors.state_bytes)
        differs = (np.frombuffer(seen, np.uint8) != np.frombuffer(told, np.uint8)).reshape(rows).any(axis=1)
        return positions(dirty | bytes_vector(np.packbits(differs, bitorder="little").tobytes()))

    def on_refusal(self, message: Refusal, source: Address, now: Time) -> None:
        """Learn what is true there, then try the refused tasks again; a repeat is stale."""
        if message.update.number <= self._heard[source]:
            return
        refused = [self._taken_back(task) for task in message.tasks if task in self._placed]
        self._port.observe(Counted("inconsistencies", len(refused)))
        self._port.observe(Counted(self._refused_at[self._layout_lm(source)], len(refused)))
        freed = self._learn_state(message.update, source)
        if self._jobs.cancelled:
            refused = self._still_wanted(refused)
        if self._tail:
            self._offer_all(freed)
        waiting = self._place(refused) if self._eager_retry else refused
        if self._tail:
            for task in waiting:
                self._lines.push(task)
            if self._ask:
                self._ask_all()
            return
        for task in reversed(waiting):
            self._lines.push_front(task)
        self._offer_all(freed)
        if self._ask:
            self._ask_all()

    def _layout_lm(self, source: Address) -> int:
        return self._vectors.lm_of_address[source]

    def believed_free(self) -> None:
        """Its view holds amounts, not slots."""

    def check(self) -> None:
        """While tasks wait, no machine has what they ask for in the view (unless refused tasks wait by design)."""
        for mask, request in () if not self._eager_retry else self._lines.kinds():
            need = self._ladders[request]
            for partition, matches in enumerate(self._layout.matches):
                fitting = self._index[partition].fitting(need, matches[mask])
                assert not fitting, f"machines {fitting:#x} of {partition} could run what waits: {mask:#x}, {request}"
        assert len(self._jobs) or not (self._placed or self._lines.length), "tasks without an open job"

    def check_rest(self) -> None:
        """No task is left; what is free in the view may be out of date, until it is asked for and refused."""
        left = len(self._placed) + self._lines.length + len(self._jobs)
        assert not left, "tasks are left"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: GlobalMaster.on_submit,
        MoreTasks: GlobalMaster.on_more_tasks,
        Cancel: GlobalMaster.on_cancel,
        Look: GlobalMaster.on_look,
        Ended: on_ended,
        StateUpdate: on_state_update,
        Refusal: on_refusal,
    }
