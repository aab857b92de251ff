"""Policies of jobs: their eligibility (J2), and the files that they or their tasks need (J5, T5) and leave (J7, T8).

Andreadis et al., SC18, section III-D.
"""

from __future__ import annotations

from collections.abc import Hashable

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.records import JobRecord, Waiting
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import Count, PositiveCount, PositiveRatio, Ratio, Seconds, param
from volery.core.model import SECOND, Time


class PassAll(Policy, frozen=True):
    """Every job is eligible at once."""

    def line(self, job: JobRecord) -> Hashable:
        return ""

    def eligible(self, view: View, job: JobRecord) -> bool:
        return True


class PerUser(Policy, frozen=True):
    """A user has at most so many eligible jobs; further ones wait for one of them to be done."""

    jobs: PositiveCount = param(1, "eligible jobs of a user at once")

    def line(self, job: JobRecord) -> Hashable:
        return job.user

    def eligible(self, view: View, job: JobRecord) -> bool:
        return view.eligible_count(job.user) < self.jobs


class FlowControl(Policy, frozen=True):
    """No further job while so many tasks wait: the queue stays short, whatever comes."""

    tasks: PositiveCount = param(1000, "tasks in the queue from which jobs are held back")

    def line(self, job: JobRecord) -> Hashable:
        return ""

    def eligible(self, view: View, job: JobRecord) -> bool:
        return view.waiting_count < self.tasks


class NoSetup(Policy, frozen=True):
    """Nothing has to be staged in."""

    def stage_us(self, view: View, subject: JobRecord | Waiting) -> Time:
        return 0


class StageIn(Policy, frozen=True):
    """Files of a given size come in over a link of a given bandwidth; traces do not say how large they are."""

    mb: Ratio = param(0.0, "size of the files")
    mb_per_s: PositiveRatio = param(100.0, "bandwidth")
    latency_s: Seconds = param(0.0, "before the first byte")

    def stage_us(self, view: View, subject: JobRecord | Waiting) -> Time:
        """Latency, and size by bandwidth."""
        return round((self.latency_s + self.mb / self.mb_per_s) * SECOND)


class NoCleanup(Policy, frozen=True):
    """Nothing has to be deleted, or that takes no time."""

    def clean_us(self, view: View, subject: JobRecord | Waiting) -> Time:
        return 0


class Delete(Policy, frozen=True):
    """Files are deleted one after another; traces do not say how many there are."""

    files: Count = param(0, "number of files")
    files_per_s: PositiveRatio = param(1000.0, "rate")

    def clean_us(self, view: View, subject: JobRecord | Waiting) -> Time:
        """Number of files by rate."""
        return round(self.files / self.files_per_s * SECOND)
