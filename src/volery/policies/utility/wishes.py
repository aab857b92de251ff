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

from typing import Final

import msgspec

from volery.core.model import NEVER, Time
from volery.policies.utility.expressions import Expression, LnCk, Max, Min, NCk

VALUE_WITH_DEADLINE: Final = 25.0
VALUE_RESERVED: Final = 1000.0
"""Values of a job with a deadline, and with one that was promised, where one without is worth 1 (TetriSched)."""
FLOOR: Final = 0.01
"""What is left of the value of a best-effort job that comes late."""


class Grid(msgspec.Struct, frozen=True):
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
        """So long in quanta, rounded up; at least 1."""
        return max(1, -(-length_us // self.quantum_us))

    def start_us(self, quantum: int) -> Time:
        """When a quantum begins."""
        return self.now_us + quantum * self.quantum_us


class Wishes(msgspec.Struct, frozen=True):
    """What a job wants.

    Args:
        k: machines, all at once unless `partial`.
        estimate_us: of its run time where it is fast.
        fast: names of sets of machines; within any one of them it is fast. Nothing: it is fast everywhere.
        slower: how many times longer it takes on other machines, and on machines of several of these sets.
        everywhere: the name of the set of all machines that it may use; empty: nowhere but on fast ones.
        partial: fewer machines are worth their share, as of storage nodes for tasks that read from them; they are
            taken now or not at all.
        apart: sets of which each must give `k` machines, so that no failure takes all.
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
    apart: tuple[str, ...] = ()
    deadline_us: Time = NEVER
    submitted_us: Time = 0
    value: float = 1.0


def value_at(wishes: Wishes, end_us: Time, horizon_us: Time) -> float:
    """What an end at that time is worth."""
    if wishes.deadline_us != NEVER:
        return wishes.value if end_us <= wishes.deadline_us else 0.0
    left = 1.0 - (end_us - wishes.submitted_us) / horizon_us
    return wishes.value * max(FLOOR, left)


def options(wishes: Wishes) -> list[tuple[tuple[str, ...], Time]]:
    """The sets of which one must give all machines, and how long the job runs there."""
    slow_us = round(wishes.estimate_us * wishes.slower)
    found: list[tuple[tuple[str, ...], Time]] = [((name,), wishes.estimate_us) for name in wishes.fast]
    if wishes.everywhere:
        found.append(((wishes.everywhere,), slow_us if wishes.fast else wishes.estimate_us))
    return found


def wizard(wishes: Wishes, grid: Grid) -> Expression | None:
    """The expression; None where nothing is worth anything any more, as of a deadline that cannot be met."""
    found: list[Expression] = []
    if wishes.apart:
        found = _apart(wishes, grid)
    else:
        kind = LnCk if wishes.partial else NCk
        starts = range(1 if wishes.partial else grid.ahead + 1)
        for where, length_us in options(wishes):
            for start in starts:
                value = value_at(wishes, grid.start_us(start) + length_us, grid.horizon_us)
                if value > 0:
                    found.append(kind(where, wishes.k, value, start, grid.quanta(length_us)))
    if not found:
        return None
    return found[0] if len(found) == 1 else Max(tuple(found))


def _apart(wishes: Wishes, grid: Grid) -> list[Expression]:
    found: list[Expression] = []
    for start in range(grid.ahead + 1):
        value = value_at(wishes, grid.start_us(start) + wishes.estimate_us, grid.horizon_us)
        if value > 0:
            quanta = grid.quanta(wishes.estimate_us)
            found.append(Min(tuple([NCk((name,), wishes.k, value, start, quanta) for name in wishes.apart])))
    return found
