"""View of a Global Master on amounts that machines have free; see `ClusterView`."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from random import Random
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace

from volery.architectures.megha.config import MeghaConfig, MeghaMatch
from volery.architectures.megha.messages import PartitionState, StateUpdate, TasksEnded, place_of
from volery.architectures.megha.partitions import Layout, SearchOrder
from volery.architectures.megha.view import Freed, Place, Reasons, TaskQueue, ViewHost, Wanted
from volery.core.events import Counted
from volery.core.model import Amounts, Cluster, JobId, Task, TaskId
from volery.core.resources import packing_of
from volery.policies.capacity import CapacityIndex, Choice, Ladders
from volery.policies.match import bytes_vector, positions
from volery.policies.queues import Kind, VectorQueue
from volery.roles.recovery.leases import RunningAttempt

CHOICES: dict[MeghaMatch, Choice] = {
    "random": "random", "min-constraints": "first", "best-fit": "best-fit", "first": "first"
}  # fmt: skip
"""Machines of a partition stand in the order of their constraints, the fewest first; for `first` in their own order."""


class Capacities:
    """Amounts that the machines of a layout offer; slots are one resource of them.

    Attributes:
        layout: Layout of the cluster, by machine.
        ladders: requests as the indices look for them.
        whole: per partition, everything free; to be copied.
        state_bytes: Number of bytes of one machine in a message.
    """

    def __init__(self, cluster: Cluster, layout: Layout) -> None:
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self.ladders = Ladders(capacities, packing_of(cluster))
        self.whole = [
            CapacityIndex([capacities[machine] for machine in machines], self.ladders) for machines in layout.machines
        ]
        self.state_bytes = (self.ladders.packing.guards.bit_length() + 7) // 8
        self.layout = layout
        self._possible: dict[tuple[int, Amounts], bool] = {}

    def fits_somewhere(self, task: Task) -> bool:
        """Find out whether some machine, empty, could run the task."""
        kind = (task.constraints, task.request)
        if kind not in self._possible:
            need = self.ladders[task.request]
            self._possible[kind] = any(
                index.fitting(need, matches[task.constraints])
                for index, matches in zip(self.whole, self.layout.matches, strict=True)
            )
        return self._possible[kind]


class FittingQueue(TaskQueue, Protocol):
    """Queue of tasks that ask for amounts."""

    def pop_fitting(self, offered: int, free: int) -> Task | None:
        """Take the first task that a machine with these constraints and this much free can take."""

    def kinds(self) -> list[Kind]:
        """Return the distinct constraint sets and requests that wait."""

    def __contains__(self, kind: object) -> bool:
        """Find out whether a task of this kind waits."""


class CapacityHost(ViewHost, Protocol):
    """A Global Master as its view on amounts calls it."""

    def dequeued(self, task: Task, partition: int, offered: int, free: int) -> None:
        """Report tasks that had to let this one go first."""


class UseAccount(Protocol):
    """Account of what tasks of users have in the view."""

    def took(self, task: Task, partition: int, position: int) -> None:
        """Count what a task was given in the view."""

    def promised(self, tasks: Sequence[Task], sign: int) -> None:
        """Count what was asked for and may be refused; a sign of -1: no longer."""


class RoomKeeper(Protocol):
    """Keeper of room for which no request may be sent yet."""

    def note_room(self, partition: int, places: Iterable[int]) -> None:
        """Note machines of a partition that may have room for waiting tasks."""


class CapacityView:
    """View of amounts on machines, of which external ones lend logical nodes.

    A state that a Local Master sends is of the moment of sending. What this GM has requested since is under way, and is
    taken off again.

    Args:
        host: The Global Master.
        search: Order in which partitions are searched.
        queue, account: Queues and account of users; None: they have no shares.
        keeper: Keeper of room; None: a request is sent as soon as there is room.

    Attributes:
        index: Free amounts of the machines of each partition.
        packing: Packing of amounts into one number.
    """

    def __init__(
        self,
        host: CapacityHost,
        capacities: Capacities,
        search: SearchOrder,
        config: MeghaConfig,
        stream: Random,
        queue: FittingQueue | None = None,
        account: UseAccount | None = None,
        keeper: RoomKeeper | None = None,
    ) -> None:
        self._host = host
        self._config = config
        self._account = account
        self._keeper = keeper
        self.search = search
        self.next = search.first
        self.placed: dict[TaskId, Place] = {}
        self.packing = capacities.ladders.packing
        self.queue: FittingQueue = VectorQueue(self.packing) if queue is None else queue
        self.index = [index.copy() for index in capacities.whole]
        self.capacities = capacities
        self._layout = capacities.layout
        self._ladders = capacities.ladders
        self._guards = self.packing.guards
        self._choice: Choice = CHOICES[config.match]
        self._stream = stream
        self._under_way: list[deque[Wanted]] = [deque() for _ in range(self._layout.lm_count)]
        self._promised: list[dict[int, int]] = [{} for _ in self._layout.size]
        self._seen: dict[int, bytes] = {}
        self._dirty = [0] * len(self._layout.size)

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        partition, next_partition = self.next, self.search.after
        batches: dict[int, tuple[list[Task], list[int]]] = {}
        unplaced: list[Task] = []
        nowhere: set[tuple[int, Amounts]] = set()  # kinds that fit nothing: machines only become fuller here
        waiting: Container[tuple[int, Amounts]] = self.queue if self._config.eager_retry else ()  # see `check`
        for task in tasks:
            kind = (task.constraints, task.request)
            if kind in nowhere or kind in waiting:
                unplaced.append(task)
                continue
            target, position = self._find(partition, task)
            if target < 0 or not self.satisfiable(task):  # a view may hold more than the machine has
                nowhere.add(kind)
                unplaced.append(task)
                continue
            placed_task = self.take(task, target, position)
            partition = next_partition[target]
            batch = batches.get(target)
            if batch is None:
                batch = batches[target] = ([], [])
            batch[0].append(placed_task)
            batch[1].append(position)
        self.next = partition
        self._host.request_all(batches)
        return unplaced

    def _find(self, start: int, task: Task) -> tuple[int, int]:
        """A partition and a machine of it that fits in the view: internal partitions first, round robin; (-1, -1)."""
        need, mask, choice, index = self._ladders[task.request], task.constraints, self._choice, self.index
        matches, size, random = self._layout.matches, self._layout.size, self._stream.random
        for partition in self.search.orders[start]:
            candidates = index[partition].near(need, matches[partition].every)  # cheaper than a new constraint set
            if candidates:
                candidates &= matches[partition][mask]
            if candidates:
                at = int(random() * size[partition]) if choice == "random" else 0
                position = index[partition].pick(need, candidates, choice, at)
                if position >= 0:
                    return partition, position
        return -1, -1

    def take(self, task: Task, partition: int, position: int) -> Task:
        """Take what a task asks for; returns the task with the devices that it takes."""
        index, packing = self.index[partition], self.packing
        free = index.free[position]
        took = packing.named(free, packing[task.request])
        index.put(position, packing.settled(free - took))
        self._dirty[partition] |= 1 << position
        placed_task = packing.naming(task, took)
        self.placed[task.id] = (placed_task, partition, position)
        if self._account is not None:
            self._account.took(placed_task, partition, position)
        return placed_task

    def take_over(self, task: Task, partition: int, position: int, had: int) -> Task:
        """Take what a task asks for from a machine and from tasks there that have so much, packed."""
        index, packing = self.index[partition], self.packing
        free = index.free[position]
        took = packing.named(packing.settled(free + had), packing[task.request])
        index.put(position, packing.settled(free - packing.beyond(took, had)))
        placed_task = packing.naming(task, took)
        self._dirty[partition] |= 1 << position
        self.placed[task.id] = (placed_task, partition, position)
        return placed_task

    def satisfiable(self, task: Task) -> bool:
        return self.capacities.fits_somewhere(task)

    def room(self, partition: int, constraints: int, request: Amounts) -> int:
        return self.index[partition].fitting(self._ladders[request], self._layout.matches[partition][constraints])

    def requested(self, lm: int, request: Wanted) -> None:
        self._under_way[lm].append(request)
        self._promise(request, 1)

    def arrived(self, lm: int, last_request: int) -> None:
        """A Local Master has received the requests up to this one."""
        under_way = self._under_way[lm]

        # Requests of one link arrive in order, so the state contains all up to this one.
        while under_way and under_way[0][0] <= last_request:
            self._promise(under_way.popleft(), -1)

    def _promise(self, request: Wanted, sign: int) -> None:
        """Count what is under way to machines."""
        _, partition, tasks, places = request
        promised, packing = self._promised[partition], self.packing
        for task, position in zip(tasks, places, strict=True):
            amount = promised.get(position, 0) + sign * packing[task.request]
            if amount:
                promised[position] = amount
            else:
                promised.pop(position, None)
        if self._account is not None:
            self._account.promised(tasks, sign)

    def end(self, message: TasksEnded, lm: int) -> None:
        self.arrived(lm, message.last_request)
        freed: dict[int, int] = {}
        ended: dict[JobId, int] = {}
        for number in message.tasks:
            place = self.placed.pop(number, None)
            if place is None:
                continue
            task, partition, position = place
            index = self.index[partition]

            # The owner counts an end itself: no update mentions it.
            index.put(position, self.packing.settled(index.free[position] + self.packing[task.request]))
            freed[partition] = freed.get(partition, 0) | 1 << position
            ended[task.job] = ended.get(task.job, 0) + 1
        for partition, machines in freed.items():
            self._dirty[partition] |= machines
            if self.queue.length:
                self.offer(partition, positions(machines))
        for job, count in ended.items():
            self._host.jobs.finished(job, count)

    def has_requests_under_way(self) -> bool:
        """Find out whether the outcome of a request has still to come."""
        return any(self._under_way)

    def offer(self, partition: int, places: Iterable[int]) -> None:
        if self._keeper is not None:
            self._keeper.note_room(partition, places)
            return
        constraints, index = self._layout.constraints[partition], self.index[partition]
        tasks, places_taken = [], []
        for position in places:
            while self.queue.length:
                offered, free = constraints[position], index.free[position]
                task = self.queue.pop_fitting(offered, free)
                if task is None:
                    break
                self._host.dequeued(task, partition, offered, free)
                tasks.append(self.take(task, partition, position))
                places_taken.append(position)
        if tasks:
            self._host.request(partition, tasks, places_taken)

    def offer_one(self, partition: int, position: int) -> bool:
        """Give a machine to the first queued task that fits, and to no other; find out whether one did."""
        offered, free = self._layout.constraints[partition][position], self.index[partition].free[position]
        task = self.queue.pop_fitting(offered, free)
        if task is None:
            return False
        self._host.dequeued(task, partition, offered, free)
        self._host.request(partition, [self.take(task, partition, position)], [position])
        return True

    def learn(self, update: StateUpdate, lm: int) -> Freed:
        self.arrived(lm, update.last_request)
        return [(state.partition, freed) for state in update.states if (freed := self._adopt(state))]

    def _adopt(self, state: PartitionState) -> int:
        partition, packed_state, width = state.partition, state.free, self.capacities.state_bytes
        promised = self._promised[partition]
        index, freed_machines, guards = self.index[partition], 0, self._guards
        if state.positions:
            listed = positions(bytes_vector(state.positions))
            places: Iterable[int] = range(len(listed))
        else:
            places = listed = self._news(partition, packed_state)
        for place, position in zip(places, listed, strict=True):
            free = int.from_bytes(packed_state[place * width : place * width + width], "little")

            # The state is older than what this GM has requested since: that is under way, and is taken off again.
            if position in promised:
                self._dirty[partition] |= 1 << position
                remainder = self.packing.settled(free - promised[position])

                # Less than nothing: something will be refused, and the state comes with the refusal.
                free = remainder if remainder & guards == guards else guards
            free_before = index.free[position]
            if free != free_before:
                index.put(position, free)
                if (free_before - (free ^ guards)) & guards != guards:
                    freed_machines |= 1 << position
        return freed_machines

    def _news(self, partition: int, packed_state: bytes) -> list[int]:
        """Machines of which a whole state may be news: since the last one it or this GM has changed them."""
        dirty, last_state = self._dirty[partition], self._seen.get(partition)
        self._dirty[partition], self._seen[partition] = 0, packed_state
        if last_state is None:
            return list(range(self._layout.size[partition]))
        if last_state == packed_state:
            return positions(dirty)
        last_bytes, new_bytes = (np.frombuffer(state, np.uint8) for state in (last_state, packed_state))
        differs = (last_bytes != new_bytes).reshape(-1, self.capacities.state_bytes).any(axis=1)
        return positions(dirty | bytes_vector(np.packbits(differs, bitorder="little").tobytes()))

    def count_refused(self, lm: int, count: int) -> None:
        self._host.observe(Counted("inconsistencies", count))
        self._host.observe(Counted(f"inconsistencies_gm{self.search.gm}_lm{lm}", count))

    def take_back(self, task: TaskId) -> Task:
        return self.packing.anywhere(self.placed.pop(task)[0])

    def oust(self, task: TaskId) -> Task:
        """Take back a task whose place another has got."""
        _, partition, position = self.placed[task]
        self._dirty[partition] |= 1 << position
        return self.take_back(task)

    def start_epoch(self, lm: int) -> None:
        """Forget what was under way to the leader of before; all that its successor sends is news."""
        while self._under_way[lm]:
            self._promise(self._under_way[lm].popleft(), -1)
        for partition in self._layout.partitions_of_lm(lm):
            self._seen.pop(partition, None)

    def follow(self, task: Task, active: RunningAttempt) -> None:
        self.placed[task.id] = (replace(task, request=active.request), *place_of(active.unit))

    def give_back(self, active: RunningAttempt) -> None:
        partition, position = place_of(active.unit)
        index = self.index[partition]
        index.put(position, self.packing.settled(index.free[position] + self.packing[active.request]))
        self._dirty[partition] |= 1 << position
        if self.queue.length:
            self.offer(partition, [position])

    def free_by_machine(self) -> dict[int, int] | None:
        return None

    def copies(self) -> list[Any]:
        return [index.copy() for index in self.index]

    def take_off(self, copies: list[Any], task: Task) -> None:
        placed_task, partition, position = self.placed[task.id]
        index: CapacityIndex = copies[partition]
        index.put(position, self.packing.settled(index.free[position] - self.packing[placed_task.request]))

    def reasons(self, copy: Any, task: Task, partition: int, called: int) -> Reasons:
        need, suits = self._ladders[task.request], self._layout.matches[partition][task.constraints]
        large = self.capacities.whole[partition].fitting(need, suits)
        places_taken = large & ~copy.fitting(need, suits)
        share, fitting = (places_taken & called).bit_count(), suits.bit_count()
        lacking, small = self._layout.size[partition] - fitting, fitting - large.bit_count()
        return lacking, small, places_taken.bit_count() - share, share

    def check(self) -> None:
        for mask, request in self.queue.kinds():
            need = self._ladders[request]
            for partition, matches in enumerate(self._layout.matches):
                fitting = self.index[partition].fitting(need, matches[mask])
                assert not fitting, f"machines {fitting:#x} of {partition} could run what waits: {mask:#x}, {request}"

    def check_rest(self) -> None:
        """Check the view where Local Masters report it; elsewhere it may be out of date until it is asked for."""
        if not self._config.reliable:
            return
        assert not any(self._under_way), "requests are under way"
        for partition, (index, whole) in enumerate(zip(self.index, self.capacities.whole, strict=True)):
            assert index.free == whole.free, f"machines of partition {partition} are taken in the view"
