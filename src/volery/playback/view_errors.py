"""Errors of schedulers' views: slots that a view has as free, against those that are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from volery.core.component import role_of
from volery.core.model import Address, Time
from volery.metrics.columns import Longs
from volery.playback.run_log import ViewErrors


class ViewErrorLog:
    """Collects the messages that a component receives, and the errors of its view where it has one."""

    def __init__(self) -> None:
        self.received_us: dict[Address, Time] = {}
        self.moments: list[tuple[int, Time, dict[Address, Time], list[tuple[int, int, int]]]] = []

    def note(self, at: int, now: Time, view: Mapping[int, int], free: Sequence[int], cells: Longs) -> None:
        """Compare the view with the free slots, at the end of an interval."""
        differs = -np.array(free, dtype=np.int64)
        differs[np.fromiter(view, np.int64, len(view))] += np.fromiter(view.values(), np.int64)
        over, under = (np.bincount(cells, weights=np.maximum(way * differs, 0)) for way in (1, -1))
        places = np.flatnonzero(over + under)
        columns = (places.tolist(), over[places].astype(int).tolist(), under[places].astype(int).tolist())
        self.moments.append((at, now, dict(self.received_us), list(zip(*columns, strict=True))))

    def errors(self, by: Address, bins: int, nodes: set[str]) -> ViewErrors:
        """The errors per interval; an interval without a comparison repeats the one before."""
        found = [self.moments[0]] * bins
        for (at, now, received, wrong), following in zip(self.moments, [*self.moments[1:], None], strict=True):
            for place in range(at, bins if following is None else following[0]):
                found[place] = (at, now, received, wrong)
        of = sorted(one for one in self.received_us if role_of(one) not in nodes)
        age_us = [[now - last[one] if one in last else -1 for _, now, last, _ in found] for one in of]
        free, taken = ([sum(one[place] for one in wrong) for *_, wrong in found] for place in (1, 2))
        return ViewErrors(by, of, age_us, free, taken, [wrong for *_, wrong in found])
