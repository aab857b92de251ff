"""An index of free capacity: the machines of a partition that have enough of every resource, without a look at each.

Per resource there is a ladder of thresholds, four to an octave and at its top the amount of the largest machine, and
per threshold one bit vector of the machines that have at least so much free. The AND of the vectors of the next
thresholds at or above a request's amounts, and of the vector of its constraints, holds machines that fit for sure.
Where that is empty, the vectors of the next thresholds below leave a few candidates, which are looked at exactly. A
change of what is free flips the bits of the thresholds between the old amount and the new one: a machine that fills up
crosses each once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from volery.core.model import AMOUNT_BITS, AMOUNT_MAX, Amounts
from volery.core.resources import FIELD_BITS, SLOT, Packing
from volery.policies.match import bytes_vector, positions

Choice = Literal["first", "random", "best-fit"]

STEPS: Final = 4
"""Thresholds per octave: a candidate from the threshold below lacks at most a fifth of the amount."""
NEEDS_MAX: Final = 1 << 14
"""Requests whose places on the ladders are remembered."""


def ladder(largest: int) -> list[int]:
    """1, 2 .. 8, 10, 12, 14, 16, 20 ..: thresholds up to the largest amount."""
    steps = {max(1, (STEPS + k) << octave >> 2) for octave in range(AMOUNT_BITS) for k in range(STEPS)}
    return sorted(step for step in steps if step <= largest)


class Need(NamedTuple):
    """A request as an index looks for it.

    Args:
        packed: Amounts as one integer.
        sure: (Resource, rung) of the thresholds at or above the amounts; None where one is above the whole ladder.
        below: (Resource, rung) of the thresholds at or below the amounts.
        exact: True if these are the same, so that what is sure is all that fits.
        tight: Resource of which it takes the largest share, and the rung from which best fit climbs.
    """

    packed: int
    sure: tuple[tuple[int, int], ...] | None
    below: tuple[tuple[int, int], ...]
    exact: bool
    tight: tuple[int, int]


class Ladders(dict[Amounts, Need]):
    """Request -> need: a pure function of the machines, shared inside a build.

    Args:
        capacities: Capacities of all machines that any index of the build holds.
        packing: Packing of their amounts; None: no resource counts devices.

    Attributes:
        largest: Amount of each resource that the largest machine has.
        step_counts: Thresholds of each resource at four to an octave.
        rungs: All thresholds of each resource: these, and the amount of the largest machine.
    """

    def __init__(self, capacities: Sequence[Amounts], packing: Packing | None = None) -> None:
        super().__init__()
        self.largest = [max(column) for column in zip(*capacities, strict=True)]
        self.packing = Packing(len(self.largest)) if packing is None else packing
        self._steps = [ladder(largest) for largest in self.largest]
        self.step_counts = [len(steps) for steps in self._steps]
        self.rungs = [sorted({*steps, largest} - {0}) for steps, largest in zip(self._steps, self.largest, strict=True)]

    def __missing__(self, request: Amounts) -> Need:
        amounts = [(k, amount) for k, amount in enumerate(request or SLOT) if amount]

        rungs_above = tuple([(k, bisect_left(self._heeded(k, amount), amount)) for k, amount in amounts])
        rungs_below = tuple([(k, bisect_right(self._heeded(k, amount), amount) - 1) for k, amount in amounts])
        is_possible = all(amount <= max(self._heeded(k, amount), default=0) for k, amount in amounts)
        tightest_resource = max(amounts, key=lambda pair: pair[1] / (self.largest[pair[0]] or 1), default=(0, 0))[0]

        need = Need(
            self.packing[request],
            rungs_above if is_possible else None,
            tuple([(k, rung) for k, rung in rungs_below if self.rungs[k]]),
            rungs_above == rungs_below,
            (tightest_resource, dict(rungs_above).get(tightest_resource, 0)),
        )
        if len(self) < NEEDS_MAX:
            self[request] = need
        return need

    def _heeded(self, resource: int, amount: int) -> list[int]:
        """The thresholds for an amount: for less than all of the largest machine, those of the last step are equals."""
        return self.rungs[resource] if amount == self.largest[resource] else self._steps[resource]


class CapacityIndex:
    """The free capacity of the machines of one partition.

    Args:
        capacities: Units of each resource at each position.

    Attributes:
        free: Free amounts at each position, packed; change it through `put` alone.
    """

    __slots__ = ("_columns", "_guards", "_step_counts", "_vectors", "free")

    def __init__(self, capacities: Sequence[Amounts], ladders: Ladders) -> None:
        self._guards = ladders.packing.guards
        shared_integers: dict[Amounts, int] = {}  # one integer for all machines alike
        self.free = [shared_integers.setdefault(amounts, ladders.packing.free(amounts)) for amounts in capacities]

        table = np.array(capacities, dtype=np.int64)
        self._vectors = [_at_least(table[:, k], rungs) for k, rungs in enumerate(ladders.rungs)]
        self._columns = _columns(ladders.rungs, self._vectors)
        self._step_counts = ladders.step_counts

    def copy(self) -> CapacityIndex:
        """Another index that begins with the same state; the integers are shared."""
        twin = CapacityIndex.__new__(CapacityIndex)
        twin._guards, twin._step_counts = self._guards, self._step_counts
        twin.free = list(self.free)
        twin._vectors = [list(vectors) for vectors in self._vectors]
        twin._columns = _columns([rungs for _, rungs, _ in self._columns], twin._vectors)
        return twin

    def fits(self, position: int, packed: int) -> bool:
        """True if the machine has enough of everything free."""
        return (self.free[position] - packed) & self._guards == self._guards

    def put(self, position: int, free: int) -> None:
        """The machine has this free now, packed and guarded."""
        free_before = self.free[position]
        self.free[position] = free

        for shift, rungs, vectors in self._columns:
            low = bisect_right(rungs, free_before >> shift & AMOUNT_MAX)
            high = bisect_right(rungs, free >> shift & AMOUNT_MAX)
            if low != high:
                bit = 1 << position
                for rung in range(low, high) if low < high else range(high, low):
                    vectors[rung] ^= bit

    def sure(self, need: Need, candidates: int) -> int:
        """The candidates that fit for sure."""
        if need.sure is None:
            return 0
        for resource, rung in need.sure:
            candidates &= self._vectors[resource][rung]
        return candidates

    def near(self, need: Need, candidates: int) -> int:
        """The candidates that may fit: all that do, and a few that lack a little."""
        for resource, rung in need.below:
            candidates &= self._vectors[resource][rung]
        return candidates

    def fitting(self, need: Need, candidates: int) -> int:
        """The candidates that fit."""
        sure = self.sure(need, candidates)
        if need.exact:
            return sure

        # Only between the two rungs a machine has to be looked at exactly.
        doubtful = self.near(need, candidates) & ~sure
        free, packed, guards = self.free, need.packed, self._guards
        for position in positions(doubtful):
            if (free[position] - packed) & guards == guards:
                sure |= 1 << position
        return sure

    def least(self, resource: int, candidates: int) -> tuple[int, bool]:
        """The candidates that have least free of a resource, up to a step of the ladder.

        Returns:
            Their vector, and whether the step is so small that all of them have the same.
        """
        _, rungs, vectors = self._columns[resource]

        low, high = 0, len(vectors)
        while low < high:  # each vector contains the next, so that halving finds the rung
            middle = (low + high) // 2
            if candidates & ~vectors[middle]:
                high = middle
            else:
                low = middle + 1
        if low == len(vectors):
            return candidates, True
        return candidates & ~vectors[low], rungs[low] - (rungs[low - 1] if low else 0) == 1

    def most(self, resource: int, candidates: int) -> tuple[int, bool]:
        """The candidates that have most free of a resource, as in `least`."""
        _, rungs, vectors = self._columns[resource]

        low, high = -1, len(vectors) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if candidates & vectors[middle]:
                low = middle
            else:
                high = middle - 1
        if low < 0:
            return candidates, True
        return candidates & vectors[low], low + 1 == len(rungs) or rungs[low + 1] - rungs[low] == 1

    def pick(self, need: Need, candidates: int, choice: Choice, start: int = 0) -> int:
        """The position of a candidate that fits, or -1.

        Args:
            candidates: Vector of candidates, for example of the machines that meet its constraints.
            choice: Rule of choice. `first`: the lowest position; `random`: the next one from `start` on, round the
                partition; both among those that fit for sure, where there are any. `best-fit`: the one that has least
                free, up to a step of the ladder, of the resource of which the request takes the largest share.
            start: Position that the caller has drawn.
        """
        if choice == "best-fit":
            return self._tightest(need, candidates)

        fitting = self.sure(need, candidates)
        if not fitting:
            # Nothing fits for sure, and sure is exact: nothing fits.
            if need.exact:
                return -1
            return self._first_exact(need, candidates, start if choice == "random" else 0)
        if choice == "random":
            fitting = fitting >> start << start or fitting
        return (fitting & -fitting).bit_length() - 1

    def _first_exact(self, need: Need, candidates: int, start: int) -> int:
        near_candidates = self.near(need, candidates)
        free, packed, guards = self.free, need.packed, self._guards
        for part in (near_candidates >> start << start, near_candidates & ((1 << start) - 1)):
            while part:
                lowest = part & -part
                position = lowest.bit_length() - 1
                if (free[position] - packed) & guards == guards:
                    return position
                part ^= lowest
        return -1

    def _tightest(self, need: Need, candidates: int) -> int:
        fitting = self.fitting(need, candidates)
        if not fitting:
            return -1
        resource, rung = need.tight
        vectors = self._vectors[resource]

        # Each vector contains the next: the last one that leaves no fitting machine below it bounds the tightest.
        low, high = rung, self._step_counts[resource]
        all_fitting = fitting
        while low < high:
            middle = (low + high) // 2
            if all_fitting & ~vectors[middle]:
                high = middle
            else:
                low = middle + 1
        if low < self._step_counts[resource]:
            fitting = all_fitting & ~vectors[low]
        return (fitting & -fitting).bit_length() - 1


Columns = tuple[tuple[int, list[int], list[int]], ...]
"""Per resource: where its field begins, the thresholds, and the vectors."""


def _columns(rungs: Sequence[list[int]], vectors: Sequence[list[int]]) -> Columns:
    return tuple([(k * FIELD_BITS, *pair) for k, pair in enumerate(zip(rungs, vectors, strict=True))])


def _at_least(column: np.ndarray[tuple[int], np.dtype[np.int64]], rungs: Sequence[int]) -> list[int]:
    return [bytes_vector(np.packbits(column >= rung, bitorder="little").tobytes()) for rung in rungs]
