"""The scheduler: jobs' tasks become ready, tokens are handed out, and jobs with deadlines are controlled.

A token is the right to run a task. Some are guaranteed to jobs; what is idle beyond that is spare.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from volery.architectures.jockey.control import ControlledGang, ControlledJob, ControlSetting, arbitrated
from volery.architectures.jockey.profiles import JobModel
from volery.architectures.jockey.rehearsal import rehearse
from volery.core.component import Component, sent_to
from volery.core.events import GANG_TASKS_REFUSED, Allotted, Cancel, Computed, Counted, MoreTasks, Submit, TimerFired
from volery.core.model import NEVER, Address, Cluster, Gang, JobId, Task, TaskId, Time
from volery.core.port import Problem
from volery.policies.gangs import UnitGangs
from volery.policies.match import Anchors, Matches, fewest_constraints_first
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger, Workflow

Key = tuple[bool, int, int]


class TokenHolder(msgspec.Struct, eq=False):
    """A job as tokens see it.

    Attributes:
        guaranteed: Number of tokens that it has before anybody is given a spare one.
        key: Order among those who wait; None: it does not.
    """

    job: JobId
    place: int
    capped: bool
    guaranteed: int = 0
    running: int = 0
    waiting: int = 0
    key: Key | None = None
    lines: dict[int, deque[tuple[int, Task]]] = {}

    def push(self, number: int, task: Task) -> None:
        """A task is ready; they are numbered in the order in which they have become so."""
        self.lines.setdefault(task.constraints, deque()).append((number, task))
        self.waiting += 1

    def gathered(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """The tasks that are to become ready now that these have come."""
        return tasks

    def lost(self, tasks: Sequence[Task], matches: Matches) -> set[TaskId]:
        """Those of the tasks that no machine can run."""
        return {task.id for task in tasks if not matches[task.constraints]}

    def starts(self, idle: int, matches: Matches) -> Sequence[tuple[Task, int]]:
        """Take the first ready task that some idle unit satisfies, with the first such unit; nothing: there is none."""
        first_numbers = [(line[0][0], mask) for mask, line in self.lines.items() if matches[mask] & idle]
        if not first_numbers:
            return ()

        _, mask = min(first_numbers)
        _, task = self.lines[mask].popleft()
        if not self.lines[mask]:
            del self.lines[mask]
        self.waiting -= 1

        units = matches[mask] & idle
        return ((task, (units & -units).bit_length() - 1),)

    def kept_units(self, idle: int) -> int:
        """The idle units that nobody whose turn is later may have, as nothing of this job can start."""
        return 0

    def drop(self) -> int:
        """Forget all ready tasks; returns how many there were."""
        ready_count = self.waiting
        self.waiting = 0
        self.lines = {}

        return ready_count


class GangHolder(TokenHolder, kw_only=True):
    """A job whose tasks run only together: they start at one turn, and idle units that suit them are kept till then.

    Attributes:
        gang: Shape of the gang.
        size: Number of its tasks.
        units: Placement on the units of the cluster.
        members: Tasks that have come and not started.
    """

    gang: Gang
    size: int
    units: UnitGangs
    members: list[Task] = []

    def push(self, number: int, task: Task) -> None:
        self.waiting += 1

    def gathered(self, tasks: Sequence[Task]) -> Sequence[Task]:
        self.members += tasks
        return self.members if len(self.members) == self.size else ()

    def lost(self, tasks: Sequence[Task], matches: Matches) -> set[TaskId]:
        return set() if self._choose(matches.every) else {task.id for task in tasks}

    def starts(self, idle: int, matches: Matches) -> Sequence[tuple[Task, int]]:
        started = list(zip(self.members, self._choose(idle), strict=False))
        if started:
            self.drop()
        return started

    def kept_units(self, idle: int) -> int:
        return idle & self.units.suitable([task.constraints for task in self.members])

    def _choose(self, units: int) -> list[int]:
        return self.units.choose([task.constraints for task in self.members], self.gang, units)

    def drop(self) -> int:
        count = len(self.members)
        self.waiting, self.members = 0, []
        return count


class Tokens:
    """Keeps the tokens of jobs and the slots of their tasks; a slot is a token.

    Jobs that run less than is guaranteed to them come first, then those that run least, by arrival where they are
    equal. A job of which no idle machine satisfies any ready task is passed over, and asked again whenever tokens are
    handed out. A gang that does not find enough idle machines is passed over, too, and later turns get none of those
    that suit it: it starts when what runs there now has ended at the latest, but for jobs whose turns are earlier.

    Attributes:
        units: Placement of gangs.
    """

    def __init__(self, cluster: Cluster) -> None:
        order = fewest_constraints_first(range(len(cluster.slots)), cluster.constraints)
        self._machine_of = [machine for machine in order for _ in range(cluster.slots[machine])]
        constraints = [cluster.constraints[machine] for machine in self._machine_of]
        self._matches = Matches(constraints, Anchors(cluster.constraints))
        self.units = UnitGangs(self._matches, self._machine_of)
        self._idle = self._matches.every
        self._running: dict[TaskId, tuple[Task, TokenHolder, int, Time]] = {}
        self._turns: list[tuple[Key, TokenHolder]] = []
        self._ready_count = 0

    @property
    def running(self) -> int:
        """The number of running tasks."""
        return len(self._running)

    def lost(self, holder: TokenHolder, tasks: Sequence[Task]) -> set[TaskId]:
        """Those of a job's tasks that no machine can run; of a gang all, where the empty cluster does not hold it."""
        return holder.lost(tasks, self._matches)

    def guarantee(self, holder: TokenHolder, tokens: int) -> None:
        holder.guaranteed = tokens
        self._queue(holder)

    def ready(self, holder: TokenHolder, tasks: list[Task]) -> None:
        for task in tasks:
            self._ready_count += 1
            holder.push(self._ready_count, task)
        self._queue(holder)

    def _queue(self, holder: TokenHolder) -> None:
        is_below = holder.running < holder.guaranteed
        key = (
            (not is_below, holder.running, holder.place) if holder.waiting and (is_below or not holder.capped) else None
        )

        # Keys are compared by identity when turns are popped: a changed one leaves a stale turn in the heap.
        if key != holder.key:
            holder.key = key
            if key is not None:
                heapq.heappush(self._turns, (key, holder))

    def handed_out(self, now: Time) -> Iterator[tuple[Task, int]]:
        """Tasks that start now, each with the number of its machine."""
        passed_over = []
        kept_units = 0
        while self._idle and self._turns:
            key, holder = heapq.heappop(self._turns)
            # The holder has another key since; its turn by that one is in the heap as well.
            if holder.key is not key:
                continue

            starts = holder.starts(self._idle, self._matches)
            # None of its tasks fits an idle machine: it keeps its turn for the next time.
            if not starts:
                passed_over.append((key, holder))
                kept_units |= (kept_now := holder.kept_units(self._idle))
                self._idle ^= kept_now
                continue

            for task, unit in starts:
                self._idle ^= 1 << unit
                self._running[task.id] = (task, holder, unit, now)
            holder.running += len(starts)
            self._queue(holder)
            for task, unit in starts:
                yield task, self._machine_of[unit]

        self._idle |= kept_units
        for turn in passed_over:
            heapq.heappush(self._turns, turn)

    def end(self, task: TaskId) -> tuple[Task, TokenHolder, Time] | None:
        """A task has ended: it, whose it is, and when it was sent to its machine; None: that was known before."""
        running = self._running.pop(task, None)
        if running is None:
            return None
        ended_task, holder, unit, since_us = running

        self._idle |= 1 << unit
        holder.running -= 1
        self._queue(holder)
        return ended_task, holder, since_us

    def drop(self, holder: TokenHolder) -> int:
        """Forget the ready tasks of a job; returns how many there were."""
        ready_count = holder.drop()
        self._queue(holder)

        return ready_count

    def machines_of(self, holder: TokenHolder) -> list[tuple[TaskId, int]]:
        """Running tasks of a job, with their machines."""
        return [(task.id, self._machine_of[unit]) for task, owner, unit, _ in self._running.values() if owner is holder]

    def check(self) -> None:
        busy_units = sum([1 << unit for _, _, unit, _ in self._running.values()])
        assert busy_units.bit_count() == len(self._running), "two tasks run on one unit"
        assert not busy_units & self._idle, "an idle unit runs a task"
        assert busy_units | self._idle == self._matches.every, "a unit is lost"


PERIOD = "period"
REHEARSED = "rehearsed"


class Scheduler(Component):
    """Cosmos and the job managers in one: it launches tasks, and guarantees tokens to jobs."""

    def __init__(self, cluster: Cluster, setting: ControlSetting, models: Sequence[JobModel], *, spare: bool) -> None:
        self._setting = setting
        self._models = {model.job: model for model in models}
        self._tokens = Tokens(cluster)
        self._spare = spare
        self._slots = self._free = cluster.slot_count
        self._holders: dict[JobId, TokenHolder] = {}
        self._graphs: dict[JobId, Workflow] = {}
        self._controlled: dict[JobId, ControlledJob] = {}
        self._ticking = False
        self._arrivals = self._launches = 0

    def start(self, now: Time) -> None:
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        job = message.job
        is_known = self._jobs.is_open(job.id)
        tasks = self._jobs.admit(message, source, 0)

        # A repeated submission, or a job all of whose tasks fit no machine.
        if is_known or not self._jobs.is_open(job.id):
            return

        self._arrivals += 1
        has_deadline = job.deadline_us != NEVER
        capped = has_deadline and not self._spare
        self._holders[job.id] = (
            TokenHolder(job.id, self._arrivals, capped=capped)
            if job.gang is None
            else GangHolder(
                job.id, self._arrivals, capped=capped, gang=job.gang, size=job.task_count, units=self._tokens.units
            )
        )
        self._graphs[job.id] = Workflow()

        if has_deadline:
            control = ControlledJob if job.gang is None else ControlledGang
            self._controlled[job.id] = control(job, now, self._setting)

        self._take(job.id, tasks, job.parents, now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        tasks = self._jobs.more(message)
        if tasks:
            self._take(message.job, tasks, message.parents, now)

    def _take(self, job: JobId, tasks: Sequence[Task], parents: Sequence[tuple[TaskId, ...]], now: Time) -> None:
        holder = self._holders[job]
        tasks = holder.gathered(tasks)

        # Tasks that fit no machine never finish, nor does what waits for them.
        graph = self._graphs[job]
        lost = self._tokens.lost(holder, tasks)
        if lost and isinstance(holder, GangHolder):
            holder.drop()
            self._port.observe(Counted(GANG_TASKS_REFUSED, len(lost)))
        ready = graph.add(tasks, parents, lost)

        self._tokens.ready(holder, ready)

        controlled = self._controlled.get(job)
        if controlled is not None and controlled.add(tasks, parents):
            controlled.know(self._models.get(controlled.user))
            controlled.begin(now)
            # The other jobs are asked when the period ends.
            self._guarantee(job, controlled.within(self._free), now)
            self._tick(now)

        for task in tasks:
            if task.id in graph.never:
                self._jobs.unsatisfiable(job)

        self._close_if_done(job, now)
        self._hand_out(now)

    def _guarantee(self, job: JobId, tokens: int, now: Time) -> None:
        holder = self._holders[job]
        if tokens != holder.guaranteed:
            self._free += holder.guaranteed - tokens
            self._tokens.guarantee(holder, tokens)
            self._port.observe(Allotted(now, job, tokens))

    def _hand_out(self, now: Time) -> None:
        for task, machine in self._tokens.handed_out(now):
            self._launches += 1
            self._port.send(f"node/{machine}", Launch(self._launches, task))

    def _tick(self, now: Time) -> None:
        if not self._ticking:
            self._ticking = True
            self._port.set_timer(PERIOD, now + self._setting.period_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Divide the tokens among the jobs with deadlines, once a period."""
        self._ticking = False

        # A job of which a chunk is missing has no stages yet.
        jobs = [controlled for controlled in self._controlled.values() if controlled.known]
        for controlled in jobs:
            controlled.control(now)
            if controlled.deviates():
                self._resimulate(controlled)

        fair_share = max(1, self._slots // max(1, len(self._holders)))
        for controlled in jobs:
            if controlled.shares:
                controlled.wanted = fair_share

        for controlled, tokens in zip(jobs, self._shared(jobs, now), strict=True):
            self._guarantee(controlled.job, tokens, now)

        self._hand_out(now)

        if self._controlled:
            self._tick(now)

    def _shared(self, jobs: Sequence[ControlledJob], now: Time) -> list[int]:
        """The tokens of each: as many as it wants if there are enough, else by marginal utility."""
        if sum([controlled.wanted for controlled in jobs]) <= self._slots:
            return [controlled.wanted for controlled in jobs]
        self._port.observe(Counted("periods_arbitrated"))
        return arbitrated([controlled.claim(now) for controlled in jobs], self._slots)

    def _resimulate(self, controlled: ControlledJob) -> None:
        """A job that is not as its model: simulate it as it is, or let it share."""
        rehearsal = controlled.rehearsal()
        if rehearsal is None:
            self._port.observe(Counted("jobs_sharing"))
            return

        self._port.observe(Counted("jobs_simulated_anew"))
        self._port.compute((REHEARSED, controlled.job), Problem(rehearse, rehearsal, self._setting.rehearsal_us))

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """The table of a job as it is; it counts from the next period on."""
        assert isinstance(event.key, tuple)
        controlled = self._controlled.get(int(event.key[1]))
        if controlled is not None:
            controlled.rehearsed(event.answer)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """A machine is free again, and tasks that have waited for this one may start."""
        end = self._tokens.end(message.task)
        if end is None:
            return
        task, holder, since_us = end

        # A cancelled job's graph is empty, and nobody controls it.
        if task.job not in self._jobs.cancelled:
            self._tokens.ready(holder, self._graphs[task.job].finished(task.id))
            if task.job in self._controlled:
                self._controlled[task.job].finished(task.id, now - since_us)

        self._jobs.finished(task.job)
        self._close_if_done(task.job, now)
        self._hand_out(now)

    def _close_if_done(self, job: JobId, now: Time) -> None:
        if not self._jobs.is_open(job) and job in self._holders:
            self._guarantee(job, 0, now)
            del self._holders[job]
            del self._graphs[job]
            self._controlled.pop(job, None)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        job = message.job
        if self._jobs.cancel(message, source):
            holder = self._holders[job]
            for task, machine in self._tokens.machines_of(holder):
                self._port.send(f"node/{machine}", Kill(task))

            dropped_count = self._tokens.drop(holder) + self._graphs[job].blocked
            self._graphs[job] = Workflow()
            self._controlled.pop(job, None)
            self._guarantee(job, 0, now)

            if dropped_count:
                self._jobs.finished(job, dropped_count)
        self._close_if_done(job, now)
        self._hand_out(now)

    def check(self) -> None:
        self._tokens.check()
        assert len(self._jobs) == len(self._holders) == len(self._graphs)

        assert self._controlled.keys() <= self._holders.keys()
        guaranteed_count = sum([holder.guaranteed for holder in self._holders.values()])
        assert guaranteed_count == self._slots - self._free, (
            f"{guaranteed_count} tokens are guaranteed, {self._free} of {self._slots} are not"
        )
        assert self._free >= 0, f"{guaranteed_count} tokens of {self._slots} are guaranteed"

    def check_rest(self) -> None:
        assert not self._holders, f"{len(self._holders)} jobs are open for ever"
        assert not self._tokens.running, "tasks run for ever"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
        TimerFired: on_timer,
        Computed: on_computed,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)
