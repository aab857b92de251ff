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
"""Function from an allocation to the time that the job still takes with it."""


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
        for (earlier, _), (later, _) in itertools.pairwise(self.points):
            if later <= earlier:
                raise InputError("utility", f"the point at {later} us follows that at {earlier} us; times increase")

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
        time, colon, utility = part.partition(":")
        try:
            points.append((round(float(time) * SECOND), float(utility)))
        except (ValueError, OverflowError):
            raise InputError(place, f"{part!r} in {text!r} is not SECONDS:UTILITY, as {DEFAULT}") from None

        if not (colon and math.isfinite(points[-1][1])):
            raise InputError(place, f"{part!r} in {text!r} is not SECONDS:UTILITY, as {DEFAULT}")
    return UtilityCurve(tuple(points))


def due(deadline_us: Time, curve: UtilityCurve) -> UtilityCurve:
    """The curve of a job, from its deadline since its submission and a curve whose times count from the deadline."""
    return UtilityCurve(tuple([(deadline_us + time_us, utility) for time_us, utility in curve.points]))


class Loop(msgspec.Struct, frozen=True):
    """The parameters of the loop.

    Args:
        dead_us: Dead zone: the job is to be done so much before its deadline, and nothing changes while the forecast
            is no further than that from it.
        grid: Allocations to choose from, tokens, increasing.
    """

    slack: float
    alpha: float
    dead_us: Time
    grid: tuple[int, ...]

    def utilities(self, curve: UtilityCurve, elapsed_us: Time, time_left: Left) -> list[float]:
        """The worth of each allocation of the grid: U(elapsed + slack * C + dead zone)."""
        return [curve.at(self.forecast_us(elapsed_us, time_left(tokens)) + self.dead_us) for tokens in self.grid]

    def forecast_us(self, elapsed_us: Time, left_us: Time) -> Time:
        """The forecast end of the job, since its submission."""
        return elapsed_us + round(self.slack * left_us)

    def wanted(self, utilities: Sequence[float]) -> int:
        """The smallest allocation whose worth is the largest."""
        return self.grid[utilities.index(max(utilities))]

    def adjusted(
        self, tokens: float, deadline_us: Time, curve: UtilityCurve, elapsed_us: Time, time_left: Left
    ) -> float:
        """The next allocation; all that there is where even that is too little. Times count from the submission."""
        target_us = deadline_us - self.dead_us
        # Even all tokens are too few by now: being as little late as possible is all that is left.
        if self.forecast_us(elapsed_us, time_left(self.grid[-1])) > target_us:
            return float(self.grid[-1])

        # In the dead zone: a forecast so near to the target is noise.
        if abs(self.forecast_us(elapsed_us, time_left(tokens)) - target_us) <= self.dead_us:
            return tokens
        return tokens + self.alpha * (self.wanted(self.utilities(curve, elapsed_us, time_left)) - tokens)


class TokenClaim(msgspec.Struct, frozen=True):
    """The request of a job.

    Args:
        steps: Allocations that it may be given, tokens, increasing, from 0 to what it asks for.
        utilities: Utility of each allocation.
    """

    steps: tuple[int, ...]
    utilities: tuple[float, ...]

    def best_from(self, place: int, tokens: int) -> tuple[float, int]:
        """(utility per token, place) of the step up that pays best, at most so many tokens up; the place itself: none.

        Utilities need not be concave, so that steps further up are looked at too.
        """
        best_gain = 0.0
        best_place = place

        for step in range(place + 1, len(self.steps)):
            extra_tokens = self.steps[step] - self.steps[place]
            gain = (self.utilities[step] - self.utilities[place]) / extra_tokens
            if extra_tokens <= tokens and gain > best_gain:
                best_gain = gain
                best_place = step

        return best_gain, best_place


def arbitrated(claims: Sequence[TokenClaim], tokens: int) -> list[int]:
    """Divide tokens among claims: what each asks for if all fit, else by marginal utility; ties go to the first."""
    # No need to choose where all can have what they want.
    if sum([claim.steps[-1] for claim in claims]) <= tokens:
        return [claim.steps[-1] for claim in claims]

    places = [0] * len(claims)
    tokens_left = tokens

    while True:
        offers = [claim.best_from(place, tokens_left) for claim, place in zip(claims, places, strict=True)]
        best_claim = max(range(len(claims)), key=lambda number: (offers[number][0], -number), default=-1)

        # No step pays any more; of steps that pay as much the first claim's comes first.
        if best_claim < 0 or not offers[best_claim][0]:
            return [claim.steps[place] for claim, place in zip(claims, places, strict=True)]

        tokens_left -= claims[best_claim].steps[offers[best_claim][1]] - claims[best_claim].steps[places[best_claim]]
        places[best_claim] = offers[best_claim][1]


Control = Literal["adaptive", "first", "max"]
Deviation = Literal["resimulate", "share", "ignore"]
RESIMULATIONS_MAX = 3
"""Number of own models of a job after which it is not simulated any more, however it deviates."""


class ControlSetting(msgspec.Struct, frozen=True):
    """The parameters of control.

    Args:
        off: Ratio of its work to that of the model, or the inverse, beyond which a job deviates.
        off_periods: Number of periods in a row for which it deviates until something is done.
        rehearsal_us: Modelled time of simulating a job again.
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
        user: User of the job; the name of a recurring one.
        wanted: Number of tokens that it is to have; 0 until all of its tasks are known.
        shares: Whether it is given a fair share instead, because no model fits it.
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
        self._tokens = 0.0
        self._tasks: list[Task] = []
        self._waits: list[tuple[TaskId, ...]] = []
        self._missing_count = job.task_count
        self._early_ends: list[tuple[TaskId, Time]] = []
        self._table: Remaining | None = None
        self._periods_off = 0
        self._simulation_count = 0

    def add(self, tasks: Sequence[Task], parents: Sequence[tuple[TaskId, ...]]) -> bool:
        """Add a chunk of the job; returns True if it was the last."""
        self._tasks += tasks
        self._waits += parents or ((),) * len(tasks)
        self._missing_count -= len(tasks)
        return not self._missing_count

    def know(self, model: JobModel | None) -> None:
        """Find the stages of the whole job, and their model of earlier runs, if the stages are the same."""
        place_of = {task.id: number for number, task in enumerate(self._tasks)}
        self._places = tuple([tuple([place_of[parent] for parent in parents]) for parents in self._waits])
        self._stage_of = stages_of(self._places)
        self._stage = {task.id: stage for task, stage in zip(self._tasks, self._stage_of, strict=True)}
        self._counts = sizes(self._stage_of)
        self._ended = [0] * len(self._counts)
        self._ran_us = [0] * len(self._counts)

        # A run whose graph of stages is another one says nothing about this job.
        model_parents = [stage.parents for stage in model.profile.stages] if model is not None else []
        if model is not None and parents_of(self._places, self._stage_of) == model_parents:
            self._stages = model.profile.stages
            self._run_us = model.profile.run_us
            self._table = model.table if self._setting.simulator else None
        else:
            _, self._stages = estimated(self._places, [task.estimate_us for task in self._tasks])

        self._tasks = []
        self._waits = []
        self.known = True

        # Tasks of early chunks may have ended before the last chunk came.
        for task, ran_us in self._early_ends:
            self.finished(task, ran_us)

    def finished(self, task: TaskId, ran_us: Time) -> None:
        """Note the run time of a task that has ended."""
        if not self.known:
            self._early_ends.append((task, ran_us))
            return

        stage = self._stage[task]
        self._ended[stage] += 1
        self._ran_us[stage] += ran_us

    @property
    def _done_shares(self) -> list[float]:
        return [ended / count for ended, count in zip(self._ended, self._counts, strict=True)]

    def _model_now(self) -> Left:
        """The model, where the job is now."""
        table = self._table
        done_shares = self._done_shares
        if table is None:
            return lambda tokens: amdahl_us(self._stages, done_shares, max(1.0, tokens))

        job_progress = progress(self._setting.rehearsing.indicator, self._stages, done_shares)
        return lambda tokens: table.at(job_progress, tokens)

    def begin(self, now: Time) -> None:
        """Choose the first number of tokens."""
        loop = self._setting.loop
        time_left = self._model_now()

        self._tokens = float(loop.grid[-1])

        if self._setting.control != "max":
            is_late = (
                loop.forecast_us(now - self._submit_us, time_left(loop.grid[-1])) > self._deadline_us - loop.dead_us
            )
            utilities = loop.utilities(self._curve, now - self._submit_us, time_left)
            self._tokens = float(loop.grid[-1] if is_late else loop.wanted(utilities))

        self.wanted = math.ceil(self._tokens)

    def within(self, tokens: int) -> int:
        """The tokens that it takes of so many that are free."""
        return min(self.wanted, tokens)

    def control(self, now: Time) -> None:
        """Choose again after a period."""
        if self._setting.control != "adaptive":
            return

        elapsed_us = now - self._submit_us
        self._tokens = self._setting.loop.adjusted(
            self._tokens, self._deadline_us, self._curve, elapsed_us, self._model_now()
        )
        self.wanted = math.ceil(self._tokens)

    def deviates(self) -> bool:
        """Count this period; returns True if the job has deviated from the table for long enough."""
        setting = self._setting
        # Only a loop that adapts by a table can find the table wrong.
        if self._table is None or setting.deviation == "ignore" or setting.control != "adaptive" or self.shares:
            return False

        work_ratio = self._work_ratio()
        # A job may be faster than its model as well as slower.
        self._periods_off = self._periods_off + 1 if max(work_ratio, 1 / work_ratio) > setting.off else 0
        return self._periods_off >= setting.off_periods

    def _work_ratio(self) -> float:
        """The work of this job per work of its model, by the stages that have ended."""
        model_us = sum([stage.work_us for stage in self._stages])
        mean_us = [stage.work_us / stage.tasks for stage in self._stages]

        expected_us = sum([mean * count for mean, count in zip(mean_us, self._counts, strict=True)])
        return (self._slowdown() * expected_us / model_us or 1.0) if model_us else 1.0

    def _slowdown(self) -> float:
        """The ratio of run times to those of the model, over the stages that have ended."""
        ended_stages = [number for number, share in enumerate(self._done_shares) if share >= 1.0]
        ran_us = sum([self._ran_us[number] for number in ended_stages])

        rows = [(self._stages[number], self._counts[number]) for number in ended_stages]
        model_us = sum([stage.work_us / stage.tasks * count for stage, count in rows])
        return ran_us / model_us if ran_us and model_us else 1.0

    def rehearsal(self) -> Rehearsal | None:
        """The job as it is now known to be, to be simulated; None: it shares from now on."""
        self._periods_off = 0
        if self._setting.deviation == "share" or self._simulation_count == RESIMULATIONS_MAX:
            self.shares = True
            return None
        self._simulation_count += 1

        factors = [self._factor(number) for number in range(len(self._stages))]
        self._run_us = tuple(
            [tuple([round(us * factor) for us in times]) for times, factor in zip(self._run_us, factors, strict=True)]
        )

        stage_rows = zip(self._stages, factors, self._counts, strict=True)
        self._stages = with_paths([_scaled(stage, factor, count) for stage, factor, count in stage_rows])

        return Rehearsal(
            self._places, self._stage_of, self._stages, self._run_us, self._setting.rehearsing, seed=self.job
        )

    def _factor(self, number: int) -> float:
        """The ratio of a stage's run times to those of the model: its own if it has ended, else that of the others."""
        stage = self._stages[number]
        count = self._counts[number]

        # A stage of which all tasks have ended tells its own ratio; one in progress has ended its short tasks only.
        if self._ended[number] == count and self._ran_us[number] and stage.work_us:
            return self._ran_us[number] / (stage.work_us / stage.tasks * count)
        return self._slowdown()

    def rehearsed(self, table: Remaining) -> None:
        """Take the table of the simulation."""
        self._table = table

    def claim(self, now: Time) -> TokenClaim:
        """The tokens that it asks for, and the value of fewer; none is counted as a single one."""
        loop = self._setting.loop
        time_left = self._model_now()

        steps = self._steps()
        smallest = loop.grid[0]
        # A job without tokens would never end; its time with the smallest allocation, per token, stands for that.
        times_left = [time_left(smallest) * smallest, *[time_left(tokens) for tokens in steps[1:]]]

        elapsed_us = now - self._submit_us
        worth = [
            self._curve.at(loop.forecast_us(elapsed_us, time_left_us) + loop.dead_us) for time_left_us in times_left
        ]
        return TokenClaim(steps, tuple(worth))

    def _steps(self) -> tuple[int, ...]:
        """The allocations that it may be given."""
        return (0, *[tokens for tokens in self._setting.loop.grid if tokens < self.wanted], self.wanted)


class ControlledGang(ControlledJob):
    """A job with a deadline whose tasks run only together: it is guaranteed a token for each of them, or none."""

    def begin(self, now: Time) -> None:
        self.wanted = len(self._stage)

    def within(self, tokens: int) -> int:
        return self.wanted if self.wanted <= tokens else 0

    def control(self, now: Time) -> None:
        """Nothing: it runs on as many tokens as it has tasks, or waits."""

    def deviates(self) -> bool:
        return False

    def _steps(self) -> tuple[int, ...]:
        return 0, self.wanted


def _scaled(stage: JobStage, factor: float, tasks: int) -> JobStage:
    """The stage with another number of tasks, which are longer by a factor."""
    work_us = round(stage.work_us * factor * tasks / stage.tasks)
    return msgspec.structs.replace(stage, tasks=tasks, work_us=work_us, longest_us=round(stage.longest_us * factor))
