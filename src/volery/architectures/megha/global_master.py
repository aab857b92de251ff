"""Megha's Global Master: matches tasks to units of the whole cluster on an eventually consistent view.

Free units, slots or amounts, are the business of its `ClusterView`. Attached where asked for, and else None: the shares
of users, gangs, the state after a crash, and reports of decisions with their reasons. Shares, gangs and recovery have
messages of their own, which their parts handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import Refusal, Request, StateUpdate, TasksEnded, UpdateRequest, Withdraw
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.view import ClusterView, Freed
from volery.core.component import Component, sent_to
from volery.core.events import (
    Cancel,
    Counted,
    Event,
    Fact,
    Look,
    Measured,
    MoreTasks,
    Reassignment,
    Seen,
    Submit,
)
from volery.core.model import Address, JobId, Key, Message, Task, TaskId, Time
from volery.policies.match import positions
from volery.roles.submission import ANSWERS, REFUSALS, SIGHTS, JobLedger

if TYPE_CHECKING:
    from volery.architectures.megha.gangs.scheduler import GangScheduler
    from volery.architectures.megha.near import NearView
    from volery.architectures.megha.printed.requests import SynchronousRequests
    from volery.architectures.megha.priorities import PriorityQueue
    from volery.architectures.megha.reasons import DecisionNarrator
    from volery.architectures.megha.recovery.reports import ReportRecovery
    from volery.architectures.megha.shares.fairness import WeightedFairness


class MasterParts(NamedTuple):
    """Parts of a Global Master that knows nothing yet."""

    view: ClusterView
    fairness: WeightedFairness | None = None
    recovery: ReportRecovery | None = None
    observer: DecisionNarrator | None = None
    synchronous: SynchronousRequests | None = None
    priorities: PriorityQueue | None = None
    near: NearView | None = None
    gangs: GangScheduler | None = None


class GlobalMaster(Component):
    """Searches internal partitions before external ones, and asks the Local Master before it trusts its view.

    Args:
        parts: Maker of its parts, of a component that knows of these moves of jobs.

    Attributes:
        view, fairness, recovery, observer, synchronous, gangs: Parts; all but the view may be None.
        priorities, near: The queue and the view, where priorities and input of tasks count; else None.
        jobs: Ledger of jobs.
        placed: Tasks that were requested and have not ended, of the view.
        lms: Local Master that leads, per cluster.
        lm_at: Cluster of a Local Master, by its address.
        last_update: Number of the last update received, by address of the Local Master.
        attempts: Numbers of attempts, of tasks that were placed more than once.
    """

    jobs: JobLedger

    def __init__(
        self,
        number: int,
        layout: Layout,
        config: MeghaConfig,
        parts: Callable[[GlobalMaster, tuple[Reassignment, ...]], MasterParts],
    ) -> None:
        self.number = number
        self.layout = layout
        self._config = config
        self._parts = parts
        self.restart(())

    def restart(self, moves: tuple[Reassignment, ...]) -> None:
        """Forget everything but these moves of jobs."""
        self.attempts: dict[TaskId, int] = {}
        self._requests = [0] * self.layout.lm_count
        self._asked_clusters: set[int] = set()
        parts = self._parts(self, moves)
        self.view, self.fairness, self.recovery, self.observer, self.synchronous, self.priorities, self.near = parts[:7]
        self.gangs = parts.gangs
        self.placed = self.view.placed

        # Recovery forwards the preemptions among lost attempts to the shares, so it comes first.
        self.attached = tuple([part for part in (self.recovery, self.fairness, self.gangs) if part is not None])
        self._has_plain_requests = self.recovery is None and self.fairness is None
        masters_of = self.recovery.masters_of if self.recovery is not None else lambda lm: (f"lm/{lm}",)
        masters = [masters_of(lm) for lm in range(self.layout.lm_count)]
        self.lms = [addresses[0] for addresses in masters]
        self.lm_at = {address: lm for lm, addresses in enumerate(masters) for address in addresses}
        self.last_update = dict.fromkeys(self.lm_at, 0)

    def start(self, now: Time) -> None:
        """Open the ledger of jobs; a new incarnation asks every cluster what runs there."""
        self.jobs = JobLedger(self._port.send, self._config.queue_max)
        if self.observer is not None:
            self.observer.start(now)
        if self.recovery is not None:
            self.recovery.start()

    def handle_attached(self, event: Event, source: Address, now: Time) -> None:
        """Pass an event of shares or of recovery to the part that knows it."""
        self._note(event, source, now)
        super().handle_attached(event, source, now)
        if self.synchronous is not None:
            self.synchronous.proceed()
        elif self.gangs is not None:
            self.gangs.proceed(now)

    def accepts(self, message: Message, source: Address) -> bool:
        """Find out whether a message of a Local Master is valid."""
        return self.recovery is None or self.recovery.accepts(message, source)

    # What parts ask for.

    def send(self, to: Address, message: Message) -> None:
        """Send a message of a part."""
        self._port.send(to, message)

    def observe(self, fact: Fact) -> None:
        """Report a fact of a part."""
        self._port.observe(fact)

    def set_timer(self, key: Key, at: Time) -> None:
        """Set a timer of a part."""
        self._port.set_timer(key, at)

    def attempt_of(self, task: TaskId) -> int:
        """Return the number of a task's present attempt."""
        return self.attempts.get(task, 0 if self.recovery is None else self.recovery.first_attempt)

    def address_request(self, lm: int, tasks: Sequence[Task]) -> tuple[int, tuple[Address, ...], int, int]:
        """Return number and receivers of the next request to a cluster, its leader's epoch, and the term of this GM."""
        number = self._requests[lm] = self._requests[lm] + 1
        recovery = self.recovery
        if recovery is None:
            return number, (self.lms[lm],), 0, 0
        return number, recovery.requested(lm, tasks), recovery.epochs[lm], recovery.term

    def knows_all(self) -> bool:
        """Find out whether all that runs is known."""
        return self.recovery is None or self.recovery.knows_all()

    def may_preempt(self) -> bool:
        """Find out whether a preemption may be requested now."""
        return self.synchronous is None or self.synchronous.may_preempt()

    def dequeued(self, task: Task, partition: int, offered: int, free: int) -> None:
        """Report tasks that had to let this one go first."""
        if self.observer is not None:
            self.observer.dequeued(task, partition, offered, free)

    def claimed(self, task: Task) -> None:
        """Report a task that takes the place of others."""
        if self.observer is not None:
            self.observer.claimed(task)

    def preempted(self, task: TaskId, attempt: int) -> bool:
        """Forget an attempt that was preempted; find out whether it is the present one of a placed task."""
        if self.recovery is not None:
            self.recovery.preempted(task, attempt)
        if task not in self.placed or self.attempt_of(task) != attempt:
            return False
        if self.observer is not None:
            self.observer.preempted(task)
        return True

    def lost(self, tasks: Iterable[TaskId]) -> None:
        """Report tasks whose attempts are dead."""
        if self.observer is not None:
            self.observer.lost(tasks)

    # Jobs.

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Schedule a job's tasks; those that fit nowhere now wait, those that fit no machine are reported."""
        self._note(message, source, now)
        if self.recovery is not None:
            self.recovery.submitted(message)
        if self.fairness is not None:
            self.fairness.submitted(message.job)
        if self.priorities is not None:
            self.priorities.submitted(message.job)
        if self.gangs is not None and message.job.gang is not None:
            self.gangs.submitted(message.job, now)
        if self.near is not None:
            self.near.locate(message.job.tasks, message.job.replicas)
        queued = self._queued_count()
        self._port.observe(Measured("queued_tasks", queued))
        self.schedule(self.jobs.admit(message, source, queued))
        self._proceed(now)
        self._maybe_forget(message.job.id)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Schedule a further chunk."""
        self._note(message, source, now)
        if self.near is not None:
            self.near.locate(message.tasks, message.replicas)
        self.schedule(self.jobs.more(message))
        self._proceed(now)
        self._maybe_forget(message.job)

    def on_look(self, message: Look, source: Address, now: Time) -> None:
        """Count the machines that have room in the view."""
        machines: set[int] = set()
        for partition, machine_at in enumerate(self.layout.machines):
            places = positions(self.view.room(partition, message.constraints, message.request))
            machines.update([machine_at[place] for place in places])
        self._port.send(source, Seen(message.number, len(machines)))

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's tasks that wait, and have the Local Masters kill those that are placed."""
        self._note(message, source, now)
        if not self.jobs.cancel(message, source):
            return

        placed: dict[int, list[TaskId]] = {}
        for task, partition, _ in self.placed.values():
            if task.job == message.job:
                placed.setdefault(self.layout.lm_of[partition], []).append(task.id)
        for lm, tasks in placed.items():
            self._port.send(self.lms[lm], Withdraw(tuple(tasks)))

        job = message.job

        # What waits ends here; what is placed ends when its node reports it.
        dropped = self.view.queue.remove(lambda task: task.job == job)
        if self.synchronous is not None:
            dropped += self.synchronous.line.remove(lambda task: task.job == job)
        if self.gangs is not None:
            dropped += self.gangs.cancelled(job)
        if self.observer is not None:
            self.observer.dropped(dropped)
        if dropped:
            self.jobs.finished(message.job, len(dropped))
        if self.recovery is not None:
            self.recovery.cancelled(message.job)

    def _maybe_forget(self, job: JobId) -> None:
        if self.recovery is not None:
            self.recovery.maybe_forget(job)

    # Placements.

    def place(self, tasks: Iterable[Task], *, is_first: bool = False) -> list[Task]:
        """Match and request tasks, or put them into line; return those that fit nowhere in the view."""
        return self.match(tasks) if self.synchronous is None else self.synchronous.admit(tasks, is_first=is_first)

    def match(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks; return those that fit nowhere in the view."""
        return self.view.place(tasks) if self.observer is None else self.observer.place(tasks)

    def schedule(self, tasks: Sequence[Task]) -> None:
        """Place tasks; those that fit nowhere now wait."""
        ready = tasks if self.recovery is None else self.recovery.ready(tasks)
        if ready is None or (self.gangs is not None and tasks and self.gangs.gathers(tasks, ready)):
            return
        for task in self.place(ready):
            # A task that fits no machine, even an empty one, would wait for ever.
            if self.view.satisfiable(task):
                self.view.queue.push(task)
            else:
                self.jobs.unsatisfiable(task.job)
        self.ask_all()
        if self.fairness is not None:
            self.fairness.scheduled(ready)

    def request_all(self, batches: Mapping[int, tuple[list[Task], list[int]]]) -> None:
        """Ask the Local Masters for units of these partitions."""
        for partition, (tasks, places) in batches.items():
            self.request(partition, tasks, places)
        # A match in another GM's partition is an external one.
        outside = self.view.search.external
        external = sum(len(batch[0]) for partition, batch in batches.items() if outside[partition])
        if external:
            self._port.observe(Counted("external_placements", external))

    def request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Ask a Local Master for units of a partition."""
        lm, batch_max = self.layout.lm_of[partition], self._config.batch_max
        for start in range(0, len(tasks), batch_max):
            batch, units = tuple(tasks[start : start + batch_max]), tuple(places[start : start + batch_max])
            if self._has_plain_requests:
                number = self._requests[lm] = self._requests[lm] + 1
                self.view.requested(lm, (number, partition, batch, units))
                self._port.send(self.lms[lm], Request(number, partition, batch, units))
                continue

            # Attempts tell apart placements of one task, which may be lost or preempted.
            number, addresses, epoch, term = self.address_request(lm, batch)
            self.view.requested(lm, (number, partition, batch, units))
            attempts = tuple([self.attempt_of(task.id) for task in batch])
            users = () if self.fairness is None else self.fairness.users_of(batch)
            request = Request(number, partition, batch, units, attempts, users, epoch, term)
            for address in addresses:
                self._port.send(address, request)
        if self.observer is not None:
            self.observer.requested(partition, tasks, places)

    def still_wanted(self, refused: Sequence[Task]) -> Sequence[Task]:
        """Return refused tasks without members of gangs, and those of cancelled jobs, which end here."""
        if self.gangs is not None:
            refused = self.gangs.returned(refused)
        cancelled = self.jobs.cancelled
        if not cancelled:
            return refused
        wanted = []
        for task in refused:
            if task.job in cancelled:
                self.jobs.finished(task.job)
            else:
                wanted.append(task)
        return wanted

    def ask_all(self) -> None:
        """While tasks wait, ask each Local Master for news once."""
        if self._config.ask and (self.view.queue.length or (self.gangs is not None and self.gangs.line)):
            for lm, address in enumerate(self.lms):
                if lm not in self._asked_clusters:
                    self._asked_clusters.add(lm)
                    self._port.send(address, UpdateRequest())

    def answered(self, lm: int) -> None:
        """Ask again: news has come, or the Local Master that was asked is gone."""
        self._asked_clusters.discard(lm)
        self.ask_all()

    # News.

    def on_tasks_ended(self, message: TasksEnded, source: Address, now: Time) -> None:
        """Offer the units of tasks that have ended to the queue, and count their jobs down."""
        self._note(message, source, now)
        jobs = () if self.recovery is None else self.recovery.ended(message.tasks, source)

        # Results and given-up tasks are noted while the view still knows the tasks.
        released = {} if self.fairness is None else self.fairness.ended(message.tasks)
        self.view.end(message, self.lm_at[source])
        for job, count in released.items():
            self.jobs.finished(job, count)
        self._proceed(now)
        for job in jobs:
            self._maybe_forget(job)

    def on_update(self, message: StateUpdate, source: Address, now: Time) -> None:
        """Adopt the news of a Local Master about its cluster, and use what has become free."""
        self._note(message, source, now)
        self.offer_all(self.learn(message, source))
        self.answered(self.lm_at[source])
        self._proceed(now)

    def learn(self, update: StateUpdate, source: Address) -> Freed:
        """Change the view, unless a later update of this Local Master has come before."""
        if update.number <= self.last_update[source]:
            return []
        # An update that was overtaken would bring back an older state.
        self.last_update[source] = update.number
        self._port.observe(Counted("updates"))
        return self.view.learn(update, self.lm_at[source])

    def offer_all(self, freed: Freed) -> None:
        """Give what has become free to the queue."""
        for partition, vector in freed:
            if self.view.queue.length:
                self.view.offer(partition, positions(vector))

    def on_refusal(self, message: Refusal, source: Address, now: Time) -> None:
        """Learn what is true there, then try the refused tasks again, before all others or after them."""
        self._note(message, source, now)
        if message.update.number <= self.last_update[source]:
            return  # a repeat, or older than a state that contains it

        if self.observer is not None:
            self.observer.refused(message.tasks)
        if self.fairness is not None:
            self.fairness.refused(message, now)
        refused = [self.view.take_back(task) for task in message.tasks if task in self.placed]
        self.view.count_refused(self.lm_at[source], len(refused))
        freed = self.learn(message.update, source)
        wanted = self.still_wanted(refused)

        # As in the published code of 2023 a refused task keeps its turn; in 2021 it goes to the tail (IV-B5), so that
        # what waits is offered first what the answer shows to be free.
        queue = self.view.queue
        if self._config.rescheduling == "tail":
            self.offer_all(freed)
            for task in self.place(wanted) if self._config.eager_retry else wanted:
                queue.push(task)
        else:
            for task in reversed(self.place(wanted, is_first=True) if self._config.eager_retry else wanted):
                queue.push_front(task)
            self.offer_all(freed)
        self.ask_all()
        self._proceed(now)

    def _proceed(self, now: Time) -> None:
        """Request what the event in hand has made possible, beside what was requested at once."""
        if self.synchronous is not None:
            self.synchronous.proceed()
        elif self.fairness is not None:
            self.fairness.enforce()
        elif self.gangs is not None:
            self.gangs.proceed(now)

    def _queued_count(self) -> int:
        length = self.view.queue.length + (0 if self.gangs is None else self.gangs.queued_count)
        return length + (0 if self.synchronous is None else self.synchronous.line.length)

    def _note(self, event: Event, source: Address, now: Time) -> None:
        if self.observer is not None:
            self.observer.receive(event, source, now)

    def believed_free(self) -> dict[int, int] | None:
        """Return the view, by machine."""
        return self.view.free_by_machine()

    def check(self) -> None:
        """Check that nothing waits for what is free in the view (unless refused tasks wait by design)."""
        if self._config.eager_retry and self.may_preempt():
            self.view.check()
        assert len(self.jobs) or not (self.placed or self._queued_count()), "tasks without an open job"
        if self.fairness is not None:
            self.fairness.check()

    def check_rest(self) -> None:
        """Check that no task is left, and nothing is taken in the view."""
        left = len(self.placed) + self._queued_count() + len(self.jobs)
        assert not left, "tasks are left"
        if self.gangs is not None:
            self.gangs.check_rest()
        self.view.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Look: on_look,
        TasksEnded: on_tasks_ended,
        StateUpdate: on_update,
        Refusal: on_refusal,
    }
    sends = ANSWERS | REFUSALS | SIGHTS | sent_to("lm", Request, Withdraw, UpdateRequest)
