"""Precedence: a claim of higher priority may have what tasks of lower priority hold (EuroSys 2013, section 3.4).

The paper lets a scheduler claim what another has acquired already, if the common scale of precedence permits it; how is
left open, and its simulators do not do it. Here the scale is the job's priority. A scheduler looks for machines with
room first; where there are none, it counts what lower priorities hold as free, and its claim says its priority. The
cell ends the tasks in the way of a claim, lowest priority first, then those placed last. What was claimed is the
claimer's at once, and starts when all that was ended on the machine is heard to have ended. A claim is in conflict
where even that room does not suffice. Ended tasks go back to their schedulers and start from zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from volery.architectures.omega.cell import CellState, Conflicts, Running
from volery.architectures.omega.firstfit import NOWHERE, Placed, Placing, place
from volery.architectures.omega.layout import Layout
from volery.architectures.omega.messages import Changes, Commit, Ended, Preempted, Verdict, Withdraw
from volery.architectures.omega.placer import Setting
from volery.architectures.omega.scheduler import Attempt, Scheduler
from volery.core.component import sent_to
from volery.core.events import Preemption
from volery.core.model import Address, Amounts, Task, TaskId, Time
from volery.core.port import Problem
from volery.core.records import ATTEMPT_MAX
from volery.roles.node import Completed, Kill, Launch


class Held(NamedTuple):
    """What an attempt holds.

    Args:
        running: in the cell's account.
        task: which.
        attempt: of it.
        priority: of its job.
        number: claims are counted.
    """

    running: Running
    task: Task
    attempt: int
    priority: int
    number: int


class Leaving(NamedTuple):
    """An attempt that was ended, and the task for which it was."""

    held: Held
    beneficiary: TaskId


class PrecedenceCell(CellState):
    """Validates claims against what is free and what lower priorities hold.

    Args:
        layout, conflicts, restore: as of any cell state.
    """

    __slots__ = ("_attempts", "_claims", "_ending", "_held", "_leaving", "_on", "_pending")

    def __init__(self, layout: Layout, conflicts: Conflicts, *, restore: bool) -> None:
        super().__init__(layout, conflicts, restore=restore)
        self._held: dict[TaskId, Held] = {}
        self._on: list[dict[TaskId, Held]] = [{} for _ in layout.whole]
        self._attempts: dict[TaskId, int] = {}
        self._leaving: dict[TaskId, Leaving] = {}
        self._ending: dict[int, int] = {}
        self._pending: dict[int, dict[TaskId, Held]] = {}
        self._claims = 0

    def _lower(self, machines: Sequence[int]) -> tuple[tuple[tuple[int, bytes], ...], ...]:
        return tuple([self._bands(machine) for machine in machines])

    def _bands(self, machine: int) -> tuple[tuple[int, bytes], ...]:
        sums: dict[int, int] = {}
        for held in self._losable(machine):
            sums[held.priority] = sums.get(held.priority, 0) + held.running.packed
        return tuple([(priority, self._layout.encode([amounts])) for priority, amounts in sorted(sums.items())])

    def _losable(self, machine: int) -> list[Held]:
        """What may be ended there: it runs, and can be an attempt further."""
        pending = self._pending.get(machine, {})
        return [one for task, one in self._on[machine].items() if task not in pending and one.attempt < ATTEMPT_MAX]

    def on_commit(self, message: Commit, source: Address, now: Time) -> None:
        """Take the claims that are not in conflict, and end what is in their way; of a gang, all or none."""
        if message.number <= self._committed.get(source, 0):
            return
        self._committed[source] = message.number
        sequences, taken = self._sequences, list[tuple[Held, list[Held]]]()
        refused: list[TaskId] = []
        for task, machine, sequence in zip(message.tasks, message.machines, message.sequences, strict=True):
            packed = self._layout.packing[task.request]
            losers = self._in_the_way(machine, packed, message.priority)
            if losers is None or (self._coarse and sequence != sequences[machine]):
                refused.append(task.id)
                continue
            for loser in losers:
                self._take(loser)
            self._claims += 1
            claim = Running(source, task.job, machine, packed)
            one = Held(claim, task, self._attempts.get(task.id, 0), message.priority, self._claims)
            self._give(one)
            sequences[machine] += 1
            taken.append((one, losers))
        if refused and message.gang:
            self._undo_all(taken)
            taken, refused = [], [task.id for task in message.tasks]
        for one, losers in taken:
            self._log.append(one.running.machine)
            for loser in losers:
                self._evict(loser, one.task.id)
            self._begin(one)
        self._maybe_forget()
        self._port.send(source, Verdict(message.number, tuple(refused)))

    def _in_the_way(self, machine: int, packed: int, priority: int) -> list[Held] | None:
        """Who has to leave for a claim; None: it is in conflict."""
        packing, free = self._layout.packing, self._free[machine]
        guards, room, given = packing.guards, free, list[int]()
        if (free - packed) & guards == guards:
            return []
        lower = [one for one in self._losable(machine) if one.priority < priority]
        lower.sort(key=lambda held: (held.priority, -held.number))
        for one in lower:
            given.append(one.running.packed)
            room = packing.settled(room + one.running.packed)
            if (room - packed) & guards == guards:
                return [lower[place] for place in packing.needed(free, packed, given)]
        return None

    def _take(self, one: Held) -> None:
        machine, task = one.running.machine, one.task.id
        self._put(machine, one.running.packed)
        del self._running[task], self._held[task], self._on[machine][task]

    def _give(self, one: Held) -> None:
        machine, task = one.running.machine, one.task.id
        self._put(machine, -one.running.packed)
        self._running[task], self._held[task], self._on[machine][task] = one.running, one, one

    def _undo_all(self, taken: list[tuple[Held, list[Held]]]) -> None:
        for one, losers in reversed(taken):
            self._take(one)
            for loser in losers:
                self._give(loser)
            if self._restore:
                self._sequences[one.running.machine] -= 1
            else:
                self._log.append(one.running.machine)

    def _evict(self, loser: Held, beneficiary: TaskId) -> None:
        machine = loser.running.machine
        self._leaving[loser.task.id] = Leaving(loser, beneficiary)
        self._ending[machine] = self._ending.get(machine, 0) + 1
        self._port.send(self._layout.nodes[machine], Kill(loser.task.id, loser.attempt))

    def _begin(self, one: Held) -> None:
        """Start it, unless something on the machine still has to end."""
        machine = one.running.machine
        if machine in self._ending:
            self._pending.setdefault(machine, {})[one.task.id] = one
        else:
            self._launches += 1
            self._port.send(self._layout.nodes[machine], Launch(self._launches, one.task, one.attempt))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """What the attempt held is free, or another's already."""
        gone, held = self._leaving.get(message.task), self._held.get(message.task)
        if gone is not None and gone.held.attempt == message.attempt:
            self._left(gone, message.killed, now)
        elif held is not None and held.attempt == message.attempt:
            self._take(held)
            self._over(held, now)

    def _over(self, held: Held, now: Time) -> None:
        """The task has ended."""
        self._attempts.pop(held.task.id, None)
        self._freed(held.running, now)
        self._port.send(held.running.owner, Ended(held.running.job, held.task.id))

    def _left(self, gone: Leaving, killed: bool, now: Time) -> None:
        """An attempt that was to end has ended, perhaps by itself; the last one on its machine lets others begin."""
        held, machine = gone.held, gone.held.running.machine
        del self._leaving[held.task.id]
        if killed:
            self._attempts[held.task.id] = held.attempt + 1
            self._port.observe(Preemption(now, held.task.id, held.attempt, gone.beneficiary, "priority"))
            task = self._layout.packing.anywhere(held.task)
            self._port.send(held.running.owner, Preempted(task, held.attempt))
        else:
            self._over(held, now)
        self._ending[machine] -= 1
        if not self._ending[machine]:
            del self._ending[machine]
            for one in self._pending.pop(machine, {}).values():
                self._begin(one)
            self._log.append(machine)  # what has begun there may be ended for others
            self._maybe_forget()

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """End tasks that run; those that have not begun never do."""
        for task in message.tasks:
            held = self._held.get(task)
            if held is None:
                continue
            machine = held.running.machine
            if self._pending.get(machine, {}).pop(task, None) is not None:
                self._take(held)
                self._over(held, now)
            else:
                self._port.send(self._layout.nodes[machine], Kill(task, held.attempt))

    def check(self) -> None:
        """Also: the accounts by task and by machine agree, and only what is ended is waited for."""
        super().check()
        assert {task for held in self._on for task in held} == self._running.keys() == self._held.keys()
        counted: dict[int, int] = {}
        for gone in self._leaving.values():
            counted[gone.held.running.machine] = counted.get(gone.held.running.machine, 0) + 1
        assert counted == self._ending, "machines wait for what does not end there"
        assert self._pending.keys() <= self._ending.keys(), "a task waits for nothing"

    def check_rest(self) -> None:
        """Also: nothing is being ended."""
        super().check_rest()
        assert not self._leaving, "something is said to be ending"

    receives = CellState.receives
    sends = CellState.sends | sent_to("scheduler", Preempted)


class Contest(NamedTuple):
    """A problem of placing in which what lower priorities hold may be had, too.

    Args:
        placing: among what is free.
        lower: per lower priority, the lowest first: machine -> what its tasks hold there.
    """

    placing: Placing
    lower: Sequence[Mapping[int, int]]


def place_over(contest: Contest) -> Placed:
    """Machines with room first; then those on which the lowest priority makes room, and so on upwards."""
    tasks, problem = contest.placing.tasks, contest.placing._replace(whole=False)
    packing = problem.packing
    free, left = list(problem.free), list(range(len(tasks)))
    places: list[int] = []
    machines: list[int] = []
    requests: list[Amounts] = []
    for level in ({}, *contest.lower):
        for machine, amounts in level.items():
            free[machine] = packing.settled(free[machine] + amounts)
        found = place(problem._replace(tasks=[tasks[number] for number in left], free=free))
        claims = found.claims([tasks[number] for number in left])
        for at, machine, task in zip(found.places, found.machines, claims, strict=True):
            places.append(left[at])
            free[machine] = packing.settled(free[machine] - packing[task.request])
        machines += found.machines
        requests += found.requests
        placed = set(places)
        left = [number for number in left if number not in placed]
        if not left:
            break
    return NOWHERE if left and contest.placing.whole else Placed(tuple(places), tuple(machines), tuple(requests))


class PrecedenceScheduler(Scheduler):
    """A scheduler that may claim what lower priorities hold, and whose tasks may be ended for higher ones.

    Args:
        layout, setting, cell, stream: as of any scheduler.
    """

    __slots__ = ("_lost", "_lower")

    def __init__(self, layout: Layout, setting: Setting, cell: Address, stream: Random) -> None:
        super().__init__(layout, setting, cell, stream)
        self._lower: dict[int, tuple[tuple[int, int], ...]] = {}
        self._lost: dict[TaskId, int] = {}

    def on_changes(self, message: Changes, source: Address, now: Time) -> None:
        """Also: what each priority holds."""
        attempt = self._attempt
        if message.number == self._number and attempt is not None and attempt.placing is None:
            for machine, bands in zip(message.machines, message.lower, strict=True):
                self._lower.pop(machine, None)
                if bands:
                    decoded = [(priority, self._layout.decode(amounts)[0]) for priority, amounts in bands]
                    self._lower[machine] = tuple(decoded)
        super().on_changes(message, source, now)

    def _decide(self, attempt: Attempt, count: int) -> None:
        work = attempt.work
        lower: dict[int, dict[int, int]] = {}
        for machine, bands in self._lower.items():
            for priority, amounts in bands:
                if priority < work.priority:
                    lower.setdefault(priority, {})[machine] = amounts
        if not lower:
            super()._decide(attempt, count)
            return
        assert attempt.placing is not None, "there is something to decide about"
        attempt.decision_us = self._setting.deciding.decision_us(work.workload, count)
        contest = Contest(attempt.placing, [lower[priority] for priority in sorted(lower)])
        self._port.compute(self._number, Problem(place_over, contest, attempt.decision_us))

    def on_preempted(self, message: Preempted, source: Address, now: Time) -> None:
        """The task waits again, unless its job was cancelled."""
        task = message.task
        work = self._work.get(task.job)
        if work is None or task.id not in work.running or message.attempt <= self._lost.get(task.id, -1):
            return
        self._lost[task.id] = message.attempt
        work.running.discard(task.id)
        if work.id in self._jobs.cancelled:
            self._jobs.finished(work.id)
            self._maybe_forget(work)
            return
        work.tasks.append(task)
        self._unplaced += 1
        self._maybe_queue(work, now)

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Also: it cannot be lost any more."""
        self._lost.pop(message.task, None)
        super().on_ended(message, source, now)

    receives = {**Scheduler.receives, Preempted: on_preempted}  # noqa: RUF012 - replaced by the base class
