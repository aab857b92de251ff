"""Gangs of the pipeline: a gang waits as one entry of the queue, starts whole or not at all, and waits again whole.

The members of a gang gather; when all that have not finished are there, one entry joins the queue for them, of a class
of its own (`GangKind`). Whatever ends a member before its time (a machine that dies, a preemption) recalls the others,
and all gather again: the driver has ended the attempts of those that it has begun, and none is left that holds a
machine for a gang that cannot begin.

Members that are alike take machines by stage R5, one after another; unlike ones, and those of a gang with a shape or in
one rack, the machines with most room in order of their numbers (`volery.policies.gangs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from volery.architectures.pipeline.attempts import AfterEviction, Placements
from volery.architectures.pipeline.policies import Candidates, Kind, Running, State, Waiting
from volery.core.model import REQUIRES_RACK, Gang, JobId, TaskId, Time
from volery.policies.gangs import MemberDemand, Places, Rooms, assign, by_rack, rack_vectors, rooms_on, spread

ANY_SHAPE: Final = Gang()


class GangKind(Kind):
    """The class of a gang: gangs of one class find room alike.

    Attributes:
        demands: Members by class, with their counts; one entry where all are alike.
        most: Largest count of members that an empty machine holds, where all are alike; 0 elsewhere.
        fits_by_count: Whether any machines will do that hold as many members as it has.
    """

    __slots__ = ("demands", "fits_by_count", "gang", "most", "racks", "size")

    def __init__(self, groups: dict[Kind, int], gang: Gang, state: State, rooms: Rooms) -> None:
        kinds = list(groups)
        first = kinds[0]
        is_uniform = len(kinds) == 1
        union = common = first.suitable
        shared_constraints = first.constraints
        for kind in kinds:
            union |= kind.suitable
            common &= kind.suitable
            shared_constraints &= kind.constraints

        need = first.need
        if gang.nodes and not is_uniform:
            # Each machine of the shape has room for members of any class.
            packing = state.packing
            columns = zip(*[packing.amounts(kind.packed) for kind in kinds], strict=True)
            need = state.ladders[tuple(map(max, columns))]
            union = common
        super().__init__(shared_constraints, need, union, possible=False)
        if not is_uniform and not gang.nodes:
            self.packed = 0

        self.size = sum(groups.values())
        self.gang = gang
        self.racks = rack_vectors(state.cluster) if gang.rack else ()
        self.demands = tuple([MemberDemand(kind.packed, kind.suitable, count) for kind, count in groups.items()])
        self.most = max([rooms[free, self.packed] for free in set(state.whole.free)]) if self.is_counted else 0
        self.fits_by_count = is_uniform and not gang.nodes and gang.rack != REQUIRES_RACK
        self.possible = bool(places_on(self, self.suitable, state.whole.free, state, rooms))

    @property
    def is_counted(self) -> bool:
        """True if machines hold counts of its members: these are alike, or may each be as large as the largest."""
        return len(self.demands) == 1 or bool(self.gang.nodes)


def places_on(kind: Kind, machines: int, free: Sequence[int], state: State, rooms: Rooms) -> Places:
    """The machines of a vector for a task or a gang of a class, with counts of members; nothing: there is no room.

    Args:
        free: Free amounts of all machines, packed and guarded.
    """

    def placed(rack: int) -> Places:
        if isinstance(kind, GangKind) and not kind.is_counted:
            demands = [demand._replace(machines=demand.machines & machines & rack) for demand in kind.demands]
            assigned = [machine for part in assign(demands, free, state.packing) for machine in part]
            return [(machine, 1) for machine in assigned]
        return spread(rooms_on(kind.suitable & machines & rack, free, kind.packed, rooms), kind.size, kind.gang)

    return by_rack(kind.gang, kind.racks, placed)


class GangRecord(msgspec.Struct, eq=False):
    """A gang whose job is not done.

    Args:
        gang: Its shape.
        unfinished_tasks: Count of members that have not finished.
        members: Members that have come, by task.
        gathered: Members that wait for the others, by task.
        entry: Entry of the queue that stands for all of them; None: some are missing, or run.
    """

    gang: Gang
    unfinished_tasks: int
    members: dict[TaskId, Waiting] = {}
    gathered: dict[TaskId, Waiting] = {}
    entry: Waiting | None = None


class Gangs:
    """The gangs of a scheduler.

    Args:
        cycle: Cycle that places them.
    """

    def __init__(self, cycle: Placements) -> None:
        self._cycle = cycle
        self._state = cycle.state
        self._kinds: dict[tuple[tuple[tuple[Kind, int], ...], Gang], GangKind] = {}
        self._records: dict[JobId, GangRecord] = {}
        self.rooms = Rooms(cycle.state.packing)

    def expect(self, job: JobId, gang: Gang, task_count: int) -> None:
        """Let the tasks of a job form a gang."""
        self._records[job] = GangRecord(gang, task_count)

    def kind_of(self, kinds: Sequence[Kind], gang: Gang) -> GangKind:
        """The class of a gang whose members have these classes."""
        groups: dict[Kind, int] = {}
        for kind in kinds:
            groups[kind] = groups.get(kind, 0) + 1
        key = tuple(groups.items()), gang
        if key not in self._kinds:
            self._kinds[key] = GangKind(groups, gang, self._state, self.rooms)
        return self._kinds[key]

    def gathers(self, waiting: Waiting) -> bool:
        """Keep a member until all that have not finished are there; False: the task is no member."""
        record = self._records.get(waiting.job.id)
        if record is None:
            return False
        self._state.waiting[waiting.task.id] = waiting
        record.members[waiting.task.id] = record.gathered[waiting.task.id] = waiting
        self._maybe_queue(record)
        return True

    def _maybe_queue(self, record: GangRecord) -> None:
        gathered_count = len(record.gathered)
        if record.entry is not None or not gathered_count or gathered_count < record.unfinished_tasks:
            return

        members = list(record.gathered.values())
        first = members[0]
        # Where others have finished, the rest may be too few for all machines of the shape.
        gang = msgspec.structs.replace(record.gang, nodes=min(record.gang.nodes, gathered_count))
        # A gang lasts as long as its longest member.
        longest_us = max([member.task.estimate_us for member in members])
        record.entry = Waiting(
            first.task
            if first.task.estimate_us == longest_us
            else msgspec.structs.replace(first.task, estimate_us=longest_us),
            first.job,
            self.kind_of([member.kind for member in members], gang),
            min([member.number for member in members]),
            max([member.ready_us for member in members]),
            sum([member.work_us for member in members]),
            max([member.rank_us for member in members]),
            first.came_us,
        )
        self._cycle.queue.push(record.entry)
        self._cycle.iteration.joined(record.entry)

    def has_room(self, kind: Kind, machines: int) -> bool:
        """True if some machines of a vector have room for a task, or for all members of a gang at once."""
        index = self._state.index
        if not isinstance(kind, GangKind):
            return index.pick(kind.need, kind.suitable & machines, "first") >= 0

        if kind.fits_by_count:
            fitting = index.fitting(kind.need, kind.suitable & machines)
            count = fitting.bit_count()
            if count >= kind.size or kind.most <= 1 or not count:
                return count >= kind.size
            machines = fitting
        return bool(places_on(kind, machines, index.free, self._state, self.rooms))

    def start(self, entry: Waiting, machines: int, places: Places | None, now: Time) -> bool:
        """Stages R5 and T4: give all members of a gang machines; False: there is no room, and all wait on.

        Args:
            entry: Entry of the queue that stands for the gang.
            machines: Vector of the machines that it may take.
            places: Machines that it is to take, where only these delay nobody; None: any of the vector.
        """
        kind = entry.kind
        assert isinstance(kind, GangKind), "the entry of a gang"
        if places is None and not self.has_room(kind, machines):
            return False

        record = self._records[entry.job.id]
        members = list(record.gathered.values())
        self._cycle.queue.remove(entry)
        record.entry = None
        record.gathered = {}

        # What is launched takes room at once, and is sent when all members have their machines.
        launched = [
            self._launched(member, machine, now) for member, machine in self._choose(kind, members, machines, places)
        ]
        self._cycle.queue.served(entry)
        for running in launched:
            self._cycle.start(running)
        return True

    def _launched(self, member: Waiting, machine: int, now: Time) -> Running:
        running = self._state.launched(member, machine, now)
        self._cycle.iteration.started(machine)
        return running

    def _choose(
        self, kind: GangKind, members: Sequence[Waiting], machines: int, places: Places | None
    ) -> Iterator[tuple[Waiting, int]]:
        """Each member with its machine; the caller takes the room there before it asks for the next one."""
        if places is None and len(kind.demands) == 1 and kind.gang == ANY_SHAPE:
            targets, state = self._cycle.targets, self._state
            for member in members:
                candidates = Candidates(state, member, machines)
                machine = targets.select(member, candidates)
                # Some policies would rather wait for a better machine, which members of a gang cannot do alone.
                yield member, machine if machine >= 0 else candidates.first()
            return

        if places is None:
            places = places_on(kind, machines, self._state.index.free, self._state, self.rooms)
        chosen = [machine for machine, count in places for _ in range(count)]

        # Places of unlike members are in the order of the demands.
        if not kind.is_counted:
            order = {(demand.packed, demand.machines): place for place, demand in enumerate(kind.demands)}
            members = sorted(members, key=lambda member: order[member.kind.packed, member.kind.suitable])
        yield from zip(members, chosen, strict=True)

    def withdraw(self, waiting: Waiting) -> bool:
        """Take a member out of those that wait, and its gang out of the queue; False: it is no member."""
        record = self._records.get(waiting.job.id)
        if record is None:
            return False
        del record.gathered[waiting.task.id]
        if record.entry is not None:
            self._cycle.queue.remove(record.entry)
            record.entry = None
        return True

    def finished(self, waiting: Waiting) -> None:
        """Count a member that has finished."""
        record = self._records.get(waiting.job.id)
        if record is not None and record.members.pop(waiting.task.id, None) is not None:
            record.unfinished_tasks -= 1
            self._maybe_queue(record)

    def recall(self, running: Running, now: Time) -> None:
        """Queue a member again whose attempt the driver has ended, and the others with it."""
        self._cycle.release(running, now)
        running.waiting.attempt += running.sent
        self._cycle.enqueue(running.waiting)
        self.recall_others(running.waiting, now)

    def recall_others(self, waiting: Waiting, now: Time) -> None:
        """End the attempts of all other members of a task's gang: it starts again whole."""
        cycle, record = self._cycle, self._records.get(waiting.job.id)
        running_tasks = self._state.running
        members = [running_tasks[task] for task in record.members if task in running_tasks] if record else ()
        for running in members:
            # Another member may have been recalled with an earlier one, and one that is called off ends anyway.
            if running.waiting is waiting or running.ending or not cycle.runs(running):
                continue
            if running.sent:
                cycle.evict(running, AfterEviction.QUEUE, now)
            else:
                cycle.evictions.drop(running)
                cycle.release(running, now)
                cycle.enqueue(running.waiting)

    def may_hold(self, kinds: Sequence[Kind], gang: Gang) -> bool:
        """True if the empty cluster holds members of these classes together."""
        return all(kind.possible for kind in kinds) and self.kind_of(kinds, gang).possible

    def forget(self, job: JobId) -> None:
        """Forget a job that is done."""
        self._records.pop(job, None)

    def check(self, machines: int) -> None:
        """Raise AssertionError where a gang that is blocked has room, or members wait without an entry."""
        for kind in self._cycle.queue.classes.blocked:
            assert not isinstance(kind, GangKind) or not self.has_room(kind, machines), "a blocked gang has room"
        for job, record in self._records.items():
            is_whole = len(record.gathered) >= record.unfinished_tasks > 0
            assert (record.entry is not None) == is_whole, f"gang {job} waits without an entry, or in parts"
