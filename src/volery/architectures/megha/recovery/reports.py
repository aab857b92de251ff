"""Reconstruction of a Global Master from the reports of Local Masters, where components may crash.

A Global Master is a cache of what Local Masters and submitters know. It follows the leader of each cluster and nobody
else there. When another one begins to lead, its report lists what runs and what has finished; what it does not mention
is in doubt until the cluster has settled, and then lost. A new incarnation knows nothing: its jobs are submitted again,
and it schedules none of their tasks before every cluster has reported what runs. It alone numbers attempts. When its
jobs were moved to another GM it begins anew, too. The heir has every cluster fenced and reported before it schedules
tasks of these jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.gangs.messages import MembersReleased, PrepareVote
from volery.architectures.megha.hosts import RecoveryHost
from volery.architectures.megha.messages import Refusal, StateUpdate, TasksEnded, place_of
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.recovery.messages import MOVE_SHIFT, ResyncReply, ResyncRequest
from volery.architectures.megha.recovery.pair import pair_of
from volery.architectures.megha.shares.messages import (
    ATTEMPTS,
    AttemptsLost,
    Holdings,
    PreemptionDone,
    PreemptionRequest,
)
from volery.core.component import Attached, Sends, sent_to
from volery.core.events import Event, Moved, Reassignment, Submit
from volery.core.model import Address, JobId, Message, Task, TaskId, Time
from volery.roles.recovery.leases import Forget, LeaderStatus, RunningAttempt, StaleEpoch

if TYPE_CHECKING:
    from volery.architectures.megha.shares.fairness import WeightedFairness

FROM_LEADERS: Final = frozenset(
    {
        TasksEnded,
        StateUpdate,
        Refusal,
        AttemptsLost,
        Holdings,
        PreemptionDone,
        PreemptionRequest,
        PrepareVote,
        MembersReleased,
    }
)
"""The messages of a Local Master that are void unless it leads. A report names its epoch itself, and whole holdings go
before one."""


class ReportRecovery(Attached):
    """State of a Global Master that is rebuilt from reports.

    Args:
        host: The Global Master.
        fairness: Account of its users; None: they have no shares.
        layout: The whole cluster.
        gm: Number of the Global Master.
        moves: Moves of jobs from one GM to another, of which this component knows.

    Attributes:
        epochs: Epoch of the leader of each cluster.
        term: Epoch of the last move of jobs of this GM's; see `Request`.
        first_attempt: Number of a task's first attempt.
    """

    takes: ClassVar[frozenset[type]] = frozenset({ResyncReply, AttemptsLost, Moved, LeaderStatus})
    sends: ClassVar[Sends] = sent_to("lm", Forget, ResyncRequest, Moved, StaleEpoch)

    def __init__(
        self,
        host: RecoveryHost,
        fairness: WeightedFairness | None,
        layout: Layout,
        gm: int,
        incarnation: int,
        moves: tuple[Reassignment, ...],
        config: MeghaConfig,
    ) -> None:
        self._host = host
        self._fairness = fairness
        self._address = f"gm/{gm}"
        self._printed = config.recovery == "paper"
        self._moves = moves
        self.term = max((move.epoch for move in moves if move.origin == self._address), default=0)
        self.first_attempt = incarnation * ATTEMPTS
        self._is_restarted = bool(incarnation or self.term)
        self._move_epoch_of: dict[JobId, int] = {}
        self._lm_of = layout.lm_of

        # Attempts that Local Masters have reported, of jobs that were not submitted to this incarnation yet.
        self._running_orphans: dict[TaskId, RunningAttempt] = {}
        self._finished_orphans: dict[TaskId, tuple[int, RunningAttempt]] = {}
        # What is held back until every cluster has reported, or is fenced.
        self._tasks_to_schedule: list[Task] = []
        self._resubmitted_jobs: dict[JobId, None] = {}
        # Cluster and task of each result, and as printed of each request: these are dropped when the job is done.
        self._results: dict[JobId, list[tuple[int, TaskId]]] = {}
        self._listed_tasks: dict[JobId, dict[tuple[int, TaskId], None]] = {}

        # Per cluster: the move up to which it is fenced, and the tasks in doubt since another master leads.
        count = layout.lm_count
        self.epochs = [-1 if self._is_restarted else 0] * count
        self._fenced_epochs = [0] * count
        self._clusters_to_report: dict[int, None] = dict.fromkeys(range(count if self._is_restarted else 0))
        self._unconfirmed_tasks: list[dict[TaskId, None]] = [{} for _ in range(count)]

    def start(self) -> None:
        for address in self._host.lm_at if self._clusters_to_report else ():
            self._host.send(address, ResyncRequest(self.term))

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take an event of a Global Master that may crash."""
        match event:
            case ResyncReply():
                self.on_resync_reply(event, source)
            case AttemptsLost():
                self.on_attempts_lost(event)
            case Moved():
                self.on_moved(event, now)
            case LeaderStatus():
                self._host.send(source, StaleEpoch(self.epochs[self._host.lm_at[source]], self.term))

    def masters_of(self, lm: int) -> tuple[Address, ...]:
        """Return the addresses of the Local Masters of a cluster, the one that leads at first before the other."""
        return pair_of(lm)

    def requested(self, lm: int, tasks: Sequence[Task]) -> tuple[Address, ...]:
        """Note a request of tasks to a cluster; return the addresses to which it is sent."""
        if not self._printed:
            return (self._host.lms[lm],)

        # As printed, the standby of a pair receives requests, too (arXiv 2103.08413, section IV-D).
        for task in tasks:
            self._listed_tasks.setdefault(task.job, {})[lm, task.id] = None
        return pair_of(lm)

    def knows_all(self) -> bool:
        """Find out whether all that runs is known."""
        return not self._clusters_to_report and not any(self._unconfirmed_tasks)

    def submitted(self, message: Submit) -> None:
        """Note whether a job was moved here."""
        if message.epoch and not self._host.jobs.is_done(message.job.id):
            self._move_epoch_of[message.job.id] = message.epoch

    def ready(self, tasks: Sequence[Task]) -> Sequence[Task] | None:
        """Tasks of which no attempt runs or has finished: of a job that is submitted again, or was moved, some may."""
        epoch = self._move_epoch_of.get(tasks[0].job, 0) if tasks and self._move_epoch_of else 0
        if epoch:
            for task in tasks:
                self._host.attempts.setdefault(task.id, self._first_of(epoch))

        # Until every cluster has reported, or is fenced against the origin of a move, any of these tasks may run.
        if self._clusters_to_report or epoch > min(self._fenced_epochs):
            self._tasks_to_schedule += tasks
            self._resubmitted_jobs.update({task.job: None for task in tasks})
            return None
        if self._running_orphans or self._finished_orphans:
            return [task for task in tasks if not self._recognised(task)]
        return tasks

    def _first_of(self, epoch: int) -> int:
        return (epoch << MOVE_SHIFT) + self.first_attempt

    def _recognised(self, task: Task) -> bool:
        """Find out whether an earlier incarnation has placed the task: it runs, or has finished."""
        over, active = self._finished_orphans.pop(task.id, None), self._running_orphans.get(task.id)
        # A later leader may report as running what an earlier one has reported to have ended. Then the attempt stays an
        # orphan: only the end that this leader reports, too, gives its unit back.
        if active is not None and (over is None or over[1].attempt < active.attempt):
            del self._running_orphans[task.id]
            self._follow(task, active)
            return True
        if over is not None:
            self._count(over[0], over[1])
        return over is not None

    def _follow(self, task: Task, active: RunningAttempt) -> None:
        self._host.view.follow(task, active)
        self._host.attempts[task.id] = active.attempt
        if self._fairness is not None:
            self._fairness.followed(task, active)

    def _count(self, lm: int, active: RunningAttempt) -> None:
        self._host.attempts.pop(active.task, None)
        self._results.setdefault(active.job, []).append((lm, active.task))
        self._host.jobs.finished(active.job)

    def on_moved(self, message: Moved, now: Time) -> None:
        """Forget all jobs that were moved to another; have all clusters fenced against the origins of the others."""
        gm, relieved = self._host, False
        if len(message.moves) > len(self._moves):
            self._moves = message.moves
            relieved = any(move.origin == self._address and move.epoch > self.term for move in message.moves)
        if relieved:
            # Its jobs are another's now: whatever it knows of them is void.
            gm.restart(message.moves)
        for address in gm.lm_at:
            gm.send(address, message)
        if relieved:
            # After the moves: else Local Masters report attempts of the heirs as its own, and never that they ended.
            gm.start(now)

    def cancelled(self, job: JobId) -> None:
        """Drop what is held back of a job."""
        held_back = sum(task.job == job for task in self._tasks_to_schedule)
        if held_back:
            self._tasks_to_schedule = [task for task in self._tasks_to_schedule if task.job != job]
            self._host.jobs.finished(job, held_back)

    # Results.

    def maybe_forget(self, job: JobId) -> None:
        """Have results dropped; as printed clusters list what was requested there, perhaps of an earlier GM."""
        if not self._host.jobs.is_done(job):
            return
        earlier = self._move_epoch_of.pop(job, None) is not None or job in self._resubmitted_jobs
        self._resubmitted_jobs.pop(job, None)
        results = dict.fromkeys(self._results.pop(job, ())) | self._listed_tasks.pop(job, {})
        if self._printed and earlier:
            tasks = dict.fromkeys(task for _, task in results)
            results |= {(lm, task): None for lm in range(len(self.epochs)) for task in tasks}
        if results:
            self._forget(results)

    def _forget(self, results: Iterable[tuple[int, TaskId]]) -> None:
        at: dict[int, list[TaskId]] = {}
        for lm, task in results:
            at.setdefault(lm, []).append(task)
        for lm, tasks in at.items():
            for address in pair_of(lm):
                self._host.send(address, Forget(tuple(tasks)))

    def ended(self, tasks: Sequence[TaskId], source: Address) -> Iterable[JobId]:
        """Note who keeps the results of tasks; the ends that the leader of before reports, its successor repeats."""
        gm, lm = self._host, self._host.lm_at[source]
        jobs = dict[JobId, None]()
        for number in tasks:
            place = gm.placed.get(number)
            if place is not None:
                jobs[place[0].job] = None
                self._results.setdefault(place[0].job, []).append((lm, number))
                gm.attempts.pop(number, None)
            elif number in self._running_orphans:
                # An earlier incarnation has placed it, and its job has not been submitted again yet, or knows the end.
                active = self._running_orphans.pop(number)
                self._has_finished(lm, active)
                gm.view.give_back(active)
        return jobs

    def preempted(self, task: TaskId, attempt: int) -> None:
        """Forget an attempt of which perhaps only its node and its Local Master knew."""
        orphan = self._running_orphans.get(task)
        if orphan is not None and orphan.attempt == attempt:
            # Its attempt is over: it is not to be recognised when its job comes again.
            del self._running_orphans[task]

    # Reports.

    def accepts(self, message: Message, source: Address) -> bool:
        """Find out whether a message is of the leader of a cluster, or not one that leaders alone send."""
        if type(message) not in FROM_LEADERS or (isinstance(message, Holdings) and message.is_whole):
            return True
        return self._host.lms[self._host.lm_at[source]] == source

    def on_resync_reply(self, message: ResyncReply, source: Address) -> None:
        """Adopt the report of a leader; what goes with it may have come before this GM began anew."""
        fairness = self._fairness
        if fairness is None:
            self._adopt(message, source)
        elif not message.is_whole or fairness.has_whole_holdings(source):
            self._adopt(message, source)
            fairness.reported(source)

    def _adopt(self, message: ResyncReply, source: Address) -> None:
        gm, lm = self._host, self._host.lm_at[source]

        # Only a whole report may open an epoch: an increment of a newer one would leave unknown tasks unmentioned.
        if message.epoch < self.epochs[lm] or (message.epoch > self.epochs[lm] and not message.is_whole):
            return

        # Another master leads. What seems to run there is unconfirmed until it is mentioned or the cluster has settled.
        if message.epoch > self.epochs[lm]:
            self.epochs[lm] = message.epoch
            gm.lms[lm] = source
            gm.last_update[source] = 0
            self._unconfirmed_tasks[lm] = self._tasks_at(lm)
            gm.view.start_epoch(lm)
            if self._fairness is not None:
                self._fairness.start_epoch(lm, self._unconfirmed_tasks[lm])
        if message.is_whole and self._fairness is not None:
            self._fairness.adopt_whole_holdings(source, lm)
        freed = gm.learn(message.update, source)
        for active in message.running_attempts:
            self._runs(lm, active)
        for active in message.finished_attempts:
            self._has_finished(lm, active)

        # Every node has answered: what none of them has mentioned runs nowhere, and is placed again.
        if message.is_settled:
            doubted, self._unconfirmed_tasks[lm] = self._unconfirmed_tasks[lm], {}
            for task in doubted:
                self._running_orphans.pop(task, None)
            self._place_again([task for task in doubted if task in gm.placed])
            self._clusters_to_report.pop(lm, None)

        self._fenced_epochs[lm] = max(self._fenced_epochs[lm], message.fenced_epoch)
        if message.is_whole and self._moves and message.fenced_epoch < self._moves[-1].epoch:
            gm.send(source, Moved(self._moves))  # it may lead because whoever was sent them is gone

        # What waits gets what is free, then what an earlier incarnation may have placed already.
        gm.offer_all(freed)
        if not self._clusters_to_report and self._tasks_to_schedule:
            held_back, self._tasks_to_schedule = self._tasks_to_schedule, []
            jobs: dict[JobId, list[Task]] = {}
            for waiting in held_back:
                jobs.setdefault(waiting.job, []).append(waiting)
            for job, waiting_tasks in jobs.items():
                gm.schedule(waiting_tasks)
                self.maybe_forget(job)
        gm.answered(lm)

    def _tasks_at(self, lm: int) -> dict[TaskId, None]:
        """All tasks that run in a cluster, as far as is known."""
        lm_of = self._lm_of
        placed = {task: None for task, place in self._host.placed.items() if lm_of[place[1]] == lm}
        units = {task: active.unit for task, active in self._running_orphans.items()}
        orphans = {task: None for task, unit in units.items() if lm_of[place_of(unit)[0]] == lm}
        return placed | orphans

    def _runs(self, lm: int, active: RunningAttempt) -> None:
        place = self._host.placed.get(active.task)
        if place is not None and active.attempt < self._host.attempt_of(active.task):
            return  # it was given up, and another attempt was made: that one is in doubt
        self._unconfirmed_tasks[lm].pop(active.task, None)
        if place is not None:
            self._follow(place[0], active)
        else:
            self._running_orphans[active.task] = active

    def _has_finished(self, lm: int, active: RunningAttempt) -> None:
        gm, job = self._host, active.job
        if active.task in gm.placed:
            if active.attempt < gm.attempt_of(active.task):
                return  # it was given up, and another attempt was made
            del gm.placed[active.task]
            self._unconfirmed_tasks[lm].pop(active.task, None)
            self._count(lm, active)
            self.maybe_forget(job)
            if self._fairness is not None:
                self._fairness.forget_task(active.task)
        elif gm.jobs.is_done(job):
            self._forget([(lm, active.task)])
        elif (lm, active.task) not in self._results.get(job, ()):
            self._finished_orphans[active.task] = (lm, active)

    def _place_again(self, dead: Sequence[TaskId]) -> None:
        """Tasks whose attempt is dead go before all others, as another attempt."""
        gm = self._host
        gm.lost(dead)
        if self._fairness is not None:
            for number in dead:
                self._fairness.forget_task(number)
        tasks = [gm.view.take_back(number) for number in dead]
        for task in tasks:
            epoch = self._move_epoch_of.get(task.job, 0)
            gm.attempts[task.id] = max(gm.attempt_of(task.id) + 1, self._first_of(epoch) if epoch else 0)
        if self._fairness is not None:
            self._fairness.scheduled(tasks)
        for task in reversed(gm.place(gm.still_wanted(tasks), is_first=True)):
            gm.view.queue.push_front(task)
        gm.ask_all()

    def on_attempts_lost(self, message: AttemptsLost) -> None:
        """Place again the tasks of which the present attempt is dead, or was preempted."""
        if message.is_preemption and self._fairness is not None:
            self._fairness.on_preempted(message)
            return
        dead: dict[TaskId, None] = {}
        for active in message.attempts:
            self._running_orphans.pop(active.task, None)
            attempt = self._host.attempt_of(active.task)
            if active.task in self._host.placed and attempt == active.attempt:
                dead[active.task] = None
        self._place_again(list(dead))
        if self._fairness is not None:
            self._fairness.enforce()
