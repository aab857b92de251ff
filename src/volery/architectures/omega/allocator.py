"""The allocator of two-level offers, which offers all free resources to one framework at a time."""

from __future__ import annotations

from typing import Final

from volery.architectures.omega.claims import CellClaim, Claims
from volery.architectures.omega.layout import Layout, Workload
from volery.architectures.omega.messages import Answer, Demand, Ended, Offer, Release, Withdraw
from volery.core.component import Component, sent_to
from volery.core.events import TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.policies.fairness import FairOrder
from volery.roles.node import Completed, Kill, Launch

BATCH: Final = "batch"


class Terms:
    """The parameters of offers.

    Args:
        interval_us: from the first reason to make an offer to the offers of that batch.
        allocation_us: the allocator's own decision.
        least: free amount of each resource, of all machines together, below which no offer is made.
    """

    __slots__ = ("allocation_us", "interval_us", "least")

    def __init__(self, interval_us: Time, allocation_us: Time, least: tuple[int, ...]) -> None:
        self.interval_us = interval_us
        self.allocation_us = allocation_us
        self.least = least


class Allocator(Component):
    """Offers all free resources to the framework of the role with the lowest dominant share, and locks them meanwhile.

    Args:
        layout: of the cluster.
        order: of the turns of roles.
        role_of: per framework.
        terms: of offers.
    """

    __slots__ = (
        "_armed",
        "_asking",
        "_claims",
        "_held",
        "_layout",
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
        """Check the claims, locked offers and kept machines included."""
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
