"""Shortages of a node: what the machine lacks when a task starts delays the task, and never fails it.

A start needs descriptors, a process, memory and disk. If the machine has none left, the task has not begun: it waits at
the node, which starts nothing for a while (`StartPause`), and tries again when something has ended here or a growing
delay is over. Where tasks can go to other hosts, those that have waited for `GIVE_BACK_S` go back to their scheduler.
What the machine permits is compared with the slots of its nodes when the host starts (`obstacles`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from volery.live.config.machine import process_limits, usable_memory_mb

FIRST_S: Final = 0.1
LONGEST_S: Final = 10.0
"""Longest pause; the first one is `FIRST_S`, and each is twice as long as the one before."""
QUIET_S: Final = 2.0
"""Time without a further shortage after which the node lacks nothing any more."""
GIVE_BACK_S: Final = 2.0
SPARE_DESCRIPTORS: Final = 64
"""Descriptors that starts leave to journals, connections and readers of output; of a small limit a quarter."""
SPARE_PROCESSES: Final = 64
"""Processes left to what tasks start: a shell that cannot start its command fails for no reason of the user's."""
SPARE_BYTES: Final = 16 << 20
SPARE_INODES: Final = 256
"""Files left to what tasks write at first."""
_BLOCK_BYTES: Final = 4096
BASE_DESCRIPTORS: Final = 64
"""Descriptors that a host has open besides one for each task."""
PROCESSES_PER_TASK: Final = 3
BYTES_PER_TASK: Final = 64 << 10
INODES_PER_TASK: Final = 4
"""Files of a small task; with those before it, to compare slots with limits."""
PROCESSES_ALONE: Final = 4
"""Processes that the only task of a node waits for: a shell, a command, and its children."""
ROOMY: Final = 1024
ROOMY_S: Final = 1.0
CROWDED_S: Final = 0.05
"""Time for which a count of free processes at most `ROOMY` holds; a larger one holds for `ROOMY_S`."""

DESCRIPTORS, PROCESSES, MEMORY, DISK = "file descriptors", "processes", "memory", "disk space"
WORKERS: Final = "worker processes"
_LACKS: Final[Mapping[int, str]] = {
    errno.EMFILE: DESCRIPTORS,
    errno.ENFILE: DESCRIPTORS,
    errno.EAGAIN: PROCESSES,
    errno.ENOMEM: MEMORY,
    errno.ENOSPC: DISK,
    errno.EDQUOT: DISK,
    errno.EROFS: DISK,
}
_REMEDIES: Final[Mapping[str, str]] = {
    DESCRIPTORS: "raise its limit of open files (ulimit -n, LimitNOFILE)",
    PROCESSES: "raise its limit of processes (ulimit -u, TasksMax)",
    MEMORY: "free memory there, or give the node fewer slots",
    DISK: "free space in the federation's folder there",
    WORKERS: "see the log of its host",
}

log = logging.getLogger(__name__)


class WorkerNotReadyError(Exception):
    """A worker process has ended before it could take a call."""


def lack_of(error: BaseException) -> str:
    """The resource of the machine whose shortage an error shows; empty where it shows none."""
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, WorkerNotReadyError):
        return WORKERS
    return _LACKS.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def unstarted(node: str, words: str) -> str:
    """The reason of an attempt that goes back without having begun."""
    return f"not begun: {node} is {words.partition(';')[0]}"


def demand_descriptors(descriptor: int) -> None:
    """Demand that descriptors are left for others; the kernel gives the lowest number that is free.

    Raises:
        OSError: this descriptor is among the last ones.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and descriptor >= limit - _spare(SPARE_DESCRIPTORS, limit):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def demand_disk(folder: Path) -> None:
    """Demand that a file system has room for what a task will write at first.

    Raises:
        OSError: it has not, or cannot be asked.
    """
    status = os.statvfs(folder)
    spare_blocks = _spare(SPARE_BYTES // _block_bytes(status), status.f_blocks)
    if status.f_bavail < spare_blocks or (status.f_files and status.f_favail < _spare(SPARE_INODES, status.f_files)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _block_bytes(status: os.statvfs_result) -> int:
    """The unit of counts of blocks; file systems in user space may leave it out."""
    return status.f_frsize or status.f_bsize or _BLOCK_BYTES


def _spare(most: int, limit: int) -> int:
    return min(most, limit // 4)


class ProcessRoom:
    """The processes and threads that an account may still start: what starts now will start others soon.

    The kernel counts those of an account (RLIMIT_NPROC) and those of each control group above this process. An account
    is counted by a walk through the kernel's table, so that counts are kept for a moment.
    """

    def __init__(self) -> None:
        self._counts: dict[int, tuple[float, list[tuple[int, int]]]] = {}
        self._starts = 0

    def demand(self, user: int, running: int) -> None:
        """Demand that a user of the operating system may start a process, with all that such as it start soon.

        Args:
            running: attempts that run here; each may start one more process at any time.

        Raises:
            OSError: a limit is too near.
        """
        now_s = time.monotonic()

        counted_at_s, limits = self._counts.get(user, (0.0, []))
        if now_s > counted_at_s + (ROOMY_S if all(most - used > ROOMY for most, used in limits) else CROWDED_S):
            counted_at_s, limits = self._counts[user] = now_s, [*_process_limits(user)]
            self._starts = 0

        for most, used in limits:
            # The only task of a node cannot wait for the end of another: it takes what is spared.
            needed = _spare(SPARE_PROCESSES, most) + running + self._starts if running else PROCESSES_ALONE
            if most - used < needed:
                raise OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)}: {used} of {most} processes and threads")

        self._starts += 1

    def forget(self) -> None:
        """Count anew: something has ended."""
        self._counts.clear()


def _process_limits(user: int) -> Iterator[tuple[int, int]]:
    """The limits of processes that hold for a user of the operating system, and how many of each are used."""
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if user and most != resource.RLIM_INFINITY:  # root's are not limited
        yield most, _processes_of(user)
    yield from process_limits()


def _processes_of(user: int) -> int:
    """The processes and threads of a user of the operating system."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended
                threads = os.stat(f"/proc/{entry.name}/task")  # noqa: PTH116 - of every process of the machine
                count += threads.st_nlink - 2 if threads.st_uid == user else 0
    return count


def permit_descriptors(slots: int) -> None:
    """Raise this process's limit of open files as far as so many slots need it, and it may."""
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = slots + BASE_DESCRIPTORS + SPARE_DESCRIPTORS
    if most != resource.RLIM_INFINITY and most < needed:
        new_limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))


def obstacles(slots: int, offered_mb: int, folder: Path, users: Iterable[int]) -> Iterator[str]:
    """The limits of this machine that are too low for so many tasks at once, in words.

    Args:
        slots: slots of all nodes here.
        offered_mb: memory that the nodes offer to tasks together; 0: nobody counts it.
        folder: folder of the folders of attempts, which exists.
        users: users of the operating system that tasks run as.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    if most != resource.RLIM_INFINITY and most < slots + BASE_DESCRIPTORS + _spare(SPARE_DESCRIPTORS, most):
        fit = max(most - BASE_DESCRIPTORS - _spare(SPARE_DESCRIPTORS, most), 1)
        yield f"its limit of {most} open files is enough for about {fit} of {slots} slots; {_REMEDIES[DESCRIPTORS]}"

    for user in users:
        for most, used in _process_limits(user):
            free = most - used - _spare(SPARE_PROCESSES, most)
            if free < PROCESSES_PER_TASK * slots:
                fit = max(free // PROCESSES_PER_TASK, 1)
                text = f"uid {user} may have {most} processes here, and {used} are used, which leaves about {fit}"
                yield f"{text} of {slots} slots; {_REMEDIES[PROCESSES]}"

    if offered_mb > (memory_mb := usable_memory_mb()):
        yield f"its nodes offer {offered_mb:,} MB of memory, and it may have {memory_mb:,}; {_REMEDIES[MEMORY]}"

    status = os.statvfs(folder)
    free_bytes = status.f_bavail * _block_bytes(status)
    if status.f_blocks > 0 and free_bytes < SPARE_BYTES + slots * BYTES_PER_TASK:
        free_mb = free_bytes >> 20
        yield f"{folder} has room for {free_mb:,} MB, which is little for {slots} slots; {_REMEDIES[DISK]}"

    if status.f_files > 0 and status.f_favail < SPARE_INODES + slots * INODES_PER_TASK:
        yield f"{folder} has room for {status.f_favail:,} files, which is little for {slots} slots; {_REMEDIES[DISK]}"


class StartPause:
    """The pauses of a node agent that lacks something; its executors start nothing meanwhile.

    Args:
        on_change: is called whenever `words` change.

    Attributes:
        paused: true if nothing may start now.
        words: shortage of the machine; empty: none.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.paused = False
        self.words = ""
        self._on_change = on_change
        self._lack = ""
        self._pause_s = FIRST_S
        self._waiting_attempts: set[Hashable] = set()
        self._callbacks: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._processes = ProcessRoom()

    def demand(self, folder: Path, descriptor: int, user: int, running: int) -> None:
        """Demand room for a start before anything of the task runs.

        Args:
            folder: folder of the folders of attempts.
            descriptor: last descriptor that was opened for the start.
            user: user of the operating system that it runs as.
            running: attempts that run here; a start that could wait for the end of none takes what is spared.

        Raises:
            OSError: the machine has too little of something.
        """
        if running:
            demand_descriptors(descriptor)
        demand_disk(folder)
        self._processes.demand(user, running)

    def begin(self, attempt: Hashable, error: BaseException) -> None:
        """Begin a pause, because an attempt could not start for want of something; it waits for the end."""
        self._waiting_attempts.add(attempt)
        self._note(lack_of(error), error)
        if self.paused:
            return

        self.paused = True
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._resume)
        self._pause_s = min(2 * self._pause_s, LONGEST_S)

    def _note(self, lack: str, error: BaseException) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

        if lack == self._lack:
            return

        self._lack = lack
        self.words = f"short of {lack} ({_text(error)}); {_REMEDIES[lack]}"
        log.warning("%s: what cannot start now has not begun, and waits", self.words)
        self._on_change()

    def when_over(self, resumed: Callable[[], None]) -> None:
        """Call a function once, when this pause is over."""
        self._callbacks.append(resumed)

    async def over(self) -> None:
        """Wait until this pause is over; its own timer ends it."""
        if self.paused:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_over(partial(_resolve, future))
            await future

    def started(self, attempt: Hashable) -> None:
        """Note that an attempt has started: the next pause is a short one."""
        if self._lack:
            self._pause_s = FIRST_S
            self.forget(attempt)

    def forget(self, attempt: Hashable) -> None:
        """Note that an attempt waits no more."""
        if self._lack:
            self._waiting_attempts.discard(attempt)
            self._expect_quiet()

    def freed(self) -> None:
        """Note that something has ended here: what it had may be enough for another start."""
        if self.paused:
            self._processes.forget()
            self._resume()

    def _resume(self) -> None:
        self.paused = False
        if self._timer is not None:
            self._timer.cancel()
        self._expect_quiet()
        callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            call()

    def _expect_quiet(self) -> None:
        if self._quiet is None and not self.paused and not self._waiting_attempts:
            self._quiet = asyncio.get_running_loop().call_later(QUIET_S, self._end)

    def _end(self) -> None:
        """Note that nothing is short any more; further attempts have started, or none had to."""
        self._quiet = None
        if self.paused or self._waiting_attempts:
            return
        log.warning("no longer short of %s", self._lack)
        self._lack = self.words = ""
        self._on_change()

    def close(self) -> None:
        for timer in (self._timer, self._quiet):
            if timer is not None:
                timer.cancel()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # whoever waits may have been cancelled
        future.set_result(None)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__
