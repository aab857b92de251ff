"""Tag constraints at a Global Master: an index of the tags in its view, and tasks that wait for them.

The index counts what this GM has placed, from the moment of the placement, and what others have, as Local Masters send
it. So it is as old as the rest of the view: a Local Master refuses what breaks a constraint, with the truth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, groupby
from typing import TYPE_CHECKING, TypeVar

from volery.architectures.megha.messages import TagNews, place_of
from volery.architectures.megha.partitions import Layout
from volery.core.model import Cluster, TagConstraint, Tags, Task, TaskId
from volery.core.tags import has, node_sets
from volery.policies.match import positions
from volery.policies.tags import TagIndex, concerns
from volery.roles.recovery.leases import Active

if TYPE_CHECKING:
    from volery.architectures.megha.global_master import GlobalMaster
    from volery.architectures.megha.view import Place, SlotView

Kind = tuple[int, Tags | None]
"""Constraint set and tags of tasks that may start at the same slots."""
V = TypeVar("V")


class TagLayout:
    """Slots of all partitions in one row, with their machines and racks; shared by all components of a build.

    Attributes:
        index: of nothing; to be copied.
        begin: per partition, its first slot.
        slot_of: per machine, one of its slots.
        lm_of: per machine, the number of its Local Master.
    """

    def __init__(self, cluster: Cluster, layout: Layout) -> None:
        machines = tuple(chain.from_iterable(layout.machines))
        self.layout = layout
        self.begin = tuple(accumulate(layout.size, initial=0))
        self.slot_of = {machine: slot for slot, machine in enumerate(machines)}
        self.lm_of = {machine: layout.lm_of[at] for at, here in enumerate(layout.machines) for machine in here}
        self._racks = node_sets(cluster)["rack"]
        self.index = TagIndex({"node": machines, "rack": tuple([self._racks[machine] for machine in machines])})

    def slot(self, unit: int) -> int:
        """The slot of a unit's number."""
        partition, position = place_of(unit)
        return self.begin[partition] + position

    def refuses(self, one: TagConstraint, tags: Tags) -> str:
        """Say why no Local Master can judge a constraint: each knows its own cluster alone; "": one can."""
        if self.layout.lm_count == 1:
            return ""
        if one.least and has(tags, one.target):
            return (
                "tasks that gather need the truth about all machines, and each Local Master knows its own cluster; "
                "set lms=1, or take pipeline, omega or monolithic"
            )
        if one.group == "rack":
            first: dict[int, int] = {}
            for machine, lm in self.lm_of.items():
                rack = self._racks[machine]
                if first.setdefault(rack, lm) != lm:
                    return (
                        f"rack {rack} has machines of lm/{first[rack]} and lm/{lm}, and each knows its own cluster "
                        f"alone; set --racks to a multiple of lms={self.layout.lm_count} that divides the machines "
                        "evenly, or lms=1"
                    )
        return ""


class TaggedTasks(dict[TaskId, V]):
    """Tasks by number, of which the tags are counted as long as they are here.

    Args:
        count: counts a value, with its sign.
    """

    def __init__(self, count: Callable[[V, int], None]) -> None:
        super().__init__()
        self._count = count

    def __setitem__(self, task: TaskId, value: V) -> None:
        if task in self:
            self._count(self[task], -1)
        super().__setitem__(task, value)
        self._count(value, 1)

    def __delitem__(self, task: TaskId) -> None:
        self._count(self[task], -1)
        super().__delitem__(task)

    def pop(self, task: TaskId, *default: V | None) -> V | None:  # type: ignore[override]  # one overload of three
        if task in self:
            self._count(self[task], -1)
        return super().pop(task, *default)

    def __reduce__(self) -> tuple[Callable[..., TaggedTasks[V]], tuple[object, ...]]:
        """Copy without counting: the index is copied, too."""
        return _restored, (self._count, dict(self))


def _restored(count: Callable[[V, int], None], items: Mapping[TaskId, V]) -> TaggedTasks[V]:
    tasks = TaggedTasks(count)
    dict.update(tasks, items)
    return tasks


class TagQueue:
    """First come first served among the tasks that fit, by constraint set and tags.

    Attributes:
        length: how many tasks wait.
    """

    def __init__(self) -> None:
        self._lines: dict[Kind, deque[tuple[int, Task]]] = {}
        self._back = self._front = 0
        self.length = 0

    def kinds(self) -> list[Kind]:
        """The kinds that wait, the one of the first task first."""
        return sorted(self._lines, key=lambda kind: self._lines[kind][0][0])

    def push(self, task: Task) -> None:
        """Join at the tail."""
        self._back += 1
        self._lines.setdefault((task.constraints, task.tags), deque()).append((self._back, task))
        self.length += 1

    def push_front(self, task: Task) -> None:
        """Join at the head, before every task that waits."""
        self._front -= 1
        self._lines.setdefault((task.constraints, task.tags), deque()).appendleft((self._front, task))
        self.length += 1

    def first(self, kind: Kind) -> Task | None:
        """The first task of a kind; it stays."""
        return self._lines[kind][0][1] if kind in self._lines else None

    def pop(self, kind: Kind) -> Task:
        """Take the first task of a kind, of which there has to be one."""
        line = self._lines[kind]
        task = line.popleft()[1]
        if not line:
            del self._lines[kind]
        self.length -= 1
        return task

    def pop_fitting(self, offered: int, allows: Callable[[Tags], bool]) -> Task | None:
        """Take the task that has waited longest of those that a slot with these constraints and near tags may run."""
        best, chosen = self._back + 1, None
        for kind, line in self._lines.items():
            head = line[0][0]
            if head < best and not kind[0] & ~offered and (kind[1] is None or allows(kind[1])):
                best, chosen = head, kind
        return None if chosen is None else self.pop(chosen)

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out, wherever it stands; the others keep their places."""
        removed: list[Task] = []
        for kind in list(self._lines):
            line = self._lines[kind]
            removed += [task for _, task in line if unwanted(task)]
            self._lines[kind] = deque([entry for entry in line if not unwanted(entry[1])])
            if not self._lines[kind]:
                del self._lines[kind]
        self.length -= len(removed)
        return removed


class TagMatch:
    """Match of tasks with tags to slots of a view.

    Args:
        near: slots with their machines and racks.

    Attributes:
        placed: tasks that were requested and have not ended, of the view.
        queue: of tasks with tags and of those without.
        found: tasks that an earlier incarnation has placed, and that nobody has submitted again.
    """

    def __init__(self, near: TagLayout) -> None:
        self.placed: TaggedTasks[Place] = TaggedTasks(self._count_place)
        self.queue = TagQueue()
        self._near = near
        self._index = near.index.copy()
        self._others: dict[int, tuple[tuple[Tags, int], ...]] = {}
        self.found: TaggedTasks[Active] = TaggedTasks(self._count_active)
        self._changed: dict[tuple[Tags, int], None] = {}

    def join(self, gm: GlobalMaster, view: SlotView) -> None:
        """Become the part of this Global Master and its view."""
        self._gm = gm
        self._view = view

    def _count_place(self, place: Place, sign: int) -> None:
        task, partition, position = place
        self._count(task.tags, self._near.begin[partition] + position, sign)

    def _count_active(self, active: Active, sign: int) -> None:
        self._count(active.tags, self._near.slot(active.unit), sign)

    def _count(self, tags: Tags | None, slot: int, sign: int, count: int = 1) -> None:
        if tags is not None:
            self._index.add(slot, tags, sign * count)
            self._changed[tags, sign] = None

    def learn(self, news: TagNews, lm: int) -> None:
        """Adopt what others have placed in a cluster."""
        told = dict(zip(news.machines, news.held, strict=True))
        if news.whole:
            told |= {at: () for at in self._others if self._near.lm_of[at] == lm and at not in told}
        for machine, held in told.items():
            slot, before = self._near.slot_of[machine], self._others.pop(machine, ())
            if held:
                self._others[machine] = held
            if held == before:
                continue
            for tags, count in before:
                self._count(tags, slot, -1, count)
            for tags, count in held:
                self._count(tags, slot, 1, count)

    def _allowed(self, partition: int, tags: Tags) -> int:
        begin, end = self._near.begin[partition : partition + 2]
        return self._index.allowed(tags) >> begin & (1 << end - begin) - 1

    def place(self, tasks: Sequence[Task]) -> list[Task]:
        """Match and request tasks; return those that fit nowhere in the view."""
        unplaced: list[Task] = []
        for tags, grouped in groupby(tasks, lambda task: task.tags):
            group = list(grouped)
            unplaced += self._view.place(group) if tags is None else self._place(group)
        return unplaced

    def _place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks with equal tags."""
        batches: dict[int, tuple[list[Task], list[int]]] = {}
        unplaced: list[Task] = []
        nowhere: set[int] = set()
        for task in tasks:
            if task.constraints in nowhere or not self._take_one(task, batches):
                nowhere.add(task.constraints)
                unplaced.append(task)
            else:
                nowhere.clear()  # others with these tags may be what a constraint asks for
        self._gm.request_all(batches)
        return unplaced

    def _take_one(self, task: Task, batches: dict[int, tuple[list[Task], list[int]]]) -> bool:
        """Take the first slot that fits, internal partitions first; False: there is none."""
        view, mask = self._view, task.constraints
        assert task.tags is not None, "a task with tags"
        for partition in view.search.orders[view.next]:
            room = view.room(partition, mask, ())
            candidates = room and room & self._allowed(partition, task.tags)
            if candidates:
                position = view.pick(partition, mask, candidates)
                view.take(task, partition, position)
                view.next = view.search.after[partition]
                batch = batches.setdefault(partition, ([], []))
                batch[0].append(task)
                batch[1].append(position)
                return True
        return False

    def offer(self, partition: int, places: Iterable[int]) -> None:
        """Give free slots to the first queued tasks that fit."""
        constraints, begin, index = self._near.layout.constraints[partition], self._near.begin[partition], self._index
        tasks, taken = [], []
        for position in places:
            slot = begin + position
            task = self.queue.pop_fitting(constraints[position], lambda tags, at=slot: index.allowed(tags) >> at & 1)  # type: ignore[misc]  # mypy cannot infer it
            if task is not None:
                self._view.take(task, partition, position)
                tasks.append(task)
                taken.append(position)
        if tasks:
            self._gm.request(partition, tasks, taken)

    def settle(self) -> None:
        """Place queued tasks that may start where they could not before tags came or left."""
        while self._changed:
            changed, self._changed = list(self._changed), {}
            for kind in self.queue.kinds() if self.queue.length else ():
                if any(concerns(kind[1], tags, sign) for tags, sign in changed):
                    self._place_waiting(kind)

    def _place_waiting(self, kind: Kind) -> None:
        batches: dict[int, tuple[list[Task], list[int]]] = {}
        task = self.queue.first(kind)
        while task is not None and self._take_one(task, batches):
            self.queue.pop(kind)
            task = self.queue.first(kind)
        self._gm.request_all(batches)

    def check(self) -> None:
        """Raise AssertionError where a slot is free in the view that fits a queued task, or tags are miscounted."""
        near, layout = self._near, self._near.layout
        for mask, tags in self.queue.kinds():
            for partition in range(len(layout.size)):
                fits = self._view.room(partition, mask, ())
                if tags is not None:
                    fits &= self._allowed(partition, tags)
                assert not fits, f"slots {positions(fits)} of partition {partition} fit a queued task with tags {tags}"
        counted = [(near.begin[at] + place, task.tags) for task, at, place in self.placed.values()]
        counted += [(near.slot(active.unit), active.tags) for active in self.found.values()]
        for machine, held in self._others.items():
            counted += [(near.slot_of[machine], tags) for tags, count in held for _ in range(count)]
        self._index.check([(slot, tags) for slot, tags in counted if tags is not None])

    def check_rest(self) -> None:
        """Raise AssertionError where tags of others are counted, and nothing runs."""
        assert not self._others, "tags of others' tasks are left in the view"
