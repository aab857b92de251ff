"""Jobs that may use more workers than their users asked for (section 6, the MapReduce scheduler).

A job's tasks are the activities of a MapReduce job, and its width is the number of workers that it was configured with:
so many of its tasks run at once. A scheduler that looks at the whole cell may let it use more of what is idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from volery.core.model import Amounts
from volery.core.resources import SLOT, Packing

Policy = Literal["none", "max-parallelism", "global-cap", "relative-size"]
NO_END: Final = 1 << 40
"""More workers than any job has tasks."""


class Elasticity(msgspec.Struct, frozen=True):
    """Limits the workers that a job uses at once.

    Args:
        width: that users ask for; 0: as many as the job has tasks.
        policy: none: just these; max-parallelism: as many as the job has tasks; global-cap: likewise, until the share
            of the cell that is in use reaches `cap`; relative-size: up to `times` as many as were asked for.
        cap: share of the resource that is used most (0 to 1).
        times: see above.
    """

    width: int
    policy: Policy
    cap: float
    times: int

    def most(self, running: int) -> int:
        """The further workers that a job with so many running tasks may use in any cell."""
        if not self.width or self.policy in ("max-parallelism", "global-cap"):
            return NO_END
        return self.width * (self.times if self.policy == "relative-size" else 1) - running

    def budget(self, running: int, request: Amounts, free: Sequence[int], capacity: Amounts, packing: Packing) -> int:
        """The further workers in a cell with this much free per machine, packed; each task asks for `request`."""
        if not self.width or self.policy != "global-cap":
            return self.most(running)
        room = NO_END
        for place, (asked, whole) in enumerate(zip(request or SLOT, capacity, strict=True)):
            if asked:
                idle = packing.idle(place, free)
                room = min(room, max(0, int(self.cap * whole) - (whole - idle)) // asked)
        return max(self.width - running, room)
