"""The central scheduler of the hybrid designs: long tasks go where the estimated wait is least (Hawk, USENIX ATC 2015).

The waiting time of a unit (a worker slot) is the sum of the estimates of what was placed there and has not ended, less
what the running task has done of its own. One numpy pass over all units per placement, and a heap of as many units as
there are tasks: no other unit can be reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection

import numpy as np

from volery.architectures.hybrid.layout import Layout, Units
from volery.architectures.hybrid.messages import (
    Assign,
    CentralTasks,
    Demanded,
    Dropped,
    Ended,
    LongProbe,
    Vector,
    VectorRequest,
    WithdrawJob,
)
from volery.architectures.hybrid.phoenix import DemandReport
from volery.core.component import Component, sent_to
from volery.core.events import TimerFired
from volery.core.model import SECOND, Address, JobId, Task, TaskId, Time
from volery.policies.match import vector_bytes
from volery.roles.reservations import Kill, NoTask, Numbers, TaskRequest, by_needs

IDLE: Time = -1


class LeastWait:
    """Estimates the wait of each unit from the tasks that were placed there.

    Args:
        in_order: Whether the first of the empty units are taken, as in the Eagle authors' simulator, or random ones.
            Taking the first keeps long tasks on as few units as do.
        request_us: Time that a request takes; added where a task runs.
        stale_us: Above 0, placements see the state at the last multiple of this time, and whole seconds up to it are
            added at random to spread ties, as in DLWL of the Eagle authors' simulator.
    """

    def __init__(
        self,
        units: int,
        random: Callable[[], float],
        *,
        in_order: bool = False,
        request_us: Time = 0,
        stale_us: Time = 0,
    ) -> None:
        self.wait_us: Units = np.zeros(units, dtype=np.int64)
        self._start_us: Units = np.full(units, IDLE, dtype=np.int64)
        self._running_us: Units = np.zeros(units, dtype=np.int64)
        self._random = random
        self._in_order = in_order
        self._request_us = request_us
        self._stale_us = stale_us
        self._known_wait_us = self.wait_us
        self._epoch = 0

    def _look(self, now: Time) -> None:
        """Keep the state as it was at the last multiple of `stale_us`, before it changes or is looked at."""
        if self._stale_us and now // self._stale_us > self._epoch:
            self._epoch = now // self._stale_us
            self._known_wait_us = self.wait_us.copy()

    def place(self, count: int, estimate_us: Time, eligible: Units, now: Time) -> list[int]:
        """Choose a unit for each task: empty ones first, then always the one with the least estimated wait."""
        self._look(now)
        wait_us = (self._known_wait_us if self._stale_us else self.wait_us)[eligible]
        start_us = self._start_us[eligible]
        done_us = np.minimum(now - start_us, self._running_us[eligible]) - self._request_us
        busy_us = np.where((start_us != IDLE) & (wait_us > 0), np.maximum(wait_us - done_us, 0), wait_us)

        if self._stale_us:
            seconds = self._stale_us // SECOND
            spread = [int(self._random() * (seconds + 1)) * SECOND for _ in range(len(eligible))]
            chosen_units = self._by_heap(count, estimate_us, busy_us + np.array(spread, dtype=np.int64), eligible)
        else:
            chosen_units = self._empty_first(count, estimate_us, busy_us, wait_us, eligible)

        for unit in chosen_units:
            self.wait_us[unit] += estimate_us

        return chosen_units

    def _empty_first(self, count: int, estimate_us: Time, busy_us: Units, wait_us: Units, eligible: Units) -> list[int]:
        empty = np.flatnonzero(wait_us == 0)
        if len(empty) >= count:
            if self._in_order:
                first_units: list[int] = eligible[empty[:count]].tolist()
                return first_units
            return self._some(eligible[empty].tolist(), count)

        chosen_units: list[int] = eligible[empty].tolist()
        # The empty ones have one task each now; a step of at least 1 keeps tasks without an estimate from piling up.
        busy_us[empty] = max(estimate_us, 1)
        return chosen_units + self._by_heap(count - len(empty), estimate_us, busy_us, eligible)

    def _some(self, units: list[int], count: int) -> list[int]:
        """Random units, by the first steps of a shuffle."""
        random = self._random
        undrawn_count = len(units)

        for place in range(count):
            drawn_place = place + int(random() * undrawn_count)
            undrawn_count -= 1
            units[place], units[drawn_place] = units[drawn_place], units[place]
        return units[:count]

    def _by_heap(self, count: int, estimate_us: Time, busy_us: Units, eligible: Units) -> list[int]:
        """Give tasks one by one to the least wait; of equal units the same goes on, as in the published code."""
        # No other unit than these can get one of so many tasks.
        nearest = np.argpartition(busy_us, count - 1)[:count] if count < len(eligible) else np.arange(len(eligible))
        heap = list(zip(busy_us[nearest].tolist(), eligible[nearest].tolist(), strict=True))
        heapq.heapify(heap)
        chosen_units: list[int] = []

        step_us = max(estimate_us, 1)
        while len(chosen_units) < count:
            # The unit goes on until the next one waits less.
            wait_us, unit = heapq.heappop(heap)
            next_wait_us = heap[0][0] if heap else wait_us + step_us * count
            while wait_us <= next_wait_us and len(chosen_units) < count:
                chosen_units.append(unit)
                wait_us += step_us

            heapq.heappush(heap, (wait_us, unit))

        return chosen_units

    def started(self, unit: int, estimate_us: Time, now: Time) -> None:
        self._look(now)
        self._start_us[unit] = now
        self._running_us[unit] = estimate_us

    def ended(self, unit: int, estimate_us: Time, now: Time) -> bool:
        """Take off a task that has ended or will never run; True if nothing is left."""
        self._look(now)
        self._start_us[unit] = IDLE
        self.wait_us[unit] -= estimate_us
        return not self.wait_us[unit]


MEMO_MAX = 256
"""Number of lists of eligible units that are kept."""


class Central(Component):
    """Places the tasks of long jobs, one reservation each, and keeps the machines on which they wait or run."""

    def __init__(
        self, layout: Layout, wait: LeastWait, numbers: Numbers, *, shared: bool, demand: DemandReport | None = None
    ) -> None:
        self._layout = layout
        self._wait = wait
        self._numbers = numbers
        self._shared = shared
        self._demand = demand
        self._eligible: dict[tuple[int, bool], Units] = {}
        self._tasks: dict[int, list[Task]] = {}
        self._placements: dict[int, tuple[int, Time, bool]] = {}
        self._running: dict[JobId, dict[TaskId, Address]] = {}
        self._last_number_of: dict[Address, int] = {}
        self._long_count = [0] * len(layout.nodes)
        self._vector = 0
        self._version = 0

    def takes(self) -> Collection[type]:
        return self.receives.keys() - (frozenset() if self._demand is not None else {TimerFired})

    def on_central_tasks(self, message: CentralTasks, source: Address, now: Time) -> None:
        """Place a job, a group of tasks with the same constraints after the other."""
        # A repeated message: its tasks are placed.
        if message.number <= self._last_number_of.get(source, 0):
            return
        self._last_number_of[source] = message.number

        groups = by_needs(message.tasks)
        for needs in reversed(groups):
            self._place(groups[needs], needs, message.short, message.estimate_us, now)

        self._report_demand(now)

    def _report_demand(self, now: Time) -> None:
        if self._demand is not None:
            self._demand.arm(self._port, now)

    def _place(self, tasks: list[Task], needs: int, short: bool, estimate_us: Time, now: Time) -> None:
        eligible = self._eligible.get((needs, short))

        # Few kinds of tasks come again and again, and the list is a pass over all units.
        if eligible is None:
            if len(self._eligible) >= MEMO_MAX:
                self._eligible.clear()
            eligible = self._eligible[needs, short] = self._layout.units(needs, short)

        estimate_us = max(estimate_us, 1)
        units = self._wait.place(len(tasks), estimate_us, eligible, now)

        if self._demand is not None:
            self._demand.waiting.add(needs, len(tasks))

        # The batch is named by its first reservation.
        batch = number = self._numbers.take(len(units))
        self._tasks[batch] = tasks

        machines = self._layout.machine_of_unit[units].tolist()

        if self._shared:
            for machine in machines:
                if not self._long_count[machine]:
                    self._vector |= 1 << machine
                self._long_count[machine] += 1
            self._version += 1

        vector = vector_bytes(self._vector)
        nodes = self._layout.nodes
        step = self._numbers.step
        remaining_us = estimate_us * len(tasks)

        for unit, machine in zip(units, machines, strict=True):
            self._placements[number] = (unit, estimate_us, False)
            self._port.send(nodes[machine], LongProbe(number, batch, estimate_us, remaining_us, self._version, vector))
            number += step

    def on_task_request(self, message: TaskRequest, source: Address, now: Time) -> None:
        """Bind the next task of the job; nothing, if it was withdrawn or the request was repeated."""
        placement = self._placements.get(message.number)
        tasks = self._tasks.get(message.batch)

        if placement is None or placement[2] or not tasks:
            self._port.send(source, NoTask(message.request))
            # The job is withdrawn, or another reservation of the batch has its task: this unit waits for nothing.
            if placement is not None and not placement[2]:
                self._release(message.number, now)
            return

        self._placements[message.number] = (placement[0], placement[1], True)
        # Tasks are taken from the end: the groups were made in reverse.
        task = tasks.pop()
        if not tasks:
            del self._tasks[message.batch]

        self._wait.started(placement[0], placement[1], now)
        self._running.setdefault(task.job, {})[task.id] = source
        self._port.send(source, Assign(message.request, task, len(tasks)))

        if self._demand is not None:
            self._demand.waiting.add(task.constraints, -1)
            self._demand.arm(self._port, now)

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Forget what was placed there; a repeated notice is ignored."""
        if message.number not in self._placements:
            return

        self._release(message.number, now)

        running = self._running.get(message.job)
        if running is not None:
            running.pop(message.task, None)
            if not running:
                del self._running[message.job]

    def _release(self, number: int, now: Time) -> None:
        unit, estimate_us, _ = self._placements.pop(number)
        self._wait.ended(unit, estimate_us, now)

        if self._shared:
            machine = int(self._layout.machine_of_unit[unit])
            self._long_count[machine] -= 1
            if not self._long_count[machine]:
                self._vector ^= 1 << machine

    def on_withdraw_job(self, message: WithdrawJob, source: Address, now: Time) -> None:
        """Drop the job's tasks that no worker has asked for, and kill those that run."""
        dropped_tasks: list[TaskId] = []

        for batch in [batch for batch, tasks in self._tasks.items() if tasks[0].job == message.job]:
            tasks = self._tasks.pop(batch)
            dropped_tasks += [task.id for task in tasks]
            if self._demand is not None:
                self._demand.waiting.add(tasks[0].constraints, -len(tasks))

        for task, node in self._running.get(message.job, {}).items():
            self._port.send(node, Kill(task))

        if dropped_tasks:
            self._port.send(source, Dropped(message.job, tuple(dropped_tasks)))

        self._report_demand(now)

    def on_vector_request(self, message: VectorRequest, source: Address, now: Time) -> None:
        self._port.send(source, Vector(message.batch, vector_bytes(self._vector)))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        if self._demand is not None:
            self._demand.send(self._port)

    def check(self) -> None:
        estimates_us = sum(placement[1] for placement in self._placements.values())
        assert int(self._wait.wait_us.sum()) == estimates_us, "waits drift"
        assert sum(map(len, self._tasks.values())) <= len(self._placements), "tasks without a reservation"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        CentralTasks: on_central_tasks,
        TaskRequest: on_task_request,
        Ended: on_ended,
        WithdrawJob: on_withdraw_job,
        VectorRequest: on_vector_request,
        TimerFired: on_timer,
    }
    sends = (
        sent_to("node", LongProbe, Assign, NoTask, Kill)
        | sent_to("scheduler", Dropped, Vector)
        | sent_to("monitor", Demanded)
    )
