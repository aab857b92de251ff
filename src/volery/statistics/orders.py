"""Agreement of two orders of the same things."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Times = Sequence[int] | npt.NDArray[np.int64]


def kendall_tau(first: Times, second: Times, ends: Times | None = None) -> float:
    """Kendall's tau-b (Biometrika 33(3), 1945): agreement of two orders, -1 to 1, with ties in either.

    It is 0 where all values of an order are equal.

    Args:
        ends: Per place k, the first place behind those with which k forms pairs, which begin at k + 1; None: all pairs.
    """
    columns = np.asarray([first, second], np.int64)
    score, untied = 0, np.zeros(2, np.int64)
    for place, end in enumerate([len(first)] * len(first) if ends is None else ends):
        signs = np.sign(columns[:, place + 1 : end] - columns[:, place : place + 1])
        score += int((signs[0] * signs[1]).sum())
        untied += np.count_nonzero(signs, axis=1)
    return score / math.sqrt(int(untied[0]) * int(untied[1])) if untied.all() else 0.0
