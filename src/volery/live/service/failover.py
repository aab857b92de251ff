"""Failover of schedulers: jobs of one that does not answer go to another, which the store of jobs knows first.

`volery.core.assignment` decides; this module waits, writes down, and sends. A move is durable before anybody is told of
it: the number of its epoch must not be given twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Final

from volery.core.assignment import Assignments, Owner
from volery.core.errors import InputError
from volery.core.events import Move, PeerBack, PeerLost
from volery.core.model import SECOND, Address, JobId, Message, Time
from volery.live.service.assigned import AssignmentBook
from volery.live.service.errors import UnwrittenError

AGAIN_S: Final = 0.5
"""Between two tries to write a move down."""

log = logging.getLogger(__name__)


class Failover:
    """Knows the scheduler of every job, and moves jobs between schedulers.

    Args:
        entry_for: (job, user) -> the address that a job is submitted to while all schedulers answer.
        standins, detection_us: see `Deployment`.
        book: of moves, in the store.
        written: runs a write and returns once it is committed.
        send: sends messages to an address, after all that was sent there before.
        submit_again: submits jobs to their present schedulers again.
    """

    def __init__(
        self,
        entry_for: Callable[[JobId, str], Address],
        standins: Sequence[Address],
        detection_us: Time,
        book: AssignmentBook,
        written: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]],
        send: Callable[[Address, Iterable[Message]], None],
        submit_again: Callable[[Sequence[JobId]], Coroutine[Any, Any, None]],
    ) -> None:
        self._assignments = Assignments(entry_for, standins, detection_us, book.moves())
        for job, owner in book.owners():
            self._assignments.restore(job, owner)
        self._standins = standins
        self._book = book
        self._written = written
        self._send = send
        self._submit_again = submit_again
        self._since: dict[Address, float] = {}
        self._timers: dict[Address, asyncio.TimerHandle] = {}
        self._moving: dict[Address, asyncio.Task[None]] = {}

    def entry(self, job: JobId, user: str) -> Address:
        """The address of the scheduler that has a job."""
        return self._assignments.owner(job, user).entry

    def owner(self, job: JobId, user: str) -> Owner:
        """The scheduler that has a job, and since which epoch."""
        return self._assignments.owner(job, user)

    def unanswering(self) -> dict[Address, float]:
        """Schedulers that do not answer -> since when, seconds since 1970."""
        return dict(self._since)

    def assign(self, job: JobId, user: str) -> None:
        """Choose the scheduler of a new job, within the batch that writes the job."""
        usual = self._assignments.owner(job, user)
        owner = self._assignments.assign(job, user)
        if owner != usual:
            self._book.note([job], owner, f"at {owner.entry}, because {usual.entry} does not answer")

    def greet(self, entries: Iterable[Address]) -> None:
        """Have schedulers that have begun anew, or answer again, know of moves before they are sent jobs."""
        for entry in entries:
            if entry in self._standins:
                self._since.pop(entry, None)
                self._assignments.back(entry)
                self._send(entry, self._assignments.greeting(entry))

    def greet_all_but(self, elsewhere: Collection[Address]) -> None:
        """As `greet`, all that begin together with the desk."""
        self.greet([entry for entry in self._standins if entry not in elsewhere])

    def on_peer(self, event: PeerLost | PeerBack) -> None:
        """Wait for a scheduler that does not answer, then move its jobs."""
        entry = event.peer
        if isinstance(event, PeerBack):
            self.greet([entry])
        elif self._assignments.is_moving and entry in self._standins:
            self._since.setdefault(entry, time.time())
            self._assignments.lost(entry)
            self._wait(entry)

    def _wait(self, entry: Address) -> None:
        if (timer := self._timers.pop(entry, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[entry] = loop.call_later(self._assignments.grace_us / SECOND, self._maybe_move, entry)

    def _maybe_move(self, origin: Address) -> None:
        self._timers.pop(origin, None)
        move = self._assignments.next_move(origin)
        if move is not None:
            jobs = self._assignments.make(move, self._book.open_jobs())
            self._moving[origin] = asyncio.get_running_loop().create_task(self._move(move, jobs))
        elif self._assignments.is_lost(origin):  # nobody answers who could take its jobs
            self._wait(origin)

    async def _move(self, move: Move, jobs: Sequence[JobId]) -> None:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._since.get(move.origin, time.time())))
        reason = f"{move.origin} does not answer since {since}"
        note = f"at {move.heir} since epoch {move.epoch}, because {reason}"
        while True:
            try:
                await self._written(lambda: self._book.add(move, jobs, note, time.time_ns() // 1000))
                break
            except UnwrittenError:
                await asyncio.sleep(AGAIN_S)
            except InputError:  # the desk is closed
                return
        log.warning("%s: its %d open jobs go to %s, in epoch %d", reason, len(jobs), move.heir, move.epoch)
        for entry in (move.heir, move.origin):
            self._send(entry, self._assignments.greeting(entry))
        await self._submit_again(jobs)

    async def close(self) -> None:
        """Move nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._moving.values():
            task.cancel()
        if self._moving:
            await asyncio.wait(self._moving.values())
