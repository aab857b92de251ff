"""Two-level offers: an allocator offers all that is free to one framework at a time, which places its jobs there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from volery.architectures.omega.claims import CellClaim, Claims
from volery.architectures.omega.front import Workload
from volery.architectures.omega.jobs import JOB_EVENTS, JobQueue, PendingJob
from volery.architectures.omega.messages import Answer, Demand, Ended, Offer, Release, Withdraw
from volery.architectures.omega.placement import NOWHERE, Layout, PlacementAnswer, PlacementProblem, place
from volery.core.component import Component, sent_to
from volery.core.events import Computed, JobAccepted, JobDone, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port, Problem
from volery.policies.fairness import FairOrder
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS

BATCH: Final = "batch"


class Terms(msgspec.Struct, eq=False):
    """The parameters of offers."""

    interval_us: Time
    allocation_us: Time
    least: tuple[int, ...]


class Allocator(Component):
    """Offers all that is free to the framework of the role with the lowest dominant share, and locks it meanwhile."""

    def __init__(self, layout: Layout, order: FairOrder, role_of: dict[Address, Workload], terms: Terms) -> None:
        self._layout = layout
        self._claims = Claims(layout)
        self._order = order
        self._role_of = role_of
        self._terms = terms
        self._asking: dict[Address, None] = {}
        self._refusing: dict[Address, Time] = {}
        self._numbers: dict[Address, int] = {}
        self._offers = 0
        self._offered: dict[Address, tuple[int, dict[int, int]]] = {}
        self._held: dict[TaskId, CellClaim] = {}
        self._released: dict[Address, int] = {}
        self._armed = False

    def start(self, now: Time) -> None:
        self._claims.open(self._port, self._freed)

    def on_demand(self, message: Demand, source: Address, now: Time) -> None:
        """Note that a framework wants offers."""
        if message.number > self._numbers.get(source, 0):
            self._numbers[source] = message.number
            if source not in self._offered:
                self._ask(source, now)

    def _ask(self, framework: Address, now: Time) -> None:
        self._asking[framework] = None
        self._arm(now)

    def _arm(self, now: Time) -> None:
        """Begin a batch of offers, unless one has begun."""
        wait_us = self._terms.interval_us + self._terms.allocation_us
        if self._asking and not self._armed:
            if wait_us:
                self._armed = True
                self._port.set_timer(BATCH, now + wait_us)
            else:
                self._allocate(now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Make the offers of the batch."""
        self._armed = False
        self._allocate(now)

    def _allocate(self, now: Time) -> None:
        """Offer all free resources to the framework whose turn it is."""
        allowed = [one for one in self._asking if self._refusing.get(one, 0) <= now]
        if not allowed:
            if self._asking:
                self._armed = True
                self._port.set_timer(BATCH, min(self._refusing[one] for one in self._asking))
            return
        offered = self._idle()
        if offered:
            self._offer(self._first(allowed), offered)

    def _idle(self) -> dict[int, int]:
        """The free amounts of machines, guarded; nothing if they are too little for an offer."""
        packing, free = self._layout.packing, self._claims.free
        guards = packing.guards
        offered = {machine: amounts for machine, amounts in enumerate(free) if amounts != guards}
        totals = [0] * len(self._terms.least)
        for amounts in offered.values():
            for place_of, amount in enumerate(packing.totals(amounts)):
                totals[place_of] += amount
        enough = all(total >= least for total, least in zip(totals, self._terms.least, strict=True))
        return offered if enough else {}

    def _first(self, allowed: list[Address]) -> Address:
        """The framework that asked first, of the role with the lowest dominant share."""
        nothing = (0,) * len(self._terms.least)
        asking = dict.fromkeys(self._role_of[one] for one in allowed)
        for role in dict.fromkeys(self._role_of.values()):
            self._order.wants(role, nothing if role in asking else None)
        poorest = self._order.choose()
        return next((one for one in allowed if self._role_of[one] == poorest), allowed[0])

    def _offer(self, framework: Address, offered: dict[int, int]) -> None:
        del self._asking[framework]
        self._refusing.pop(framework, None)
        self._offers += 1
        self._offered[framework] = (self._offers, offered)
        guards = self._layout.packing.guards
        for machine in offered:
            self._claims.free[machine] = guards
        octets = self._layout.encode(list(offered.values()))
        self._port.send(framework, Offer(self._offers, tuple(offered), octets))

    def on_answer(self, message: Answer, source: Address, now: Time) -> None:
        """Unlock the offer, and take from it what the framework has placed: no other can have claimed that."""
        number, offered = self._offered.get(source, (0, {}))
        if number != message.number:
            return
        del self._offered[source]
        guards = self._layout.packing.guards
        for machine, amounts in offered.items():
            self._claims.put(machine, amounts - guards)
        for task, machine in zip(message.held, message.held_machines, strict=True):
            held = None if task.id in self._held else self._take(source, task, machine)
            if held is not None:
                self._held[task.id] = held
        for task, machine in zip(message.tasks, message.machines, strict=True):
            claim = self._held.pop(task.id, None)
            claim = self._take(source, task, machine) if claim is None else claim._replace(task=task)
            if claim is not None:
                self._claims.begin(claim)
        if message.refuse_us:
            self._refusing[source] = now + message.refuse_us
        if message.waiting:
            self._asking[source] = None
        self._arm(now)

    def _take(self, framework: Address, task: Task, machine: int) -> CellClaim | None:
        """Claim what a task asks for; None: there is no room, because messages overtook each other."""
        claim = self._claims.claim(framework, task, machine)
        if claim is not None:
            self._order.launched(self._role_of[framework], self._layout.packing.amounts(claim.packed))
        return claim

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Free what the task had."""
        self._claims.ended(message, now)

    def _freed(self, claim: CellClaim, now: Time) -> None:
        self._return(claim, now)
        self._port.send(claim.owner, Ended(claim.task.job, claim.task.id))

    def _return(self, claim: CellClaim, now: Time) -> None:
        self._order.ended(self._role_of[claim.owner], self._layout.packing.amounts(claim.packed))
        self._arm(now)

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """End tasks that run."""
        self._claims.withdraw(message.tasks, now)

    def on_release(self, message: Release, source: Address, now: Time) -> None:
        """Free what was kept for a gang."""
        if message.number <= self._released.get(source, 0):
            return
        self._released[source] = message.number
        for task in message.tasks:
            held = self._held.pop(task, None)
            if held is not None:
                self._claims.undo(held)
                self._return(held, now)

    def check(self) -> None:
        locked = [(machine, amounts) for _, offered in self._offered.values() for machine, amounts in offered.items()]
        guards = self._layout.packing.guards
        held = [(one.machine, one.packed) for one in self._held.values()]
        self._claims.check([*held, *((machine, amounts - guards) for machine, amounts in locked)])

    def check_rest(self) -> None:
        self._claims.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Demand: on_demand,
        Answer: on_answer,
        Completed: on_completed,
        Release: on_release,
        Withdraw: on_withdraw,
        TimerFired: on_timer,
    }
    sends = sent_to("framework", Offer, Ended) | sent_to("node", Launch, Kill)


NEXT: Final = "next"


class Reply(msgspec.Struct, eq=False):
    """The decisions of a framework about an offer so far.

    Attributes:
        placed, held: task and machine of what will run, and of what is kept for a gang that is not whole.
    """

    number: int
    free: list[int]
    room: list[int]
    turns: int
    placed: dict[Task, int] = {}
    held: dict[Task, int] = {}
    rings: dict[int, list[int]] = {}
    job: PendingJob | None = None
    placing: PlacementProblem | None = None
    began_us: Time = 0

    def goes_on(self, queue: Collection[PendingJob]) -> bool:
        """True while there is another job to try, and room."""
        return bool(self.turns and queue and any(self.room))


class Framework(Component):
    """Places its jobs on what it is offered, one after the other, and answers when it has decided on all of them."""

    def __init__(
        self,
        jobs: JobQueue,
        *,
        refuse_us: Time,
        hoard_us: Time,
    ) -> None:
        self.jobs = jobs
        self._layout, self._setting, self._cell, self._stream = jobs.layout, jobs.setting, jobs.cell, jobs.stream
        self._refuse_us = refuse_us
        self._hoard_us = hoard_us
        self._asked = False
        self._demands = 0
        self._offers = 0
        self._releases = 0
        self._reply: Reply | None = None
        self._hoarding: PendingJob | None = None
        self._claims: dict[TaskId, Task] = {}  # with their devices, until they are placed or let go

    def bind(self, port: Port) -> None:
        super().bind(port)
        self.jobs.bind(self, port)

    def queued(self, now: Time) -> None:
        """Ask for offers, if that was not done."""
        if not self._asked:
            self._asked = True
            self._demands += 1
            self._port.send(self._cell, Demand(self._demands))

    def on_offer(self, message: Offer, source: Address, now: Time) -> None:
        """Decide on the jobs that wait now, while the offer has room."""
        if message.number <= self._offers:
            return
        self._offers = message.number
        packing = self._layout.packing
        free = [packing.guards] * len(self._layout.whole)
        room = [0] * len(self._layout.capacity)
        for machine, amounts in zip(message.machines, self._layout.decode(message.free), strict=True):
            free[machine] = amounts
            for resource, amount in enumerate(packing.totals(amounts)):
                room[resource] += amount
        self._reply = Reply(message.number, free, room, len(self.jobs.queue))
        self._decide(self._reply, now)

    def _decide(self, reply: Reply, now: Time) -> None:
        """Decide on the next job, or answer."""
        while reply.goes_on(self.jobs.queue):
            reply.turns -= 1
            work = self.jobs.queue.popleft()
            count = self.jobs.count(work, reply.free)
            if not count:
                work.queued = False
                continue
            reply.job, reply.began_us = work, now
            placing = reply.placing = self._placing(work, count, reply)
            decision_us = self._setting.deciding.decision_us(work.workload, count)
            self._port.compute(reply.number, Problem(place, placing, decision_us))
            return
        self._answer(reply)

    def _placing(self, work: PendingJob, count: int, reply: Reply) -> PlacementProblem:
        """The problem of placing the first tasks of a job on the machines of an offer that have something free."""
        guards, rings = self._layout.packing.guards, self._layout.rings

        def ring(need: int) -> list[int]:
            found = reply.rings.get(need)
            if found is None:
                found = [machine for machine in rings.suitable(need) if reply.free[machine] != guards]
                reply.rings[need] = found
            return found

        return self.jobs.placing(work.tasks[:count], reply.free, ring, whole=False)

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Take the machines that the job found, and go on to the next job."""
        reply = self._reply
        assert reply is not None, "no offer waits for this decision"
        work, placing = reply.job, reply.placing
        assert work is not None, "a decision about nothing"
        assert placing is not None, "a decision about nothing"
        answer: PlacementAnswer = PlacementAnswer(*event.answer) if work.tasks else NOWHERE
        found = {placing.tasks[k]: machine for k, machine in zip(answer.places, answer.machines, strict=True)}
        if work.gang and len(found) < len(work.tasks) and self._others_hoard(work):
            found = {}
        packing = self._layout.packing
        for task, machine in zip(answer.claims(placing.tasks), answer.machines, strict=True) if found else ():
            if packing.device_count:
                self._claims[task.id] = task
            packed = packing[task.request]
            reply.free[machine] = packing.settled(reply.free[machine] - packed)
            for resource, amount in enumerate(packing.amounts(packed)):
                reply.room[resource] -= amount
        if work.gang and len(found) < len(work.tasks):
            self._hoard(work, found, now)
            reply.held |= found
            found = {}
        elif work.held:
            work.tasks = [*work.held, *work.tasks]
            found = work.held | found
            work.held = {}
            self._hoarding = None
            self._port.cancel_timer(("hoard", work.id))
        reply.placed |= found
        self.jobs.tried(
            work,
            now,
            began_us=reply.began_us,
            decision_us=self._setting.deciding.decision_us(work.workload, len(placing.tasks)),
            placed=list(found),
            refused=0,
            whole=bool(found) and len(answer.places) == len(placing.tasks),
        )
        if reply.goes_on(self.jobs.queue):
            self._port.set_timer(NEXT, now)  # the next job's decision does not include this one's
        else:
            self._answer(reply)

    def _others_hoard(self, work: PendingJob) -> bool:
        """True if machines are kept for another gang: two that hoard at the same time may never be whole."""
        return self._hoarding is not None and self._hoarding is not work

    def _hoard(self, work: PendingJob, found: dict[Task, int], now: Time) -> None:
        """Keep what a gang has found until it is whole."""
        if found and not work.held and self._hoard_us:
            self._port.set_timer(("hoard", work.id), now + self._hoard_us)
        if found:
            self._hoarding = work
        work.held |= found
        work.tasks = [task for task in work.tasks if task not in found]

    def let_go(self, work: PendingJob) -> None:
        """Give up what is kept for a gang."""
        if not work.held:
            return
        reply = self._reply
        for task in work.held:
            self._claims.pop(task.id, None)
            if reply is not None:
                reply.held.pop(task, None)
        self._releases += 1
        self._port.send(self._cell, Release(self._releases, tuple([task.id for task in work.held])))
        self._port.cancel_timer(("hoard", work.id))
        work.tasks = [*work.held, *work.tasks]
        work.held = {}
        self._hoarding = None

    def _answer(self, reply: Reply) -> None:
        self._reply = None
        self._asked = bool(self.jobs.queue)
        taken = bool(reply.placed or reply.held)
        self._port.send(
            self._cell,
            Answer(
                reply.number,
                tuple([self._claims.pop(task.id, task) for task in reply.placed]),
                tuple(reply.placed.values()),
                tuple([self._claims.get(task.id, task) for task in reply.held]),
                tuple(reply.held.values()),
                0 if taken else self._refuse_us,
                self._asked,
            ),
        )

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Try the next job; or queue one again after its pause, or give up what is kept for a gang."""
        if event.key == NEXT:
            if self._reply is not None:
                self._decide(self._reply, now)
            return
        if isinstance(event.key, int):
            self.jobs.retry(event.key, now)
            return
        assert isinstance(event.key, tuple), event.key
        work = self.jobs.open.get(int(event.key[1]))
        if work is not None:
            self.let_go(work)
            work.tasks = self.jobs.scarcest_first(work.tasks)
            self._rest(work, now)

    def _rest(self, work: PendingJob, now: Time) -> None:
        """Let others go first for a random time, or two frameworks take the same machines again and again."""
        if work.queued and (self._reply is None or self._reply.job is not work):
            if work in self.jobs.queue:
                self.jobs.queue.remove(work)
            self._port.set_timer(work.id, now + self._setting.retry_us + self._stream.randrange(self._hoard_us))

    def take_back(self, work: PendingJob) -> int:
        """Cancel placements on the offer that is not answered; returns their number."""
        reply = self._reply
        mine = [task for task in reply.placed if task.job == work.id] if reply is not None else []
        for task in mine:
            assert reply is not None, "placed on no offer"
            del reply.placed[task]
            self._claims.pop(task.id, None)
            work.running.discard(task.id)
        return len(mine)

    def check(self) -> None:
        self.jobs.check()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **JOB_EVENTS,
        Offer: on_offer,
        Computed: on_computed,
        TimerFired: on_timer,
    }
    sends = ANSWERS | sent_to("front", JobAccepted, JobDone) | sent_to("cell", Demand, Answer, Release, Withdraw)
