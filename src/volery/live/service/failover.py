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
from functools import partial
from typing import Any, Final

from volery.core.assignment import Assignments, Owner
from volery.core.errors import InputError
from volery.core.events import PeerBack, PeerLost, Reassignment
from volery.core.model import SECOND, Address, JobId, Message, Time
from volery.live.clock import in_background, unix_now_us
from volery.live.messages import Send
from volery.live.service.batches import UnwrittenError, Written
from volery.live.service.ledgers import AssignmentLedger
from volery.look.text import utc

AGAIN_S: Final = 0.5
"""Time between two attempts to write a move."""

KEPT_MIN: Final = 1_000
"""Jobs at another scheduler than usual up to which ended ones among them are not looked for."""

log = logging.getLogger(__name__)


class Failover:
    """Assigns jobs to schedulers, and moves them between schedulers.

    Args:
        entry_for: (job, user) -> the address that a job is submitted to while all schedulers answer.
        standins, detection_us: see `CrashRecovery`.
        book: ledger of moves, in the store.
        written: runs a write and returns once it is committed.
        submit_again: submits jobs to their present schedulers again.
    """

    def __init__(
        self,
        entry_for: Callable[[JobId, str], Address],
        standins: Sequence[Address],
        detection_us: Time,
        book: AssignmentLedger,
        written: Written,
        send: Send,
        submit_again: Callable[[Sequence[JobId]], Coroutine[Any, Any, None]],
    ) -> None:
        self._assignments = Assignments(entry_for, standins, detection_us, book.moves())
        for job, owner in book.owners():
            if owner.entry in standins:  # the federation may have fewer schedulers than it had
                self._assignments.restore(job, owner)

        self._standins = standins
        self._book = book
        self._written = written
        self._send = send
        self._submit_again = submit_again
        self._remembered_max = KEPT_MIN
        self._lost_since_us: dict[Address, Time] = {}
        self._earlier_origins = {move.origin for move in book.moves()}
        """Schedulers whose jobs were moved before this start, and that have not answered since."""
        self._timers: dict[Address, asyncio.TimerHandle] = {}
        self._move_tasks: set[asyncio.Task[None]] = set()
        self._write_lock = asyncio.Lock()
        self._unwritten_moves = 0
        self._queued_calls: list[Callable[[], None]] = []
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

    def call_when_settled(self, call: Callable[[], None]) -> None:
        """Call what sends something to schedulers, in order and not before each move so far is committed."""
        if self._unwritten_moves:
            self._queued_calls.append(call)
        else:
            call()

    @property
    def is_settled(self) -> bool:
        return not self._unwritten_moves

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
        if self._assignments.remembered_count > self._remembered_max:
            self._assignments.keep(job for job, _ in self._book.open_jobs())
            self._remembered_max = max(KEPT_MIN, 2 * self._assignments.remembered_count)

    def greet(self, entries: Iterable[Address]) -> None:
        """Send moves to schedulers that have restarted, or answer again, before they are sent jobs."""
        for entry in entries:
            if entry in self._standins:
                self._lost_since_us.pop(entry, None)
                self._earlier_origins.discard(entry)
                self._assignments.back(entry)
                self._send_greeting(entry)

    def _send_greeting(self, entry: Address) -> None:
        self.call_when_settled(partial(self._send_all, entry, tuple(self._assignments.greeting(entry))))

    def _send_all(self, to: Address, messages: Iterable[Message]) -> None:
        for message in messages:
            self._send(to, message)

    def greet_all_but(self, elsewhere: Collection[Address]) -> None:
        """Greet all schedulers that begin together with the job service."""
        self.greet([entry for entry in self._standins if entry not in elsewhere])

    def on_peer(self, event: PeerLost | PeerBack) -> None:
        """Wait for a scheduler that does not answer, then move its jobs."""
        entry = event.peer
        if isinstance(event, PeerBack):
            self.greet([entry])
        elif self._assignments.is_moving and entry in self._standins:
            self._lost_since_us.setdefault(entry, unix_now_us())
            if not self._assignments.is_lost(entry):  # else its grace runs already, or is over
                self._assignments.lost(entry)
                # One whose jobs were moved before this start has had its grace: its heir has them already.
                grace_us = 0 if entry in self._earlier_origins else self._assignments.grace_us
                self._wait(entry, grace_us)

    def _wait(self, entry: Address, grace_us: Time) -> None:
        if (timer := self._timers.pop(entry, None)) is not None:
            timer.cancel()
        self._timers[entry] = asyncio.get_running_loop().call_later(grace_us / SECOND, self._maybe_move, entry)

    def _maybe_move(self, origin: Address) -> None:
        self._timers.pop(origin, None)
        move = self._assignments.next_move(origin)
        if move is not None:
            jobs = self._assignments.make(move, self._book.open_jobs())
            self._unwritten_moves += 1
            self._all_written.clear()
            move_task = in_background(self._move(move, jobs), f"the move of jobs from {move.origin} to {move.heir}")
            self._move_tasks.add(move_task)
            move_task.add_done_callback(self._move_tasks.discard)
        elif self._assignments.is_lost(origin):  # nobody answers who could take its jobs
            self._wait(origin, self._assignments.grace_us)

    async def _move(self, move: Reassignment, jobs: Sequence[JobId]) -> None:
        lost_since = utc(self._lost_since_us.get(move.origin, unix_now_us()))
        reason = f"{move.origin} does not answer and was given up at {lost_since}"
        note = f"at {move.heir} since epoch {move.epoch}, because {reason}"

        try:
            async with self._write_lock:  # a later move of the same jobs is written later, whatever fails
                await self._write(move, jobs, note)
        except (InputError, sqlite3.Error):  # closed: nothing is sent, and the next start moves them again
            return

        self._unwritten_moves -= 1
        if not self._unwritten_moves:
            self._make_queued_calls()

        log.warning("%s: its %d open jobs go to %s, in epoch %d", reason, len(jobs), move.heir, move.epoch)

        # The heir learns of the move before it gets the jobs; the origin, if it answers again, that they are gone.
        for entry in (move.heir, move.origin):
            self._send_greeting(entry)

        await self._submit_again(jobs)

    async def _write(self, move: Reassignment, jobs: Sequence[JobId], note: str) -> None:
        while True:
            try:
                await self._written(partial(self._record, move, jobs, note))
            except UnwrittenError:
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def _record(self, move: Reassignment, jobs: Sequence[JobId], note: str) -> None:
        self._book.add(move, jobs, note, unix_now_us())

    def _make_queued_calls(self) -> None:
        calls, self._queued_calls = self._queued_calls, []
        for call in calls:
            call()
        self._all_written.set()

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._move_tasks:
            task.cancel()
        if self._move_tasks:
            await asyncio.wait(set(self._move_tasks))
