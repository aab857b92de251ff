"""The resource manager of one sub-cluster: queues with capacity, served when machines send their heartbeats.

Empty heartbeats are not sent: the manager knows when those of machines with free slots are due, and
serves the queues then, the one that uses least of its capacity first. Grants are sent in the heartbeats of the
application masters, which stand beside their proxies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from volery.architectures.hydra.gangs import GrantedGang, SubClusterGangs
from volery.architectures.hydra.layout import STORE, SubCluster
from volery.architectures.hydra.messages import (
    Container,
    ContainerRequest,
    Entitle,
    GangRequest,
    Grant,
    Held,
    Load,
    Register,
    Release,
    Vacated,
)
from volery.architectures.hydra.recovery import IDS, Registrations
from volery.core.component import Component, Sends, sent_to
from volery.core.events import Computed, Event, PeerBack, PeerLost, TimerFired
from volery.core.model import NEVER, Address, JobId, Task, Time
from volery.core.port import Port, Problem
from volery.policies.fairness.drf import WeightedDrf
from volery.policies.fairness.queue import FairQueue
from volery.policies.match import positions
from volery.roles.node import Heartbeats
from volery.roles.recovery.channel import Renewed

SERVE: Final = "serve"
TELL: Final = "tell"
REPORT: Final = "report"
DECIDED: Final = "decided"
EVERYBODY: Final = "default"
"""The queue of all jobs where there are no queues."""


class ManagerSetting(msgspec.Struct, frozen=True):
    """The parameters of all resource managers of a build.

    Args:
        queues: Weights of queues; None: one queue for all.
        beats: Heartbeats of machines, per sub-cluster; None: they report at once, and are offered at once.
        am_beats: Heartbeats of application masters, one after the other by proxy; None: grants are sent at once.
        proxies: Addresses of the proxies, in the order of these heartbeats.
        decision_us: Modelled time of a decision, per container.
    """

    queues: Mapping[str, int] | None
    beats: Sequence[Heartbeats] | None
    am_beats: Heartbeats | None
    proxies: Sequence[Address]
    decision_us: Time
    report_us: Time


class JobRequests(msgspec.Struct, eq=False):
    """The containers that a job requests of a resource manager."""

    proxy: Address
    queue: str
    wanted: dict[int, int] = {}


def _count(counts: dict[str, int], queue: str, change: int) -> None:
    """Change the count of a queue; queues at 0 are left out."""
    counts[queue] = counts.get(queue, 0) + change
    if not counts[queue]:
        del counts[queue]


class ResourceManager(Component):
    """Grants containers on its machines."""

    def __init__(
        self,
        sub: SubCluster,
        setting: ManagerSetting,
        stream: Random,
        incarnation: int = 0,
        registrations: Registrations | None = None,
    ) -> None:
        self._sub = sub
        self._setting = setting
        self._stream = stream
        self._beats = setting.beats[sub.number] if setting.beats is not None else None
        self._proxy_seat = {proxy: seat for seat, proxy in enumerate(setting.proxies)}
        self._registrations = registrations
        self._idle = list(sub.slots)
        self._slot_count = self._idle_count = sum(sub.slots)
        self._free_seats = sub.matches.every
        self._usable_seats = sub.matches.every
        self._terms = [0] * len(sub.machines)
        self._containers: dict[int, Held] = {}
        self._last_id = incarnation * IDS
        self._queue = self._empty_queue()
        self._applications: dict[JobId, JobRequests] = {}
        self._jobs_running: dict[JobId, int] = {}
        self._masks: dict[int, int] = {}
        self._wanted = 0
        self._last_number_of: dict[Address, int] = {}
        self._used: dict[str, int] = {}
        self._wanted_by_queue: dict[str, int] = {}
        self._waiting = 0
        self._granted: dict[Address, list[Container]] = {}
        self._granted_seats = 0
        self._gangs: SubClusterGangs | None = None
        self._grant: Callable[[JobRequests, Task, int], None] = self._grant_container
        self._sending_at: Time = NEVER
        self._grants_sent: dict[Address, int] = {}
        self._deciding = False
        self._armed: tuple[int, Time] | None = None
        self._reporting = False
        self._reports = 0
        self._entitled = 0

    def bind(self, port: Port) -> None:
        super().bind(port)
        if self._registrations is not None:
            self._registrations.bind(self, port)

    def takes(self) -> Collection[type]:
        if self._registrations is not None:
            return self.receives.keys()
        return self.receives.keys() - Registrations.receives.keys()

    def emits(self) -> Sends:
        return self.sends if self._registrations is not None else self.sends - Registrations.sends

    def start(self, now: Time) -> None:
        if self._registrations is not None:
            self._registrations.start(now)

    def _empty_queue(self) -> FairQueue:
        """The queues, each entitled to its part of the slots until the policy generator changes that."""
        weights = self._setting.queues if self._setting.queues is not None else {EVERYBODY: 1}

        self._part = max(1, self._slot_count // max(1, sum(weights.values())))
        self._known_queues = set(weights)
        self._order = WeightedDrf((self._slot_count,), {queue: n * self._part for queue, n in weights.items()})

        return FairQueue(self._order)

    def _queue_of(self, user: str) -> str:
        """The queue of a user; one that the parameters do not name has a queue of weight 1."""
        if self._setting.queues is None:
            return EVERYBODY

        if user not in self._known_queues:
            self._known_queues.add(user)
            self._order.reweigh(user, self._part)
        return user

    def on_container_request(self, message: ContainerRequest, source: Address, now: Time) -> None:
        """Queue what is wanted, and forget what is not wanted any more."""
        # A repeated message: its changes were made, and would count twice.
        if message.number <= self._last_number_of.get(source, 0):
            return
        self._last_number_of[source] = message.number

        application = self._applications.get(message.job)
        if application is None:
            queue = self._queue_of(message.user)

            application = self._applications[message.job] = JobRequests(source, queue)
            self._queue.belongs(message.job, queue)

        for mask, count in zip(message.masks, message.counts, strict=True):
            self._want(application, message.job, mask, count)

        if self._beats is None:
            self._serve_free(message.masks, now)

        self._forget(message.job)
        self.settle(now)

    def on_gang_request(self, message: GangRequest, source: Address, now: Time) -> None:
        """Queue a gang, or forget it; from the first one on, free slots are offered to gangs in turn first."""
        if message.number <= self._last_number_of.get(source, 0):
            return
        self._last_number_of[source] = message.number
        if self._gangs is None:
            self._gangs = SubClusterGangs(self._sub, self)
            self._grant = self._grant_in_turn

        self._gangs.request(message, source, self._queue_of(message.user))
        self._forget(message.job)
        self.settle(now)

    def want_gang(self, gang: GrantedGang, change: int) -> None:
        """Let a gang wait as one request of its queue, or no longer."""
        application = self._applications.get(gang.job)
        if application is None:
            application = self._applications[gang.job] = JobRequests(gang.proxy, gang.queue)
            self._queue.belongs(gang.job, gang.queue)
        self._want(application, gang.job, gang.common, change)

    def usable_slots(self, seats: int) -> dict[int, int]:
        """Free slots of those of these machines that are in use."""
        return {seat: self._idle[seat] for seat in positions(self._free_seats & self._usable_seats & seats)}

    def keep(self, seat: int, slots: int) -> None:
        """Take free slots for a gang; below zero: give them back."""
        self._idle[seat] -= slots
        self._idle_count -= slots
        self._free_seats = self._free_seats & ~(1 << seat) | (self._idle[seat] > 0) << seat

    def grant_member(self, gang: GrantedGang, need: int, seat: int) -> None:
        """Grant a container of a gang."""
        self._grant_container(JobRequests(gang.proxy, gang.queue), Task(0, gang.job, need), seat)

    def _grant_in_turn(self, application: JobRequests, request: Task, seat: int) -> None:
        """Grant a container, or let the gang have its turn that has waited in this place."""
        assert self._gangs is not None, "there are gangs"
        if not self._gangs.begins(request.job):
            self._grant_container(application, request, seat)

    def _want(self, application: JobRequests, job: JobId, mask: int, count: int) -> None:
        """Change what a job wants; the places in the queue of what it does not want stay until they are reached."""
        count_before = application.wanted.get(mask, 0)
        has_waited = bool(application.wanted)
        count_after = max(0, count_before + count)

        application.wanted[mask] = count_after
        if not count_after:
            del application.wanted[mask]

        self._waiting += bool(application.wanted) - has_waited
        _count(self._wanted_by_queue, application.queue, count_after - count_before)

        for _ in range(count_after - count_before):
            self._queue.push(Task(0, job, mask))

        self._wanted += count_after - count_before
        self._masks[mask] = self._masks.get(mask, 0) + count_after - count_before
        if not self._masks[mask]:
            del self._masks[mask]

        # Places without a request pile up in the queue; when nothing is wanted at all, they can be dropped at once.
        if not self._wanted and self._queue.length:
            self._queue.remove(lambda _: True)

    def _forget(self, job: JobId) -> None:
        """Drop a job that wants nothing and has nothing here."""
        application = self._applications.get(job)
        if application is not None and not application.wanted and job not in self._jobs_running:
            del self._applications[job]

    def _serve_free(self, masks: Sequence[int], now: Time) -> None:
        """Serve free machines that suit a request at once, in random order; only without heartbeats."""
        for mask in masks:
            while self._masks.get(mask) and not self._deciding:
                # Only seats that are free, in use and suitable: without heartbeats nothing else would offer them.
                candidates = self._free_seats & self._usable_seats & self._sub.matches[mask]
                if not candidates:
                    break
                self._serve(self._sub.matches.pick(mask, candidates, self._stream.random), now)

    def _serve(self, seat: int, now: Time) -> None:
        """Grant what the machine has free, to the queues in turn."""
        if self._gangs is not None:
            self._gangs.keep()
        grant_count = 0

        while self._idle[seat] and self._wanted:
            request = self._queue.pop_fitting(self._sub.constraints[seat])
            if request is None:
                break

            application = self._applications.get(request.job)
            if application is None or not application.wanted.get(request.constraints):
                # The place of a request that was withdrawn since.
                continue

            self._want(application, request.job, request.constraints, -1)
            self._grant(application, request, seat)
            grant_count += 1

        # The modelled time of these decisions: nothing else is granted meanwhile.
        if grant_count and self._setting.decision_us:
            self._deciding = True
            self._port.compute(DECIDED, Problem(int, grant_count, grant_count * self._setting.decision_us))

    def _grant_container(self, application: JobRequests, request: Task, seat: int) -> None:
        self._last_id += 1
        container = Container(
            self._last_id, self._sub.machines[seat], self._terms[seat], request.job, request.constraints
        )

        self._take(Held(container, application.proxy, application.queue), seat)
        self._granted.setdefault(application.proxy, []).append(container)
        self._granted_seats |= 1 << self._proxy_seat[application.proxy]

    def _take(self, hold: Held, seat: int) -> None:
        job = hold.container.job
        self._containers[hold.container.id] = hold

        self._jobs_running[job] = self._jobs_running.get(job, 0) + 1
        self._order.launched(hold.user, (1,))
        _count(self._used, hold.user, 1)

        self._idle[seat] -= 1
        self._idle_count -= 1

        if not self._idle[seat]:
            self._free_seats &= ~(1 << seat)

    def _give_back(self, number: int) -> int:
        """Count a container that has ended; returns the seat, or -1 where it is not known."""
        hold = self._containers.pop(number, None)
        if hold is None:
            return -1

        job = hold.container.job
        seat = self._sub.seat_of[hold.container.machine]
        self._jobs_running[job] -= 1

        if not self._jobs_running[job]:
            del self._jobs_running[job]
            self._forget(job)

        self._order.ended(hold.user, (1,))
        _count(self._used, hold.user, -1)

        self._idle[seat] += 1
        self._idle_count += 1
        self._free_seats |= 1 << seat

        return seat

    def on_vacated(self, message: Vacated, source: Address, now: Time) -> None:
        """A heartbeat: use what has come free there."""
        seat = -1
        for container in message.containers:
            seat = max(seat, self._give_back(container))

        # While decisions take their time, the machine waits for its next heartbeat.
        if seat >= 0 and self._usable_seats >> seat & 1 and not self._deciding:
            self._serve(seat, now)

        self.settle(now)

    def on_release(self, message: Release, source: Address, now: Time) -> None:
        for container in message.containers:
            seat = self._give_back(container)
            if seat >= 0 and self._beats is None and self._usable_seats >> seat & 1 and not self._deciding:
                self._serve(seat, now)
        self.settle(now)

    def on_entitle(self, message: Entitle, source: Address, now: Time) -> None:
        if message.number > self._entitled and self._setting.queues is not None:
            self._entitled = message.number
            for queue, slots in zip(message.queues, message.slots, strict=True):
                self._order.reweigh(queue, max(1, slots))

    def use(self, seats: int) -> None:
        self._usable_seats = seats
        if self._gangs is not None:
            self._gangs.lose(self._sub.matches.every & ~seats)

    def vacate(self, seat: int) -> None:
        """Take back all containers on a machine."""
        if self._gangs is not None:
            self._gangs.lose(1 << seat)
        machine = self._sub.machines[seat]
        for number in [number for number, hold in self._containers.items() if hold.container.machine == machine]:
            self._give_back(number)

    def adopt(self, seat: int, running: Sequence[Held], term: int) -> None:
        """Take over the containers in which tasks run on a machine; those to come are of this term."""
        for hold in running:
            self._take(Held(hold.container, hold.proxy, self._queue_of(hold.user)), seat)
        self._terms[seat] = term

    def offer(self, seat: int, now: Time) -> None:
        """Use what a machine has free at once, where no heartbeat is waited for."""
        if self._beats is None and self._usable_seats >> seat & 1 and not self._deciding:
            self._serve(seat, now)
        self.settle(now)

    def on_recovery(self, event: Event, source: Address, now: Time) -> None:
        assert self._registrations is not None, "nothing restarts"
        self._registrations.handle(event, source, now)

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        self._deciding = False
        if self._beats is None:
            self._serve_free(tuple(self._masks), now)
        self.settle(now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """A heartbeat of a machine, an application master, or this manager is due; or a lease is over."""
        if isinstance(event.key, tuple):
            assert self._registrations is not None, "they alone set such timers"
            self._registrations.give_up(int(event.key[1]), now)
        elif event.key == REPORT:
            self._reporting = False
            self._report()
        elif event.key == TELL:
            due = self._sending_at
            self._sending_at = NEVER
            self._send_grants(due, now)
        else:
            assert self._armed is not None, "a heartbeat that nobody waits for"
            seat = self._armed[0]
            self._armed = None
            self._serve(seat, now)
            self.settle(now)

    def settle(self, now: Time) -> None:
        """End a change: send grants, wait for the next heartbeat, and let a report be due."""
        if self._gangs is not None:
            self._gangs.keep()
            if self._beats is None:
                self._serve_free(tuple(self._masks), now)
        if self._granted and not self._deciding:
            am_beats = self._setting.am_beats
            if am_beats is None:
                self._send_grants(now, now)
            else:
                # The next heartbeat of one of the masters that have grants waiting for it.
                self._send_at(am_beats.next_of(self._granted_seats, now - 1)[1])

        if self._beats is not None:
            self._arm(self._beats, now)

        if not self._reporting:
            self._reporting = True
            self._port.set_timer(REPORT, (now // self._setting.report_us + 1) * self._setting.report_us)

    def _send_at(self, due: Time) -> None:
        if due != self._sending_at:
            self._sending_at = due
            self._port.set_timer(TELL, due)

    def _send_grants(self, due: Time, now: Time) -> None:
        """Send their grants to the application masters whose heartbeat it is, or was between `due` and now."""
        am_beats = self._setting.am_beats
        headroom = self._headroom()

        for proxy in list(self._granted):
            seat = self._proxy_seat[proxy]
            # Its heartbeat is not due yet: its grants wait on.
            if am_beats is not None and am_beats.after(seat, due - 1) > now:
                continue

            self._granted_seats &= ~(1 << seat)
            number = self._grants_sent[proxy] = self._grants_sent.get(proxy, 0) + 1
            self._port.send(proxy, Grant(number, tuple(self._granted.pop(proxy)), headroom))

        if self._granted and am_beats is not None:
            self._send_at(am_beats.next_of(self._granted_seats, now)[1])

    def _headroom(self) -> int:
        """Slots that are free on machines in use."""
        if self._usable_seats == self._sub.matches.every:
            return self._idle_count
        return sum(count for seat, count in enumerate(self._idle) if self._usable_seats >> seat & 1)

    def _arm(self, beats: Heartbeats, now: Time) -> None:
        """Wait for the next heartbeat of a machine that could run something that is wanted."""
        candidates = 0
        if self._wanted and not self._deciding and (free := self._free_seats & self._usable_seats):
            for mask in self._masks:
                candidates |= self._sub.matches[mask] & free
                if candidates == free:
                    break

        next_beat = beats.next_of(candidates, now) if candidates else None
        # The timer is set for that heartbeat already.
        if next_beat == self._armed:
            return

        self._armed = next_beat
        if next_beat is None:
            self._port.cancel_timer(SERVE)
        else:
            self._port.set_timer(SERVE, next_beat[1])

    def _report(self) -> None:
        """The heartbeat to the state store."""
        used_by_queue = self._used
        wanted_by_queue = self._wanted_by_queue
        queues = tuple(sorted(used_by_queue.keys() | wanted_by_queue.keys()))

        self._reports += 1
        self._port.send(
            STORE,
            Load(
                self._reports,
                self._slot_count,
                self._headroom(),
                self._waiting,
                queues,
                tuple([used_by_queue.get(queue, 0) for queue in queues]),
                tuple([wanted_by_queue.get(queue, 0) for queue in queues]),
            ),
        )

    def check(self) -> None:
        idle = list(self._sub.slots)
        free = 0

        for hold in self._containers.values():
            idle[self._sub.seat_of[hold.container.machine]] -= 1
        for seat, count in self._gangs.kept_slots.items() if self._gangs is not None else ():
            idle[seat] -= count
        for seat, count in enumerate(idle):
            free |= (count > 0) << seat
        if self._gangs is not None:
            self._gangs.check()

        assert sum(idle) == self._idle_count, "the count of free slots"
        assert (idle, free) == (self._idle, self._free_seats), "slots neither free nor in a container"

        wanted_count = sum(sum(application.wanted.values()) for application in self._applications.values())
        assert wanted_count == self._wanted == sum(self._masks.values()), "containers that are wanted"

        waiting_applications = [application for application in self._applications.values() if application.wanted]
        assert self._waiting == len(waiting_applications), "applications that wait"

        assert sum(self._used.values()) == len(self._containers), "containers of queues"
        assert sum(self._wanted_by_queue.values()) == wanted_count, "what queues want"
        # Places of withdrawn requests may be left, but each request has one.
        assert self._queue.length >= wanted_count, "something wanted has no place in the queue"

        self._queue.check()

        usable = self._free_seats & self._usable_seats
        fits = any(usable & self._sub.matches[mask] for mask in self._masks)
        assert not fits or self._deciding or (self._beats is not None and self._armed is not None), "idle and wanted"

    def check_rest(self) -> None:
        assert self._idle == self._sub.slots, "containers are left"
        assert not self._applications, "applications are left"
        if self._gangs is not None:
            self._gangs.check_rest()
        assert not self._granted, "grants are left"
        assert self._usable_seats == self._sub.matches.every, "machines are not in use"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        ContainerRequest: on_container_request,
        GangRequest: on_gang_request,
        Vacated: on_vacated,
        Release: on_release,
        Entitle: on_entitle,
        Computed: on_computed,
        TimerFired: on_timer,
        Register: on_recovery,
        Renewed: on_recovery,
        PeerLost: on_recovery,
        PeerBack: on_recovery,
    }
    sends = sent_to("proxy", Grant) | sent_to("store", Load) | Registrations.sends
