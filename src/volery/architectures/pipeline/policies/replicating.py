"""Stage T9: how many attempts of a task run at once; the first to finish wins, and the others are ended."""

from __future__ import annotations

from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.records import Running
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import PositiveRatio
from volery.core.model import NEVER, Time


class NoCopies(Policy, frozen=True):
    """One attempt."""

    def copies(self, view: View, task: Running) -> int:
        """One."""
        return 1

    def ask_us(self, view: View, task: Running) -> Time:
        """Never."""
        return NEVER


class FixedCopies(Policy, frozen=True):
    """So many attempts of every task, each on another machine, as far as there is room when it is placed."""

    n: Annotated[int, msgspec.Meta(ge=2, le=16, description="attempts of a task at once")] = 2

    def copies(self, view: View, task: Running) -> int:
        """Always as many."""
        return self.n

    def ask_us(self, view: View, task: Running) -> Time:
        """When it is placed, and not again."""
        return NEVER


class Speculative(Policy, frozen=True):
    """A second attempt of a task that runs much longer than estimated, for few at once.

    Speculative execution (Dean and Ghemawat, OSDI 2004, 3.6), with the cap of LATE (Zaharia et al., OSDI 2008, 4). LATE
    ranks by the progress that tasks report; ours report none, so that the estimate has to do.
    """

    times: Annotated[PositiveRatio, msgspec.Meta(description="of its estimate")] = 1.5
    cap: Annotated[float, msgspec.Meta(gt=0, le=1, description="of the running tasks that may run twice")] = 0.1

    def copies(self, view: View, task: Running) -> int:
        """Two, when it is late and not too many others run twice."""
        late = view.now >= self.ask_us(view, task)
        room = view.copied_count < max(1.0, self.cap * view.running_count)
        return 2 if late and room else 1

    def ask_us(self, view: View, task: Running) -> Time:
        """When it will be late."""
        return task.start_us + max(1, round(self.times * (task.expected_end_us - task.start_us)))
