"""The jobs of a scheduler of shared state, or of a framework of offers: a queue, attempts and retries.

The front, which all users share, separates batch jobs from service jobs and sends each to a scheduler of its type. A
scheduler may have a limit of its own, the only fairness between schedulers (section 3.4).

One job is tried at a time (or, on an offer, one after the other). A job whose tasks find no room, or are refused, comes
back to the tail of the queue after a pause, and is given up after too many attempts, where there is a limit. A job may
use more workers than its user asked for (section 6, the MapReduce scheduler): its tasks are the activities of a
MapReduce job, and its width is the number of workers that it was configured with.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final, Literal, Protocol

import msgspec

from volery.architectures.omega.messages import Ended, Withdraw
from volery.architectures.omega.placement import ANYWHERE, Kind, Layout, PlacementProblem, place, stretch
from volery.core.component import Handler, sent_to
from volery.core.errors import InputError
from volery.core.events import GANG_TASKS_REFUSED, Cancel, Counted, Measured, MoreTasks, Submit, Transaction
from volery.core.model import SECOND, Address, Amounts, Gang, Job, JobId, Task, TaskId, Time
from volery.core.port import Port
from volery.core.resources import SLOT, Packing
from volery.roles.submission import ANSWERS, Forwarder, JobLedger, comes_in_parts

Workload = Literal["batch", "service", "fill"]
WORKLOADS: Final[tuple[Workload, ...]] = ("batch", "service", "fill")
"""Types of jobs; those of "fill" fill the cell when a run begins, take no decision time and are not measured."""


class Rule(msgspec.Struct, frozen=True):
    """The rule that makes some jobs service jobs; the others are batch jobs.

    Args:
        beyond_us: Limit of estimates beyond which jobs are service jobs; None: estimates do not count.
        fill: User whose jobs fill the cell; "": no user.
    """

    users: tuple[str, ...] = ()
    beyond_us: Time | None = None
    fill: str = ""

    def workload(self, job: Job) -> Workload:
        if self.fill and job.user == self.fill:
            return "fill"

        is_long = self.beyond_us is not None and job.estimate_us > self.beyond_us
        return "service" if is_long or job.user in self.users else "batch"


def parse_rule(text: str, place: str) -> Rule:
    """Read `none`, `user:NAME+NAME` or `estimate:SECONDS`.

    Raises:
        InputError: at `place`, when it is none of these.
    """
    kind, _, value = text.partition(":")

    if text == "none":
        return Rule()

    if kind == "user" and all(value.split("+")):
        return Rule(users=tuple(value.split("+")))

    if kind == "estimate":
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if 0 <= seconds < math.inf:
            return Rule(beyond_us=round(seconds * SECOND))
    raise InputError(place, f"{text!r} is neither none, user:NAME+NAME nor estimate:SECONDS")


class Front(Forwarder):
    """Sends every job to a scheduler of its workload type, chosen by the job's id (section 4.3).

    It is the mapping of jobs to schedulers that all users share.
    """

    def __init__(self, rule: Rule, schedulers: Mapping[Workload, Sequence[Address]]) -> None:
        super().__init__()
        self._rule = rule
        self._schedulers = schedulers

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Send a job to a scheduler by its type and number."""
        job = message.job
        # A job that has ended was submitted again, as its answer was lost: it is answered here.
        if not self._answer_done(job.id):
            schedulers = self._schedulers[self._rule.workload(job)]
            scheduler = self._scheduler_of[job.id] = schedulers[job.id % len(schedulers)]
            self._port.send(scheduler, message)

    receives = {**Forwarder.receives, Submit: on_submit}  # noqa: RUF012 - the base class reads the table once
    sends = ANSWERS | sent_to("scheduler", Submit, MoreTasks, Cancel) | sent_to("framework", Submit, MoreTasks, Cancel)


class LocalLimit:
    """Limits what the tasks of one scheduler hold of the cell: a share of each resource (section 3.4).

    There is no central fairness: every scheduler counts what its own tasks hold, and claims no more.
    """

    def __init__(self, share: float, capacity: Amounts) -> None:
        self._limits = tuple([int(share * amount) for amount in capacity])
        self._held_amounts = [0] * len(capacity)
        self._tasks: dict[TaskId, Amounts] = {}

    def room(self, tasks: Sequence[Task]) -> int:
        """The number of first tasks that may be claimed beside what is held."""
        return _fitting(
            tasks, [limit - held_amount for limit, held_amount in zip(self._limits, self._held_amounts, strict=True)]
        )

    def allows(self, tasks: Sequence[Task]) -> bool:
        """True if all these tasks may be held at once, with nothing else."""
        return _fitting(tasks, list(self._limits)) == len(tasks)

    def take(self, tasks: Iterable[Task]) -> None:
        """Count tasks that were placed."""
        for task in tasks:
            amounts = self._tasks[task.id] = task.request or SLOT
            self._held_amounts = [
                held_amount + amount for held_amount, amount in zip(self._held_amounts, amounts, strict=True)
            ]

    def give(self, task: TaskId) -> None:
        """Count a task no longer."""
        amounts = self._tasks.pop(task)
        self._held_amounts = [
            held_amount - amount for held_amount, amount in zip(self._held_amounts, amounts, strict=True)
        ]

    def check(self, running: int) -> None:
        assert len(self._tasks) == running, "tasks that do not run count against the limit, or some that run do not"
        assert all(held_amount <= limit for held_amount, limit in zip(self._held_amounts, self._limits, strict=True)), (
            "beyond the limit"
        )


def _fitting(tasks: Sequence[Task], room: list[int]) -> int:
    for count, task in enumerate(tasks):
        room = [amount - task_amount for amount, task_amount in zip(room, task.request or SLOT, strict=True)]
        if min(room) < 0:
            return count
    return len(tasks)


Policy = Literal["none", "max-parallelism", "global-cap", "relative-size"]
NO_END: Final = 1 << 40
"""Number of workers that is larger than any job's number of tasks."""


class Elasticity(msgspec.Struct, frozen=True):
    """Limits the workers that a job uses at once.

    Args:
        width: Number of workers that users ask for; 0: as many as the job has tasks.
        policy: Rule for further workers. none: there are none; max-parallelism: as many as the job has tasks;
            global-cap: likewise, until the share of the cell that is in use reaches `cap`; relative-size: up to `times`
            as many as were asked for.
        cap: Share of the resource that is used most (0 to 1).
    """

    width: int
    policy: Policy
    cap: float
    times: int

    def most(self, running: int) -> int:
        """The further workers that a job with so many running tasks may use in any cell."""
        if not self.width or self.policy in ("max-parallelism", "global-cap"):
            return NO_END
        return self.width * (self.times if self.policy == "relative-size" else 1) - running

    def budget(self, running: int, request: Amounts, free: Sequence[int], capacity: Amounts, packing: Packing) -> int:
        """The further workers in a cell with this much free per machine, packed; each task asks for `request`."""
        if not self.width or self.policy != "global-cap":
            return self.most(running)

        room = NO_END

        for resource, (amount, total) in enumerate(zip(request or SLOT, capacity, strict=True)):
            if amount:
                idle = packing.idle(resource, free)
                room = min(room, max(0, int(self.cap * total) - (total - idle)) // amount)

        # The workers that the user asked for are the job's in any case.
        return max(self.width - running, room)


class DecisionTimes(msgspec.Struct, frozen=True):
    """The decision time of a job: t_job + t_task * n for n tasks that are left (section 4)."""

    job_us: dict[Workload, Time]
    task_us: dict[Workload, Time]

    def decision_us(self, workload: Workload, tasks: int) -> Time:
        return self.job_us[workload] + self.task_us[workload] * tasks


Ring = Callable[[int], Sequence[int]]
SEARCHES: Final = 32
"""Number of draws after which a gang that the empty cell did not hold in any of them counts as impossible."""


class PlacementSetting(msgspec.Struct, frozen=True):
    """The parameters of all schedulers; with `gang` every job is a gang, with `heeds_gangs` one submitted as such."""

    rule: Rule
    deciding: DecisionTimes
    gang: bool
    heeds_gangs: bool
    pickiness: float
    retry_us: Time
    attempts_max: int
    fruitless_max: int
    elasticity: Elasticity


class PendingJob(msgspec.Struct, eq=False):
    """A job with tasks that are not placed.

    Attributes:
        shape: Shape of a job that was submitted as a gang; None: its tasks may start apart.
        kinds: Kinds of all its tasks that have come.
        claimed: Tasks whose verdict is to come.
        held: Tasks of a gang that wait for the others, and the machines that are reserved for them.
        attempts: Number of attempts in which some task was not placed.
        in_parts: Whether some tasks came later than the job, as those of a workflow do; further chunks do not count.
        refused: Whether it is a gang that the empty cell cannot hold; its claimed tasks have a verdict to come.
        queued: Whether it is in the queue, or pauses before it comes there, or is being tried.
    """

    id: JobId
    workload: Workload
    priority: int
    task_count: int
    gang: bool
    shape: Gang | None = None
    lacking: int = 0
    kinds: dict[Kind, None] = {}
    in_parts: bool = False
    tasks: list[Task] = []
    claimed: list[Task] = []
    held: dict[Task, int] = {}
    running: set[TaskId] = set()
    attempts: int = 0
    placed: bool = False
    refused: bool = False
    queued: bool = False

    def is_complete(self) -> bool:
        """True if all tasks of the job have come together, and none was placed."""
        return not self.in_parts and len(self.tasks) + len(self.held) + self.lacking == self.task_count


class JobOwner(Protocol):
    """The component that decides on the jobs of a `JobQueue`, and takes its events from it: `JOB_EVENTS`."""

    jobs: JobQueue

    def queued(self, now: Time) -> None:
        """Note that a job has joined the queue."""

    def release_held(self, work: PendingJob) -> None:
        """Give up what is kept for a gang."""

    def take_back(self, work: PendingJob) -> int:
        """Cancel placements that were not sent; returns their number."""
        ...


class JobQueue:
    """Queues jobs, first come first served, until all their tasks have ended.

    Args:
        limit: Limit of what their tasks hold together; None: the cell.
    """

    def __init__(
        self, layout: Layout, setting: PlacementSetting, cell: Address, stream: Random, limit: LocalLimit | None = None
    ) -> None:
        self._limit = limit
        self._limited: dict[JobId, None] = {}
        self.layout = layout
        self.setting = setting
        self.cell = cell
        self.stream = stream
        self.queue: deque[PendingJob] = deque()
        self.open: dict[JobId, PendingJob] = {}
        self._unplaced = 0

    def bind(self, owner: JobOwner, port: Port) -> None:
        """Serve a component, by its port."""
        self._owner = owner
        self._port = port
        self.ledger = JobLedger(port.send)

    def submit(self, message: Submit, source: Address, now: Time) -> None:
        """Queue a job; tasks that fit no machine are reported."""
        self._port.observe(Measured("queued_tasks", self._unplaced))
        job = message.job

        tasks = self.ledger.admit(message, source, self._unplaced)
        if tasks:
            workload = self.setting.rule.workload(job)
            shape = job.gang if self.setting.heeds_gangs else None
            is_gang = self.setting.gang or shape is not None
            work = PendingJob(job.id, workload, job.priority, job.task_count, is_gang, shape)
            self.open[job.id] = work
            self._add(work, tasks, now)

    def more(self, message: MoreTasks, now: Time) -> None:
        """Queue a further chunk with its job."""
        tasks = self.ledger.more(message)
        if tasks:
            work = self.open[message.job]
            work.in_parts |= comes_in_parts(message)
            self._add(work, tasks, now)

    def _add(self, work: PendingJob, tasks: Iterable[Task], now: Time) -> None:
        fits = self.layout.fits_somewhere
        limit = self._limit

        for task in tasks:
            if fits(task) and (limit is None or limit.allows((task,))):
                work.tasks.append(task)
                work.kinds[task.constraints, task.request] = None
                self._unplaced += 1
            else:
                work.lacking += 1
                self.ledger.unsatisfiable(work.id)

        # A gang larger than its scheduler's limit would wait for ever, as what no machine can run.
        too_large = limit is not None and work.gang and not limit.allows(work.tasks)
        if work.gang and (work.lacking or too_large) and work.is_complete():
            self._refuse(work)

        self._maybe_forget(work)
        self.maybe_queue(work, now)

    def maybe_queue(self, work: PendingJob, now: Time) -> None:
        if not work.queued and self._allowed(work):
            work.queued = True
            self.queue.append(work)
            self._owner.queued(now)

    def _allowed(self, work: PendingJob) -> bool:
        """True if further tasks of the job may be placed, given room."""
        has_come = work.shape is None or work.is_complete()
        return bool(work.tasks) and has_come and self.setting.elasticity.most(len(work.running)) > 0

    def count(self, work: PendingJob, free: Sequence[int]) -> int:
        """The number of tasks of the job that may be placed on a cell with this much free; of a gang, all."""
        limit = self._limit
        if limit is not None and work.gang and not limit.allows(work.tasks):
            # A part of a job: a gang that is complete and larger than the limit was refused.
            work.gang = False

        task_count = self._within_budget(work, free)
        if limit is None or not task_count:
            return task_count
        count = self._allowed_of(limit, work, task_count)

        # The job comes back when one of the scheduler's tasks has ended.
        if not count:
            self._limited[work.id] = None
        return count

    def _allowed_of(self, limit: LocalLimit, work: PendingJob, task_count: int) -> int:
        """The number of these first tasks that the limit leaves room for; of a gang, all or none."""
        room = limit.room(work.tasks[:task_count])
        return 0 if work.gang and room < task_count else room

    def _within_budget(self, work: PendingJob, free: Sequence[int]) -> int:
        if not work.tasks:
            return 0

        if work.gang:
            return len(work.tasks)

        request = work.tasks[0].request
        elasticity = self.setting.elasticity
        layout = self.layout

        budget = elasticity.budget(len(work.running), request, free, layout.capacity, layout.packing)
        return max(0, min(len(work.tasks), budget))

    def retry(self, job: JobId, now: Time) -> None:
        """Put a job back at the tail of the queue after its pause."""
        work = self.open.get(job)
        if work is not None and work.queued:
            self.queue.append(work)
            self._owner.queued(now)

    def placing(
        self, first_tasks: Sequence[Task], free: Sequence[int], ring: Ring, *, whole: Gang | None
    ) -> PlacementProblem:
        """The problem of placing tasks.

        Args:
            ring, whole: Function from constraints to the machines that may be drawn; see `PlacementProblem`.
        """
        tasks = tuple(first_tasks)
        pools = {needs: ring(needs) for needs in dict.fromkeys([task.constraints for task in tasks])}

        # The same stretch of the random order for all constraint sets: the job's machines are one choice.
        if self.setting.pickiness:
            start = self.stream.random()
            pools = {needs: stretch(pool, self.setting.pickiness, start) for needs, pool in pools.items()}

        racks = self.layout.racks if whole is not None and whole.rack else ()
        seed = self.stream.getrandbits(64)
        return PlacementProblem(tasks, free, pools, self.layout.packing, seed, whole, racks=racks)

    def tried(
        self,
        work: PendingJob,
        now: Time,
        *,
        began_us: Time,
        decision_us: Time,
        placed_tasks: list[Task],
        refused: int,
        is_whole: bool,
    ) -> None:
        """End an attempt: placed tasks run, and the others are tried again, or given up."""
        # An elastic job goes on for as many rounds as it has tasks: a round without a miss is no attempt.
        work.attempts += not is_whole
        self._note_placed(work, placed_tasks)

        job = work.id
        unplaced_count = len(work.tasks) + len(work.held)

        is_cancelled = job in self.ledger.cancelled
        abandoned_count = unplaced_count if self._gives_up(work) and not is_cancelled else 0
        work.queued = self._allowed(work) and not abandoned_count and not is_cancelled

        if work.queued and is_whole:
            # All that was tried runs: the others have come, or may run, since.
            self.queue.append(work)
        elif work.queued and (work.refused or (not placed_tasks and not refused and self._is_impossible(work))):
            work.queued = False
            self._refuse(work)
            unplaced_count = 0
        elif work.queued:
            self._port.set_timer(job, now + self.setting.retry_us)

        workload = work.workload
        if workload != "fill":
            counts = (len(placed_tasks), refused, unplaced_count, abandoned_count)
            self._port.observe(Transaction(self._port.address, workload, job, began_us, decision_us, *counts, now))

        if abandoned_count:
            self._give_up(work)
        elif is_cancelled:
            self._drop(work)
            # Placed tasks of a cancelled job run already: the cell has to end them.
            if placed_tasks:
                self._port.send(self.cell, Withdraw(tuple([task.id for task in placed_tasks])))

        self._maybe_forget(work)

        if self._limit is not None:
            self._next_limited(self._limit, now)

    def _note_placed(self, work: PendingJob, tasks: list[Task]) -> None:
        """Take account of tasks that run from now on."""
        self._unplaced -= len(tasks)
        if self._limit is not None:
            self._limit.take(tasks)

        if tasks:
            work.placed = True
            placed_ids = {task.id for task in tasks}
            work.running |= placed_ids
            work.tasks = [task for task in work.tasks if task.id not in placed_ids]

    def _gives_up(self, work: PendingJob) -> bool:
        setting = self.setting
        attempts_max = setting.attempts_max
        if setting.fruitless_max and not work.placed:
            attempts_max = min(attempts_max or setting.fruitless_max, setting.fruitless_max)
        return bool(attempts_max and work.tasks and work.attempts > attempts_max)

    def _is_impossible(self, work: PendingJob) -> bool:
        """True if a gang that found no room never finds any; a workflow is placed task by task then."""
        if not work.gang or self._ever_whole(work):
            return False

        # A workflow's later tasks may fit where earlier ones have ended: it is placed task by task then.
        work.gang = work.is_complete()
        return work.gang

    def _ever_whole(self, work: PendingJob) -> bool:
        """True if the empty cell can hold the gang, with the machines that are reserved for it.

        The first search is the one that attempts make. Where it fails, tasks with the fewest suitable machines come
        first, in `SEARCHES` draws; a gang that fits so only is tried in that order from then on.
        """
        # The gang has to fit as a whole: the tasks that it holds machines for are searched for again.
        gang_tasks = [*work.held, *work.tasks]
        if self._fits_empty(gang_tasks, shape := work.shape or ANYWHERE):
            return True

        gang_tasks = self.scarcest_first(gang_tasks)
        if any(self._fits_empty(gang_tasks, shape) for _ in range(SEARCHES)):
            work.tasks = [task for task in gang_tasks if task not in work.held]
            return True

        return False

    def scarcest_first(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks in order of the number of machines that suit them, larger requests first."""
        suitable = self.layout.rings.suitable
        return sorted(tasks, key=lambda task: (len(suitable(task.constraints)), -sum(task.request)))

    def _fits_empty(self, tasks: list[Task], shape: Gang) -> bool:
        return bool(place(self.placing(tasks, self.layout.whole, self.layout.rings.suitable, whole=shape)).places)

    def _refuse(self, work: PendingJob) -> None:
        """Report the waiting tasks of a gang that the empty cell cannot hold as tasks that fit no machine."""
        work.refused = True
        if count := len(work.tasks) + len(work.held) - len(work.claimed):
            self._port.observe(Counted(GANG_TASKS_REFUSED, count))

        self._give_up(work)

    def _give_up(self, work: PendingJob) -> None:
        """Report the tasks of a job, except claimed ones, as tasks that fit no machine."""
        self._owner.release_held(work)
        count = self._forget_unclaimed(work)

        if not self.ledger.is_open(work.id):
            return

        self.ledger.refuse_rest(work.id)
        for _ in range(count):
            self.ledger.unsatisfiable(work.id)

    def _drop(self, work: PendingJob) -> None:
        """Give up the tasks of a cancelled job that are neither placed nor claimed."""
        if count := self._forget_unclaimed(work):
            self.ledger.finished(work.id, count)

    def _forget_unclaimed(self, work: PendingJob) -> int:
        count = len(work.tasks) - len(work.claimed)
        self._unplaced -= count
        work.tasks = list(work.claimed)
        return count

    def _maybe_forget(self, work: PendingJob) -> None:
        if not self.ledger.is_open(work.id):
            self.open.pop(work.id, None)

    def ended(self, message: Ended, now: Time) -> None:
        """Count the task; its job may use its place for another."""
        work = self.open.get(message.job)
        if work is None or message.task not in work.running:
            return
        work.running.discard(message.task)
        self.ledger.finished(work.id)

        self._maybe_forget(work)

        if work.tasks:
            self.maybe_queue(work, now)

        if self._limit is not None:
            self._below_limit(self._limit, message.task, now)

    def _below_limit(self, limit: LocalLimit, task: TaskId, now: Time) -> None:
        """Count a task no longer, and queue the next job that the limit kept out."""
        limit.give(task)
        self._next_limited(limit, now)

    def _next_limited(self, limit: LocalLimit, now: Time) -> None:
        """Queue the first job that the limit kept out and has room for; what it leaves is for the one after it."""
        # Only one job is queued at a time: what it leaves of the room is for the next one, after its attempt.
        for job in list(self._limited):
            work = self.open.get(job)
            if work is not None and work.tasks:
                if not self._allowed_of(limit, work, len(work.tasks) if work.gang else 1):
                    continue
                del self._limited[job]
                self.maybe_queue(work, now)
                return
            del self._limited[job]

    def cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the tasks that are not placed, and have the others killed; the cell reports the end."""
        if not self.ledger.cancel(message, source):
            return
        work = self.open[message.job]

        self._owner.release_held(work)
        withdrawn_count = self._owner.take_back(work)

        if work.running:
            self._port.send(self.cell, Withdraw(tuple(sorted(work.running))))

        if withdrawn_count:
            self.ledger.finished(work.id, withdrawn_count)

        self._drop(work)
        self._maybe_forget(work)

    def lost(self, task: Task, now: Time) -> None:
        """Queue a preempted task again, unless its job was cancelled."""
        work = self.open[task.job]
        work.running.discard(task.id)

        if self._limit is not None:
            self._below_limit(self._limit, task.id, now)

        # A cancelled job's task that was preempted has ended for good.
        if work.id in self.ledger.cancelled:
            self.ledger.finished(work.id)
            self._maybe_forget(work)
            return

        work.tasks.append(task)
        self._unplaced += 1
        self.maybe_queue(work, now)

    def check(self) -> None:
        assert self._unplaced == sum(len(work.tasks) + len(work.held) for work in self.open.values()), "miscounted"
        for work in self.open.values():
            is_idle = work.tasks and not work.running
            assert work.queued or work.id in self._limited or not is_idle, f"job {work.id} waits for nothing"

        if self._limit is not None:
            self._limit.check(sum(len(work.running) for work in self.open.values()))


def _submit(owner: JobOwner, message: Submit, source: Address, now: Time) -> None:
    owner.jobs.submit(message, source, now)


def _more(owner: JobOwner, message: MoreTasks, source: Address, now: Time) -> None:
    owner.jobs.more(message, now)


def _cancel(owner: JobOwner, message: Cancel, source: Address, now: Time) -> None:
    owner.jobs.cancel(message, source, now)


def _ended(owner: JobOwner, message: Ended, source: Address, now: Time) -> None:
    owner.jobs.ended(message, now)


JOB_EVENTS: Final[Mapping[type, Handler]] = {Submit: _submit, MoreTasks: _more, Cancel: _cancel, Ended: _ended}
"""For the table of a component that keeps its `JobQueue` in the attribute `jobs`."""
