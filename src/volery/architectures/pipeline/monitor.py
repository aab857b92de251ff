"""Reports of nodes on running tasks (stage T6), and what tasks reserve and do not use (Borg's reclamation).

What is reclaimed is apart from what machines have free: a task that runs there takes nothing of the free room, so that
tasks of the production band are placed by requests alone (Verma et al., EuroSys 2015, section 5.5). Where reservations
rise, or a task ends whose room was reclaimed, the tasks that run there move into free room of the machine, or end, the
youngest first. Free room and reclaimed room are not added up for one task.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from volery.architectures.pipeline.attempts import AfterEviction, Placements
from volery.architectures.pipeline.node import Report
from volery.architectures.pipeline.policies import JobRecord, Running, Waiting
from volery.core.events import Counted
from volery.core.model import Amounts, Key, Time
from volery.policies.match import positions

WHOLE = 1000
"""The whole of a request, in thousandths."""


class ReclaimedRoom:
    """Machines by an upper bound of their reclaimed room, so that the largest is found without a look at each.

    A bound is set where room may grow: a reservation falls, or a task on reclaimed room leaves it. Elsewhere room only
    shrinks, and a bound that is too high is corrected when it is met.

    Args:
        room_on: Function from a machine to its room, an amount per resource.
        every: Bit vector of the machines.
        resource_count: Number of resources of the machines.
        rank: Place of the resource by which they are ordered.
    """

    __slots__ = ("_bounds", "_machines_at", "_no_room", "_rank", "_room_on", "levels")

    def __init__(self, room_on: Callable[[int], Amounts], every: int, resource_count: int, rank: int) -> None:
        self._room_on = room_on
        self._rank = rank
        self._no_room: Amounts = (0,) * resource_count
        self._bounds: dict[int, Amounts] = {}
        self._machines_at = {0: every}
        self.levels = [0]

    def bound(self, machine: int) -> Amounts:
        """The room that a machine has at most."""
        return self._bounds.get(machine, self._no_room)

    def measure(self, machine: int) -> Amounts:
        """Set the bound of a machine to what it has."""
        former_level = self.bound(machine)[self._rank]
        room = self._room_on(machine)
        self._bounds[machine] = room
        level = room[self._rank]
        bit = 1 << machine

        if level != former_level:
            self._machines_at[former_level] ^= bit
            if not self._machines_at[former_level]:
                del self._machines_at[former_level]
                del self.levels[bisect_left(self.levels, former_level)]
            if level not in self._machines_at:
                self._machines_at[level] = 0
                insort(self.levels, level)
            self._machines_at[level] |= bit

        return room

    def largest(self, request: Amounts, among: int) -> int:
        """The machine of a vector with the most room of those that have enough; the first of several, or -1."""
        place = len(self.levels)
        while place and self.levels[place - 1] >= request[self._rank]:
            level = self.levels[place - 1]
            for machine in positions(self._machines_at[level] & among):
                if _holds(self.bound(machine), request):
                    room = self.measure(machine)
                    if room[self._rank] == level and _holds(room, request):
                        return machine

            place = bisect_left(self.levels, level)
        return -1


def _holds(room: Amounts, request: Amounts) -> bool:
    return all(has >= wants for has, wants in zip(room, request, strict=True))


class Monitor:
    """Stage T6: what nodes report, and what the policy makes of it.

    Args:
        policy: The policy of the stage.
    """

    __slots__ = ("_cycle", "_holds", "_on_reclaimed", "_policy", "_room")
    _cycle: Placements
    _room: ReclaimedRoom

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._holds = False
        # By machine, the attempts on reclaimed room, the oldest first.
        self._on_reclaimed: dict[int, list[Running]] = {}

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle
        state = cycle.state

        self._room = ReclaimedRoom(self._room_on, state.matches.every, len(state.capacity), state.work_resource)

    def on_timer(self, key: Key, now: Time) -> bool:
        """Pass: there is no timer."""
        return False

    def tolerant(self, job: JobRecord) -> bool:
        """True if the tasks of a job may run on reclaimed room."""
        is_tolerant: bool = self._policy.tolerant(job)
        return is_tolerant

    def reported(self, message: Report, machine: int, now: Time) -> None:
        """Stage T6: take progress and use in, end what the policy ends, and settle what is reclaimed."""
        cycle = self._cycle
        state = cycle.state
        state.now = now

        has_grown = False
        for task, attempt, run_us, use in message.tasks:
            running = state.on_machine[machine].get(task)
            if running is None or running.attempt != attempt or running.ending:
                continue

            running.run_us = run_us
            running.use = use
            former_reservation = running.reserved
            running.reserved = self._policy.reserved(cycle.view, running)
            has_grown = has_grown or running.reserved < former_reservation

            if running.losable and self._policy.ends(cycle.view, running):
                cycle.port.observe(Counted("overruns"))
                cycle.evict(running, AfterEviction.QUEUE, now)
        self._settle(machine, now)

        if has_grown:
            self._room.measure(machine)
            classes = cycle.queue.classes
            for kind in list(classes.blocked):
                classes.unblock(kind)
            cycle.changed(now)

    def place(self, waiting: Waiting, among: int, now: Time) -> bool:
        """Give a task that fits nowhere the machine with the most reclaimed room; False: it has none."""
        if not self.tolerant(waiting.job):
            return False
        request = waiting.task.request
        state = self._cycle.state
        machine = self._room.largest(request, among & waiting.kind.suitable & state.online) if request else -1
        if machine < 0:
            return False

        running = self._cycle.submit_task(waiting, machine, now, takes=0)
        running.reclaimed = True
        self._on_reclaimed.setdefault(machine, []).append(running)
        self._cycle.port.observe(Counted("reclaimed_starts"))
        return True

    def _room_on(self, machine: int) -> Amounts:
        """The room on a machine that is reserved, not used, and not given away; below 0 where too much was given."""
        state = self._cycle.state
        room = [0] * len(state.capacity)

        for running in state.on_machine[machine].values():
            request = running.task.request
            reclaimed_part = 0 if running.ending else WHOLE - running.reserved
            for place, amount in enumerate(request[: len(room)]):
                room[place] += -amount if running.reclaimed else amount * reclaimed_part // WHOLE
        return tuple(room)

    def released(self, running: Running, now: Time) -> None:
        """An attempt has given its room back."""
        if running.reclaimed:
            self._room.measure(running.machine)
        attempts = self._on_reclaimed.get(running.machine)
        if attempts is None:
            return
        self._on_reclaimed[running.machine] = [attempt for attempt in attempts if attempt is not running]

        if not self._holds:
            self._settle(running.machine, now)

    def hold(self) -> None:
        """Leave the room that is given back from now on to the task for which it is made."""
        self._holds = True

    def settle(self, machine: int, now: Time) -> None:
        """Settle a machine again, since that task has its room."""
        self._holds = False
        self._settle(machine, now)

    def _settle(self, machine: int, now: Time) -> None:
        """Find other room for tasks, or end them, until no more is given away than is reclaimed."""
        while (attempts := self._on_reclaimed.get(machine)) and min(self._room_on(machine)) < 0:
            if self._moved_to_free(attempts, machine):
                continue

            losable = [attempt for attempt in attempts if attempt.losable]
            if not losable:
                return

            self._cycle.port.observe(Counted("reclaimed_ends"))
            self._cycle.evict(losable[-1], AfterEviction.QUEUE, now)

    def _moved_to_free(self, attempts: Sequence[Running], machine: int) -> bool:
        """Move one of these tasks into free room of the machine; False: none fits."""
        state = self._cycle.state
        for running in attempts:
            if self._cycle.view.makes_room(running.waiting, machine, ()):
                state.take_free(running)
                running.reclaimed = False
                self._room.measure(machine)
                self._on_reclaimed[machine] = [attempt for attempt in attempts if attempt is not running]
                return True
        return False

    def forget(self, machine: int) -> None:
        """Drop the account of a machine that has failed."""
        self._on_reclaimed.pop(machine, None)

    def check(self) -> None:
        """Raise AssertionError where the account and the running tasks disagree."""
        for machine, attempts in self._on_reclaimed.items():
            runs = self._cycle.state.on_machine[machine]
            assert all(runs.get(attempt.task.id) is attempt and not attempt.took for attempt in attempts), (
                f"machine {machine}"
            )

        for machine in range(len(self._cycle.state.on_machine)):
            assert _holds(self._room.bound(machine), self._room_on(machine)), f"more room than its bound on {machine}"


@contextmanager
def reserving_room(monitor: Monitor | None, machine: int, now: Time) -> Iterator[None]:
    """Keep the room that is made on a machine for the task for which it is made."""
    if monitor is None:
        yield
        return
    monitor.hold()
    yield
    monitor.settle(machine, now)
