"""Phoenix: reports of demand and of crowded queues to a monitor, and workers that let scarce constraints go first.

Thinakaran, Gunasekaran, Sharma, Kandemir, Das: Phoenix, ICDCS 2017, sections III and IV. The constraint resource vector
(CRV) holds, per constraint, how much work asks for it over how many workers have it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

import msgspec

from volery.architectures.hybrid.messages import Crowded, Demanded, Entry, Reorder, Scarcity
from volery.core.component import Component, sent_to
from volery.core.events import Counted, Measured, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port
from volery.policies.match import positions

WINDOW: Final = 64
"""Number of tasks that a waiting time is estimated from; the paper says recent ones."""
LOAD_MAX: Final = 0.99
"""Highest load that estimates assume: beyond, the formula says nothing."""
POSITIONS_MAX: Final = 4096
"""Number of constraint sets whose positions are kept per demand."""


def supply(constraints: Sequence[int], slots: Sequence[int]) -> list[int]:
    """The number of workers that satisfy each constraint; a machine counts as often as it has slots."""
    width = max(constraints, default=0).bit_length()
    return [sum(s for c, s in zip(constraints, slots, strict=True) if c >> k & 1) for k in range(width)]


def scarcity(demands: Sequence[Sequence[int]], available: Sequence[int]) -> list[float]:
    """The CRV: demand over supply of each constraint."""
    demand = [sum(counts) for counts in zip(*demands, strict=True)] if demands else [0] * len(available)
    return [count / workers if workers else 0.0 for count, workers in zip(demand, available, strict=True)]


class ConstraintDemand:
    """Waiting tasks per constraint."""

    def __init__(self, width: int) -> None:
        self.counts = [0] * width
        self._positions: dict[int, list[int]] = {}

    def add(self, needs: int, tasks: int) -> None:
        constraints = self._positions.get(needs)
        if constraints is None:
            if len(self._positions) >= POSITIONS_MAX:
                self._positions.clear()
            constraints = self._positions[needs] = positions(needs)

        for k in constraints:
            self.counts[k] += tasks


class Negotiation:
    """Gives up the soft constraints of tasks that no machine can satisfy.

    Args:
        soft: The constraints that may be given up, a bit set.

    Attributes:
        thousandths: The CRV as last received from the monitor.
    """

    def __init__(self, soft: int, workers: Sequence[int]) -> None:
        self._soft = soft
        self._workers = workers
        self.thousandths: Sequence[int] = (0,) * len(workers)

    def admitted(self, task: Task, supply: Callable[[int], int]) -> tuple[Task, int]:
        """The task without the soft constraints in its way, those of the highest CRV first, and their number."""
        needs = task.constraints
        soft = needs & self._soft

        if not soft or supply(needs):
            return task, 0

        dropped_count = 0
        while soft and not supply(needs):
            scarcest = 1 << max(positions(soft), key=self._rank)
            needs ^= scarcest
            soft ^= scarcest
            dropped_count += 1

        # Hard constraints alone exclude every machine: nothing is gained by giving up the soft ones.
        if not supply(needs):
            return task, 0

        return msgspec.structs.replace(task, constraints=needs), dropped_count

    def _rank(self, constraint: int) -> tuple[float, int, int]:
        """The CRV; where it is equal, few workers; a constraint that no worker satisfies is before all others."""
        available = self._workers[constraint] if constraint < len(self._workers) else 0
        ratio = self.thousandths[constraint] if available else float("inf")
        return ratio, -available, -constraint


class RecentService:
    """Estimates the wait of a queue from the last tasks that it served (Pollaczek and Khinchine).

    With arrival rate L, service time S and load R = L E[S], the mean wait is R / (1 - R) * E[S^2] / (2 E[S]).
    """

    __slots__ = ("_arrivals", "_count", "_run_times", "_servers")

    def __init__(self, servers: int) -> None:
        self._arrivals = array("q")
        self._run_times = array("q")
        self._count = 0
        self._servers = servers

    def add(self, arrival: Time, ran_us: Time) -> None:
        if self._count < WINDOW:
            self._arrivals.append(arrival)
            self._run_times.append(ran_us)
        else:
            place = self._count % WINDOW
            self._arrivals[place] = arrival
            self._run_times[place] = ran_us

        self._count += 1

    def load(self) -> float:
        """Arrival rate times mean service time, from 0 to `LOAD_MAX`; 0 while fewer than two tasks are known."""
        task_count = len(self._arrivals)
        if task_count < 2:
            return 0.0

        work_us = sum(self._run_times) / task_count
        span_us = max(self._arrivals) - min(self._arrivals)

        # A load near 1, or arrivals in one instant: the formula would divide by nothing.
        if work_us * (task_count - 1) >= LOAD_MAX * span_us * self._servers:
            return LOAD_MAX if work_us else 0.0
        return work_us * (task_count - 1) / (span_us * self._servers)

    def wait_us(self, load: float) -> float:
        """The mean wait of this queue at a load from 0 to below 1, microseconds."""
        total_us = sum(self._run_times)
        if not total_us:
            return 0.0
        return load / (1.0 - load) * sum(ran * ran for ran in self._run_times) / (2 * total_us)


NONE = -1
"""No constraint is scarce."""
BEAT = "beat"
RECEIVED = "received"


class WatchSetting(msgspec.Struct, frozen=True):
    """The parameters of the monitor and of those who report to it.

    Args:
        heartbeat_us: Period of reports, which are made at multiples of it.
        supply: Number of workers that satisfy each constraint.
    """

    monitor: Address
    heartbeat_us: Time
    supply: tuple[int, ...]
    threshold: float
    wait_load: float
    reorder_max: int
    soft: int


class DemandReport:
    """Reports the waiting tasks of one scheduler to the monitor, at a heartbeat and where they have changed."""

    def __init__(self, setting: WatchSetting) -> None:
        self._setting = setting
        self._last_report = (0,) * len(setting.supply)
        self._armed = False
        self.waiting = ConstraintDemand(len(setting.supply))

    def arm(self, port: Port, now: Time) -> None:
        if not self._armed:
            self._armed = True
            port.set_timer(BEAT, next_beat(now, self._setting.heartbeat_us))

    def send(self, port: Port) -> None:
        self._armed = False
        counts = tuple(self.waiting.counts)
        if counts != self._last_report:
            self._last_report = counts
            port.send(self._setting.monitor, Demanded(counts))


def next_beat(now: Time, heartbeat_us: Time) -> Time:
    return (now // heartbeat_us + 1) * heartbeat_us


class Monitor(Component):
    """Compares demand and supply of constraints, and orders crowded workers to let the scarcest go first."""

    def __init__(self, setting: WatchSetting, schedulers: Sequence[Address]) -> None:
        self._setting = setting
        self._schedulers = schedulers if setting.soft else ()
        self._demands: dict[Address, tuple[int, ...]] = {}
        self._crowded: dict[Address, int] = {}
        self._last_report: tuple[int, ...] = (0,) * len(setting.supply)
        self._messages = 0

    def on_demanded(self, message: Demanded, source: Address, now: Time) -> None:
        self._messages += 1
        self._demands[source] = message.counts
        self._port.set_timer(RECEIVED, now)

    def on_crowded(self, message: Crowded, source: Address, now: Time) -> None:
        self._messages += 1
        self._port.observe(Measured("estimated_wait_us", message.wait_us))
        if message.crowded:
            self._crowded.setdefault(source, NONE)
        elif self._crowded.pop(source, NONE) != NONE:
            self._send(source, Reorder(NONE))
        self._port.set_timer(RECEIVED, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Order crowded workers by the scarcest constraint, after all reports of this instant."""
        ratios = scarcity(list(self._demands.values()), self._setting.supply)

        highest_ratio = max(ratios, default=0.0)
        scarcest = ratios.index(highest_ratio) if highest_ratio > self._setting.threshold else NONE

        # Only changes are sent: a crowded worker follows its last order.
        for worker, order in self._crowded.items():
            if order != scarcest:
                self._crowded[worker] = scarcest
                self._send(worker, Reorder(scarcest))

        thousandths = tuple([round(ratio * 1000) for ratio in ratios])
        if thousandths != self._last_report:
            self._last_report = thousandths
            for scheduler in self._schedulers:
                self._send(scheduler, Scarcity(thousandths))

        self._port.observe(Counted("monitor_messages", self._messages))
        self._port.observe(Measured("crowded_workers", len(self._crowded)))
        self._messages = 0

    def _send(self, to: Address, message: Reorder | Scarcity) -> None:
        self._messages += 1
        self._port.send(to, message)

    def check(self) -> None:
        width = len(self._setting.supply)
        assert all(NONE <= order < width for order in self._crowded.values()), "an order by an unknown constraint"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Demanded: on_demanded,
        Crowded: on_crowded,
        TimerFired: on_timer,
    }
    sends = sent_to("node", Reorder) | sent_to("scheduler", Scarcity)


class CrowdReport:
    """Reports to the monitor, at a heartbeat, that a worker's queue has become crowded or is no longer so."""

    __slots__ = ("_armed", "_last_report", "_recent", "_setting", "_slots", "_start_times")

    def __init__(self, setting: WatchSetting, slots: int) -> None:
        self._setting = setting
        self._slots = slots
        self._recent: RecentService | None = None
        self._start_times: dict[TaskId, tuple[Time, Time]] = {}
        self._armed = self._last_report = False

    def began(self, task: TaskId, arrival: Time, now: Time) -> None:
        """Note the start of a task, and the time at which its reservation came."""
        self._start_times[task] = (arrival, now)

    def ended(self, task: TaskId, port: Port, now: Time) -> None:
        """Learn from the run time of a task; report at the heartbeat if that changes the verdict."""
        arrival, start = self._start_times.pop(task)

        if self._recent is None:
            self._recent = RecentService(self._slots)
        self._recent.add(arrival, now - start)

        # The verdict may change back before the heartbeat: it is looked at again when the report is sent.
        if not self._armed and self._wait_us()[0] != self._last_report:
            self._armed = True
            port.set_timer(BEAT, next_beat(now, self._setting.heartbeat_us))

    def _wait_us(self) -> tuple[bool, Time]:
        """The verdict (the estimated wait is above the threshold), and the wait."""
        if self._recent is None:
            return False, 0
        wait_us = self._recent.wait_us(self._recent.load())
        return wait_us > self._recent.wait_us(self._setting.wait_load), round(wait_us)

    def send(self, port: Port) -> None:
        self._armed = False

        crowded, wait_us = self._wait_us()
        if crowded != self._last_report:
            self._last_report = crowded
            port.send(self._setting.monitor, Crowded(crowded, wait_us))


class ScarceFirst:
    """Lets reservations that ask for the scarcest constraint pass others, each of which is passed a few times at most.

    Long reservations neither pass nor are passed.
    """

    __slots__ = ("_jump_count", "_pass_counts", "constraint", "setting")

    def __init__(self, setting: WatchSetting) -> None:
        self.setting = setting
        self.constraint = NONE
        self._pass_counts: dict[int, int] = {}
        self._jump_count = 0

    def follow(self, constraint: int, waiting: Container[int]) -> int:
        """Follow the monitor's order; returns the tasks that have passed others since the last one."""
        self.constraint = constraint
        if constraint == NONE:
            self._pass_counts = {number: times for number, times in self._pass_counts.items() if number in waiting}

        jump_count = self._jump_count
        self._jump_count = 0
        return jump_count

    def pick(self, queue: Iterable[Entry]) -> tuple[Entry | None, bool]:
        """The first that asks for the constraint, if those in front of it may be passed once more; and True.

        A reservation that may not be passed is picked itself. Where none asks for the constraint, the first one and
        False.
        """
        scarce_bit = 1 << self.constraint
        pass_counts = self._pass_counts
        reorder_max = self.setting.reorder_max

        in_front: list[int] = []
        first: Entry | None = None

        for entry in queue:
            if entry.asking:
                continue
            if first is None:
                first = entry

            if entry.long:
                break

            if entry.needs & scarce_bit:
                for number in in_front:
                    pass_counts[number] = pass_counts.get(number, 0) + 1
                self._jump_count += bool(in_front)
                return entry, True

            # It has been passed as often as it may: nobody passes it now, and what is first is served.
            if pass_counts.get(entry.number, 0) >= reorder_max:
                return first, True
            in_front.append(entry.number)
        return first, False

    def served(self, number: int) -> None:
        self._pass_counts.pop(number, None)

    def check(self) -> None:
        passes_max = max(self._pass_counts.values(), default=0)
        reorder_max = self.setting.reorder_max
        assert passes_max <= reorder_max, f"passed {passes_max} times, more than {reorder_max}"
