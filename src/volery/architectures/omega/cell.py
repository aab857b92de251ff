"""The master copy of the cell state: what every machine has free, who claims what, and whether two claims conflict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from volery.architectures.omega.layout import Layout
from volery.architectures.omega.messages import Changes, Commit, Ended, Refresh, Verdict, Withdraw
from volery.core.component import Component, sent_to
from volery.core.model import Address, JobId, Task, TaskId, Time
from volery.roles.node import Completed, Kill, Launch

Conflicts = Literal["fine", "coarse"]
LOG_MIN: Final = 4096
"""Changes that are kept at least; of larger cells, twice as many as there are machines."""


class Running(NamedTuple):
    """A task on a machine."""

    owner: Address
    job: JobId
    machine: int
    packed: int


class Claims(Component):
    """What is taken of each machine, by whom; the part that the cell state shares with the allocator of offers.

    Args:
        layout: of the cluster.
    """

    __slots__ = ("_free", "_launches", "_layout", "_running")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._free = list(layout.whole)
        self._running: dict[TaskId, Running] = {}
        self._launches = 0

    def _put(self, machine: int, packed: int) -> None:
        """So much more is free on a machine, or less where it is negative."""
        self._free[machine] = self._layout.packing.settled(self._free[machine] + packed)

    def _launch(self, task: Task, machine: int) -> None:
        self._launches += 1
        self._port.send(self._layout.nodes[machine], Launch(self._launches, task))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """What the task took is free; its owner is told."""
        running = self._running.pop(message.task, None)
        if running is not None:
            self._put(running.machine, running.packed)
            self._freed(running, now)
            self._port.send(running.owner, Ended(running.job, message.task))

    def _freed(self, running: Running, now: Time) -> None:
        raise NotImplementedError

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """End tasks that run."""
        for task in message.tasks:
            running = self._running.get(task)
            if running is not None:
                self._port.send(self._layout.nodes[running.machine], Kill(task))

    def _taken(self) -> list[tuple[int, int]]:
        """Machine and amounts of all that is not free."""
        return [(running.machine, running.packed) for running in self._running.values()]

    def check(self) -> None:
        """What is free and what is taken is what machines have."""
        whole, guards = list(self._layout.whole), self._layout.packing.guards
        for machine, packed in self._taken():
            whole[machine] -= packed
        whole = [self._layout.packing.settled(free) for free in whole]
        assert whole == self._free, "amounts without a task, or tasks that share an amount"
        assert all(free & guards == guards for free in self._free), "a machine gives more than it has"

    def check_rest(self) -> None:
        """Nothing is taken."""
        assert self._free == self._layout.whole, "something is taken although nothing runs"


class CellState(Claims):
    """Validates transactions: the only logic that is central.

    Args:
        layout: of the cluster.
        conflicts: fine: a claim is in conflict where its machine has too little left; coarse: where the machine's
            sequence number has changed since the scheduler looked, whatever is left.
        restore: give back the sequence numbers of claims that are undone; the public simulator does not.
    """

    __slots__ = ("_coarse", "_committed", "_forgotten", "_heard", "_log", "_log_max", "_refreshed", "_restore",
                 "_sequences")  # fmt: skip

    def __init__(self, layout: Layout, conflicts: Conflicts, *, restore: bool) -> None:
        super().__init__(layout)
        self._coarse = conflicts == "coarse"
        self._restore = restore
        self._sequences = [0] * len(layout.whole)
        self._log: list[int] = []
        self._log_max = max(LOG_MIN, 2 * len(layout.whole))
        self._forgotten = 0
        self._heard: dict[Address, int] = {}
        self._refreshed: dict[Address, int] = {}
        self._committed: dict[Address, int] = {}

    def on_refresh(self, message: Refresh, source: Address, now: Time) -> None:
        """Tell what has changed since this scheduler's last transaction, or everything where that is long ago."""
        if message.number <= self._refreshed.get(source, 0):
            return
        self._refreshed[source] = message.number
        heard = self._heard.get(source, 0) - self._forgotten
        changed = list(range(len(self._free))) if heard < 0 else list(dict.fromkeys(self._log[heard:]))
        self._heard[source] = self._forgotten + len(self._log)
        free, sequences = self._free, self._sequences
        self._port.send(
            source,
            Changes(
                message.number,
                tuple(changed),
                self._layout.encode([free[machine] for machine in changed]),
                tuple([sequences[machine] for machine in changed]),
                self._lower(changed),
            ),
        )

    def _lower(self, machines: Sequence[int]) -> tuple[tuple[tuple[int, bytes], ...], ...]:
        """Per machine, what tasks of each priority hold, where that is of use to anybody."""
        return ()

    def on_commit(self, message: Commit, source: Address, now: Time) -> None:
        """Take the claims that are not in conflict; of a gang, all or none."""
        if message.number <= self._committed.get(source, 0):
            return
        self._committed[source] = message.number
        free, sequences, packing = self._free, self._sequences, self._layout.packing
        guards, coarse, running = packing.guards, self._coarse, self._running
        taken: list[tuple[Task, Running]] = []
        refused: list[TaskId] = []
        for task, machine, sequence in zip(message.tasks, message.machines, message.sequences, strict=True):
            packed = packing[task.request]
            left = free[machine] - packed
            if left & guards != guards or (coarse and sequence != sequences[machine]):
                refused.append(task.id)
                continue
            free[machine] = packing.settled(left)
            sequences[machine] += 1
            taken.append((task, Running(source, task.job, machine, packed)))
        if refused and message.gang:
            self._undo([one for _, one in taken])
            taken, refused = [], [task.id for task in message.tasks]
        for task, one in taken:
            running[task.id] = one
            self._log.append(one.machine)
            self._launch(task, one.machine)
        self._maybe_forget()
        self._port.send(source, Verdict(message.number, tuple(refused)))

    def _undo(self, taken: list[Running]) -> None:
        for one in taken:
            self._put(one.machine, one.packed)
            if self._restore:
                self._sequences[one.machine] -= 1
            else:
                self._log.append(one.machine)

    def _freed(self, running: Running, now: Time) -> None:
        self._log.append(running.machine)
        self._maybe_forget()

    def _maybe_forget(self) -> None:
        if len(self._log) > 2 * self._log_max:
            del self._log[: self._log_max]
            self._forgotten += self._log_max

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Refresh: on_refresh,
        Commit: on_commit,
        Completed: Claims.on_completed,
        Withdraw: Claims.on_withdraw,
    }
    sends = sent_to("scheduler", Changes, Verdict, Ended) | sent_to("node", Launch, Kill)
