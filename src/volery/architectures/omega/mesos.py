"""Two-level offers: an allocator offers all that is free to one framework at a time, which places its jobs there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from volery.architectures.omega.cell import CellClaim, Claims
from volery.architectures.omega.jobs import JOB_EVENTS, JobQueue, PendingJob, Workload
from volery.architectures.omega.messages import Answer, Demand, Ended, Offer, Release, Withdraw
from volery.architectures.omega.placement import NOWHERE, Layout, PlacementAnswer, PlacementProblem, place
from volery.core.component import Component, sent_to
from volery.core.events import Computed, JobAccepted, JobDone, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port, Problem
from volery.policies.fairness.drf import FairOrder
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
        self._demanding: dict[Address, None] = {}
        self._refusing_until: dict[Address, Time] = {}
        self._numbers: dict[Address, int] = {}
        self._offers = 0
        self._locked_offers: dict[Address, tuple[int, dict[int, int]]] = {}
        self._hoarded_claims: dict[TaskId, CellClaim] = {}
        self._last_release: dict[Address, int] = {}
        self._armed = False

    def start(self, now: Time) -> None:
        self._claims.open(self._port, self._freed)

    def on_demand(self, message: Demand, source: Address, now: Time) -> None:
        """Note that a framework wants offers."""
        if message.number > self._numbers.get(source, 0):
            self._numbers[source] = message.number
            if source not in self._locked_offers:
                self._ask(source, now)

    def _ask(self, framework: Address, now: Time) -> None:
        self._demanding[framework] = None
        self._arm(now)

    def _arm(self, now: Time) -> None:
        """Begin a batch of offers, unless one has begun."""
        wait_us = self._terms.interval_us + self._terms.allocation_us

        if self._demanding and not self._armed:
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
        willing_frameworks = [
            framework for framework in self._demanding if self._refusing_until.get(framework, 0) <= now
        ]

        if not willing_frameworks:
            if self._demanding:
                # Only refusing frameworks want offers: the first of them may have one when its time is over.
                self._armed = True
                self._port.set_timer(BATCH, min(self._refusing_until[framework] for framework in self._demanding))
            return

        free_amounts = self._idle()
        if free_amounts:
            self._offer(self._first(willing_frameworks), free_amounts)

    def _idle(self) -> dict[int, int]:
        """The free amounts of machines, guarded; nothing if they are too little for an offer."""
        packing = self._layout.packing
        free = self._claims.free
        guards = packing.guards

        free_amounts = {machine: amounts for machine, amounts in enumerate(free) if amounts != guards}

        totals = [0] * len(self._terms.least)
        for amounts in free_amounts.values():
            for resource, amount in enumerate(packing.totals(amounts)):
                totals[resource] += amount

        is_enough = all(total >= least_amount for total, least_amount in zip(totals, self._terms.least, strict=True))
        return free_amounts if is_enough else {}

    def _first(self, willing_frameworks: list[Address]) -> Address:
        """The framework that asked first, of the role with the lowest dominant share."""
        # A role without a demand must not be chosen for its low share.
        no_demand = (0,) * len(self._terms.least)
        demanding_roles = dict.fromkeys(self._role_of[framework] for framework in willing_frameworks)

        for role in dict.fromkeys(self._role_of.values()):
            self._order.wants(role, no_demand if role in demanding_roles else None)

        poorest = self._order.choose()
        return next(
            (framework for framework in willing_frameworks if self._role_of[framework] == poorest),
            willing_frameworks[0],
        )

    def _offer(self, framework: Address, free_amounts: dict[int, int]) -> None:
        del self._demanding[framework]
        self._refusing_until.pop(framework, None)
        self._offers += 1
        self._locked_offers[framework] = (self._offers, free_amounts)

        guards = self._layout.packing.guards
        # Locked: what the offer holds is free for nobody else until the answer comes (pessimistic concurrency).
        for machine in free_amounts:
            self._claims.free[machine] = guards

        octets = self._layout.encode(list(free_amounts.values()))
        self._port.send(framework, Offer(self._offers, tuple(free_amounts), octets))

    def on_answer(self, message: Answer, source: Address, now: Time) -> None:
        """Unlock the offer, and take from it what the framework has placed: no other can have claimed that."""
        number, free_amounts = self._locked_offers.get(source, (0, {}))
        if number != message.number:
            return
        del self._locked_offers[source]

        guards = self._layout.packing.guards

        for machine, amounts in free_amounts.items():
            self._claims.put(machine, amounts - guards)

        for task, machine in zip(message.held, message.held_machines, strict=True):
            # A hoarded task may be named again with each answer; its claim was made at the first.
            hoarded_claim = None if task.id in self._hoarded_claims else self._take(source, task, machine)
            if hoarded_claim is not None:
                self._hoarded_claims[task.id] = hoarded_claim

        for task, machine in zip(message.tasks, message.machines, strict=True):
            claim = self._hoarded_claims.pop(task.id, None)
            claim = self._take(source, task, machine) if claim is None else claim._replace(task=task)
            if claim is not None:
                self._claims.begin(claim)

        if message.refuse_us:
            self._refusing_until[source] = now + message.refuse_us

        if message.waiting:
            self._demanding[source] = None

        # What was declined is offered to others with the next batch.
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
        if message.number <= self._last_release.get(source, 0):
            return
        self._last_release[source] = message.number

        for task in message.tasks:
            hoarded_claim = self._hoarded_claims.pop(task, None)
            if hoarded_claim is not None:
                self._claims.undo(hoarded_claim)
                self._return(hoarded_claim, now)

    def check(self) -> None:
        locked_amounts = [
            (machine, amounts)
            for _, free_amounts in self._locked_offers.values()
            for machine, amounts in free_amounts.items()
        ]
        guards = self._layout.packing.guards

        hoarded_amounts = [(claim.machine, claim.packed) for claim in self._hoarded_claims.values()]
        self._claims.check([*hoarded_amounts, *((machine, amounts - guards) for machine, amounts in locked_amounts)])

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
        placed, held: Task and machine of what will run, and of what is reserved for a gang that is not whole.
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

    def __init__(self, jobs: JobQueue, *, refuse_us: Time, hoard_us: Time) -> None:
        self.jobs = jobs
        self._layout = jobs.layout
        self._setting = jobs.setting
        self._cell = jobs.cell
        self._stream = jobs.stream
        self._refuse_us = refuse_us
        self._hoard_us = hoard_us
        self._is_demanding = False
        self._demands = 0
        self._offers = 0
        self._releases = 0
        self._reply: Reply | None = None
        self._hoarding_job: PendingJob | None = None
        # Tasks with their devices, until they are placed or released.
        self._claims: dict[TaskId, Task] = {}

    def bind(self, port: Port) -> None:
        super().bind(port)
        self.jobs.bind(self, port)

    def queued(self, now: Time) -> None:
        """Ask for offers, if that was not done."""
        if not self._is_demanding:
            self._is_demanding = True
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
            reply.job = work
            reply.began_us = now

            placing = reply.placing = self._placing(work, count, reply)

            # The decision time counts the tasks that are tried; `compute` takes as long, and the offer stays locked.
            decision_us = self._setting.deciding.decision_us(work.workload, count)
            self._port.compute(reply.number, Problem(place, placing, decision_us))
            return
        self._answer(reply)

    def _placing(self, work: PendingJob, count: int, reply: Reply) -> PlacementProblem:
        """The problem of placing the first tasks of a job on the machines of an offer that have something free."""
        guards = self._layout.packing.guards
        rings = self._layout.rings

        def ring(needs: int) -> list[int]:
            machines = reply.rings.get(needs)
            if machines is None:
                machines = [machine for machine in rings.suitable(needs) if reply.free[machine] != guards]
                reply.rings[needs] = machines
            return machines

        return self.jobs.placing(work.tasks[:count], reply.free, ring, whole=None)

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Take the machines that the job found, and go on to the next job."""
        reply = self._reply
        assert reply is not None, "no offer waits for this decision"
        work = reply.job
        placing = reply.placing
        assert work is not None, "a decision about nothing"
        assert placing is not None, "a decision about nothing"

        answer: PlacementAnswer = PlacementAnswer(*event.answer) if work.tasks else NOWHERE
        machine_of = {
            placing.tasks[number]: machine for number, machine in zip(answer.places, answer.machines, strict=True)
        }

        # Two gangs that hoard at the same time may each keep what the other needs: this one takes nothing.
        if work.gang and len(machine_of) < len(work.tasks) and self._others_hoard(work):
            machine_of = {}

        packing = self._layout.packing

        for task, machine in zip(answer.claims(placing.tasks), answer.machines, strict=True) if machine_of else ():
            if packing.device_count:
                self._claims[task.id] = task
            packed = packing[task.request]
            reply.free[machine] = packing.settled(reply.free[machine] - packed)
            for resource, amount in enumerate(packing.amounts(packed)):
                reply.room[resource] -= amount

        # Kept on the machines found so far until the whole gang has some (hoarding).
        if work.gang and len(machine_of) < len(work.tasks):
            self._hoard(work, machine_of, now)
            reply.held |= machine_of
            machine_of = {}
        elif work.held:
            work.tasks = [*work.held, *work.tasks]
            machine_of = work.held | machine_of
            work.held = {}
            self._hoarding_job = None
            self._port.cancel_timer(("hoard", work.id))

        reply.placed |= machine_of

        self.jobs.tried(
            work,
            now,
            began_us=reply.began_us,
            decision_us=self._setting.deciding.decision_us(work.workload, len(placing.tasks)),
            placed_tasks=list(machine_of),
            refused=0,
            is_whole=bool(machine_of) and len(answer.places) == len(placing.tasks),
        )

        if reply.goes_on(self.jobs.queue):
            # A timer, so that the next job's decision does not include the time of this one's.
            self._port.set_timer(NEXT, now)
        else:
            self._answer(reply)

    def _others_hoard(self, work: PendingJob) -> bool:
        """True if machines are reserved for another gang: two that hoard at a time may never be whole."""
        return self._hoarding_job is not None and self._hoarding_job is not work

    def _hoard(self, work: PendingJob, machine_of: dict[Task, int], now: Time) -> None:
        """Keep what a gang has found until it is whole."""
        if machine_of and not work.held and self._hoard_us:
            self._port.set_timer(("hoard", work.id), now + self._hoard_us)

        # The timer began with the first task that is kept: a gang that never gets whole gives all of it back.
        if machine_of:
            self._hoarding_job = work

        work.held |= machine_of
        work.tasks = [task for task in work.tasks if task not in machine_of]

    def release_held(self, work: PendingJob) -> None:
        """Give up what is kept for a gang."""
        if not work.held:
            return
        reply = self._reply
        for task in work.held:
            self._claims.pop(task.id, None)
            # Not answered yet: what the answer would keep is released by leaving it out.
            if reply is not None:
                reply.held.pop(task, None)

        self._releases += 1
        self._port.send(self._cell, Release(self._releases, tuple([task.id for task in work.held])))
        self._port.cancel_timer(("hoard", work.id))

        work.tasks = [*work.held, *work.tasks]
        work.held = {}
        self._hoarding_job = None

    def _answer(self, reply: Reply) -> None:
        self._reply = None
        self._is_demanding = bool(self.jobs.queue)
        is_used = bool(reply.placed or reply.held)

        self._port.send(
            self._cell,
            Answer(
                reply.number,
                tuple([self._claims.pop(task.id, task) for task in reply.placed]),
                tuple(reply.placed.values()),
                tuple([self._claims.get(task.id, task) for task in reply.held]),
                tuple(reply.held.values()),
                0 if is_used else self._refuse_us,
                self._is_demanding,
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
            self.release_held(work)
            # The same order of tasks found no room for the gang in all that time; the scarcest first may.
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
        withdrawn_tasks = [task for task in reply.placed if task.job == work.id] if reply is not None else []

        for task in withdrawn_tasks:
            assert reply is not None, "placed on no offer"
            del reply.placed[task]
            self._claims.pop(task.id, None)
            work.running.discard(task.id)
        return len(withdrawn_tasks)

    def check(self) -> None:
        self.jobs.check()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **JOB_EVENTS,
        Offer: on_offer,
        Computed: on_computed,
        TimerFired: on_timer,
    }
    sends = ANSWERS | sent_to("front", JobAccepted, JobDone) | sent_to("cell", Demand, Answer, Release, Withdraw)
