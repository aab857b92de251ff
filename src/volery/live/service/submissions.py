"""Submissions of jobs: planned, written to the store, and sent to schedulers at a bounded rate.

A job is compared with what is known under its key before it is written. One that has not ended is sent again to a
scheduler that may have lost it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from volery.core.errors import InputError
from volery.core.events import Cancel, Event, JobDone, MoreTasks, Submit
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
    with_tasks,
)
from volery.live.messages import identity_of, number_of
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
        post: hands an event to the job service in the host's next turn.
        order: sends a message to a component.
        entry: the address that a job of a user is submitted to.
        standins, detection_us: see `CrashRecovery`.
        token: the token of the tasks of a job of a user; empty: they get none.

    Attributes:
        failover: moves jobs between schedulers.
    """

    def __init__(
        self,
        store: JobStore,
        fleet: Fleet,
        writer: BatchWriter,
        post: Callable[[Event], None],
        order: Callable[[Address, Message], None],
        entry: Callable[[JobId, str], Address],
        standins: Sequence[Address],
        detection_us: Time,
        token: TokenOf = no_token,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._writer = writer
        self._order = order
        self._token = token
        self._feed = SubmitThrottle(post)
        self.failover = Failover(entry, standins, detection_us, store.assigned, writer.written, order, self._resubmit)
        self._held: dict[JobId, Submission] | None = None
        self._sent: dict[JobId, Submission] = {}
        self._resuming: asyncio.Task[None] | None = None

    def open(self, elsewhere: Collection[Address]) -> None:
        """Submit what had not ended when the store was last closed; what is submitted meanwhile is sent after it."""
        self.failover.greet_all_but(elsewhere)
        if unfinished := self._store.open_ids():
            self._held = {}
            self._resuming = in_background(self._resume(unfinished, elsewhere), "the resubmission of open jobs")

    async def _resume(self, unfinished: Sequence[JobId], elsewhere: Collection[Address]) -> None:
        try:
            await self._resubmit(unfinished, lambda entry: entry not in elsewhere)
        finally:
            held, self._held = self._held, None
            for sent in (held or {}).values():
                self._submit(sent)

    async def resubmit(self, entries: Collection[Address]) -> None:
        """Submit what has not ended to these entries."""
        await self._resubmit(self._store.open_ids(), lambda entry: entry in entries)

    def admit(self, job: NewJob) -> None:
        """Submit a job that is in the store."""
        sent = Submission(job.number, job.first, job.description, self._fleet, job.tasks)
        if self._held is None:
            self._submit(sent)
        else:
            self._held[job.number] = sent

    def submit_rejected(self, identity: JobId) -> None:
        """Submit a job again that its scheduler has rejected."""
        if (sent := self._sent.get(number_of(identity))) is not None and sent.identity == identity:
            self._submit(sent)

    def withdraw_given_up(self) -> None:
        """Withdraw the jobs that the store has ended before all their tasks had."""
        for number, user in self._store.take_given_up().items():
            self.withdraw(number, user)

    def accepted(self, identity: JobId, *, done: bool) -> None:
        """Forget a job that its scheduler has accepted, or has finished."""
        sent = self._sent.get(number_of(identity))
        if sent is not None and sent.identity == identity and (done or self.failover.is_settled):
            del self._sent[sent.number]  # not what waits for a move: it was another scheduler that has accepted it

    def assigned(self) -> dict[Address, int]:
        """Component -> how many jobs that have not ended are assigned to it."""
        return Counter(self.failover.entry(number, user) for number, user in self._store.open_users())

    async def stop(self) -> None:
        await self.failover.close()
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.wait((self._resuming,))

    def _submit(self, sent: Submission) -> None:
        self._sent[sent.number] = sent
        self.failover.send(lambda: self._feed_scheduler(sent))

    def _feed_scheduler(self, sent: Submission) -> None:
        """Begin to send a job to the scheduler that has it now, unless it was given up or submitted again meanwhile."""
        if self._sent.get(sent.number) is sent:
            owner = self.failover.owner(sent.number, sent.description.user)
            token = self._token(sent.number, sent.description.user)
            self._feed.submit(sent.number, owner.entry, sent.messages(owner.epoch, token))

    def withdraw(self, number: JobId, user: str) -> None:
        """Withdraw a job: nothing more of it is sent, and nothing that waits to be sent is before the order."""
        self._sent.pop(number, None)
        if self._held is not None:
            self._held.pop(number, None)
        self._feed.drop(number)
        first_task = self._store.first_task(number)
        assert first_task is not None, "a job that is cancelled is in the store"
        order = Cancel(identity_of(number, first_task))
        self.failover.send(lambda: self._order(self.failover.entry(number, user), order))

    async def _resubmit(self, numbers: Sequence[JobId], is_meant: Callable[[Address], bool] = lambda _: True) -> None:
        """Submit jobs of such entries again, the oldest first, as fast as they are sent."""
        for number in numbers:
            if self._writer.closed:
                return
            user = self._store.open_user(number)
            if user is None or not is_meant(self.failover.entry(number, user)):
                await asyncio.sleep(0)
                continue
            await self.failover.settled()
            await self._feed.room()
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
            needs = await wanted(demands(description, self._fleet))
        except (InputError, RowDamageError) as error:
            reason = f"not submitted again: {error}"
            try:
                await self._writer.written(lambda: self._store.fail(number, reason, unix_now_us()))
            except UnwrittenError:
                log.error("job %d was %s; the next start will try it", number, reason)
            return
        tasks = needs[-1].first + needs[-1].tasks
        ended, begun = await self._progress(number, tasks)
        if self._writer.closed or self._store.open_user(number) is None:  # meanwhile
            return
        if self._store.cancelling(number):
            self.withdraw(number, description.user)
        elif count := tasks - len(ended):
            self._submit(Submission(number, first_task, description, self._fleet, count, ended, begun, True))
        else:
            self._sent.pop(number, None)
            self._writer.note(JobDone(identity_of(number, first_task)))

    async def _progress(self, number: JobId, tasks: int) -> tuple[set[int], dict[int, tuple[int, int]]]:
        """The places of a job's tasks that have ended, and the attempts of those that have begun (see `begun`)."""
        ended, begun = set[int](), dict[int, tuple[int, int]]()
        for first in range(0, tasks, PLACES):
            ended.update(self._store.ended_places(number, first, first + PLACES))
            begun |= self._store.begun(number, first, first + PLACES)
            await asyncio.sleep(0)
            if self._writer.closed:
                break
        return ended, begun


class Submission(NamedTuple):
    """A job on its way to its scheduler.

    Args:
        number, first, description: see `NewJob`.
        left: so many of its tasks are to run.
        ended: places of the others.
        begun: see `JobStore.begun`.
        again: its scheduler may have received the job, or a part of it, before.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    fleet: Fleet
    left: int
    ended: Set[int] = frozenset()
    begun: Mapping[int, tuple[int, int]] = MappingProxyType({})
    again: bool = False

    @property
    def identity(self) -> JobId:
        return identity_of(self.number, self.first)

    def messages(self, epoch: int, token: str = "") -> Iterator[Message]:
        """The messages that submit it, made as they are taken; each call begins from the first one.

        Args:
            epoch: since which its scheduler has it.
            token: of its tasks.
        """
        everything = plan(self.description, self.identity, self.first, self.fleet, token=token)
        tasks = still_to_run((task for task, _ in everything), self.ended, self.begun)
        messages = submission(self.identity, tasks, self.left, self.description.user, TASKS_PER_TURN)
        first = next(messages)
        assert isinstance(first, Submit)
        yield msgspec.structs.replace(first, epoch=epoch)
        if self.again and self._was_sent_in_parts(first.job):
            # A scheduler that has the job takes nothing from `Submit`, and may lack some of these tasks.
            yield MoreTasks(self.identity, 0, first.job.tasks, left=self.left)
        yield from messages

    def _was_sent_in_parts(self, job: Job) -> bool:
        """True if the job may have needed several messages when it was first sent; tasks that have ended had a size."""
        return bool(self.ended) or len(job.tasks) < self.left


def still_to_run(tasks: Iterable[Task], ended: Set[int], begun: Mapping[int, tuple[int, int]]) -> Iterator[Task]:
    """The tasks of a job that is submitted again, without those that ended; the others carry their earlier attempts.

    Args:
        tasks: all of the job, in order.
        ended: the places of those that need not run again.
        begun: see `JobStore.begun`.
    """
    for place, task in enumerate(tasks):
        if place in begun and place not in ended:
            attempts, launched = begun[place]
            carried = msgspec.structs.replace(decode_payload(task.payload), attempts=attempts, launched=launched)
            yield msgspec.structs.replace(task, payload=encode_payload(carried))
        elif place not in ended:
            yield task


TASKS_PER_TURN: Final = 500
"""A scheduler decides about so many, with its reasons, in about 20 ms."""
WAITING_MAX: Final = 16
"""With more jobs than this on their way, further submissions wait."""


class Outgoing(Message, frozen=True):
    """Messages that the job service sends in its next turn; they stay on its host."""

    to: Address
    messages: tuple[Message, ...]


class SubmitThrottle:
    """Hands messages of submissions to the host, a bounded number of tasks per turn.

    A turn runs to its end before anything else does. A job of a million tasks, or a hundred thousand jobs that are
    submitted again after a restart, must not make one turn of it: other requests would wait meanwhile. Jobs that wait
    take turns, so that a small job is not behind a large one, and a job that is cancelled leaves at once. The messages
    of a job are made as they are sent, so that a job that waits takes no memory for its tasks.

    Args:
        post: hands an event to the job service in the host's next turn.
    """

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._waiting: dict[JobId, tuple[Address, Iterator[Message]]] = {}
        self._room = TASKS_PER_TURN
        self._timer: asyncio.Handle | None = None
        self._handed_s = 0.0
        self._changed = asyncio.Event()

    def submit(self, job: JobId, to: Address, messages: Iterator[Message]) -> None:
        """Send the messages of a job in the next turn, or as soon as there is room; they replace what waits of it."""
        self._waiting[job] = to, messages
        self._hand_over()

    def drop(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._changed.set()  # with nothing left to hand over, nothing else would wake those that wait for room

    async def room(self) -> None:
        """Wait until few jobs are on their way."""
        while len(self._waiting) > WAITING_MAX:
            self._changed.clear()
            await self._changed.wait()

    def _hand_over(self) -> None:
        waiting = self._waiting
        while waiting and self._room > 0:
            job = next(iter(waiting))
            to, messages = waiting.pop(job)
            message = next(messages, None)
            if message is not None:
                waiting[job] = to, messages
                self._room -= _weight(message)
                self._post(Outgoing(to, (message,)))
        self._changed.set()
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._handed_s = loop.time()
            self._timer = loop.call_soon(self._handled)

    def _handled(self) -> None:
        """The turn is over. While more waits, others get as much time as it took: tasks are started, for example."""
        loop = asyncio.get_running_loop()
        took_s = loop.time() - self._handed_s
        self._timer = loop.call_later(took_s, self._go_on) if self._waiting else loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._room = TASKS_PER_TURN
        if self._waiting:
            self._hand_over()


def _weight(message: Message) -> int:
    if isinstance(message, Submit):
        return 1 + len(message.job.tasks)
    return 1 + len(message.tasks) if isinstance(message, MoreTasks) else 1


WARNINGS_MAX: Final = 5
IMPOSSIBLE_MAX: Final = 10_000
"""Tasks of one job that no machine can run: each is a row that is written at once, while others wait."""


class ConflictError(InputError):
    """A key belongs to another job already."""


class NewJob(NamedTuple):
    """A job with its numbers.

    Args:
        description: as it was submitted, merged (see `merged`).
        encoded: the same, as it is kept.
        place: what errors call it.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    wanted: list[TaskDemand]
    place: str
    encoded: EncodedDescription

    @property
    def tasks(self) -> int:
        return self.wanted[-1].first + self.wanted[-1].tasks


async def wanted(demands: Iterator[TaskDemand]) -> list[TaskDemand]:
    """The needs of a job's tasks; others have turns meanwhile.

    Raises:
        InputError: as `demands`.
    """
    return [one async for one in in_slices(demands)]


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
        needs = await wanted(demands(description, fleet, place))
        impossible = [one for one in needs if one.obstacle]
        if (count := sum(one.tasks for one in impossible)) > IMPOSSIBLE_MAX:
            problem = f"no machine can run {count:,} of its tasks, more than the {IMPOSSIBLE_MAX:,} that are kept"
            raise InputError(f"{place}.tasks", f"{problem}; the first: {impossible[0].obstacle}")
        alike = await _merged(description)
        jobs.append(NewJob(at, first, alike, needs, place, await encoded_in_slices(alike)))
        first += jobs[-1].tasks
    return jobs


async def _merged(job: JobDescription) -> JobDescription:
    """A job as `merged` gives it; others have turns meanwhile."""
    if isinstance(job.tasks, int):
        return job
    return with_tasks(job, [one async for one in in_slices(merged_tasks(job.tasks))])


def admit(store: JobStore, jobs: Sequence[NewJob], now_us: Time, assign: Callable[[JobId, str], None]) -> list[Receipt]:
    """Write jobs into the batch that is under way; nothing is written before all of them are known to be sound.

    Args:
        assign: chooses the scheduler of a new job of a user.

    Raises:
        ConflictError: a key belongs to another job.
    """
    before: dict[tuple[str, str], tuple[NewJob, JobId]] = {}
    known = [_known(store, job, before) if job.description.key else None for job in jobs]
    return [receipt or _insert(store, job, now_us, assign) for job, receipt in zip(jobs, known, strict=True)]


def _known(store: JobStore, job: NewJob, before: dict[tuple[str, str], tuple[NewJob, JobId]]) -> Receipt | None:
    """The receipt of the job that was submitted under the same key, earlier or just before."""
    user, key = job.description.user, job.description.key
    if (twin := before.get((user, key))) is not None:
        number, same, which = twin[1], twin[0].encoded.digest == job.encoded.digest, twin[0].place
    elif found := store.job_with_key(user, key):
        number, same, which = found[0], store.describes(found[0], job.encoded.digest), f"job {found[0]}"
    else:
        before[user, key] = job, job.number
        return None
    if not same:
        problem = f"{key!r} is the key of {which}, which is described otherwise; take another key"
        raise ConflictError(f"{job.place}.key", problem)
    before[user, key] = job, number
    return Receipt(id=number, tasks=job.tasks, known=True)


def _insert(store: JobStore, job: NewJob, now_us: Time, assign: Callable[[JobId, str], None]) -> Receipt:
    refused = [one for one in job.wanted if one.obstacle]
    obstacles = [(place, one.obstacle) for one in refused for place in range(one.first, one.first + one.tasks)]
    store.insert(job.number, job.first, job.description, job.tasks, obstacles, now_us, job.encoded)
    assign(job.number, job.description.user)
    reasons = {one.obstacle: one.first for one in reversed(refused)}
    warnings = tuple([f"task {place} will never run: {reason}" for reason, place in sorted(reasons.items())])
    return Receipt(id=job.number, tasks=job.tasks, warnings=warnings[:WARNINGS_MAX])
