"""What becomes of tasks while they run: copies (stage T9), and moves to other machines (stage T12)."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from volery.architectures.pipeline.exits import Then
from volery.architectures.pipeline.messages import Completed
from volery.architectures.pipeline.placing import Assembly, Place, Placing
from volery.architectures.pipeline.policies import Candidates, Running, State, Waiting
from volery.architectures.pipeline.policies.replicating import NoCopies
from volery.core.events import TimerFired
from volery.core.model import Address, Time
from volery.core.records import ATTEMPT_MAX

PATIENCE = 16
"""A task that is late is asked about again until it is so many times as old as it was at first."""
COPIES = "copies"
MOVES = "moves"
MOVED = "moved "


class Tending(Placing):
    """Whoever also looks after what runs.

    Args:
        place, assembly, stream, make_state: as for `Placing`.
    """

    __slots__ = ("_asked", "_migrating", "_moved", "_moves_due", "_replicating")

    def __init__(
        self, place: Place, assembly: Assembly, stream: Random, make_state: Callable[[Time], State] | None = None
    ) -> None:
        super().__init__(place, assembly, stream, make_state)
        copying = assembly.policies["T9"]
        self._replicating = None if isinstance(copying, NoCopies) else copying
        moving = assembly.policies["T12"]
        self._migrating = moving if moving.every_us() else None
        self._moves_due = False
        self._moved: dict[str, Running] = {}
        self._asked: list[tuple[Time, int, Running]] = []

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Also tasks of which it is asked whether they should run more than once."""
        if event.key == COPIES:
            self._ask_again(now)
        elif event.key == MOVES:
            self._migrate(now)
        elif event.key in self._moved:
            running = self._moved.pop(str(event.key))
            if self._runs(running):
                self._start(running)
        else:
            super().on_timer(event, source, now)

    def _submit_task(self, waiting: Waiting, machine: int, now: Time) -> None:
        super()._submit_task(waiting, machine, now)
        if self._replicating is not None:
            self._replicate(self._state.running[waiting.task.id], now)
        self._moves_wanted(now)

    def _moves_wanted(self, now: Time) -> None:
        """What runs has changed: it is looked at when the period ends."""
        if self._migrating is not None and not self._moves_due:
            period = self._migrating.every_us()
            self._moves_due = True
            self._port.set_timer(MOVES, (now // period + 1) * period)

    def _migrate(self, now: Time) -> None:
        """Stage T12: end what shall go on elsewhere, where it has its place from now on."""
        assert self._migrating is not None, "the timer is set where there is such a policy"
        self._state.now, self._moves_due = now, False
        if not self._state.running:
            return
        for move in self._migrating.moves(self._view):
            running = self._state.running[move.task]
            room = self._view.makes_room(running.waiting, move.machine, ())
            if not (running.losable and room and self._view.suits(running.waiting, move.machine)):
                name = type(self._migrating).__name__
                raise ValueError(f"{name} moves task {move.task} to machine {move.machine}, where it cannot be")
            leaving = self._end(running, Then.MOVE, now)
            waiting = running.waiting
            waiting.attempt += 1
            self._state.waiting[move.task] = waiting
            leaving.target = self._state.launched(waiting, move.machine, now)
            self._iteration.started(move.machine)
            self._moves_wanted(now)
        self._changed(now)

    def _move_on(self, running: Running, now: Time) -> bool:
        """It runs nowhere for a while, and then where it was moved to."""
        assert self._migrating is not None, "only such a policy moves anything"
        if not self._runs(running):
            return False
        cost_us = self._migrating.cost_us(self._view, running)
        if cost_us:
            key = f"{MOVED}{running.task.id}"
            self._moved[key] = running
            self._port.set_timer(key, now + cost_us)
        else:
            self._start(running)
        return True

    def _replicate(self, running: Running, now: Time) -> None:
        """Stage T9: let other machines run the task, too, as far as they have room now."""
        assert self._replicating is not None, "asked for where there is such a policy"
        waiting = running.waiting
        while self._attempts(running) < self._replicating.copies(self._view, running):
            taken = sum([1 << one.machine for one in self._view.attempts(waiting)])
            among = waiting.kind.suitable & self._state.online & ~taken
            if waiting.attempt >= ATTEMPT_MAX or self._state.index.pick(waiting.kind.need, among, "first") < 0:
                break
            machine = self._select(waiting, Candidates(self._state, waiting, among))
            if machine < 0:
                break
            copy = self._state.copied(waiting, machine, now)
            self._iteration.started(machine)
            self._start(copy)
        ask_us = self._replicating.ask_us(self._view, running)
        if ask_us > now:
            heapq.heappush(self._asked, (ask_us, running.task.id, running))
            self._set_asking()

    def _attempts(self, running: Running) -> int:
        return len(self._view.attempts(running.waiting))

    def _set_asking(self) -> None:
        """The one timer for all that is asked again."""
        while self._asked and not self._runs(self._asked[0][2]):
            heapq.heappop(self._asked)
        if self._asked:
            self._port.set_timer(COPIES, self._asked[0][0])
        else:
            self._port.cancel_timer(COPIES)

    def _ask_again(self, now: Time) -> None:
        self._state.now = now
        while self._asked and self._asked[0][0] <= now:
            _, _, running = heapq.heappop(self._asked)
            if self._runs(running) and not running.ending:
                self._replicate(running, now)
                age_us, first_us = now - running.start_us, self._replicating_us(running)
                if self._attempts(running) < 2 and age_us < PATIENCE * first_us:  # no room, or others were many
                    later = now + max(1, age_us // 4)
                    heapq.heappush(self._asked, (later, running.task.id, running))
        self._set_asking()

    def _replicating_us(self, running: Running) -> Time:
        """How old a task is when it is asked about."""
        assert self._replicating is not None, "asked for where there is such a policy"
        at: Time = self._replicating.ask_us(self._view, running)
        return max(1, at - running.start_us)

    def _ended(self, message: Completed, now: Time) -> Waiting | None:
        """Also: the first of several attempts has finished; the others are not wanted any more."""
        waiting = super()._ended(message, now)
        if waiting is not None and self._asked:
            self._set_asking()
        self._moves_wanted(now)
        return waiting

    def _end_copies(self, running: Running, now: Time) -> None:
        for other in self._view.attempts(running.waiting):
            if other is not running:
                if other.sent:
                    self._end(other, Then.NOTHING, now)
                else:
                    self._exits.drop(other)
                    self._release(other, now)
