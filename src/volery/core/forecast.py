"""Input and output of forecasts: the state of a federation, and quantiles of a job's moments.

Rooms `live` and `whatif` share nothing but core: the first writes a state, and the second simulates from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from volery.core.model import Amounts, JobId, Time

Basis = Literal["history", "estimate", "user", "federation", "nothing"]


class Lifetime(msgspec.Struct, frozen=True):
    """Past durations and estimates of tasks of one kind.

    Args:
        basis: Source of the durations: earlier tasks of the same name and user; an estimate; any earlier tasks of the
            user; any earlier tasks; nothing.
        estimate_us: Estimate of the user; 0: none.
        past: Durations of the tasks of each earlier job, in order; empty where there is an estimate alone.
        ratios: Mean duration over estimate of earlier jobs, in thousandths, in order; empty: too few.
    """

    basis: Basis
    estimate_us: Time = 0
    past: tuple[tuple[Time, ...], ...] = ()
    ratios: tuple[int, ...] = ()


class RunningTask(msgspec.Struct, frozen=True):
    """A running task.

    Args:
        machine: Number of the machine.
        elapsed_us: Time since its start.
        lifetime: Place of its kind among `FederationState.lifetimes`.
        request: Units of each resource.
    """

    machine: int
    elapsed_us: Time
    lifetime: int
    request: Amounts = ()


class WaitingTasks(msgspec.Struct, frozen=True):
    """Equal tasks that have not been started.

    Args:
        count: Count of the tasks.
        mask: Constraints of the tasks, as bits.
        lifetime: Place of their kind among `FederationState.lifetimes`.
        request: Units of each resource.
    """

    count: int
    mask: int
    lifetime: int
    request: Amounts = ()


class ActiveJob(msgspec.Struct, frozen=True):
    """A job that has not ended.

    Args:
        number, user: Number and owner of the job.
        estimate_us: Estimate that schedulers have received.
        running, waiting: Running and waiting tasks of the job.
        took_us: Durations of some of its tasks that have finished.
    """

    number: JobId
    user: str
    estimate_us: Time
    running: tuple[RunningTask, ...] = ()
    waiting: tuple[WaitingTasks, ...] = ()
    took_us: tuple[Time, ...] = ()


class FederationState(msgspec.Struct, frozen=True):
    """The state of a federation at one moment.

    Args:
        at_us: Moment of the state, microseconds since 1970.
        jobs: Jobs in the order of submission.
        planned: Job in question, submitted after them; None: it is one of them.
        lifetimes: Durations by kinds of tasks.
        drained: Machines that take no tasks.
        weights: Weights of users and organisations, where they have changed.
        asked: Number of the job in question, where none is planned.
    """

    at_us: Time
    jobs: tuple[ActiveJob, ...]
    planned: ActiveJob | None
    lifetimes: tuple[Lifetime, ...]
    drained: tuple[int, ...] = ()
    weights: tuple[tuple[str, int], ...] = ()
    asked: JobId | None = None

    @property
    def all(self) -> tuple[ActiveJob, ...]:
        """All jobs, in the order of submission."""
        return self.jobs if self.planned is None else (*self.jobs, self.planned)

    @property
    def questioned(self) -> ActiveJob:
        """The job in question."""
        if self.planned is not None:
            return self.planned
        return next(job for job in self.jobs if job.number == self.asked)


Microseconds = Annotated[
    int | None,
    Meta(description="microseconds after the submission, or after the forecast of a job under way; null: not known"),
]


class Quantiles(msgspec.Struct, frozen=True):
    """Quantiles of a moment: 10 %, 50 % and 90 % of all runs."""

    low_us: Microseconds
    median_us: Microseconds
    high_us: Microseconds


class MomentQuantiles(msgspec.Struct, frozen=True):
    """Quantiles of the moments of a job, as far as they are still to come."""

    first_start: Annotated[Quantiles, Meta(description="its first task starts, of those that wait")]
    first_end: Annotated[Quantiles, Meta(description="the first of its tasks ends")]
    last_start: Annotated[Quantiles, Meta(description="the last of its tasks to start does so")]
    last_end: Annotated[Quantiles, Meta(description="all of its tasks have ended")]


class PreemptedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would lose running tasks to the one in question."""

    job: Annotated[int | None, Meta(description="null: jobs of other users, together")] = None
    user: str = ""
    tasks: Annotated[float, Meta(description="that it loses, the mean over all runs")]
    runs: Annotated[int, Meta(description="in how many of the runs it loses any")]


class DurationBases(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of tasks by the basis of their durations."""

    history: Annotated[int, Meta(description="from earlier tasks of the same name and user")] = 0
    estimate: Annotated[int, Meta(description="from the user's estimate")] = 0
    user: Annotated[int, Meta(description="from whatever the user has run")] = 0
    federation: Annotated[int, Meta(description="from whatever has run here")] = 0
    nothing: Annotated[int, Meta(description="not at all: from a second to an hour")] = 0


class ForecastResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all runs of a forecast."""

    runs: Annotated[int, Meta(description="of the lab, over durations drawn anew, that came to their end in time")]
    moments: MomentQuantiles
    known: DurationBases
    preempts: tuple[PreemptedJob, ...] = ()
    cpu_s: Annotated[float, Meta(description="processor time that the runs took, in seconds")] = 0.0
