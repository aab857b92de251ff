"""Failover of schedulers: jobs of one that does not answer go to another, after the store of jobs has recorded it.

`volery.core.assignment` decides; this module waits, writes down, and sends. A move is durable before anything that
depends on it is sent: the number of its epoch must not be given twice, over a restart of this program either. So
messages to schedulers wait while a move is written, jobs and greetings alike, and are sent in order after it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Final

from volery.core.assignment import Assignments, Owner
from volery.core.errors import InputError
from volery.core.events import PeerBack, PeerLost, Reassignment
from volery.core.model import SECOND, Address, JobId, Message, Time
from volery.live.clock import in_background, unix_now_us
from volery.live.service.batches import UnwrittenError, Written
from volery.live.service.ledgers import AssignmentLedger
from volery.look.text import utc

AGAIN_S: Final = 0.5
"""Between two tries to write a move down."""

KEPT_MIN: Final = 1_000
"""Jobs at another scheduler than usual that are remembered before ended ones are looked for among them."""

log = logging.getLogger(__name__)


class Failover:
    """Assigns jobs to schedulers, and moves them between schedulers.

    Args:
        entry_for: (job, user) -> the address that a job is submitted to while all schedulers answer.
        standins, detection_us: see `CrashRecovery`.
        book: of moves, in the store.
        written: runs a write and returns once it is committed.
        order: sends a message at once, after what was sent before.
        submit_again: submits jobs to their present schedulers again.
    """

    def __init__(
        self,
        entry_for: Callable[[JobId, str], Address],
        standins: Sequence[Address],
        detection_us: Time,
        book: AssignmentLedger,
        written: Written,
        order: Callable[[Address, Message], None],
        submit_again: Callable[[Sequence[JobId]], Coroutine[Any, Any, None]],
    ) -> None:
        self._assignments = Assignments(entry_for, standins, detection_us, book.moves())
        for job, owner in book.owners():
            if owner.entry in standins:  # the federation may have fewer schedulers than it had
                self._assignments.restore(job, owner)
        self._standins = standins
        self._book = book
        self._written = written
        self._order = order
        self._submit_again = submit_again
        self._kept_max = KEPT_MIN
        self._since_us: dict[Address, Time] = {}
        self._relieved_before = {move.origin for move in book.moves()}
        """Schedulers whose jobs were moved before this start, and that have not answered since."""
        self._timers: dict[Address, asyncio.TimerHandle] = {}
        self._moving: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._unwritten = 0
        self._waiting: list[Callable[[], None]] = []
        self._all_written = asyncio.Event()
        self._all_written.set()

    def entry(self, job: JobId, user: str) -> Address:
        return self._assignments.owner(job, user).entry

    def owner(self, job: JobId, user: str) -> Owner:
        """The scheduler that has a job, and since which epoch."""
        return self._assignments.owner(job, user)

    def choice(self, job: JobId, user: str) -> Address:
        """The scheduler that a new job would get."""
        return self._assignments.choice(job, user)

    def send(self, send: Callable[[], None]) -> None:
        """Send something to schedulers after all that was sent before, and not before each move so far is committed."""
        if self._unwritten:
            self._waiting.append(send)
        else:
            send()

    @property
    def is_settled(self) -> bool:
        return not self._unwritten

    async def settled(self) -> None:
        await self._all_written.wait()

    def assign(self, job: JobId, user: str) -> None:
        """Choose the scheduler of a new job, within the batch that writes the job."""
        usual = self._assignments.owner(job, user)
        owner = self._assignments.assign(job, user)
        if owner != usual:
            self._book.note([job], owner, f"at {owner.entry}, because {usual.entry} does not answer")
            self._maybe_forget()

    def _maybe_forget(self) -> None:
        """Forget jobs that have ended, whenever twice as many are remembered as were open the last time."""
        if self._assignments.remembered_count > self._kept_max:
            self._assignments.keep(job for job, _ in self._book.open_jobs())
            self._kept_max = max(KEPT_MIN, 2 * self._assignments.remembered_count)

    def greet(self, entries: Iterable[Address]) -> None:
        """Send moves to schedulers that have restarted, or answer again, before they are sent jobs."""
        for entry in entries:
            if entry in self._standins:
                self._since_us.pop(entry, None)
                self._relieved_before.discard(entry)
                self._assignments.back(entry)
                self._send_greeting(entry)

    def _send_greeting(self, entry: Address) -> None:
        messages = tuple(self._assignments.greeting(entry))

        def greet() -> None:
            for message in messages:
                self._order(entry, message)

        self.send(greet)

    def greet_all_but(self, elsewhere: Collection[Address]) -> None:
        """Greet all schedulers that begin together with the job service."""
        self.greet([entry for entry in self._standins if entry not in elsewhere])

    def on_peer(self, event: PeerLost | PeerBack) -> None:
        """Wait for a scheduler that does not answer, then move its jobs."""
        entry = event.peer
        if isinstance(event, PeerBack):
            self.greet([entry])
        elif self._assignments.is_moving and entry in self._standins:
            self._since_us.setdefault(entry, unix_now_us())
            if not self._assignments.is_lost(entry):  # else its grace runs already, or is over
                self._assignments.lost(entry)
                self._wait(entry, 0 if entry in self._relieved_before else self._assignments.grace_us)

    def _wait(self, entry: Address, grace_us: Time) -> None:
        if (timer := self._timers.pop(entry, None)) is not None:
            timer.cancel()
        self._timers[entry] = asyncio.get_running_loop().call_later(grace_us / SECOND, self._maybe_move, entry)

    def _maybe_move(self, origin: Address) -> None:
        self._timers.pop(origin, None)
        move = self._assignments.next_move(origin)
        if move is not None:
            jobs = self._assignments.make(move, self._book.open_jobs())
            self._unwritten += 1
            self._all_written.clear()
            moving = in_background(self._move(move, jobs), f"the move of jobs from {move.origin} to {move.heir}")
            self._moving.add(moving)
            moving.add_done_callback(self._moving.discard)
        elif self._assignments.is_lost(origin):  # nobody answers who could take its jobs
            self._wait(origin, self._assignments.grace_us)

    async def _move(self, move: Reassignment, jobs: Sequence[JobId]) -> None:
        given_up = utc(self._since_us.get(move.origin, unix_now_us()))
        reason = f"{move.origin} does not answer and was given up at {given_up}"
        note = f"at {move.heir} since epoch {move.epoch}, because {reason}"
        try:
            async with self._writing:  # a later move of the same jobs is written later, whatever fails
                await self._write(move, jobs, note)
        except (InputError, sqlite3.Error):  # closed: nothing is sent, and the next start moves anew
            return
        self._unwritten -= 1
        if not self._unwritten:
            self._release()
        log.warning("%s: its %d open jobs go to %s, in epoch %d", reason, len(jobs), move.heir, move.epoch)
        for entry in (move.heir, move.origin):
            self._send_greeting(entry)
        await self._submit_again(jobs)

    async def _write(self, move: Reassignment, jobs: Sequence[JobId], note: str) -> None:
        while True:
            try:
                await self._written(lambda: self._book.add(move, jobs, note, unix_now_us()))
            except UnwrittenError:
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for send in waiting:
            send()
        self._all_written.set()

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._moving:
            task.cancel()
        if self._moving:
            await asyncio.wait(set(self._moving))
