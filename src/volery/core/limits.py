"""Wall-clock limits of jobs: their check, and the counts that a report states.

A trace has limits (`Trace.limit_us`) only where they are in force: then the driver ends each attempt that would run
longer, and schedulers receive them (`Job.limit_us`). A run that ignores the limits of its source only counts the tasks
that ran longer.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from volery.core.errors import InputError
from volery.core.model import NEVER
from volery.core.trace import Trace

Limits = Literal["enforce", "ignore"]
"""The two uses of limits that a source states."""


class LimitSummary(msgspec.Struct, frozen=True):
    """Limits of a workload, and the work that exceeded them.

    Args:
        enforced: True if the driver ended what exceeded its limit.
        jobs: Count of jobs that have a limit.
        over_jobs: Count of jobs with a task that exceeded the limit.
        over_tasks: Count of these tasks: ended at the limit where limits are enforced, else longer than it.
    """

    enforced: bool
    jobs: int
    over_jobs: int
    over_tasks: int


def check_limits(trace: Trace) -> None:
    """Refuse a workload with a limit that no attempt could keep.

    Raises:
        InputError: with the job and its limit.
    """
    wrong_job = next((job for job, limit in enumerate(trace.limit_us) if limit <= 0 and limit != NEVER), None)
    if wrong_job is not None:
        problem = f"job {wrong_job} has a limit of {trace.limit_us[wrong_job]} us; give one above 0, or {NEVER}: none"
        raise InputError(trace.name, problem)
