"""Policies of stage R7 that know nothing of workflows: how many processors, or slots, there shall be.

The autoscalers are those that Ilyushkin et al. compare (ICPE 2017; reference 14 of the reference architecture), each
reduced to its idea: parameters, and what is said to be ours, are our choice. Units are slots, or those of the resource
that counts processors: thousandths where it does.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.supply import Supply
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import Count, PositiveCount, PositiveRatio, Ratio, Seconds
from volery.core.model import SECOND
from volery.core.provisioning import HOUR


class AllOn(Policy, frozen=True):
    """R7 is not there: every machine is always on, and nobody counts what that costs."""

    def units(self, view: View, supply: Supply) -> int:
        """All."""
        return supply.whole


class Static(AllOn, frozen=True):
    """Every machine is on from beginning to end, and paid for: what autoscalers are held against."""


class Scaling(Policy, frozen=True):
    """What all others have in common."""

    least: Annotated[Count, msgspec.Meta(description="units that are always there")] = 0


class React(Scaling, frozen=True):
    """What running tasks hold and waiting ones ask for now, and some to spare (React; Chieu et al., ICEBE 2009)."""

    spare: Annotated[Ratio, msgspec.Meta(description="of the demand, that there is more")] = 0.0

    def units(self, view: View, supply: Supply) -> int:
        """The demand of now."""
        return max(self.least, math.ceil(supply.demand * (1 + self.spare)))


class Threshold(Scaling, frozen=True):
    """Steps up when more than a fraction is in use or tasks wait, down when less than another is, then pauses."""

    high: Annotated[float, msgspec.Meta(gt=0, le=1, description="fraction in use above which it steps up")] = 0.8
    low: Annotated[float, msgspec.Meta(ge=0, lt=1, description="fraction in use below which it steps down")] = 0.4
    step: Annotated[PositiveRatio, msgspec.Meta(description="of what there is, at least one unit")] = 0.25
    pause_s: Annotated[Seconds, msgspec.Meta(description="after a change nothing is changed for so long")] = 300.0

    def units(self, view: View, supply: Supply) -> int:
        """What there is, or a step more or less."""
        there = supply.units
        step = max(1, round(there * self.step))
        if supply.changed_us >= 0 and view.now - supply.changed_us < self.pause_s * SECOND:
            wanted = there
        elif supply.asked or supply.held > self.high * there:
            wanted = there + step
        elif supply.held < self.low * there:
            wanted = there - step
        else:
            wanted = there
        return max(self.least, wanted)


class Hist(Scaling, frozen=True):
    """What this hour asked for on earlier days, or the demand of now if more (Hist; Urgaonkar, TAAS 3(1), 2008)."""

    percentile: Annotated[float, msgspec.Meta(gt=0, le=1, description="of the peaks of that hour")] = 0.95
    day_h: Annotated[PositiveCount, msgspec.Meta(description="hours after which demand is expected to repeat")] = 24

    def units(self, view: View, supply: Supply) -> int:
        """The larger of prediction and demand: that the prediction is corrected at once is ours."""
        hour = (view.now + supply.boot_us + supply.every_us) // HOUR
        seen = sorted(supply.peaks[hour % self.day_h : hour : self.day_h])
        predicted = seen[math.ceil(self.percentile * len(seen)) - 1] if seen else 0
        return max(self.least, predicted, supply.demand)
