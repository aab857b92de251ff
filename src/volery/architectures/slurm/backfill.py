"""Backfilling of Slurm: a plan of the nodes that higher jobs will need, around which lower jobs start now.

The plan is the `node_space` of sched/backfill in Slurm 22.05: windows of time, each with the nodes that nobody has
reserved. A job is planned on whole nodes for its limit, from the earliest time at which the ends of running jobs and
the windows leave it enough. Times are whole seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from volery.architectures.slurm.jobs import QueuedJob, StartedJob
from volery.architectures.slurm.nodes import Nodes, NodeShare
from volery.architectures.slurm.parameters import MINUTE, SlurmConfig

PRECISION_S: Final = 30
"""Ends of running jobs that are no farther apart count as one, at first; then this doubles."""


def reserves(config: SlurmConfig, job: QueuedJob, now_s: int) -> bool:
    """True if a job that cannot start keeps others from its nodes."""
    return job.priority >= config.bf_min_prio_reserve and now_s - job.eligible_s >= config.bf_min_age_reserve


class PlanWindow(msgspec.Struct):
    """A time from its begin to its end, in seconds, with the vector of nodes that are not reserved then."""

    begin_s: int
    end_s: int
    nodes: int


class Plan:
    """The windows of one cycle, in the order of time.

    Args:
        begin_s: Time of the cycle.
        config: Parameters of the loop.
        nodes: Vector of all nodes.

    Attributes:
        record_count: Count of windows as bf_node_space_size limits it: one that was merged still counts.
    """

    def __init__(self, begin_s: int, config: SlurmConfig, nodes: int) -> None:
        self._resolution_s = config.bf_resolution
        end_s = self._rounded(begin_s + config.bf_window * MINUTE)
        self.windows = [PlanWindow(self._rounded(begin_s), end_s, nodes)]
        self.record_count = 1

    def _rounded(self, time_s: int) -> int:
        return time_s // self._resolution_s * self._resolution_s

    def unreserved(self, begin_s: int, end_s: int, candidates: int) -> tuple[int, int]:
        """Return the candidates that nobody has reserved in a time, and when others are worth a look.

        Returns:
            Vector of nodes, and the end of the first window from the begin on; 0 where no later window has more.
        """
        unreserved = candidates
        later_s = 0
        for place, window in enumerate(self.windows):
            if window.end_s <= begin_s:
                continue
            # A later begin is of no use if the next window has no other nodes.
            if not later_s and place + 1 < len(self.windows):
                next_nodes = candidates & self.windows[place + 1].nodes
                if next_nodes & ~(unreserved & window.nodes):
                    later_s = window.end_s
            if window.begin_s > end_s:
                break
            unreserved &= window.nodes
        return unreserved, later_s

    def overlaps(self, begin_s: int, end_s: int, nodes: int) -> bool:
        """True if any of the nodes is reserved in a time, as the plan rounds it."""
        begin_s, end_s = self._rounded(begin_s), self._rounded(end_s)
        return any(
            window.end_s > begin_s and window.begin_s < end_s and nodes & ~window.nodes for window in self.windows
        )

    def reserve(self, begin_s: int, end_s: int, nodes: int) -> None:
        """Reserve nodes for a time."""
        begin_s = max(self._rounded(begin_s), self.windows[0].begin_s)
        end_s = max(self._rounded(end_s), begin_s + self._resolution_s)
        self.record_count += self._cut(begin_s) or begin_s == self.windows[0].begin_s
        self.record_count += self._cut(end_s)

        for window in self.windows:
            if begin_s <= window.begin_s < end_s:
                window.nodes &= ~nodes

        # Windows alike become one, so that fewer are looked at.
        merged = self.windows[:1]
        for window in self.windows[1:]:
            if window.nodes == merged[-1].nodes:
                merged[-1].end_s = window.end_s
            else:
                merged.append(window)
        self.windows = merged

    def _cut(self, time_s: int) -> bool:
        """Cut the window in which a time lies in two; returns whether there is one."""
        for place, window in enumerate(self.windows):
            if window.begin_s < time_s < window.end_s:
                self.windows.insert(place + 1, PlanWindow(time_s, window.end_s, window.nodes))
                window.end_s = time_s
                return True
        return False


class Placement(NamedTuple):
    """The earliest time at which a job fits, in seconds, its nodes then, and whether it has started there."""

    start_s: int
    shares: list[NodeShare]
    is_started: bool = False

    @property
    def nodes(self) -> int:
        """Vector of the nodes."""
        return sum([1 << share.node for share in self.shares])


class Views:
    """The nodes as they will be after the end of each running job, as far as anyone has asked.

    Args:
        future: Nodes as they are; they become those of the last view.
        running_jobs: Jobs that run, in the order of their ends.
    """

    def __init__(self, future: Nodes, running_jobs: Sequence[StartedJob]) -> None:
        self.node_vectors = [running.nodes for running in running_jobs]
        self.ends_s = [running.end_s for running in running_jobs]
        self._running_jobs = running_jobs
        self._future = future
        self._views: list[Nodes] = []

    def after(self, place: int) -> Nodes:
        """The nodes after the end of the job at a place of the order, and of all before it."""
        while len(self._views) <= place:
            self._future.give_back(self._running_jobs[len(self._views)].parts)
            self._views.append(self._future.snapshot())
        return self._views[place]


class EndForecast:
    """The ends of running jobs as far as they are expected: finds the earliest time at which a job fits.

    Args:
        nodes: Nodes as they are.
        running_jobs: Jobs that run, in the order of their starts.
        config: Parameters of the loop.
    """

    def __init__(self, nodes: Nodes, running_jobs: Sequence[StartedJob], config: SlurmConfig) -> None:
        self._nodes = nodes
        self._running_jobs = sorted(running_jobs, key=lambda running: (running.end_s, running.listed))
        self._views = Views(nodes.copy(), self._running_jobs)
        self._config = config
        self._is_one_by_one = config.SelectType == "select/linear"

    def placement(
        self, job: QueuedJob, candidates: int, now_s: int, victims: Sequence[StartedJob], *, is_now_only: bool
    ) -> Placement | None:
        """The earliest placement of a job on candidates; None: it never fits, or not now where that is demanded.

        Args:
            job: Job that waits.
            candidates: Vector of the nodes that it may have.
            now_s: Time of the cycle.
            victims: Jobs that it may preempt, so that it could start now.
            is_now_only: True if only a start now counts.
        """
        shares = self._nodes.choose(job.need, candidates)
        if shares is not None:
            return Placement(now_s, shares)
        if is_now_only and not victims:
            return None

        views = self._views
        if victims:
            future = self._nodes.copy()
            for victim in victims:
                future.give_back(victim.parts)
            shares = future.choose(job.need, candidates)
            if shares is not None:
                return Placement(now_s, shares)
            views = Views(future, [running for running in self._running_jobs if running not in victims])
        return None if is_now_only else self._after_ends(job, candidates, now_s, views)

    def _after_ends(self, job: QueuedJob, candidates: int, now_s: int, views: Views) -> Placement | None:
        """The placement after ends of running jobs, of which several count as one the farther they are away."""
        ends_s = views.ends_s
        window_s = 0 if self._is_one_by_one else PRECISION_S
        barrier_s, last_place = 0, -1

        for place, nodes in enumerate(views.node_vectors):
            has_next = place + 1 < len(ends_s)
            next_s = ends_s[place + 1] if has_next else 0
            # Only after a job on these nodes does Slurm look at the end of the next: a job on other nodes in between
            # takes the one behind it into the group, however late that ends.
            if not nodes & candidates:
                if has_next:
                    continue
            else:
                # Aligned, so that a job that has just started moves no other end into another group.
                barrier_s = barrier_s or (ends_s[place] // PRECISION_S + 1) * PRECISION_S
                last_place = place
                if window_s and has_next and next_s <= barrier_s + window_s:
                    continue
            if last_place < 0:
                return None

            shares = views.after(last_place).choose(job.need, candidates)
            if shares is not None:
                return Placement(self._end_s(ends_s[last_place], now_s), shares)

            last_place = -1
            while window_s:
                window_s += self._config.bf_window_linear or window_s
                if next_s <= barrier_s + window_s:
                    break
        return None

    def _end_s(self, end_s: int, now_s: int) -> int:
        """The time at which a job has ended; one that has run longer than it may ends soon."""
        if end_s > now_s:
            return end_s
        return now_s + 1 if self._is_one_by_one else max(end_s + self._config.KillWait, now_s + 1)


class BackfillCycle:
    """One cycle of the backfill loop.

    Args:
        config: Parameters of the loop.
        now_s: Time of the cycle.
        plan: Windows, with what advance reservations take.
        forecast: Function that returns the ends of jobs that run now; asked again after each start.
        start: Function that starts the next element of a job on some of the candidates; returns whether it has.
        victims: Function that returns the jobs that a job may preempt.
        allowed: Function that returns the nodes that a job may have from a time to another, and the time from which on
            it may have others; 0: never.
    """

    def __init__(
        self,
        config: SlurmConfig,
        now_s: int,
        plan: Plan,
        forecast: Callable[[], EndForecast],
        start: Callable[[QueuedJob, int, int], bool],
        victims: Callable[[QueuedJob], Sequence[StartedJob]],
        allowed: Callable[[QueuedJob, int, int], tuple[int, int]],
    ) -> None:
        self._config = config
        self._now_s = now_s
        self._plan = plan
        self._new_forecast = forecast
        self._forecast = forecast()
        self._start = start
        self._victims = victims
        self._allowed = allowed
        self._tested_count = 0
        self._started_count = 0
        self._is_over = False
        self._tests: Counter[tuple[str, str]] = Counter()
        self._reservations: Counter[str] = Counter()

    def run(
        self, jobs: Sequence[QueuedJob], completing_nodes: Callable[[], int], attempt_count: int | None = None
    ) -> None:
        """Handle jobs in their order, until a limit of the loop is reached.

        Args:
            jobs: Jobs that wait.
            completing_nodes: Function that returns the vector of the nodes that start no job yet: they complete one.
            attempt_count: Count of jobs and elements after which the cycle is cut; None: it goes to the end.
        """
        self._completing_nodes = completing_nodes
        self._attempts_left = attempt_count
        for job in jobs:
            if self._tested_count >= self._config.bf_max_job_test or self._is_over:
                return
            self._try_elements(job)

    def _try_elements(self, job: QueuedJob) -> None:
        """Start elements of a job as long as they fit, then reserve nodes for some of those that wait."""
        config = self._config
        reserved_count = 0
        # Elements that cannot start yet follow each other in the plan, none of which leaves the queue.
        while reserved_count < len(job.elements) and not self._is_over and self._counts(job) and not job.is_throttled:
            if self._attempts_left is not None:
                self._is_over = self._attempts_left <= 0
                self._attempts_left -= 1
                if self._is_over:
                    return
            reservable = config.bf_job_part_count_reserve
            is_now_only = not reserves(config, job, self._now_s) or (
                0 < reservable <= self._reservations[job.partition.name]
            )
            placement = self._placement(job, is_now_only=is_now_only)
            if placement is None:
                return

            if placement.is_started:
                self._started_count += 1
                self._is_over = 0 < config.bf_max_job_start <= self._started_count
                continue

            self._is_over = self._plan.record_count >= (config.bf_node_space_size or config.bf_max_job_test)
            if self._is_over:
                return
            self._plan.reserve(placement.start_s, placement.start_s + job.runs_for_s(), placement.nodes)
            self._reservations[job.partition.name] += 1
            reserved_count += 1
            if not job.is_array or reserved_count >= config.bf_max_job_array_resv:
                return

    def _counts(self, job: QueuedJob) -> bool:
        """Count a test of a job; False where its user or partition has had enough of them."""
        config, user, partition = self._config, job.user, job.partition.name
        limits = (
            ((user, partition), config.bf_max_job_user_part),
            (("", partition), config.bf_max_job_part),
            ((user, ""), config.bf_max_job_user),
        )
        if any(0 < most <= self._tests[key] for key, most in limits):
            return False
        self._tests.update([key for key, most in limits if most])
        return True

    def _placement(self, job: QueuedJob, *, is_now_only: bool) -> Placement | None:
        """Start a job, or find the time and nodes to reserve; None: neither within the window of the plan."""
        now_s = self._now_s
        run_s = job.runs_for_s()
        victims = self._victims(job)
        later_s = now_s
        is_counted = False

        while later_s:
            begin_s = later_s
            allowed_nodes, released_s = self._allowed(job, begin_s, begin_s + run_s)
            candidates, later_s = self._plan.unreserved(begin_s, begin_s + run_s, allowed_nodes)
            later_s = min(later_s, released_s) if later_s and released_s else later_s or released_s
            later_s = 0 if is_now_only else later_s
            placement = None
            if candidates.bit_count() >= max(1, job.need.node_count):
                self._tested_count += not is_counted
                is_counted = True
                placement = self._forecast.placement(job, candidates, now_s, victims, is_now_only=is_now_only)
            if placement is None:
                continue

            start_s = max(placement.start_s, begin_s)
            if start_s <= now_s and placement.nodes & self._completing_nodes():
                # Nodes that complete a job have room, and wait for that: the job is planned for the next second.
                later_s, start_s = 0, now_s + 1
            if start_s <= now_s:
                is_started = self._start(job, candidates, now_s)
                self._forecast = self._new_forecast()
                if is_started:
                    return placement._replace(is_started=True)
                # It starts when what it preempts has ended: until then its nodes are its own.
                later_s = 0
            if later_s and start_s > later_s:
                continue
            if start_s > now_s + self._config.bf_window * MINUTE or (is_now_only and start_s > now_s):
                return None
            if start_s > now_s and self._plan.overlaps(start_s, start_s + run_s, placement.nodes):
                later_s = start_s
                continue
            return Placement(start_s, placement.shares)
        return None
