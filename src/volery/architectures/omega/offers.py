"""Two-level offers: an allocator offers what is free to one framework at a time, and frameworks place on offers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import Final

from volery.architectures.omega.cell import Claims, Running
from volery.architectures.omega.firstfit import NOWHERE, Placed, Placing, place
from volery.architectures.omega.layout import Layout, Workload
from volery.architectures.omega.messages import Answer, Demand, Ended, Offer, Release, Withdraw
from volery.architectures.omega.placer import Placer, Setting, Waiting
from volery.core.component import sent_to
from volery.core.events import Cancel, Computed, MoreTasks, Submit, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Problem
from volery.policies.fairness import FairOrder
from volery.roles.node import Completed, Kill, Launch

BATCH: Final = "batch"
NEXT: Final = "next"


class Terms:
    """How offers are made.

    Args:
        interval_us: from the first reason to make an offer to the offers of that batch.
        allocation_us: the allocator's own decision.
        least: of each resource so much must be free in all, or no offer is made.
    """

    __slots__ = ("allocation_us", "interval_us", "least")

    def __init__(self, interval_us: Time, allocation_us: Time, least: tuple[int, ...]) -> None:
        self.interval_us = interval_us
        self.allocation_us = allocation_us
        self.least = least


class Allocator(Claims):
    """Offers all that is free to the framework whose role has the lowest dominant share, and locks it meanwhile.

    Args:
        layout: of the cluster.
        order: whose turn it is, among roles.
        role_of: per framework.
        terms: how offers are made.
    """

    __slots__ = (
        "_armed",
        "_asking",
        "_held",
        "_numbers",
        "_offered",
        "_offers",
        "_order",
        "_refusing",
        "_released",
        "_role_of",
        "_terms",
    )  # fmt: skip

    def __init__(self, layout: Layout, order: FairOrder, role_of: dict[Address, Workload], terms: Terms) -> None:
        super().__init__(layout)
        self._order = order
        self._role_of = role_of
        self._terms = terms
        self._asking: dict[Address, None] = {}
        self._refusing: dict[Address, Time] = {}
        self._numbers: dict[Address, int] = {}
        self._offers = 0
        self._offered: dict[Address, tuple[int, dict[int, int]]] = {}
        self._held: dict[TaskId, Running] = {}
        self._released: dict[Address, int] = {}
        self._armed = False

    def on_demand(self, message: Demand, source: Address, now: Time) -> None:
        """A framework wants offers."""
        if message.number > self._numbers.get(source, 0):
            self._numbers[source] = message.number
            if source not in self._offered:
                self._ask(source, now)

    def _ask(self, framework: Address, now: Time) -> None:
        self._asking[framework] = None
        self._arm(now)

    def _arm(self, now: Time) -> None:
        """The first reason since the last batch begins the next one."""
        wait_us = self._terms.interval_us + self._terms.allocation_us
        if self._asking and not self._armed:
            if wait_us:
                self._armed = True
                self._port.set_timer(BATCH, now + wait_us)
            else:
                self._allocate(now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The batch is due."""
        self._armed = False
        self._allocate(now)

    def _allocate(self, now: Time) -> None:
        """Make an offer to whoever comes first; everything that is free is in it."""
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
        """What machines have free, guarded; nothing where that is too little for an offer."""
        packing, free = self._layout.packing, self._free
        guards = packing.guards
        offered = {machine: amounts for machine, amounts in enumerate(free) if amounts != guards}
        totals = [0] * len(self._terms.least)
        for amounts in offered.values():
            for place_of, amount in enumerate(packing.totals(amounts)):
                totals[place_of] += amount
        enough = all(total >= least for total, least in zip(totals, self._terms.least, strict=True))
        return offered if enough else {}

    def _first(self, allowed: list[Address]) -> Address:
        """Of the role with the lowest dominant share, the one that asked first."""
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
            self._free[machine] = guards
        octets = self._layout.encode(list(offered.values()))
        self._port.send(framework, Offer(self._offers, tuple(offered), octets))

    def on_answer(self, message: Answer, source: Address, now: Time) -> None:
        """Unlock the offer, and take from it what the framework has placed: nobody else can have claimed it."""
        number, offered = self._offered.get(source, (0, {}))
        if number != message.number:
            return
        del self._offered[source]
        guards = self._layout.packing.guards
        for machine, amounts in offered.items():
            self._put(machine, amounts - guards)
        for task, machine in zip(message.held, message.held_machines, strict=True):
            held = None if task.id in self._held else self._take(source, task, machine)
            if held is not None:
                self._held[task.id] = held
        for task, machine in zip(message.tasks, message.machines, strict=True):
            running = self._held.pop(task.id, None) or self._take(source, task, machine)
            if running is not None:
                self._running[task.id] = running
                self._launch(task, running.machine)
        if message.refuse_us:
            self._refusing[source] = now + message.refuse_us
        if message.waiting:
            self._asking[source] = None
        self._arm(now)

    def _take(self, framework: Address, task: Task, machine: int) -> Running | None:
        """None where messages that overtook each other have misled the framework: there is no room."""
        packed, guards = self._layout.packing[task.request], self._layout.packing.guards
        if (self._free[machine] - packed) & guards != guards:
            return None
        self._put(machine, -packed)
        self._order.launched(self._role_of[framework], self._layout.packing.amounts(packed))
        return Running(framework, task.job, machine, packed)

    def _freed(self, running: Running, now: Time) -> None:
        self._order.ended(self._role_of[running.owner], self._layout.packing.amounts(running.packed))
        self._arm(now)

    def on_release(self, message: Release, source: Address, now: Time) -> None:
        """What was kept for a gang is free."""
        if message.number <= self._released.get(source, 0):
            return
        self._released[source] = message.number
        for task in message.tasks:
            held = self._held.pop(task, None)
            if held is not None:
                self._put(held.machine, held.packed)
                self._freed(held, now)

    def _taken(self) -> list[tuple[int, int]]:
        locked = [(machine, amounts) for _, offered in self._offered.values() for machine, amounts in offered.items()]
        guards = self._layout.packing.guards
        held = [(one.machine, one.packed) for one in self._held.values()]
        return [*super()._taken(), *held, *((machine, amounts - guards) for machine, amounts in locked)]

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Demand: on_demand,
        Answer: on_answer,
        Completed: Claims.on_completed,
        Release: on_release,
        Withdraw: Claims.on_withdraw,
        TimerFired: on_timer,
    }
    sends = sent_to("framework", Offer, Ended) | sent_to("node", Launch, Kill)


class Reply:
    """What a framework has decided about an offer so far.

    Attributes:
        number: of the offer.
        free: per machine, what is left of it, packed and guarded.
        room: what is left of each resource in all.
        turns: jobs that may still be tried.
        placed, held: task and machine of what will run, and of what is kept for a gang that is not whole.
        job: the one that is being decided on, with its problem.
    """

    __slots__ = ("began_us", "free", "held", "job", "number", "placed", "placing", "rings", "room", "turns")

    def __init__(self, number: int, free: list[int], room: list[int], turns: int) -> None:
        self.number = number
        self.free = free
        self.room = room
        self.turns = turns
        self.placed: dict[Task, int] = {}
        self.held: dict[Task, int] = {}
        self.rings: dict[int, list[int]] = {}
        self.job: Waiting | None = None
        self.placing: Placing | None = None
        self.began_us: Time = 0

    def goes_on(self, queue: Collection[Waiting]) -> bool:
        """Whether there is another job to try, and room."""
        return bool(self.turns and queue and any(self.room))


class Framework(Placer):
    """Places its jobs on what it is offered, one after the other, and answers when it has decided on all of them.

    Args:
        layout: of the cluster.
        setting: what all of them share.
        cell: address of the allocator.
        stream: of draws.
        refuse_us: offers of which nothing could be used are not wanted for so long.
        hoard_us: what is kept for a gang is given up when it is not whole by then; 0: never.
    """

    __slots__ = ("_asked", "_claims", "_demands", "_heard", "_hoard_us", "_hoarding", "_refuse_us", "_releases",
                 "_reply")  # fmt: skip

    def __init__(
        self, layout: Layout, setting: Setting, cell: Address, stream: Random, *, refuse_us: Time, hoard_us: Time
    ) -> None:
        super().__init__(layout, setting, cell, stream)
        self._refuse_us = refuse_us
        self._hoard_us = hoard_us
        self._asked = False
        self._demands = 0
        self._heard = 0
        self._releases = 0
        self._reply: Reply | None = None
        self._hoarding: Waiting | None = None
        self._claims: dict[TaskId, Task] = {}  # with their devices, until they are placed or let go

    def _on_queued(self, now: Time) -> None:
        if not self._asked:
            self._asked = True
            self._demands += 1
            self._port.send(self._cell, Demand(self._demands))

    def on_offer(self, message: Offer, source: Address, now: Time) -> None:
        """Decide on the jobs that wait now, while the offer has room."""
        if message.number <= self._heard:
            return
        self._heard = message.number
        packing = self._layout.packing
        free = [packing.guards] * len(self._layout.whole)
        room = [0] * len(self._layout.capacity)
        for machine, amounts in zip(message.machines, self._layout.decode(message.free), strict=True):
            free[machine] = amounts
            for resource, amount in enumerate(packing.totals(amounts)):
                room[resource] += amount
        self._reply = Reply(message.number, free, room, len(self._queue))
        self._decide(self._reply, now)

    def _decide(self, reply: Reply, now: Time) -> None:
        """The next job, or the answer."""
        while reply.goes_on(self._queue):
            reply.turns -= 1
            work = self._queue.popleft()
            count = self._count(work, reply.free) if work.tasks else 0
            if not count:
                work.queued = False
                continue
            reply.job, reply.began_us = work, now
            placing = reply.placing = self._placing(work, count, reply.free)._replace(whole=False)
            decision_us = self._setting.deciding.decision_us(work.workload, count)
            self._port.compute(reply.number, Problem(place, placing, decision_us))
            return
        self._answer(reply)

    def _ring(self, need: int) -> list[int]:
        reply = self._reply
        if reply is None:
            return self._layout.rings.suitable(need)
        ring = reply.rings.get(need)
        if ring is None:
            guards = self._layout.packing.guards
            suitable = self._layout.rings.suitable(need)
            ring = reply.rings[need] = [machine for machine in suitable if reply.free[machine] != guards]
        return ring

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Use the offer for what found room, and go on to the next job."""
        reply = self._reply
        assert reply is not None, "a decision that nobody waits for"
        work, placing = reply.job, reply.placing
        assert work is not None, "a decision about nothing"
        assert placing is not None, "a decision about nothing"
        answer: Placed = Placed(*event.answer) if work.tasks else NOWHERE
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
        self._tried(
            work,
            now,
            began_us=reply.began_us,
            decision_us=self._setting.deciding.decision_us(work.workload, len(placing.tasks)),
            placed=list(found),
            refused=0,
            whole=bool(found) and len(answer.places) == len(placing.tasks),
        )
        if reply.goes_on(self._queue):
            self._port.set_timer(NEXT, now)  # the next job's decision does not include this one's
        else:
            self._answer(reply)

    def _others_hoard(self, work: Waiting) -> bool:
        """Whether something is kept for another gang: two that hoard beside each other may never be whole."""
        return self._hoarding is not None and self._hoarding is not work

    def _hoard(self, work: Waiting, found: dict[Task, int], now: Time) -> None:
        """Keep what a gang has found until it is whole."""
        if found and not work.held and self._hoard_us:
            self._port.set_timer(("hoard", work.id), now + self._hoard_us)
        if found:
            self._hoarding = work
        work.held |= found
        work.tasks = [task for task in work.tasks if task not in found]

    def _let_go(self, work: Waiting) -> None:
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
        self._asked = bool(self._queue)
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
        """The next job's turn, or the end of a pause, or of hoarding."""
        if event.key == NEXT:
            if self._reply is not None:
                self._decide(self._reply, now)
            return
        if isinstance(event.key, int):
            self.on_retry(event.key, now)
            return
        assert isinstance(event.key, tuple), event.key
        work = self._work.get(int(event.key[1]))
        if work is not None:
            self._let_go(work)
            work.tasks = self._scarcest_first(work.tasks)
            self._rest(work, now)

    def _rest(self, work: Waiting, now: Time) -> None:
        """Let others go first for a random time, or two frameworks take the same machines again and again."""
        if work.queued and (self._reply is None or self._reply.job is not work):
            if work in self._queue:
                self._queue.remove(work)
            self._port.set_timer(work.id, now + self._setting.retry_us + self._stream.randrange(self._hoard_us))

    def _give_up(self, work: Waiting, claimed: Sequence[Task] = ()) -> None:
        self._let_go(work)
        super()._give_up(work, claimed)

    def _withdraw(self, work: Waiting) -> None:
        """Have what runs killed; what was only going to run does not."""
        self._let_go(work)
        reply = self._reply
        mine = [task for task in reply.placed if task.job == work.id] if reply is not None else []
        for task in mine:
            assert reply is not None, "placed on no offer"
            del reply.placed[task]
            self._claims.pop(task.id, None)
            work.running.discard(task.id)
        super()._withdraw(work)
        if mine:
            self._jobs.finished(work.id, len(mine))

    def _claimed(self, work: Waiting) -> list[Task]:
        return []

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: Placer.on_submit,
        MoreTasks: Placer.on_more_tasks,
        Cancel: Placer.on_cancel,
        Offer: on_offer,
        Computed: on_computed,
        Ended: Placer.on_ended,
        TimerFired: on_timer,
    }
    sends = Placer.sends | sent_to("cell", Demand, Answer, Release, Withdraw)
