"""The master copy of the cell state: what is free, the claims that hold the rest, and the check of transactions.

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
from typing import Final, Literal, NamedTuple

from volery.architectures.omega.messages import Changes, Commit, Ended, Preempted, Refresh, Verdict, Withdraw
from volery.architectures.omega.placement import Layout
from volery.core.component import Component, sent_to
from volery.core.events import Preemption
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port
from volery.core.records import ATTEMPT_MAX
from volery.policies.tags import TagIndex
from volery.roles.node import Completed, Kill, Launch

LOG_MIN: Final = 4096
"""Number of changes that are kept at least; of larger cells, twice as many as there are machines."""
Bands = tuple[tuple[int, bytes], ...]
"""Amounts that tasks of each priority hold of one machine, lowest first."""


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
        self._forgotten_count = 0
        self._read_count: dict[Address, int] = {}

    def note(self, *machines: int) -> None:
        """Note that machines have changed, and forget the oldest changes where there are too many."""
        log = self._log
        log += machines

        if len(log) > 2 * self._max:
            del log[: self._max]
            self._forgotten_count += self._max

    def unseen(self, scheduler: Address) -> list[int]:
        """The machines that have changed since the last call for this scheduler; all of them if the log lacks some."""
        read_count = self._read_count.get(scheduler, 0) - self._forgotten_count

        self._read_count[scheduler] = self._forgotten_count + len(self._log)
        return list(range(self._machines)) if read_count < 0 else list(dict.fromkeys(self._log[read_count:]))


class Claims:
    """Keeps what is free of each machine, and starts and ends the tasks that hold the rest.

    Attributes:
        free: Free amounts of each machine, packed and guarded.
    """

    _port: Port
    _freed: Freed

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._packing = layout.packing
        self._guards = layout.packing.guards
        self.free = list(layout.whole)
        self.running: dict[TaskId, CellClaim] = {}
        self._launches = 0

    def open(self, port: Port, freed: Freed) -> None:
        """Take the port and the callback of the owner, which is called when a claim has ended."""
        self._port = port
        self._freed = freed

    def put(self, machine: int, packed: int) -> None:
        """Add to what is free on a machine; a negative amount takes."""
        self.free[machine] = self._layout.packing.settled(self.free[machine] + packed)

    def claim(self, owner: Address, task: Task, machine: int, priority: int = 0) -> CellClaim | None:
        """Take what a task asks for; None: there is too little."""
        packing = self._packing
        guards = self._guards

        packed = packing[task.request]
        free_after = self.free[machine] - packed

        if free_after & guards != guards:
            return None

        self.free[machine] = packing.settled(free_after)
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

    def check(self, other_claims: Iterable[tuple[int, int]] = ()) -> None:
        """Raise where free and taken amounts are not those of the machines."""
        free_amounts = list(self._layout.whole)
        guards = self._layout.packing.guards

        claimed_amounts = [(claim.machine, claim.packed) for claim in self.running.values()]
        for machine, packed in (*claimed_amounts, *other_claims):
            free_amounts[machine] -= packed
        free_amounts = [self._layout.packing.settled(amounts) for amounts in free_amounts]

        assert free_amounts == self.free, "amounts without a task, or tasks that share an amount"
        assert all(amounts & guards == guards for amounts in self.free), "a machine gives more than it has"

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
        self._displacements: dict[TaskId, Displacement] = {}
        self._ending: dict[int, int] = {}
        self._pending: dict[int, dict[TaskId, HeldAttempt]] = {}
        self._count = 0

    @property
    def free(self) -> list[int]:
        """The amounts that no claim holds, per machine."""
        return self._account.free

    def open(self, port: Port, freed: Freed) -> None:
        self._port = port
        self._freed = freed
        self._account.open(port, freed)

    def bands(self, machines: Sequence[int]) -> tuple[Bands, ...]:
        return tuple([self._bands(machine) for machine in machines])

    def _bands(self, machine: int) -> Bands:
        sums: dict[int, int] = {}
        for hold in self._losable(machine):
            sums[hold.priority] = sums.get(hold.priority, 0) + hold.claim.packed
        return tuple([(priority, self._layout.encode([amounts])) for priority, amounts in sorted(sums.items())])

    def _losable(self, machine: int) -> list[HeldAttempt]:
        """The attempts that may be ended there: they run, and their tasks can have a further attempt."""
        pending = self._pending.get(machine, {})
        return [hold for task, hold in self._on[machine].items() if task not in pending and hold.attempt < ATTEMPT_MAX]

    def claim(self, owner: Address, task: Task, machine: int, priority: int = 0) -> CellClaim | None:
        """Take what a task asks for, from lower priorities where too little is free; None: both is too little."""
        packed = self._layout.packing[task.request]

        losers = self._in_the_way(machine, packed, priority)
        if losers is None:
            return None

        # The losers' amounts are the claimer's at once; the losers are ended by `begin`, or get them back by `undo`.
        for loser in losers:
            self._take(loser)

        self._count += 1
        claim = CellClaim(owner, task, machine, packed)
        self._give(HeldAttempt(claim, self._attempts.get(task.id, 0), priority, self._count))

        self._losers[task.id] = losers
        return claim

    def _in_the_way(self, machine: int, packed: int, priority: int) -> list[HeldAttempt] | None:
        """The attempts that have to leave for a claim; None: it is in conflict."""
        packing = self._layout.packing
        guards = packing.guards
        free = room = self.free[machine]
        freed_amounts: list[int] = []

        if (free - packed) & guards == guards:
            return []

        lower_holds = [hold for hold in self._losable(machine) if hold.priority < priority]
        # Lowest priority first, then those placed last, until there is room; of these, only the ones that it needs.
        lower_holds.sort(key=lambda hold: (hold.priority, -hold.number))
        for hold in lower_holds:
            freed_amounts.append(hold.claim.packed)
            room = packing.settled(room + hold.claim.packed)
            if (room - packed) & guards == guards:
                return [lower_holds[place] for place in packing.needed(free, packed, freed_amounts)]

        return None

    def _take(self, hold: HeldAttempt) -> None:
        machine = hold.claim.machine
        task = hold.claim.task.id
        self._account.put(machine, hold.claim.packed)
        del self._account.running[task]
        del self._held[task]
        del self._on[machine][task]

    def _give(self, hold: HeldAttempt) -> None:
        machine = hold.claim.machine
        task = hold.claim.task.id
        self._account.put(machine, -hold.claim.packed)
        self._account.running[task] = hold.claim
        self._held[task] = self._on[machine][task] = hold

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
        machine = loser.claim.machine
        task = loser.claim.task.id
        self._displacements[task] = Displacement(loser, beneficiary)
        self._ending[machine] = self._ending.get(machine, 0) + 1
        self._port.send(self._layout.nodes[machine], Kill(task, loser.attempt))

    def _begin(self, hold: HeldAttempt) -> None:
        """Start the attempt, unless others on the machine still have to end."""
        # What was claimed from others is still used there until the last of them has ended.
        machine = hold.claim.machine
        if machine in self._ending:
            self._pending.setdefault(machine, {})[hold.claim.task.id] = hold
        else:
            self._account.launch(hold.claim, hold.attempt)

    def ended(self, message: Completed, now: Time) -> None:
        """Free what the attempt held, if no other claim has it already."""
        displacement = self._displacements.get(message.task)
        hold = self._held.get(message.task)
        if displacement is not None and displacement.held.attempt == message.attempt:
            self._end_displaced(displacement, message.killed, now)
        # Anything else is a repeated report of an attempt that has ended.
        elif hold is not None and hold.attempt == message.attempt:
            self._take(hold)
            self._report_end(hold, now)

    def _report_end(self, hold: HeldAttempt, now: Time) -> None:
        """Report the end of a task."""
        self._attempts.pop(hold.claim.task.id, None)
        self._freed(hold.claim, now)

    def _end_displaced(self, displacement: Displacement, killed: bool, now: Time) -> None:
        """Note the end of an evicted attempt; the last one on its machine lets the pending tasks begin."""
        loser = displacement.held
        claim = loser.claim

        del self._displacements[claim.task.id]
        # The attempt may have finished before the kill came: its task is done then, not displaced.
        if killed:
            self._attempts[claim.task.id] = loser.attempt + 1
            self._port.observe(Preemption(now, claim.task.id, loser.attempt, displacement.beneficiary, "priority"))
            self._port.send(claim.owner, Preempted(self._layout.packing.anywhere(claim.task), loser.attempt))
        else:
            self._report_end(loser, now)

        self._ending[claim.machine] -= 1
        if not self._ending[claim.machine]:
            del self._ending[claim.machine]

            for hold in self._pending.pop(claim.machine, {}).values():
                self._begin(hold)
            # What has begun there may be ended for others from now on.
            self._log.note(claim.machine)

    def withdraw(self, tasks: Sequence[TaskId], now: Time) -> None:
        """End tasks that run; those that have not begun never do."""
        for task in tasks:
            hold = self._held.get(task)
            if hold is None:
                continue

            machine = hold.claim.machine
            # It has not begun: no machine would report its end.
            if self._pending.get(machine, {}).pop(task, None) is not None:
                self._take(hold)
                self._report_end(hold, now)
            else:
                self._port.send(self._layout.nodes[machine], Kill(task, hold.attempt))

    def check(self) -> None:
        self._account.check()
        assert {task for holds in self._on for task in holds} == self._account.running.keys() == self._held.keys()

        ending_counts: dict[int, int] = {}
        for displacement in self._displacements.values():
            ending_counts[displacement.held.claim.machine] = ending_counts.get(displacement.held.claim.machine, 0) + 1
        assert ending_counts == self._ending, "machines wait for what does not end there"

        assert self._pending.keys() <= self._ending.keys(), "a task waits for nothing"

    def check_rest(self) -> None:
        self._account.check_rest()
        assert not self._displacements, "an attempt is still to end"


Conflicts = Literal["fine", "coarse"]


class CellState(Component):
    """Validates transactions: the only logic that is central.

    Args:
        tags: Tags of the tasks that hold a claim; None: tags are not heeded.
    """

    def __init__(
        self,
        layout: Layout,
        claims: Claims | PrecedenceClaims,
        log: ChangeLog,
        conflicts: Conflicts,
        *,
        restore: bool,
        tags: TagIndex | None = None,
    ) -> None:
        self._layout = layout
        self._claims = claims
        self._log = log
        self._coarse = conflicts == "coarse"
        self._restore = restore
        self._tags = tags
        self._sequences = [0] * len(layout.whole)
        self._refreshed: dict[Address, int] = {}
        self._committed: dict[Address, int] = {}

    def start(self, now: Time) -> None:
        self._claims.open(self._port, self._freed)

    def on_refresh(self, message: Refresh, source: Address, now: Time) -> None:
        """Send what has changed since this scheduler's last transaction, or everything where that is long ago."""
        if message.number <= self._refreshed.get(source, 0):
            return
        self._refreshed[source] = message.number

        free = self._claims.free
        sequences = self._sequences
        changed_machines = self._log.unseen(source)
        self._port.send(
            source,
            Changes(
                message.number,
                tuple(changed_machines),
                self._layout.encode([free[machine] for machine in changed_machines]),
                tuple([sequences[machine] for machine in changed_machines]),
                self._claims.bands(changed_machines),
                tuple([self._tags.on(machine) for machine in changed_machines]) if self._tags is not None else (),
            ),
        )

    def on_commit(self, message: Commit, source: Address, now: Time) -> None:
        """Take the claims that are not in conflict; of a gang, all or none."""
        if message.number <= self._committed.get(source, 0):
            return
        self._committed[source] = message.number

        claims = self._claims
        sequences = self._sequences
        tags = self._tags
        is_coarse = self._coarse

        accepted_claims: list[CellClaim] = []
        refused_tasks: list[TaskId] = []

        for task, machine, sequence in zip(message.tasks, message.machines, message.sequences, strict=True):
            # With coarse conflicts any change of the machine refuses the claim, even if it left enough (section 5.2).
            is_stale = is_coarse and sequence != sequences[machine]
            if tags is not None and task.tags is not None:
                is_stale |= not tags.allows(machine, task.tags)
            claim = None if is_stale else claims.claim(source, task, machine, message.priority)
            if claim is None:
                refused_tasks.append(task.id)
                continue

            sequences[machine] += 1
            accepted_claims.append(claim)
            if tags is not None:
                self._count(tags, claim, 1)

        if refused_tasks and message.gang:
            self._undo(accepted_claims)
            # Incremental transactions run the accepted rest; a gang has no use for a part (section 3.4).
            accepted_claims = []
            refused_tasks = [task.id for task in message.tasks]

        self._log.note(*[claim.machine for claim in accepted_claims])
        for claim in accepted_claims:
            claims.begin(claim)

        self._port.send(source, Verdict(message.number, tuple(refused_tasks)))

    @staticmethod
    def _count(tags: TagIndex, claim: CellClaim, sign: int) -> None:
        if claim.task.tags is not None:
            tags.add(claim.machine, claim.task.tags, sign)

    def _undo(self, claims: list[CellClaim]) -> None:
        for claim in reversed(claims):
            self._claims.undo(claim)

            if self._tags is not None:
                self._count(self._tags, claim, -1)
            if self._restore:
                self._sequences[claim.machine] -= 1
            else:
                # The public simulator's undone claims count as changes of the machine: others meet conflicts there.
                self._log.note(claim.machine)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Free what the attempt had."""
        self._claims.ended(message, now)

    def _freed(self, claim: CellClaim, now: Time) -> None:
        """Log the change, and report the end to the owner."""
        if self._tags is not None:
            self._count(self._tags, claim, -1)

        self._log.note(claim.machine)
        self._port.send(claim.owner, Ended(claim.task.job, claim.task.id))

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """End tasks that run; tasks that have not begun never do."""
        self._claims.withdraw(message.tasks, now)

    def check(self) -> None:
        self._claims.check()
        if self._tags is not None and isinstance(self._claims, Claims):
            # With precedence, tags cannot be set: `build` refuses the two together.
            running = self._claims.running.values()
            self._tags.check([(claim.machine, claim.task.tags) for claim in running if claim.task.tags is not None])

    def check_rest(self) -> None:
        self._claims.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Refresh: on_refresh,
        Commit: on_commit,
        Completed: on_completed,
        Withdraw: on_withdraw,
    }
    sends = sent_to("scheduler", Changes, Verdict, Ended, Preempted) | sent_to("node", Launch, Kill)
