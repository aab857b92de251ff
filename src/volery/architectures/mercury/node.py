"""Mercury's nodes: guaranteed containers start at once, queueable ones wait in a queue, and may be killed or shed.

The messages between schedulers, coordinator and nodes are here.
"""

from __future__ import annotations

import heapq
from typing import Literal

import msgspec

from volery.core.component import Component, sent_to
from volery.core.events import Preemption, TaskFinished, TimerFired
from volery.core.model import Address, JobId, Message, Task, TaskId, Time
from volery.roles.node import Heartbeats
from volery.roles.reservations import Completed, Kill


class GuaranteedRequest(Message, frozen=True):
    """Scheduler > coordinator: a guaranteed container for each of these tasks."""

    number: int
    tasks: tuple[Task, ...]


class Start(Message, frozen=True):
    """Coordinator > node: run the task in a guaranteed container, at once."""

    number: int
    task: Task


class Place(Message, frozen=True):
    """Scheduler > node: run the task in a queueable container, when a slot is free.

    Args:
        number: Number that grows with each message of the sender.
        task, attempt: The task and the attempt to run.
        left: Number of tasks of the job that have not ended, this one included.
        moves: Number of times that it was shed.
    """

    number: int
    task: Task
    attempt: int
    left: int
    moves: int = 0


class Returned(Message, frozen=True):
    """Node > scheduler: a queueable container was shed or preempted; it has to be placed again.

    Args:
        number: Number that grows with each message of the sender.
        task, attempt: The task and the attempt to be run next.
        moves: Number of times that it was shed.
        shed: Whether it was shed, and not preempted.
        wait_us, length: Load of the node, as in a heartbeat.
    """

    number: int
    task: Task
    attempt: int
    moves: int
    shed: bool
    wait_us: Time
    length: int


class Heartbeat(Message, frozen=True):
    """Node > coordinator: its load, and the guaranteed containers that have ended since the last one.

    Args:
        number: Number that grows with each message of the sender.
        wait_us: Estimated wait of a container that would be queued now.
        length: Length of the queue, or minus the number of idle slots.
        released: Tasks of guaranteed containers that have ended.
    """

    number: int
    wait_us: Time
    length: int
    released: tuple[TaskId, ...]


class Loads(Message, frozen=True):
    """Coordinator > scheduler: loads that have changed, for each of these machines as in a heartbeat."""

    machines: tuple[int, ...]
    wait_us: tuple[Time, ...]
    length: tuple[int, ...]


class Limit(Message, frozen=True):
    """Coordinator > node: shed the queued containers that are beyond this wait (microseconds) or place in the queue."""

    most: int


class Revoke(Message, frozen=True):
    """Scheduler > coordinator: the job is cancelled; drop or kill its guaranteed containers."""

    job: JobId


class Revoked(Message, frozen=True):
    """Coordinator > scheduler: these tasks of the job were dropped; the others are killed, and Completed follows."""

    job: JobId
    tasks: tuple[TaskId, ...]


COORDINATOR: Address = "central/0"
MOVES_MAX = 3
"""Number of times that a container is shed; then it stays, as where one machine alone suits."""

Load = Literal["wait", "length"]
QueueOrder = Literal["fifo", "job", "task"]


class NodeParameters(msgspec.Struct, frozen=True):
    """The parameters of all nodes of a deployment; the scheduler of job j is the one at j modulo their number."""

    schedulers: tuple[Address, ...]
    clock: Heartbeats
    load: Load
    order: QueueOrder


class HeldContainer(msgspec.Struct, gc=False):
    """A container on a node.

    Args:
        task, attempt: The task and the attempt that it runs.
        since_us: Time of its arrival, and later of its start.
        guaranteed: Whether it is guaranteed, or queueable.
        left: Number of tasks of its job that had not ended when it was placed.
        moves: Number of times that it was shed.
        ending: Whether it is being killed.
        evicted: Whether it is killed for a guaranteed one.
    """

    task: Task
    attempt: int
    since_us: Time
    guaranteed: bool = False
    left: int = 0
    moves: int = 0
    ending: bool = False
    evicted: bool = False


class Node(Component):
    """Runs containers of both kinds on one machine.

    Args:
        slots: Number of containers that it runs at once.
        seat: Place in the order of heartbeats.
        setting: Parameters of all nodes.
    """

    __slots__ = (
        "_armed",
        "_due",
        "_idle",
        "_last_number_of",
        "_message_count",
        "_queue",
        "_released",
        "_running",
        "_seat",
        "_setting",
        "_slots",
    )

    def __init__(self, slots: int, seat: int, setting: NodeParameters) -> None:
        self._idle = self._slots = slots
        self._seat = seat
        self._setting = setting
        self._running: dict[TaskId, HeldContainer] = {}
        self._due: dict[TaskId, HeldContainer] = {}
        self._queue: dict[TaskId, HeldContainer] = {}
        self._released: list[TaskId] = []
        self._last_number_of: dict[Address, int] = {}
        self._message_count = 0
        self._armed = False

    def _is_new(self, number: int, source: Address) -> bool:
        if number <= self._last_number_of.get(source, -1):
            return False
        self._last_number_of[source] = number
        return True

    def on_start(self, message: Start, source: Address, now: Time) -> None:
        """Run a guaranteed container at once, if need be in place of the queueable one that has started last."""
        if not self._is_new(message.number, source):
            return

        self._due[message.task.id] = HeldContainer(message.task, 0, now, guaranteed=True)

        if self._idle:
            self._idle -= 1
            self._next(now)
        elif len(self._due) > sum(container.ending for container in self._running.values()):
            # Slots of containers that are being killed are promised to guaranteed ones that came before.
            queueable_containers = [held for held in self._running.values() if not held.guaranteed and not held.ending]
            victim = queueable_containers[-1]
            victim.ending = victim.evicted = True
            self._port.observe(Preemption(now, victim.task.id, victim.attempt, message.task.id, "priority"))
            self._port.kill(victim.task.id, victim.attempt)

        self._arm_heartbeat(now)

    def on_place(self, message: Place, source: Address, now: Time) -> None:
        """Run a queueable container, or queue it."""
        if not self._is_new(message.number, source):
            return

        container = HeldContainer(message.task, message.attempt, now, left=message.left, moves=message.moves)
        self._queue[message.task.id] = container

        if self._idle:
            self._idle -= 1
            self._next(now)

        self._arm_heartbeat(now)

    def _in_order(self) -> list[HeldContainer]:
        """The queue in the order of service; ties go to whoever came first."""
        containers = list(self._queue.values())
        order = self._setting.order

        if order == "job":
            containers.sort(key=lambda container: container.left)
        elif order == "task":
            containers.sort(key=lambda container: container.task.estimate_us)

        return containers

    def _next(self, now: Time) -> None:
        """A slot is free: a guaranteed container that is due comes before all queueable ones."""
        if self._due:
            container = self._due.pop(next(iter(self._due)))
        elif self._queue:
            container = self._in_order()[0]
            del self._queue[container.task.id]
        else:
            self._idle += 1
            return

        waited_us = now - container.since_us
        container.since_us = now

        self._running[container.task.id] = container
        self._port.launch(container.task, container.attempt, waited_us)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end; what was preempted goes back to its scheduler."""
        container = self._running.pop(event.task.id)
        self._next(now)

        # A kill may come too late: the container has finished, and is done.
        if container.evicted and event.outcome == "killed":
            self._return(container, container.attempt + 1, now, shed=False)
        else:
            self._report_end(container)

        self._arm_heartbeat(now)

    def _report_end(self, container: HeldContainer) -> None:
        task = container.task
        if container.guaranteed:
            self._released.append(task.id)
        self._port.send(self._scheduler_of(task), Completed(task.id, task.job))

    def _scheduler_of(self, task: Task) -> Address:
        return self._setting.schedulers[task.job % len(self._setting.schedulers)]

    def _return(self, container: HeldContainer, attempt: int, now: Time, *, shed: bool) -> None:
        self._message_count += 1

        wait_us, _ = self._waits(now)
        returned = Returned(
            self._message_count, container.task, attempt, container.moves, shed, wait_us, self._length()
        )
        self._port.send(self._scheduler_of(container.task), returned)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End or drop a container of a cancelled job; one that is not here any more is reported by whoever has it."""
        if message.task in self._running:
            # Its job is cancelled: nobody is to place it elsewhere.
            running = self._running[message.task]
            running.evicted = False
            if not running.ending:
                running.ending = True
                self._port.kill(message.task, running.attempt)
            return

        container = self._due.pop(message.task, None) or self._queue.pop(message.task, None)
        if container is not None:
            self._report_end(container)
            self._arm_heartbeat(now)

    def _length(self) -> int:
        return len(self._queue) - self._idle

    def _waits(self, now: Time) -> tuple[Time, list[tuple[Time, HeldContainer]]]:
        """Estimate the wait of the next container, and of each in the queue; each takes the first free slot."""
        running = self._running.values()
        free_us = [0] * self._idle + [max(0, held.since_us + held.task.estimate_us - now) for held in running]
        # Slots whose containers are being killed count as free now.
        free_us += [0] * (self._slots - len(free_us))

        heapq.heapify(free_us)
        for due_container in self._due.values():
            heapq.heapreplace(free_us, free_us[0] + due_container.task.estimate_us)

        waits = []
        for queued in self._in_order():
            waits.append((free_us[0], queued))
            heapq.heapreplace(free_us, free_us[0] + queued.task.estimate_us)

        return free_us[0], waits

    def on_limit(self, message: Limit, source: Address, now: Time) -> None:
        """Shed what waits beyond the limit, the last first."""
        _, waits = self._waits(now)
        for place in range(len(waits) - 1, -1, -1):
            wait_us, container = waits[place]
            is_beyond = wait_us > message.most if self._setting.load == "wait" else place >= message.most

            # Shed again and again, a container would never run where one machine alone suits it.
            if is_beyond and container.moves < MOVES_MAX:
                del self._queue[container.task.id]
                container.moves += 1
                self._return(container, container.attempt, now, shed=True)
                self._arm_heartbeat(now)

    def _arm_heartbeat(self, now: Time) -> None:
        """The next heartbeat has something to report; one without news is not sent."""
        if not self._armed:
            self._armed = True
            self._port.set_timer("heartbeat", self._setting.clock.after(self._seat, now))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._armed = False
        self._message_count += 1

        wait_us, _ = self._waits(now)
        self._port.send(COORDINATOR, Heartbeat(self._message_count, wait_us, self._length(), tuple(self._released)))
        self._released.clear()

    def check(self) -> None:
        assert len(self._running) + self._idle <= self._slots, "more containers than slots"
        assert not (self._idle and self._queue), f"{self._idle} idle slots while {len(self._queue)} containers wait"
        guaranteed_count = sum(container.guaranteed for container in self._running.values())
        assert guaranteed_count + len(self._due) <= self._slots, "more guaranteed containers than slots"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Start: on_start,
        Place: on_place,
        Kill: on_kill,
        Limit: on_limit,
        TaskFinished: on_task_finished,
        TimerFired: on_timer,
    }
    sends = sent_to("scheduler", Completed, Returned) | sent_to("central", Heartbeat)
