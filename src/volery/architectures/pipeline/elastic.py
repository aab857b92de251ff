"""Stages R6 and R7: machines are provisioned and released while jobs come and go.

A scheduler decides periodically, as long as tasks are queued or end and some time after: how many processors shall be
there (R7), and which machines make them up (R6). Whatever these say, a task that waits gets a machine that can hold it,
and no machine is released that is the only one to hold a task that waits; so while nothing happens nobody waits for a
decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from volery.architectures.pipeline.broker import Outside
from volery.architectures.pipeline.fleet import Boot, Fleet, Rental
from volery.architectures.pipeline.messages import Ready, Risen, SwitchOff, SwitchOn
from volery.architectures.pipeline.mortal import MortalNode
from volery.architectures.pipeline.placing import Assembly, Place
from volery.architectures.pipeline.policies import Kind, Offer, Running, Supply, Waiting
from volery.architectures.pipeline.scheduler import Scheduler
from volery.architectures.pipeline.tending import Tending
from volery.architectures.pipeline.two_level import LocalManager, ManagedMortalNode
from volery.core.component import sent_to
from volery.core.events import Counted, PeerLost, Switched, TimerFired
from volery.core.model import Address, Time

SCALE = "scale"
BOOT = "boot"
SWITCHES = sent_to("node", SwitchOn, SwitchOff)


class Elastic(Tending):
    """What makes whoever gives tasks machines provision these, too: stages R6 and R7."""

    __slots__ = ()
    _fleet: Fleet

    def _new_fleet(self, rental: Rental) -> Fleet:
        """What R7 asks for before anything has come is on when the run begins."""
        fleet = Fleet(self._state, rental)
        supply = fleet.supply(0)
        fleet.begin(self._chosen(fleet, supply, self._wanted(supply)))
        return fleet

    @property
    def first_machines(self) -> list[int]:
        """The machines that are on when the run begins, by their numbers in the whole cluster."""
        return [self._state.numbers[machine] for machine in self._fleet.since_us]

    def _wanted(self, supply: Supply) -> int:
        """Stage R7: how many units there shall be."""
        units: int = self._assembly.policies["R7"].units(self._view, supply)
        return min(max(units, 0), supply.whole)

    def _chosen(self, fleet: Fleet, supply: Supply, units: int) -> list[int]:
        """Stage R6: the machines to provision."""
        offers = fleet.offers(fleet.off)
        if units <= 0 or not offers:
            return []
        return self._offered(self._assembly.policies["R6"].provision(self._view, supply, offers, units), offers)

    def _offered(self, machines: Iterable[int], offers: list[Offer]) -> list[int]:
        found, known = list(dict.fromkeys(machines)), {offer.machine for offer in offers}
        if not known.issuperset(found):
            name = type(self._assembly.policies["R6"]).__name__
            raise ValueError(f"{name} has chosen machines {sorted(set(found) - known)}, which it was not offered")
        return found

    def _enqueue(self, waiting: Waiting) -> None:
        super()._enqueue(waiting)
        self._happened(self._state.now)

    def _release(self, running: Running, now: Time) -> None:
        super()._release(running, now)
        self._happened(now)

    def _happened(self, now: Time) -> None:
        """A task has been queued or has ended: machines are decided about for some time to come."""
        fleet = self._fleet
        fleet.happened_us = now
        if not fleet.awake:
            fleet.awake = True
            self._port.set_timer(SCALE, (now // fleet.rental.every_us + 1) * fleet.rental.every_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Also the time to decide about machines."""
        if event.key == SCALE:
            self._scale(now)
        else:
            super().on_timer(event, source, now)

    def _scale(self, now: Time) -> None:
        """Let there be as many machines as stage R7 says; whoever has rested gets back to the beginning."""
        fleet, rental = self._fleet, self._fleet.rental
        self._state.now = now
        rested_us = now - fleet.happened_us - rental.rest_us
        kinds = [(kind, count) for kind, count in self._queue.kinds.counts() if kind.possible]
        amounts, resource = self._state.packing.amounts, self._state.work_resource
        supply = fleet.supply(sum([amounts(kind.packed)[resource] * count for kind, count in kinds]))
        wanted = self._wanted(supply) if self._state.jobs or rested_us < 0 else fleet.first
        self._provision(supply, wanted, [kind for kind, _ in kinds], now)
        fleet.awake = rested_us < rental.billing.interval_us + rental.boot_us
        if fleet.awake:
            self._port.set_timer(SCALE, now + rental.every_us)

    def _provision(self, supply: Supply, wanted: int, waiting: list[Kind], now: Time) -> None:
        """Stage R6: boot machines, or switch some off that run nothing."""
        fleet = self._fleet
        boots = self._chosen(fleet, supply, wanted - supply.units)
        coming = sum([1 << machine for machine in (*boots, *fleet.booting)])
        for kind in waiting:
            if not self._state.whole.fitting(kind.need, kind.suitable & (self._state.online | coming)):
                able = self._state.whole.fitting(kind.need, kind.suitable & fleet.off & ~coming)
                if able:
                    offers = fleet.offers(able)
                    policy = self._assembly.policies["R6"]
                    more = self._offered(policy.provision(self._view, supply, offers, 1), offers) or [offers[0].machine]
                    boots += more
                    coming |= sum([1 << machine for machine in more])
        leaving = [] if boots else self._spare(supply, supply.units - wanted, waiting)
        for machine in boots:
            self._switch_on(machine, now)
        for machine in leaving:
            self._switch_off(machine)
        if boots or leaving:
            fleet.changed_us = now

    def _spare(self, supply: Supply, units: int, waiting: list[Kind]) -> list[int]:
        """Machines to release, which have so many units together at most."""
        state, fleet = self._state, self._fleet
        idle = sum(
            [
                1 << machine
                for machine, runs in enumerate(state.on_machine)
                if not runs and state.online >> machine & 1 and not self._exits.at(machine)
            ]
        )
        if units <= 0 or not idle:
            return []
        offers, left = fleet.offers(idle), state.online | sum([1 << machine for machine in fleet.booting])
        found = []
        for machine in self._offered(self._assembly.policies["R6"].release(self._view, supply, offers, units), offers):
            without = left & ~(1 << machine)
            if all(state.whole.fitting(kind.need, kind.suitable & without) for kind in waiting):
                found.append(machine)
                left = without
        return found

    def _switch_on(self, machine: int, now: Time) -> None:
        self._launches += 1
        node, boot_us = self._nodes[machine], self._fleet.rental.boot_us
        self._fleet.provisioned(machine, Boot(self._launches, now + boot_us), now)
        self._port.observe(Counted("boots"))
        self._port.send(node, SwitchOn(self._launches, boot_us, self._lives.get(node, 0)))

    def _switch_off(self, machine: int) -> None:
        self._launches += 1
        node = self._nodes[machine]
        self._fleet.released(machine)
        self._iteration.withdrawn(machine)
        self._port.send(node, SwitchOff(self._launches, self._lives.get(node, 0)))

    def on_ready(self, message: Ready, source: Address, now: Time) -> None:
        """A machine is on; an answer of before it died says nothing."""
        machine = self._nodes.index(source)
        boot = self._fleet.booting.get(machine)
        if boot is not None and boot.number == message.number:
            self._fleet.ready(machine)
            self._iteration.given_back(machine)
            self._changed(now)

    def on_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """A node has died: its machine cannot be had."""
        self._fleet.died(self._nodes.index(event.peer))
        super().on_lost(event, source, now)

    def on_risen(self, message: Risen, source: Address, now: Time) -> None:
        """A node has begun a new life; its machine is off."""
        if message.life > self._lives.get(source, 0):
            self._lives[source] = message.life
            machine = self._nodes.index(source)
            self._fleet.died(machine)
            self._fleet.risen(machine)
            self._lose(machine, now)

    def check(self) -> None:
        """Also: machines are off, boot, or are on."""
        super().check()
        self._fleet.check()


class ElasticScheduler(Elastic, Scheduler):
    """One scheduler whose machines come and go.

    Args:
        place, assembly, stream, outside: as for `Scheduler`.
        rental: how machines are had.
    """

    __slots__ = ("_fleet",)
    sends = Scheduler.sends | SWITCHES

    def __init__(
        self, place: Place, assembly: Assembly, stream: Random, outside: Outside | None, rental: Rental
    ) -> None:
        Scheduler.__init__(self, place, assembly, stream, outside)
        self._fleet = self._new_fleet(rental)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **Scheduler.receives,
        Ready: Elastic.on_ready,
    }


class ElasticManager(Elastic, LocalManager):
    """A local resource manager whose machines come and go.

    Args:
        place, assembly, stream, above: as for `LocalManager`.
        rental: how machines are had.
    """

    __slots__ = ("_fleet",)
    sends = LocalManager.sends | SWITCHES

    def __init__(self, place: Place, assembly: Assembly, stream: Random, above: Address, rental: Rental) -> None:
        LocalManager.__init__(self, place, assembly, stream, above)
        self._fleet = self._new_fleet(rental)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **LocalManager.receives,
        Ready: Elastic.on_ready,
    }


class ElasticNode(MortalNode):
    """A machine that is switched on and off.

    Args:
        manager, life: as for `MortalNode`.
        machine: its number in the whole cluster.
        on: whether it is on when the run begins.
    """

    __slots__ = ("_machine", "_on")
    sends = MortalNode.sends | sent_to("scheduler", Ready)

    def __init__(self, manager: Address, life: int, machine: int, *, on: bool) -> None:
        super().__init__(manager, life)
        self._machine = machine
        self._on = on

    def start(self, now: Time) -> None:
        """Say whether the machine is on."""
        super().start(now)
        if self._on:
            self._port.observe(Switched(now, self._machine, "on"))

    def _is_new(self, message: SwitchOn | SwitchOff) -> bool:
        """Whether it is meant for this life, and neither repeated nor overtaken."""
        if message.life != self._life or message.number <= self._launched:
            return False
        self._launched = message.number
        return True

    def on_switch_on(self, message: SwitchOn, source: Address, now: Time) -> None:
        """Boot."""
        if self._is_new(message):
            self._port.observe(Switched(now, self._machine, "booting"))
            self._port.set_timer((BOOT, message.number), now + message.boot_us)

    def on_staged(self, event: TimerFired, source: Address, now: Time) -> None:
        """Also: the machine has booted."""
        if isinstance(event.key, tuple):
            self._port.observe(Switched(now, self._machine, "on"))
            self._port.send(self._manager, Ready(int(event.key[1])))
        else:
            super().on_staged(event, source, now)

    def on_switch_off(self, message: SwitchOff, source: Address, now: Time) -> None:
        """Switch off; whoever launches here knows that nothing runs."""
        if self._is_new(message):
            self._port.observe(Switched(now, self._machine, "off"))

    receives = {  # noqa: RUF012 - as in Node
        **MortalNode.receives,
        SwitchOn: on_switch_on,
        SwitchOff: on_switch_off,
    }


class ManagedElasticNode(ElasticNode):
    """Such a machine of a local resource manager."""

    __slots__ = ()
    sends = ManagedMortalNode.sends | sent_to("lrm", Ready)
