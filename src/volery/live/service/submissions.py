"""Submissions of jobs: planned, written to the store, and sent to schedulers at a bounded rate.

A job is compared with what is known under its key before it is written. One that has not ended is sent again to a
scheduler that may have lost it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, MoreTasks, Submit
from volery.core.model import Address, Job, JobId, Message, Task, TaskId, Time
from volery.live.clock import in_background, in_slices, unix_now_us
from volery.live.command import decode_payload, encode_payload
from volery.live.config.constraints import Fleet
from volery.live.jobs import (
    JobDescription,
    TaskDemand,
    demand_commands,
    demands,
    merged_tasks,
    plan,
    submission,
    task_count,
    with_tasks,
)
from volery.live.messages import Send, identity_of, number_of
from volery.live.service.batches import BatchWriter, UnwrittenError
from volery.live.service.checksums import RowDamageError
from volery.live.service.descriptions import EncodedDescription, encoded_in_slices
from volery.live.service.events import PLACES
from volery.live.service.failover import Failover
from volery.live.service.store import JobStore
from volery.live.status import Receipt

log = logging.getLogger(__name__)

TokenOf = Callable[[JobId, str], str]


def no_token(_job: JobId, _user: str) -> str:
    return ""


class JobSubmissions:
    """The jobs that schedulers have not finished, and the scheduler of each.

    Args:
        entry: the address that a job of a user is submitted to.
        standins, detection_us: see `CrashRecovery`.
        token: makes the token of the tasks of a job of a user; empty: they get none.

    Attributes:
        failover: moves jobs between schedulers.
    """

    def __init__(
        self,
        store: JobStore,
        fleet: Fleet,
        writer: BatchWriter,
        send: Send,
        entry: Callable[[JobId, str], Address],
        standins: Sequence[Address],
        detection_us: Time,
        token: TokenOf = no_token,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._writer = writer
        self._send = send
        self._token = token
        self._throttle = SubmitThrottle(send)
        self.failover = Failover(entry, standins, detection_us, store.assigned, writer.written, send, self._resubmit)
        self._deferred_jobs: dict[JobId, Submission] | None = None
        self._unaccepted_jobs: dict[JobId, Submission] = {}
        self._resume_task: asyncio.Task[None] | None = None
        self._numbers = store.first_numbers()

    def open(self, elsewhere: Collection[Address]) -> None:
        """Submit what had not ended when the store was last closed; what is submitted meanwhile is sent after it."""
        self.failover.greet_all_but(elsewhere)
        if open_jobs := self._store.open_ids():
            self._deferred_jobs = {}
            self._resume_task = in_background(self._resume(open_jobs, elsewhere), "the resubmission of open jobs")

    async def _resume(self, open_jobs: Sequence[JobId], elsewhere: Collection[Address]) -> None:
        try:
            await self._resubmit(open_jobs, without=elsewhere)
        finally:
            deferred_jobs, self._deferred_jobs = self._deferred_jobs, None
            for job in (deferred_jobs or {}).values():
                self._send_when_settled(job)

    async def resubmit(self, entries: Collection[Address]) -> None:
        """Submit what has not ended to these entries."""
        await self._resubmit(self._store.open_ids(), only=entries)

    async def submit(self, descriptions: Sequence[JobDescription], places: Sequence[str]) -> list[Receipt]:
        """Write jobs to the store in one commit, all of them or none, and begin to send them.

        Args:
            places: name of each job in errors.

        Raises:
            InputError: constraints that the fleet gives no meaning to, or a key that belongs to another job.
        """
        # Numbers are taken before the first wait, so that jobs which are submitted meanwhile get the next ones.
        number, first = self._numbers
        self._numbers = end = number + len(places), first + sum(map(task_count, descriptions))
        try:
            jobs = await planned_jobs(descriptions, places, number, first, self._fleet)
        except InputError:
            if self._numbers == end:  # nobody has taken the next ones meanwhile
                self._numbers = number, first
            raise

        long_descriptions = [job.encoded for job in jobs if job.encoded.is_long]
        receipts = await self._writer.written(
            partial(self._insert_all, jobs),
            partial(self._store.keep, long_descriptions) if long_descriptions else None,
            partial(self._store.drop_unused, long_descriptions) if long_descriptions else None,
        )

        for job, receipt in zip(jobs, receipts, strict=True):
            if not receipt.known:
                self.start_sending(job)

        return receipts

    def _insert_all(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        return insert_all(self._store, jobs, unix_now_us(), self.failover.assign)

    def start_sending(self, job: NewJob) -> None:
        """Send a new job that is in the store to its scheduler, after those that an earlier start has left."""
        new_submission = Submission(job.number, job.first, job.description, self._fleet, job.tasks)
        if self._deferred_jobs is None:
            self._send_when_settled(new_submission)
        else:
            self._deferred_jobs[job.number] = new_submission

    def submit_rejected(self, identity: JobId) -> None:
        """Submit a job again that its scheduler has rejected."""
        # The same number may belong to a job of another incarnation of the store.
        if (job := self._unaccepted_jobs.get(number_of(identity))) is not None and job.identity == identity:
            self._send_when_settled(job)

    def withdraw_given_up(self) -> None:
        """Withdraw the jobs that the store has ended before all their tasks had."""
        for number, user in self._store.take_given_up().items():
            self.withdraw(number, user)

    def accepted(self, identity: JobId, *, is_done: bool) -> None:
        """Forget a job that its scheduler has accepted, or has finished."""
        job = self._unaccepted_jobs.get(number_of(identity))
        # While a move of jobs waits to be written, it may be the former scheduler that has accepted this one.
        if job is not None and job.identity == identity and (is_done or self.failover.is_settled):
            del self._unaccepted_jobs[job.number]

    def scheduler(self, user: str, job: JobId | None = None) -> Address:
        """The scheduler of a job, or the one that a user's next job would get."""
        return self.failover.choice(self._numbers[0], user) if job is None else self.failover.entry(job, user)

    def assigned(self) -> dict[Address, int]:
        """Component -> how many jobs that have not ended are assigned to it."""
        return Counter(self.failover.entry(number, user) for number, user in self._store.open_users())

    async def stop(self) -> None:
        await self.failover.close()
        if self._resume_task is not None:
            self._resume_task.cancel()
            await asyncio.wait((self._resume_task,))

    def _send_when_settled(self, job: Submission) -> None:
        self._unaccepted_jobs[job.number] = job
        self.failover.call_when_settled(partial(self._pass_to_throttle, job))

    def _pass_to_throttle(self, job: Submission) -> None:
        """Begin to send a job to the scheduler that has it now, unless it was given up or submitted again meanwhile."""
        if self._unaccepted_jobs.get(job.number) is job:
            owner = self.failover.owner(job.number, job.description.user)
            token = self._token(job.number, job.description.user)
            self._throttle.enqueue(job.number, owner.entry, job.messages(owner.epoch, token))

    def withdraw(self, number: JobId, user: str) -> None:
        """Withdraw a job: nothing more of it is sent, and nothing that waits to be sent is before the order."""
        self._unaccepted_jobs.pop(number, None)
        if self._deferred_jobs is not None:
            self._deferred_jobs.pop(number, None)
        self._throttle.drop(number)

        first_task = self._store.first_task(number)
        assert first_task is not None, "a job that is cancelled is in the store"
        cancel = Cancel(identity_of(number, first_task))
        self.failover.call_when_settled(partial(self._send_cancel, number, user, cancel))

    def _send_cancel(self, number: JobId, user: str, cancel: Cancel) -> None:
        self._send(self.failover.entry(number, user), cancel)

    async def _resubmit(
        self, numbers: Sequence[JobId], only: Collection[Address] | None = None, without: Collection[Address] = ()
    ) -> None:
        """Submit jobs of some entries again, the oldest first, as fast as they are sent."""
        for number in numbers:
            if self._writer.closed:
                return

            user = self._store.open_user(number)
            entry = self.failover.entry(number, user) if user is not None else ""
            is_meant = entry not in without and (only is None or entry in only)
            # A turn for others: a hundred thousand jobs of other entries may be passed over.
            if user is None or not is_meant:
                await asyncio.sleep(0)
                continue

            await self.failover.settled()
            await self._throttle.room()
            if not self._writer.closed and self._store.open_user(number) is not None:  # it may have ended by now
                await self._submit_again(number)

    async def _submit_again(self, number: JobId) -> None:
        first_task = self._store.first_task(number)
        try:
            if damage := self._store.damage.get(number):
                raise RowDamageError(damage)
            description = await self._store.descriptions.whole(number)
            if description is None or first_task is None:
                return
            needs = await checked_demands(demands(description, self._fleet))
        except (InputError, RowDamageError) as error:
            reason = f"not submitted again: {error}"
            try:
                await self._writer.written(partial(self._fail, number, reason))
            except UnwrittenError:
                log.error("job %d was %s; the next start will try it", number, reason)
            return

        tasks = needs[-1].first + needs[-1].tasks
        ended, attempts = await self._progress(number, tasks)

        if self._writer.closed or self._store.open_user(number) is None:  # while it was read
            return

        if self._store.cancelling(number):
            self.withdraw(number, description.user)
        elif count := tasks - len(ended):
            self._send_when_settled(
                Submission(number, first_task, description, self._fleet, count, ended, attempts, True)
            )
        else:
            # All tasks have ended, but the answer of the scheduler was lost: it is made here.
            self._unaccepted_jobs.pop(number, None)
            self._writer.note(JobDone(identity_of(number, first_task)))

    def _fail(self, number: JobId, reason: str) -> None:
        self._store.fail(number, reason, unix_now_us())

    async def _progress(self, number: JobId, tasks: int) -> tuple[set[int], dict[int, tuple[int, int]]]:
        """The places of a job's tasks that have ended, and earlier attempts of the others (see `JobStore.begun`)."""
        ended, attempts = set[int](), dict[int, tuple[int, int]]()
        for first in range(0, tasks, PLACES):
            ended.update(self._store.ended_places(number, first, first + PLACES))
            attempts |= self._store.begun(number, first, first + PLACES)
            await asyncio.sleep(0)
            if self._writer.closed:
                break
        return ended, attempts


class Submission(NamedTuple):
    """A job on its way to its scheduler.

    Args:
        number, first, description: see `NewJob`.
        tasks_left: number of its tasks that are still to run.
        ended: places of the tasks that have ended.
        attempts: earlier attempts by place, see `JobStore.begun`.
        is_repeated: its scheduler may have received the job, or a part of it, before.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    fleet: Fleet
    tasks_left: int
    ended: Set[int] = frozenset()
    attempts: Mapping[int, tuple[int, int]] = MappingProxyType({})
    is_repeated: bool = False

    @property
    def identity(self) -> JobId:
        return identity_of(self.number, self.first)

    def messages(self, epoch: int, token: str = "") -> Iterator[Message]:
        """The messages that submit it, made as they are taken; each call begins from the first one.

        Args:
            epoch: epoch since which its scheduler has the job.
            token: token of its tasks.
        """
        planned_tasks = plan(self.description, self.identity, self.first, self.fleet, token=token)
        tasks = still_to_run((task for task, _ in planned_tasks), self.ended, self.attempts)
        messages = submission(self.identity, tasks, self.tasks_left, self.description.user, TASKS_PER_TURN)
        first = next(messages)
        assert isinstance(first, Submit)
        yield msgspec.structs.replace(first, epoch=epoch)
        if self.is_repeated and self._was_sent_in_parts(first.job):
            # A scheduler that has the job takes nothing from `Submit`, and may lack some of these tasks.
            yield MoreTasks(self.identity, 0, first.job.tasks, left=self.tasks_left)

        yield from messages

    def _was_sent_in_parts(self, job: Job) -> bool:
        """True if the job may have needed several messages when it was first sent; tasks that have ended had a size."""
        return bool(self.ended) or len(job.tasks) < self.tasks_left


def still_to_run(tasks: Iterable[Task], ended: Set[int], attempts: Mapping[int, tuple[int, int]]) -> Iterator[Task]:
    """The tasks of a job that is submitted again, without those that ended; the others carry their earlier attempts.

    Args:
        tasks: all tasks of the job, in order.
        ended: places of tasks that need not run again.
        attempts: earlier attempts by place, see `JobStore.begun`.
    """
    for place, task in enumerate(tasks):
        if place in attempts and place not in ended:
            attempt_count, launched = attempts[place]
            payload = msgspec.structs.replace(decode_payload(task.payload), attempts=attempt_count, launched=launched)
            yield msgspec.structs.replace(task, payload=encode_payload(payload))
        elif place not in ended:
            yield task


TASKS_PER_TURN: Final = 500
"""Tasks that a scheduler decides about, with its reasons, in about 20 ms."""
WAITING_MAX: Final = 16
"""Jobs on their way to schedulers; with more of them, further submissions wait."""


class SubmitThrottle:
    """Hands messages of submissions to the host, a bounded number of tasks per turn.

    A turn runs to its end before anything else does. A job of a million tasks, or a hundred thousand jobs that are
    submitted again after a restart, must not make one turn of it: other requests would wait meanwhile. Jobs that wait
    take turns, so that a small job is not behind a large one, and a job that is cancelled leaves at once. The messages
    of a job are made as they are sent, so that a job that waits takes no memory for its tasks.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queued_jobs: dict[JobId, tuple[Address, Iterator[Message]]] = {}
        self._budget = TASKS_PER_TURN
        self._timer: asyncio.Handle | None = None
        self._turn_start_s = 0.0
        self._queue_change = asyncio.Event()

    def enqueue(self, job: JobId, to: Address, messages: Iterator[Message]) -> None:
        """Send the messages of a job in the next turn, or as soon as there is room; they replace what waits of it."""
        self._queued_jobs[job] = to, messages
        self._hand_over()

    def drop(self, job: JobId) -> None:
        self._queued_jobs.pop(job, None)
        self._queue_change.set()  # with nothing left to hand over, nothing else would wake those that wait for room

    async def room(self) -> None:
        """Wait until few jobs are on their way."""
        while len(self._queued_jobs) > WAITING_MAX:
            self._queue_change.clear()
            await self._queue_change.wait()

    def _hand_over(self) -> None:
        queued = self._queued_jobs
        while queued and self._budget > 0:
            job = next(iter(queued))
            to, messages = queued.pop(job)
            message = next(messages, None)
            if message is not None:
                # At the end of the line: jobs take turns.
                queued[job] = to, messages
                self._budget -= _weight(message)
                self._send(to, message)

        self._queue_change.set()

        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._turn_start_s = loop.time()
            self._timer = loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """End the turn. While jobs wait, other work, as starts of tasks, gets as much time as the turn took."""
        loop = asyncio.get_running_loop()
        took_s = loop.time() - self._turn_start_s
        self._timer = (
            loop.call_later(took_s, self._begin_turn) if self._queued_jobs else loop.call_soon(self._begin_turn)
        )

    def _begin_turn(self) -> None:
        self._timer = None
        self._budget = TASKS_PER_TURN
        if self._queued_jobs:
            self._hand_over()


def _weight(message: Message) -> int:
    if isinstance(message, Submit):
        return 1 + len(message.job.tasks)
    return 1 + len(message.tasks) if isinstance(message, MoreTasks) else 1


WARNINGS_MAX: Final = 5
IMPOSSIBLE_MAX: Final = 10_000
"""Tasks of one job that no machine can run; each is a row that is written at once, while other jobs wait."""


class ConflictError(InputError):
    """A key belongs to another job already."""


class NewJob(NamedTuple):
    """A job with its numbers.

    Args:
        description: as it was submitted, merged (see `merged`).
        encoded: the same description, as it is stored.
        place: name of the job in errors.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    demands: list[TaskDemand]
    place: str
    encoded: EncodedDescription

    @property
    def tasks(self) -> int:
        return self.demands[-1].first + self.demands[-1].tasks


async def checked_demands(demands: Iterator[TaskDemand]) -> list[TaskDemand]:
    """The demands of a job's tasks, all made; other coroutines have turns meanwhile.

    Raises:
        InputError: as `demands`.
    """
    return [demand async for demand in in_slices(demands)]


async def planned_jobs(
    descriptions: Sequence[JobDescription], places: Sequence[str], number: JobId, first: TaskId, fleet: Fleet
) -> list[NewJob]:
    """Jobs that are numbered from `number` on, and their tasks from `first` on.

    Raises:
        InputError: constraints that the fleet gives no meaning to, or calls that it does not run.
    """
    jobs: list[NewJob] = []
    for at, (description, place) in enumerate(zip(descriptions, places, strict=True), number):
        if not fleet.calls:
            demand_commands(description, place)

        needs = await checked_demands(demands(description, fleet, place))

        impossible = [demand for demand in needs if demand.obstacle]
        if (count := sum(demand.tasks for demand in impossible)) > IMPOSSIBLE_MAX:
            problem = f"no machine can run {count:,} of its tasks, more than the {IMPOSSIBLE_MAX:,} that are kept"
            raise InputError(f"{place}.tasks", f"{problem}; the first: {impossible[0].obstacle}")

        merged_job = await _merged(description)
        jobs.append(NewJob(at, first, merged_job, needs, place, await encoded_in_slices(merged_job)))
        first += jobs[-1].tasks

    return jobs


async def _merged(job: JobDescription) -> JobDescription:
    """A job as `merged` gives it; others have turns meanwhile."""
    if isinstance(job.tasks, int):
        return job
    return with_tasks(job, [task async for task in in_slices(merged_tasks(job.tasks))])


def insert_all(
    store: JobStore, jobs: Sequence[NewJob], now_us: Time, assign: Callable[[JobId, str], None]
) -> list[Receipt]:
    """Write jobs into the batch that is under way; nothing is written before all of them are known to be sound.

    Args:
        assign: chooses the scheduler of a new job of a user.

    Raises:
        ConflictError: a key belongs to another job.
    """
    jobs_by_key: dict[tuple[str, str], tuple[NewJob, JobId]] = {}
    earlier = [_earlier_receipt(store, job, jobs_by_key) if job.description.key else None for job in jobs]
    return [receipt or _insert(store, job, now_us, assign) for job, receipt in zip(jobs, earlier, strict=True)]


def _earlier_receipt(
    store: JobStore, job: NewJob, jobs_by_key: dict[tuple[str, str], tuple[NewJob, JobId]]
) -> Receipt | None:
    """The receipt of the job that was submitted under the same key, earlier or just before."""
    user, key = job.description.user, job.description.key
    if (earlier_job := jobs_by_key.get((user, key))) is not None:
        number = earlier_job[1]
        is_same = earlier_job[0].encoded.digest == job.encoded.digest
        name = earlier_job[0].place
    elif stored_job := store.job_with_key(user, key):
        number = stored_job[0]
        is_same = store.describes(stored_job[0], job.encoded.digest)
        name = f"job {stored_job[0]}"
    else:
        jobs_by_key[user, key] = job, job.number
        return None

    if not is_same:
        problem = f"{key!r} is the key of {name}, which is described otherwise; take another key"
        raise ConflictError(f"{job.place}.key", problem)

    jobs_by_key[user, key] = job, number
    return Receipt(id=number, tasks=job.tasks, known=True)


def _insert(store: JobStore, job: NewJob, now_us: Time, assign: Callable[[JobId, str], None]) -> Receipt:
    refused = [demand for demand in job.demands if demand.obstacle]
    obstacles = [(place, item.obstacle) for item in refused for place in range(item.first, item.first + item.tasks)]
    store.insert(job.number, job.first, job.description, job.tasks, obstacles, now_us, job.encoded)
    assign(job.number, job.description.user)

    # Each reason once, with the first task that it is true of.
    reasons = {demand.obstacle: demand.first for demand in reversed(refused)}
    warnings = tuple([f"task {place} will never run: {reason}" for reason, place in sorted(reasons.items())])
    return Receipt(id=job.number, tasks=job.tasks, warnings=warnings[:WARNINGS_MAX])
