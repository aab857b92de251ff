"""Random choice of workers to probe: distinct ones that satisfy a constraint set, or with replacement.

Sparrow spreads more probes than there are suitable workers evenly over them (Ousterhout et al., SOSP 2013; its public
code does the same).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from volery.policies.match import Matches, positions

SPARSE: Final = 4
"""While at least one worker in four suits, drawing until one does is faster than listing those that do."""
LOW_64: Final = (1 << 64) - 1
LISTS_MAX: Final = 256
"""Lists of suitable workers kept per sampler."""


class Sampler:
    """Draws workers by number; every suitable one with the same probability.

    Args:
        constraints: per worker, the constraint set that it satisfies.
        matches: the same as vectors, shared inside a build.
        random: uniform on [0, 1).
        replacement: whether one draw may name a worker twice, as in the Eagle authors' simulator.
    """

    __slots__ = ("_constraints", "_everyone", "_lists", "_matches", "_random", "_replacement")

    def __init__(
        self, constraints: Sequence[int], matches: Matches, random: Callable[[], float], *, replacement: bool = False
    ) -> None:
        self._constraints = constraints
        self._everyone = list(range(len(constraints)))
        self._matches = matches
        self._random = random
        self._replacement = replacement
        self._lists: dict[int, list[int]] = {}

    def supply(self, need: int) -> int:
        """The number of workers that satisfy a constraint set."""
        return self._matches[need].bit_count() if need else len(self._everyone)

    def draw(self, need: int, count: int) -> list[int]:
        """Draw workers that satisfy `need`; where fewer do, each comes as often as another or once more.

        Raises:
            ValueError: when no worker does.
        """
        supply = self.supply(need)
        if not supply:
            raise ValueError(f"no worker satisfies {need:#x}")
        if self._replacement:
            candidates, random = self.suitable(need), self._random
            return [candidates[int(random() * supply)] for _ in range(count)]
        rounds, rest = divmod(count, supply)
        drawn = self.suitable(need) * rounds if rounds else []
        if rest:
            dense = supply * SPARSE >= len(self._everyone) and 2 * rest <= supply
            drawn += self._tried(need, rest) if need and dense else self._shuffled(self.suitable(need), rest)
        return drawn

    def suitable(self, need: int) -> list[int]:
        """All workers that satisfy a constraint set, in no particular order; not to be changed."""
        if not need:
            return self._everyone
        listed = self._lists.get(need)
        if listed is None:
            if len(self._lists) >= LISTS_MAX:
                self._lists.clear()
            listed = self._lists[need] = positions(self._matches[need])
        return listed

    def _shuffled(self, listed: list[int], count: int) -> list[int]:
        """The first steps of a Fisher-Yates shuffle: a list in any order stays a list in any order."""
        random, left = self._random, len(listed)
        for place in range(count):
            other = place + int(random() * left)
            left -= 1
            listed[place], listed[other] = listed[other], listed[place]
        return listed[:count]

    def _tried(self, need: int, count: int) -> list[int]:
        constraints, random, workers = self._constraints, self._random, len(self._everyone)
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
        seed: any integer.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & LOW_64

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        self._state = state = (self._state * 6364136223846793005 + 1442695040888963407) & LOW_64
        return (state >> 32) * count >> 32
