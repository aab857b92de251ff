"""Attempts that run: evictions, speculative execution (stage T9) and migration (stage T12).

In the scheduler's state an evicted task has given its room back, and others may have been given it. They are launched
when the machine has reported all ends: one round trip later, so that no machine ever holds both.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from volery.architectures.pipeline.iterations import Iteration
from volery.architectures.pipeline.policies import Candidates, Running, State, View, Waiting
from volery.architectures.pipeline.queues import Queue
from volery.architectures.pipeline.targets import Targets
from volery.core.model import NEVER, Address, Key, TaskId, Time
from volery.core.port import Port
from volery.core.records import ATTEMPT_MAX

LATE_RATIO_MAX = 16
"""Ratio of a late task's age to its age at first, until which copies of it are tried."""
COPIES = "copies"
MOVES = "moves"
MOVED = "moved "


class AfterEviction(StrEnum):
    """The fate of a task whose attempt is evicted."""

    QUEUE = "queue"
    """It goes back to the queue."""
    MOVE = "move"
    """It goes on elsewhere."""
    NOTHING = "nothing"
    """Another attempt of it goes on, or has finished."""
    OVER = "over"
    """It is not wanted any more."""


class PendingEviction(msgspec.Struct):
    """An attempt that is being ended.

    Args:
        then: The fate of its task.
        beneficiary: The task that gets its place; NEVER: none.
        target: The attempt by which it goes on elsewhere.
    """

    running: Running
    attempt: int
    then: AfterEviction
    beneficiary: TaskId
    target: Running | None = None

    @property
    def waiting(self) -> Waiting:
        return self.running.waiting


class Evictions:
    """The pending evictions of a scheduler, and the launches that wait for them.

    Attributes:
        pending: Evictions by task and attempt.
    """

    __slots__ = ("_counts", "_pending_launches", "pending")

    def __init__(self) -> None:
        self.pending: dict[tuple[TaskId, int], PendingEviction] = {}
        self._counts: dict[int, int] = {}
        self._pending_launches: dict[int, list[Running]] = {}

    def add(self, eviction: PendingEviction) -> None:
        """Expect the end of an attempt."""
        self.pending[eviction.waiting.task.id, eviction.attempt] = eviction
        machine = eviction.running.machine
        self._counts[machine] = self._counts.get(machine, 0) + 1

    def maybe_hold(self, running: Running) -> bool:
        """Keep a launch that has to wait; False: it need not."""
        if running.machine not in self._counts:
            return False
        self._pending_launches.setdefault(running.machine, []).append(running)
        return True

    def any_at(self, machine: int) -> bool:
        """True where evictions are pending on a machine."""
        return machine in self._counts

    def drop(self, running: Running) -> None:
        """Forget a launch that waits."""
        launches = self._pending_launches.get(running.machine, [])
        if any(launch is running for launch in launches):
            self._pending_launches[running.machine] = [launch for launch in launches if launch is not running]

    def close(self, task: TaskId, attempt: int) -> tuple[PendingEviction | None, list[Running]]:
        """Take in the end of an attempt; returns its eviction, and the launches that need not wait any more."""
        eviction = self.pending.pop((task, attempt), None)
        if eviction is None:
            return None, []

        machine = eviction.running.machine
        self._counts[machine] -= 1

        # Others are still to end there, and what is free may be theirs.
        if self._counts[machine]:
            return eviction, []

        del self._counts[machine]
        return eviction, self._pending_launches.pop(machine, [])

    def clear(self, machine: int) -> list[PendingEviction]:
        """Close all evictions on a machine that has failed: no end will be reported."""
        # The launches that waited for these ends are lost with the machine.
        evictions = [eviction for eviction in self.pending.values() if eviction.running.machine == machine]
        for eviction in evictions:
            self.close(eviction.waiting.task.id, eviction.attempt)
        return evictions

    def of_task(self, task: TaskId) -> list[PendingEviction]:
        """The pending evictions of a task's attempts."""
        return [eviction for (number, _), eviction in self.pending.items() if number == task]

    def check_rest(self) -> None:
        """Raise AssertionError where an end was never reported."""
        assert not self.pending, f"ends of {list(self.pending)} were not reported"
        assert not self._pending_launches, "launches wait for nothing"


class Placements(Protocol):
    """The cycle, as its parts use it.

    Attributes:
        nodes: Address of each target.
        incarnations: The last known incarnation of each node that has restarted.
        port: Port of the component, from its start on.
    """

    targets: Targets
    state: State
    view: View
    queue: Queue
    iteration: Iteration
    evictions: Evictions
    nodes: Sequence[Address]
    incarnations: dict[Address, int]
    port: Port

    def changed(self, now: Time) -> None:
        """Let there be a cycle."""

    def submit_task(self, waiting: Waiting, target: int, now: Time, takes: int | None = None) -> Running:
        """Give a task a target."""

    def start(self, running: Running) -> None:
        """Launch an attempt as soon as it may."""

    def runs(self, running: Running) -> bool:
        """True for an attempt that runs, or is about to."""

    def evict(self, running: Running, then: AfterEviction, now: Time, beneficiary: TaskId = NEVER) -> PendingEviction:
        """End an attempt on purpose."""

    def release(self, running: Running, now: Time) -> None:
        """Give an attempt's room back."""

    def enqueue(self, waiting: Waiting) -> None:
        """Queue a task."""

    def next_number(self) -> int:
        """The number of the next message to a target."""


class Speculation:
    """Stage T9: further attempts of tasks that run, of which the first to finish counts."""

    __slots__ = ("_cycle", "_policy", "_reconsiderations")
    _cycle: Placements

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._reconsiderations: list[tuple[Time, int, Running]] = []

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle

    def on_timer(self, key: Key, now: Time) -> bool:
        """Reconsider late tasks; returns whether the timer is for that."""
        if key != COPIES:
            return False

        cycle = self._cycle
        cycle.state.now = now
        while self._reconsiderations and self._reconsiderations[0][0] <= now:
            _, _, running = heapq.heappop(self._reconsiderations)
            if cycle.runs(running) and not running.ending:
                self.replicate(running, now)
                age_us = now - running.start_us
                first_us = self._first_us(running)

                # There was no room, or too many others were late: try again, the later the older the task is.
                if self._count(running) < 2 and age_us < LATE_RATIO_MAX * first_us:
                    next_us = now + max(1, age_us // 4)
                    heapq.heappush(self._reconsiderations, (next_us, running.task.id, running))

        self.rearm()
        return True

    def replicate(self, running: Running, now: Time) -> None:
        """Let other machines run the task, too, as far as they have room now."""
        cycle = self._cycle
        waiting = running.waiting
        state = cycle.state
        while self._count(running) < self._policy.copies(cycle.view, running):
            used_machines = sum([1 << attempt.machine for attempt in cycle.view.attempts(waiting)])
            free_machines = waiting.kind.suitable & state.online & ~used_machines
            candidates = Candidates(state, waiting, free_machines)

            if waiting.attempt >= ATTEMPT_MAX or not candidates.vector:
                break

            machine = cycle.targets.select(waiting, candidates)
            if machine < 0:
                break

            copy = state.copied(waiting, machine, now)
            cycle.iteration.started(machine)
            cycle.start(copy)

        ask_us = self._policy.ask_us(cycle.view, running)
        if ask_us > now:
            heapq.heappush(self._reconsiderations, (ask_us, running.task.id, running))
            self.rearm()

    def _count(self, running: Running) -> int:
        return len(self._cycle.view.attempts(running.waiting))

    def rearm(self) -> None:
        """Set the one timer for all tasks that are reconsidered."""
        cycle = self._cycle
        reconsiderations = self._reconsiderations
        if not reconsiderations:
            return

        # Attempts that have ended are left in the heap until they are its first.
        while reconsiderations and not cycle.runs(reconsiderations[0][2]):
            heapq.heappop(reconsiderations)

        if reconsiderations:
            cycle.port.set_timer(COPIES, reconsiderations[0][0])
        else:
            cycle.port.cancel_timer(COPIES)

    def _first_us(self, running: Running) -> Time:
        """The age at which a task is considered first."""
        ask_us: Time = self._policy.ask_us(self._cycle.view, running)
        return max(1, ask_us - running.start_us)

    def end_others(self, running: Running, now: Time) -> None:
        """End the other attempts of a task."""
        cycle = self._cycle
        for attempt in cycle.view.attempts(running.waiting):
            if attempt is not running:
                if attempt.sent:
                    cycle.evict(attempt, AfterEviction.NOTHING, now)
                else:
                    # No machine has a copy that was not sent: nobody would report its end.
                    cycle.evictions.drop(attempt)
                    cycle.release(attempt, now)


class Migration:
    """Stage T12: running tasks that go on elsewhere."""

    __slots__ = ("_cycle", "_is_due", "_moved_attempts", "_policy")
    _cycle: Placements

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._is_due = False
        self._moved_attempts: dict[Key, Running] = {}

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle

    def on_timer(self, key: Key, now: Time) -> bool:
        """Move tasks, or start one that was moved; returns whether the timer is for that."""
        if key == MOVES:
            self.migrate(now)
        elif key in self._moved_attempts:
            running = self._moved_attempts.pop(key)
            if self._cycle.runs(running):
                self._cycle.start(running)
        else:
            return False
        return True

    def request(self, now: Time) -> None:
        """Reconsider the running tasks, which have changed, when the period ends."""
        if not self._is_due:
            period = self._policy.every_us()
            self._is_due = True
            self._cycle.port.set_timer(MOVES, (now // period + 1) * period)

    def migrate(self, now: Time) -> None:
        """End the tasks that shall go on elsewhere, where they have their places from now on."""
        cycle = self._cycle
        state = cycle.state
        view = cycle.view
        state.now = now
        self._is_due = False

        if not state.running:
            return

        for move in self._policy.moves(view):
            running = state.running[move.task]

            room = view.makes_room(running.waiting, move.machine, ())
            if not (running.losable and room and view.suits(running.waiting, move.machine)):
                name = type(self._policy).__name__
                raise ValueError(f"{name} moves task {move.task} to machine {move.machine}, where it cannot be")

            eviction = cycle.evict(running, AfterEviction.MOVE, now)

            waiting = running.waiting
            # The place is the task's from now on; it begins there when its end here was reported.
            waiting.attempt += 1
            state.waiting[move.task] = waiting

            eviction.target = state.launched(waiting, move.machine, now)
            cycle.iteration.started(move.machine)
            self.request(now)

        cycle.changed(now)

    def move_on(self, running: Running, now: Time) -> bool:
        """Start a task that has left, after a while, where it was moved to; False: it is not wanted any more."""
        cycle = self._cycle
        if not cycle.runs(running):
            return False

        cost_us = self._policy.cost_us(cycle.view, running)
        if cost_us:
            key = f"{MOVED}{running.task.id}"
            self._moved_attempts[key] = running
            cycle.port.set_timer(key, now + cost_us)
        else:
            cycle.start(running)
        return True
