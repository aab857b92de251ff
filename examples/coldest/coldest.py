"""Coldest: a policy of stage R5 of one's own, for `volery compare pipeline:R5=coldest`."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies import Candidates, Policy, View, Waiting


class Coldest(Policy, frozen=True):
    """The machine that runs the fewest tasks; ties go to the one that is free again the soonest, by estimates."""

    look_at: Annotated[int, msgspec.Meta(ge=1, description="machines that are compared, the lowest numbers")] = 100

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        def heat(machine: int) -> tuple[int, int]:
            running = view.running_on(machine)
            return len(running), max((run.expected_end_us for run in running), default=0)

        return min(list(machines)[: self.look_at], key=heat)
