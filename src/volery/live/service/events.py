"""Events of jobs and tasks: each change is read and encoded once, and goes only to those who follow its job.

A follower has a bounded queue. One that does not take its events in time loses the queue, not the events: it reads them
from the store again, from the revision up to which it has them, as one does that comes back after a while.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
from array import array
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from volery.core.model import JobId
from volery.live.clock import in_background, is_set_within
from volery.live.jobs import TASKS_MAX
from volery.live.service.batches import BatchWriter
from volery.live.service.store import JobStore
from volery.live.service.task_rows import WrittenRow
from volery.live.status import JobStatus, TaskStatus

CHANGES_MAX: Final = 500
"""Changes that are read, or sent, in one turn of the loop."""
QUEUE_MAX: Final = 1_000
"""Changes that wait for one follower."""
NEAR: Final = 10_000
"""Changes that are searched for those of some jobs; where there are more, the rows of these jobs are read."""
PLACES: Final = 4_096
"""Tasks of a job that are read in one turn, in some 2 ms."""
CROWD_S: Final = 0.0005
"""Time per follower of all jobs in which events gather: a hundred followers cost as ten would."""

_encode: Final = msgspec.json.Encoder().encode
_PACKED: Final = TASKS_MAX + 1
"""Revision and place of a task in one number, in the order of revisions; place 0 is the job itself."""

log = logging.getLogger(__name__)


class StatusChange:
    """A change of a job or of a task; the event is made of it when the first follower is sent it."""

    __slots__ = ("_event", "status")

    def __init__(self, status: JobStatus | TaskStatus) -> None:
        self.status = status
        self._event = b""

    @property
    def event(self) -> bytes:
        """The event as lines of a stream, without its id."""
        if not self._event:
            kind = b"job" if isinstance(self.status, JobStatus) else b"task"
            self._event = b"event: %s\ndata: %s\n\n" % (kind, _encode(self.status))
        return self._event


class ChangeBatch(NamedTuple):
    """Changes for a follower, in the order of their revisions; none, where nothing has changed for a while.

    Args:
        position: the follower has all up to this revision; None: these are of a job that was added to what it follows.
    """

    changes: Collection[StatusChange]
    position: int | None


class Follower:
    """A follower of all jobs, of those of a user, or of some.

    Args:
        last_revision: revision up to which it has all changes.
        jobs: the jobs that it follows; None: all that it may see.
        user: user whose jobs it may see; None: jobs of all users.

    Attributes:
        name: secret name under which jobs can be added.
    """

    def __init__(self, feed: EventFeed, last_revision: int, jobs: Iterable[JobId] | None, user: str | None) -> None:
        self.name = secrets.token_urlsafe(16)
        self.jobs = None if jobs is None else set(jobs)
        self.user = user
        self._feed = feed
        self._position = last_revision
        self._is_behind = True
        self._added_jobs: deque[JobId] = deque()
        self._queue: list[StatusChange] = []
        self._wake = asyncio.Event()

    def add(self, job: JobId) -> None:
        """Follow one more job, from its submission on."""
        if self.jobs is not None:
            self.jobs.add(job)
            self._added_jobs.append(job)
            self.wake()

    def offer(self, change: StatusChange) -> None:
        """Take a change into the queue, unless the follower reads it from the store, or has it already."""
        if self._is_behind or change.status.revision <= self._position:
            # The queue is lost, not its changes: they are read from the store again, from the position on.
            return
        if len(self._queue) == QUEUE_MAX:
            self._queue, self._is_behind = [], True
        else:
            self._queue.append(change)
        self.wake()

    def wake(self) -> None:
        """Look again for something to send."""
        self._wake.set()

    async def batches(self, patience_s: float) -> AsyncGenerator[ChangeBatch]:
        """The changes as they come, and an empty batch after each time of patience in which there were none."""
        with self._feed.joined(self):
            while self._feed.has(self):
                if self._is_behind:
                    async for changes in self._catch_up():
                        yield ChangeBatch(changes, self._position)
                elif self._added_jobs:
                    job = self._added_jobs.popleft()
                    async for changes in self._feed.history((job,), None, 0, self._feed.published):
                        self._forget_ended(changes)
                        yield ChangeBatch(changes, None)
                elif self._queue:
                    await asyncio.sleep(self._feed.pause_s(self))
                    changes, self._queue = self._queue, []
                    self._advance(changes)
                    if changes:  # else it has fallen behind during the pause
                        yield ChangeBatch(changes, self._position)
                else:
                    self._position = max(self._position, self._feed.published)
                    if not await self._wait(patience_s):
                        yield ChangeBatch((), self._position)

    async def _catch_up(self) -> AsyncIterator[list[StatusChange]]:
        """The changes between the position and what is published now; what comes later is offered meanwhile."""
        end = self._feed.published
        self._is_behind = False
        async for changes in self._feed.history(self.jobs, self.user, self._position, end):
            # Offers are compared with the position, so it may be ahead of the queue, never behind it.
            self._advance(changes)
            yield changes
        self._position = max(self._position, end)

    def _advance(self, changes: list[StatusChange]) -> None:
        if changes:
            self._position = max(self._position, changes[-1].status.revision)
            self._forget_ended(changes)

    def _forget_ended(self, changes: list[StatusChange]) -> None:
        if self.jobs is None:
            return
        for status in (change.status for change in changes):
            if isinstance(status, JobStatus) and status.ended:
                self._feed.forget(self, status.id)

    async def _wait(self, patience_s: float) -> bool:
        """Wait for something to send; false if there was nothing in time."""
        self._wake.clear()
        return await is_set_within(self._wake, patience_s)


class EventFeed:
    """Hands changes to followers after each commit.

    Args:
        store: store of jobs.
        writer: writer of the store; the feed ends with it.

    Attributes:
        published: the revision up to which everything was handed to followers.
    """

    def __init__(self, store: JobStore, writer: BatchWriter) -> None:
        self.published = store.revision
        self._store = store
        self._writer = writer
        self.reports_late_s = writer.reports_late_s
        self._by_name: dict[str, Follower] = {}
        self._of_all: dict[Follower, None] = {}
        self._of_job: dict[JobId, dict[Follower, None]] = {}
        self._users: dict[JobId, str] = {}
        self._committed_revision: int = store.revision
        self._changed_users: dict[JobId, str] = {}
        self._written_rows: list[WrittenRow] = []
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Publish from now on."""
        self._task = in_background(self._publish(), "the feed of events")

    async def close(self) -> None:
        """End all followers; call it once the writer takes nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._end_all()

    def on_commit(self) -> None:
        """Note the rows of a batch; called before the next batch begins, of which nobody sees anything yet."""
        users, rows = self._store.take_written()
        self._changed_users |= users
        self._written_rows += rows
        self._committed_revision = self._store.revision

    def follow(self, last_revision: int, jobs: Iterable[JobId] | None = None, user: str | None = None) -> Follower:
        """A follower; it joins when its first batch is asked for. A revision that is yet to come is the last one."""
        return Follower(self, min(last_revision, self._store.revision), jobs, user)

    def add(self, name: str, job: JobId, user: str | None) -> bool:
        """Add a job to what the follower of a name follows; false if there is none, or it may not see as much."""
        follower = self._by_name.get(name)
        if follower is None or follower.user != user:
            return False
        if follower.jobs is not None:
            self._of_job.setdefault(job, {})[follower] = None
            follower.add(job)
        return True

    @contextmanager
    def joined(self, follower: Follower) -> Iterator[None]:
        """Hand changes to a follower for the time of a `with`."""
        self._join(follower)
        try:
            yield
        finally:
            self._leave(follower)

    def _join(self, follower: Follower) -> None:
        self._by_name[follower.name] = follower
        if follower.jobs is None:
            self._of_all[follower] = None
        else:
            for job in follower.jobs:
                self._of_job.setdefault(job, {})[follower] = None

    def _leave(self, follower: Follower) -> None:
        self._by_name.pop(follower.name, None)
        self._of_all.pop(follower, None)
        for job in tuple(follower.jobs or ()):
            self.forget(follower, job)

    def forget(self, follower: Follower, job: JobId) -> None:
        """Hand nothing more of a job to a follower: it has ended."""
        if follower.jobs is not None:
            follower.jobs.discard(job)
        followers = self._of_job.get(job)
        if followers is not None:
            followers.pop(follower, None)
            if not followers:
                del self._of_job[job]

    def has(self, follower: Follower) -> bool:
        """True until the feed ends, or could not read what has changed."""
        return not self._writer.closed and follower.name in self._by_name

    def pause_s(self, follower: Follower) -> float:
        """The time in which events gather before they are sent: none for whoever is alone, or follows some jobs."""
        crowd = len(self._of_all)
        return CROWD_S * crowd if follower.jobs is None and crowd > 1 else 0.0

    # What has changed.

    async def _publish(self) -> None:
        while not self._writer.closed:
            commit_event = self._writer.committed
            try:
                await self._publish_changes()
            except Exception as error:  # whatever it is: without this task all followers would wait for ever
                text = "events could not be read, and their followers are sent away: %s"
                log.error(text, error, exc_info=None if isinstance(error, sqlite3.Error) else error)
                self._written_rows.clear()
                self.published = self._committed_revision
                self._end_all()

            await commit_event.wait()
        self._end_all()

    async def _publish_changes(self) -> None:
        """Hand over the rows that were committed since the last time; nothing is made of those that nobody follows."""
        end = self._committed_revision
        users, self._changed_users = self._changed_users, {}
        rows, self._written_rows = self._written_rows, []
        if not self._of_all and self._of_job.keys().isdisjoint(users):
            self.published = end
            return

        rows.sort(key=itemgetter(0))
        for first in range(0, len(rows), CHANGES_MAX):
            if self._writer.closed:
                return

            for revision, status_of, row in rows[first : first + CHANGES_MAX]:
                status = status_of(row)
                job = job_of(status)
                self._hand_over(StatusChange(status), job, users[job])
                self.published = revision

            await asyncio.sleep(0)

        self.published = end

    def _hand_over(self, change: StatusChange, job: JobId, user: str) -> None:
        for follower in self._of_job.get(job, ()):
            follower.offer(change)
        for follower in self._of_all:
            if follower.user is None or follower.user == user:
                follower.offer(change)

    def _user(self, status: JobStatus | TaskStatus) -> str:
        if isinstance(status, JobStatus):
            return status.user

        user = self._users.get(status.job)
        if user is None:
            try:
                job = self._store.job(status.job)
            except sqlite3.DatabaseError:  # nobody knows whose it is
                job = None

            if len(self._users) >= NEAR:
                self._users.clear()
            user = self._users[status.job] = job.user if job is not None else ""

        return user

    def _end_all(self) -> None:
        followers = tuple(self._by_name.values())
        for follower in followers:
            self._leave(follower)
            follower.wake()

    # What changed before.

    async def history(
        self, jobs: Collection[JobId] | None, user: str | None, start: int, end: int
    ) -> AsyncIterator[list[StatusChange]]:
        """Changes after a revision and up to another, in order; others have turns between the lists.

        A row that has changed since has a later revision, and is left to those who hand over what comes.
        """
        # Few changes are read one after the other; of many, a job's own rows are fewer.
        if jobs is None or end - start <= NEAR:
            batches = self._nearby(jobs, user, start, end)
        else:
            batches = self._far(jobs, start, end)
        async for statuses in batches:
            if statuses:
                yield [StatusChange(status) for status in statuses]

    async def _nearby(
        self, jobs: Collection[JobId] | None, user: str | None, last_revision: int, end: int
    ) -> AsyncIterator[list[JobStatus | TaskStatus]]:
        """All changes are read, and those of other jobs are left out."""
        while last_revision < end and not self._writer.closed:
            statuses = self._store.changes(last_revision, CHANGES_MAX, end)
            yield [
                status
                for status in statuses
                if (jobs is None or job_of(status) in jobs) and (user is None or self._user(status) == user)
            ]
            if not statuses:
                return

            last_revision = statuses[-1].revision
            await asyncio.sleep(0)

    async def _far(self, jobs: Collection[JobId], start: int, end: int) -> AsyncIterator[list[JobStatus | TaskStatus]]:
        """The rows of these jobs are looked through, then read in the order of their revisions."""
        pieces: list[tuple[JobId, array[int]]] = []
        for job in sorted(jobs):
            status = self._store.job(job)
            tasks = 0 if status is None else status.tasks

            if status is not None and start < status.revision <= end:
                pieces.append((job, array("q", (status.revision * _PACKED,))))

            for first in range(0, tasks, PLACES):
                if self._writer.closed:
                    return

                rows = self._store.revisions(job, first, first + PLACES, start, end)
                if rows:
                    # Only revisions are held, eight bytes per task: the rows themselves would fill the memory.
                    pieces.append((job, array("q", sorted(revision * _PACKED + 1 + place for revision, place in rows))))
                await asyncio.sleep(0)

        changes_in_order = merge(*(_numbered(job, piece) for job, piece in pieces))
        while not self._writer.closed and (packed_changes := list(islice(changes_in_order, CHANGES_MAX))):
            yield self._read(packed_changes)
            await asyncio.sleep(0)

    def _read(self, packed_changes: Iterable[tuple[int, JobId]]) -> list[JobStatus | TaskStatus]:
        """The jobs and tasks of packed revisions and places, without those that have changed since."""
        revisions = dict[tuple[JobId, int], int]()
        places = dict[JobId, list[int]]()
        for packed, job in packed_changes:
            revision, place = divmod(packed, _PACKED)
            revisions[job, place - 1] = revision
            places.setdefault(job, []).append(place - 1)

        statuses = list[JobStatus | TaskStatus]()
        for job, places_of_job in places.items():
            tasks = self._store.tasks_at(job, places_of_job)
            # A row that has changed since is left to those who hand over what comes.
            statuses += (task for task in tasks if task.revision == revisions[job, task.index])
            status = self._store.job(job) if (job, -1) in revisions else None
            if status is not None and status.revision == revisions[job, -1]:
                statuses.append(status)

        statuses.sort(key=lambda status: status.revision)
        return statuses


def _numbered(job: JobId, piece: array[int]) -> Iterator[tuple[int, JobId]]:
    return ((packed, job) for packed in piece)


def job_of(status: JobStatus | TaskStatus) -> JobId:
    """The job that has changed, or whose task has."""
    return status.id if isinstance(status, JobStatus) else status.job
