"""Users of jobs where a trace has none: jobs are dealt to users by given fractions."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.core.trace import Trace
from volery.workload.columns import generator

USERS_MAX: Final = 100_000
EXAMPLE: Final = "q1:10+q2:25+q3:15+q4:50"


def parse_users(text: str) -> dict[str, int]:
    """User -> weight, from `NAME:WEIGHT+NAME:WEIGHT`; a weight left out is 1.

    Raises:
        InputError: the text is not of that form.
    """
    found: dict[str, int] = {}
    for part in text.split("+"):
        shape = re.fullmatch(r"\s*([^\s:+()]+)\s*(?::\s*([0-9]{1,9})\s*)?", part)
        weight = int(shape[2] or 1) if shape is not None else 0
        if shape is None or not weight:
            raise InputError("users", f"{part!r} in {text!r} is not NAME:WEIGHT with a weight from 1; as {EXAMPLE}")
        if shape[1] in found:
            raise InputError("users", f"{shape[1]!r} stands in {text!r} twice; keep one")
        found[shape[1]] = weight
    if len(found) > USERS_MAX:
        raise InputError("users", f"{len(found)} users are too many; at most {USERS_MAX} are possible")
    return found


def deal_to_users(trace: Trace, users: str | None, seed: int) -> Trace:
    """The trace with a user for every job, each drawn by the weights from the stream `workload/users` of the seed.

    One draw per job, in order: the first jobs have the same users however many follow.

    Args:
        trace: the workload; users that it has are replaced.
        users: as for `parse_users`; None leaves the trace as it is.
        seed: of the run.

    Raises:
        InputError: the users are not a list of names and weights.
    """
    if users is None:
        return trace
    weights = parse_users(users)
    names, bounds = list(weights), np.cumsum(list(weights.values()))
    drawn = generator(seed, "workload/users").random(trace.job_count) * bounds[-1]
    chosen = np.searchsorted(bounds, drawn, side="right").tolist()
    return msgspec.structs.replace(trace, user=tuple(names[place] for place in chosen))
