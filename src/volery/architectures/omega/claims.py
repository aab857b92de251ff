"""The claims on the machines of a cell: their free amounts, and the tasks that hold the rest.

With precedence a claim of higher priority may have what tasks of lower priority hold (section 3.4). The paper lets a
scheduler claim what another has acquired already, if the common scale of precedence permits it; how is left open, and
its simulators do not do it. Here the scale is the job's priority. A scheduler looks for machines with room first; where
there are none, it counts what lower priorities hold as free, and its claim carries its priority. The cell ends the
tasks in the way of a claim, lowest priority first, then those placed last. What was claimed is the claimer's at once,
and starts when the machine has reported the end of all that was ended there. A claim is in conflict where even that
room does not suffice. Ended tasks go back to their schedulers and start from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from volery.architectures.omega.messages import Preempted
from volery.architectures.omega.placement import Layout
from volery.core.events import Preemption
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port
from volery.core.records import ATTEMPT_MAX
from volery.roles.node import Completed, Kill, Launch

LOG_MIN: Final = 4096
"""Changes that are kept at least; of larger cells, twice as many as there are machines."""
Bands = tuple[tuple[int, bytes], ...]
"""What tasks of each priority hold of one machine, lowest first."""


class CellClaim(NamedTuple):
    """A task's hold on a machine."""

    owner: Address
    task: Task
    machine: int
    packed: int


Freed = Callable[[CellClaim, Time], None]


class ChangeLog:
    """Logs the machines that have changed, so that a scheduler is sent only the changes since it last looked."""

    def __init__(self, machines: int) -> None:
        self._machines = machines
        self._max = max(LOG_MIN, 2 * machines)
        self._log: list[int] = []
        self._forgotten = 0
        self._seen: dict[Address, int] = {}

    def note(self, *machines: int) -> None:
        """Note that machines have changed, and forget the oldest changes where there are too many."""
        log = self._log
        log += machines
        if len(log) > 2 * self._max:
            del log[: self._max]
            self._forgotten += self._max

    def unseen(self, by: Address) -> list[int]:
        """The machines that have changed since the last call for this scheduler; all of them if the log lacks some."""
        seen = self._seen.get(by, 0) - self._forgotten
        self._seen[by] = self._forgotten + len(self._log)
        return list(range(self._machines)) if seen < 0 else list(dict.fromkeys(self._log[seen:]))


class Claims:
    """Keeps what is free of each machine, and starts and ends the tasks that hold the rest.

    Attributes:
        free: per machine, packed and guarded.
    """

    _port: Port
    _freed: Freed

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._packing, self._guards = layout.packing, layout.packing.guards
        self.free = list(layout.whole)
        self.running: dict[TaskId, CellClaim] = {}
        self._launches = 0

    def open(self, port: Port, freed: Freed) -> None:
        """Take the port and the callback of the owner, which is called when a claim has ended."""
        self._port, self._freed = port, freed

    def put(self, machine: int, packed: int) -> None:
        """Add to what is free on a machine; a negative amount takes."""
        self.free[machine] = self._layout.packing.settled(self.free[machine] + packed)

    def claim(self, owner: Address, task: Task, machine: int, priority: int = 0) -> CellClaim | None:
        """Take what a task asks for; None: there is too little."""
        packing, guards = self._packing, self._guards
        packed = packing[task.request]
        left = self.free[machine] - packed
        if left & guards != guards:
            return None
        self.free[machine] = packing.settled(left)
        return CellClaim(owner, task, machine, packed)

    def undo(self, claim: CellClaim) -> None:
        """Give back a claim whose task has not begun."""
        self.put(claim.machine, claim.packed)

    def begin(self, claim: CellClaim) -> None:
        self.running[claim.task.id] = claim
        self.launch(claim)

    def launch(self, claim: CellClaim, attempt: int = 0) -> None:
        """Send an attempt of the task to its machine."""
        self._launches += 1
        self._port.send(self._layout.nodes[claim.machine], Launch(self._launches, claim.task, attempt))

    def ended(self, message: Completed, now: Time) -> None:
        """Free what the task had."""
        claim = self.running.pop(message.task, None)
        if claim is not None:
            machine = claim.machine
            self.free[machine] = self._packing.settled(self.free[machine] + claim.packed)
            self._freed(claim, now)

    def withdraw(self, tasks: Sequence[TaskId], now: Time) -> None:
        """End tasks that run."""
        for task in tasks:
            claim = self.running.get(task)
            if claim is not None:
                self._port.send(self._layout.nodes[claim.machine], Kill(task))

    def bands(self, machines: Sequence[int]) -> tuple[Bands, ...]:
        """The amounts that higher priorities may have, per machine; nothing without preemption."""
        return ()

    def check(self, others: Iterable[tuple[int, int]] = ()) -> None:
        """Raise where free and taken amounts are not those of the machines."""
        whole, guards = list(self._layout.whole), self._layout.packing.guards
        taken = [(claim.machine, claim.packed) for claim in self.running.values()]
        for machine, packed in (*taken, *others):
            whole[machine] -= packed
        whole = [self._layout.packing.settled(free) for free in whole]
        assert whole == self.free, "amounts without a task, or tasks that share an amount"
        assert all(free & guards == guards for free in self.free), "a machine gives more than it has"

    def check_rest(self) -> None:
        assert self.free == self._layout.whole, "something is taken although nothing runs"


class HeldAttempt(NamedTuple):
    """An attempt's hold on a machine."""

    claim: CellClaim
    attempt: int
    priority: int
    number: int


class Displacement(NamedTuple):
    """An attempt that is being ended, and the task for which it is."""

    held: HeldAttempt
    beneficiary: TaskId


class PrecedenceClaims:
    """Claims that may have what lower priorities hold."""

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
        self._account.check()
        assert {task for held in self._on for task in held} == self._account.running.keys() == self._held.keys()
        counted: dict[int, int] = {}
        for gone in self._leaving.values():
            counted[gone.held.claim.machine] = counted.get(gone.held.claim.machine, 0) + 1
        assert counted == self._ending, "machines wait for what does not end there"
        assert self._pending.keys() <= self._ending.keys(), "a task waits for nothing"

    def check_rest(self) -> None:
        self._account.check_rest()
        assert not self._leaving, "an attempt is still to end"
