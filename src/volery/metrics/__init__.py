"""Metrics: measures of a run from its records (definitions: docs/reference/metrics.md)."""

from volery.metrics.demand import (
    ConflictCounts,
    ConstraintLoad,
    TotalLoad,
    conflicts_per_second,
    constraint_load,
    over_intervals,
    total_load,
)
from volery.metrics.distribution import Distribution, distribution, slowdown
from volery.metrics.jobs import (
    AllotmentSummary,
    DeadlineSummary,
    JobTable,
    WorkflowSummary,
    allotment_summary,
    deadline_summary,
    job_table,
    workflow_summary,
)
from volery.metrics.occupancy import (
    busy_time_us,
    mean_utilisation,
    refused_tasks,
    utilisation,
    waiting_tasks,
)
from volery.metrics.preemption import Loss, preemption_summary, user_shares
from volery.metrics.provisioning import ProvisioningSummary, provisioning_summary
from volery.metrics.summary import AllocationSummary, ClassSummary, RunSummary, summarise
from volery.metrics.tasks import LocalitySummary, allocation, locality_summary
from volery.metrics.transactions import TransactionSummary, WorkloadWaits, transaction_summary
from volery.metrics.windows import (
    Window,
    check_moment,
    check_window,
    measured_whole,
    submissions_us,
    window_of,
    window_summary,
)

__all__ = [
    "AllocationSummary",
    "AllotmentSummary",
    "ClassSummary",
    "ConflictCounts",
    "ConstraintLoad",
    "DeadlineSummary",
    "Distribution",
    "JobTable",
    "LocalitySummary",
    "Loss",
    "ProvisioningSummary",
    "RunSummary",
    "TotalLoad",
    "TransactionSummary",
    "Window",
    "WorkflowSummary",
    "WorkloadWaits",
    "allocation",
    "allotment_summary",
    "busy_time_us",
    "check_moment",
    "check_window",
    "conflicts_per_second",
    "constraint_load",
    "deadline_summary",
    "distribution",
    "job_table",
    "locality_summary",
    "mean_utilisation",
    "measured_whole",
    "over_intervals",
    "preemption_summary",
    "provisioning_summary",
    "refused_tasks",
    "slowdown",
    "submissions_us",
    "summarise",
    "total_load",
    "transaction_summary",
    "user_shares",
    "utilisation",
    "waiting_tasks",
    "window_of",
    "window_summary",
    "workflow_summary",
]
