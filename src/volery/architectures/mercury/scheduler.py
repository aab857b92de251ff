"""Mercury's distributed schedulers: each decides the kind of container of its tasks, and places the queueable ones."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np

from volery.architectures.mercury.coordinator import LoadView
from volery.architectures.mercury.node import (
    COORDINATOR,
    GuaranteedRequest,
    Load,
    Loads,
    Place,
    Returned,
    Revoke,
    Revoked,
)
from volery.core.component import sent_to
from volery.core.events import Cancel, MoreTasks, Submit
from volery.core.model import Address, Cluster, Task, Time
from volery.policies.match import Matches, positions
from volery.roles.reservations import Completed, Kill, Numbers, ReservingScheduler
from volery.roles.submission import ANSWERS

Containers = Literal["guaranteed", "queueable", "mixed", "hybrid"]
Waiting = tuple[Task, int, int]
"""A task, its next attempt, and how often it was shed."""
NOWHERE: Address = ""
MEMO_MAX = 256
"""Number of lists of suitable machines that are kept."""


class Kinds:
    """Decides which tasks get queueable containers.

    Args:
        containers: The policy.
        share: Share of tasks, in turn, with "mixed".
        cutoff_us: Cutoff of estimates, with "hybrid".
    """

    def __init__(self, containers: Containers, share: float, cutoff_us: Time) -> None:
        self._containers = containers
        self._share = share
        self._cutoff_us = cutoff_us
        self._tasks = 0

    def is_queueable(self, task: Task) -> bool:
        if self._containers == "mixed":
            self._tasks += 1
            return int(self._tasks * self._share) > int((self._tasks - 1) * self._share)
        if self._containers == "hybrid":
            return task.estimate_us <= self._cutoff_us
        return self._containers == "queueable"


class LeastLoaded:
    """Chooses machines for queueable containers: a random one of the few with the least load, for each in turn.

    Between two reports a placement adds its own load.

    Args:
        cluster: Cluster with these machines.
        matches: Matches of these machines.
        load: Measure by which they are compared.
        candidates_max: Number of least loaded machines that are chosen from.
        queue_max: Number of containers in its queue with which a machine gets no more.
        random: Source of numbers, uniform on [0, 1).

    Attributes:
        roomy: Bit vector of the machines that may get more.
    """

    def __init__(
        self,
        cluster: Cluster,
        matches: Matches,
        load: Load,
        candidates_max: int,
        queue_max: int,
        random: Callable[[], float],
    ) -> None:
        self._view = LoadView(cluster, load)
        self._slots = cluster.slots
        self._matches = matches
        self._by_wait = load == "wait"
        self._few = candidates_max
        self.queue_max = queue_max
        self._random = random

        self.roomy = matches.every
        self._idle = 0 if self._by_wait else -1
        self._suitable: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}

    def choose(self, tasks: Sequence[Task], needs: int, now: Time) -> list[int]:
        """Machines for the first of these tasks; for fewer than all where no other has room in its queue."""
        suitable = self._suitable.get(needs)
        if suitable is None:
            if len(self._suitable) >= MEMO_MAX:
                self._suitable.clear()
            suitable = self._suitable[needs] = np.array(positions(self._matches[needs]), dtype=np.int64)

        view = self._view
        random = self._random

        machines = suitable[view.length[suitable] < self.queue_max]
        loads = view.loads(now)[machines]
        reach = len(tasks) + self._few - 1

        # Further machines cannot be reached by so many tasks; ties are broken before the cut.
        if reach < len(machines):
            nearest = np.argpartition(loads + self._ties(len(machines)), reach - 1)[:reach]
            machines = machines[nearest]
            loads = loads[nearest]

        heap = [(load, random(), machine) for load, machine in zip(loads.tolist(), machines.tolist(), strict=True)]
        heapq.heapify(heap)

        chosen_machines = []
        for task in tasks:
            if not heap:
                break

            least_loaded = [heapq.heappop(heap)]
            # Only idle machines compete with an idle one: a busy one is drawn where no machine is idle.
            while (
                len(least_loaded) < self._few and heap and (heap[0][0] <= self._idle or least_loaded[0][0] > self._idle)
            ):
                least_loaded.append(heapq.heappop(heap))

            load, tie, machine = least_loaded.pop(int(random() * len(least_loaded)))
            for entry in least_loaded:
                heapq.heappush(heap, entry)

            chosen_machines.append(machine)
            view.length[machine] += 1

            if view.length[machine] >= 0:
                # The wait grows by the task's time, shared by the slots of the machine.
                added_us = max(1, task.estimate_us // self._slots[machine])
                view.ready_us[machine] = max(now, int(view.ready_us[machine])) + added_us
                load = load + added_us if self._by_wait else load

            if not self._by_wait:
                load += 1

            if view.length[machine] < self.queue_max:
                heapq.heappush(heap, (load, tie, machine))
            else:
                self.roomy &= ~(1 << machine)

        return chosen_machines

    def report(self, machine: int, wait_us: Time, length: int, now: Time) -> None:
        """Remember the load of a machine."""
        self._view.report(machine, wait_us, length, now)
        if length < self.queue_max:
            self.roomy |= 1 << machine
        else:
            self.roomy &= ~(1 << machine)

    def _ties(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Fractions, in another order each time, so that equal loads are not taken in the order of the machines."""
        return (np.arange(count) + int(self._random() * count)) % count / count


class Scheduler(ReservingScheduler):
    """Asks the coordinator for guaranteed containers, and places queueable ones by the loads that it was told."""

    __slots__ = ("_kinds", "_last_number_of", "_matches", "_places", "_requests", "_shed", "_waiting")

    FACTS: ClassVar[tuple[tuple[str, str], ...]] = (("_shed", "shed_containers"),)

    def __init__(self, kinds: Kinds, places: LeastLoaded, matches: Matches, numbers: Numbers) -> None:
        super().__init__(numbers)
        self._kinds = kinds
        self._places = places
        self._matches = matches
        self._waiting: dict[int, deque[Waiting]] = {}
        self._last_number_of: dict[Address, int] = {}
        self._shed = 0

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        self._schedule(self._jobs.admit(message, source, 0), now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._schedule(self._jobs.more(message), now)

    def _schedule(self, tasks: Iterable[Task], now: Time) -> None:
        """Decide the kind of each task; one that fits no machine is reported."""
        guaranteed: list[Task] = []
        for task in tasks:
            if not self._matches[task.constraints]:
                self._jobs.unsatisfiable(task.job)
            elif self._kinds.is_queueable(task):
                self._running.setdefault(task.job, {})[task.id] = NOWHERE
                self._waiting.setdefault(task.constraints, deque()).append((task, 0, 0))
            else:
                self._running.setdefault(task.job, {})[task.id] = COORDINATOR
                guaranteed.append(task)

        if guaranteed:
            self._port.send(COORDINATOR, GuaranteedRequest(self._numbers.take(), tuple(guaranteed)))

        self._place(now)

    def _place(self, now: Time) -> None:
        """Place what waits; what finds every queue full waits for news of loads."""
        for needs in [needs for needs in self._waiting if self._matches[needs] & self._places.roomy]:
            line = self._waiting[needs]
            for machine in self._places.choose([waiting[0] for waiting in line], needs, now):
                task, attempt, moves = line.popleft()
                running = self._running[task.job]
                node = running[task.id] = f"node/{machine}"
                self._port.send(node, Place(self._numbers.take(), task, attempt, len(running), moves))

            if not line:
                del self._waiting[needs]

    def on_loads(self, message: Loads, source: Address, now: Time) -> None:
        """Remember the loads, and place what waited for them."""
        for machine, wait_us, length in zip(message.machines, message.wait_us, message.length, strict=True):
            self._places.report(machine, wait_us, length, now)
        self._place(now)

    def on_returned(self, message: Returned, source: Address, now: Time) -> None:
        """Place a container elsewhere that was shed or preempted, before all that wait."""
        if message.number <= self._last_number_of.get(source, -1):
            return
        self._last_number_of[source] = message.number
        task = message.task
        running = self._running.get(task.job, {})

        # Cancelled meanwhile, or a repeated message.
        if task.id not in running:
            return

        machine = int(source.partition("/")[2])

        self._shed += message.shed
        # A node that shed is full, whatever it has reported of its queue since.
        length = self._places.queue_max if message.shed else message.length
        self._places.report(machine, message.wait_us, length, now)

        if task.job in self._jobs.cancelled:
            del running[task.id]
            self._finished(task.job, running, 1)
            return

        running[task.id] = NOWHERE
        # Before all that wait: it has waited longer.
        self._waiting.setdefault(task.constraints, deque()).appendleft((task, message.attempt, message.moves))
        self._place(now)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop what waits here, and have the rest killed or dropped where it is."""
        job = message.job
        if not self._jobs.cancel(message, source):
            return
        running = self._running.get(job, {})

        for node in {node: None for node in running.values() if node == COORDINATOR}:
            self._port.send(node, Revoke(job))

        for task, node in running.items():
            if node not in (NOWHERE, COORDINATOR):
                self._port.send(node, Kill(task))

        dropped_tasks = [task for task, node in running.items() if node == NOWHERE]

        for needs, line in list(self._waiting.items()):
            other_waiting = deque([waiting for waiting in line if waiting[0].job != job])
            if other_waiting:
                self._waiting[needs] = other_waiting
            else:
                del self._waiting[needs]

        for task in dropped_tasks:
            del running[task]

        if dropped_tasks:
            self._finished(job, running, len(dropped_tasks))

    def on_revoked(self, message: Revoked, source: Address, now: Time) -> None:
        """Count the tasks that the coordinator has dropped; a repeated message is ignored."""
        running = self._running.get(message.job, {})
        dropped_tasks = [task for task in message.tasks if running.pop(task, None) is not None]
        if dropped_tasks:
            self._finished(message.job, running, len(dropped_tasks))

    def check(self) -> None:
        nodes = [node for running in self._running.values() for node in running.values()]
        waiting_count = sum(map(len, self._waiting.values()))
        blocked_needs = [needs for needs in self._waiting if not self._matches[needs] & self._places.roomy]

        assert len(blocked_needs) == len(self._waiting), "a task waits that could be placed"
        assert nodes.count(NOWHERE) == waiting_count, f"{waiting_count} tasks wait, {nodes.count(NOWHERE)} are nowhere"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: ReservingScheduler.on_completed,
        Loads: on_loads,
        Returned: on_returned,
        Revoked: on_revoked,
    }
    sends = ANSWERS | sent_to("central", GuaranteedRequest, Revoke) | sent_to("node", Place, Kill)
