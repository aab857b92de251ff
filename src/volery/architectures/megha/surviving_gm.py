"""Megha's Global Master where components may crash: a cache of what Local Masters and submitters know.

It believes the leader of each cluster and nobody else there. When another one begins to lead, its report says what runs
and what has finished; what it does not mention is in doubt until the cluster has settled, and then lost. A new
incarnation knows nothing: its jobs are submitted again, and it schedules none of their tasks before every cluster has
told what runs. It alone numbers attempts. When its jobs were moved to another GM it begins anew, too. The heir has
every cluster fenced and reported before it schedules tasks of these jobs. What its view holds, units or amounts, is
the business of the roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.layout import Layout
from volery.architectures.megha.messages import (
    ATTEMPTS,
    MOVE_SHIFT,
    Ask,
    Denied,
    Ended,
    Holdings,
    Inconsistency,
    Join,
    Lost,
    Ousted,
    Refusal,
    Report,
    Request,
    StateUpdate,
    Taken,
    Update,
    Withdraw,
    Yield,
    place_of,
)
from volery.architectures.megha.recovery import pair_of
from volery.core.component import sent_to
from volery.core.events import Cancel, MoreTasks, Move, Moved, Submit
from volery.core.model import Address, JobId, Message, Task, TaskId, Time
from volery.roles.recovery.leases import Active, Deposed, Forget, Inquire
from volery.roles.submission import ANSWERS, REFUSALS, SIGHTS

FROM_LEADERS: Final = frozenset(
    {Ended, Update, StateUpdate, Inconsistency, Refusal, Lost, Holdings, Denied, Taken, Yield, Ousted}
)
"""The messages of a Local Master that are void unless it leads. A report says itself who leads."""


class Surviving(GlobalMaster):
    """Matches as ever, and settles with new leaders what they and it believe.

    Args:
        gm, layout: see `GlobalMaster`.
        incarnation: of this component.
        moves: of jobs from one GM to another, of which this component knows.
        arguments: of the Global Master that it stands before.
    """

    def __init__(
        self, gm: int, layout: Layout, *, incarnation: int, moves: tuple[Move, ...] = (), **arguments: Any
    ) -> None:
        super().__init__(gm, layout, **arguments)
        self._begin_anew = partial(
            type(self).__init__,
            self,
            gm,
            layout,
            incarnation=incarnation,
            **arguments,
        )
        self._moves = moves
        self._term = max((move.epoch for move in moves if move.origin == f"gm/{gm}"), default=0)
        incarnation_or_term = incarnation or self._term
        self._fenced = [0] * layout.lm_count
        self._inherited: dict[JobId, int] = {}
        self._lm_at = {address: lm for lm in range(layout.lm_count) for address in pair_of(lm)}
        self._heard = dict.fromkeys(self._lm_at, 0)
        self._epochs = [-1 if incarnation_or_term else 0] * layout.lm_count
        self._first_attempt = incarnation * ATTEMPTS
        self._attempts: dict[TaskId, int] = {}
        self._unknown: dict[int, None] = dict.fromkeys(range(layout.lm_count if incarnation_or_term else 0))
        self._doubted: list[dict[TaskId, None]] = [{} for _ in range(layout.lm_count)]
        self._held_back: list[Task] = []
        self._found: dict[TaskId, Active] = {}
        self._over: dict[TaskId, tuple[int, Active]] = {}
        self._results: dict[JobId, list[tuple[int, TaskId]]] = {}

    # What the roles differ in.

    def _adopt_report(self, message: Report, source: Address) -> list[tuple[int, int]]:
        """Change the view; return per partition where more is free now."""
        raise NotImplementedError

    def _begin_epoch(self, lm: int) -> None:
        """What was asked of the leader of before is void."""

    def _entry_of(self, task: Task, active: Active) -> tuple[Task, int, int]:
        """The task as one that is placed."""
        raise NotImplementedError

    def _offer_unit(self, active: Active) -> None:
        """What the attempt had is free in the view."""
        raise NotImplementedError

    def _push_front(self, task: Task) -> None:
        """It waits before all others."""
        raise NotImplementedError

    # What they have in common.

    def start(self, now: Time) -> None:
        """A new incarnation asks every cluster what runs there."""
        super().start(now)
        for address in self._lm_at if self._unknown else ():
            self._port.send(address, Join(self._term))

    def _attempt_of(self, task: TaskId) -> int:
        return self._attempts.get(task, self._first_attempt)

    def heeds(self, message: Message, source: Address) -> bool:
        """Whether a message is of the leader of a cluster, or not one that leaders alone send."""
        return type(message) not in FROM_LEADERS or self._believes(source)

    def _believes(self, source: Address) -> bool:
        return self._lms[self._lm_at[source]] == source

    def _placement(self, number: int, partition: int, tasks: tuple[Task, ...], places: tuple[int, ...]) -> Request:
        epoch = self._epochs[self._layout.lm_of[partition]]
        attempts = tuple([self._attempt_of(task.id) for task in tasks])
        return Request(number, partition, tasks, places, attempts, (), epoch, self._term)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Schedule a further chunk."""
        super().on_more_tasks(message, source, now)
        self._maybe_forget(message.job)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Schedule a job; of one that is submitted again, or was moved here, some tasks may run or have finished."""
        if message.epoch and not self._jobs.is_done(message.job.id):
            self._inherited[message.job.id] = message.epoch
        super().on_submit(message, source, now)
        self._maybe_forget(message.job.id)

    def _schedule(self, tasks: Sequence[Task]) -> None:
        epoch = self._inherited.get(tasks[0].job, 0) if tasks and self._inherited else 0
        if epoch:
            for task in tasks:
                self._attempts.setdefault(task.id, self._first_of(epoch))
        if self._unknown or epoch > min(self._fenced):
            self._held_back += tasks
        elif self._found or self._over:
            super()._schedule([task for task in tasks if not self._recognised(task)])
        else:
            super()._schedule(tasks)

    def _first_of(self, epoch: int) -> int:
        return (epoch << MOVE_SHIFT) + self._first_attempt

    def on_moved(self, message: Moved, source: Address, now: Time) -> None:
        """Forget all jobs that were moved to another; have all clusters fenced against the origins of the others."""
        me, relieved = self._port.address, False
        if len(message.moves) > len(self._moves):
            self._moves = message.moves
            relieved = any(move.origin == me and move.epoch > self._term for move in message.moves)
        if relieved:
            self._begin_anew(moves=message.moves)
        for address in self._lm_at:
            self._port.send(address, message)
        if relieved:
            # After the moves: else Local Masters report attempts of the heirs as its own, and never that they ended.
            self.start(now)

    def _recognised(self, task: Task) -> bool:
        """Whether an earlier incarnation has placed the task: it runs, or has finished."""
        over, active = self._over.pop(task.id, None), self._found.pop(task.id, None)
        if active is not None and (over is None or over[1].attempt < active.attempt):
            self._follow(task, active)
            return True
        if over is not None:
            self._count(over[0], over[1])
        return over is not None

    def _follow(self, task: Task, active: Active) -> None:
        self._placed[task.id] = self._entry_of(task, active)
        self._attempts[task.id] = active.attempt

    def _count(self, lm: int, active: Active) -> None:
        """A result, once."""
        self._attempts.pop(active.task, None)
        self._results.setdefault(active.job, []).append((lm, active.task))
        self._jobs.finished(active.job)

    def _maybe_forget(self, job: JobId) -> None:
        """When a job is done, nobody need keep its results."""
        if self._jobs.is_done(job):
            self._inherited.pop(job, None)
            if job in self._results:
                self._forget(self._results.pop(job))

    def _forget(self, results: Iterable[tuple[int, TaskId]]) -> None:
        at: dict[int, list[TaskId]] = {}
        for lm, task in results:
            at.setdefault(lm, []).append(task)
        for lm, tasks in at.items():
            for address in pair_of(lm):
                self._port.send(address, Forget(tuple(tasks)))

    def on_report(self, message: Report, source: Address, now: Time) -> None:
        """Take over what a leader says of its cluster."""
        lm = self._lm_at[source]
        if message.epoch < self._epochs[lm] or (message.epoch > self._epochs[lm] and not message.whole):
            return
        if message.epoch > self._epochs[lm]:
            self._epochs[lm], self._lms[lm], self._heard[source] = message.epoch, source, 0
            self._doubted[lm] = self._at(lm)
            self._begin_epoch(lm)
        freed = self._adopt_report(message, source)
        for active in message.running:
            self._runs(lm, active)
        for active in message.finished:
            self._has_finished(lm, active)
        if message.settled:
            doubted, self._doubted[lm] = self._doubted[lm], {}
            for task in doubted:
                self._found.pop(task, None)
            self._place_again([task for task in doubted if task in self._placed])
            self._unknown.pop(lm, None)
        self._fenced[lm] = max(self._fenced[lm], message.fenced)
        if message.whole and self._moves and message.fenced < self._moves[-1].epoch:
            self._port.send(source, Moved(self._moves))  # it may lead because whoever was sent them is gone
        self._offer_all(freed)
        if not self._unknown and self._held_back:
            held_back, self._held_back = self._held_back, []
            jobs: dict[JobId, list[Task]] = {}
            for waiting in held_back:
                jobs.setdefault(waiting.job, []).append(waiting)
            for job, held in jobs.items():
                self._schedule(held)
                self._maybe_forget(job)
        self._answered(lm)

    def _at(self, lm: int) -> dict[TaskId, None]:
        """All tasks that run in a cluster, as far as is known."""
        lm_of = self._layout.lm_of
        placed = {task: None for task, place in self._placed.items() if lm_of[place[1]] == lm}
        found = {task: None for task, active in self._found.items() if lm_of[place_of(active.unit)[0]] == lm}
        return placed | found

    def _runs(self, lm: int, active: Active) -> None:
        place = self._placed.get(active.task)
        self._doubted[lm].pop(active.task, None)
        if place is not None:
            self._follow(place[0], active)
        else:
            self._found[active.task] = active

    def _has_finished(self, lm: int, active: Active) -> None:
        job = active.job
        if active.task in self._placed:
            if active.attempt < self._attempt_of(active.task):
                return  # it was given up, and another attempt was made
            del self._placed[active.task]
            self._doubted[lm].pop(active.task, None)
            self._count(lm, active)
            self._maybe_forget(job)
        elif self._jobs.is_done(job):
            self._forget([(lm, active.task)])
        elif (lm, active.task) not in self._results.get(job, ()):
            self._over[active.task] = (lm, active)

    def _place_again(self, dead: Iterable[TaskId]) -> None:
        """Tasks whose attempt is dead go before all others, as another attempt."""
        tasks = [self._taken_back(number) for number in dead]
        for task in tasks:
            epoch = self._inherited.get(task.job, 0)
            self._attempts[task.id] = max(self._attempt_of(task.id) + 1, self._first_of(epoch) if epoch else 0)
        wanted = self._still_wanted(tasks)
        for task in reversed(self._place(wanted)):
            self._push_front(task)
        if self._ask:
            self._ask_all()

    def on_lost(self, message: Lost, source: Address, now: Time) -> None:
        """Attempts are dead."""
        dead: dict[TaskId, None] = {}
        for active in message.attempts:
            self._found.pop(active.task, None)
            attempt = self._attempt_of(active.task)
            if active.task in self._placed and attempt == active.attempt:
                dead[active.task] = None
        self._place_again(dead)

    def _keep_results(self, tasks: Iterable[TaskId], lm: int) -> list[JobId]:
        """Before their ends are counted: who keeps the results of these tasks; returns their jobs."""
        jobs = dict[JobId, None]()
        for number in tasks:
            place = self._placed.get(number)
            if place is not None:
                jobs[place[0].job] = None
                self._results.setdefault(place[0].job, []).append((lm, number))
                self._attempts.pop(number, None)
            elif number in self._found:
                active = self._found.pop(number)
                self._over[number] = (lm, active)
                self._offer_unit(active)
        return list(jobs)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop what is held back, too."""
        job = message.job
        super().on_cancel(message, source, now)
        held_back = sum(task.job == job for task in self._held_back)
        if held_back:
            self._held_back = [task for task in self._held_back if task.job != job]
            self._jobs.finished(job, held_back)

    def on_inquire(self, message: Inquire, source: Address, now: Time) -> None:
        """Say which epoch is known."""
        self._port.send(source, Deposed(self._epochs[self._lm_at[source]], self._term))

    sends = ANSWERS | REFUSALS | SIGHTS | sent_to("lm", Request, Withdraw, Forget, Join, Moved, Deposed, Ask)


class SurvivingGlobalMaster(Surviving):
    """Its view is of units, which are bits."""

    def _adopt_report(self, message: Report, source: Address) -> list[tuple[int, int]]:
        assert isinstance(message.update, Update), "a report of units"
        return self._learn(message.update, source)

    def _entry_of(self, task: Task, active: Active) -> tuple[Task, int, int]:
        partition, position = place_of(active.unit)
        return task, partition, self._layout.bits[position]

    def _offer_unit(self, active: Active) -> None:
        partition, position = place_of(active.unit)
        self._free[partition] |= self._layout.bits[position]
        if self._queue.length:
            self._offer(partition, [position])

    def _push_front(self, task: Task) -> None:
        self._queue.push_front(task)

    def _request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        lm = self._layout.lm_of[partition]
        for at in range(0, len(tasks), self._batch_max):
            number = self._requests[lm] = self._requests[lm] + 1
            chunk = slice(at, at + self._batch_max)
            placement = self._placement(number, partition, tuple(tasks[chunk]), tuple(places[chunk]))
            self._port.send(self._lms[lm], placement)

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Tasks have finished; what the leader of before says, its successor repeats."""
        jobs = self._keep_results(message.tasks, self._lm_at[source])
        super().on_ended(message, source, now)
        for job in jobs:
            self._maybe_forget(job)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **GlobalMaster.receives,
        Report: Surviving.on_report,
        Lost: Surviving.on_lost,
        Moved: Surviving.on_moved,
        Inquire: Surviving.on_inquire,
    }
