"""Demand and supply of constraints, and the estimated wait of a queue, as in Phoenix (Thinakaran et al., ICDCS 2017).

The constraint resource vector (CRV) holds, per constraint, how much work asks for it over how many workers have it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from volery.core.model import Task, Time
from volery.policies.match import positions

WINDOW: Final = 64
"""Tasks that a waiting time is estimated from; the paper says recent ones."""
LOAD_MAX: Final = 0.99
"""Estimates see no higher load: beyond, the formula says nothing."""
POSITIONS_MAX: Final = 4096
"""Constraint sets whose positions are kept per demand."""


def supply(constraints: Sequence[int], slots: Sequence[int]) -> list[int]:
    """Per constraint, how many workers satisfy it; a machine counts as often as it has slots."""
    width = max(constraints, default=0).bit_length()
    return [sum(s for c, s in zip(constraints, slots, strict=True) if c >> k & 1) for k in range(width)]


def scarcity(demands: Sequence[Sequence[int]], available: Sequence[int]) -> list[float]:
    """The CRV: demand over supply of each constraint.

    Args:
        demands: per scheduler, the waiting tasks that ask for each constraint.
        available: per constraint, the workers that satisfy it.
    """
    asked = [sum(counts) for counts in zip(*demands, strict=True)] if demands else [0] * len(available)
    return [count / workers if workers else 0.0 for count, workers in zip(asked, available, strict=True)]


class ConstraintDemand:
    """Waiting tasks per constraint.

    Args:
        width: how many constraints there are.
    """

    __slots__ = ("_positions", "counts")

    def __init__(self, width: int) -> None:
        self.counts = [0] * width
        self._positions: dict[int, list[int]] = {}

    def add(self, needs: int, tasks: int) -> None:
        """Count further waiting tasks, or fewer, that need all of these."""
        listed = self._positions.get(needs)
        if listed is None:
            if len(self._positions) >= POSITIONS_MAX:
                self._positions.clear()
            listed = self._positions[needs] = positions(needs)
        for k in listed:
            self.counts[k] += tasks


class Negotiation:
    """Gives up the soft constraints of tasks that no machine can satisfy.

    Args:
        soft: the constraints that may be given up, a bit set.
        workers: per constraint, how many satisfy it.

    Attributes:
        thousandths: the CRV as last received from the monitor.
    """

    __slots__ = ("_soft", "_workers", "thousandths")

    def __init__(self, soft: int, workers: Sequence[int]) -> None:
        self._soft = soft
        self._workers = workers
        self.thousandths: Sequence[int] = (0,) * len(workers)

    def admitted(self, task: Task, supply: Callable[[int], int]) -> tuple[Task, int]:
        """The task without the soft constraints in its way, those of the highest CRV first, and their number.

        Args:
            task: which.
            supply: constraint set -> how many machines satisfy it.
        """
        needs, soft = task.constraints, task.constraints & self._soft
        if not soft or supply(needs):
            return task, 0
        dropped = 0
        while soft and not supply(needs):
            worst = 1 << max(positions(soft), key=self._rank)
            needs ^= worst
            soft ^= worst
            dropped += 1
        if not supply(needs):
            return task, 0
        return msgspec.structs.replace(task, constraints=needs), dropped

    def _rank(self, constraint: int) -> tuple[float, int, int]:
        """The CRV; where it is equal, few workers; a constraint that no worker satisfies is before all others."""
        available = self._workers[constraint] if constraint < len(self._workers) else 0
        ratio = self.thousandths[constraint] if available else float("inf")
        return ratio, -available, -constraint


class RecentService:
    """Estimates the wait of a queue from the last tasks that it served (Pollaczek and Khinchine).

    With arrival rate L, service time S and load R = L E[S], the mean wait is R / (1 - R) * E[S^2] / (2 E[S]).

    Args:
        servers: slots that serve the queue; the load is per slot.
    """

    __slots__ = ("_came", "_count", "_ran", "_servers")

    def __init__(self, servers: int) -> None:
        self._came = array("q")
        self._ran = array("q")
        self._count = 0
        self._servers = servers

    def add(self, came: Time, ran_us: Time) -> None:
        """Note the arrival and the run time of a task that has ended."""
        if self._count < WINDOW:
            self._came.append(came)
            self._ran.append(ran_us)
        else:
            place = self._count % WINDOW
            self._came[place], self._ran[place] = came, ran_us
        self._count += 1

    def load(self) -> float:
        """Arrival rate times mean service time, from 0 to `LOAD_MAX`; 0 while fewer than two tasks are known."""
        known = len(self._came)
        if known < 2:
            return 0.0
        work_us = sum(self._ran) / known
        span_us = max(self._came) - min(self._came)
        if work_us * (known - 1) >= LOAD_MAX * span_us * self._servers:
            return LOAD_MAX if work_us else 0.0
        return work_us * (known - 1) / (span_us * self._servers)

    def wait_us(self, load: float) -> float:
        """The mean wait of this queue at a load from 0 to below 1, microseconds."""
        total_us = sum(self._ran)
        if not total_us:
            return 0.0
        return load / (1.0 - load) * sum(ran * ran for ran in self._ran) / (2 * total_us)
