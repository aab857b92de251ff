"""Placements that were refused because the scheduler's view was wrong or others came first, over time.

Megha counts them as `inconsistencies` (a Local Master refuses), Hydra as `containers_void`, Omega and its kin in the
transactions of their schedulers. Designs in which whoever chooses a slot also keeps it have none.
"""

from __future__ import annotations

import numpy as np

from volery.core.events import REFUSALS
from volery.core.records import Records
from volery.metrics.columns import Floats, Longs


def refused_tasks(records: Records, begins_us: Longs) -> Floats:
    """Refused placements in each interval; no numbers where the run has reported none of its own and no transactions.

    What is refused before the first interval counts in it, what is refused after its beginning in the last.

    Args:
        records: of the run.
        begins_us: the beginning of each interval, as `utilisation` returns them.
    """
    moments = [
        (at * kept.width_us, amount)
        for name in sorted(REFUSALS)
        if (kept := records.moments.get(name)) is not None
        for at, amount in kept.amounts.items()
    ]
    moments += [(one.ended_us, one.refused) for one in records.transactions]
    if not moments or not begins_us.size:
        return np.full(begins_us.size, np.nan)
    at_us, amounts = np.array(moments, dtype=np.int64).T
    interval = np.maximum(np.searchsorted(begins_us, at_us, side="right") - 1, 0)
    return np.bincount(interval, weights=amounts, minlength=begins_us.size).astype(np.float64)
