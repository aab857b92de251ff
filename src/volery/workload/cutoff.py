"""The cutoff between short and long jobs that a trace gives by itself.

The papers' cutoffs make about a tenth of the jobs long: of the public slices of the traces, 9.05 % of Google's jobs at
1,129.532 s and 9.5 % of Yahoo's at 90.5811 s (the cutoffs of Hawk, Eagle, and Pigeon, SoCC 2019, section 4.1); and 10 %
of the jobs in Pigeon's own experiment at 1 s (section 5).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from volery.core.bounds import SECONDS_MAX
from volery.core.model import SECOND
from volery.core.trace import Trace
from volery.workload.columns import view

SHORT_SHARE: Final = 0.9
"""Of the jobs."""


def cutoff_of(trace: Trace) -> float:
    """The mean task time, in seconds, that 90 % of the jobs do not exceed, by what schedulers are told.

    It is at most what a parameter may be, so that designs take it: longer tasks are long.
    """
    found = float(np.quantile(view(trace.estimate_us), SHORT_SHARE, method="inverted_cdf")) / SECOND
    return min(found, SECONDS_MAX)
