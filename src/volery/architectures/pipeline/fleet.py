"""Which machines are off, boot and are on, as whoever provisions them knows it, and what decisions are made from."""

from __future__ import annotations

import msgspec

from volery.architectures.pipeline.policies import Offer, State, Supply
from volery.core.model import Time
from volery.core.provisioning import HOUR, Billing
from volery.policies.match import positions


class Rental(msgspec.Struct, frozen=True):
    """How machines are had.

    Args:
        boot_us: from being provisioned to being on.
        every_us: time between two decisions.
        rest_us: after so long in which nothing happens nothing is decided any more, once the time that is paid for is
            over; where there are no jobs there are as many machines as at the beginning by then.
        billing: of all machines of the cluster that come and go; its machines are numbered as there.
    """

    boot_us: Time
    every_us: Time
    rest_us: Time
    billing: Billing


class Boot(msgspec.Struct, frozen=True):
    """A machine that has been told to boot.

    Args:
        number: of the message.
        ready_us: when it should be on.
    """

    number: int
    ready_us: Time


class Fleet:
    """The machines of one scheduler.

    Args:
        state: of the scheduler; `online` is what the fleet makes of it.
        rental: how machines are had.

    Attributes:
        off: vector of the machines that may be provisioned.
        booting: by machine.
        since_us: per machine that is on or boots, when it was provisioned.
        awake: whether decisions are made periodically.
        happened_us: when a task was queued or ended last.
        first: units of the machines that were on at first.
    """

    __slots__ = (
        "_peaks",
        "_state",
        "_units",
        "awake",
        "booting",
        "changed_us",
        "first",
        "happened_us",
        "off",
        "rental",
        "since_us",
    )  # fmt: skip

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
        """Of a vector of machines."""
        return sum([self._units[machine] for machine in positions(machines)])

    def supply(self, asked: int) -> Supply:
        """What stage R7 is told.

        Args:
            asked: units that waiting tasks ask for.
        """
        state, rental = self._state, self.rental
        held = sum([used[state.work_resource] for used in state.used.values()])
        hour = state.now // HOUR
        self._peaks += [0] * (hour + 1 - len(self._peaks))
        self._peaks[hour] = max(self._peaks[hour], held + asked)
        coming = [(boot.ready_us, self._units[machine]) for machine, boot in self.booting.items()]
        there = state.online | self.off
        whole = self.units_of(there) + sum([units for _, units in coming])
        return Supply(
            self.units_of(state.online), tuple(coming), whole, held, asked, rental.every_us, rental.boot_us,
            self.changed_us, tuple(self._peaks),
        )  # fmt: skip

    def offers(self, machines: int) -> list[Offer]:
        """A vector of machines, as stage R6 sees them."""
        cluster, billing, now = self._state.cluster, self.rental.billing, self._state.now
        found = []
        for machine in positions(machines):
            units, since_us = self._units[machine], self.since_us.get(machine)
            until_us = now if since_us is None else billing.paid_until_us(since_us, now)
            speed = cluster.speeds[machine] if cluster.speeds else 1
            found.append(Offer(machine, units, billing.price(units), speed, until_us))
        return found

    def provisioned(self, machine: int, boot: Boot, now: Time) -> None:
        """A machine boots."""
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

    def died(self, machine: int) -> None:
        """A machine cannot be had, whatever it was."""
        self.booting.pop(machine, None)
        self.since_us.pop(machine, None)
        self._state.online &= ~(1 << machine)
        self.off &= ~(1 << machine)

    def risen(self, machine: int) -> None:
        """A machine that died can be had again."""
        self.off |= 1 << machine

    def check(self) -> None:
        """Raise AssertionError where a machine is two of on, booting and off, or it is not known since when."""
        booting, online = sum([1 << machine for machine in self.booting]), self._state.online
        assert online & booting == online & self.off == booting & self.off == 0, "a machine is in two states"
        assert sum([1 << machine for machine in self.since_us]) == online | booting, "what is paid for is not there"
        used = sum([1 << machine for machine, runs in enumerate(self._state.on_machine) if runs])
        assert not used & ~online, "something runs on a machine that is not on"
