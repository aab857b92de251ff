"""The check of workflows: whoever holds tasks back, no child starts before its parents have finished, and all run."""

from __future__ import annotations

from volery.conformance.cases import flow_cases
from volery.conformance.outcomes import (
    demand_all_finished,
    demand_capacity,
    demand_constraints,
    demand_parents_first,
)
from volery.conformance.verdict import check, run
from volery.conformance.watching import Echo
from volery.core.component import Architecture
from volery.core.events import MoreTasks, Submit
from volery.sim import Network, Options


@check
def check_workflows(architecture: Architecture) -> None:
    """Tasks that wait for others start after them, all run once, and those below one that fits nowhere are counted.

    Also without any delay, with ties in another order, with jitter, and when all submissions come twice.
    """
    checked = Options(check=True)
    for case in flow_cases(11, architecture.vectors):
        for records in (
            run(architecture, case, options=checked),
            run(architecture, case, network=Network(delay_us=0)),
            run(architecture, case, options=Options(check=True, tie_shuffle=11)),
            run(architecture, case, network=Network(jitter_us=2_000)),
            run(architecture, case, watch=Echo((Submit, MoreTasks))),
        ):
            demand_all_finished(case, records)
            demand_parents_first(case, records)
            demand_capacity(case, records)
            demand_constraints(case, records)
