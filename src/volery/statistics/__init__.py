"""Statistics: intervals, comparisons of designs, and when enough seeds have been drawn (mathematics: scipy).

Two kinds of chance are kept apart:

choices     the seeds of a study: random choices of the schedulers, drawn constraints, drawn workloads
workload    the jobs that happened to come: a trace is one realisation of the days that it stands for
"""

from volery.statistics.block_bootstrap import JobsDifference, jobs_difference
from volery.statistics.differences import (
    CORRECTED,
    HIGHER,
    IDENTICAL,
    LOWER,
    NOT_RANDOM,
    ONE_SEED,
    SEEDS_MIN,
    SPANS_ZERO,
    ComparedJobs,
    ComparedMeans,
    Difference,
    InterimLook,
    Looks,
    holm,
    looks,
    paired_difference,
    paired_ratio,
    seeded_difference,
)
from volery.statistics.intervals import (
    BCA,
    CONFIDENCE,
    EXACT,
    PAIRED_T,
    Interval,
    interval_of_mean,
)
from volery.statistics.orders import kendall_tau

__all__ = [
    "BCA",
    "CONFIDENCE",
    "CORRECTED",
    "EXACT",
    "HIGHER",
    "IDENTICAL",
    "LOWER",
    "NOT_RANDOM",
    "ONE_SEED",
    "PAIRED_T",
    "SEEDS_MIN",
    "SPANS_ZERO",
    "ComparedJobs",
    "ComparedMeans",
    "Difference",
    "InterimLook",
    "Interval",
    "JobsDifference",
    "Looks",
    "holm",
    "interval_of_mean",
    "jobs_difference",
    "kendall_tau",
    "looks",
    "paired_difference",
    "paired_ratio",
    "seeded_difference",
]
