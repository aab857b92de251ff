"""Stage T11: what becomes of a task whose machine has died."""

from __future__ import annotations

from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.core.bounds import Period
from volery.core.model import SECOND, Time


class NoRecovery(Policy, frozen=True):
    """No machine dies."""

    def period_us(self) -> Time | None:
        """Nothing is recovered."""
        return None


class Restart(Policy, frozen=True):
    """It is placed again and starts from zero."""

    def period_us(self) -> Time | None:
        """Nothing is kept."""
        return 0


class Checkpoint(Policy, frozen=True):
    """It is placed again and goes on from its last checkpoint; taking one costs nothing."""

    period_s: Annotated[Period, msgspec.Meta(description="counted from the start of an attempt")] = 60.0

    def period_us(self) -> Time | None:
        """What an attempt has done since the last whole period is lost."""
        return round(self.period_s * SECOND)
