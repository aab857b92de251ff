"""Agreement of two orders of the same things."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Times = Sequence[int] | npt.NDArray[np.int64]


def kendall_tau(first: Times, second: Times) -> float:
    """Kendall's tau-b (Biometrika 33(3), 1945): agreement of two orders, -1 to 1, with ties in either.

    It is 0 where all values of an order are equal.
    """
    from scipy.stats import kendalltau  # it takes a second of processor time, which other comparisons shall not pay for

    tau = float(kendalltau(first, second).statistic)
    return 0.0 if math.isnan(tau) else tau
