"""Metrics: measures of a run from its records (definitions: docs/reference/metrics.md)."""

from volery.metrics.demand import (
    ConstraintLoad,
    TotalLoad,
    conflicts_per_second,
    constraint_load,
    over_intervals,
    total_load,
)
from volery.metrics.devices import DeviceSummary
from volery.metrics.distribution import Distribution, distribution
from volery.metrics.gangs import GangSummary
from volery.metrics.jobs import (
    AllotmentSummary,
    DeadlineSummary,
    JobTable,
    WorkflowSummary,
    job_table,
)
from volery.metrics.occupancy import (
    busy_time_us,
    mean_utilisation,
    refused_tasks,
    utilisation,
    waiting_tasks,
)
from volery.metrics.provisioning import ProvisioningSummary
from volery.metrics.summary import AllocationSummary, ClassSummary, RunSummary, summarise
from volery.metrics.tasks import LocalitySummary
from volery.metrics.transactions import WorkloadWaits
from volery.metrics.windows import (
    Window,
    check_moment,
    check_window,
    submissions_us,
    window_of,
    window_summary,
)

__all__ = [
    "AllocationSummary",
    "AllotmentSummary",
    "ClassSummary",
    "ConstraintLoad",
    "DeadlineSummary",
    "DeviceSummary",
    "Distribution",
    "GangSummary",
    "JobTable",
    "LocalitySummary",
    "ProvisioningSummary",
    "RunSummary",
    "TotalLoad",
    "Window",
    "WorkflowSummary",
    "WorkloadWaits",
    "busy_time_us",
    "check_moment",
    "check_window",
    "conflicts_per_second",
    "constraint_load",
    "distribution",
    "job_table",
    "mean_utilisation",
    "over_intervals",
    "refused_tasks",
    "submissions_us",
    "summarise",
    "total_load",
    "utilisation",
    "waiting_tasks",
    "window_of",
    "window_summary",
]
