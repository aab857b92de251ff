"""Policies of jobs: eligibility (J2), the order of jobs and tasks (J3, T2), files needed (J5, T5) and left (J7, T8).

Andreadis et al., SC18, section III-D. A keyed order gives every task a rank when it is queued. An order that gives
turns has lines of tasks take turns, and is asked before every turn, because what decides changes in between. Inside a
line, and between equal keys, the order of jobs decides, and then who came first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from volery.architectures.pipeline.policies.policy import Policy, Turn
from volery.architectures.pipeline.policies.state import JobRecord, Waiting
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import Count, Period, PositiveCount, PositiveRatio, Ratio, Seconds, param
from volery.core.errors import InputError
from volery.core.model import SECOND, Time
from volery.policies.fairness.hdrf import HierarchicalDrf
from volery.policies.fairness.shares import Sharer, parse_shares_text, share_key


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


class Managed(Policy, frozen=True):
    """A job has a master, its first task, whose room is taken until the job is done (Andreadis et al., SC18, II-A).

    The other tasks of a job may wait for the master, as the workload says; its duration is the time until they are
    requested. Masters that held all machines would wait for each other, so that only so many jobs are eligible.
    """

    managed: ClassVar[bool] = True
    jobs: PositiveCount = param(10, "jobs that have a master at once")

    def line(self, job: JobRecord) -> Hashable:
        return ""

    def eligible(self, view: View, job: JobRecord) -> bool:
        return view.eligible_total < self.jobs


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


class ByJob(Policy, frozen=True):
    """In the order of their jobs (stage J3)."""

    def key(self, view: View, task: Waiting) -> float:
        return 0


class Fifo(Policy, frozen=True):
    """First come, first served: by the time at which a task became ready."""

    def key(self, view: View, task: Waiting) -> float:
        return task.ready_us


class FifoSubmitted(Policy, frozen=True):
    """First come, first served: by the time at which a task was submitted, ready or not (the SC18 code of OpenDC)."""

    def key(self, view: View, task: Waiting) -> float:
        return task.came_us


class FifoJobs(Policy, frozen=True):
    """First come, first served."""

    def key(self, view: View, task: Waiting) -> float:
        return task.job.submit_us


class ShortestTask(Policy, frozen=True):
    """Shortest job first: by the estimated time of a task."""

    def key(self, view: View, task: Waiting) -> float:
        return task.task.estimate_us


class LeastWork(Policy, frozen=True):
    """Shortest remaining time first: by what remains of a task, time times processors (the SC18 code of OpenDC)."""

    def key(self, view: View, task: Waiting) -> float:
        return task.work_us


class LongestTask(Policy, frozen=True):
    """Longest job first: by the estimated time of a task."""

    def key(self, view: View, task: Waiting) -> float:
        return -task.task.estimate_us


class ShortestJob(Policy, frozen=True):
    """Shortest job first: by the estimated work of all its tasks."""

    def key(self, view: View, task: Waiting) -> float:
        return task.job.estimate_us * task.job.task_count


class LongestJob(Policy, frozen=True):
    """Longest job first: by the estimated work of all its tasks."""

    def key(self, view: View, task: Waiting) -> float:
        return -task.job.estimate_us * task.job.task_count


class LeastLeft(Policy, frozen=True):
    """Shortest remaining time first: by the work of those tasks of a job that have not ended.

    What remains changes, so every decision looks at every job with tasks that wait and may fit.
    """

    def line(self, task: Waiting) -> Hashable:
        return task.job.id

    def turns(self, view: View, lines: Sequence[Turn]) -> Iterable[Hashable]:
        """By what is left."""
        jobs = view.jobs
        return [min(lines, key=lambda turn: jobs[turn.line].left_us).line]  # type: ignore[index]  # lines are job ids


class EarliestDeadline(Policy, frozen=True):
    """Earliest deadline first; jobs without one come last."""

    def key(self, view: View, task: Waiting) -> float:
        return task.job.due_us


class UpwardRank(Policy, frozen=True):
    """By HEFT's upward rank: the longest chain of tasks that begins with this one, by estimates, longest first.

    Topcuoglu et al., IEEE TPDS 13(3), 2002, section 4, without communication.
    """

    def key(self, view: View, task: Waiting) -> float:
        return -task.rank_us


class AtRandom(Policy, frozen=True):
    """In an order that is drawn anew for every cycle."""

    drawn = True

    def key(self, view: View, task: Waiting) -> float:
        """All alike: whoever keeps the queue draws."""
        return 0


class MostUrgent(Policy, frozen=True):
    """Most urgent priority first."""

    def key(self, view: View, task: Waiting) -> float:
        return -task.job.priority


class Bands(Policy, frozen=True):
    """Most urgent priority first; inside a priority users take turns, as in Borg (Verma et al., EuroSys 2015, 2.5)."""

    def line(self, task: Waiting) -> Hashable:
        """One per priority and user."""
        return (task.job.priority, task.job.user)

    def turns(self, view: View, lines: Sequence[Turn]) -> Iterable[Hashable]:
        """The highest priority, and in it who had a turn longest ago."""
        return [min(lines, key=lambda turn: (-turn.line[0], turn.served)).line]  # type: ignore[index]  # as `line` says


class PoorestUser(Policy, frozen=True):
    """The user with the smallest dominant share over weight (DRF; Ghodsi et al., NSDI 2011)."""

    shares: str = param("", "fixed weights of users, as ann:2+bob:1; others have 1")

    def __post_init__(self) -> None:
        """Refuse what are no weights, or a tree of them.

        Raises:
            ValueError: saying why.
        """
        self._weights()

    def _weights(self) -> Mapping[str, int]:
        members = _tree(self.shares).members if self.shares else ()
        if any(member.members for member in members):
            raise ValueError("drf shares between users alone; take hdrf for a tree")
        return {member.name: member.weight for member in members}

    def line(self, task: Waiting) -> Hashable:
        return task.job.user

    def turns(self, view: View, lines: Sequence[Turn]) -> Iterable[Hashable]:
        weights = self._weights()
        total = view.total

        def poverty(turn: Turn) -> int:
            user = str(turn.line)
            return share_key(view.used(user), total, weights.get(user, 1))

        return [min(lines, key=poverty).line]


class PoorestBranch(Policy, frozen=True):
    """Hierarchical DRF: from the root down to the poorest branch (Bhattacharya et al., SoCC 2013)."""

    shares: str = param("", "a tree of fixed weights, as web:1+dev:2(ann:2+bob:1)")
    weighs_blocked: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no tree.

        Raises:
            ValueError: saying why.
        """
        if self.shares:
            _tree(self.shares)

    def line(self, task: Waiting) -> Hashable:
        return task.job.user

    def turns(self, view: View, lines: Sequence[Turn]) -> Iterable[Hashable]:
        """As H-DRF descends the tree; counted anew before every turn, O(users).

        Users who wait for a resource of which there is not enough make it saturated, so they are weighed, too.
        """
        order = HierarchicalDrf(view.total, _tree(self.shares) if self.shares else None)

        holders = dict.fromkeys(running.job.user for running in view.running())
        for user in holders:
            order.launched(user, view.used(user))
        for turn in lines:
            order.wants(str(turn.line), turn.least)

        fitting = [str(turn.line) for turn in lines if not turn.is_blocked]

        # The poorest branch may have only users whose tasks are blocked: somebody who fits has the turn then.
        return [order.choose(set(fitting).__contains__) or fitting[0]]


class ByUsage(Policy, frozen=True):
    """HTCondor's users by effective priority, each up to its slice of the pie in a cycle, then again.

    Its manual, "User Priorities and Negotiation": the real priority is what a user held, averaged with a half-life; the
    slice is free slots * (1 / priority) / sum (1 / priority).
    """

    half_life_s: Period = param(86_400.0, "of what users held")

    def line(self, task: Waiting) -> Hashable:
        return task.job.user

    def turns(self, view: View, lines: Sequence[Turn]) -> Iterable[Hashable]:
        """Those with whole slices left first, by priority; then those who have used up one, and so on."""
        priority = {turn.line: view.average_use(str(turn.line)) for turn in lines}
        total = sum(1 / use for use in priority.values())
        # What lines were given in this cycle was free when it began.
        free = sum(turn.given for turn in lines) + _free_units(view)

        def place(turn: Turn) -> tuple[int, float]:
            slice_units = max(1.0, free / priority[turn.line] / total)
            return int(turn.given / slice_units), priority[turn.line]

        return [min(lines, key=place).line]


def _free_units(view: View) -> int:
    return int(view.free_table()[:, view.work_resource].sum())


@lru_cache
def _tree(text: str) -> Sharer:
    try:
        return parse_shares_text(text)
    except InputError as error:
        raise ValueError(error.problem) from None
