"""Policies of monitoring (T6): nothing, an end of tasks that overrun, and Borg's reclamation.

Andreadis et al., SC18, section III-D: a policy "could decide to preempt a task or to start recovery actions".
"""

from __future__ import annotations

from typing import Final

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.records import JobRecord, Running
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import Period, PositiveRatio, Seconds, param
from volery.core.model import SECOND, Time

ALL: Final = 1000


class NoMonitor(Policy, frozen=True):
    """Nodes report ends alone."""

    def every_us(self) -> Time:
        return 0

    def ends(self, view: View, task: Running) -> bool:
        return False

    def reserved(self, view: View, task: Running) -> int:
        return ALL

    def tolerant(self, job: JobRecord) -> bool:
        return False


class EndOverrun(Policy, frozen=True):
    """A task that has run several times as long as expected is ended once, and returns to the queue."""

    period_s: Period = param(10.0, "of reports")
    factor: PositiveRatio = param(3.0, "of the expected time on its machine")

    def every_us(self) -> Time:
        return round(self.period_s * SECOND)

    def ends(self, view: View, task: Running) -> bool:
        """True if an attempt that is the first has overrun."""
        expected_us = max(1, task.expected_end_us - task.start_us)
        return not task.attempt and task.run_us > self.factor * expected_us

    def reserved(self, view: View, task: Running) -> int:
        return ALL

    def tolerant(self, job: JobRecord) -> bool:
        return False


class Reclaim(Policy, frozen=True):
    """Borg's reclamation: below the production band tasks run on what others reserve and leave (EuroSys 2015, 5.5).

    The reservation of a task is its request at first, decays after a while towards its use and a margin, and rises at
    once where the use exceeds that. The source gives the 300 s alone; margin, decay and period are ours.
    """

    period_s: Period = param(10.0, "of reports")
    settle_s: Seconds = param(300.0, "run time from which on the reservation decays")
    margin: float = param(0.1, "of the request, beyond the use", ge=0, le=1)
    decay: float = param(0.2, "of the distance, by which the reservation falls at a report", gt=0, le=1)
    production_from: int = param(9, "lowest priority that does not run on what is reclaimed")

    def every_us(self) -> Time:
        return round(self.period_s * SECOND)

    def ends(self, view: View, task: Running) -> bool:
        return False

    def reserved(self, view: View, task: Running) -> int:
        """Slowly down, at once up."""
        target = min(ALL, task.use + round(self.margin * ALL))
        if task.run_us < self.settle_s * SECOND or target >= task.reserved:
            return max(task.reserved, target)
        return task.reserved - max(1, round((task.reserved - target) * self.decay))

    def tolerant(self, job: JobRecord) -> bool:
        return job.priority < self.production_from
