"""Submissions of jobs to schedulers: sent at a bounded rate, and again to a scheduler that may have lost them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from volery.core.errors import InputError
from volery.core.events import Cancel, Event, JobDone
from volery.core.model import Address, JobId, Message, Time
from volery.live.config.constraints import Fleet
from volery.live.jobs import demands
from volery.live.service.admission import NewJob, Submission, wanted
from volery.live.service.batches import BatchWriter, UnwrittenError
from volery.live.service.failover import Failover
from volery.live.service.listings import OpenJob
from volery.live.service.store import JobStore
from volery.live.service.throttle import SubmitThrottle

log = logging.getLogger(__name__)


class JobSubmissions:
    """The jobs that schedulers have not finished, and the scheduler of each.

    Args:
        post: hands an event to the job service in the host's next turn.
        order: sends a message to a component.
        entry: the address that a job of a user is submitted to.
        standins, detection_us: see `Deployment`.

    Attributes:
        failover: moves jobs between schedulers.
    """

    def __init__(
        self, store: JobStore, fleet: Fleet, writer: BatchWriter, post: Callable[[Event], None],
        order: Callable[[Address, Message], None], entry: Callable[[JobId, str], Address],
        standins: Sequence[Address], detection_us: Time,
    ) -> None:  # fmt: skip
        self._store = store
        self._fleet = fleet
        self._writer = writer
        self._order = order
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
            self._resuming = asyncio.get_running_loop().create_task(self._resume(unfinished, elsewhere))

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

    def submit_rejected(self, number: JobId) -> None:
        """Submit a job again that its scheduler has rejected."""
        if (sent := self._sent.get(number)) is not None:
            self._submit(sent)

    def accepted(self, number: JobId, *, done: bool) -> None:
        """Forget a job that its scheduler has accepted, or has finished."""
        if done or self.failover.is_settled:
            self._sent.pop(number, None)  # not what waits for a move: it was another scheduler that has accepted it

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
            self._feed.submit(sent.number, owner.entry, sent.messages(owner.epoch))

    def withdraw(self, number: JobId, user: str) -> None:
        """Withdraw a job: nothing more of it is sent, and nothing that waits to be sent is before the order."""
        self._sent.pop(number, None)
        if self._held is not None:
            self._held.pop(number, None)
        self._feed.drop(number)
        self.failover.send(lambda: self._order(self.failover.entry(number, user), Cancel(number)))

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
            job = None if self._writer.closed else self._store.open_job(number)  # it may have ended by now
            if job is not None:
                await self._submit_again(job)

    async def _submit_again(self, job: OpenJob) -> None:
        try:
            needs = await wanted(demands(job.description, self._fleet))
        except InputError as error:
            reason = f"not submitted again: {error}"
            try:
                await self._writer.written(lambda: self._store.fail(job.id, reason, time.time_ns() // 1000))
            except UnwrittenError:
                log.error("job %d was %s; the next start will try it", job.id, reason)
            return
        if self._store.cancelling(job.id):  # perhaps meanwhile
            self.withdraw(job.id, job.description.user)
            return
        ended = self._store.ended_places(job.id)
        count = needs[-1].first + needs[-1].tasks - len(ended)
        if count:
            begun = self._store.begun(job.id)
            self._submit(Submission(job.id, job.first_task, job.description, self._fleet, count, ended, begun, True))
        else:
            self._sent.pop(job.id, None)
            self._writer.note(JobDone(job.id))
