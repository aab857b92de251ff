"""Stage R3: what a machine has to meet besides constraints, which are always kept: how near it is to a task's input."""

from __future__ import annotations

from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.core.bounds import Seconds
from volery.core.model import SECOND, Time


class AnyDistance(Policy, frozen=True):
    """Where input lies is not looked at."""

    def waits_us(self) -> tuple[Time, Time] | None:
        """There is nothing to wait for."""
        return None


class Delay(Policy, frozen=True):
    """Delay scheduling: machines that hold input, after a while racks that do, then any; of these the nearest.

    Zaharia et al., EuroSys 2010, with times (section 4). The defaults are those of `hfs`.
    """

    node_wait_s: Annotated[Seconds, msgspec.Meta(description="W1, for machines that hold input of a job")] = 4.5
    rack_wait_s: Annotated[Seconds, msgspec.Meta(description="W2, after that, for racks that do")] = 4.5

    def waits_us(self) -> tuple[Time, Time] | None:
        """W1 and W2."""
        return round(self.node_wait_s * SECOND), round(self.rack_wait_s * SECOND)
