"""The wizard: from what a job wishes to a utility expression (TetriSched, EuroSys 2016, the STRL generator).

"8 GPUs in one rack, 2x slower elsewhere, deadline 30 min" is

    Wishes(k=8, estimate_us=..., fast=("gpu.rack0", "gpu.rack1"), slower=2.0, deadline_us=now + 30 min, value=1000)

and becomes, for every placement option and every start up to the plan-ahead, an alternative worth what the end of that
run is worth; alternatives without worth are left out. The shapes of TetriSched's job types are settings of it:
unconstrained (no `fast`), GPU (one set), MPI (a set per rack), availability (`apart`), HDFS (`partial`).

Value functions (ours where the papers are silent): with a deadline, the value until then and 0 after; as best effort,
falling linearly from submission to `horizon_us` later, and never below a hundredth.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from volery.architectures.tetrisched.expressions import NOW, Expression, LnCk, Max, Min, NCk
from volery.core.model import NEVER, Time

FLOOR: Final = 0.01
"""What is left of the value of a best-effort job that comes late."""


class TimeGrid(msgspec.Struct, frozen=True):
    """Time as a planner sees it: now and some quanta ahead.

    Args:
        now_us: the beginning of quantum 0.
        quantum_us: its length.
        ahead: the last quantum with which a job may be planned to start; 0: now or not at all.
        horizon_us: how long after submission best effort has come down to its floor.
    """

    now_us: Time
    quantum_us: Time
    ahead: int
    horizon_us: Time

    def quanta(self, length_us: Time) -> int:
        """The number of quanta, rounded up; at least 1."""
        return max(1, -(-length_us // self.quantum_us))

    def start_us(self, quantum: int) -> Time:
        """The beginning of a quantum."""
        return self.now_us + quantum * self.quantum_us


class Option(NamedTuple):
    """Machines that a job may be given, all of one set, and how long it runs there."""

    where: str
    length_us: Time


class Wishes(msgspec.Struct, frozen=True):
    """The wishes of a job.

    Args:
        k: machines, all at once unless `partial`.
        estimate_us: of its run time where it is fast.
        fast: names of sets of machines; within any one of them it is fast. Nothing: it is fast everywhere.
        slower: how many times longer it takes on other machines, and on machines of several of these sets.
        everywhere: the name of the set of all machines that it may use; empty: nowhere but on fast ones.
        partial: fewer machines are worth their share, as of storage nodes for tasks that read from them; they are
            taken now or not at all.
        apart: (name of a set, machines): all of these at once instead of `k` of one set, as one of each rack so that
            no failure takes all.
        deadline_us: in absolute time; NEVER: best effort.
        submitted_us: from which best effort loses value.
        value: of a timely end.
    """

    k: int
    estimate_us: Time
    fast: tuple[str, ...] = ()
    slower: float = 1.0
    everywhere: str = "all"
    partial: bool = False
    apart: tuple[tuple[str, int], ...] = ()
    deadline_us: Time = NEVER
    submitted_us: Time = 0
    value: float = 1.0

    def options(self) -> list[Option]:
        """The sets on which it may run, and its run times."""
        found = [Option(name, self.estimate_us) for name in self.fast]
        if self.everywhere:
            found.append(
                Option(self.everywhere, round(self.estimate_us * self.slower) if self.fast else self.estimate_us)
            )
        return found


class Branch(NamedTuple):
    """An alternative: an option and the quantum with which it starts."""

    where: str
    start: int
    expression: Expression


def value_at(wishes: Wishes, end_us: Time, horizon_us: Time) -> float:
    """The value of an end at that time."""
    if wishes.deadline_us != NEVER:
        return wishes.value if end_us <= wishes.deadline_us else 0.0
    left = 1.0 - (end_us - wishes.submitted_us) / horizon_us
    return wishes.value * max(FLOOR, left)


def branches(wishes: Wishes, options: list[Option], grid: TimeGrid) -> list[Branch]:
    """All alternatives that are worth anything.

    Args:
        wishes: of the job.
        options: `wishes.options()`, or what else is known of where it may run; one where machines are taken apart.
        grid: of the planner.
    """
    starts = range(NOW, 1 if wishes.partial else grid.ahead + 1)
    found = []
    for where, length_us in options:
        for start in starts:
            value = value_at(wishes, grid.start_us(start) + length_us, grid.horizon_us)
            if value > 0:
                quanta = grid.quanta(length_us)
                found.append(Branch(where, start, _machines(wishes, where, value, start, quanta)))
    return found


def _machines(wishes: Wishes, where: str, value: float, start: int, quanta: int) -> Expression:
    if wishes.apart:
        return Min(tuple([NCk((name,), k, value, start, quanta) for name, k in wishes.apart]))
    return (LnCk if wishes.partial else NCk)((where,), wishes.k, value, start, quanta)


def wizard(wishes: Wishes, grid: TimeGrid) -> Expression | None:
    """The expression; None where nothing is worth anything any more, as of a deadline that cannot be met."""
    options = [Option("", wishes.estimate_us)] if wishes.apart else wishes.options()
    return joined([branch.expression for branch in branches(wishes, options, grid)])


def joined(alternatives: list[Expression]) -> Expression | None:
    """Their max; None where there are none."""
    if not alternatives:
        return None
    return alternatives[0] if len(alternatives) == 1 else Max(tuple(alternatives))
