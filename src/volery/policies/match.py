"""Constraint matching with bit vectors (Thiyyakat et al., IoT 2023, section 4.3, algorithm 1), and random choice.

A partition numbers its units (worker slots) 0, 1, 2 ... by position. A vector is a Python integer with one bit per
position; suitable units are the AND of the availability vector with one vector per constraint. Positions are sorted
by the number of constraints that the machine meets, so that the lowest set bit is the choice of the
minimum-constraints policy.

Workers to probe are drawn distinct, or with replacement. Sparrow spreads more probes than there are suitable workers
evenly over them (Ousterhout et al., SOSP 2013; its public code does the same).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

MatchPolicy = Literal["random", "min-constraints"]

TABLE_BITS: Final = 7
"""A table per group of 7 constraints turns a 21-constraint match into 3 look-ups and 2 ANDs."""
TABLE_MASK: Final = (1 << TABLE_BITS) - 1
MEMO_MIN: Final = 256
MEMO_MAX: Final = 1024
MEMO_TOTAL_MAX: Final = 25_600
"""Vectors kept per partition, and over all partitions of a build: the frequent sets; more would only cost memory."""
LISTED_SIZE_MIN: Final = 256
"""Smaller partitions are drawn from directly: listing their members costs more than it saves."""
DENSE: Final = 3
"""Draw over all positions while at least one in three is a candidate."""
LISTED_CONSTRAINTS_MAX: Final = 2
"""Sets of at most two constraints are 72 % of Sharma's tasks and 232 of the 2,097,152 sets."""
ANCHORS_MAX: Final = 1 << 16
LOOP_MAX: Final = 16
"""Above this many set bits numpy lists them faster than a loop."""
TRIES: Final = 6
WORD: Final = 30
"""Bits of a one-digit Python integer."""


class Anchors(dict[int, int]):
    """Constraint set -> its two constraints that the fewest machines satisfy, or itself when it has no more.

    Args:
        constraints: Constraint sets of all machines of the cluster.
    """

    def __init__(self, constraints: Sequence[int]) -> None:
        super().__init__()
        self._supply = [vector.bit_count() for vector in having(constraints)]

    def __missing__(self, mask: int) -> int:
        anchor = mask
        if mask.bit_count() > LISTED_CONSTRAINTS_MAX:
            needed = sorted(positions(mask), key=lambda k: self._supply[k] if k < len(self._supply) else 0)
            anchor = sum(1 << k for k in needed[:LISTED_CONSTRAINTS_MAX])
        if len(self) < ANCHORS_MAX:
            self[mask] = anchor
        return anchor


class Matches(dict[int, int]):
    """Constraint set -> vector of the units that satisfy it: a pure function of the cluster, shared inside a build.

    Args:
        constraints: Constraint set of each unit, in the order of positions.
        partition_count: Count of such tables in the build; they share the memory for vectors.

    Attributes:
        every: Vector of all units.
        members: Constraint set -> positions of the units that satisfy it, for sets of few constraints that were asked
            for. A random choice from such a list hits a free unit at once unless most are busy.
    """

    __slots__ = ("_anchors", "_memo_max", "_size", "_tables", "every", "members")

    def __init__(self, constraints: Sequence[int], anchors: Anchors, partition_count: int = 1) -> None:
        super().__init__()
        self.every = (1 << len(constraints)) - 1
        vectors = having(constraints)
        self._tables = [self._table(vectors[k : k + TABLE_BITS]) for k in range(0, len(vectors), TABLE_BITS)]
        self._anchors = anchors
        self._memo_max = max(MEMO_MIN, min(MEMO_MAX, MEMO_TOTAL_MAX // partition_count))
        self._size = len(constraints)
        self.members: dict[int, array[int]] = {}

    def _table(self, vectors: list[int]) -> list[int]:
        table = [self.every]
        for vector in vectors:
            table += [entry & vector for entry in table]
        return table + [0] * ((1 << TABLE_BITS) - len(table))  # no unit has a constraint beyond those

    def __missing__(self, mask: int) -> int:
        vector, remaining_bits = self.every, mask

        for table in self._tables:
            vector &= table[remaining_bits & TABLE_MASK]
            remaining_bits >>= TABLE_BITS
        if remaining_bits:
            vector = 0

        if len(self) < self._memo_max:
            self[mask] = vector
        return vector

    def pick(self, mask: int, candidates: int, random: Callable[[], float]) -> int:
        """The position of one of the candidates, each with the same probability.

        In a large partition, draws from the members of the set, or of its two rarest constraints where it has more,
        hit a candidate soon; after a few misses the candidates are counted through. Small partitions are drawn from
        directly where candidates are dense. Each way is uniform, so the mixture is.

        Args:
            mask: Constraint set of the task.
            candidates: Vector of units that satisfy the set, not 0.
            random: Source of numbers that are uniform on [0, 1).
        """
        if self._size < LISTED_SIZE_MIN:
            count = candidates.bit_count()
            if count * DENSE < self._size:
                return nth_position(candidates, int(random() * count))
            while True:
                position = int(random() * self._size)
                if candidates >> position & 1:
                    return position

        anchor = self._anchors[mask]
        members = self.members.get(anchor)
        if members is None:
            members = self.members[anchor] = array("I", positions(self[anchor]))

        for _ in range(TRIES):
            position = members[int(random() * len(members))]
            if candidates >> position & 1:
                return position

        return nth_position(candidates, int(random() * candidates.bit_count()))


def having(constraints: Sequence[int]) -> list[int]:
    """The vector of the units that have each constraint; one numpy pass each: a build may have 100,000 units."""
    masks = np.array(constraints, dtype=np.int64)
    width = max(constraints, default=0).bit_length()
    return [bytes_vector(np.packbits(masks >> k & 1 != 0, bitorder="little").tobytes()) for k in range(width)]


def fewest_constraints_first(machines: Sequence[int], constraints: Sequence[int]) -> list[int]:
    """Machines in the order in which the minimum-constraints policy prefers them; ties keep the machines' order."""
    return sorted(machines, key=lambda machine: constraints[machine].bit_count())


def nth_position(vector: int, nth: int) -> int:
    """The position of the set bit that has `nth` set bits below it, by halving: linear in the words of the vector."""
    base = 0

    while (width := vector.bit_length()) > WORD:
        half = width >> 1
        low = vector & ((1 << half) - 1)
        count_below = low.bit_count()
        if nth < count_below:
            vector = low
        else:
            nth -= count_below
            vector >>= half
            base += half

    for _ in range(nth):
        vector &= vector - 1
    return base + (vector & -vector).bit_length() - 1


def positions(vector: int) -> list[int]:
    """The positions of all set bits, lowest first."""
    if vector.bit_count() > LOOP_MAX:
        octets = np.frombuffer(vector_bytes(vector), dtype=np.uint8)
        all_positions: list[int] = np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
        return all_positions

    bit_positions = []
    while vector:
        lowest = vector & -vector
        bit_positions.append(lowest.bit_length() - 1)
        vector ^= lowest
    return bit_positions


def vector_bytes(vector: int) -> bytes:
    """A vector as it travels in a message."""
    return vector.to_bytes((vector.bit_length() + 7) // 8, "little")


def bytes_vector(octets: bytes) -> int:
    """A vector as it came in a message."""
    return int.from_bytes(octets, "little")


SPARSE: Final = 4
"""While at least one worker in four suits, drawing until one does is faster than listing those that do."""
LOW_64: Final = (1 << 64) - 1
LISTS_MAX: Final = 256
"""Lists of suitable workers kept per sampler."""


class Sampler:
    """Draws workers by number; every suitable one with the same probability.

    Args:
        constraints: Constraint set that each worker satisfies.
        matches: The same as vectors, shared inside a build.
        random: Source of numbers that are uniform on [0, 1).
        replacement: True if one draw may name a worker twice, as in the Eagle authors' simulator.
    """

    __slots__ = ("_all_workers", "_constraints", "_lists", "_matches", "_random", "_replacement")

    def __init__(
        self, constraints: Sequence[int], matches: Matches, random: Callable[[], float], *, replacement: bool = False
    ) -> None:
        self._constraints = constraints
        self._all_workers = list(range(len(constraints)))
        self._matches = matches
        self._random = random
        self._replacement = replacement
        self._lists: dict[int, list[int]] = {}

    def supply(self, need: int) -> int:
        """The number of workers that satisfy a constraint set."""
        return self._matches[need].bit_count() if need else len(self._all_workers)

    def draw(self, need: int, count: int) -> list[int]:
        """Draw workers that satisfy `need`; where fewer do, each comes as often as another or once more.

        Raises:
            ValueError: when no worker does.
        """
        supply = self.supply(need)
        if not supply:
            raise ValueError(f"no worker satisfies {need:#x}")

        if self._replacement:
            candidates = self.suitable(need)
            random = self._random
            return [candidates[int(random() * supply)] for _ in range(count)]

        # More draws than workers are spread evenly: whole rounds first, then a draw without replacement.
        rounds, remainder = divmod(count, supply)
        drawn = self.suitable(need) * rounds if rounds else []
        if remainder:
            is_dense = supply * SPARSE >= len(self._all_workers) and 2 * remainder <= supply
            drawn += (
                self._tried(need, remainder) if need and is_dense else self._shuffled(self.suitable(need), remainder)
            )
        return drawn

    def suitable(self, need: int) -> list[int]:
        """All workers that satisfy a constraint set, in no particular order; not to be changed."""
        if not need:
            return self._all_workers
        workers = self._lists.get(need)
        if workers is None:
            if len(self._lists) >= LISTS_MAX:
                self._lists.clear()
            workers = self._lists[need] = positions(self._matches[need])
        return workers

    def _shuffled(self, workers: list[int], count: int) -> list[int]:
        """Draw by the first steps of a Fisher-Yates shuffle."""
        # A list in any order stays a list in any order, so that it is shuffled in place and kept.
        random, remaining = self._random, len(workers)
        for place in range(count):
            swap_place = place + int(random() * remaining)
            remaining -= 1
            workers[place], workers[swap_place] = workers[swap_place], workers[place]
        return workers[:count]

    def _tried(self, need: int, count: int) -> list[int]:
        constraints, random, workers = self._constraints, self._random, len(self._all_workers)

        drawn: dict[int, None] = {}
        while len(drawn) < count:
            worker = int(random() * workers)
            if not need & ~constraints[worker]:
                drawn[worker] = None
        return list(drawn)


class SmallRandom:
    """A small generator for those of whom there are tens of thousands: one integer where `Random` takes 2.5 kB.

    Knuth's 64-bit linear congruential generator, of which the high half is used.

    Args:
        seed: Any integer.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & LOW_64

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        self._state = state = (self._state * 6364136223846793005 + 1442695040888963407) & LOW_64
        return (state >> 32) * count >> 32
