"""Launch rules of machines: speeds and preferences, amounts of resources, devices, power, and replication.

The table of a run holds one attempt per task: the latest, until one finishes. Other attempts that run at once are kept
here, and beside the table when they have ended. Only runs of designs that replicate have `Copies`.
"""

from __future__ import annotations

from random import Random

import msgspec

from volery.core.capabilities import Billing, Overcommitment, Replication, Resumption
from volery.core.events import Fact, Power, Switched, TaskFinished
from volery.core.locality import PER_MILLE, Pace
from volery.core.model import NEVER, Amounts, Cluster, JobId, Task, TaskId, Time, Variability
from volery.core.records import LostAttempt
from volery.core.resources import packing_of
from volery.core.streams import Streams
from volery.sim.execution import Attempts, BrokenRule, LabPort, LaunchRule, ProgressOf, launch_of
from volery.sim.lab import Lab

FOLLOWS: dict[Power, tuple[Power, ...]] = {"off": ("booting", "on"), "booting": ("on", "off"), "on": ("off",)}
"""States to which a machine may be switched, by its state."""


class VaryingSpeed:
    """Speeds of machines over time, as factors in thousandths for consecutive periods.

    Args:
        variability: of the cluster.
    """

    def __init__(self, variability: Variability) -> None:
        self._period_us = variability.period_us
        self._spread = variability.spread_permille
        self._streams = Streams(variability.seed)
        self._drawn: dict[int, tuple[Random, list[int]]] = {}

    def permille(self, machine: int, period: int) -> int:
        """The factor of a machine in a period, which depends on seed and machine alone."""
        if machine not in self._drawn:
            self._drawn[machine] = self._streams.of(f"variability/{machine}"), []
        stream, factors = self._drawn[machine]
        while len(factors) <= period:
            factors.append(stream.randint(PER_MILLE - self._spread, PER_MILLE + self._spread))
        return factors[period]

    def run_us(self, machine: int, at_us: Time, work_us: Time) -> Time:
        """The time from `at_us` on until a machine has done so much work, rounded up."""
        start_us, left = at_us, work_us * PER_MILLE
        while True:
            period = at_us // self._period_us
            factor, lasts_us = self.permille(machine, period), (period + 1) * self._period_us - at_us
            if left <= lasts_us * factor:
                return at_us - start_us + -(-left // factor)
            left -= lasts_us * factor
            at_us += lasts_us

    def work_us(self, machine: int, at_us: Time, run_us: Time) -> Time:
        """The work that a machine does from `at_us` on in so much time, rounded down."""
        until_us, done = at_us + run_us, 0
        while at_us < until_us:
            period = at_us // self._period_us
            lasts_us = min(until_us, (period + 1) * self._period_us) - at_us
            done += lasts_us * self.permille(machine, period)
            at_us += lasts_us
        return done // PER_MILLE


class PaceRule(LaunchRule):
    """True durations on the machine on which the next attempt starts.

    They depend on the machine's speed, also over time, on the place of the task's input, and on the job's preferences;
    they are rounded down to microseconds.

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
        self._lab = lab
        self._varying = None if lab.cluster.variability is None else VaryingSpeed(lab.cluster.variability)
        self._begun_us: dict[TaskId, Time] = {}

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
        steady_us = at_best_us * self._percent[task] // 100 if self._trace.preference else at_best_us
        if self._varying is None:
            return steady_us
        self._begun_us[task] = self._lab.now
        return self._varying.run_us(self._machine, self._lab.now, steady_us)

    def done_us(self, task: TaskId, run_us: Time, machine: int) -> Time:
        """The part of the duration that is done after the last attempt has run so long."""
        if self._varying is not None:
            run_us = self._varying.work_us(machine, self._begun_us[task], run_us)
        done_us = self._pace.done_us(task, run_us, machine)
        return done_us * 100 // self._percent[task] if self._trace.preference else done_us


class CapacityRule(LaunchRule):
    """Machines offer amounts of several resources instead of slots; a task that names no devices is given some.

    Args:
        cluster: with capacities.
        factor: of these, up to which requests may add up; see `Overcommitment`.
    """

    def __init__(self, cluster: Cluster, factor: int = 1) -> None:
        self._capacities = [tuple([factor * amount for amount in offered]) for offered in cluster.capacities]
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


def machine_rules(
    lab: Lab, pace: PaceRule, billing: Billing | None, overcommitment: Overcommitment | None = None
) -> list[LaunchRule]:
    """The rules that the machines of a run need.

    Args:
        lab: of the run.
        pace: of its machines.
        billing: of machines that come and go; None: all are always on.
        overcommitment: of requests; None: there is none.
    """
    cluster, rules = lab.cluster, list[LaunchRule]()
    if billing is not None:
        rules.append(PowerRule(billing))
    if cluster.resources:
        rules.append(CapacityRule(cluster, overcommitment.factor if overcommitment is not None else 1))
    if cluster.speeds or cluster.variability is not None or lab.trace.replicas or lab.trace.preference:
        rules.append(pace)
    return rules


class Copies(Attempts):
    """Attempts of a design that declares how many attempts of a task it runs at once."""

    def __init__(self, lab: Lab, resumption: Resumption, replication: Replication, progress: ProgressOf) -> None:
        super().__init__(lab, resumption, progress)
        self._attempts_max = replication.attempts_max
        self._beside: dict[tuple[TaskId, int], tuple[LostAttempt, int]] = {}
        self._started: dict[TaskId, set[int]] = {}
        self._won: dict[TaskId, tuple[LostAttempt, int]] = {}

    def _is_new(self, before: LostAttempt, attempt: int) -> bool:
        """Of attempts that run at once the later ones may start first."""
        started = self._started.setdefault(before.task, {before.attempt})
        if attempt in started:
            return False
        started.add(attempt)
        return True

    def _follows(self, before: LostAttempt) -> bool:
        number = before.task
        won = number in self._won
        if not won and super()._follows(before):
            return True
        running = sum(task == number for task, _ in self._beside) + (not won)
        if running >= self._attempts_max:
            return False
        if not won:
            self._beside[number, before.attempt] = before, self._records.path[number]
        return True

    def launched(self, number: TaskId) -> None:
        """An attempt was launched: one that has finished before it, and is not reported yet, stays in the table."""
        if number in self._won:
            one = self.recorded(number)
            self._beside[number, one.attempt] = one, self._records.path[number]
            self._put(*self._won[number])

    def finished(self, task: TaskId, attempt: int) -> None:
        """An attempt has finished: it is the task's, unless another has finished before."""
        records, found = self._records, self._beside.pop((task, attempt), None)
        if task in self._won:
            if found is not None:
                records.lost.append(found[0])
            return
        if found is not None:
            other = self.recorded(task)
            if (task, other.attempt) in records.killed:
                records.lost.append(other)
            else:
                self._beside[task, other.attempt] = other, records.path[task]
            self._put(*found)
        self._won[task] = self.recorded(task), records.path[task]

    def _put(self, one: LostAttempt, path: int) -> None:
        records, task = self._records, one.task
        records.start_us[task], records.finish_us[task] = one.start_us, one.finish_us
        records.worker[task], records.attempt[task], records.path[task] = one.worker, one.attempt, path

    def kill(self, port: LabPort, task: TaskId, attempt: int) -> None:
        found = self._beside.get((task, attempt))
        if found is None:
            super().kill(port, task, attempt)
        elif found[0].worker == port.machine and found[0].finish_us > self._lab.now:
            self._end(port, task, attempt, found[0].finish_us)
            self._forget(task, attempt)

    def _forget(self, task: TaskId, attempt: int) -> None:
        found = self._beside.pop((task, attempt), None)
        if found is None:
            super()._forget(task, attempt)
        else:
            self._records.lost.append(msgspec.structs.replace(found[0], finish_us=NEVER))


class CopyRule(LaunchRule):
    """Reports launches and ends of attempts to `Copies`."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def after(self, port: LabPort, task: Task, attempt: int) -> None:  # noqa: ARG002 - every launch rule has it
        """Put the attempt beside another that has finished."""
        self._copies.launched(task.id)

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        """Give the task its first attempt to finish."""
        self._copies.finished(event.task.id, event.attempt)
