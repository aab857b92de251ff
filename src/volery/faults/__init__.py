"""Fault storms: a seed draws a scenario, a judge outside the components watches it, and a failure is made small.

They need nothing but the design, its `tolerates` and the parameters of its `bearing`, so that designs of other packages
weather them as ours do.
"""

from volery.faults.judge import Failure, Outcome, weather
from volery.faults.scenario import Scenario, StormJob, draw
from volery.faults.schedule import Schedule, draw_schedule
from volery.faults.shrink import shrink

__all__ = ["Failure", "Outcome", "Scenario", "Schedule", "StormJob", "draw", "draw_schedule", "shrink", "weather"]
