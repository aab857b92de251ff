"""Agreement of two orders of the same things."""

from __future__ import annotations

import math

from volery.statistics.differences import Values


def kendall_tau(first: Values, second: Values) -> float:
    """Kendall's tau-b (Biometrika 33(3), 1945): agreement of two orders, -1 to 1, with ties in either.

    It is 0 where all values of an order are equal.
    """
    from scipy.stats import kendalltau  # it takes a second of processor time, which other comparisons shall not pay for

    tau = float(kendalltau(first, second).statistic)
    return 0.0 if math.isnan(tau) else tau
