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
"""Copies of a late task are tried until it is so many times as old as it was at first."""
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
        then: the fate of its task.
        beneficiary: the task that gets its place; NEVER: none.
        target: where it goes on.
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
        pending: by task and attempt.
    """

    __slots__ = ("_counts", "_held", "pending")

    def __init__(self) -> None:
        self.pending: dict[tuple[TaskId, int], PendingEviction] = {}
        self._counts: dict[int, int] = {}
        self._held: dict[int, list[Running]] = {}

    def add(self, eviction: PendingEviction) -> None:
        """Expect the end of an attempt."""
        self.pending[eviction.waiting.task.id, eviction.attempt] = eviction
        machine = eviction.running.machine
        self._counts[machine] = self._counts.get(machine, 0) + 1

    def holds(self, running: Running) -> bool:
        """Keep a launch that has to wait; False: it need not."""
        if running.machine not in self._counts:
            return False
        self._held.setdefault(running.machine, []).append(running)
        return True

    def at(self, machine: int) -> bool:
        """True where evictions are pending on a machine."""
        return machine in self._counts

    def drop(self, running: Running) -> None:
        """Forget a launch that waits."""
        held = self._held.get(running.machine, [])
        if any(one is running for one in held):
            self._held[running.machine] = [one for one in held if one is not running]

    def close(self, task: TaskId, attempt: int) -> tuple[PendingEviction | None, list[Running]]:
        """Take in the end of an attempt; returns its eviction, and the launches that need not wait any more."""
        eviction = self.pending.pop((task, attempt), None)
        if eviction is None:
            return None, []
        machine = eviction.running.machine
        self._counts[machine] -= 1
        if self._counts[machine]:
            return eviction, []
        del self._counts[machine]
        return eviction, self._held.pop(machine, [])

    def clear(self, machine: int) -> list[PendingEviction]:
        """Close all evictions on a machine that has failed: no end will be reported."""
        found = [eviction for eviction in self.pending.values() if eviction.running.machine == machine]
        for eviction in found:
            self.close(eviction.waiting.task.id, eviction.attempt)
        return found

    def of_task(self, task: TaskId) -> list[PendingEviction]:
        """The pending evictions of a task's attempts."""
        return [eviction for (number, _), eviction in self.pending.items() if number == task]

    def check_rest(self) -> None:
        """Raise AssertionError where an end was never reported."""
        assert not self.pending, f"ends of {list(self.pending)} were not reported"
        assert not self._held, "launches wait for nothing"


class Placements(Protocol):
    """The cycle, as its parts use it.

    Attributes:
        nodes: address per target.
        incarnations: the last known one of each node that has restarted.
        port: of the component, from its start on.
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

    def start(self, running: Running) -> None:
        """Launch an attempt as soon as it may."""

    def runs(self, running: Running) -> bool:
        """True for an attempt that runs, or is about to."""

    def evict(self, running: Running, then: AfterEviction, now: Time, beneficiary: TaskId = NEVER) -> PendingEviction:
        """End an attempt on purpose."""

    def release(self, running: Running, now: Time) -> None:
        """Give an attempt's room back."""

    def next_number(self) -> int:
        """The number of the next message to a target."""


class Speculation:
    """Stage T9: further attempts of tasks that run, of which the first to finish counts."""

    __slots__ = ("_asked", "_cycle", "_policy")
    _cycle: Placements

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._asked: list[tuple[Time, int, Running]] = []

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle

    def on_timer(self, key: Key, now: Time) -> bool:
        """Reconsider late tasks; returns whether the timer is for that."""
        if key != COPIES:
            return False
        cycle = self._cycle
        cycle.state.now = now
        while self._asked and self._asked[0][0] <= now:
            _, _, running = heapq.heappop(self._asked)
            if cycle.runs(running) and not running.ending:
                self.replicate(running, now)
                age_us, first_us = now - running.start_us, self._first_us(running)
                if self._count(running) < 2 and age_us < LATE_RATIO_MAX * first_us:  # no room, or others were many
                    later = now + max(1, age_us // 4)
                    heapq.heappush(self._asked, (later, running.task.id, running))
        self.rearm()
        return True

    def replicate(self, running: Running, now: Time) -> None:
        """Let other machines run the task, too, as far as they have room now."""
        cycle, waiting = self._cycle, running.waiting
        state = cycle.state
        while self._count(running) < self._policy.copies(cycle.view, running):
            taken = sum([1 << one.machine for one in cycle.view.attempts(waiting)])
            among = waiting.kind.suitable & state.online & ~taken
            candidates = Candidates(state, waiting, among)
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
            heapq.heappush(self._asked, (ask_us, running.task.id, running))
            self.rearm()

    def _count(self, running: Running) -> int:
        return len(self._cycle.view.attempts(running.waiting))

    def rearm(self) -> None:
        """Set the one timer for all tasks that are reconsidered."""
        cycle, asked = self._cycle, self._asked
        if not asked:
            return
        while asked and not cycle.runs(asked[0][2]):
            heapq.heappop(asked)
        if asked:
            cycle.port.set_timer(COPIES, asked[0][0])
        else:
            cycle.port.cancel_timer(COPIES)

    def _first_us(self, running: Running) -> Time:
        """The age at which a task is considered first."""
        at: Time = self._policy.ask_us(self._cycle.view, running)
        return max(1, at - running.start_us)

    def end_others(self, running: Running, now: Time) -> None:
        """End the other attempts of a task."""
        cycle = self._cycle
        for other in cycle.view.attempts(running.waiting):
            if other is not running:
                if other.sent:
                    cycle.evict(other, AfterEviction.NOTHING, now)
                else:
                    cycle.evictions.drop(other)
                    cycle.release(other, now)


class Migration:
    """Stage T12: running tasks that go on elsewhere."""

    __slots__ = ("_cycle", "_due", "_moved", "_policy")
    _cycle: Placements

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._due = False
        self._moved: dict[Key, Running] = {}

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle

    def on_timer(self, key: Key, now: Time) -> bool:
        """Move tasks, or start one that was moved; returns whether the timer is for that."""
        if key == MOVES:
            self.migrate(now)
        elif key in self._moved:
            running = self._moved.pop(key)
            if self._cycle.runs(running):
                self._cycle.start(running)
        else:
            return False
        return True

    def request(self, now: Time) -> None:
        """Reconsider the running tasks, which have changed, when the period ends."""
        if not self._due:
            period = self._policy.every_us()
            self._due = True
            self._cycle.port.set_timer(MOVES, (now // period + 1) * period)

    def migrate(self, now: Time) -> None:
        """End the tasks that shall go on elsewhere, where they have their places from now on."""
        cycle = self._cycle
        state, view = cycle.state, cycle.view
        state.now, self._due = now, False
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
            self._moved[key] = running
            cycle.port.set_timer(key, now + cost_us)
        else:
            cycle.start(running)
        return True
