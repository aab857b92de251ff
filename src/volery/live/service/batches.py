"""Batches of writes to the store of jobs: while one commit is under way, the next batch gathers.

Beside the commits, each in a thread of its own, the log of the database is moved to its place and brought to the disk.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from volery.core.errors import InputError
from volery.core.model import Address, JobId, TaskId
from volery.live.clock import in_background, is_set_within, monotonic_now_us, unix_now_us
from volery.live.messages import ReportsStored, Send
from volery.live.service.store import JobStore, News

AGAIN_S: Final = 0.5
"""Time between two attempts to write to the store."""

T = TypeVar("T")
Written = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
"""Runs a write in the next batch, and returns its result when it is committed."""

log = logging.getLogger(__name__)


class ClosedError(InputError):
    """The store takes nothing more before the next start of the API."""


class UnwrittenError(Exception):
    """The store could not be written just now; nothing has happened, and the same may be asked again."""


class _Write:
    __slots__ = ("_error", "_future", "_result", "_write", "clean_up", "prepare")

    def __init__(
        self,
        write: Callable[[], Any],
        future: asyncio.Future[Any],
        prepare: Callable[[], None] | None = None,
        clean_up: Callable[[], None] | None = None,
    ) -> None:
        self.prepare, self.clean_up = prepare, clean_up
        self._write = write
        self._future = future
        self._result: Any = None
        self._error: Exception | None = None

    def make(self) -> None:
        try:
            self._result = self._write()
        except sqlite3.Error:  # it may have ended the transaction, and with it the whole batch
            raise
        except Exception as error:
            self._error = error

    def succeed(self) -> None:
        if self._error is not None:
            self.fail(self._error)
        elif not self._future.done():  # whoever waits may have given up
            self._future.set_result(self._result)

    def fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class BatchWriter:
    """Writes what has become of jobs and what users submit, a batch per commit.

    Args:
        store: store of jobs, which the writer closes.
        on_durable: is called with the revision up to which the disk has all changes, whenever it has more.

    Attributes:
        closed: true if it takes nothing more.
        problem: why the store cannot be written just now, or any more; empty where it can.
        reports_late_s: a job that is answered waits so long for reports of its tasks.
        commits, commit_s: batches that were written, and the time that took, in seconds.
    """

    def __init__(
        self,
        store: JobStore,
        send: Send,
        on_commit: Callable[[], None],
        reports_late_s: float,
        on_durable: Callable[[int], None] | None = None,
    ) -> None:
        self.closed = False
        self.problem = ""
        self.commits = 0
        self.commit_s = 0.0
        self._store = store
        self._send = send
        self._on_commit = on_commit
        self.reports_late_s = reports_late_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commits")
        self._on_durable = on_durable or _nobody_asks
        self._checkpoints = Checkpoints(store.checkpoint, self._note_all_durable)
        self._acknowledgements = Acknowledgements(self._sync, self._acknowledge)
        self._news: list[News] = []
        self._writes: list[_Write] = []
        self._wake = asyncio.Event()
        self._commit_event = asyncio.Event()
        self._write_task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._write_task = in_background(self._write(), "the writer of the store of jobs")

    def note(self, event: News) -> None:
        """Write in the next batch what has become of a job or an attempt."""
        self._news.append(event)
        if not self._wake.is_set():
            self._wake.set()

    def acknowledge(self, agent: Address, end: tuple[int, int]) -> None:
        """Acknowledge an end (task, attempt) to an agent once the disk has it."""
        self._acknowledgements.add(agent, end)

    async def written(
        self,
        write: Callable[[], T],
        prepare: Callable[[], None] | None = None,
        clean_up: Callable[[], None] | None = None,
    ) -> T:
        """The result of a write, once it is committed.

        Args:
            prepare, clean_up: long statements of the same batch before and after the write, which a thread executes.

        Raises:
            ClosedError: the writer is closed.
        """
        if self.closed:
            reason = f"its store has failed: {self.problem}" if self.problem else "it is shutting down"
            raise ClosedError("jobs", f"the federation takes nothing more, because {reason}; ask again later")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._writes.append(_Write(write, future, prepare, clean_up))
        self._wake.set()
        return await future  # type: ignore[no-any-return]  # it is what `write` gives

    @property
    def committed(self) -> asyncio.Event:
        """An event that is set after the next commit, and when the writer is closed."""
        return self._commit_event

    def refuse(self) -> None:
        """Take no further writes; the last batch is written by `close`."""
        self.closed = True

    async def close(self) -> None:
        """Write the last batch, and close the store; call it after `refuse`."""
        assert self.closed
        if self._write_task is not None:
            self._wake.set()
            await self._write_task
        await self._acknowledgements.close()
        self._thread.shutdown()
        self._checkpoints.close()
        self._store.close()
        self._commit_event.set()

    async def _write(self) -> None:
        """Write what has gathered, a batch per commit, until the writer is closed or the store fails."""
        while self._news or self._writes or not self.closed:
            await self._checkpoints.until(self._wake)

            self._wake.clear()
            (news, self._news), (writes, self._writes) = (self._news, []), (self._writes, [])
            ends = self._acknowledgements.batch()

            try:
                await self._write_batch(news, writes)
            except sqlite3.OperationalError as error:  # a full disk, for example: it may pass
                log.error("the store of jobs could not be written, and is tried again: %s", error)
                self.problem = str(error)
                self._store.roll_back()

                # Reports are kept for the next try. Writes are not: whoever waits for one is told, and may ask again.
                self._news[:0] = news
                self._acknowledgements.failed(ends)
                for write in writes:
                    write.fail(UnwrittenError(f"the store of jobs cannot be written: {error}"))

                if self.closed:
                    return

                await asyncio.sleep(AGAIN_S)
                self._wake.set()
            except Exception as error:  # whatever it is: all that wait for this task would wait for ever
                is_known = isinstance(error, sqlite3.Error)
                text = "the store of jobs cannot be written, and takes nothing more: %s"
                log.critical(text, error, exc_info=None if is_known else error)
                self.closed, self.problem = True, str(error)
                for write in (*writes, *self._writes):
                    write.fail(ClosedError("jobs", f"the store of jobs has failed, and takes nothing more: {error}"))
                self._commit_event.set()
                return
            else:
                self.problem = ""
                self._acknowledgements.committed(ends, durable=bool(writes))

            self._commit_event.set()
            self._commit_event = asyncio.Event()

    def _note_all_durable(self) -> None:
        self._on_durable(self._store.revision)

    def _sync(self) -> int:
        """Sync what is committed to the disk, and return its revision; in any thread."""
        revision = self._store.revision
        self._store.sync()
        return revision

    def _acknowledge(self, ends: Ends, revision: int | None) -> None:
        if revision is not None:
            self._on_durable(revision)

        for agent, attempts in ends.items():
            self._send(agent, ReportsStored(tuple(attempts)))

    async def _write_batch(self, news: list[News], writes: list[_Write]) -> None:
        began = time.perf_counter()
        self._store.begin(durable=bool(writes))

        # The statements run here, in microseconds; what takes long, and the wait for the disk, are left to a thread.
        # One that ran all of them would have to win the interpreter back from a busy loop after each.
        loop = asyncio.get_running_loop()
        for write in writes:
            if write.prepare is not None:
                await loop.run_in_executor(self._thread, write.prepare)
            write.make()
            if write.clean_up is not None:
                await loop.run_in_executor(self._thread, write.clean_up)

        late_jobs = self._store.take_in(news, unix_now_us(), monotonic_now_us())

        if writes:
            await loop.run_in_executor(self._thread, self._store.commit)
            self._on_durable(self._store.revision)  # before anybody has a receipt
        else:
            self._store.commit()

        self.commits += 1
        self._on_commit()
        self.commit_s += time.perf_counter() - began
        for write in writes:
            write.succeed()

        # Their tasks' reports travel other ways than the answer, and may still come.
        for number in late_jobs:
            loop.call_later(self.reports_late_s, self._give_up_waiting, number)

        await self._checkpoints.after_batch()

    def _give_up_waiting(self, number: JobId) -> None:
        """End an answered job whose tasks are not all reported, or try it again after a failure of the store."""
        if not self.closed:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.add_done_callback(partial(self._maybe_wait_again, number))
            self._writes.append(_Write(partial(self._end_answered, number), future))
            self._wake.set()

    def _end_answered(self, number: JobId) -> None:
        self._store.give_up_waiting(number, unix_now_us(), monotonic_now_us())

    def _maybe_wait_again(self, number: JobId, future: asyncio.Future[Any]) -> None:
        if future.exception() is not None:
            asyncio.get_running_loop().call_later(self.reports_late_s, self._give_up_waiting, number)


def _nobody_asks(_: int) -> None: ...


IDLE_S: Final = 1.0
"""Time without a write after which the log is moved as a whole, and its file emptied."""
PAUSE_S: Final = 0.25
"""Time between two checkpoints. Each waits for the disk twice, and commits that meet it there take longer."""
LOG_PAGES_MAX: Final = 16_384
"""Longest log, 64 MiB; a longer one is moved as a whole before anything more is written, and its file is emptied."""


class Checkpoints:
    """Checkpoints of a database that is written in batches.

    Args:
        on_complete: is called once all that is committed is moved to its place, and on the disk.
    """

    def __init__(self, checkpoint: Callable[[bool], int], on_complete: Callable[[], None]) -> None:
        self._checkpoint = checkpoint
        self._on_complete = on_complete
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._checkpoint_move: asyncio.Future[int | None] | None = None
        self._last_move_s = 0.0
        self._may_have_log = True
        """True if the log's file may hold something; at the start, that is left by an earlier incarnation."""

    async def until(self, has_work: asyncio.Event) -> None:
        """Wait until there is something to write; while there is nothing, the log is moved and its file emptied."""
        loop = asyncio.get_running_loop()
        while self._may_have_log and not has_work.is_set():
            if await is_set_within(has_work, IDLE_S):
                return

            if self._checkpoint_move is not None:
                await self._checkpoint_move
                self._checkpoint_move = None

            await loop.run_in_executor(self._thread, self._move, False)

            # To empty the file keeps writers out, so it is done only while nothing is to be written.
            if not has_work.is_set():
                pages = await loop.run_in_executor(self._thread, self._move, True)
                self._may_have_log = bool(pages)
                if pages == 0:
                    self._on_complete()

        await has_work.wait()

    async def after_batch(self) -> None:
        """Begin a checkpoint if it is time; returns at once, unless the log is too long."""
        loop = asyncio.get_running_loop()
        self._may_have_log = True
        if self._checkpoint_move is None:
            if loop.time() - self._last_move_s >= PAUSE_S:
                self._checkpoint_move = loop.run_in_executor(self._thread, self._move, False)
        elif self._checkpoint_move.done():
            pages, self._checkpoint_move = self._checkpoint_move.result(), None
            if pages is not None and pages > LOG_PAGES_MAX:
                await loop.run_in_executor(self._thread, self._move, True)
            self._last_move_s = loop.time()

    def _move(self, empties_file: bool) -> int | None:
        """The pages that are left in the log; None: it could not be moved."""
        try:
            return self._checkpoint(empties_file)
        except sqlite3.Error as error:  # a full disk, for example: it stays in the log, and writes go on
            log.warning("the database could not be tidied, and keeps its log: %s", error)
            return None

    def close(self) -> None:
        """Wait for the checkpoint that is under way, and move what is left; nothing may be written any more."""
        self._thread.shutdown()
        if self._move(True) == 0:
            self._on_complete()


SYNC_PAUSE_S: Final = 0.25
"""Time between two syncs; only the memory of nodes' hosts is held until them."""

Ends = dict[Address, list[tuple[TaskId, int]]]
"""Per agent, attempts (task, number) that have ended."""


class Acknowledgements:
    """Ends of attempts from their reports to their acknowledgements, which go to nodes once the disk has the ends.

    A commit without a promise to a user does not wait for the disk (see `store`). A node's host acknowledged so early
    would forget what the API's machine loses with its power, and the task would run again although its end was
    reported. So the log of the database is brought to the disk a few times a second, beside the commits, and only then
    are ends acknowledged; a commit that waits for the disk brings along what was committed before it.

    Args:
        sync: brings what is committed to the disk, and returns its revision; called in a thread.
        send: acknowledges ends to the agents that have reported them; after a sync it gets its revision.
    """

    def __init__(self, sync: Callable[[], int], send: Callable[[Ends, int | None], None]) -> None:
        self._sync = sync
        self._send = send
        self._reported_ends: Ends = {}
        self._unsynced_ends: Ends = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._timer: asyncio.TimerHandle | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, agent: Address, end: tuple[TaskId, int]) -> None:
        """Add an end that an agent has reported to the next batch."""
        self._reported_ends.setdefault(agent, []).append(end)

    def batch(self) -> Ends:
        reported, self._reported_ends = self._reported_ends, {}
        return reported

    def failed(self, batch: Ends) -> None:
        """Put the ends of a batch that was not written into the next one."""
        _add(self._reported_ends, batch)

    def committed(self, batch: Ends, durable: bool) -> None:
        """Note that a batch is committed; if `durable`, the disk has it and all before it."""
        _add(self._unsynced_ends, batch)
        if not self._unsynced_ends:
            return
        # The commit of this batch has waited for the disk, and brought along what was committed before it.
        if durable:
            self._acknowledge()
        elif self._timer is None and self._sync_task is None:
            self._schedule_sync()

    def _schedule_sync(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SYNC_PAUSE_S, self._start_sync)

    def _start_sync(self) -> None:
        self._timer = None
        if self._unsynced_ends and not self._closed:
            self._sync_task = in_background(self._sync_log(), "the sync of the store of jobs")

    async def _sync_log(self) -> None:
        ends, self._unsynced_ends = self._unsynced_ends, {}
        try:
            revision = await asyncio.get_running_loop().run_in_executor(self._thread, self._sync)
        except Exception as error:  # whatever it is, nodes would keep their ends for ever
            text = "the log of the store could not be brought to the disk, and is tried again: %s"
            log.error(text, error, exc_info=None if isinstance(error, OSError) else error)
            _add(ends, self._unsynced_ends)
            self._unsynced_ends = ends
        else:
            self._send(ends, revision)
        finally:
            self._sync_task = None
            if self._unsynced_ends and not self._closed:
                self._schedule_sync()

    def _acknowledge(self) -> None:
        ends, self._unsynced_ends = self._unsynced_ends, {}
        self._send(ends, None)

    async def close(self) -> None:
        """Acknowledge nothing more; an agent reports its ends to the next incarnation again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sync_task is not None:
            await asyncio.wait((self._sync_task,))
        self._thread.shutdown()


def _add(target: Ends, source: Ends) -> None:
    for agent, ends in source.items():
        target.setdefault(agent, []).extend(ends)
