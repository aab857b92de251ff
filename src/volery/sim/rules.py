"""Launch rules of machines: speeds and preferences, amounts of resources, devices, and power."""

from __future__ import annotations

from volery.core.events import Fact, Power, Switched, TaskFinished
from volery.core.locality import Pace
from volery.core.model import Amounts, Cluster, JobId, Task, TaskId, Time
from volery.core.resources import packing_of
from volery.core.tariff import Billing
from volery.sim.execution import BrokenRule, LabPort, LaunchRule, launch_of
from volery.sim.lab import Lab

FOLLOWS: dict[Power, tuple[Power, ...]] = {"off": ("booting", "on"), "booting": ("on", "off"), "on": ("off",)}
"""States to which a machine may be switched, by its state."""


class PaceRule(LaunchRule):
    """True durations on the machine on which the next attempt starts.

    They depend on the machine's speed, on the place of the task's input, and on the job's preferences; they are rounded
    down to microseconds.

    Args:
        lab: of the run.
    """

    def __init__(self, lab: Lab) -> None:
        self._left_us = lab.left_us
        self._pace = Pace(lab.trace, lab.cluster)
        self._trace = lab.trace
        self._constraints = lab.cluster.constraints
        self._machine = 0
        self._first: dict[JobId, int] = {}
        self._percent: dict[TaskId, int] = {}

    def before(self, port: LabPort, task: Task, attempt: int) -> None:  # noqa: ARG002 - every launch rule has it
        """Note the machine; where the first of the job starts decides which machines are together."""
        self._machine = port.machine
        if self._trace.preference:
            wish = self._trace.preferences[self._trace.preference[task.job]]
            has = self._constraints[port.machine]
            shared = has & self._first.setdefault(task.job, has) & wish.together
            preferred = not wish.constraints & ~has and (bool(shared) or not wish.together)
            self._percent[task.id] = 100 if preferred else wish.elsewhere_percent

    def __getitem__(self, task: TaskId) -> Time:
        """The duration of the next attempt."""
        at_best_us = self._pace.attempt_us(task, self._left_us[task], self._machine)
        return at_best_us * self._percent[task] // 100 if self._trace.preference else at_best_us

    def done_us(self, task: TaskId, run_us: Time, machine: int) -> Time:
        """The part of the duration that is done after the last attempt has run so long."""
        done_us = self._pace.done_us(task, run_us, machine)
        return done_us * 100 // self._percent[task] if self._trace.preference else done_us


class CapacityRule(LaunchRule):
    """Machines offer amounts of several resources instead of slots; a task that names no devices is given some.

    Args:
        cluster: with capacities.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._capacities = cluster.capacities
        self._packing = packing = packing_of(cluster)
        self._names = (*cluster.resources, *[f"of device {device}" for device in range(packing.device_count)])
        self._free: dict[LabPort, int] = {}
        self._taken: dict[tuple[TaskId, int], int] = {}

    def placed(self, port: LabPort) -> None:
        """Offer all that the machine has."""
        self._free[port] = self._packing.free(self._capacities[port.machine])

    def after(self, port: LabPort, task: Task, attempt: int) -> None:
        """Take what the task asks for, and devices: whole ones, and one for a share."""
        packing, free, counts_devices = self._packing, self._free[port], self._packing.device_count
        took, guards = packing[task.request], packing.guards
        if counts_devices and packing.splits(task.request):
            asked = self._in_words(task.request)
            problem = f"takes {asked}; a share lies on one device, and whole numbers on whole ones"
            raise BrokenRule(f"{launch_of(port, task, attempt)}: {problem}")
        if (free - took) & guards != guards:
            asked, has = self._in_words(task.request), self._in_words(packing.fields(free))
            raise BrokenRule(f"{launch_of(port, task, attempt)}: asks for {asked} where {has} are free")
        if counts_devices:
            took = packing.named(free, took)
        self._taken[task.id, attempt] = took
        self._free[port] = packing.settled(free - took) if counts_devices else free - took

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        free = self._free[port] + self._taken.pop((event.task.id, event.attempt))
        self._free[port] = self._packing.settled(free) if self._packing.device_count else free

    def killed(self, port: LabPort, event: TaskFinished) -> None:
        self.finished(port, event, 0)

    def _in_words(self, amounts: Amounts) -> str:
        return ", ".join(f"{amount} {name}" for name, amount in zip(self._names, amounts, strict=False))


class PowerRule(LaunchRule):
    """Machines are switched on and off: off they run nothing, and with tasks on them they stay on.

    Args:
        billing: names the machines that come and go; they are off at first, and all others are on.
    """

    def __init__(self, billing: Billing) -> None:
        self._powers: dict[int, Power] = dict.fromkeys(billing.machines, "off")

    def before(self, port: LabPort, task: Task, attempt: int) -> None:
        power = self._powers.get(port.machine, "on")
        if power != "on":
            raise BrokenRule(f"{launch_of(port, task, attempt)}: the machine is {power}")

    def observed(self, port: LabPort, fact: Fact) -> None:
        """Switch the machine, where that is what has happened.

        Raises:
            BrokenRule: of another machine, to what does not follow, or off with tasks on it.
        """
        if not isinstance(fact, Switched):
            return
        now, power = port.lab.now, self._powers.get(fact.machine)
        what = f"{port.address} switches machine {fact.machine} {fact.power} at {now} us"
        if fact.machine != port.machine or fact.at_us != now:
            raise BrokenRule(f"{what}: it is on machine {port.machine}, and reports it for {fact.at_us} us")
        if power is None or fact.power not in FOLLOWS[power]:
            raise BrokenRule(f"{what}: the machine is {power or 'always on'}")
        if fact.power == "off" and not port.is_idle():
            raise BrokenRule(f"{what}: tasks run there")
        self._powers[fact.machine] = fact.power

    def silenced(self, port: LabPort) -> None:
        """Switch off the machine of a component that is gone, and record that."""
        if self._powers.get(port.machine, "off") != "off":
            self._powers[port.machine] = "off"
            port.lab.records.observe(Switched(port.lab.now, port.machine, "off"))


def machine_rules(lab: Lab, pace: PaceRule, billing: Billing | None) -> list[LaunchRule]:
    """The rules that the machines of a run need.

    Args:
        lab: of the run.
        pace: of its machines.
        billing: of machines that come and go; None: all are always on.
    """
    cluster, rules = lab.cluster, list[LaunchRule]()
    if billing is not None:
        rules.append(PowerRule(billing))
    if cluster.resources:
        rules.append(CapacityRule(cluster))
    if cluster.speeds or lab.trace.replicas or lab.trace.preference:
        rules.append(pace)
    return rules
