"""Jobs as utility expressions: the wizard (TetriSched, EuroSys 2016, the STRL generator), and what it is given.

"8 GPUs in one rack, 2x slower elsewhere, deadline 30 min" is

    Wishes(k=8, estimate_us=..., fast=("gpu.rack0", "gpu.rack1"), slower=2.0, deadline_us=now + 30 min, value=1000)

and becomes, for every placement option and every start up to the plan-ahead, an alternative worth what the end of that
run is worth; alternatives without worth are left out. The shapes of TetriSched's job types are settings of it:
unconstrained (no `fast`), GPU (one set), MPI (a set per rack), availability (`apart`), HDFS (`partial`).

Value functions (ours where the papers are silent): a job with a deadline, the time at which it is desired, is worth
its budget until then; after that less and less for `grace_us` (its sensitivity to delay), or nothing at once; and a
penalty for dropping it always on top: not to run it loses so much, whenever it would run. Without a deadline (best
effort) the budget falls linearly from submission to `horizon_us` later, and never below a hundredth.

A job's tasks that wait are a gang: all start at once, on machines of one option. Where tasks of a job have different
constraints, the gang is a min over them. A gang that would not fit on the empty cluster is impossible: no plan holds
it. Without gangs every job is elastic: it takes what it gets (LnCk), now. A deadline that cannot be met any more makes
a job best effort. What is ready of a workflow is a gang if the empty cluster holds it, and elastic if not.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from volery.architectures.tetrisched.expressions import NOW, Expression, LnCk, Max, Min, NCk, Sum
from volery.architectures.tetrisched.machines import ClusterMachines, MachineSupply, Option, Parts, TimeGrid
from volery.architectures.tetrisched.plan import Greedy
from volery.core.model import NEVER, Job, JobId, Task, Time

FLOOR: Final = 0.01
"""Share of the value that a best-effort job keeps however late it comes."""


class Wishes(msgspec.Struct, frozen=True):
    """The wishes of a job.

    Args:
        fast: Names of sets of machines; within any one of them the job is fast. Nothing: it is fast everywhere.
        slower: Factor of the run time on other machines, and on machines of several of these sets.
        everywhere: Name of the set of all machines that it may use; empty: nowhere but on fast ones.
        partial: Whether fewer machines are worth their share, as of storage nodes for tasks that read from them; they
            are taken now or not at all.
        apart: Names of sets, with machines: all of these at once instead of `k` of one set, as one of each rack so that
            no failure takes all.
        deadline_us: Time at which it is desired, absolute; NEVER: best effort.
        submitted_us: Time from which best effort loses value.
        value: Budget of the job.
        grace_us: Time after the desired time in which the budget falls to nothing; 0: at once.
        penalty: Loss by dropping it, if it has a deadline.
    """

    k: int
    estimate_us: Time
    fast: tuple[str, ...] = ()
    slower: float = 1.0
    everywhere: str = "all"
    partial: bool = False
    apart: tuple[tuple[str, int], ...] = ()
    deadline_us: Time = NEVER
    submitted_us: Time = 0
    value: float = 1.0
    grace_us: Time = 0
    penalty: float = 0.0

    def options(self) -> list[Option]:
        options = [Option(name, self.estimate_us) for name in self.fast]

        if self.everywhere:
            options.append(
                Option(self.everywhere, round(self.estimate_us * self.slower) if self.fast else self.estimate_us)
            )
        return options


class Branch(NamedTuple):
    """An alternative: an option and the quantum with which it starts."""

    where: str
    start: int
    expression: Expression


def value_at(wishes: Wishes, end_us: Time, horizon_us: Time) -> float:
    if wishes.deadline_us != NEVER:
        late_us = end_us - wishes.deadline_us
        share = 1.0 if late_us <= 0 else 1.0 - late_us / wishes.grace_us if late_us < wishes.grace_us else 0.0
        return wishes.penalty + wishes.value * share

    share = 1.0 - (end_us - wishes.submitted_us) / horizon_us
    return wishes.value * max(FLOOR, share)


def branches(wishes: Wishes, options: list[Option], grid: TimeGrid) -> list[Branch]:
    """All alternatives that are worth anything."""
    starts = range(NOW, 1 if wishes.partial else grid.ahead + 1)

    alternatives = []
    for set_name, length_us in options:
        quanta = grid.quanta(length_us)
        for start in starts:
            value = value_at(wishes, grid.start_us(start) + length_us, grid.horizon_us)
            if value <= 0:
                # Later starts are worth no more.
                break
            alternatives.append(Branch(set_name, start, _machines(wishes, set_name, value, start, quanta)))

    return alternatives


def _machines(wishes: Wishes, set_name: str, value: float, start: int, quanta: int) -> Expression:
    if wishes.apart:
        return Min(tuple([NCk((name,), k, value, start, quanta) for name, k in wishes.apart]))
    return (LnCk if wishes.partial else NCk)((set_name,), wishes.k, value, start, quanta)


def wizard(wishes: Wishes, grid: TimeGrid) -> Expression | None:
    """The expression; None where nothing is worth anything any more, as of a deadline that cannot be met."""
    options = [Option("", wishes.estimate_us)] if wishes.apart else wishes.options()
    return joined([branch.expression for branch in branches(wishes, options, grid)])


Placed = tuple[Expression, tuple[tuple[str, int], ...]]
"""An expression, and the set and the start quantum of each branch."""


def _placed(wishes: Wishes, options: list[Option], grid: TimeGrid) -> Placed | None:
    alternatives = branches(wishes, options, grid)

    expression = joined([branch.expression for branch in alternatives])
    return (
        None if expression is None else (expression, tuple([(branch.where, branch.start) for branch in alternatives]))
    )


def _is_at_floor(submitted_us: Time, options: list[Option], grid: TimeGrid) -> bool:
    """True if best effort is down to its floor wherever and whenever it runs."""
    shortest_us = min([length_us for _, length_us in options])
    return 1.0 - (grid.start_us(NOW) + shortest_us - submitted_us) / grid.horizon_us <= FLOOR


def joined(alternatives: list[Expression]) -> Expression | None:
    if not alternatives:
        return None
    return alternatives[0] if len(alternatives) == 1 else Max(tuple(alternatives))


Soft = Literal["soft", "hard", "none"]
Groups = dict[int, list[Task]]
"""Waiting tasks, by what they need."""


class RequestSetting(msgspec.Struct, frozen=True):
    """The parameters of requests.

    Args:
        blind: Whether the planner ignores what makes machines different (the ablation NH).
        timeless: How alsched weighs preferences, without a notion of when and how long; None: TetriSched.
        deadline_value: Budget of a job with a deadline, where best effort has 1.
        by_priority: Whether budgets are multiplied by 1 + the job's priority.
        insists: Whether preferences are hard constraints to TetriSched.
        grace_us, drop_penalty: See `Wishes`; of jobs with a deadline.
    """

    gangs: bool
    blind: bool
    timeless: Soft | None
    deadline_value: float
    by_priority: bool = False
    insists: bool = False
    grace_us: Time = 0
    drop_penalty: float = 0.0

    def budget(self, job: Job, deadline_us: Time) -> float:
        """The budget of a job that is to be done by `deadline_us`; NEVER: as best effort."""
        base_value = self.deadline_value if deadline_us != NEVER else 1.0
        return base_value * (1 + max(0, job.priority)) if self.by_priority else base_value


class WaitingJob(msgspec.Struct):
    """A job with tasks that wait.

    Args:
        planned: Set and absolute start that the last plan had for it; None: no plan had any.
        in_parts: Whether some tasks came later than the job, as those of a workflow do; further chunks do not count.
    """

    job: Job
    submitted_us: Time
    groups: Groups
    planned: tuple[str, Time] | None = None
    missed: bool = False
    lacking: int = 0
    in_parts: bool = False

    @property
    def is_rigid(self) -> bool:
        """True if it was submitted as a gang."""
        return self.job.gang is not None

    @property
    def tasks(self) -> int:
        return sum(map(len, self.groups.values()))


class JobRequest(msgspec.Struct, frozen=True):
    """The request of a job in a cycle.

    Args:
        expression: The expression, worth more than nothing on the empty cluster.
        branches: Set and start quantum of the alternatives of its outermost max, in order.
        needs: Per leaf of an alternative, the constraints of the tasks that it is for.
    """

    job: JobId
    expression: Expression
    branches: tuple[tuple[str, int], ...]
    needs: tuple[int, ...]
    missed: bool = False


class Requests:
    """Makes the requests of a cycle."""

    def __init__(self, machines: ClusterMachines, setting: RequestSetting) -> None:
        self._machines = machines
        self._setting = setting
        self._fits: dict[tuple[tuple[int, int], ...], bool] = {}
        self._floors: dict[tuple[int, float, tuple[tuple[str, int], ...]], Placed | None] = {}

    def make(self, waiting: WaitingJob, grid: TimeGrid) -> JobRequest:
        """The request of a job with tasks that wait and each fit some machine."""
        needs = tuple(waiting.groups)

        if not (self._is_gang(waiting) and self.is_possible(waiting)):
            return self._elastic(waiting, grid)

        if self._setting.timeless is not None:
            return self._timeless(waiting, self._setting.timeless)

        placed = self._alternatives(waiting, grid, waiting.job.deadline_us)
        # The deadline cannot be met any more.
        is_missed = not placed and waiting.job.deadline_us != NEVER
        if is_missed:
            placed = self._alternatives(waiting, grid, NEVER)

        assert placed is not None, "best effort is always worth something"
        return JobRequest(waiting.job.id, *placed, needs, is_missed)

    def _is_gang(self, waiting: WaitingJob) -> bool:
        return self._setting.gangs or waiting.is_rigid

    def _wishes(self, waiting: WaitingJob, deadline_us: Time) -> Wishes:
        return Wishes(
            waiting.tasks,
            waiting.job.estimate_us,
            deadline_us=deadline_us,
            submitted_us=waiting.submitted_us,
            value=self._setting.budget(waiting.job, deadline_us),
            grace_us=self._setting.grace_us,
            penalty=self._setting.drop_penalty,
        )

    def _alternatives(self, waiting: WaitingJob, grid: TimeGrid, deadline_us: Time) -> Placed | None:
        """The expression of a gang, with set and start of each branch; None where nothing is worth anything."""
        # A gang over different constraints is a min over them; what it prefers is left out.
        if len(waiting.groups) > 1:
            apart = tuple([(self._machines.named(mask), len(tasks)) for mask, tasks in waiting.groups.items()])
            options = [Option(APART, self._slowest_us(waiting))]
            return _placed(msgspec.structs.replace(self._wishes(waiting, deadline_us), apart=apart), options, grid)

        options = self._options(waiting, next(iter(waiting.groups)))

        # The worth no longer depends on when it came: one table serves all such jobs.
        if deadline_us == NEVER and _is_at_floor(waiting.submitted_us, options, grid):
            return self._at_floor(waiting, options, grid)
        return _placed(self._wishes(waiting, deadline_us), options, grid)

    def _at_floor(self, waiting: WaitingJob, options: list[Option], grid: TimeGrid) -> Placed | None:
        """Best effort that loses no more value: jobs of one size and duration share an expression."""
        wishes = self._wishes(waiting, NEVER)
        lengths = tuple([(set_name, grid.quanta(length_us)) for set_name, length_us in options])
        key = (wishes.k, wishes.value, lengths)
        if key not in self._floors:
            if len(self._floors) > FITS_MAX:
                self._floors.clear()
            self._floors[key] = _placed(wishes, options, grid)
        return self._floors[key]

    def _options(self, waiting: WaitingJob, mask: int) -> list[Option]:
        """The options of tasks with the same constraints; the last one is anywhere that they fit."""
        job = waiting.job
        setting = self._setting

        k = len(waiting.groups[mask])
        options = self._machines.options(k, mask, job.preference, job.estimate_us, blind=setting.blind)

        if setting.timeless == "none":
            return options[-1:]

        if setting.insists or setting.timeless == "hard":
            best_us = min(option.length_us for option in options)
            # The fastest sets alone; at least a microsecond, as estimates may be 0.
            return [option for option in options if option.length_us <= max(1, best_us)]

        return options

    def _slowest_us(self, waiting: WaitingJob) -> Time:
        """A gang over several sets takes as long as its slowest part may."""
        job = waiting.job
        return max(
            self._machines.options(1, mask, job.preference, job.estimate_us, blind=True)[-1].length_us
            for mask in waiting.groups
        )

    def _elastic(self, waiting: WaitingJob, grid: TimeGrid) -> JobRequest:
        """The request for any number of tasks, now; each has its share of the job's worth."""
        length_us = self._slowest_us(waiting)
        tasks = waiting.tasks
        deadline_us = waiting.job.deadline_us
        has_deadline = deadline_us != NEVER and self._setting.timeless is None
        value = self._setting.budget(waiting.job, NEVER)
        quanta = grid.quanta(length_us)

        worth = value_at(self._wishes(waiting, deadline_us), grid.now_us + length_us, 1) if has_deadline else value
        is_late = not worth
        value = worth or value

        sets = {mask: self._machines.named(mask) for mask in waiting.groups}

        parts = []
        for mask, group in waiting.groups.items():
            k = min(len(group), self._machines.sets[sets[mask]].bit_count())
            parts.append(LnCk((sets[mask],), k, value * k / tasks, 0, quanta))

        return JobRequest(waiting.job.id, Sum(tuple(parts)), ((ELASTIC, NOW),), tuple(waiting.groups), is_late)

    def _timeless(self, waiting: WaitingJob, soft: Soft) -> JobRequest:
        """alsched: a job is worth 1 on preferred machines, and less by as much as it is slower elsewhere."""
        needs = tuple(waiting.groups)
        if len(needs) > 1:
            leaf = [NCk((self._machines.named(mask),), len(tasks), 1.0) for mask, tasks in waiting.groups.items()]
            return JobRequest(waiting.job.id, Min(tuple(leaf)), ((APART, NOW),), needs)
        options = self._options(waiting, needs[0])
        best_us = max(1, min(option.length_us for option in options))
        worths = [1.0 if soft == "none" else min(1.0, best_us / max(1, option.length_us)) for option in options]
        branches = [NCk((option.where,), waiting.tasks, worth) for option, worth in zip(options, worths, strict=True)]
        expression = joined(list(branches))
        assert expression is not None, "there is always an option"
        return JobRequest(waiting.job.id, expression, tuple([(option.where, NOW) for option in options]), needs)

    def is_possible(self, waiting: WaitingJob) -> bool:
        """True if the waiting tasks, taken as a gang, fit on the empty cluster at once."""
        if not (self._is_gang(waiting) and waiting.groups):
            return True
        kind = tuple([(mask, len(tasks)) for mask, tasks in waiting.groups.items()])

        if len(kind) == 1:
            ((mask, k),) = kind
            return self._machines.fitting(mask).bit_count() >= k

        if kind not in self._fits:
            if len(self._fits) > FITS_MAX:
                self._fits.clear()
            self._fits[kind] = self._together(kind)
        return self._fits[kind]

    def _together(self, kind: tuple[tuple[int, int], ...]) -> bool:
        apart = tuple([(self._machines.named(mask), k) for mask, k in kind])
        wishes = Wishes(0, 0, apart=apart)
        (branch,) = branches(wishes, [Option(APART, 0)], TimeGrid(0, 1, 0, 1))
        parts = Parts((branch.expression,), self._machines.sets, MachineSupply(self._machines.every))
        return bool(Greedy(parts).best(0, branch.expression))


ELASTIC = "elastic"
APART = "apart"
"""Names of alternatives that are of no single set."""
FITS_MAX = 4096
