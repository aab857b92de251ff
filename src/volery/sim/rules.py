"""Launch rules of machines: speeds and preferences, amounts of resources, devices, power, and replication.

The table of a run holds one attempt per task: the latest, until one finishes. Other attempts that run at once are kept
here, and beside the table when they have ended. Only runs of designs that replicate have `Copies`.
"""

from __future__ import annotations

from random import Random

import msgspec

from volery.core.capabilities import Overcommitment, Replication, Resumption
from volery.core.events import Fact, Power, Switched, TaskFinished
from volery.core.locality import PER_MILLE, Pace
from volery.core.model import NEVER, Amounts, Cluster, JobId, Task, TaskId, Time, Variability
from volery.core.records import Billing, LostAttempt
from volery.core.resources import packing_of
from volery.core.streams import Streams
from volery.sim.execution import Attempts, BrokenRule, LabPort, LaunchRule, ProgressOf, launch_of
from volery.sim.lab import Lab

FOLLOWS: dict[Power, tuple[Power, ...]] = {"off": ("booting", "on"), "booting": ("on", "off"), "on": ("off",)}
"""States to which a machine may be switched, by its state."""


class VaryingSpeed:
    """Speeds of machines over time, as factors in thousandths for consecutive periods.

    Args:
        variability: Variability of the cluster's machines.
    """

    def __init__(self, variability: Variability) -> None:
        self._period_us = variability.period_us
        self._spread = variability.spread_permille
        self._streams = Streams(variability.seed)
        self._factors: dict[int, tuple[Random, list[int]]] = {}

    def permille(self, machine: int, period: int) -> int:
        """The factor of a machine in a period, which depends on seed and machine alone."""
        if machine not in self._factors:
            self._factors[machine] = self._streams.of(f"variability/{machine}"), []
        stream, factors = self._factors[machine]
        # Factors are drawn in the order of periods, whatever is looked up first: the speed does not depend on the
        # design.
        while len(factors) <= period:
            factors.append(stream.randint(PER_MILLE - self._spread, PER_MILLE + self._spread))
        return factors[period]

    def run_us(self, machine: int, at_us: Time, work_us: Time) -> Time:
        """The time from `at_us` on until a machine has done so much work, rounded up."""
        start_us = at_us
        work_permille = work_us * PER_MILLE
        while True:
            period = at_us // self._period_us
            factor = self.permille(machine, period)
            lasts_us = (period + 1) * self._period_us - at_us

            if work_permille <= lasts_us * factor:
                return at_us - start_us + -(-work_permille // factor)

            work_permille -= lasts_us * factor
            at_us += lasts_us

    def work_us(self, machine: int, at_us: Time, run_us: Time) -> Time:
        """The work that a machine does from `at_us` on in so much time, rounded down."""
        until_us = at_us + run_us
        work_permille = 0
        while at_us < until_us:
            period = at_us // self._period_us
            lasts_us = min(until_us, (period + 1) * self._period_us) - at_us
            work_permille += lasts_us * self.permille(machine, period)
            at_us += lasts_us
        return work_permille // PER_MILLE


class PaceRule(LaunchRule):
    """True durations on the machine on which the next attempt starts.

    They depend on the machine's speed, also over time, on the place of the task's input, and on the job's preferences;
    they are rounded down to microseconds.

    Args:
        lab: Shared state of the run.
    """

    def __init__(self, lab: Lab) -> None:
        self._left_us = lab.left_us
        self._pace = Pace(lab.trace, lab.cluster)
        self._trace = lab.trace
        self._constraints = lab.cluster.constraints
        self._machine = 0
        self._first_machine_constraints: dict[JobId, int] = {}
        self._percent: dict[TaskId, int] = {}
        self._lab = lab
        self._varying = None if lab.cluster.variability is None else VaryingSpeed(lab.cluster.variability)
        self._started_us: dict[TaskId, Time] = {}

    def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:  # noqa: ARG002 - every launch rule has it
        """Note the machine; where the first of the job starts decides which machines are together."""
        self._machine = port.machine
        if self._trace.preference:
            preference = self._trace.preferences[self._trace.preference[task.job]]
            offered = self._constraints[port.machine]
            shared_constraints = (
                offered & self._first_machine_constraints.setdefault(task.job, offered) & preference.together
            )
            is_preferred = not preference.constraints & ~offered and (
                bool(shared_constraints) or not preference.together
            )

            self._percent[task.id] = 100 if is_preferred else preference.elsewhere_percent

    def __getitem__(self, task: TaskId) -> Time:
        """The duration of the next attempt."""
        at_best_us = self._pace.attempt_us(task, self._left_us[task], self._machine)
        # Preference and machine are two factors; each rounds down by itself, as `done_us` inverts them.
        steady_us = at_best_us * self._percent[task] // 100 if self._trace.preference else at_best_us

        if self._varying is None:
            return steady_us
        self._started_us[task] = self._lab.now
        return self._varying.run_us(self._machine, self._lab.now, steady_us)

    def done_us(self, task: TaskId, run_us: Time, machine: int) -> Time:
        """The part of the duration that is done after the last attempt has run so long."""
        if self._varying is not None:
            run_us = self._varying.work_us(machine, self._started_us[task], run_us)

        done_us = self._pace.done_us(task, run_us, machine)
        return done_us * 100 // self._percent[task] if self._trace.preference else done_us


class CapacityRule(LaunchRule):
    """Machines offer amounts of several resources instead of slots; a task that names no devices is given some.

    Args:
        cluster: Machines with capacities.
        factor: Factor of the capacities up to which requests may add up; see `Overcommitment`.
    """

    def __init__(self, cluster: Cluster, factor: int = 1) -> None:
        self._capacities = [tuple([factor * amount for amount in offered]) for offered in cluster.capacities]
        self._packing = packing = packing_of(cluster)
        self._names = (*cluster.resources, *[f"of device {device}" for device in range(packing.device_count)])
        self._free: dict[LabPort, int] = {}
        self._amounts_taken: dict[tuple[TaskId, int], int] = {}

    def placed(self, port: LabPort) -> None:
        """Offer all that the machine has."""
        self._free[port] = self._packing.free(self._capacities[port.machine])

    def launched(self, port: LabPort, task: Task, attempt: int) -> None:
        """Take what the task asks for, and devices: whole ones, and one for a share."""
        packing = self._packing
        free = self._free[port]
        counts_devices = self._packing.device_count
        amounts = packing[task.request]
        guards = packing.guards

        if counts_devices and packing.splits(task.request):
            request_text = self._in_words(task.request)
            problem = f"takes {request_text}; a share lies on one device, and whole numbers on whole ones"
            raise BrokenRule(f"{launch_of(port, task, attempt)}: {problem}")

        if (free - amounts) & guards != guards:
            request_text, free_text = self._in_words(task.request), self._in_words(packing.fields(free))
            raise BrokenRule(f"{launch_of(port, task, attempt)}: asks for {request_text} where {free_text} are free")

        # The lab chooses devices by the same rule as the design's own packing.
        if counts_devices:
            amounts = packing.named(free, amounts)

        self._amounts_taken[task.id, attempt] = amounts
        self._free[port] = packing.settled(free - amounts) if counts_devices else free - amounts

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        free = self._free[port] + self._amounts_taken.pop((event.task.id, event.attempt))
        self._free[port] = self._packing.settled(free) if self._packing.device_count else free

    def killed(self, port: LabPort, event: TaskFinished) -> None:
        self.finished(port, event, 0)

    def _in_words(self, amounts: Amounts) -> str:
        return ", ".join(f"{amount} {name}" for name, amount in zip(self._names, amounts, strict=False))


class PowerRule(LaunchRule):
    """Machines are switched on and off: off they run nothing, and with tasks on them they stay on.

    Args:
        billing: Billing of machines that come and go; they are off at first, and all others are on.
    """

    def __init__(self, billing: Billing) -> None:
        self._powers: dict[int, Power] = dict.fromkeys(billing.machines, "off")

    def check_launch(self, port: LabPort, task: Task, attempt: int) -> None:
        power = self._powers.get(port.machine, "on")
        if power != "on":
            raise BrokenRule(f"{launch_of(port, task, attempt)}: the machine is {power}")

    def observed(self, port: LabPort, fact: Fact) -> None:
        """Switch the machine, where that is what has happened.

        Raises:
            BrokenRule: the machine is another's, it cannot come to this state now, or it goes off with tasks on it.
        """
        if not isinstance(fact, Switched):
            return
        now = port.lab.now
        power = self._powers.get(fact.machine)
        subject = f"{port.address} switches machine {fact.machine} {fact.power} at {now} us"

        # A component reports its own machine, at once: else records of power and of tasks could contradict each
        # other.
        if fact.machine != port.machine or fact.at_us != now:
            raise BrokenRule(f"{subject}: it is on machine {port.machine}, and reports it for {fact.at_us} us")

        if power is None or fact.power not in FOLLOWS[power]:
            raise BrokenRule(f"{subject}: the machine is {power or 'always on'}")

        if fact.power == "off" and not port.is_idle():
            raise BrokenRule(f"{subject}: tasks run there")
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
        lab: Shared state of the run.
        pace: Pace of the run's machines.
        billing: Billing of machines that come and go; None: all are always on.
        overcommitment: Overcommitment of requests; None: there is none.
    """
    cluster = lab.cluster
    rules = list[LaunchRule]()
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
        self._other_attempts: dict[tuple[TaskId, int], tuple[LostAttempt, int]] = {}
        self._started: dict[TaskId, set[int]] = {}
        self._winners: dict[TaskId, tuple[LostAttempt, int]] = {}

    def _is_new(self, previous: LostAttempt, attempt: int) -> bool:
        """True if an attempt was never started: of those that run at once a later one may start first."""
        started = self._started.setdefault(previous.task, {previous.attempt})
        if attempt in started:
            return False

        started.add(attempt)
        return True

    def _follows(self, previous: LostAttempt) -> bool:
        number = previous.task
        # A winner in the table has ended: it is none of the attempts that run at once.
        has_winner = number in self._winners
        if not has_winner and super()._follows(previous):
            return True

        running = sum(task == number for task, _ in self._other_attempts) + (not has_winner)
        if running >= self._attempts_max:
            return False

        if not has_winner:
            self._other_attempts[number, previous.attempt] = previous, self._records.path[number]
        return True

    def keep_winner(self, number: TaskId) -> None:
        """Keep an attempt in the table that has finished and is not reported yet: another was launched after it."""
        # The launch has overwritten the table's row of the winner: move the launched attempt beside it and write the
        # winner back.
        if number in self._winners:
            latest = self.recorded(number)
            self._other_attempts[number, latest.attempt] = latest, self._records.path[number]
            self._put(*self._winners[number])

    def finished(self, task: TaskId, attempt: int) -> None:
        """An attempt has finished: it is the task's, unless another has finished before."""
        records = self._records
        copy = self._other_attempts.pop((task, attempt), None)

        # A task is done by its first attempt to finish: a copy that finishes later is lost work.
        if task in self._winners:
            if copy is not None:
                records.lost.append(copy[0])
            return

        if copy is not None:
            current = self.recorded(task)
            if (task, current.attempt) in records.killed:
                records.lost.append(current)
            else:
                self._other_attempts[task, current.attempt] = current, records.path[task]
            self._put(*copy)

        self._winners[task] = self.recorded(task), records.path[task]

    def _put(self, attempt: LostAttempt, path: int) -> None:
        records, task = self._records, attempt.task
        records.start_us[task], records.finish_us[task] = attempt.start_us, attempt.finish_us
        records.worker[task], records.attempt[task], records.path[task] = attempt.worker, attempt.attempt, path

    def kill(self, port: LabPort, task: TaskId, attempt: int) -> None:
        copy = self._other_attempts.get((task, attempt))
        if copy is None:
            super().kill(port, task, attempt)
        elif copy[0].worker == port.machine and copy[0].finish_us > self._lab.now:
            self._end(port, task, attempt, copy[0].finish_us)
            self._forget(task, attempt)

    def _forget(self, task: TaskId, attempt: int) -> None:
        copy = self._other_attempts.pop((task, attempt), None)
        if copy is None:
            super()._forget(task, attempt)
        else:
            self._records.lost.append(msgspec.structs.replace(copy[0], finish_us=NEVER))


class CopyRule(LaunchRule):
    """Reports launches and ends of attempts to `Copies`."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def launched(self, port: LabPort, task: Task, attempt: int) -> None:  # noqa: ARG002 - every launch rule has it
        """Put the attempt beside another that has finished."""
        self._copies.keep_winner(task.id)

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        """Give the task its first attempt to finish."""
        self._copies.finished(event.task.id, event.attempt)
