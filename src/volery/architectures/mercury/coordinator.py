"""Mercury's central side: scheduling of guaranteed containers, and shaping of the queueable load."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from volery.architectures.mercury.node import GuaranteedRequest, Heartbeat, Limit, Load, Loads, Revoke, Revoked, Start
from volery.core.component import Component, sent_to
from volery.core.events import TimerFired
from volery.core.model import Address, Cluster, JobId, Task, TaskId, Time
from volery.policies.match import Matches
from volery.policies.queues import ConstraintQueue
from volery.roles.reservations import Kill

FOREVER = float("inf")


class LoadView:
    """Loads of all machines, as far as they were reported; waits become shorter by themselves.

    Args:
        cluster: The machines, all idle.
        load: Measure by which machines are compared.
    """

    def __init__(self, cluster: Cluster, load: Load) -> None:
        self._by_wait = load == "wait"
        self.ready_us = np.zeros(len(cluster.slots), dtype=np.int64)
        self.length = -np.array(cluster.slots, dtype=np.int64)

    def waits_us(self, now: Time) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.maximum(self.ready_us - now, 0)

    def loads(self, now: Time) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Waits in microseconds, or lengths of queues less the idle slots."""
        return self.waits_us(now) if self._by_wait else self.length

    def report(self, machine: int, wait_us: Time, length: int, now: Time) -> None:
        self.ready_us[machine] = now + wait_us
        self.length[machine] = length


class Shaping:
    """Limits the load of nodes: the mean plus some standard deviations (YARN's documentation).

    Args:
        load: Measure that is limited.
        deviations: Number of standard deviations above the mean.
        queue_min, queue_max: Bounds of a limit of lengths.
    """

    def __init__(self, load: Load, deviations: float, queue_min: int, queue_max: int) -> None:
        self.by_wait = load == "wait"
        self._deviations = deviations
        self._queue_min = queue_min
        self._queue_max = queue_max

    def limit(self, view: LoadView, now: Time) -> int:
        loads = view.loads(now) if self.by_wait else np.maximum(view.length, 0)
        limit = int(loads.mean() + self._deviations * loads.std())
        return limit if self.by_wait else max(self._queue_min, min(limit, self._queue_max))


class Coordinator(Component):
    """Gives guaranteed containers where no other guaranteed one is, and tells the schedulers the loads of all nodes.

    Args:
        cluster: The machines.
        schedulers: Addresses of the schedulers.
        matches: Matches of the machines.
        random: Source of numbers, uniform on [0, 1).
        view: View of the loads.
        sort_us: Time from one message about loads to the next.
        shaping: Limits of the queues; None: nothing is shed.
    """

    def __init__(
        self,
        cluster: Cluster,
        schedulers: tuple[Address, ...],
        matches: Matches,
        random: Callable[[], float],
        view: LoadView,
        sort_us: Time,
        shaping: Shaping | None,
    ) -> None:
        self._constraints = cluster.constraints
        self._slots = cluster.slots
        self._schedulers = schedulers
        self._nodes = [f"node/{machine}" for machine in range(len(cluster.slots))]
        self._machine_of = {address: machine for machine, address in enumerate(self._nodes)}
        self._matches = matches
        self._random = random
        self._view = view
        self._sort_us = sort_us
        self._shaping = shaping

        self._free = list(cluster.slots)
        self._machines_with_room = self._idle_machines = matches.every
        self._queue = ConstraintQueue()
        self._running: dict[TaskId, tuple[JobId, int]] = {}
        self._changed_machines: dict[int, None] = {}
        self._limit_sent: dict[int, int] = {}
        self._last_number_of: dict[Address, int] = {}
        self._starts = 0

    def _is_new(self, number: int, source: Address) -> bool:
        if number <= self._last_number_of.get(source, -1):
            return False
        self._last_number_of[source] = number
        return True

    def on_request(self, message: GuaranteedRequest, source: Address, now: Time) -> None:
        """Start each task on a machine with room for it, one without queueable containers first; else queue it."""
        if not self._is_new(message.number, source):
            return

        for task in message.tasks:
            needs = task.constraints
            candidates = self._matches[needs] & self._machines_with_room

            # A machine with queueable containers would have to kill one: those that have a slot idle are better.
            if candidates:
                self._start(
                    task, self._matches.pick(needs, candidates & self._idle_machines or candidates, self._random)
                )
            else:
                self._queue.push(task)

    def _start(self, task: Task, machine: int) -> None:
        self._free[machine] -= 1
        # Guaranteed containers alone count: a queueable one makes room.
        if not self._free[machine]:
            self._machines_with_room &= ~(1 << machine)
        self._view.length[machine] += 1
        if self._view.length[machine] >= 0:
            self._idle_machines &= ~(1 << machine)

        self._running[task.id] = (task.job, machine)
        self._starts += 1
        self._port.send(self._nodes[machine], Start(self._starts, task))

    def on_heartbeat(self, message: Heartbeat, source: Address, now: Time) -> None:
        """Give what was released to waiting tasks, and remember the load."""
        if not self._is_new(message.number, source):
            return

        machine = self._machine_of[source]
        self._view.report(machine, message.wait_us, message.length, now)
        bit = 1 << machine
        self._idle_machines = self._idle_machines | bit if message.length < 0 else self._idle_machines & ~bit

        for task in message.released:
            del self._running[task]

        if message.released:
            self._free[machine] += len(message.released)
            self._machines_with_room |= bit

        while self._free[machine] and self._queue.length:
            waiting_task = self._queue.pop_fitting(self._constraints[machine])
            if waiting_task is None:
                break
            self._start(waiting_task, machine)

        if not self._changed_machines:
            # All reports of a period are passed on together.
            self._port.set_timer("sort", now + self._sort_us - now % self._sort_us)
        self._changed_machines[machine] = None

        # A new load may exceed the limit again, also after the node has shed for it.
        self._limit_sent.pop(machine, None)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Send the loads that have changed, and a limit to each node beyond it that has not shed for as low a one."""
        machines = sorted(self._changed_machines)
        waits_us = self._view.waits_us(now)

        self._changed_machines.clear()

        news = Loads(tuple(machines), tuple(waits_us[machines].tolist()), tuple(self._view.length[machines].tolist()))
        for scheduler in self._schedulers:
            self._port.send(scheduler, news)

        if self._shaping is not None:
            limit = self._shaping.limit(self._view, now)
            is_beyond = (self._view.loads(now) > limit) & (self._view.length > 0)
            # A wait shortens by itself: two limits are compared by the time at which the wait would end.
            until = limit + now if self._shaping.by_wait else limit
            for machine in np.flatnonzero(is_beyond).tolist():
                if until < self._limit_sent.get(machine, FOREVER):
                    self._limit_sent[machine] = until
                    self._port.send(self._nodes[machine], Limit(limit))

    def on_revoke(self, message: Revoke, source: Address, now: Time) -> None:
        dropped_tasks = self._queue.remove(lambda task: task.job == message.job)
        if dropped_tasks:
            self._port.send(source, Revoked(message.job, tuple([task.id for task in dropped_tasks])))

        for task, (job, machine) in self._running.items():
            if job == message.job:
                self._port.send(self._nodes[machine], Kill(task))

    def check(self) -> None:
        assert sum(self._slots) - sum(self._free) == len(self._running), "guaranteed containers were miscounted"
        assert min(self._free) >= 0, "more guaranteed containers than slots"

        for needs in self._queue.masks():
            assert not self._matches[needs] & self._machines_with_room, (
                f"a task that needs {needs:#x} waits beside a free machine"
            )

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        GuaranteedRequest: on_request,
        Heartbeat: on_heartbeat,
        Revoke: on_revoke,
        TimerFired: on_timer,
    }
    sends = sent_to("node", Start, Kill, Limit) | sent_to("scheduler", Loads, Revoked)
