"""Gangs of a Global Master: all members are placed at once, at several Local Masters, or none.

The states of a gang:

    gathering  tasks of it have not come, or some members are still placed: those are recalled
    waiting    all members that have not finished are here; nothing is held for them
    preparing  each member has a unit; Local Masters have been asked to reserve these (`PrepareRequest`)
    started    all have voted for it, and were sent `CommitRequest`: its members are tasks as all others

A vote against it, the loss of a member with its node, of a reservation with its Local Master or lease, or of this
Global Master itself: whatever happens to a member makes the gang gathering again, and the others are recalled
(`ReleaseRequest`). A gang is placed anew when all have come back, so that no member runs twice.

Order    Gangs that find room start in the order of their submission. Single tasks and other gangs pass one that finds
         none, as in backfilling. When the oldest gang here has waited for `PATIENCE` heartbeats, it chooses machines as
         if the cluster were empty, and requests them patiently: they are kept for it as they become free. One gang of
         a Global Master is patient at a time, and among those of several the older one is served: so the oldest gang
         of the federation waits no longer than the tasks that run on machines that it has chosen, and every gang is
         the oldest some day.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import msgspec

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.gangs.messages import (
    CommitRequest,
    MembersReleased,
    PrepareRequest,
    PrepareVote,
    ReleaseRequest,
)
from volery.architectures.megha.gangs.rooms import GangRooms, Unit
from volery.architectures.megha.hosts import RecoveryHost
from volery.architectures.megha.partitions import Layout
from volery.core.component import Attached, Sends, sent_to
from volery.core.events import GANG_TASKS_REFUSED, Counted, Event, TimerFired
from volery.core.model import SECOND, Address, Gang, Job, JobId, Key, Task, TaskId, Time
from volery.policies.queues import Kind

if TYPE_CHECKING:
    from volery.architectures.megha.reasons import DecisionNarrator

PATIENCE: Final = 3
"""Heartbeats after which machines are kept for the oldest gang: updates of all clusters have come by then."""
GANGS: Final = "gangs"
"""Key of the timer of a Global Master with gangs that wait."""


class GangHost(RecoveryHost, Protocol):
    """A Global Master as its gangs call it.

    Attributes:
        observer: Reports of decisions; None: there are none.
    """

    observer: DecisionNarrator | None

    def set_timer(self, key: Key, at: Time) -> None:
        """Set a timer of the component."""

    def address_request(self, lm: int, tasks: Sequence[Task]) -> tuple[int, tuple[Address, ...], int, int]:
        """Return number and receivers of the next request to a cluster, its leader's epoch, and the term of this GM."""


class GangState(msgspec.Struct, eq=False):
    """A gang whose job is not done.

    Args:
        shape: Its shape.
        since_us: Time when it was submitted.
        rank: Its place in line: priority, where that counts, then age.
        members: Members that have come.
        waiting: Members that are here.
        requests: Requests by cluster and number; empty: it is not preparing.
        missing_votes: Requests that were not granted yet.
        is_in_line: Whether it is gathering with all its tasks, or waiting.
        is_recalled: Whether members that are placed were recalled.
        avoided: Machines that cannot be waited for.
    """

    shape: Gang
    since_us: Time
    rank: tuple[int, Time, JobId]
    members: dict[TaskId, None] = {}
    waiting: dict[TaskId, Task] = {}
    requests: dict[tuple[int, int], PrepareRequest] = {}
    missing_votes: set[tuple[int, int]] = set()
    is_in_line: bool = False
    is_recalled: bool = False
    avoided: set[int] = set()


class GangScheduler(Attached):
    """Gangs that wait at a Global Master, and those that are under way.

    Args:
        host: The Global Master.
        rooms: Search for units in its view.
        layout: The whole cluster.
    """

    takes: ClassVar[frozenset[type]] = frozenset({PrepareVote, MembersReleased, TimerFired})
    sends: ClassVar[Sends] = sent_to("lm", PrepareRequest, CommitRequest, ReleaseRequest)

    def __init__(self, host: GangHost, rooms: GangRooms, layout: Layout, config: MeghaConfig) -> None:
        self._host = host
        self._rooms = rooms
        self._layout = layout
        self._by_priority = config.order == "priority"
        self._period_us = round(config.heartbeat_s * SECOND)
        self._records: dict[JobId, GangState] = {}
        self._forget_at = 64
        self.line: list[GangState] = []
        self._patient: GangState | None = None
        self._is_timer_set = False

    @property
    def queued_count(self) -> int:
        """Number of members that wait."""
        return sum([len(record.waiting) for record in self.line])

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take an answer of a Local Master, or the time to renew leases."""
        match event:
            case PrepareVote():
                self.on_vote(event, source)
            case MembersReleased():
                self.on_released(event, source)
            case TimerFired():
                self.on_timer(now)

    # Jobs.

    def submitted(self, job: Job, now: Time) -> None:
        """Let the tasks of a job form a gang, if it is one."""
        jobs = self._host.jobs
        if job.gang is None or job.id in self._records or jobs.is_done(job.id):
            return
        if len(self._records) >= self._forget_at:
            self._records = {number: record for number, record in self._records.items() if jobs.is_open(number)}
            self._forget_at = max(64, 2 * len(self._records))
        rank = (-job.priority if self._by_priority else 0, now, job.id)
        self._records[job.id] = GangState(job.gang, now, rank)

    def gathers(self, tasks: Sequence[Task], ready: Iterable[Task]) -> bool:
        """Take the tasks of a gang that have come, of which these are not placed; False: they are no members."""
        record = self._records.get(tasks[0].job)
        if record is None:
            return False
        record.members.update({task.id: None for task in tasks})
        record.waiting.update({task.id: task for task in ready})
        self._join(tasks[0].job, record)
        return True

    def _join(self, job: JobId, record: GangState) -> None:
        """Put a gang of which all tasks have come, and some wait, into line."""
        jobs = self._host.jobs
        if record.is_in_line or not record.waiting or not jobs.is_open(job):
            return
        if jobs.announced(job) and jobs.received(job) < jobs.announced(job):
            return
        if not self._rooms.find(list(record.waiting.values()), self._shape_of(record), is_whole=True):
            del self._records[job]
            self._host.observe(Counted(GANG_TASKS_REFUSED, len(record.waiting)))
            for _ in record.waiting:
                jobs.unsatisfiable(job)
            return
        record.is_in_line = True
        insort(self.line, record, key=lambda one: one.rank)

    def _shape_of(self, record: GangState) -> Gang:
        """The shape for the members that wait: where others have finished, they may be too few for all machines."""
        return Gang(min(record.shape.nodes, len(record.waiting)), record.shape.tasks_per_node)

    def cancelled(self, job: JobId) -> list[Task]:
        """Forget the gang of a cancelled job; return its members that wait."""
        record = self._records.pop(job, None)
        if record is None:
            return []
        self._stop_preparing(record)
        if record.is_in_line:
            self.line.remove(record)
        return list(record.waiting.values())

    def returned(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Take members that have lost their units; return the tasks that are no members."""
        if not self._records:
            return tasks
        singles = []
        for task in tasks:
            record = self._records.get(task.job)
            if record is None:
                singles.append(task)
                continue
            record.members[task.id] = None
            record.waiting[task.id] = task
            self._stop_preparing(record)
            self._join(task.job, record)
        return singles

    def _stop_preparing(self, record: GangState) -> None:
        record.requests = {}
        record.missing_votes = set()
        if record is self._patient:
            self._patient = None

    # Placements.

    def proceed(self, now: Time) -> None:
        """Place the gangs that have room in the view, in the order of the line, and come back to those that wait."""
        if not self.line and self._patient is None:
            return
        free_counts: dict[Kind, int] = {}
        for record in list(self.line):
            if not self._is_whole(record):
                continue
            tasks = list(record.waiting.values())
            if not self._may_have_room(tasks, free_counts):
                continue
            places = self._rooms.find(tasks, self._shape_of(record))
            if places:
                self._prepare(record, [(self._host.view.take(task, *unit), unit) for task, unit in places])
                free_counts.clear()

        if self.line:
            self._host.ask_all()
        if not self._is_timer_set:
            self._is_timer_set = True
            self._host.set_timer(GANGS, now + self._period_us)

    def _is_whole(self, record: GangState) -> bool:
        """Find out whether no member is placed; else recall those that are."""
        if len(record.waiting) == len(record.members):
            return True
        placed = [task for task in record.members if task in self._host.placed]
        if placed and not record.is_recalled:
            record.is_recalled = True
            self._recall(placed)
        return not placed

    def _recall(self, members: Sequence[TaskId]) -> None:
        host, tasks_at = self._host, dict[int, list[TaskId]]()
        for task in members:
            tasks_at.setdefault(self._layout.lm_of[host.placed[task][1]], []).append(task)
        for lm, tasks in tasks_at.items():
            attempts = tuple([host.attempt_of(task) for task in tasks])
            host.send(host.lms[lm], ReleaseRequest(tuple(tasks), attempts))

    def _may_have_room(self, tasks: Sequence[Task], free_counts: dict[Kind, int]) -> bool:
        """Find out whether there is room for as many tasks as these: a short look before the search."""
        first = tasks[0]
        kind = (first.constraints, first.request)
        if any(task.constraints != first.constraints or task.request != first.request for task in tasks):
            return True
        if kind not in free_counts:
            free_counts[kind] = self._rooms.count(kind, len(self._layout.lm_of) << 30)
        return free_counts[kind] >= len(tasks)

    def _prepare(self, record: GangState, members: Sequence[tuple[Task, Unit]], *, is_patient: bool = False) -> None:
        """Ask the Local Masters of all units to reserve them."""
        host = self._host
        self.line.remove(record)
        record.waiting = {}
        record.is_in_line = record.is_recalled = False
        if is_patient:
            self._patient = record
        batches: dict[int, tuple[list[Task], list[int]]] = {}
        for task, (partition, position) in members:
            tasks, places = batches.setdefault(partition, ([], []))
            tasks.append(task)
            places.append(position)

        for partition, (tasks, places) in batches.items():
            lm = self._layout.lm_of[partition]
            number, addresses, epoch, term = host.address_request(lm, tasks)
            request = PrepareRequest(
                number,
                partition,
                tuple(tasks),
                tuple(places),
                tuple([host.attempt_of(task.id) for task in tasks]),
                epoch=epoch,
                term=term,
                since_us=record.since_us,
                is_patient=is_patient,
            )
            host.view.requested(lm, (number, partition, request.tasks, request.positions))
            record.requests[lm, number] = request
            for address in addresses:
                host.send(address, request)
            if host.observer is not None:
                host.observer.requested(partition, tasks, places)
        record.missing_votes = set(record.requests)

    def on_vote(self, message: PrepareVote, source: Address) -> None:
        """Note the vote of a Local Master; with the last one the gang starts."""
        record = self._records.get(message.job)
        vote = self._host.lm_at[source], message.number
        if record is None or vote not in record.missing_votes:
            return
        record.missing_votes.discard(vote)
        if record.missing_votes:
            return

        numbers: dict[int, tuple[int, ...]] = {}
        for lm, number in record.requests:
            numbers[lm] = (*numbers.get(lm, ()), number)
        self._stop_preparing(record)
        record.avoided = set()
        for lm in numbers:
            self._host.send(self._host.lms[lm], CommitRequest(numbers[lm]))

    def on_released(self, message: MembersReleased, source: Address) -> None:
        """Learn what is true there, and take members back that have nothing reserved."""
        host = self._host
        if message.update.number <= host.last_update[source]:
            return  # a repeat, or older than a state that contains it
        for task in message.unusable_tasks:
            if task in host.placed:
                member, partition, position = host.placed[task]
                if record := self._records.get(member.job):
                    record.avoided.add(self._layout.machines[partition][position])

        tasks = [host.view.take_back(task) for task in message.tasks if task in host.placed]
        record = self._records.get(tasks[0].job) if tasks else None
        if record is not None and not record.is_recalled:
            host.view.count_refused(host.lm_at[source], len(tasks))
        freed = host.learn(message.update, source)
        host.still_wanted(tasks)
        host.offer_all(freed)

    def on_timer(self, now: Time) -> None:
        """Renew the leases of a patient gang, recall members again, and let the oldest gang that waits be patient."""
        self._is_timer_set = False
        if self._patient is not None:
            for (lm, _), request in self._patient.requests.items():
                self._host.send(self._host.lms[lm], request)
        whole = []
        for record in self.line:
            record.is_recalled = False
            if self._is_whole(record):
                whole.append(record)

        oldest = whole[0] if whole else None
        if self._patient is None and oldest is not None and now - oldest.since_us >= PATIENCE * self._period_us:
            tasks = list(oldest.waiting.values())
            places = self._rooms.find(tasks, self._shape_of(oldest), is_whole=True, avoided=oldest.avoided)
            if places:
                self._prepare(oldest, self._rooms.take_later(places), is_patient=True)
            oldest.avoided = oldest.avoided if places else set()

    def check_rest(self) -> None:
        assert not self.line, "gangs wait"
        assert self._patient is None, "a gang is patient"
