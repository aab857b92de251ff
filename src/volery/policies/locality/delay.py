"""Delay scheduling (Zaharia et al., EuroSys 2010): how far from its input a job's next task may run by now.

A job whose turn it is and that has no task with input on the machine in question lets the next job go first, for a
while. Then it takes machines in a rack that holds input of its, and after a further while any machine. A task that is
launched settles how far the job may go at once the next time: the level of that launch, from where it waits anew.

An *opportunity* is a machine with something free that is offered to the jobs in their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from volery.core.locality import ANY, NODE
from volery.core.model import JobId, Time


class DelayPolicy(ABC):
    """Base of the two measures of waiting.

    Args:
        node_wait: how long a job waits for machines that hold its input (W1, D1): microseconds, or opportunities.
        rack_wait: how long, after that, for racks that do (W2, D2).

    Raises:
        ValueError: a negative wait.

    Attributes:
        each_counts: whether several machines in one instant say more than one of them.
    """

    __slots__ = ("_levels", "_needed", "_waited")
    each_counts: ClassVar[bool] = True

    def __init__(self, node_wait: int, rack_wait: int) -> None:
        if min(node_wait, rack_wait) < 0:
            raise ValueError(f"jobs cannot wait {node_wait} and {rack_wait}: give at least 0")
        self._needed = (node_wait, rack_wait)
        self._levels: dict[JobId, int] = {}
        self._waited: dict[JobId, int] = {}

    def allowed(self, job: JobId) -> int:
        """The largest distance from its input at which a task of the job may run now: `NODE`, `RACK` or `ANY`."""
        return self._reached(job)[0]

    def remaining(self, job: JobId) -> int:
        """The time that a job which is passed over waits before it may go farther; 0 where it may go anywhere."""
        level, waited = self._reached(job)
        return self._needed[level] - waited if level < ANY else 0

    def _reached(self, job: JobId) -> tuple[int, int]:
        """A level, and how long the job has waited there."""
        level, waited = self._levels.get(job, NODE), self._waited.get(job, 0)
        while level < ANY and waited >= self._needed[level]:
            waited -= self._needed[level]
            level += 1
        return level, waited

    def launched(self, job: JobId, level: int) -> None:
        """A task of the job has been launched so far from its input; the job waits anew, from that level on.

        One without input is launched without a word: it says nothing of how far its job has to go.
        """
        self._waited.pop(job, None)
        if level == NODE:
            self._levels.pop(job, None)
        else:
            self._levels[job] = level

    def forget(self, job: JobId) -> None:
        """The job has nothing more to launch."""
        self._waited.pop(job, None)
        self._levels.pop(job, None)

    @abstractmethod
    def opportunity(self, now: Time) -> None:
        """A machine is about to be offered to the jobs."""

    @abstractmethod
    def passed_over(self, job: JobId) -> None:
        """The job had its turn at this opportunity and launched nothing: its tasks have no input near enough."""


class BySkips(DelayPolicy):
    """Counts the opportunities that a job has let pass (section 3.3 of the paper, and its remark on racks).

    With `rack_wait` 0 and one rack it is the paper's algorithm 2: after D skips a job launches anywhere, and goes on to
    do so until it launches on a machine that holds its input. With no waits at all it is naive fair sharing.
    """

    __slots__ = ()

    def opportunity(self, now: Time) -> None:
        """Nothing to note: jobs count for themselves."""

    def passed_over(self, job: JobId) -> None:
        self._waited[job] = self._waited.get(job, 0) + 1


class ByTime(DelayPolicy):
    """Adds up the time during which a job was passed over (section 4 of the paper, and the Hadoop Fair Scheduler).

    The time from one opportunity to the next counts for the jobs that were passed over at the first.
    """

    __slots__ = ("_passed", "_seen_us")
    each_counts = False

    def __init__(self, node_wait: Time, rack_wait: Time) -> None:
        super().__init__(node_wait, rack_wait)
        self._passed: dict[JobId, None] = {}
        self._seen_us: Time = 0

    def opportunity(self, now: Time) -> None:
        """Charge the time since the one before to those that it passed over."""
        since, self._seen_us = now - self._seen_us, now
        if since:
            for job in self._passed:
                self._waited[job] = self._waited.get(job, 0) + since
            self._passed.clear()

    def passed_over(self, job: JobId) -> None:
        """It waits from now until the next opportunity."""
        self._passed[job] = None

    def launched(self, job: JobId, level: int) -> None:
        """See the base; nor does it wait any longer."""
        self._passed.pop(job, None)
        super().launched(job, level)

    def forget(self, job: JobId) -> None:
        """See the base; nor does it wait any longer."""
        self._passed.pop(job, None)
        super().forget(job)


def delay_policy(kind: str, node_wait: int, rack_wait: int) -> DelayPolicy:
    """The policy of a name: "time" or "skips", or "off", which waits for nothing."""
    if kind == "off":
        return BySkips(0, 0)
    return BySkips(node_wait, rack_wait) if kind == "skips" else ByTime(node_wait, rack_wait)
