"""Stage J2: which jobs may have tasks in the queue (Andreadis et al., SC18, section III-D1)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.records import JobRecord
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import PositiveCount


class PassAll(Policy, frozen=True):
    """Every job is eligible at once."""

    def line(self, job: JobRecord) -> Hashable:
        """One for all."""
        return ""

    def eligible(self, view: View, job: JobRecord) -> bool:
        """Always."""
        return True


class PerUser(Policy, frozen=True):
    """A user has at most so many eligible jobs; further ones wait for one of them to be done."""

    jobs: Annotated[PositiveCount, msgspec.Meta(description="eligible jobs of a user at once")] = 1

    def line(self, job: JobRecord) -> Hashable:
        """One per user."""
        return job.user

    def eligible(self, view: View, job: JobRecord) -> bool:
        """Whether the user has fewer."""
        return view.eligible_count(job.user) < self.jobs


class FlowControl(Policy, frozen=True):
    """No further job while so many tasks wait: the queue stays short, whatever comes."""

    tasks: Annotated[PositiveCount, msgspec.Meta(description="tasks in the queue from which jobs are held back")] = 1000

    def line(self, job: JobRecord) -> Hashable:
        """One for all."""
        return ""

    def eligible(self, view: View, job: JobRecord) -> bool:
        """Whether fewer wait."""
        return view.waiting_count < self.tasks
