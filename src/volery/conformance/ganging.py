"""The check of gangs: the tasks of a job start together, and a gang that no empty cluster holds is refused whole."""

from __future__ import annotations

import msgspec

from volery.conformance.cases import Case, flow_cases, gang_cases
from volery.conformance.outcomes import demand_all_finished, demand_capacity, demand_constraints
from volery.conformance.verdict import check, demand, run
from volery.conformance.watching import Echo
from volery.core.component import Architecture
from volery.core.events import MoreTasks, Submit
from volery.core.model import NEVER
from volery.core.records import Records
from volery.sim import Network, Options

SEEDS = 3


@check
def check_gangs(architecture: Architecture) -> None:
    """A gang starts at one instant; one that the empty cluster cannot hold never runs, and its tasks are reported.

    Concerns designs that declare a parameter for gangs.
    """
    if not architecture.gangs:
        return
    defaults = msgspec.structs.replace(architecture.defaults, **{architecture.gangs: True})
    design = msgspec.structs.replace(architecture, defaults=defaults)
    for seed in range(SEEDS):
        for case in gang_cases(seed):
            records = run(design, case, seed=seed, options=Options(check=True))
            _demand_whole(case, records)
            _demand_together(case, records)
            _demand_whole(case, run(design, case, seed=seed, options=Options(tie_shuffle=seed)))
            _demand_whole(case, run(design, case, seed=seed, network=Network(jitter_us=2_000)))
            _demand_whole(case, run(design, case, seed=seed, watch=Echo((Submit, MoreTasks))))
    for case in flow_cases():
        case = msgspec.structs.replace(case, gangs=True)
        _demand_whole(case, run(design, case, options=Options(check=True)))


def _demand_whole(case: Case, records: Records) -> None:
    demand_all_finished(case, records)
    demand_capacity(case, records)
    demand_constraints(case, records)


def _demand_together(case: Case, records: Records) -> None:
    first = case.trace.first
    for job in range(case.trace.job_count):
        starts = set(records.start_us[first[job] : first[job + 1]]) - {NEVER}
        demand(len(starts) <= 1, f"the tasks of gang {job} started at {len(starts)} different times")
