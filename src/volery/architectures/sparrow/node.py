"""Sparrow's node monitors: one per machine, with a queue of reservations, or of tasks without late binding.

Several users at one worker are served by strict priority or by weighted fair shares. Sparrow applies such policies at
each worker alone, so that shares over the cluster hold in expectation only (Ousterhout et al., SOSP 2013, section 4.2).

The messages are here. A batch is what was probed for together: the tasks of a job that need the same constraints, or
one task. What all designs with reservations say stands in `roles/reservations.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec

from volery.core.component import sent_to
from volery.core.events import TaskFinished
from volery.core.model import Address, Message, Task, TaskId, Time
from volery.roles.reservations import Completed, Kill, NoTask, SlotKeeper, TaskRequest, Withdraw


class Probe(Message, frozen=True):
    """Scheduler > node: a reservation; it holds no task."""

    number: int
    batch: int
    user: str = ""


class Assign(Message, frozen=True):
    """Scheduler > node: run this task in the slot that waits for the answer."""

    request: int
    task: Task


class QueueLength(Message, frozen=True):
    """Node > scheduler, without late binding: the answer to a probe, running tasks included."""

    batch: int
    number: int
    length: int


class Place(Message, frozen=True):
    """Scheduler > node, without late binding: run this task when a slot is free."""

    number: int
    task: Task
    user: str = ""


class UserOrder(Protocol):
    """The order in which the users of a worker are served."""

    def rank(self, user: str) -> float:
        """Rank of a user: the smallest is served next; of equal ones, the one who has waited longest."""
        ...

    def opened(self, user: str, waiting_users: Iterable[str]) -> None:
        """Note a user who had no entries and gets one; the others have some."""

    def served(self, user: str) -> None:
        """Note that an entry of the user was taken."""


class StrictPriority:
    """Serves the smallest number first; without preemption."""

    __slots__ = ("_priorities",)

    def __init__(self, priorities: Mapping[str, int]) -> None:
        self._priorities = priorities

    def rank(self, user: str) -> float:
        return self._priorities.get(user, float("inf"))

    def opened(self, user: str, waiting_users: Iterable[str]) -> None:
        pass

    def served(self, user: str) -> None:
        pass


class FairShare:
    """Serves the user with the fewest starts per weight.

    A user who comes back does not make up for the time away: the count of starts is raised to the least that the
    waiting users have.
    """

    __slots__ = ("_started", "_weights")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._started: dict[str, float] = {}

    def rank(self, user: str) -> float:
        return self._started[user]

    def opened(self, user: str, waiting_users: Iterable[str]) -> None:
        # Starts that were not taken while the user had no entries are not made up for: the others would starve.
        least = min([self._started[waiting_user] for waiting_user in waiting_users], default=0.0)

        self._started[user] = max(self._started.get(user, 0.0), least)

    def served(self, user: str) -> None:
        self._started[user] += 1.0 / self._weights.get(user, 1.0)


class UserQueues:
    """One first-in-first-out queue per user; entries are numbers."""

    __slots__ = ("_order", "_queues", "_user_of")

    def __init__(self, order: UserOrder) -> None:
        self._order = order
        self._queues: dict[str, dict[int, None]] = {}
        self._user_of: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._user_of)

    def push(self, number: int, user: str) -> None:
        queue = self._queues.get(user)
        if queue is None:
            self._order.opened(user, self._queues)
            queue = self._queues[user] = {}
        queue[number] = None
        self._user_of[number] = user

    def discard(self, number: int) -> None:
        user = self._user_of.pop(number)
        queue = self._queues[user]
        del queue[number]

        if not queue:
            del self._queues[user]

    def pop(self) -> int:
        """Remove and return the first entry of the user who is served next.

        Raises:
            ValueError: when the queues are empty.
        """
        user = min(self._queues, key=self._order.rank)
        number = next(iter(self._queues[user]))
        self.discard(number)

        self._order.served(user)
        return number


QueuePolicy = Literal["fifo", "priority", "fair"]

QueuedProbe = tuple[int, Address, Time, Time]
"""Batch of a reservation, its scheduler, the time of its arrival, and the node's blocked time until then."""


class NodeSetting(msgspec.Struct, frozen=True):
    """The parameters of all node monitors of a deployment.

    Args:
        schedulers: The schedulers; job j belongs to the one at j modulo their number.
    """

    schedulers: tuple[Address, ...]
    cutoff_us: Time
    policy: QueuePolicy = "fifo"
    priorities: dict[str, int] = {}
    weights: dict[str, float] = {}

    def user_queues(self) -> UserQueues | None:
        """The users' queues of one node; None: first come first served."""
        if self.policy == "priority":
            return UserQueues(StrictPriority(self.priorities))
        return UserQueues(FairShare(self.weights)) if self.policy == "fair" else None


class NodeMonitor(SlotKeeper):
    """Asks for a task when a reservation reaches a free slot (late binding); the slot stays idle meanwhile.

    The last request is kept in fields, and others that are under way in a dict that few nodes ever need: ten thousand
    dicts would be memory traffic.
    """

    __slots__ = ("_open_request", "_other_requests", "_queue", "_requests", "_setting", "_users", "_waited_us")

    def __init__(self, slots: int, setting: NodeSetting) -> None:
        super().__init__(slots)
        self._setting = setting
        self._users = setting.user_queues()
        self._queue: dict[int, QueuedProbe] = {}
        self._requests = 0
        self._open_request = 0
        self._waited_us: Time = 0
        self._other_requests: dict[int, Time] | None = None

    def on_probe(self, message: Probe, source: Address, now: Time) -> None:
        """Ask at once if a slot is free, else queue the reservation; a repeated one is asked for in vain."""
        number = message.number
        if self._idle:
            self._idle -= 1
            self._ask(source, message.batch, number, 0, 0)
            return

        if self._users is not None:
            # A repeated probe would stand twice in its user's queue.
            if number in self._queue:
                return
            self._users.push(number, message.user)

        # The time that a running long task blocks this reservation is counted from here to its request.
        blocked_us = self._blocked_us + now if self._blocking else self._blocked_us
        self._queue[number] = (message.batch, source, now, blocked_us)

    def _next(self, now: Time) -> None:
        """A slot is free: serve the next reservation."""
        queue = self._queue
        if not queue:
            self._idle += 1
            return
        number = next(iter(queue)) if self._users is None else self._users.pop()
        batch, source, arrival, blocked_us = queue.pop(number)
        self._ask(source, batch, number, now - arrival, (self._blocked_us + now * self._blocking) - blocked_us)

    def _ask(self, scheduler: Address, batch: int, number: int, waited_us: Time, blocked_us: Time) -> None:
        # Several slots, each with a request under way, are rare: the older request moves to the dict.
        if self._open_request:
            self._other_requests = self._other_requests or {}
            self._other_requests[self._open_request] = self._waited_us
        request = self._requests + 1
        self._open_request = self._requests = request
        self._waited_us = waited_us

        self._port.send(scheduler, TaskRequest(batch, number, request, len(self._queue), blocked_us))

    def on_assign(self, message: Assign, source: Address, now: Time) -> None:
        """Run the task in the slot that was kept; a repeated answer is ignored."""
        if message.request == self._open_request:
            self._open_request = 0
            waited_us = self._waited_us
        elif self._other_requests and message.request in self._other_requests:
            waited_us = self._other_requests.pop(message.request)
        else:
            return

        task = message.task
        if task.estimate_us > self._setting.cutoff_us:
            self._long_starts(now)
        self._port.launch(task, 0, waited_us)

    def on_no_task(self, message: NoTask, source: Address, now: Time) -> None:
        if message.request == self._open_request:
            self._open_request = 0
        # A repeated answer: its slot has been given to the next reservation.
        elif not self._other_requests or self._other_requests.pop(message.request, None) is None:
            return
        self._next(now)

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Drop the reservation if it still waits; one that was asked for is answered by the scheduler."""
        if self._queue.pop(message.number, None) is not None and self._users is not None:
            self._users.discard(message.number)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        self._port.kill(message.task, 0)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the result and serve the next reservation."""
        task = event.task
        setting = self._setting
        if task.estimate_us > setting.cutoff_us:
            self._long_ends(now)
        schedulers = setting.schedulers
        self._port.send(schedulers[task.job % len(schedulers)], Completed(task.id, task.job))

        self._next(now)

    def check(self) -> None:
        asking = bool(self._open_request) + len(self._other_requests or ())
        assert 0 <= self._idle <= self._slots, f"{self._idle} of {self._slots} slots idle"
        assert self._idle + asking <= self._slots, "more requests than slots"
        assert not (self._idle and self._queue), f"{self._idle} idle slots while {len(self._queue)} reservations wait"
        assert self._users is None or len(self._users) == len(self._queue), "the users' queues lost count"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Probe: on_probe,
        Assign: on_assign,
        NoTask: on_no_task,
        Withdraw: on_withdraw,
        Kill: on_kill,
        TaskFinished: on_task_finished,
    }
    sends = sent_to("scheduler", TaskRequest, Completed)


class EarlyNodeMonitor(SlotKeeper):
    """Reports the length of its queue and runs the tasks that it is sent (no late binding)."""

    __slots__ = ("_blocked", "_last_number_of", "_queue", "_setting", "_users")

    def __init__(self, slots: int, setting: NodeSetting) -> None:
        super().__init__(slots)
        self._setting = setting
        self._users = setting.user_queues()
        self._queue: dict[TaskId, tuple[Task, Time, Time]] = {}
        self._last_number_of: dict[Address, int] = {}
        self._blocked: dict[TaskId, Time] = {}

    def _launch(self, task: Task, waited_us: Time, now: Time) -> None:
        if task.estimate_us > self._setting.cutoff_us:
            self._long_starts(now)
        self._port.launch(task, 0, waited_us)

    def on_probe(self, message: Probe, source: Address, now: Time) -> None:
        """Answer with the number of tasks that run or wait here."""
        length = self._slots - self._idle + len(self._queue)
        self._port.send(source, QueueLength(message.batch, message.number, length))

    def on_place(self, message: Place, source: Address, now: Time) -> None:
        """Run the task or queue it; a repeated one is ignored."""
        if message.number <= self._last_number_of.get(source, -1):
            return
        self._last_number_of[source] = message.number
        if self._idle:
            self._idle -= 1
            self._launch(message.task, 0, now)
            return
        self._queue[message.task.id] = (message.task, now, self._blocked_us + now * self._blocking)
        if self._users is not None:
            self._users.push(message.task.id, message.user)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """Drop the task from the queue and report it, or end it."""
        waiting = self._queue.pop(message.task, None)
        # Running, or finished meanwhile: its end is reported by the machine.
        if waiting is None:
            self._port.kill(message.task, 0)
            return

        if self._users is not None:
            self._users.discard(message.task)

        schedulers = self._setting.schedulers
        self._port.send(schedulers[waiting[0].job % len(schedulers)], Completed(message.task, waiting[0].job))

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the result and run the next task."""
        ended = event.task
        setting = self._setting

        if ended.estimate_us > setting.cutoff_us:
            self._long_ends(now)
        # The wait behind long tasks travels with the result, as there is no request that could carry it.
        completed = Completed(ended.id, ended.job, self._blocked.pop(ended.id, 0))
        self._port.send(setting.schedulers[ended.job % len(setting.schedulers)], completed)

        if not self._queue:
            self._idle += 1
            return

        next_id = next(iter(self._queue)) if self._users is None else self._users.pop()
        task, arrival, blocked_before_us = self._queue.pop(next_id)
        blocked_us = self._blocked_us + now * self._blocking - blocked_before_us
        if blocked_us and task.estimate_us <= setting.cutoff_us:
            self._blocked[task.id] = blocked_us

        self._launch(task, now - arrival, now)

    def check(self) -> None:
        assert 0 <= self._idle <= self._slots, f"{self._idle} of {self._slots} slots idle"
        assert not (self._idle and self._queue), f"{self._idle} idle slots while {len(self._queue)} tasks wait"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Probe: on_probe,
        Place: on_place,
        Kill: on_kill,
        TaskFinished: on_task_finished,
    }
    sends = sent_to("scheduler", QueueLength, Completed)
