"""Mercury's nodes: guaranteed containers start at once, queueable ones wait in a queue, and may be killed or shed."""

from __future__ import annotations

import heapq
from typing import Literal

import msgspec

from volery.architectures.mercury.messages import Heartbeat, Limit, Place, Returned, Start
from volery.core.component import Component, sent_to
from volery.core.events import Preemption, TaskFinished, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.roles.heartbeats import Heartbeats
from volery.roles.reservations import Completed, Kill

COORDINATOR: Address = "central/0"
MOVES_MAX = 3
"""A container that was shed so often stays: nothing is better for it, as where one machine alone suits."""

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
        task, attempt: that it runs.
        since_us: when it came, and later when it started.
        guaranteed: or queueable.
        left: tasks of its job that had not ended when it was placed.
        moves: how often it was shed.
        ending: it is being killed.
        evicted: and that for a guaranteed one.
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
        slots: how many it runs at once.
        seat: in the order of heartbeats.
        setting: of all nodes.
    """

    __slots__ = (
        "_armed", "_due", "_idle", "_queue", "_released", "_running", "_seat", "_seen", "_sent", "_setting", "_slots",
    )  # fmt: skip

    def __init__(self, slots: int, seat: int, setting: NodeParameters) -> None:
        self._idle = self._slots = slots
        self._seat = seat
        self._setting = setting
        self._running: dict[TaskId, HeldContainer] = {}
        self._due: dict[TaskId, HeldContainer] = {}
        self._queue: dict[TaskId, HeldContainer] = {}
        self._released: list[TaskId] = []
        self._seen: dict[Address, int] = {}
        self._sent = 0
        self._armed = False

    def _is_new(self, number: int, source: Address) -> bool:
        if number <= self._seen.get(source, -1):
            return False
        self._seen[source] = number
        return True

    def on_start(self, message: Start, source: Address, now: Time) -> None:
        """Run a guaranteed container at once, if need be in place of the queueable one that has started last."""
        if not self._is_new(message.number, source):
            return
        self._due[message.task.id] = HeldContainer(message.task, 0, now, guaranteed=True)
        if self._idle:
            self._idle -= 1
            self._next(now)
        elif len(self._due) > sum(one.ending for one in self._running.values()):
            victim = [one for one in self._running.values() if not one.guaranteed and not one.ending][-1]
            victim.ending = victim.evicted = True
            self._port.observe(Preemption(now, victim.task.id, victim.attempt, message.task.id, "priority"))
            self._port.kill(victim.task.id, victim.attempt)
        self._news(now)

    def on_place(self, message: Place, source: Address, now: Time) -> None:
        """Run a queueable container, or queue it."""
        if not self._is_new(message.number, source):
            return
        container = HeldContainer(message.task, message.attempt, now, left=message.left, moves=message.moves)
        self._queue[message.task.id] = container
        if self._idle:
            self._idle -= 1
            self._next(now)
        self._news(now)

    def _in_order(self) -> list[HeldContainer]:
        """The queue in the order of service; ties go to whoever came first."""
        waiting, order = list(self._queue.values()), self._setting.order
        if order == "job":
            waiting.sort(key=lambda one: one.left)
        elif order == "task":
            waiting.sort(key=lambda one: one.task.estimate_us)
        return waiting

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
        waited_us, container.since_us = now - container.since_us, now
        self._running[container.task.id] = container
        self._port.launch(container.task, container.attempt, waited_us)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end; what was preempted goes back to its scheduler."""
        ended = self._running.pop(event.task.id)
        self._next(now)
        if ended.evicted and event.outcome == "killed":
            self._return(ended, ended.attempt + 1, now, shed=False)
        else:
            self._over(ended)
        self._news(now)

    def _over(self, ended: HeldContainer) -> None:
        task = ended.task
        if ended.guaranteed:
            self._released.append(task.id)
        self._port.send(self._scheduler_of(task), Completed(task.id, task.job))

    def _scheduler_of(self, task: Task) -> Address:
        return self._setting.schedulers[task.job % len(self._setting.schedulers)]

    def _return(self, gone: HeldContainer, attempt: int, now: Time, *, shed: bool) -> None:
        self._sent += 1
        wait_us, _ = self._waits(now)
        told = Returned(self._sent, gone.task, attempt, gone.moves, shed, wait_us, self._length())
        self._port.send(self._scheduler_of(gone.task), told)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End or drop a container of a cancelled job; one that is not here any more is reported by whoever has it."""
        if message.task in self._running:
            running = self._running[message.task]
            running.evicted = False
            if not running.ending:
                running.ending = True
                self._port.kill(message.task, running.attempt)
            return
        dropped = self._due.pop(message.task, None) or self._queue.pop(message.task, None)
        if dropped is not None:
            self._over(dropped)
            self._news(now)

    def _length(self) -> int:
        return len(self._queue) - self._idle

    def _waits(self, now: Time) -> tuple[Time, list[tuple[Time, HeldContainer]]]:
        """Estimate the wait of the next container, and of each in the queue; each takes the first free slot."""
        running = self._running.values()
        free_us = [0] * self._idle + [max(0, one.since_us + one.task.estimate_us - now) for one in running]
        free_us += [0] * (self._slots - len(free_us))
        heapq.heapify(free_us)
        for due in self._due.values():
            heapq.heapreplace(free_us, free_us[0] + due.task.estimate_us)
        waits = []
        for waiting in self._in_order():
            waits.append((free_us[0], waiting))
            heapq.heapreplace(free_us, free_us[0] + waiting.task.estimate_us)
        return free_us[0], waits

    def on_limit(self, message: Limit, source: Address, now: Time) -> None:
        """Shed what waits beyond the limit, the last first."""
        _, waits = self._waits(now)
        for place in range(len(waits) - 1, -1, -1):
            wait_us, waiting = waits[place]
            beyond = wait_us > message.most if self._setting.load == "wait" else place >= message.most
            if beyond and waiting.moves < MOVES_MAX:
                del self._queue[waiting.task.id]
                waiting.moves += 1
                self._return(waiting, waiting.attempt, now, shed=True)
                self._news(now)

    def _news(self, now: Time) -> None:
        """The next heartbeat has something to report; one without news is not sent."""
        if not self._armed:
            self._armed = True
            self._port.set_timer("heartbeat", self._setting.clock.after(self._seat, now))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._armed = False
        self._sent += 1
        wait_us, _ = self._waits(now)
        self._port.send(COORDINATOR, Heartbeat(self._sent, wait_us, self._length(), tuple(self._released)))
        self._released.clear()

    def check(self) -> None:
        assert len(self._running) + self._idle <= self._slots, "more containers than slots"
        assert not (self._idle and self._queue), f"{self._idle} idle slots while {len(self._queue)} containers wait"
        guaranteed = sum(one.guaranteed for one in self._running.values())
        assert guaranteed + len(self._due) <= self._slots, "more guaranteed containers than slots"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Start: on_start,
        Place: on_place,
        Kill: on_kill,
        Limit: on_limit,
        TaskFinished: on_task_finished,
        TimerFired: on_timer,
    }
    sends = sent_to("scheduler", Completed, Returned) | sent_to("central", Heartbeat)
