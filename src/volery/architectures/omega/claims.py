"""The claims on the machines of a cell: their free amounts, and the tasks that hold the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from volery.architectures.omega.layout import Layout
from volery.core.model import Address, Task, TaskId, Time
from volery.core.port import Port
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
    """Logs the machines that have changed, so that a scheduler is sent only the changes since it last looked.

    Args:
        machines: their number.
    """

    __slots__ = ("_forgotten", "_log", "_machines", "_max", "_seen")

    def __init__(self, machines: int) -> None:
        self._machines = machines
        self._max = max(LOG_MIN, 2 * machines)
        self._log: list[int] = []
        self._forgotten = 0
        self._seen: dict[Address, int] = {}

    def add(self, machine: int) -> None:
        """Note that a machine has changed."""
        self._log.append(machine)

    def note(self, machine: int) -> None:
        """Add a change, and forget the oldest ones where there are too many."""
        self._log.append(machine)
        if len(self._log) > 2 * self._max:
            self.trim()

    def trim(self) -> None:
        """Forget the oldest changes where there are too many."""
        if len(self._log) > 2 * self._max:
            del self._log[: self._max]
            self._forgotten += self._max

    def unseen(self, by: Address) -> list[int]:
        """The machines that have changed since the last call for this scheduler; all of them if the log lacks some."""
        seen = self._seen.get(by, 0) - self._forgotten
        self._seen[by] = self._forgotten + len(self._log)
        return list(range(self._machines)) if seen < 0 else list(dict.fromkeys(self._log[seen:]))


class Claims:
    """Keeps what is free of each machine, and starts and ends the tasks that hold the rest.

    Args:
        layout: of the cluster.

    Attributes:
        free: per machine, packed and guarded.
        running: the claims of tasks that run.
    """

    __slots__ = ("_freed", "_guards", "_launches", "_layout", "_packing", "_port", "free", "running")
    _port: Port
    _freed: Freed

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._packing, self._guards = layout.packing, layout.packing.guards
        self.free = list(layout.whole)
        self.running: dict[TaskId, CellClaim] = {}
        self._launches = 0

    def open(self, port: Port, freed: Freed) -> None:
        """Take the port and the callback of the owner.

        Args:
            port: of the component that has the claims.
            freed: is called when a claim has ended.
        """
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
        task = claim.task
        self.running[task.id] = claim
        self._launches += 1
        self._port.send(self._layout.nodes[claim.machine], Launch(self._launches, task))

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
        """Raise where free and taken amounts are not those of the machines.

        Args:
            others: machine and amounts of what is taken by others than running tasks.
        """
        whole, guards = list(self._layout.whole), self._layout.packing.guards
        taken = [(claim.machine, claim.packed) for claim in self.running.values()]
        for machine, packed in (*taken, *others):
            whole[machine] -= packed
        whole = [self._layout.packing.settled(free) for free in whole]
        assert whole == self.free, "amounts without a task, or tasks that share an amount"
        assert all(free & guards == guards for free in self.free), "a machine gives more than it has"

    def check_rest(self) -> None:
        """Raise where something is taken although nothing runs."""
        assert self.free == self._layout.whole, "something is taken although nothing runs"
