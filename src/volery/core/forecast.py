"""How a federation stands at a moment, and what the lab makes of that: what a forecast is asked and answers.

The live side writes a `Standing` without the lab, and the lab plays it without the live side.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from volery.core.model import Amounts, JobId, Time

Basis = Literal["history", "estimate", "user", "federation", "nothing"]


class Lifetime(msgspec.Struct, frozen=True):
    """What is known of how long tasks of one kind take.

    Args:
        basis: where it is known from: earlier tasks of the same name and user; an estimate; any earlier tasks of the
            user; any at all; nothing.
        estimate_us: that was given; 0: none.
        past: per earlier job the durations of its tasks, in order; nothing where only an estimate is known.
        ratios: of earlier jobs, mean duration over estimate, in thousandths, in order; nothing: too few.
    """

    basis: Basis
    estimate_us: Time = 0
    past: tuple[tuple[Time, ...], ...] = ()
    ratios: tuple[int, ...] = ()


class RunningTask(msgspec.Struct, frozen=True):
    """A task that runs.

    Args:
        machine: on which.
        elapsed_us: for how long.
        lifetime: place of its kind among `Standing.lifetimes`.
        request: units of each resource.
    """

    machine: int
    elapsed_us: Time
    lifetime: int
    request: Amounts = ()


class WaitingTasks(msgspec.Struct, frozen=True):
    """Equal tasks that have not been started.

    Args:
        count: how many.
        mask: their constraints.
        lifetime: place of their kind among `Standing.lifetimes`.
        request: units of each resource.
    """

    count: int
    mask: int
    lifetime: int
    request: Amounts = ()


class StandingJob(msgspec.Struct, frozen=True):
    """A job that has not ended.

    Args:
        number, user: of the job.
        estimate_us: what schedulers were told.
        running, waiting: its tasks.
        took_us: durations of some of its tasks that have finished.
    """

    number: JobId
    user: str
    estimate_us: Time
    running: tuple[RunningTask, ...] = ()
    waiting: tuple[WaitingTasks, ...] = ()
    took_us: tuple[Time, ...] = ()


class Standing(msgspec.Struct, frozen=True):
    """All that is under way.

    Args:
        at_us: when, microseconds since 1970.
        jobs: in the order in which they were submitted.
        planned: the job in question, which comes after them; None: the question is about one of them.
        lifetimes: the kinds of tasks.
        drained: machines on which nothing is placed.
        weights: of users and organisations, where they have changed since the beginning.
        asked: number of the job in question, where none is planned.
    """

    at_us: Time
    jobs: tuple[StandingJob, ...]
    planned: StandingJob | None
    lifetimes: tuple[Lifetime, ...]
    drained: tuple[int, ...] = ()
    weights: tuple[tuple[str, int], ...] = ()
    asked: JobId | None = None

    @property
    def all(self) -> tuple[StandingJob, ...]:
        """All jobs, in the order of submission."""
        return self.jobs if self.planned is None else (*self.jobs, self.planned)

    @property
    def questioned(self) -> StandingJob:
        """The job in question."""
        if self.planned is not None:
            return self.planned
        return next(job for job in self.jobs if job.number == self.asked)


Microseconds = Annotated[
    int | None,
    Meta(description="microseconds after the submission, or after the forecast of a job under way; null: not known"),
]


class Interval(msgspec.Struct, frozen=True):
    """When something comes to pass: in a tenth of all runs it is before `low_us`, in a tenth after `high_us`."""

    low_us: Microseconds
    median_us: Microseconds
    high_us: Microseconds


class Moments(msgspec.Struct, frozen=True):
    """The moments of a job that are foretold; of one under way, those that are still to come."""

    first_start: Annotated[Interval, Meta(description="its first task starts, of those that wait")]
    first_end: Annotated[Interval, Meta(description="the first of its tasks ends")]
    last_start: Annotated[Interval, Meta(description="the last of its tasks to start does so")]
    last_end: Annotated[Interval, Meta(description="all of its tasks have ended")]


class Preempted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would lose running tasks to the one in question."""

    job: Annotated[int | None, Meta(description="null: jobs of other users, together")] = None
    user: str = ""
    tasks: Annotated[float, Meta(description="that it loses, the mean over all runs")]
    runs: Annotated[int, Meta(description="in how many of the runs it loses any")]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """From where the durations of tasks are known, as how many of them."""

    history: Annotated[int, Meta(description="from earlier tasks of the same name and user")] = 0
    estimate: Annotated[int, Meta(description="from the user's estimate")] = 0
    user: Annotated[int, Meta(description="from whatever the user has run")] = 0
    federation: Annotated[int, Meta(description="from whatever has run here")] = 0
    nothing: Annotated[int, Meta(description="not at all: from a second to an hour")] = 0


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of the lab have come to."""

    runs: Annotated[int, Meta(description="of the lab, over durations drawn anew, that came to their end in time")]
    moments: Moments
    known: Known
    preempts: tuple[Preempted, ...] = ()
    cpu_s: Annotated[float, Meta(description="processor time that the runs took, in seconds")] = 0.0
