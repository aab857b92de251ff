"""Fault injection: a seed draws a scenario, a judge outside the components checks its run, and failures are shrunk.

It needs nothing but the design and its claims (`Architecture.conformance`), so that it tests designs of other packages
as it does ours.
"""

from volery.faults.judge import Failure, ScenarioResult, run_scenario
from volery.faults.scenario import Scenario, ScenarioJob, draw, shrink
from volery.faults.schedule import Schedule, draw_schedule

__all__ = [
    "Failure",
    "Scenario",
    "ScenarioJob",
    "ScenarioResult",
    "Schedule",
    "draw",
    "draw_schedule",
    "run_scenario",
    "shrink",
]
