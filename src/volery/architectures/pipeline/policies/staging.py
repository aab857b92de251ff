"""Stages J5 and T5: what has to be in place before a job or a task runs (Andreadis et al., SC18, section III-D)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.records import JobRecord, Waiting
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import PositiveRatio, Ratio, Seconds
from volery.core.model import SECOND, Time


class NoSetup(Policy, frozen=True):
    """Nothing has to be staged in."""

    def stage_us(self, view: View, what: JobRecord | Waiting) -> Time:
        """0."""
        return 0


class StageIn(Policy, frozen=True):
    """Files of a given size come in over a link of a given bandwidth; traces do not say how large they are."""

    mb: Annotated[Ratio, msgspec.Meta(description="size of the files")] = 0.0
    mb_per_s: Annotated[PositiveRatio, msgspec.Meta(description="bandwidth")] = 100.0
    latency_s: Annotated[Seconds, msgspec.Meta(description="before the first byte")] = 0.0

    def stage_us(self, view: View, what: JobRecord | Waiting) -> Time:
        """Latency, and size by bandwidth."""
        return round((self.latency_s + self.mb / self.mb_per_s) * SECOND)
