"""Megha's Global Master: matches tasks to units of the whole cluster on an eventually consistent view.

Free units, slots or amounts, are the business of its `ClusterView`; holdings of users, of its `Fairness`; leaders of
clusters, and what runs there after a crash, of its `StateRecovery`; reports of decisions, of its `Narrator`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from volery.architectures.megha.decisions import Narrator
from volery.architectures.megha.fairness import Fairness, WeightedFairness
from volery.architectures.megha.messages import (
    AttemptsLost,
    Holdings,
    PreemptionDone,
    PreemptionRequest,
    Refusal,
    Request,
    ResyncReply,
    StateUpdate,
    TasksEnded,
    UpdateRequest,
    Withdraw,
)
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.parts import of_part
from volery.architectures.megha.reports import ReportRecovery, StateRecovery
from volery.architectures.megha.view import ClusterView, Freed
from volery.core.component import Component, Sends, sent_to
from volery.core.events import (
    Cancel,
    Counted,
    Fact,
    Look,
    Measured,
    MoreTasks,
    Moved,
    Reassignment,
    Reweigh,
    Seen,
    Submit,
    TimerFired,
)
from volery.core.model import Address, Key, Message, Task, TaskId, Time
from volery.policies.match import positions
from volery.roles.recovery.leases import LeaderStatus
from volery.roles.submission import ANSWERS, REFUSALS, SIGHTS, JobLedger

Rescheduling = Literal["head", "tail"]
ALWAYS = frozenset({Submit, MoreTasks, Cancel, Look, TasksEnded, StateUpdate, Refusal})
OWN = ANSWERS | REFUSALS | SIGHTS | sent_to("lm", Request, Withdraw, UpdateRequest)
"""Messages that it sends whatever its parts are."""


class MasterParts(NamedTuple):
    """Parts of a Global Master that knows nothing yet."""

    view: ClusterView
    fairness: Fairness
    recovery: StateRecovery
    narrator: Narrator


class GlobalMaster(Component):
    """Searches internal partitions before external ones, and asks the Local Master before it trusts its view.

    Args:
        parts: makes its parts, of a component that knows of these moves of jobs.
        batch_max: placements per request.
        eager_retry: place a task whose placement was invalid at once; otherwise it waits at the head of the queue for
            the next unit that becomes free (the published code).
        rescheduling: where a refused task goes that fits nowhere in the view: before all others, as in the published
            code of 2023, or to the tail (arXiv 2103.08413, section IV-B5).
        queue_max: see `JobLedger`.
        ask: whether Local Masters are asked for news while tasks wait, or they wait for the heartbeat, as in the paper.

    Attributes:
        view, fairness, recovery, narrator: its parts.
        jobs: the ledger of jobs.
        placed: tasks that were requested and have not ended, of the view.
        lms: per cluster, the Local Master that leads.
        lm_at: address of a Local Master -> its cluster.
        heard: address of a Local Master -> the last update received from it.
        attempts: of tasks that were placed more than once.
    """

    jobs: JobLedger

    def __init__(
        self,
        number: int,
        layout: Layout,
        parts: Callable[[tuple[Reassignment, ...]], MasterParts],
        *,
        batch_max: int,
        eager_retry: bool,
        rescheduling: Rescheduling,
        queue_max: int,
        ask: bool = False,
    ) -> None:
        self.number = number
        self.layout = layout
        self.eager_retry = eager_retry
        self._parts = parts
        self._batch_max = batch_max
        self._tail = rescheduling == "tail"
        self._queue_max = queue_max
        self._ask = ask
        self.begin_anew(())

    def begin_anew(self, moves: tuple[Reassignment, ...]) -> None:
        """Forget everything but these moves of jobs."""
        self.view, self.fairness, self.recovery, self.narrator = self._parts(moves)
        self.placed = self.view.placed
        self.attempts: dict[TaskId, int] = {}
        masters = [self.recovery.masters_of(lm) for lm in range(self.layout.lm_count)]
        self.lms = [addresses[0] for addresses in masters]
        self.lm_at = {address: lm for lm, addresses in enumerate(masters) for address in addresses}
        self.last_update = dict.fromkeys(self.lm_at, 0)
        self._requests = [0] * self.layout.lm_count
        self._asked: set[int] = set()
        self._numbered = self.recovery.paired or isinstance(self.fairness, WeightedFairness)
        self.recovery.join(self)
        self.view.join(self)
        self.fairness.join(self)
        self.narrator.join(self)

    def start(self, now: Time) -> None:
        """Open the ledger of jobs; a new incarnation asks every cluster what runs there."""
        self.jobs = JobLedger(self._port.send, self._queue_max)
        self.narrator.start(now)
        self.recovery.start()

    def takes(self) -> Collection[type]:
        """Return the types of events that its parts know of."""
        return ALWAYS | self.fairness.takes | self.recovery.takes

    def emits(self) -> Sends:
        """Return the messages that its parts send."""
        return OWN | self.fairness.sends | self.recovery.sends

    def send(self, to: Address, message: Message) -> None:
        """Send a message of a part's."""
        self._port.send(to, message)

    def observe(self, fact: Fact) -> None:
        """Report a fact of a part's."""
        self._port.observe(fact)

    def set_timer(self, key: Key, at: Time) -> None:
        """Set a timer of a part's."""
        self._port.set_timer(key, at)

    def heeds(self, message: Message, source: Address) -> bool:
        """Find out whether a message of a Local Master is valid."""
        return not isinstance(self.recovery, ReportRecovery) or self.recovery.heeds(message, source)

    # Jobs.

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Schedule a job's tasks; those that fit nowhere now wait, those that fit no machine are reported."""
        self.recovery.submitted(message)
        self.fairness.submitted(message.job)
        queued = self.view.queue.length
        self._port.observe(Measured("queued_tasks", queued))
        self.schedule(self.jobs.admit(message, source, queued))
        self.fairness.enforce()
        self.recovery.maybe_forget(message.job.id)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Schedule a further chunk."""
        self.schedule(self.jobs.more(message))
        self.fairness.enforce()
        self.recovery.maybe_forget(message.job)

    def on_look(self, message: Look, source: Address, now: Time) -> None:
        """Count the machines that have room in the view."""
        machines: set[int] = set()
        for partition, here in enumerate(self.layout.machines):
            places = positions(self.view.room(partition, message.constraints, message.request))
            machines.update([here[place] for place in places])
        self._port.send(source, Seen(message.number, len(machines)))

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's tasks that wait, and have the Local Masters kill those that are placed."""
        if not self.jobs.cancel(message, source):
            return
        placed: dict[int, list[TaskId]] = {}
        for task, partition, _ in self.placed.values():
            if task.job == message.job:
                placed.setdefault(self.layout.lm_of[partition], []).append(task.id)
        for lm, tasks in placed.items():
            self._port.send(self.lms[lm], Withdraw(tuple(tasks)))
        job = message.job
        dropped = self.view.queue.remove(lambda task: task.job == job)
        self.narrator.dropped(dropped)
        if dropped:
            self.jobs.finished(message.job, len(dropped))
        self.recovery.cancelled(message.job)

    # Placements.

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks; return those that fit nowhere in the view."""
        return self.narrator.place(tasks)

    def schedule(self, tasks: Sequence[Task]) -> None:
        """Place tasks; those that fit nowhere now wait."""
        ready = self.recovery.ready(tasks)
        if ready is None:
            return
        for task in self.place(ready):
            if self.view.satisfiable(task):
                self.view.queue.push(task)
            else:
                self.jobs.unsatisfiable(task.job)
        self.ask_all()
        self.fairness.scheduled(ready)

    def request_all(self, batches: Mapping[int, tuple[list[Task], list[int]]]) -> None:
        """Ask the Local Masters for units of these partitions."""
        for partition, (tasks, places) in batches.items():
            self.request(partition, tasks, places)
        outside = self.view.search.external
        external = sum(len(batch[0]) for partition, batch in batches.items() if outside[partition])
        if external:
            self._port.observe(Counted("external_placements", external))

    def request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Ask a Local Master for units of a partition."""
        lm, recovery = self.layout.lm_of[partition], self.recovery
        for at in range(0, len(tasks), self._batch_max):
            number = self._requests[lm] = self._requests[lm] + 1
            some, where = tuple(tasks[at : at + self._batch_max]), tuple(places[at : at + self._batch_max])
            self.view.requested(lm, (number, partition, some, where))
            if self._numbered:
                attempts, users = tuple([self.attempt_of(task.id) for task in some]), self.fairness.users_of(some)
                epoch, term = recovery.epochs[lm], recovery.term
                request = Request(number, partition, some, where, attempts, users, epoch, term)
            else:
                request = Request(number, partition, some, where)
            for address in recovery.requested(lm, some):
                self._port.send(address, request)
        self.narrator.requested(partition, tasks, places)

    def next_request(self, lm: int) -> int:
        """Number of the next request to a cluster."""
        number = self._requests[lm] = self._requests[lm] + 1
        return number

    def attempt_of(self, task: TaskId) -> int:
        """Number of a task's present attempt."""
        return self.attempts.get(task, self.recovery.first_attempt)

    def ask_all(self) -> None:
        """While tasks wait, ask each Local Master for news once."""
        if self._ask and self.view.queue.length:
            for lm, address in enumerate(self.lms):
                if lm not in self._asked:
                    self._asked.add(lm)
                    self._port.send(address, UpdateRequest())

    def answered(self, lm: int) -> None:
        """Ask again: news has come, or the Local Master that was asked is gone."""
        self._asked.discard(lm)
        self.ask_all()

    # News.

    def on_tasks_ended(self, message: TasksEnded, source: Address, now: Time) -> None:
        """Offer the units of tasks that have ended to the queue, and count their jobs down."""
        jobs = self.recovery.ended(message.tasks, source)
        given_up = self.fairness.ended(message.tasks)
        self.view.end(message, self.lm_at[source])
        for job, count in given_up.items():
            self.jobs.finished(job, count)
        self.fairness.enforce()
        for job in jobs:
            self.recovery.maybe_forget(job)

    def on_update(self, message: StateUpdate, source: Address, now: Time) -> None:
        """Adopt the news of a Local Master about its cluster, and use what has become free."""
        self.offer_all(self.learn(message, source))
        self.answered(self.lm_at[source])
        self.fairness.enforce()

    def learn(self, update: StateUpdate, source: Address) -> Freed:
        """Change the view; an update older than the last one is stale."""
        if update.number <= self.last_update[source]:
            return []
        self.last_update[source] = update.number
        self._port.observe(Counted("updates"))
        return self.view.learn(update, self.lm_at[source])

    def offer_all(self, freed: Freed) -> None:
        """Give what has become free to the queue."""
        for partition, vector in freed:
            if self.view.queue.length:
                self.view.offer(partition, positions(vector))

    def on_refusal(self, message: Refusal, source: Address, now: Time) -> None:
        """Learn what is true there, then try the refused tasks again, before all others or after them.

        A repeat is stale.
        """
        if message.update.number <= self.last_update[source]:
            return
        self.narrator.refused(message.tasks)
        self.fairness.refused(message, now)
        back = [self.view.take_back(task) for task in message.tasks if task in self.placed]
        self.view.count_refused(self.lm_at[source], len(back))
        freed = self.learn(message.update, source)
        refused = self.still_wanted(back)
        queue = self.view.queue
        if self._tail:
            self.offer_all(freed)
            for task in self.place(refused) if self.eager_retry else refused:
                queue.push(task)
        else:
            for task in reversed(self.place(refused) if self.eager_retry else refused):
                queue.push_front(task)
            self.offer_all(freed)
        self.ask_all()
        self.fairness.enforce()

    def on_attempts_lost(self, message: AttemptsLost, source: Address, now: Time) -> None:
        """Take tasks back whose attempts were preempted, or are dead."""
        of_part(*(("fairness", "on_preempted") if message.is_preemption else ("recovery", "on_attempts_lost")))(
            self, message, source, now
        )

    def still_wanted(self, refused: Sequence[Task]) -> Sequence[Task]:
        """Refused tasks without those of cancelled jobs, which end here."""
        cancelled, wanted = self.jobs.cancelled, []
        if not cancelled:
            return refused
        for task in refused:
            if task.job in cancelled:
                self.jobs.finished(task.job)
            else:
                wanted.append(task)
        return wanted

    def believed_free(self) -> dict[int, int] | None:
        """Return the view, by machine."""
        return self.view.free_by_machine()

    def check(self) -> None:
        """Check that nothing waits for what is free in the view (unless refused tasks wait by design)."""
        if self.eager_retry:
            self.view.check()
        assert len(self.jobs) or not (self.placed or self.view.queue.length), "tasks without an open job"
        self.fairness.check()

    def check_rest(self) -> None:
        """Check that no task is left, and nothing is taken in the view."""
        left = len(self.placed) + self.view.queue.length + len(self.jobs)
        assert not left, "tasks are left"
        self.view.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Look: on_look,
        TasksEnded: on_tasks_ended,
        StateUpdate: on_update,
        Refusal: on_refusal,
        Reweigh: of_part("fairness", "on_reweigh"),
        Holdings: of_part("fairness", "on_holdings"),
        PreemptionDone: of_part("fairness", "on_preemption_done"),
        PreemptionRequest: of_part("fairness", "on_preemption_request"),
        TimerFired: of_part("fairness", "on_timer"),
        ResyncReply: of_part("recovery", "on_resync_reply"),
        AttemptsLost: on_attempts_lost,
        Moved: of_part("recovery", "on_moved"),
        LeaderStatus: of_part("recovery", "on_leader_status"),
    }
    sends = OWN | WeightedFairness.sends | ReportRecovery.sends  # of all parts: `emits` has those of one
