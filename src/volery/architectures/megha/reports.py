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

from volery.architectures.megha.messages import (
    ATTEMPTS,
    MOVE_SHIFT,
    AttemptsLost,
    Holdings,
    PreemptionDone,
    PreemptionRequest,
    Refusal,
    ResyncReply,
    ResyncRequest,
    StateUpdate,
    TasksEnded,
    place_of,
)
from volery.architectures.megha.recovery import pair_of
from volery.core.component import Sends, sent_to
from volery.core.events import Moved, Reassignment, Submit
from volery.core.model import Address, JobId, Message, Task, TaskId, Time
from volery.roles.recovery.leases import Forget, LeaderStatus, RunningAttempt, StaleEpoch

if TYPE_CHECKING:
    from volery.architectures.megha.global_master import GlobalMaster

FROM_LEADERS: Final = frozenset(
    {TasksEnded, StateUpdate, Refusal, AttemptsLost, Holdings, PreemptionDone, PreemptionRequest}
)
"""The messages of a Local Master that are void unless it leads. A report names its epoch itself, and whole holdings go
before one."""


class NoReports:
    """No reports: one Local Master per cluster leads, and none ever crashes.

    Attributes:
        paired: whether each cluster has two Local Masters.
        epochs: per cluster, of its leader.
        term: the epoch of the last move of jobs of this GM's; see `Request`.
        first_attempt: number of a task's first attempt.
    """

    takes: ClassVar[frozenset[type]] = frozenset()
    sends: ClassVar[Sends] = frozenset()
    paired: ClassVar[bool] = False
    term = first_attempt = 0

    def join(self, gm: GlobalMaster) -> None:
        """Become the part of this Global Master."""
        self.epochs = [0] * gm.layout.lm_count
        self._leaders = gm.lms

    def start(self) -> None:
        """Ask every cluster what runs there, after a restart."""

    def masters_of(self, lm: int) -> tuple[Address, ...]:
        """Addresses of the Local Masters of a cluster, the one that leads at first before the other."""
        return (f"lm/{lm}",)

    def requested(self, lm: int, tasks: Sequence[Task]) -> tuple[Address, ...]:
        """Note a request of tasks to a cluster; return the addresses to which it is sent."""
        return (self._leaders[lm],)

    def knows_all(self) -> bool:
        """Find out whether all that runs is known."""
        return True

    def submitted(self, message: Submit) -> None:
        """Note whether a job was moved here."""

    def ready(self, tasks: Sequence[Task]) -> Sequence[Task] | None:
        """Tasks that have to be scheduled; None: all are held back."""
        return tasks

    def cancelled(self, job: JobId) -> None:
        """Drop what is held back of a job."""

    def ended(self, tasks: Sequence[TaskId], source: Address) -> Iterable[JobId]:
        """Note who keeps the results of tasks, before their ends are counted; return their jobs."""
        return ()

    def maybe_forget(self, job: JobId) -> None:
        """Have the results of a job dropped when it is done."""

    def ousted(self, task: TaskId, attempt: int) -> None:
        """Forget an attempt that was preempted."""


class ReportRecovery:
    """State of a Global Master that is rebuilt from reports.

    Args:
        moves: of jobs from one GM to another, of which this component knows.
        printed: whether the standby of a pair receives requests, too (arXiv 2103.08413, section IV-D).
    """

    takes: ClassVar[frozenset[type]] = frozenset({ResyncReply, AttemptsLost, Moved, LeaderStatus})
    sends: ClassVar[Sends] = sent_to("lm", Forget, ResyncRequest, Moved, StaleEpoch)
    paired: ClassVar[bool] = True

    def __init__(self, gm: int, incarnation: int, moves: tuple[Reassignment, ...], *, printed: bool = False) -> None:
        self._printed = printed
        self._moves = moves
        self.term = max((move.epoch for move in moves if move.origin == f"gm/{gm}"), default=0)
        self.first_attempt = incarnation * ATTEMPTS
        self._is_restarted = bool(incarnation or self.term)
        self._move_epoch_of: dict[JobId, int] = {}
        self._tasks_to_schedule: list[Task] = []
        self._running_orphans: dict[TaskId, RunningAttempt] = {}
        self._finished_orphans: dict[TaskId, tuple[int, RunningAttempt]] = {}
        self._results: dict[JobId, list[tuple[int, TaskId]]] = {}
        self._listed_tasks: dict[JobId, dict[tuple[int, TaskId], None]] = {}
        self._resubmitted_jobs: dict[JobId, None] = {}

    def join(self, gm: GlobalMaster) -> None:
        count = gm.layout.lm_count
        self._gm = gm
        self._lm_of = gm.layout.lm_of
        self.epochs = [-1 if self._is_restarted else 0] * count
        self._fenced_epochs = [0] * count
        self._clusters_to_report: dict[int, None] = dict.fromkeys(range(count if self._is_restarted else 0))
        self._unconfirmed_tasks: list[dict[TaskId, None]] = [{} for _ in range(count)]

    def start(self) -> None:
        for address in self._gm.lm_at if self._clusters_to_report else ():
            self._gm.send(address, ResyncRequest(self.term))

    def masters_of(self, lm: int) -> tuple[Address, ...]:
        return pair_of(lm)

    def requested(self, lm: int, tasks: Sequence[Task]) -> tuple[Address, ...]:
        if not self._printed:
            return (self._gm.lms[lm],)
        for task in tasks:
            self._listed_tasks.setdefault(task.job, {})[lm, task.id] = None
        return pair_of(lm)

    def knows_all(self) -> bool:
        return not self._clusters_to_report and not any(self._unconfirmed_tasks)

    def submitted(self, message: Submit) -> None:
        if message.epoch and not self._gm.jobs.is_done(message.job.id):
            self._move_epoch_of[message.job.id] = message.epoch

    def ready(self, tasks: Sequence[Task]) -> Sequence[Task] | None:
        """Tasks of which no attempt runs or has finished: of a job that is submitted again, or was moved, some may."""
        epoch = self._move_epoch_of.get(tasks[0].job, 0) if tasks and self._move_epoch_of else 0
        if epoch:
            for task in tasks:
                self._gm.attempts.setdefault(task.id, self._first_of(epoch))
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
        over, active = self._finished_orphans.pop(task.id, None), self._running_orphans.pop(task.id, None)
        if active is not None and (over is None or over[1].attempt < active.attempt):
            self._follow(task, active)
            return True
        if over is not None:
            self._count(over[0], over[1])
        return over is not None

    def _follow(self, task: Task, active: RunningAttempt) -> None:
        self._gm.view.follow(task, active)
        self._gm.attempts[task.id] = active.attempt
        self._gm.fairness.followed(task, active)

    def _count(self, lm: int, active: RunningAttempt) -> None:
        self._gm.attempts.pop(active.task, None)
        self._results.setdefault(active.job, []).append((lm, active.task))
        self._gm.jobs.finished(active.job)

    def on_moved(self, message: Moved, source: Address, now: Time) -> None:
        """Forget all jobs that were moved to another; have all clusters fenced against the origins of the others."""
        gm, relieved = self._gm, False
        if len(message.moves) > len(self._moves):
            self._moves = message.moves
            me = f"gm/{gm.number}"
            relieved = any(move.origin == me and move.epoch > self.term for move in message.moves)
        if relieved:
            gm.begin_anew(message.moves)
        for address in gm.lm_at:
            gm.send(address, message)
        if relieved:
            # After the moves: else Local Masters report attempts of the heirs as its own, and never that they ended.
            gm.start(now)

    def cancelled(self, job: JobId) -> None:
        held_back = sum(task.job == job for task in self._tasks_to_schedule)
        if held_back:
            self._tasks_to_schedule = [task for task in self._tasks_to_schedule if task.job != job]
            self._gm.jobs.finished(job, held_back)

    # Results.

    def maybe_forget(self, job: JobId) -> None:
        """See `NoReports`; as printed clusters list what was requested there, perhaps of an earlier GM."""
        if not self._gm.jobs.is_done(job):
            return
        earlier = self._move_epoch_of.pop(job, None) is not None or job in self._resubmitted_jobs
        self._resubmitted_jobs.pop(job, None)
        kept = dict.fromkeys(self._results.pop(job, ())) | self._listed_tasks.pop(job, {})
        if self._printed and earlier:
            tasks = dict.fromkeys(task for _, task in kept)
            kept |= {(lm, task): None for lm in range(self._gm.layout.lm_count) for task in tasks}
        if kept:
            self._forget(kept)

    def _forget(self, results: Iterable[tuple[int, TaskId]]) -> None:
        at: dict[int, list[TaskId]] = {}
        for lm, task in results:
            at.setdefault(lm, []).append(task)
        for lm, tasks in at.items():
            for address in pair_of(lm):
                self._gm.send(address, Forget(tuple(tasks)))

    def ended(self, tasks: Sequence[TaskId], source: Address) -> Iterable[JobId]:
        """Note who keeps the results of tasks; the ends that the leader of before reports, its successor repeats."""
        gm, lm = self._gm, self._gm.lm_at[source]
        jobs = dict[JobId, None]()
        for number in tasks:
            place = gm.placed.get(number)
            if place is not None:
                jobs[place[0].job] = None
                self._results.setdefault(place[0].job, []).append((lm, number))
                gm.attempts.pop(number, None)
            elif number in self._running_orphans:
                active = self._running_orphans.pop(number)
                self._finished_orphans[number] = (lm, active)
                gm.view.give_back(active)
        return jobs

    def ousted(self, task: TaskId, attempt: int) -> None:
        """Forget an attempt of which perhaps only its node and its Local Master knew."""
        found = self._running_orphans.get(task)
        if found is not None and found.attempt == attempt:
            del self._running_orphans[task]

    # Reports.

    def heeds(self, message: Message, source: Address) -> bool:
        """Find out whether a message is of the leader of a cluster, or not one that leaders alone send."""
        if type(message) not in FROM_LEADERS or (isinstance(message, Holdings) and message.is_whole):
            return True
        return self._gm.lms[self._gm.lm_at[source]] == source

    def on_resync_reply(self, message: ResyncReply, source: Address, now: Time) -> None:
        """Adopt the report of a leader; what goes with it may have come before this GM began anew."""
        fairness = self._gm.fairness
        if not message.is_whole or fairness.pictured(source):
            self._adopt(message, source)
            fairness.reported(source)

    def _adopt(self, message: ResyncReply, source: Address) -> None:
        gm, lm = self._gm, self._gm.lm_at[source]
        if message.epoch < self.epochs[lm] or (message.epoch > self.epochs[lm] and not message.is_whole):
            return
        if message.epoch > self.epochs[lm]:
            self.epochs[lm], gm.lms[lm], gm.last_update[source] = message.epoch, source, 0
            self._unconfirmed_tasks[lm] = self._tasks_at(lm)
            gm.view.begin_epoch(lm)
            gm.fairness.begin_epoch(lm, self._unconfirmed_tasks[lm])
        if message.is_whole:
            gm.fairness.adopt_picture(source, lm)
        freed = gm.learn(message.update, source)
        for active in message.running_attempts:
            self._runs(lm, active)
        for active in message.finished_attempts:
            self._has_finished(lm, active)
        if message.is_settled:
            doubted, self._unconfirmed_tasks[lm] = self._unconfirmed_tasks[lm], {}
            for task in doubted:
                self._running_orphans.pop(task, None)
            self._place_again([task for task in doubted if task in gm.placed])
            self._clusters_to_report.pop(lm, None)
        self._fenced_epochs[lm] = max(self._fenced_epochs[lm], message.fenced_epoch)
        if message.is_whole and self._moves and message.fenced_epoch < self._moves[-1].epoch:
            gm.send(source, Moved(self._moves))  # it may lead because whoever was sent them is gone
        gm.offer_all(freed)
        if not self._clusters_to_report and self._tasks_to_schedule:
            held_back, self._tasks_to_schedule = self._tasks_to_schedule, []
            jobs: dict[JobId, list[Task]] = {}
            for waiting in held_back:
                jobs.setdefault(waiting.job, []).append(waiting)
            for job, held in jobs.items():
                gm.schedule(held)
                self.maybe_forget(job)
        gm.answered(lm)

    def _tasks_at(self, lm: int) -> dict[TaskId, None]:
        """All tasks that run in a cluster, as far as is known."""
        lm_of = self._lm_of
        placed = {task: None for task, place in self._gm.placed.items() if lm_of[place[1]] == lm}
        found = {task: None for task, active in self._running_orphans.items() if lm_of[place_of(active.unit)[0]] == lm}
        return placed | found

    def _runs(self, lm: int, active: RunningAttempt) -> None:
        place = self._gm.placed.get(active.task)
        if place is not None and active.attempt < self._gm.attempt_of(active.task):
            return  # it was given up, and another attempt was made: that one is in doubt
        self._unconfirmed_tasks[lm].pop(active.task, None)
        if place is not None:
            self._follow(place[0], active)
        else:
            self._running_orphans[active.task] = active

    def _has_finished(self, lm: int, active: RunningAttempt) -> None:
        gm, job = self._gm, active.job
        if active.task in gm.placed:
            if active.attempt < gm.attempt_of(active.task):
                return  # it was given up, and another attempt was made
            del gm.placed[active.task]
            self._unconfirmed_tasks[lm].pop(active.task, None)
            self._count(lm, active)
            self.maybe_forget(job)
            gm.fairness.part_with(active.task)
        elif gm.jobs.is_done(job):
            self._forget([(lm, active.task)])
        elif (lm, active.task) not in self._results.get(job, ()):
            self._finished_orphans[active.task] = (lm, active)

    def _place_again(self, dead: Sequence[TaskId]) -> None:
        """Tasks whose attempt is dead go before all others, as another attempt."""
        gm = self._gm
        gm.narrator.lost(dead)
        for number in dead:
            gm.fairness.part_with(number)
        tasks = [gm.view.take_back(number) for number in dead]
        for task in tasks:
            epoch = self._move_epoch_of.get(task.job, 0)
            gm.attempts[task.id] = max(gm.attempt_of(task.id) + 1, self._first_of(epoch) if epoch else 0)
        gm.fairness.scheduled(tasks)
        for task in reversed(gm.place(gm.still_wanted(tasks))):
            gm.view.queue.push_front(task)
        gm.ask_all()

    def on_attempts_lost(self, message: AttemptsLost, source: Address, now: Time) -> None:
        """Place again the tasks of which the present attempt is dead."""
        dead: dict[TaskId, None] = {}
        for active in message.attempts:
            self._running_orphans.pop(active.task, None)
            attempt = self._gm.attempt_of(active.task)
            if active.task in self._gm.placed and attempt == active.attempt:
                dead[active.task] = None
        self._place_again(list(dead))
        self._gm.fairness.enforce()

    def on_leader_status(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """Send the epoch that is known."""
        self._gm.send(source, StaleEpoch(self.epochs[self._gm.lm_at[source]], self.term))


StateRecovery = NoReports | ReportRecovery
