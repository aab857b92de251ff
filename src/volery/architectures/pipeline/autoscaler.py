"""Stages R6 and R7: machines are provisioned and released while jobs come and go (autoscaling).

A scheduler decides periodically, as long as tasks are queued or end and some time after: the number of processors (R7),
and the machines that make them up (R6). Whatever these policies say, a task that waits gets a machine that can hold it,
and no machine is released that is the only one to hold a task that waits; so while nothing happens no task waits for a
decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from volery.architectures.pipeline.attempts import Placements
from volery.architectures.pipeline.node import SwitchOff, SwitchOn
from volery.architectures.pipeline.policies import Kind, Offer, State, Supply
from volery.core.component import sent_to
from volery.core.errors import InputError
from volery.core.events import Counted
from volery.core.model import Key, Time
from volery.core.records import HOUR, Billing
from volery.policies.match import positions

SCALE = "scale"
SWITCHES = sent_to("node", SwitchOn, SwitchOff)


class Rental(msgspec.Struct, frozen=True):
    """The terms on which machines are rented.

    Args:
        boot_us: Time from being provisioned to being on.
        every_us: Time between two decisions.
        rest_us: Time in which nothing happens, after which nothing is decided any more, once the time that is paid for
            is over; where there are no jobs there are as many machines as at the beginning by then.
        billing: Billing of all machines of the cluster that come and go; its machines are numbered as there.
    """

    boot_us: Time
    every_us: Time
    rest_us: Time
    billing: Billing


def price_factors(text: str) -> Iterator[float]:
    """The factors of prices, one per hour, that a parameter gives.

    Raises:
        InputError: one is no number.
    """
    for word in text.split("+") if text else ():
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", word):
            raise InputError("pipeline:prices", f"{word!r} is no factor; write one per hour, as 1+1+0.4")
        yield float(word)


class Boot(msgspec.Struct, frozen=True):
    """A machine that boots.

    Args:
        ready_us: Time when it should be on.
    """

    number: int
    ready_us: Time


class MachinePool:
    """The machines of one scheduler that are off, boot and are on.

    Args:
        state: State of the scheduler; the pool sets its `online`.
        rental: The terms on which they are rented.

    Attributes:
        off: Bit vector of the machines that may be provisioned.
        since_us: Time of provisioning of each machine that is on or boots.
        awake: Whether decisions are made periodically.
        happened_us: Time when a task was queued or ended last.
        first: Number of units of the machines that were on at first.
    """

    def __init__(self, state: State, rental: Rental) -> None:
        self._state = state
        self.rental = rental
        self._units = [capacity[state.work_resource] for capacity in state.capacities]
        self.off = state.matches.every
        self.booting: dict[int, Boot] = {}
        self.since_us: dict[int, Time] = {}
        self.awake = False
        self.happened_us: Time = 0
        self.changed_us: Time = -1

        self.first = 0
        self._peaks: list[int] = []

        state.online = 0

    def begin(self, machines: list[int]) -> None:
        """These are on from the beginning."""
        for machine in machines:
            self.provisioned(machine, Boot(0, 0), 0)
            self.ready(machine)

        self.first = self.units_of(self._state.online)

    def units_of(self, machines: int) -> int:
        """The number of units of a vector of machines."""
        return sum([self._units[machine] for machine in positions(machines)])

    def supply(self, asked_units: int) -> Supply:
        """The supply that stage R7 is shown.

        Args:
            asked_units: Number of units that waiting tasks ask for.
        """
        state = self._state
        rental = self.rental
        held_units = sum([used[state.work_resource] for used in state.used.values()])

        hour = state.now // HOUR
        self._peaks += [0] * (hour + 1 - len(self._peaks))
        self._peaks[hour] = max(self._peaks[hour], held_units + asked_units)

        coming_units = [(boot.ready_us, self._units[machine]) for machine, boot in self.booting.items()]
        available = state.online | self.off
        all_units = self.units_of(available) + sum([units for _, units in coming_units])

        return Supply(
            self.units_of(state.online),
            tuple(coming_units),
            all_units,
            held_units,
            asked_units,
            rental.every_us,
            rental.boot_us,
            self.changed_us,
            tuple(self._peaks),
            rental.billing.factor(state.now),
        )

    def offers(self, machines: int) -> list[Offer]:
        """A vector of machines, as stage R6 sees them."""
        cluster = self._state.cluster
        billing = self.rental.billing
        now = self._state.now

        offers = []
        for machine in positions(machines):
            units = self._units[machine]
            since_us = self.since_us.get(machine)
            until_us = now if since_us is None else billing.paid_until_us(since_us, now)
            speed = cluster.speeds[machine] if cluster.speeds else 1
            offers.append(Offer(machine, units, billing.price(units), speed, until_us))

        return offers

    def provisioned(self, machine: int, boot: Boot, now: Time) -> None:
        """Count a machine that boots."""
        self.off &= ~(1 << machine)
        self.booting[machine] = boot
        self.since_us[machine] = now

    def ready(self, machine: int) -> None:
        """A machine is on."""
        del self.booting[machine]
        self._state.online |= 1 << machine

    def released(self, machine: int) -> None:
        """A machine is off."""
        del self.since_us[machine]
        self._state.online &= ~(1 << machine)
        self.off |= 1 << machine

    def failed(self, machine: int) -> None:
        """A machine cannot be had, whatever it was."""
        self.booting.pop(machine, None)
        self.since_us.pop(machine, None)
        self._state.online &= ~(1 << machine)
        self.off &= ~(1 << machine)

    def repaired(self, machine: int) -> None:
        """A machine that died can be had again."""
        self.off |= 1 << machine

    def check(self) -> None:
        """Raise AssertionError where a machine is two of on, booting and off, or it is not known since when."""
        booting = sum([1 << machine for machine in self.booting])
        online = self._state.online

        assert online & booting == online & self.off == booting & self.off == 0, "a machine is in two states"
        assert sum([1 << machine for machine in self.since_us]) == online | booting, "what is paid for is not there"

        machines_in_use = sum([1 << machine for machine, runs in enumerate(self._state.on_machine) if runs])
        assert not machines_in_use & ~online, "something runs on a machine that is not on"


class Autoscaler:
    """Decides how many machines there shall be, and which.

    Args:
        rental: The terms on which they are rented.
        provisioning: The policy of stage R6.
        scaling: The policy of stage R7.
    """

    __slots__ = ("_cycle", "_provisioning", "_rental", "_scaling", "pool")
    _cycle: Placements
    pool: MachinePool

    def __init__(self, rental: Rental, provisioning: Any, scaling: Any) -> None:
        self._rental = rental
        self._provisioning = provisioning
        self._scaling = scaling

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle; what R7 asks for before anything has come is on when the run begins."""
        self._cycle = cycle
        self.pool = MachinePool(cycle.state, self._rental)

        supply = self.pool.supply(0)
        self.pool.begin(self._choose(supply, self.wanted(supply)))

    @property
    def first_machines(self) -> list[int]:
        """The machines that are on when the run begins, by their numbers in the whole cluster."""
        return [self._cycle.state.numbers[machine] for machine in self.pool.since_us]

    def wanted(self, supply: Supply) -> int:
        """Stage R7: how many units there shall be."""
        units: int = self._scaling.units(self._cycle.view, supply)
        return min(max(units, 0), supply.whole)

    def _choose(self, supply: Supply, units: int) -> list[int]:
        """The machines to provision."""
        offers = self.pool.offers(self.pool.off)
        if units <= 0 or not offers:
            return []
        return self._check_offered(self._provisioning.provision(self._cycle.view, supply, offers, units), offers)

    def _check_offered(self, machines: Iterable[int], offers: list[Offer]) -> list[int]:
        chosen_machines = list(dict.fromkeys(machines))
        offered_machines = {offer.machine for offer in offers}

        if not offered_machines.issuperset(chosen_machines):
            name = type(self._provisioning).__name__
            surplus = sorted(set(chosen_machines) - offered_machines)
            raise ValueError(f"{name} has chosen machines {surplus}, which it was not offered")
        return chosen_machines

    def happened(self, now: Time) -> None:
        """Decide for some time to come: a task has been queued or has ended."""
        pool = self.pool
        pool.happened_us = now

        if not pool.awake:
            pool.awake = True
            every_us = self._rental.every_us
            self._cycle.port.set_timer(SCALE, (now // every_us + 1) * every_us)

    def on_timer(self, key: Key, now: Time) -> bool:
        """Let there be as many machines as stage R7 decides, or after a rest as at first; False: another timer."""
        if key != SCALE:
            return False
        pool = self.pool
        rental = self._rental
        state = self._cycle.state

        state.now = now
        rested_us = now - pool.happened_us - rental.rest_us

        kinds = [(kind, count) for kind, count in self._cycle.queue.classes.counts.items() if kind.possible]
        amounts = state.packing.amounts
        resource = state.work_resource
        supply = pool.supply(sum([amounts(kind.packed)[resource] * count for kind, count in kinds]))

        units_wanted = self.wanted(supply) if state.jobs or rested_us < 0 else pool.first
        self.provision(supply, units_wanted, [kind for kind, _ in kinds], now)

        # Those that wait may do so for another price.
        may_change = bool(rental.billing.factors and kinds)
        pool.awake = may_change or rested_us < rental.billing.interval_us + rental.boot_us

        if pool.awake:
            self._cycle.port.set_timer(SCALE, now + rental.every_us)
        return True

    def provision(self, supply: Supply, units_wanted: int, waiting: list[Kind], now: Time) -> None:
        """Stage R6: boot machines, or switch some off that run nothing."""
        pool = self.pool
        state = self._cycle.state

        boots = self._choose(supply, units_wanted - supply.units)
        coming_machines = sum([1 << machine for machine in (*boots, *pool.booting)])

        # Whatever the policies say, a task that waits gets a machine that can hold it: nothing else would bring one.
        for kind in waiting:
            if not state.whole.fitting(kind.need, kind.suitable & (state.online | coming_machines)):
                able_machines = state.whole.fitting(kind.need, kind.suitable & pool.off & ~coming_machines)
                if able_machines:
                    offers = pool.offers(able_machines)
                    machines = self._provisioning.provision(self._cycle.view, supply, offers, 1)
                    more_machines = self._check_offered(machines, offers) or [offers[0].machine]
                    boots += more_machines
                    coming_machines |= sum([1 << machine for machine in more_machines])

        # What boots is wanted: nothing is released in the same decision.
        machines_to_release = [] if boots else self._choose_spare(supply, supply.units - units_wanted, waiting)

        for machine in boots:
            self._switch_on(machine, now)

        for machine in machines_to_release:
            self._switch_off(machine)

        if boots or machines_to_release:
            pool.changed_us = now

    def _choose_spare(self, supply: Supply, units: int, waiting: list[Kind]) -> list[int]:
        """The machines to release, which have at most `units` together."""
        state = self._cycle.state
        pool = self.pool
        idle_machines = sum(
            [
                1 << machine
                for machine, runs in enumerate(state.on_machine)
                if not runs and state.online >> machine & 1 and not self._cycle.evictions.any_at(machine)
            ]
        )

        if units <= 0 or not idle_machines:
            return []
        offers = pool.offers(idle_machines)
        machines_left = state.online | sum([1 << machine for machine in pool.booting])

        spare_machines = []
        for machine in self._check_offered(self._provisioning.release(self._cycle.view, supply, offers, units), offers):
            # No machine is released that is the only one to hold a task that waits.
            other_machines = machines_left & ~(1 << machine)
            if all(state.whole.fitting(kind.need, kind.suitable & other_machines) for kind in waiting):
                spare_machines.append(machine)
                machines_left = other_machines

        return spare_machines

    def _switch_on(self, machine: int, now: Time) -> None:
        cycle = self._cycle
        boot_us = self._rental.boot_us
        number = cycle.next_number()
        node = cycle.nodes[machine]

        self.pool.provisioned(machine, Boot(number, now + boot_us), now)
        cycle.port.observe(Counted("boots"))
        cycle.port.send(node, SwitchOn(number, boot_us, cycle.incarnations.get(node, 0)))

    def _switch_off(self, machine: int) -> None:
        cycle = self._cycle
        number = cycle.next_number()
        node = cycle.nodes[machine]

        self.pool.released(machine)
        cycle.iteration.withdrawn(machine)
        cycle.port.send(node, SwitchOff(number, cycle.incarnations.get(node, 0)))

    def ready(self, machine: int, number: int, now: Time) -> None:
        """Use a machine that is on, unless the answer is to an order from before it failed."""
        boot = self.pool.booting.get(machine)
        if boot is not None and boot.number == number:
            self.pool.ready(machine)
            self._cycle.iteration.given_back(machine)
            self._cycle.changed(now)

    def check(self) -> None:
        """Raise AssertionError where a machine is two of off, booting and on."""
        self.pool.check()
