"""Precedence: a claim of higher priority may have what tasks of lower priority hold (EuroSys 2013, section 3.4).

The paper lets a scheduler claim what another has acquired already, if the common scale of precedence permits it; how is
left open, and its simulators do not do it. Here the scale is the job's priority. A scheduler looks for machines with
room first; where there are none, it counts what lower priorities hold as free, and its claim carries its priority. The
cell ends the tasks in the way of a claim, lowest priority first, then those placed last. What was claimed is the
claimer's at once, and starts when the machine has reported the end of all that was ended there. A claim is in conflict
where even that room does not suffice. Ended tasks go back to their schedulers and start from zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from volery.architectures.omega.claims import Bands, CellClaim, ChangeLog, Claims, Freed
from volery.architectures.omega.firstfit import NOWHERE, PlacementAnswer, PlacementProblem, place
from volery.architectures.omega.layout import Layout
from volery.architectures.omega.messages import Changes, Preempted
from volery.core.events import Preemption
from volery.core.model import Address, Amounts, Task, TaskId, Time
from volery.core.port import Port
from volery.core.records import ATTEMPT_MAX
from volery.roles.node import Completed, Kill


class HeldAttempt(NamedTuple):
    """An attempt's hold on a machine.

    Args:
        claim: of the task.
        attempt: of it.
        priority: of its job.
        number: claims are counted.
    """

    claim: CellClaim
    attempt: int
    priority: int
    number: int


class Displacement(NamedTuple):
    """An attempt that is being ended, and the task for which it is."""

    held: HeldAttempt
    beneficiary: TaskId


class PrecedenceClaims:
    """Claims that may have what lower priorities hold.

    Args:
        layout: of the cluster.
        log: of changes.
    """

    __slots__ = ("_account", "_attempts", "_count", "_ending", "_freed", "_held", "_layout", "_leaving", "_log",
                 "_losers", "_on", "_pending", "_port")  # fmt: skip
    _port: Port
    _freed: Freed

    def __init__(self, layout: Layout, log: ChangeLog) -> None:
        self._layout = layout
        self._log = log
        self._account = Claims(layout)
        self._held: dict[TaskId, HeldAttempt] = {}
        self._on: list[dict[TaskId, HeldAttempt]] = [{} for _ in layout.whole]
        self._attempts: dict[TaskId, int] = {}
        self._losers: dict[TaskId, list[HeldAttempt]] = {}
        self._leaving: dict[TaskId, Displacement] = {}
        self._ending: dict[int, int] = {}
        self._pending: dict[int, dict[TaskId, HeldAttempt]] = {}
        self._count = 0

    @property
    def free(self) -> list[int]:
        """The amounts that no claim holds, per machine."""
        return self._account.free

    def open(self, port: Port, freed: Freed) -> None:
        self._port, self._freed = port, freed
        self._account.open(port, freed)

    def bands(self, machines: Sequence[int]) -> tuple[Bands, ...]:
        return tuple([self._bands(machine) for machine in machines])

    def _bands(self, machine: int) -> Bands:
        sums: dict[int, int] = {}
        for held in self._losable(machine):
            sums[held.priority] = sums.get(held.priority, 0) + held.claim.packed
        return tuple([(priority, self._layout.encode([amounts])) for priority, amounts in sorted(sums.items())])

    def _losable(self, machine: int) -> list[HeldAttempt]:
        """The attempts that may be ended there: they run, and their tasks can have a further attempt."""
        pending = self._pending.get(machine, {})
        return [one for task, one in self._on[machine].items() if task not in pending and one.attempt < ATTEMPT_MAX]

    def claim(self, owner: Address, task: Task, machine: int, priority: int = 0) -> CellClaim | None:
        """Take what a task asks for, from lower priorities where too little is free; None: both is too little."""
        packed = self._layout.packing[task.request]
        losers = self._in_the_way(machine, packed, priority)
        if losers is None:
            return None
        for loser in losers:
            self._take(loser)
        self._count += 1
        claim = CellClaim(owner, task, machine, packed)
        self._give(HeldAttempt(claim, self._attempts.get(task.id, 0), priority, self._count))
        self._losers[task.id] = losers
        return claim

    def _in_the_way(self, machine: int, packed: int, priority: int) -> list[HeldAttempt] | None:
        """The attempts that have to leave for a claim; None: it is in conflict."""
        packing, free = self._layout.packing, self.free[machine]
        guards, room, given = packing.guards, free, list[int]()
        if (free - packed) & guards == guards:
            return []
        lower = [one for one in self._losable(machine) if one.priority < priority]
        lower.sort(key=lambda held: (held.priority, -held.number))
        for one in lower:
            given.append(one.claim.packed)
            room = packing.settled(room + one.claim.packed)
            if (room - packed) & guards == guards:
                return [lower[place] for place in packing.needed(free, packed, given)]
        return None

    def _take(self, one: HeldAttempt) -> None:
        machine, task = one.claim.machine, one.claim.task.id
        self._account.put(machine, one.claim.packed)
        del self._account.running[task], self._held[task], self._on[machine][task]

    def _give(self, one: HeldAttempt) -> None:
        machine, task = one.claim.machine, one.claim.task.id
        self._account.put(machine, -one.claim.packed)
        self._account.running[task], self._held[task], self._on[machine][task] = one.claim, one, one

    def undo(self, claim: CellClaim) -> None:
        self._take(self._held[claim.task.id])
        for loser in self._losers.pop(claim.task.id):
            self._give(loser)

    def begin(self, claim: CellClaim) -> None:
        """End the attempts in the way, and start the task as soon as they have ended."""
        for loser in self._losers.pop(claim.task.id):
            self._evict(loser, claim.task.id)
        self._begin(self._held[claim.task.id])

    def _evict(self, loser: HeldAttempt, beneficiary: TaskId) -> None:
        machine, task = loser.claim.machine, loser.claim.task.id
        self._leaving[task] = Displacement(loser, beneficiary)
        self._ending[machine] = self._ending.get(machine, 0) + 1
        self._port.send(self._layout.nodes[machine], Kill(task, loser.attempt))

    def _begin(self, one: HeldAttempt) -> None:
        """Start the attempt, unless others on the machine still have to end."""
        machine = one.claim.machine
        if machine in self._ending:
            self._pending.setdefault(machine, {})[one.claim.task.id] = one
        else:
            self._account.launch(one.claim, one.attempt)

    def ended(self, message: Completed, now: Time) -> None:
        """Free what the attempt held, if no other claim has it already."""
        gone, held = self._leaving.get(message.task), self._held.get(message.task)
        if gone is not None and gone.held.attempt == message.attempt:
            self._left(gone, message.killed, now)
        elif held is not None and held.attempt == message.attempt:
            self._take(held)
            self._over(held, now)

    def _over(self, held: HeldAttempt, now: Time) -> None:
        """Report the end of a task."""
        self._attempts.pop(held.claim.task.id, None)
        self._freed(held.claim, now)

    def _left(self, gone: Displacement, killed: bool, now: Time) -> None:
        """Note the end of an evicted attempt; the last one on its machine lets the pending tasks begin."""
        held, claim = gone.held, gone.held.claim
        del self._leaving[claim.task.id]
        if killed:
            self._attempts[claim.task.id] = held.attempt + 1
            self._port.observe(Preemption(now, claim.task.id, held.attempt, gone.beneficiary, "priority"))
            self._port.send(claim.owner, Preempted(self._layout.packing.anywhere(claim.task), held.attempt))
        else:
            self._over(held, now)
        self._ending[claim.machine] -= 1
        if not self._ending[claim.machine]:
            del self._ending[claim.machine]
            for one in self._pending.pop(claim.machine, {}).values():
                self._begin(one)
            self._log.note(claim.machine)  # what has begun there may be ended for others

    def withdraw(self, tasks: Sequence[TaskId], now: Time) -> None:
        """End tasks that run; those that have not begun never do."""
        for task in tasks:
            held = self._held.get(task)
            if held is None:
                continue
            machine = held.claim.machine
            if self._pending.get(machine, {}).pop(task, None) is not None:
                self._take(held)
                self._over(held, now)
            else:
                self._port.send(self._layout.nodes[machine], Kill(task, held.attempt))

    def check(self) -> None:
        """Raise where the accounts by task and by machine differ, or a task waits for what does not end."""
        self._account.check()
        assert {task for held in self._on for task in held} == self._account.running.keys() == self._held.keys()
        counted: dict[int, int] = {}
        for gone in self._leaving.values():
            counted[gone.held.claim.machine] = counted.get(gone.held.claim.machine, 0) + 1
        assert counted == self._ending, "machines wait for what does not end there"
        assert self._pending.keys() <= self._ending.keys(), "a task waits for nothing"

    def check_rest(self) -> None:
        """Raise where something is taken or ends although nothing runs."""
        self._account.check_rest()
        assert not self._leaving, "an attempt is still to end"


class Contest(NamedTuple):
    """A problem of placing in which what lower priorities hold may be claimed, too.

    Args:
        placing: among what is free.
        lower: per lower priority, the lowest first: machine -> what its tasks hold there.
    """

    placing: PlacementProblem
    lower: Sequence[Mapping[int, int]]


def place_over(contest: Contest) -> PlacementAnswer:
    """Place on machines with room first, then on those with tasks of the lowest priority, and so on upwards."""
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
    return (
        NOWHERE if left and contest.placing.whole else PlacementAnswer(tuple(places), tuple(machines), tuple(requests))
    )


class LowerHolds:
    """A scheduler's copy of what tasks of each priority hold on the machines.

    Args:
        layout: of the cluster.
    """

    __slots__ = ("_bands", "_layout", "_lost")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._bands: dict[int, tuple[tuple[int, int], ...]] = {}
        self._lost: dict[TaskId, int] = {}

    def learn(self, message: Changes) -> None:
        """Take over the holds of changed machines."""
        for machine, bands in zip(message.machines, message.lower, strict=True):
            self._bands.pop(machine, None)
            if bands:
                decoded = [(priority, self._layout.decode(amounts)[0]) for priority, amounts in bands]
                self._bands[machine] = tuple(decoded)

    def contest(self, placing: PlacementProblem, priority: int) -> Contest | None:
        """The problem of a job that may claim what lower priorities hold; None: they hold nothing."""
        lower: dict[int, dict[int, int]] = {}
        for machine, bands in self._bands.items():
            for band, amounts in bands:
                if band < priority:
                    lower.setdefault(band, {})[machine] = amounts
        return Contest(placing, [lower[band] for band in sorted(lower)]) if lower else None

    def is_news(self, message: Preempted) -> bool:
        """True if the loss of this attempt was not reported before."""
        if message.attempt <= self._lost.get(message.task.id, -1):
            return False
        self._lost[message.task.id] = message.attempt
        return True

    def ended(self, task: TaskId) -> None:
        """Forget a task that cannot be lost any more."""
        self._lost.pop(task, None)
