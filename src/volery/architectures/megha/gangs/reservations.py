"""Reservations of a Local Master for members of gangs: the side of the two phases that knows what is free.

The states of a `PrepareRequest` here:

    pending   some of its units are not free; nothing is taken for it
    granted   all its units are taken, as if the members ran; the Global Master has the vote
    gone      it was refused, released or is over (`MembersReleased`), or was committed: the members run

Order    A request that meets units of another gang that is not committed waits only if that one is younger; else it is
         refused. So no two gangs wait for each other, whatever the number of clusters: along a chain of those that wait
         each is younger than the one before, and the last one waits for nobody. The oldest is refused for what runs
         alone, never for a gang: no two Global Masters take machines from each other for ever.
Patience A patient request also waits for what runs. Its machines are closed to all others meanwhile, as drained ones
         are, and younger patient requests for them are refused.
Lease    Whatever is here ends by itself after `LEASE_PERIODS` heartbeats, unless the Global Master repeats it. So a
         Global Master that crashes leaves nothing reserved; one that begins anew, or whose jobs have moved, loses all
         of it at once. What a new leader does not know of is lost to its owner, as attempts are (`recovery.pair`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, Protocol

import msgspec

from volery.architectures.megha.allocations import Allocations, ClusterState, GmSyncState, Start
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.gangs.messages import (
    CommitRequest,
    MembersReleased,
    PrepareRequest,
    PrepareVote,
    ReleaseRequest,
)
from volery.architectures.megha.messages import Request
from volery.architectures.megha.partitions import Layout
from volery.core.component import Attached, Sends, sent_to
from volery.core.events import Event
from volery.core.model import SECOND, Address, JobId, Key, Message, Task, TaskId, Time
from volery.roles.recovery.leases import RunningAttempt

LEASES: Final = "leases"
"""Key of the timer of a Local Master that looks after its reservations."""
LEASE_PERIODS: Final = 4
"""Heartbeats after which a reservation that is not renewed is over: a round of votes takes milliseconds."""

TRY_AGAIN: Final = 1 << 40
"""More attempts than run anywhere."""


class ReservationHost(ClusterState, Protocol):
    """A Local Master as its reservations call it.

    Attributes:
        closed: Nodes on which nothing is placed, since they are kept for a gang.
    """

    closed: dict[Address, None]

    def send(self, to: Address, message: Message) -> None:
        """Send a message to another component."""

    def set_timer(self, key: Key, at: Time) -> None:
        """Set a timer of the component."""

    def accept(self, message: Request, tasks: tuple[Task, ...], source: Address) -> GmSyncState | None:
        """Return the state of the GM whose request is to be answered; None: it has no effect."""

    def is_reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there, and to obey this master."""

    def launch_all(self, starts: list[Start]) -> None:
        """Launch attempts that have their units."""

    def recall(self, attempt: RunningAttempt) -> None:
        """End an attempt without a result, where its owner can place the task again."""

    def set_heartbeat(self, now: Time) -> None:
        """Set the heartbeat to the next multiple of its period, where it is not set."""

    def schedule_news(self, now: Time) -> None:
        """Look soon whether there is room for GMs that have asked."""


class UnitReservation(msgspec.Struct, eq=False):
    """A request of a Global Master for units of a partition, until it is committed or given up.

    Args:
        gm: Global Master that has sent it.
        nodes: Machines of the units.
        end_us: Time when it is over unless it is renewed.
        starts: Attempts that have the units; empty: it is pending.
        running_count: Count of attempts on the machines when a patient request last found too many.
    """

    request: PrepareRequest
    gm: Address
    nodes: frozenset[Address]
    end_us: Time
    starts: list[Start] = []
    running_count: int = -1

    @property
    def age(self) -> tuple[Time, JobId]:
        """The gang's place among all gangs; a smaller one is older."""
        return self.request.since_us, self.request.tasks[0].job


class GangReservations(Attached):
    """Reservations for gangs in one cluster, by Global Master and number of the request.

    Args:
        host: The Local Master.
        allocations: Allocations of its cluster.
    """

    takes: ClassVar[frozenset[type]] = frozenset({PrepareRequest, CommitRequest, ReleaseRequest})
    sends: ClassVar[Sends] = sent_to("gm", PrepareVote, MembersReleased)

    def __init__(self, host: ReservationHost, allocations: Allocations, layout: Layout, config: MeghaConfig) -> None:
        self._host = host
        self._allocations = allocations
        self._layout = layout
        self._period_us = round(config.heartbeat_s * SECOND)
        self._reservations: dict[tuple[Address, int], UnitReservation] = {}

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take a message of a Global Master, then look whether what waits for its outcome has room."""
        match event:
            case PrepareRequest():
                self.on_prepare(event, source, now)
                return
            case CommitRequest():
                self.on_commit(event, source)
            case ReleaseRequest():
                self.on_release(event, source)
        self._review(lambda reservation: not reservation.request.is_patient)
        self._host.schedule_news(now)

    def on_prepare(self, message: PrepareRequest, source: Address, now: Time) -> None:
        """Reserve all units of a request, have it wait, or refuse it; a repeat was answered, and renews the lease."""
        end_us = now + LEASE_PERIODS * self._period_us
        if repeated := self._reservations.get((source, message.number)):
            repeated.end_us = end_us
        if self._host.accept(message, message.tasks, source) is None:
            return
        nodes = frozenset([self._layout.nodes[message.partition][position] for position in message.positions])
        reservation = UnitReservation(message, source, nodes, end_us)
        if not self._reservations:
            self._host.set_timer(LEASES, now + self._period_us)
        self._reservations[source, message.number] = reservation
        self._try(reservation)
        self._host.set_heartbeat(now)

    def _try(self, reservation: UnitReservation) -> None:
        """Reserve the units if all are free; else the request waits, or is refused."""
        host, request = self._host, reservation.request
        self._open(reservation)
        starts, refused_tasks = self._allocations.allot_requested(request, host.gms[reservation.gm])
        host.attempts.list_by_node(starts)

        # On a machine that is away there is room for what asks for nothing alone: it would wait for the machine.
        if not refused_tasks and all(map(host.is_reachable, reservation.nodes)):
            reservation.starts = starts
            host.send(reservation.gm, PrepareVote(request.tasks[0].job, request.number))
            return
        for _, attempt, _ in starts:
            self._give_back(attempt)
        if not self._waits(reservation, frozenset(refused_tasks)):
            nodes = self._layout.nodes[request.partition]
            places = zip(request.tasks, request.positions, strict=True)
            self._remove(reservation, [task.id for task, position in places if self._is_unusable(nodes[position])])

    def _waits(self, reservation: UnitReservation, refused_tasks: frozenset[TaskId]) -> bool:
        """Let a request wait for units that are not free; False: it may not, see the order of requests."""
        host, request, nodes = self._host, reservation.request, reservation.nodes
        rivals = [
            rival
            for rival in self._reservations.values()
            if rival is not reservation and not nodes.isdisjoint(rival.nodes)
        ]
        if any(rival.age < reservation.age for rival in rivals):
            return False

        if not request.is_patient:
            younger_nodes = frozenset[Address]().union(*[rival.nodes for rival in rivals if rival.starts])
            at = self._layout.nodes[request.partition]
            return all(
                at[position] in younger_nodes
                for task, position in zip(request.tasks, request.positions, strict=True)
                if task.id in refused_tasks
            )

        if any(map(self._is_unusable, nodes)):
            return False
        younger = [rival for rival in rivals if not rival.starts]
        for rival in younger:
            self._remove(rival)
        # What was closed for a younger gang may be free: the next look is to try again, whatever runs there.
        reservation.running_count = TRY_AGAIN if younger else self._count_on(nodes)
        for node in nodes:
            host.closed[node] = None
            self._allocations.recount(node)
        return True

    def _is_unusable(self, node: Address) -> bool:
        return node in self._host.drained or not self._host.is_reachable(node)

    def _count_on(self, nodes: frozenset[Address]) -> int:
        attempts = self._host.attempts
        return sum(attempts.node_of(attempt) in nodes for attempt in attempts)

    def _open(self, reservation: UnitReservation) -> None:
        """Let the machines of a patient request that is pending be used again."""
        if reservation.running_count < 0:
            return
        reservation.running_count = -1
        for node in reservation.nodes:
            del self._host.closed[node]
            self._allocations.recount(node)

    def _give_back(self, attempt: RunningAttempt) -> None:
        self._host.attempts.remove(attempt)
        self._allocations.give_back(attempt)

    def _is_reserved(self, attempt: RunningAttempt) -> bool:
        """Find out whether an attempt has its unit still: it may have been lost with its node."""
        current = self._host.attempts.by_task.get(attempt.task)
        return current is not None and current.attempt == attempt.attempt

    def _remove(self, reservation: UnitReservation, unusable_tasks: list[TaskId] = []) -> None:  # noqa: B006 - only read
        """Give up a reservation, and report its members to their Global Master."""
        request = reservation.request
        del self._reservations[reservation.gm, request.number]
        self._open(reservation)
        tasks = [task.id for task in request.tasks]
        if reservation.starts:
            # Members that were lost with their nodes have been reported.
            reserved_attempts = [attempt for _, attempt, _ in reservation.starts if self._is_reserved(attempt)]
            tasks = [attempt.task for attempt in reserved_attempts]
            for attempt in reserved_attempts:
                self._give_back(attempt)
        if tasks:
            update = self._allocations.refusal(self._host.gms[reservation.gm], ()).update
            released = MembersReleased(tuple(tasks), update, unusable_tasks=tuple(unusable_tasks))
            self._host.send(reservation.gm, released)

    def on_commit(self, message: CommitRequest, source: Address) -> None:
        """Launch what is reserved, once; a reservation that has lost a member or a node is given up."""
        for number in message.numbers:
            reservation = self._reservations.get((source, number))
            if reservation is None or not reservation.starts:
                continue
            if all(self._is_reserved(attempt) and self._host.is_reachable(at) for _, attempt, at in reservation.starts):
                del self._reservations[source, number]
                self._host.launch_all(reservation.starts)
            else:
                self._remove(reservation)

    def on_release(self, message: ReleaseRequest, source: Address) -> None:
        """Give up what is reserved for members, and end those that run; of the others a report is under way."""
        for task, number in zip(message.tasks, message.attempts, strict=True):
            if not self.withdraw(source, task):
                attempt = self._host.attempts.by_task.get(task)
                if attempt is not None and attempt.attempt == number and attempt.owner == source:
                    self._host.recall(attempt)

    def withdraw(self, gm: Address, task: TaskId) -> bool:
        """Give up the reservation of which a task is a member; False: there is none."""
        for reservation in self._reservations.values():
            if reservation.gm == gm and any(member.id == task for member in reservation.request.tasks):
                self._remove(reservation)
                return True
        return False

    def _review(self, is_due: Callable[[UnitReservation], bool]) -> None:
        """Try pending requests again, the oldest first."""
        pending = [one for one in self._reservations.values() if not one.starts and is_due(one)]
        for reservation in sorted(pending, key=lambda one: one.age):
            if self._reservations.get((reservation.gm, reservation.request.number)) is reservation:
                self._try(reservation)

    def look_after(self, now: Time) -> None:
        """Give up what is over, and try patient requests of which attempts have ended on their machines."""
        for reservation in list(self._reservations.values()):
            if reservation.end_us <= now:
                self._remove(reservation)
        self._review(
            lambda one: (
                not one.request.is_patient
                or one.running_count != self._count_on(one.nodes)
                or any(map(self._is_unusable, one.nodes))
            )
        )
        self._host.schedule_news(now)
        if self._reservations:
            self._host.set_timer(LEASES, now + self._period_us)

    # Where components may crash.

    def forget_gm(self, gm: Address) -> None:
        """Give up all reservations of a Global Master that knows nothing of them any more."""
        for key, reservation in list(self._reservations.items()):
            if key[0] == gm:
                del self._reservations[key]
                self._open(reservation)
                for _, attempt, _ in reservation.starts:
                    if self._is_reserved(attempt):
                        self._give_back(attempt)

    def clear(self) -> None:
        """Forget everything: another master leads, or this one begins to."""
        self._reservations.clear()
        self._host.closed.clear()

    def check_rest(self) -> None:
        assert not self._reservations, "reservations are left"
        assert not self._host.closed, "nodes are closed for a gang"
