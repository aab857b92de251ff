"""The controller of Slurm (slurmctld): takes jobs, and starts them in its two loops.

The main loop considers jobs in their order, and a job that does not fit closes its partition for all jobs behind it. It
runs some time after a submission or an end, at once after the end of a job that was killed (with an Epilog, of any),
and over the whole queue at intervals. The backfill loop runs at intervals of its own. A job of salloc or srun is tried
at its submission, too. Source: `job_allocate`, `queue_job_scheduler`, `_schedule` and `backfill_agent` of Slurm 22.05.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from volery.architectures.slurm.backfill import BackfillCycle, EndForecast, Plan, reserves
from volery.architectures.slurm.jobs import Element, PendingQueue, QueuedJob, SlurmPartition, StartedJob, Throttle
from volery.architectures.slurm.nodes import JobNeed, NodeFacts, Nodes, NodeShare
from volery.architectures.slurm.parameters import SlurmConfig
from volery.architectures.slurm.preemption import CANCEL, PreemptionRules, victims
from volery.architectures.slurm.priority import Priorities
from volery.architectures.slurm.site import Fit, SlurmSite
from volery.core.component import Component, sent_to
from volery.core.events import Cancel, Measured, MoreTasks, Submit, TimerFired
from volery.core.model import SECOND, Address, Job, JobId, Task, TaskId, Time
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger

MAIN: Final = "main"
END: Final = "end"
FULL: Final = "full"
BACKFILL: Final = "backfill"
PRIORITY: Final = "priority"
RESERVATION: Final = "reservation"
ELIGIBLE: Final = "eligible"
COMPLETED: Final = "completed"
MILLISECOND: Final = SECOND // 1000
HALF: Final = SECOND // 2
"""Phase of the main loop: the two loops are threads of their own, and seldom pass at once."""
TOP_PRIORITY: Final = 0xFFFF0000
"""Priority above that of all jobs with priority/basic: each job has one less than the lowest before it."""


class Controller(Component):
    """Queues jobs, starts them on nodes, and answers when they are done.

    Args:
        table: Facts of the nodes.
        site: Partitions and reservations.
        fit: Needs of jobs.
        config: Parameters of both loops.
        priorities: Priorities by factors; None: first come, first served (priority/basic).
        preemption: Rules of preemption; None: no job is preempted.
    """

    def __init__(
        self,
        table: NodeFacts,
        site: SlurmSite,
        fit: Fit,
        config: SlurmConfig,
        priorities: Priorities | None,
        preemption: PreemptionRules | None,
    ) -> None:
        self._table = table
        self._nodes = Nodes(table)
        self._site = site
        self._fit = fit
        self._config = config
        self._requeue_s = config.cred_expire + 1
        self._priorities = priorities
        self._preemption = preemption

        self._queue = PendingQueue()
        self._jobs: dict[JobId, Job] = {}
        self._submitted_us: dict[JobId, Time] = {}
        self._waiting: dict[JobId, list[QueuedJob]] = {}
        self._incomplete: dict[JobId, list[Task]] = {}
        self._ineligible: dict[int, QueuedJob] = {}
        self._running: dict[int, StartedJob] = {}
        self._run_of_task: dict[TaskId, int] = {}
        self._attempts: dict[TaskId, int] = {}

        self._completing: dict[int, StartedJob] = {}
        self._has_news = False
        self._lowest_priority = TOP_PRIORITY
        self._job_count = 0
        self._run_count = 0
        self._launch_count = 0
        self._timers: dict[str, Time] = {}
        self._passed_us = -config.sched_min_interval
        self._submit_pass_us = -config.batch_sched_delay * SECOND
        self._cycle_us = 0

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._ledger = JobLedger(self._port.send)
        for place, reservation in enumerate(self._site.reservations):
            self._port.set_timer((RESERVATION, place), reservation.end_s * SECOND)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Take a job in, and try it at once where nothing goes before it."""
        job = message.job
        is_known = self._ledger.is_open(job.id) or self._ledger.is_done(job.id)
        self._port.observe(Measured("queued_tasks", len(self._queue)))
        tasks = self._ledger.admit(message, source, len(self._queue))
        if is_known or not self._ledger.is_open(job.id):
            return

        self._jobs[job.id] = job
        self._submitted_us[job.id] = now
        pending_jobs = self._enqueue(job, tasks, now)
        is_single = len(pending_jobs) == 1 and not pending_jobs[0].is_array
        if is_single and self._config.interactive and not self._config.defer:
            self._try_at_submission(pending_jobs[0], now)
        self._changed(now)
        self._plan_pass(now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Take further tasks of a job in; tasks that waited for others are considered at once, as at an end."""
        tasks = self._ledger.more(message)
        job = self._jobs.get(message.job)
        if tasks and job is not None:
            self._enqueue(job, tasks, now)
            self._changed(now)
            self._pass_at_end(now)

    def _enqueue(self, job: Job, tasks: Sequence[Task], now: Time) -> list[QueuedJob]:
        """Queue tasks of a job; those that can never run are reported."""
        if job.gang is not None:
            tasks = self._gathered(job, tasks)
        partition = self._site.partition_of(job)
        submit_s = self._submitted_us[job.id] // SECOND

        pending_jobs = []
        queued_count = 0
        if partition is not None and tasks:
            for need, elements in self._fit.elements(job, tasks, partition):
                if self._fit.is_possible(job, need, partition):
                    queued_count += sum(map(len, elements))
                    pending_jobs.append(self._pending(job, partition, need, elements, submit_s, now // SECOND))
                    self._add(pending_jobs[-1], now)

        for _ in range(len(tasks) - queued_count):
            self._ledger.unsatisfiable(job.id)
        self._settle(job.id)
        return pending_jobs

    def _gathered(self, job: Job, tasks: Sequence[Task]) -> Sequence[Task]:
        """All tasks of a gang once its last chunk has come; nothing before."""
        gathered_tasks = self._incomplete.setdefault(job.id, [])
        gathered_tasks += tasks
        if len(gathered_tasks) < job.task_count:
            return ()
        return self._incomplete.pop(job.id)

    def _pending(
        self,
        job: Job,
        partition: SlurmPartition,
        need: JobNeed,
        elements: Sequence[Element],
        submit_s: int,
        eligible_s: int,
    ) -> QueuedJob:
        self._job_count += 1
        pending = QueuedJob(job, self._job_count, partition, need, elements, submit_s, eligible_s)
        pending.listed_us = self._submitted_us[job.id]
        if pending.is_array and self._config.array_throttle:
            pending.throttle = Throttle(self._config.array_throttle)
        self._waiting.setdefault(job.id, []).append(pending)
        return pending

    def _add(self, job: QueuedJob, now: Time) -> None:
        """Add a job to the queue with its priority."""
        if self._priorities is not None:
            job.priority = self._priorities.priority(job, now // SECOND)
        elif not job.priority:
            job.priority = max(1, self._lowest_priority - 1 + job.points)
            self._lowest_priority = min(self._lowest_priority, job.priority)
        self._queue.add(job)

    def _try_at_submission(self, job: QueuedJob, now: Time) -> None:
        """Start a job as it comes, if none that waits for any of the same nodes goes before it."""
        now_s = now // SECOND
        partition = job.partition
        for other in self._queue:
            if other is job or not reserves(self._config, other, now_s):
                continue
            if other.partition is partition:
                is_first = other.priority <= job.priority
            else:
                has_higher_rank = (other.partition.tier, other.priority) > (partition.tier, job.priority)
                is_first = not (other.partition.nodes & partition.nodes and has_higher_rank)
            if not is_first:
                return
            # Of each partition, the first in the queue has the highest priority.
            if other.partition is partition:
                break

        nodes, _ = self._site.allowed(job, now_s, now_s + job.runs_for_s())
        self._try(job, nodes, now_s)

    def _completing_nodes(self) -> int:
        """The nodes of which a job has ended, and which have not answered yet: they start none."""
        nodes = 0
        for running in self._completing.values():
            nodes |= running.completing_nodes
        return nodes

    def _try(self, job: QueuedJob, nodes: int, now_s: int) -> bool:
        """Start the next element of a job on some of the nodes; else preempt for it where that may be."""
        nodes &= ~self._completing_nodes()
        shares = self._nodes.choose(job.need, nodes)
        if shares is not None:
            self._start(job, shares, now_s)
            return True

        # For a while after it has ended jobs it ends no more: those may still hold their nodes.
        if now_s - job.preempted_s >= self._config.KillWait + self._config.MessageTimeout:
            candidates = self._victims(job)
            for running in victims(job, candidates, self._nodes, nodes) if candidates else ():
                job.preempted_s = now_s
                running.preemptor = job
                self._deallocate(running, now_s)
                self._kill(running)
        return False

    def _start(self, job: QueuedJob, shares: Sequence[NodeShare], now_s: int) -> None:
        """Start the next element of a job, which leaves the queue with its last."""
        tasks = job.elements[0]
        parts = self._nodes.parts(job.need, shares, tasks)
        self._nodes.take(parts)
        cores = job.need.cores
        if job.need.is_exclusive:
            cores = sum([self._fit.node_cores(part.node) for part in parts])

        if job.throttle is not None:
            job.throttle.running += 1
        self._run_count += 1
        self._running[self._run_count] = StartedJob(job, self._run_count, tasks, parts, now_s, cores)
        for part in parts:
            for task in part.tasks:
                self._run_of_task[task.id] = self._run_count
                self._launch_count += 1
                message = Launch(self._launch_count, task, self._attempts.get(task.id, 0))
                self._port.send(f"node/{part.node}", message)

        job.elements.popleft()
        # What is left of an array is a new entry of Slurm's list of jobs.
        job.listed_us = now_s * SECOND
        if not job.elements:
            self._queue.discard(job)
            self._forget(job)

    def _forget(self, job: QueuedJob) -> None:
        waiting_jobs = self._waiting[job.id]
        waiting_jobs.remove(job)
        if not waiting_jobs:
            del self._waiting[job.id]

    def _pass(self, now: Time, *, is_full: bool) -> None:
        """Run the main loop once: start jobs in their order, until one that does not fit closes each partition."""
        self._passed_us = now
        now_s = now // SECOND
        partition_count = len(self._site.partitions)
        closed_partitions: set[str] = set()
        closed_nodes = 0
        tests: Counter[str] = Counter()
        test_count = 0
        start_count = 0

        for job in self._queue:
            name = job.partition.name
            is_started = True
            # Of an array, element after element.
            while job.elements and is_started and not job.is_throttled:
                tests[name] += 1
                if 0 < self._config.partition_job_depth < tests[name]:
                    break
                test_count += 1
                is_deep = not is_full and test_count > self._config.default_queue_depth + 1
                if (
                    is_deep
                    or 0 < self._config.sched_max_job_start <= start_count
                    or len(closed_partitions) == partition_count
                ):
                    return
                if name in closed_partitions:
                    break

                nodes, _ = self._site.allowed(job, now_s, now_s + job.runs_for_s())
                nodes &= ~closed_nodes
                has_nodes = nodes.bit_count() >= max(1, job.need.node_count)
                is_started = has_nodes and self._try(job, nodes, now_s)
                start_count += is_started
                # A job that waits keeps all behind it from its partition, and from the nodes of that.
                if not is_started and (reserves(self._config, job, now_s) or not has_nodes):
                    closed_partitions.add(name)
                    closed_nodes |= job.partition.nodes

    def _cycle(self, now: Time) -> None:
        """Run the backfill loop once."""
        self._cycle_us = now
        now_s = now // SECOND

        jobs = self._until_last_that_fits(now_s)
        if not jobs:
            return

        def forecast() -> EndForecast:
            return EndForecast(self._nodes, list(self._running.values()), self._config)

        run_count = self._run_count
        plan = Plan(now_s, self._config, self._table.every)
        cycle = BackfillCycle(self._config, now_s, plan, forecast, self._try, self._victims, self._site.allowed)
        cycle.run(jobs, self._completing_nodes, self._attempt_count(now))
        if self._run_count > run_count:
            self._changed(now)

    def _attempt_count(self, now: Time) -> int | None:
        """The count of jobs after which a cycle is cut by bf_max_time; None: it takes no time."""
        return None

    def _until_last_that_fits(self, now_s: int) -> list[QueuedJob]:
        """The queue up to the last job that fits beside what runs: what is planned for those behind starts nothing."""
        fitting: dict[tuple[JobNeed, int], bool] = {}
        jobs, count = [], 0
        for job in self._queue:
            jobs.append(job)
            nodes, _ = self._site.allowed(job, now_s, now_s + job.runs_for_s())
            if (job.need, nodes) not in fitting:
                fitting[job.need, nodes] = self._nodes.choose(job.need, nodes) is not None
            if fitting[job.need, nodes] or self._victims(job):
                count = len(jobs)
        return jobs[:count]

    def _victims(self, job: QueuedJob) -> Sequence[StartedJob]:
        """The jobs that a job may preempt."""
        if self._preemption is None:
            return ()
        return self._preemption.candidates(job, self._running.values())

    def _changed(self, now: Time) -> None:
        """Something has changed: plan the loops that are to see it."""
        self._has_news = True
        if self._priorities is not None and (self._queue or (self._priorities.counts_usage and self._running)):
            self._arm(PRIORITY, self._computation_us(now))
        if not self._queue:
            return

        self._arm_loops(now)

    def _computation_us(self, now: Time) -> Time:
        """The time of the next computation of priorities: whole periods after the start."""
        assert self._priorities is not None, "they alone are computed"
        started_us = self._config.started_s * SECOND
        return _after(now - started_us, self._priorities.period_s * SECOND) + started_us

    def _arm_loops(self, now: Time) -> None:
        """Plan the next run of the main loop over the full queue, and of the backfill loop."""
        self._arm(FULL, _after(now - HALF, self._config.sched_interval * SECOND) + HALF)
        if self._config.SchedulerType == "sched/backfill":
            self._arm(BACKFILL, _whole_second(max(now, self._cycle_us + self._config.bf_interval * SECOND)))

    def _plan_pass(self, now: Time) -> None:
        """Plan the main loop for what was submitted."""
        if self._queue:
            planned_us = max(now, self._submit_pass_us + self._config.batch_sched_delay * SECOND)
            self._arm(MAIN, _whole_second(planned_us - HALF) + HALF)

    def _pass_at_end(self, now: Time) -> None:
        """Run the main loop because a job has ended, or plan it where it has run just before."""
        if self._config.defer:
            self._plan_pass(now)
        elif now - self._passed_us >= self._config.sched_min_interval:
            self._pass(now, is_full=False)
        elif self._queue:
            self._arm(END, self._passed_us + self._config.sched_min_interval)

    def _arm(self, key: str, at: Time) -> None:
        if key not in self._timers:
            self._timers[key] = at
            self._port.set_timer(key, at)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Run a loop, compute priorities, or consider a job that has become eligible."""
        key = event.key
        if isinstance(key, tuple):
            if key[0] == COMPLETED:
                self._await_answer(int(key[1]), now)
            elif key[0] == ELIGIBLE:
                job = self._ineligible.pop(int(key[1]), None)
                if job is not None:
                    self._add(job, now)
                self._plan_pass(now)
            else:
                self._pass_at_end(now)
            self._changed(now)
            return

        assert isinstance(key, str)
        del self._timers[key]
        if key == BACKFILL:
            self._cycle(now)
        elif key == PRIORITY:
            assert self._priorities is not None, "they alone set the timer"
            self._priorities.compute(now // SECOND, self._queue, self._running.values())
            is_reordered = self._queue.sort()
            # What nothing has come of is not computed for ever: a message that is lost would keep the controller awake.
            if is_reordered or self._has_news:
                self._changed(now)
            self._has_news = False
        else:
            run_count = self._run_count
            if key in (MAIN, FULL):
                self._submit_pass_us = now
            self._pass(now, is_full=key == FULL)
            if self._run_count > run_count:
                self._changed(now)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Count a task that has ended; the nodes of a job are free when all its tasks have."""
        run = self._run_of_task.get(message.task)
        if run is None or message.attempt != self._attempts.get(message.task, 0):
            return

        running = self._running.get(run) or self._completing[run]
        running.unfinished.pop(message.task)
        del self._run_of_task[message.task]
        job = running.id
        if message.killed and job not in self._ledger.cancelled:
            running.preempted_tasks += [task for task in running.tasks if task.id == message.task]
        else:
            self._attempts.pop(message.task, None)
            self._ledger.finished(job)
        if not running.unfinished:
            if run in self._running:
                self._deallocate(running, now // SECOND)
            self._ended(running, now)
            running.answers = self._answers(running, now)
            self._changed(now)
            self._await_answer(run, now)

    def _answers(self, running: StartedJob, now: Time) -> list[tuple[Time, int]]:
        """The times at which nodes of a job that has ended answer, the last first, with the vector of these nodes."""
        return [(now + self._config.completing_ms * MILLISECOND, running.nodes)]

    def _await_answer(self, run: int, now: Time) -> None:
        """Wait for the next nodes that answer; with the last, the queue is considered."""
        running = self._completing[run]
        while running.answers and running.answers[-1][0] <= now:
            running.completing_nodes &= ~running.answers.pop()[1]
        if running.answers:
            self._port.set_timer((COMPLETED, run), running.answers[-1][0])
        else:
            self._complete(run, now)

    def _deallocate(self, running: StartedJob, now_s: int) -> None:
        """Give back what a job had that has ended or is being ended; its nodes start others when they have answered."""
        self._completing[running.number] = self._running.pop(running.number)
        self._nodes.give_back(running.parts)
        if running.pending.throttle is not None:
            running.pending.throttle.running -= 1
        if self._priorities is not None:
            self._priorities.charge_end(running, now_s)

    def _ended(self, running: StartedJob, now: Time) -> None:
        """Queue what was preempted of a job of which all tasks have ended."""
        is_cancelled = running.preemptor is not None and self._preemption_mode(running) == CANCEL
        if running.preempted_tasks and not is_cancelled:
            self._requeue(running, now)
        for _ in running.preempted_tasks if is_cancelled else ():
            self._ledger.unsatisfiable(running.id)

        self._settle(running.id)

    def _complete(self, run: int, now: Time) -> None:
        """Consider the queue once the nodes of a job that has ended have answered."""
        running = self._completing.pop(run)
        self._changed(now)
        # Nodes answer that a job has ended by itself, which only plans a pass; that they have ended one, runs it.
        if running.preempted_tasks or self._config.Epilog:
            self._pass_at_end(now)
        else:
            self._plan_pass(now)

    def _preemption_mode(self, running: StartedJob) -> str:
        assert self._preemption is not None, "it alone ends jobs for others"
        return self._preemption.mode_of(running)

    def _requeue(self, running: StartedJob, now: Time) -> None:
        """Queue a job that was preempted, or of which a task was killed; it is eligible after a while."""
        pending = running.pending
        tasks = tuple(running.preempted_tasks)
        for task in tasks:
            self._attempts[task.id] = self._attempts.get(task.id, 0) + 1

        need = pending.need.scaled(len(tasks))
        now_s = now // SECOND
        eligible_s = now_s + self._requeue_s
        again = self._pending(self._jobs[running.id], pending.partition, need, [tasks], now_s, eligible_s)
        again.priority = pending.priority
        again.listed_us, number = running.listed
        if not pending.is_array:
            again.number = number
        again.throttle = pending.throttle
        self._ineligible[again.number] = again
        self._port.set_timer((ELIGIBLE, again.number), eligible_s * SECOND)

    def _kill(self, running: StartedJob) -> None:
        for task, part in running.unfinished.items():
            self._port.send(f"node/{part.node}", Kill(task, self._attempts.get(task, 0)))

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop what waits of a job, and end what runs of it."""
        if not self._ledger.cancel(message, source):
            # Its chunks that had not come were all that was left of it.
            self._settle(message.job)
            return

        dropped_count = len(self._incomplete.pop(message.job, ()))
        for job in self._waiting.pop(message.job, ()):
            self._queue.discard(job)
            self._ineligible.pop(job.number, None)
            dropped_count += sum(map(len, job.elements))
        for running in (*self._running.values(), *self._completing.values()):
            if running.id == message.job:
                dropped_count += len(running.preempted_tasks)
                running.preempted_tasks.clear()
                self._kill(running)

        if dropped_count:
            self._ledger.finished(message.job, dropped_count)
        self._settle(message.job)
        self._changed(now)
        self._pass_at_end(now)

    def _settle(self, job: JobId) -> None:
        """Forget a job that is done."""
        if not self._ledger.is_open(job):
            self._jobs.pop(job, None)
            self._submitted_us.pop(job, None)

    def check(self) -> None:
        """Raise AssertionError where free and taken amounts disagree, or a job waits without being queued."""
        nodes = self._nodes.copy()
        for running in self._running.values():
            nodes.give_back(running.parts)
        assert nodes.free == self._table.idle, "free and taken amounts do not add up"

        waiting_count = sum(map(len, self._waiting.values()))
        assert waiting_count == len(self._queue) + len(self._ineligible), "a job waits outside the queue"
        assert self._jobs.keys() == self._submitted_us.keys()
        assert all(self._ledger.is_open(job) for job in self._jobs)

    def check_rest(self) -> None:
        assert not self._queue, "a job waits"
        assert not self._running, "a job runs"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
        TimerFired: on_timer,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)


def _whole_second(time: Time) -> Time:
    """The first whole second from a time on: the threads of the controller wake up once a second."""
    return -(-time // SECOND) * SECOND


def _after(time: Time, period_us: Time) -> Time:
    """The first multiple of a period after a time."""
    return (time // period_us + 1) * period_us
