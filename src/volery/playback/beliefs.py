"""What a scheduler believes to be free, against what is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from volery.core.component import role_of
from volery.core.model import Address, Time
from volery.metrics.columns import Longs
from volery.playback.film import Belief


class Beliefs:
    """Of one component; what it has heard is kept of all, what it believes of those that believe anything."""

    def __init__(self) -> None:
        self.heard_us: dict[Address, Time] = {}
        self.moments: list[tuple[int, Time, dict[Address, Time], list[tuple[int, int, int]]]] = []

    def note(self, at: int, now: Time, believed: Mapping[int, int], free: Sequence[int], cells: Longs) -> None:
        """What it believes at the end of an interval, against what is."""
        differs = -np.array(free, dtype=np.int64)
        differs[np.fromiter(believed, np.int64, len(believed))] += np.fromiter(believed.values(), np.int64)
        over, under = (np.bincount(cells, weights=np.maximum(way * differs, 0)) for way in (1, -1))
        places = np.flatnonzero(over + under)
        columns = (places.tolist(), over[places].astype(int).tolist(), under[places].astype(int).tolist())
        self.moments.append((at, now, dict(self.heard_us), list(zip(*columns, strict=True))))

    def kept(self, by: Address, bins: int, nodes: set[str]) -> Belief:
        """Intervals at which nothing was noted repeat the one before."""
        found = [self.moments[0]] * bins
        for (at, now, heard, wrong), following in zip(self.moments, [*self.moments[1:], None], strict=True):
            for place in range(at, bins if following is None else following[0]):
                found[place] = (at, now, heard, wrong)
        of = sorted(one for one in self.heard_us if role_of(one) not in nodes)
        age_us = [[now - heard[one] if one in heard else -1 for _, now, heard, _ in found] for one in of]
        free, taken = ([sum(one[place] for one in wrong) for *_, wrong in found] for place in (1, 2))
        return Belief(by, of, age_us, free, taken, [wrong for *_, wrong in found])
