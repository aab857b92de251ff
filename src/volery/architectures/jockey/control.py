"""Control of jobs with deadlines: utility curves, the loop that sets a job's tokens, and their division among jobs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from volery.architectures.jockey.profiles import JobModel, estimated
from volery.architectures.jockey.rehearsal import Rehearsal, RehearsalSetting, Remaining
from volery.architectures.jockey.stages import JobStage, amdahl_us, parents_of, progress, sizes, stages_of, with_paths
from volery.core.errors import InputError
from volery.core.model import SECOND, Job, Task, TaskId, Time

Left = Callable[[float], Time]
"""From an allocation to the time that the job still takes with it."""


class UtilityCurve(msgspec.Struct, frozen=True):
    """The value of the end of a job, by points: (microseconds since its submission, utility), times increasing.

    It is constant before the first point, and beyond the last as steep as between the last two.

    Raises:
        InputError: there is no point, or times do not increase.
    """

    points: tuple[tuple[Time, float], ...]

    def __post_init__(self) -> None:
        """Refuse what is no function of time."""
        if not self.points:
            raise InputError("utility", "has no point; give at least one, as (deadline, 1)")
        for (before, _), (after, _) in itertools.pairwise(self.points):
            if after <= before:
                raise InputError("utility", f"the point at {after} us follows that at {before} us; times increase")

    def at(self, time_us: Time) -> float:
        """The value of an end at this time."""
        points = self.points
        if time_us <= points[0][0] or len(points) == 1:
            return points[0][1]
        place = next((k for k in range(1, len(points)) if time_us <= points[k][0]), len(points) - 1)
        (low_us, low), (high_us, high) = points[place - 1], points[place]
        return low + (high - low) * (time_us - low_us) / (high_us - low_us)


DEFAULT: Final = "0:1+600:-1+60000:-1000"
"""The curve of the paper, as recalled: 1 until the deadline, -1 ten minutes later, -1000 after a thousand minutes."""


def parsed(text: str, place: str) -> UtilityCurve:
    """A curve about a deadline, from `SECONDS:UTILITY+...`, where seconds count from the deadline.

    Raises:
        InputError: it is not of that form, or times do not increase.
    """
    points: list[tuple[Time, float]] = []
    for part in text.split("+"):
        at, colon, utility = part.partition(":")
        try:
            points.append((round(float(at) * SECOND), float(utility)))
        except (ValueError, OverflowError):
            raise InputError(place, f"{part!r} in {text!r} is not SECONDS:UTILITY, as {DEFAULT}") from None
        if not (colon and math.isfinite(points[-1][1])):
            raise InputError(place, f"{part!r} in {text!r} is not SECONDS:UTILITY, as {DEFAULT}")
    return UtilityCurve(tuple(points))


def due(deadline_us: Time, about: UtilityCurve) -> UtilityCurve:
    """The curve of a job, from its deadline since its submission and a curve whose times count from the deadline."""
    return UtilityCurve(tuple([(deadline_us + at, utility) for at, utility in about.points]))


class Loop(msgspec.Struct, frozen=True):
    """The parameters of the loop.

    Args:
        dead_us: dead zone: the job is to be done so much before its deadline, and nothing changes while the forecast
            is no further than that from it.
        grid: allocations to choose from, tokens, increasing.
    """

    slack: float
    alpha: float
    dead_us: Time
    grid: tuple[int, ...]

    def utilities(self, curve: UtilityCurve, elapsed_us: Time, left: Left) -> list[float]:
        """Per allocation of the grid, what it is worth: U(elapsed + slack * C + dead zone)."""
        return [curve.at(self.forecast_us(elapsed_us, left(tokens)) + self.dead_us) for tokens in self.grid]

    def forecast_us(self, elapsed_us: Time, left_us: Time) -> Time:
        """The forecast end of the job, since its submission."""
        return elapsed_us + round(self.slack * left_us)

    def wanted(self, utilities: Sequence[float]) -> int:
        """The smallest allocation whose worth is the largest."""
        return self.grid[utilities.index(max(utilities))]

    def adjusted(self, held: float, deadline_us: Time, curve: UtilityCurve, elapsed_us: Time, left: Left) -> float:
        """The next allocation; all that there is where even that is too little. Times count from the submission."""
        target_us = deadline_us - self.dead_us
        if self.forecast_us(elapsed_us, left(self.grid[-1])) > target_us:
            return float(self.grid[-1])
        if abs(self.forecast_us(elapsed_us, left(held)) - target_us) <= self.dead_us:
            return held
        return held + self.alpha * (self.wanted(self.utilities(curve, elapsed_us, left)) - held)


class TokenClaim(msgspec.Struct, frozen=True):
    """The request of a job.

    Args:
        steps: allocations that it may be given, tokens, increasing, from 0 to what it asks for.
        utilities: what each is worth.
    """

    steps: tuple[int, ...]
    utilities: tuple[float, ...]

    def best_from(self, place: int, tokens: int) -> tuple[float, int]:
        """(utility per token, place) of the step up that pays best, at most so many tokens up; the place itself: none.

        Utilities need not be concave, so that steps further up are looked at too.
        """
        best, chosen = 0.0, place
        for further in range(place + 1, len(self.steps)):
            more = self.steps[further] - self.steps[place]
            gain = (self.utilities[further] - self.utilities[place]) / more
            if more <= tokens and gain > best:
                best, chosen = gain, further
        return best, chosen


def arbitrated(claims: Sequence[TokenClaim], tokens: int) -> list[int]:
    """Per claim what it is given: what it asks for where all fit, else by marginal utility; ties go to the first."""
    if sum([claim.steps[-1] for claim in claims]) <= tokens:
        return [claim.steps[-1] for claim in claims]
    at, left = [0] * len(claims), tokens
    while True:
        offers = [claim.best_from(place, left) for claim, place in zip(claims, at, strict=True)]
        best = max(range(len(claims)), key=lambda number: (offers[number][0], -number), default=-1)
        if best < 0 or not offers[best][0]:
            return [claim.steps[place] for claim, place in zip(claims, at, strict=True)]
        left -= claims[best].steps[offers[best][1]] - claims[best].steps[at[best]]
        at[best] = offers[best][1]


Control = Literal["adaptive", "first", "max"]
Deviation = Literal["resimulate", "share", "ignore"]
RESIMULATIONS_MAX = 3
"""A job that deviates from so many models of its own is not simulated any more."""


class ControlSetting(msgspec.Struct, frozen=True):
    """The parameters of control.

    Args:
        off: work per work of the model, or the inverse, beyond which a job deviates ...
        off_periods: ... when so many periods in a row have found it so.
        rehearsal_us: modelled time of simulating a job anew.
    """

    control: Control
    simulator: bool
    loop: Loop
    utility: UtilityCurve
    period_us: Time
    deviation: Deviation
    off: float
    off_periods: int
    rehearsing: RehearsalSetting
    rehearsal_us: Time


class ControlledJob:
    """A job with a deadline.

    Attributes:
        user: of the job; the user is the name of a recurring one.
        wanted: tokens that it is to have; 0 until all of its tasks are known.
        shares: whether it is given a fair share instead, because no model fits it.
    """

    def __init__(self, job: Job, now: Time, setting: ControlSetting) -> None:
        self.job = job.id
        self.user = job.user
        self.known = False
        self.wanted = 0
        self.shares = False
        self._setting = setting
        self._submit_us = now
        self._deadline_us = job.deadline_us - now
        self._curve = due(self._deadline_us, setting.utility)
        self._held = 0.0
        self._tasks: list[Task] = []
        self._waits: list[tuple[TaskId, ...]] = []
        self._missing = job.task_count
        self._early: list[tuple[TaskId, Time]] = []
        self._table: Remaining | None = None
        self._off_for = 0
        self._simulated = 0

    def add(self, tasks: Sequence[Task], parents: Sequence[tuple[TaskId, ...]]) -> bool:
        """Add a chunk of the job; returns True if it was the last."""
        self._tasks += tasks
        self._waits += parents or ((),) * len(tasks)
        self._missing -= len(tasks)
        return not self._missing

    def know(self, learned: JobModel | None) -> None:
        """Find the stages of the whole job, and their model of earlier runs, if the stages are the same."""
        place = {task.id: number for number, task in enumerate(self._tasks)}
        self._places = tuple([tuple([place[parent] for parent in parents]) for parents in self._waits])
        self._stage_of = stages_of(self._places)
        self._stage = {task.id: stage for task, stage in zip(self._tasks, self._stage_of, strict=True)}
        self._counts = sizes(self._stage_of)
        self._ended = [0] * len(self._counts)
        self._ran_us = [0] * len(self._counts)
        alike = [stage.parents for stage in learned.profile.stages] if learned is not None else []
        if learned is not None and parents_of(self._places, self._stage_of) == alike:
            self._stages, self._run_us = learned.profile.stages, learned.profile.run_us
            self._table = learned.table if self._setting.simulator else None
        else:
            _, self._stages = estimated(self._places, [task.estimate_us for task in self._tasks])
        self._tasks, self._waits, self.known = [], [], True
        for task, ran_us in self._early:
            self.finished(task, ran_us)

    def finished(self, task: TaskId, ran_us: Time) -> None:
        """Note the run time of a task that has ended."""
        if not self.known:
            self._early.append((task, ran_us))
            return
        stage = self._stage[task]
        self._ended[stage] += 1
        self._ran_us[stage] += ran_us

    @property
    def _done(self) -> list[float]:
        return [ended / count for ended, count in zip(self._ended, self._counts, strict=True)]

    def _left(self) -> Left:
        """The model, where the job is now."""
        table, done = self._table, self._done
        if table is None:
            return lambda tokens: amdahl_us(self._stages, done, max(1.0, tokens))
        at = progress(self._setting.rehearsing.indicator, self._stages, done)
        return lambda tokens: table.at(at, tokens)

    def begin(self, now: Time) -> None:
        """Choose the first number of tokens."""
        loop, left = self._setting.loop, self._left()
        self._held = float(loop.grid[-1])
        if self._setting.control != "max":
            late = loop.forecast_us(now - self._submit_us, left(loop.grid[-1])) > self._deadline_us - loop.dead_us
            utilities = loop.utilities(self._curve, now - self._submit_us, left)
            self._held = float(loop.grid[-1] if late else loop.wanted(utilities))
        self.wanted = math.ceil(self._held)

    def control(self, now: Time) -> None:
        """Choose again after a period."""
        if self._setting.control != "adaptive":
            return
        elapsed_us = now - self._submit_us
        self._held = self._setting.loop.adjusted(self._held, self._deadline_us, self._curve, elapsed_us, self._left())
        self.wanted = math.ceil(self._held)

    def deviates(self) -> bool:
        """Count this period; returns True if the job has deviated from the table for long enough."""
        setting = self._setting
        if self._table is None or setting.deviation == "ignore" or setting.control != "adaptive" or self.shares:
            return False
        off = self._work_ratio()
        self._off_for = self._off_for + 1 if max(off, 1 / off) > setting.off else 0
        return self._off_for >= setting.off_periods

    def _work_ratio(self) -> float:
        """The work of this job per work of its model, by the stages that have ended."""
        model_us = sum([stage.work_us for stage in self._stages])
        means = [stage.work_us / stage.tasks for stage in self._stages]
        same_us = sum([mean * count for mean, count in zip(means, self._counts, strict=True)])
        return (self._slower() * same_us / model_us or 1.0) if model_us else 1.0

    def _slower(self) -> float:
        """The ratio of run times to those of the model, over the stages that have ended."""
        ended = [number for number, done in enumerate(self._done) if done >= 1.0]
        ran_us = sum([self._ran_us[number] for number in ended])
        rows = [(self._stages[number], self._counts[number]) for number in ended]
        model_us = sum([stage.work_us / stage.tasks * count for stage, count in rows])
        return ran_us / model_us if ran_us and model_us else 1.0

    def rehearsal(self) -> Rehearsal | None:
        """The job as it is now known to be, to be simulated; None: it shares from now on."""
        self._off_for = 0
        if self._setting.deviation == "share" or self._simulated == RESIMULATIONS_MAX:
            self.shares = True
            return None
        self._simulated += 1
        factors = [self._factor(number) for number in range(len(self._stages))]
        self._run_us = tuple(
            [tuple([round(us * by) for us in times]) for times, by in zip(self._run_us, factors, strict=True)]
        )
        rows = zip(self._stages, factors, self._counts, strict=True)
        self._stages = with_paths([_scaled(stage, by, count) for stage, by, count in rows])
        return Rehearsal(
            self._places, self._stage_of, self._stages, self._run_us, self._setting.rehearsing, seed=self.job
        )

    def _factor(self, number: int) -> float:
        """The ratio of a stage's run times to those of the model: its own if it has ended, else that of the others."""
        stage, count = self._stages[number], self._counts[number]
        if self._ended[number] == count and self._ran_us[number] and stage.work_us:
            return self._ran_us[number] / (stage.work_us / stage.tasks * count)
        return self._slower()

    def rehearsed(self, table: Remaining) -> None:
        """Take the table of the simulation."""
        self._table = table

    def claim(self, now: Time) -> TokenClaim:
        """The tokens that it asks for, and the value of fewer; none is counted as a single one."""
        loop, left = self._setting.loop, self._left()
        steps = (0, *[tokens for tokens in loop.grid if tokens < self.wanted], self.wanted)
        least = loop.grid[0]
        times = [left(least) * least, *[left(tokens) for tokens in steps[1:]]]
        elapsed_us = now - self._submit_us
        worth = [self._curve.at(loop.forecast_us(elapsed_us, us) + loop.dead_us) for us in times]
        return TokenClaim(steps, tuple(worth))


def _scaled(stage: JobStage, by: float, tasks: int) -> JobStage:
    """A stage with other tasks, so many, and so many times as long."""
    work_us = round(stage.work_us * by * tasks / stage.tasks)
    return msgspec.structs.replace(stage, tasks=tasks, work_us=work_us, longest_us=round(stage.longest_us * by))
