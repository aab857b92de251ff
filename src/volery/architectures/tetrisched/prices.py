"""Large plans by prices: an upper bound of what a plan can be worth, and plans that come near it.

Every set of machines that a leaf asks for has a price per machine and quantum. A job then takes the alternative that is
worth most beyond its price, or none; what the jobs gain, plus the price of all that is available, is at least the worth
of every plan (Lagrangian relaxation, Fisher, Management Science 1981; of leaves in a max it is as tight as the linear
relaxation that a solver begins with). Prices rise where more is asked for than there is, and fall where less is.

Prices also order the jobs: those that are worth most per price choose first. A plan that is within the gap of the bound
ends the search, as it does in the solver; after `ROUNDS_MAX` the best plan is taken, and its gap is told. A set that is
inside another uses that one, too. The numbers are whole, so that all machines compute the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from volery.architectures.tetrisched.expressions import Alternatives
from volery.architectures.tetrisched.machines import Parts

Wholes = npt.NDArray[np.int64]
SCALE: Final = 1 << 24
"""Whole units in which the most valuable leaf is counted."""
ROUNDS_MAX: Final = 6
"""Number of changes of prices per plan, at most."""
NEVER_TAKEN: Final = -(1 << 40)


class PriceSearch:
    """Prices of the machines of a plan, from round to round.

    Args:
        tables: Tables of the simple requests, by their place in the plan.
        others_bound: The most that all other requests can be worth.

    Attributes:
        bound: Worth that no plan exceeds.
        rounds: Number of changes of the prices so far.
    """

    def __init__(self, tables: Mapping[int, Alternatives], parts: Parts, others_bound: float) -> None:
        self._requests = list(tables)
        self._parts = parts
        self._others_bound = others_bound

        wheres = list(dict.fromkeys([set_names for table in tables.values() for set_names in table.wheres]))
        place_of = {set_names: number for number, set_names in enumerate(wheres)}
        inside = [[set(parts.of(inner)) <= set(parts.of(outer)) for outer in wheres] for inner in wheres]
        self._inside: Wholes = np.array(inside, dtype=np.int64)

        counts = [
            [
                sum(column)
                for column in zip(*(parts.available[part].tolist() for part in parts.of(set_names)), strict=True)
            ]
            for set_names in wheres
        ]

        self._room: Wholes = np.array(counts, dtype=np.int64)
        # One place more than times: differences of running sums give the price of a stretch.
        self._width = len(parts.times) + 1

        self._lay_out(list(tables.values()), place_of)
        # Next to nothing: of alternatives that are worth as much, the shortest gains most.
        self._prices = np.ones_like(self._room)

        self.rounds = 0
        self.bound = float("inf")
        self._step = 1.0

        self._choose()

    def _lay_out(self, tables: Sequence[Alternatives], place: Mapping[tuple[str, ...], int]) -> None:
        """A row per request and a column per leaf: its worth, machines, and the places of its first and last price."""
        shape = (len(tables), max(len(table.leaves) for table in tables))
        worth = np.full(shape, -1.0)
        self._k, self._from, self._to = (np.zeros(shape, dtype=np.int64) for _ in range(3))

        for row, table in enumerate(tables):
            size = len(table.leaves)
            windows = self._parts.windows(table)
            base = [place[leaf.where] * self._width for leaf in table.leaves]
            worth[row, :size] = [leaf.value if self._parts.total(leaf) >= leaf.k else -1.0 for leaf in table.leaves]
            self._k[row, :size] = [leaf.k for leaf in table.leaves]
            self._from[row, :size] = [first + begin for first, (begin, _) in zip(base, windows, strict=True)]
            self._to[row, :size] = [first + end for first, (_, end) in zip(base, windows, strict=True)]

        worth_max = max(0.0, float(worth.max()))
        self._unit = SCALE / worth_max if worth_max else 1.0
        self._worth: Wholes = np.where(worth > 0, np.ceil(worth * self._unit), NEVER_TAKEN).astype(np.int64)

    def _choose(self) -> None:
        """Let each job take what it gains most by at these prices; compute the bound, and what is asked for."""
        sums = np.zeros((len(self._prices), self._width), dtype=np.int64)
        np.cumsum(self._inside @ self._prices, axis=1, out=sums[:, 1:])
        flat = sums.ravel()
        self._gain = self._worth - self._k * (flat[self._to] - flat[self._from])

        rows = np.arange(len(self._gain))
        best_leaf = self._gain.argmax(axis=1)
        self._best: Wholes = self._gain[rows, best_leaf]

        # Jobs that gain nothing at these prices take nothing.
        has_gain = self._best > 0
        rows = rows[has_gain]
        best_leaf = best_leaf[has_gain]

        change = np.zeros_like(flat)
        np.add.at(change, self._from[rows, best_leaf], self._k[rows, best_leaf])
        np.add.at(change, self._to[rows, best_leaf], -self._k[rows, best_leaf])

        used = change.reshape(sums.shape).cumsum(axis=1)[:, :-1]
        self._excess: Wholes = self._inside.T @ used - self._room

        self._total = int(self._best[has_gain].sum()) + int((self._prices * self._room).sum())
        self.bound = min(self.bound, self._others_bound + self._total / self._unit)

    def change(self, worth: float) -> bool:
        """Change the prices, by as much as the bound may still fall to this worth; False: they are as they were."""
        # A price of zero cannot fall: only a set that is short of machines moves it.
        movable_excess = np.where((self._prices > 0) | (self._excess > 0), self._excess, 0)

        length = int((movable_excess * movable_excess).sum())
        distance = self._total - (worth - self._others_bound) * self._unit

        if not length or distance <= 0:
            return False

        self.rounds += 1
        new_prices = self._prices + np.rint(self._step * distance / length * movable_excess).astype(np.int64)
        self._prices = np.maximum(0, new_prices)

        bound_before = self.bound
        self._choose()

        # The step overshot: the bound is convex in the prices, and its best value so far stays.
        if self.bound >= bound_before:
            self._step /= 2
        return True

    def orders(self) -> list[tuple[int, list[int]]]:
        """(request, its leaves, the best one first) of those that gain anything, the most per price first."""
        rows = np.arange(len(self._gain))
        worth = self._worth[rows, self._gain.argmax(axis=1)]
        share = self._best / np.maximum(1, worth)

        leaves = np.argsort(-self._gain, axis=1, kind="stable").tolist()
        gains = (self._gain > 0).sum(axis=1).tolist()
        by_share = np.argsort(-share, kind="stable").tolist()
        return [(self._requests[row], leaves[row][: gains[row]]) for row in by_share if gains[row]]
