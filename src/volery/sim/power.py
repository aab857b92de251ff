"""Machines of the lab that are switched on and off: off they run nothing, and with tasks on them they stay on."""

from __future__ import annotations

from collections.abc import Sequence

from volery.core.events import Fact, Power, Switched
from volery.core.model import Cluster, Task, Time
from volery.core.provisioning import Billing
from volery.sim.execution import BrokenRule, LabPort

FOLLOWS: dict[Power, tuple[Power, ...]] = {"off": ("booting", "on"), "booting": ("on", "off"), "on": ("off",)}
"""What a machine may be switched to."""


class PowerPort(LabPort):
    """A port whose machine may be off; all but that is up to the class that follows in line.

    Attributes:
        powers: of the machines that come and go; all others are on.
        slots: per machine.
    """

    __slots__ = ()
    powers: dict[int, Power]
    slots: Sequence[int]

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Launch on a machine that is on."""
        power = self.powers.get(self.machine, "on")
        if power != "on":
            what = f"task {task.id} (job {task.job}, attempt {attempt}) on {self.address} at {self.kernel.now} us"
            raise BrokenRule(f"{what}: the machine is {power}")
        super().launch(task, attempt, waited_us, note)

    def observe(self, fact: Fact) -> None:
        """Switch the machine, where that is what has happened.

        Raises:
            BrokenRule: of another machine, to what does not follow, or off with tasks on it.
        """
        if isinstance(fact, Switched):
            self._switch(fact)
        super().observe(fact)

    def _switch(self, fact: Switched) -> None:
        power = self.powers.get(fact.machine)
        what = f"{self.address} switches machine {fact.machine} {fact.power} at {self.kernel.now} us"
        if fact.machine != self.machine or fact.at_us != self.kernel.now:
            raise BrokenRule(f"{what}: it stands on machine {self.machine}, and says that it was at {fact.at_us} us")
        if power is None or fact.power not in FOLLOWS[power]:
            raise BrokenRule(f"{what}: the machine is {power or 'always on'}")
        if fact.power == "off" and not self.at_rest(self.slots):
            raise BrokenRule(f"{what}: tasks run there")
        self.powers[fact.machine] = fact.power

    def silence(self) -> None:
        """The machine has died: it is off, and nobody there can say so."""
        super().silence()
        if self.powers.get(self.machine, "off") != "off":
            self.powers[self.machine] = "off"
            self.kernel.records.observe(Switched(self.kernel.now, self.machine, "off"))


def power_port_class(base: type[LabPort], billing: Billing, cluster: Cluster) -> type[LabPort]:
    """The ports of one role in a run in which machines come and go.

    Args:
        base: what would be the ports of this role without.
        billing: which do; they are off at first.
        cluster: all machines.
    """
    made = {"__slots__": (), "powers": dict.fromkeys(billing.machines, "off"), "slots": cluster.slots}
    return type("PowerRolePort", (PowerPort, base), made)
