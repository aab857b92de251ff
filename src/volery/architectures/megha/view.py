"""View of a Global Master on the whole cluster: free slots as bits, or free amounts of machines.

The view is eventually consistent: what the Global Master places it takes off at once, and updates of Local Masters
correct it. It places tasks, keeps where they were placed, and gives queued tasks what has become free.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import StateUpdate, TasksEnded, place_of
from volery.architectures.megha.partitions import Layout, SearchOrder
from volery.core.events import Counted, Fact
from volery.core.model import Amounts, Task, TaskId
from volery.policies.match import bytes_vector, positions
from volery.policies.queues import ConstraintQueue
from volery.roles.recovery.leases import RunningAttempt
from volery.roles.submission import JobLedger

if TYPE_CHECKING:
    from volery.architectures.megha.priorities import PriorityQueue

Place = tuple[Task, int, int]
"""A placed task, its partition and its position there."""
Freed = list[tuple[int, int]]
"""Partitions, each with the vector of the units that have more free now."""
Wanted = tuple[int, int, tuple[Task, ...], tuple[int, ...]]
"""Number, partition, tasks and positions of a request."""
Reasons = tuple[int, int, int, int]
"""Units that lack a constraint, are too small, are taken, and are taken where others have first call."""


class TaskQueue(Protocol):
    """Queue of the tasks that wait, as the Global Master uses it; the view knows which task fits where."""

    @property
    def length(self) -> int: ...

    def push(self, task: Task) -> None:
        """Add a task at the tail."""

    def push_front(self, task: Task) -> None:
        """Add a task at the head."""

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out; the others keep their places."""


class ViewHost(Protocol):
    """A Global Master as its view calls it."""

    @property
    def jobs(self) -> JobLedger: ...

    def request_all(self, batches: Mapping[int, tuple[list[Task], list[int]]]) -> None:
        """Ask the Local Masters for units of these partitions."""

    def request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Ask a Local Master for units of a partition."""

    def observe(self, fact: Fact) -> None:
        """Report a fact to the driver."""


class ClusterView(Protocol):
    """The state of all clusters as one Global Master knows it.

    Attributes:
        search: the order of partitions.
        next: the internal partition that the next task starts from.
        placed: tasks that were requested and have not ended.
        queue: tasks that wait.
    """

    search: SearchOrder
    next: int
    placed: dict[TaskId, Place]

    @property
    def queue(self) -> TaskQueue: ...

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks; return those that fit nowhere in the view."""

    def take(self, task: Task, partition: int, position: int) -> Task:
        """Take a unit for a task, which is placed there; return the task with the devices that it takes."""

    def satisfiable(self, task: Task) -> bool:
        """Find out whether some unit, when free, could run the task."""

    def room(self, partition: int, constraints: int, request: Amounts) -> int:
        """Units of a partition that have room for such a task."""

    def requested(self, lm: int, request: Wanted) -> None:
        """Count a request that is about to be sent."""

    def end(self, message: TasksEnded, lm: int) -> None:
        """Give what ended tasks took to the queue, and count their jobs down."""

    def offer(self, partition: int, places: Iterable[int]) -> None:
        """Give units of a partition, as far as they are free in the view, to the first queued tasks that fit."""

    def learn(self, update: StateUpdate, lm: int) -> Freed:
        """Adopt a new update of a Local Master."""

    def count_refused(self, lm: int, count: int) -> None:
        """Report that placements were invalid."""

    def take_back(self, task: TaskId) -> Task:
        """Return a placed task as it was submitted: it has to be placed again."""

    # Where components may crash.

    def start_epoch(self, lm: int) -> None:
        """Forget what was requested of the leader of before."""

    def follow(self, task: Task, active: RunningAttempt) -> None:
        """Keep a task as placed where this attempt runs."""

    def give_back(self, active: RunningAttempt) -> None:
        """Give what an ended attempt had to the queue."""

    def free_by_machine(self) -> dict[int, int] | None:
        """Count free slots by machine; None: the view holds amounts."""

    # For decisions.

    def copies(self) -> list[Any]:
        """Copies of the free units, per partition."""

    def take_off(self, copies: list[Any], task: Task) -> None:
        """Take what a task has been given off the copies."""

    def reasons(self, copy: Any, task: Task, partition: int, called: int) -> Reasons:
        """Count the units of a partition by the reason for which a task does not run there."""

    def check(self) -> None:
        """Raise AssertionError where something free in the view fits a queued task."""

    def check_rest(self) -> None:
        """Raise AssertionError where something is taken in the view."""


class SlotView:
    """View of slots: a bit vector of the free ones per partition.

    Args:
        host: The Global Master.
        search: Order in which partitions are searched.
        queue: Queue of the tasks that wait; None: first come first served.
    """

    def __init__(
        self,
        host: ViewHost,
        layout: Layout,
        search: SearchOrder,
        config: MeghaConfig,
        stream: Random,
        queue: ConstraintQueue | PriorityQueue | None = None,
    ) -> None:
        self._host = host
        self.search = search
        self.next = search.first
        self.placed: dict[TaskId, Place] = {}
        self.queue = ConstraintQueue() if queue is None else queue
        self._layout = layout
        self._orders = search.orders
        self._by_fewest = config.match != "random"
        self._stream = stream
        self._free = [layout.whole(partition) for partition in range(len(layout.size))]
        self._members: list[dict[int, array[int]]] = [
            {} if self._by_fewest else matches.members for matches in layout.matches
        ]

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks; return those that fit nowhere in the view.

        One loop without calls per task where a frequent constraint set meets a free slot at the first draw: this is
        the hottest code of the design.
        """
        free, layout, partition, placed = self._free, self._layout, self.next, self.placed
        bits, random, next_partition, members_of = layout.bits, self._stream.random, self.search.after, self._members
        matches, by_fewest = layout.matches, self._by_fewest
        batches: dict[int, tuple[list[Task], list[int]]] = {}
        unplaced: list[Task] = []
        nowhere: set[int] = set()  # constraint sets that fit nothing: slots only become fewer here
        for task in tasks:
            members = members_of[partition].get(task.constraints)
            if members and free[partition] & (bit := bits[position := members[int(random() * len(members))]]):
                target = partition
            elif task.constraints in nowhere:
                unplaced.append(task)
                continue
            elif free[partition] and (candidates := free[partition] & matches[partition][task.constraints]):
                target = partition
                if by_fewest:
                    position = (candidates & -candidates).bit_length() - 1
                else:
                    position = matches[partition].pick(task.constraints, candidates, random)
                bit = bits[position]
            else:
                target, position = self._find(partition, task.constraints)
                if target < 0:
                    nowhere.add(task.constraints)
                    unplaced.append(task)
                    continue
                bit = bits[position]
            # Taken in the view at once: the next task must not be matched to it.
            free[target] ^= bit
            placed[task.id] = (task, target, position)
            partition = next_partition[target]
            batch = batches.get(target)
            if batch is None:
                batch = batches[target] = ([], [])
            batch[0].append(task)
            batch[1].append(position)
        self.next = partition
        self._host.request_all(batches)
        return unplaced

    def _find(self, start: int, mask: int) -> tuple[int, int]:
        """A partition and a free suitable position: internal partitions first, round robin over LMs; (-1, -1): none."""
        free, matches = self._free, self._layout.matches
        for partition in self._orders[start]:
            candidates = free[partition]
            if candidates:
                candidates &= matches[partition][mask]
                if candidates:
                    if self._by_fewest:
                        return partition, (candidates & -candidates).bit_length() - 1
                    return partition, matches[partition].pick(mask, candidates, self._stream.random)
        return -1, -1

    def take(self, task: Task, partition: int, position: int) -> Task:
        self._free[partition] &= ~self._layout.bits[position]
        self.placed[task.id] = (task, partition, position)
        return task

    def satisfiable(self, task: Task) -> bool:
        return any(matches[task.constraints] for matches in self._layout.matches)

    def room(self, partition: int, constraints: int, request: Amounts) -> int:
        return self._free[partition] & self._layout.matches[partition][constraints]

    def requested(self, lm: int, request: Wanted) -> None: ...

    def end(self, message: TasksEnded, lm: int) -> None:
        placed, free, queue, bits, jobs = self.placed, self._free, self.queue, self._layout.bits, self._host.jobs
        freed: dict[int, list[int]] = {}
        job, count = -1, 0
        for number in message.tasks:
            place = placed.pop(number, None)
            if place is None:
                continue
            task, partition, position = place
            free[partition] |= bits[position]

            # Only where tasks wait is there somebody to offer the slot to.
            if queue.length:
                freed.setdefault(partition, []).append(position)
            # Tasks of one job end together often: their job is counted down once.
            if task.job != job:
                if count:
                    jobs.finished(job, count)
                job, count = task.job, 0
            count += 1
        for partition, places in freed.items():
            self.offer(partition, places)
        if count:
            jobs.finished(job, count)

    def offer(self, partition: int, places: Iterable[int]) -> None:
        bits, constraints = self._layout.bits, self._layout.constraints[partition]
        tasks, places_taken = [], []
        for position in places:
            bit = bits[position]
            if self._free[partition] & bit:
                task = self.queue.pop_fitting(constraints[position])
                if task is not None:
                    self._free[partition] ^= bit
                    self.placed[task.id] = (task, partition, position)
                    tasks.append(task)
                    places_taken.append(position)
        if tasks:
            self._host.request(partition, tasks, places_taken)

    def learn(self, update: StateUpdate, lm: int) -> Freed:
        freed_units = []
        for change in update.changes:
            freed, partition = bytes_vector(change.freed), change.partition
            # Within an update the last state of a unit wins (the published code: "busy" before "available").
            free_before = self._free[partition]
            still_free = 0 if update.is_snapshot else free_before & ~bytes_vector(change.taken)
            self._free[partition] = still_free | freed
            freed_units.append((partition, freed & ~free_before))
        return freed_units

    def count_refused(self, lm: int, count: int) -> None:
        self._host.observe(Counted("inconsistencies", count))

    def take_back(self, task: TaskId) -> Task:
        return self.placed.pop(task)[0]

    def start_epoch(self, lm: int) -> None: ...

    def follow(self, task: Task, active: RunningAttempt) -> None:
        self.placed[task.id] = (task, *place_of(active.unit))

    def give_back(self, active: RunningAttempt) -> None:
        partition, position = place_of(active.unit)
        self._free[partition] |= self._layout.bits[position]
        if self.queue.length:
            self.offer(partition, [position])

    def free_by_machine(self) -> dict[int, int] | None:
        free_slots: dict[int, int] = {}
        for machines, free in zip(self._layout.machines, self._free, strict=True):
            for position in positions(free):
                free_slots[machines[position]] = free_slots.get(machines[position], 0) + 1
        return free_slots

    def copies(self) -> list[Any]:
        return list(self._free)

    def take_off(self, copies: list[Any], task: Task) -> None:
        _, partition, position = self.placed[task.id]
        copies[partition] ^= self._layout.bits[position]

    def reasons(self, copy: Any, task: Task, partition: int, called: int) -> Reasons:
        suits = self._layout.matches[partition][task.constraints]
        return self._layout.size[partition] - suits.bit_count(), 0, (suits & ~copy).bit_count(), 0

    def check(self) -> None:
        for mask in self.queue.masks():
            for partition, matches in enumerate(self._layout.matches):
                assert not self._free[partition] & matches[mask], f"a free unit of {partition} fits a queued task"

    def check_rest(self) -> None:
        for partition, free in enumerate(self._free):
            assert free == self._layout.whole(partition), f"units of partition {partition} are taken in the view"
