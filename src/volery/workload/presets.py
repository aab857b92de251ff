"""Presets of the heavy-tailed mixes: the traces of table 1 in Pigeon (Wang et al., SoCC 2019), a few numbers each.

A preset has two classes of jobs. In each class a job's mean task duration and its fanout are drawn independently:

- short jobs: mean duration log-normal, cut at the published cutoff; long jobs: bounded Pareto from the cutoff to the
  published longest task;
- fanout: a discrete bounded Pareto from 1 to the published largest fanout.

Their means follow from the published ones. With long share p, mean fanout F and mean duration D (both per job: over the
16,272 Yahoo jobs whose mean task duration is public, the plain average of those is 127 s, and table 1 says 118.78 s),
long jobs' share w of the task-seconds and mean short duration d:

    D_long = (D - (1 - p) d) / p
    F_long = F_short * w / (1 - w) * (1 - p) d / (p D_long)
    F      = p F_long + (1 - p) F_short
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec

from volery.workload.distributions import BoundedPareto, CutLogNormal, DiscretePareto


class Preset(msgspec.Struct, frozen=True, dict=True):
    """One published trace in numbers.

    Args:
        fanout_mean, fanout_max: tasks per job, table 1.
        duration_mean_s, duration_max_s: average over jobs and longest task, table 1.
        cutoff_s: a job with a larger mean task duration is long; section 4.1 of the same paper.
        long_share, long_work: long jobs' share of the jobs and of the task-seconds, as Hawk (Delgado et al., ATC 2015)
            is quoted; slices of the Yahoo and Google traces give 9.5 % / 98.5 % and 9.1 % / 78.6 %.
        short_mean_s: mean over short jobs of their mean task duration; measured on those slices, for Cloudera our
            choice in the same proportion to its cutoff.
        short_sigma: spread of the logarithm of it, from the same slices.
        task_spread: standard deviation over mean of the task durations within a job: their median there.
    """

    fanout_mean: float
    fanout_max: int
    duration_mean_s: float
    duration_max_s: float
    cutoff_s: float
    long_share: float
    long_work: float
    short_mean_s: float
    short_sigma: float
    task_spread: float

    @property
    def long_mean_s(self) -> float:
        """Mean over long jobs of their mean task duration."""
        return (self.duration_mean_s - (1 - self.long_share) * self.short_mean_s) / self.long_share

    @property
    def short_fanout_mean(self) -> float:
        """Tasks in a short job, on average."""
        odds = self.long_work / (1 - self.long_work)
        times_p = odds * (1 - self.long_share) * self.short_mean_s / self.long_mean_s
        return self.fanout_mean / (times_p + 1 - self.long_share)

    @property
    def long_fanout_mean(self) -> float:
        """Tasks in a long job, on average."""
        return (self.fanout_mean - (1 - self.long_share) * self.short_fanout_mean) / self.long_share

    @cached_property
    def short_duration(self) -> CutLogNormal:
        """Mean task duration of a short job, seconds."""
        return CutLogNormal.with_mean(self.cutoff_s, self.short_mean_s, self.short_sigma)

    @cached_property
    def long_duration(self) -> BoundedPareto:
        """Mean task duration of a long job, seconds."""
        return BoundedPareto.with_mean(self.cutoff_s, self.duration_max_s, self.long_mean_s)

    @cached_property
    def short_fanout(self) -> DiscretePareto:
        """Tasks in a short job."""
        return DiscretePareto.with_mean(self.fanout_max, self.short_fanout_mean)

    @cached_property
    def long_fanout(self) -> DiscretePareto:
        """Tasks in a long job."""
        return DiscretePareto.with_mean(self.fanout_max, self.long_fanout_mean)


PRESETS: Final = {
    "yahoo": Preset(39.91, 5_900, 118.78, 21_259.9, 90.5811, 0.094, 0.983, 19.0, 1.2, 0.33),
    "cloudera": Preset(272.93, 51_834, 162.19, 97_941.8, 272.783, 0.05, 0.928, 50.0, 1.1, 0.2),
    "google": Preset(35.32, 49_960, 661.74, 774_922.0, 1_129.532, 0.10, 0.837, 162.0, 1.0, 0.06),
}
ALIBABA: Final = Preset(80.33, 36_326, 42.69, 3_628.8, 100.0, 0.135, 0.675, 19.9, 1.24, 0.3)
"""Batch tasks of Alibaba's cluster trace v2017 with their instances, as numbers of the public mean-duration table."""
