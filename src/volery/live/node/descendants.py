"""Processes that tasks have started, found in the kernel's table by descent, by a mark, and by a record on disk.

A daemon leaves its session, its parent and its environment behind. It keeps its ancestor: an agent is the subreaper
(PR_SET_CHILD_SUBREAPER) of all that runs below it, and becomes the parent of whatever loses its own. It also keeps its
resource limits, of which one limits nothing (RLIMIT_LOCKS, obsolete since Linux 2.4.25): its value is the mark of an
attempt. A process may change its mark by intent; it has lost nothing but its attempt then, and ends with the agent.

No process outlives its node agent for good: what runs is written down, and killed when the agent comes back. A
record is pid and start time, so that a pid which the kernel has given to another process is never touched. What the
record does not have (a process started in the instant before the agent died, or one that left its group) carries the
state folder's name in its environment, and its mark.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import hashlib
import logging
import os
import re
import select
import signal
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from volery.core.errors import InputError
from volery.live.files import opened_lock

log = logging.getLogger(__name__)

MARK_LIMIT: Final = 10
"""RLIMIT_LOCKS, which Python does not name."""
_MARK_TITLE: Final = b"Max file locks"
_SET_CHILD_SUBREAPER: Final = 36
_ATTEMPT_BITS: Final = 32
_AGENT_BITS: Final = 28
LOOK_S: Final = 5.0
"""Time between two searches for zombies and for processes of attempts that are over."""
CLOSE_S: Final = 2.0
ROUNDS_MAX: Final = 5
"""Most reads of the children of this process by `adopted`: a task may start processes that end without a pause."""


def agent_mark(state: Path) -> int:
    """The part of all marks that tells an agent from others, the same after its restart."""
    digest = hashlib.sha256(bytes(state.resolve())).digest()
    return (int.from_bytes(digest[:4], "big") >> (32 - _AGENT_BITS) | 1) << _ATTEMPT_BITS


def is_marked(pid: int, agent: int) -> bool:
    """True if a process descends from an attempt of an agent, by its `agent_mark`."""
    return soft_limit(pid, _MARK_TITLE) >> _ATTEMPT_BITS == agent >> _ATTEMPT_BITS


class Descendants:
    """The processes below this one that belong to attempts; makes this process their subreaper."""

    def __init__(self, state: Path) -> None:
        self._agent = agent_mark(state)
        self._count = 0
        self._marks: set[int] = set()
        self._first: set[int] = set()
        self._session = os.getsid(0)
        self._sweep_timer: asyncio.TimerHandle | None = None
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def mark(self) -> int:
        """A mark that no process has yet; `release` ends its use."""
        self._count = (self._count + 1) % (1 << _ATTEMPT_BITS)
        mark = self._agent | self._count
        self._marks.add(mark)
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(LOOK_S, self._sweep)
        return mark

    def release(self, mark: int) -> None:
        """Kill each process that has this mark from now on."""
        self._marks.discard(mark)

    def began(self, pid: int) -> None:
        """Leave a process to its executor, which waits for its end: the first of an attempt, or a worker."""
        self._first.add(pid)

    def ended(self, pid: int) -> None:
        self._first.discard(pid)

    def adopted(self) -> dict[int, list[ProcessStatus]]:
        """Processes that lost their parent and have become children of this one, by mark; reaps zombies.

        One that ends after the list was read leaves its children to this process. Then the list is read again,
        `ROUNDS_MAX` times at most.
        """
        processes_by_mark: dict[int, list[ProcessStatus]] = {}
        for _ in range(ROUNDS_MAX):
            processes_by_mark, reaped_count = {}, 0
            for pid in children(os.getpid()):
                status = None if pid in self._first else status_of(pid)
                if status is None or status.session == self._session:
                    continue

                mark = soft_limit(pid, _MARK_TITLE)
                if mark >> _ATTEMPT_BITS != self._agent >> _ATTEMPT_BITS:
                    continue

                if status.lives:
                    processes_by_mark.setdefault(mark, []).append(status)
                    continue

                with suppress(ChildProcessError):
                    reaped_count += os.waitpid(pid, os.WNOHANG)[0] == pid

            if not reaped_count:
                break

        return processes_by_mark

    def left(
        self, mark: int, first: int, adopted: Mapping[int, list[ProcessStatus]] | None = None
    ) -> list[ProcessStatus]:
        """Processes of an attempt besides its first one: below it, and adopted ones with all below them."""
        return _with_all_below((self.adopted() if adopted is None else adopted).get(mark, ()), first)

    def signal(self, mark: int, first: int, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal to what an attempt has started and is not in the group of its first process.

        Returns:
            True if there was any such process.
        """
        return _send(number, [status for status in self.left(mark, first) if status.group != first])

    def kill_all(self, mark: int, first: int) -> bool:
        """Kill all that an attempt has started, without its first process; true if there was anything."""
        return _send(signal.SIGKILL, self.left(mark, first))

    def _sweep(self) -> None:
        """Kill what is left of attempts that are over."""
        adopted = self.adopted()
        orphans = [status for mark, listed in adopted.items() if mark not in self._marks for status in listed]
        _send(signal.SIGKILL, _with_all_below(orphans))
        self._sweep_timer = None
        if self._marks or orphans:
            self._sweep_timer = asyncio.get_running_loop().call_later(LOOK_S, self._sweep)

    def close(self) -> None:
        """Kill whatever is left of all attempts; nothing of theirs runs any more."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        deadline = time.monotonic() + CLOSE_S
        while time.monotonic() < deadline:
            listed = [status for adopted in self.adopted().values() for status in adopted]
            if not _send(signal.SIGKILL, _with_all_below(listed)):
                break
            time.sleep(0.001)


def _with_all_below(roots: Iterable[ProcessStatus], first: int = 0) -> list[ProcessStatus]:
    """Processes and their descendants without zombies; those of `first` as well, without itself."""
    descendants = list(roots)
    unread_pids = [status.pid for status in descendants] + ([first] if first else [])
    known_pids = {*unread_pids}

    while unread_pids:
        for pid in children(unread_pids.pop()):
            if pid in known_pids:
                continue
            known_pids.add(pid)
            unread_pids.append(pid)

            status = status_of(pid)
            if status is not None and status.lives:
                descendants.append(status)

    return descendants


def _send(number: signal.Signals, statuses: Iterable[ProcessStatus]) -> bool:
    has_any = False
    for status in statuses:
        has_any = True
        with suppress(ProcessLookupError, PermissionError):
            os.kill(status.pid, number)
    return has_any


_PROC: Final = Path("/proc")
_LISTS_CHILDREN: Final = _PROC / "thread-self/children"
_STAT_BYTES: Final = 4096
READS_MAX: Final = 5
"""Most reads of the threads of one process by `children`."""
_DEAD: Final = ("Z", "X")


class ProcessStatus(NamedTuple):
    """One process as the kernel lists it.

    Args:
        pid: number of the process, which the kernel gives to another once the process is gone.
        state: state of its first thread, one letter; Z is a zombie.
        parent, group, session: numbers of other processes.
        threads: number of its threads, the first one included until the process is reaped.
        started: clock ticks between the machine's start and its own: with the pid, it names a process for good.
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    started: int

    @property
    def lives(self) -> bool:
        """True unless the process is a zombie; one whose first thread alone has ended runs."""
        return self.state not in _DEAD or (self.state == "Z" and self.threads > 1)


def status_of(pid: int) -> ProcessStatus | None:
    """A process, or None where there is none (any more)."""
    try:
        # Plain calls: a third of the time of a Path, and every start of a task waits for it.
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None

    try:
        text = os.read(file, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)

    # The name is in parentheses and may itself hold blanks and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    parent = int(fields[1])
    group = int(fields[2])
    session = int(fields[3])
    return ProcessStatus(pid, fields[0].decode(), parent, group, session, int(fields[17]), int(fields[19]))


def processes() -> Iterator[ProcessStatus]:
    """All processes, at about 15 us each."""
    for name in os.listdir(_PROC):  # noqa: PTH208 - an object per entry doubles the time
        if name.isdigit() and (status := status_of(int(name))):
            yield status


def children(pid: int) -> list[int]:
    """The processes whose parent is a process, zombies included; none where it is gone.

    A thread that ends leaves its children to another one, which may have been read already. Then all threads are read
    again, `READS_MAX` times at most: a process may start and end threads without a pause.
    """
    pids: list[int] = []
    read_threads: list[str] = []

    with suppress(OSError):  # the process is going
        for _ in range(READS_MAX):
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
            if threads == read_threads:
                break

            pids, read_threads = [], threads
            for thread in threads:
                try:
                    with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - each end of a task waits
                        pids += map(int, file.read().split())
                except FileNotFoundError:
                    if not _LISTS_CHILDREN.exists():
                        return [status.pid for status in processes() if status.parent == pid]

    return pids


def soft_limit(pid: int, title: bytes) -> int:
    """A resource limit of a process by its title in /proc/PID/limits; -1: none, or not to be seen."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:  # noqa: PTH123 - likewise
            text = file.read()
    except OSError:
        return -1

    at = text.find(title)
    words = text[at + len(title) :].split(maxsplit=1) if at >= 0 else []
    return int(words[0]) if words and words[0].isdigit() else -1


def carries(pid: int, variable: bytes) -> bool:
    """True if the initial environment of a process holds NAME=VALUE; False where we may not look."""
    try:
        return variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def ancestors(pid: int) -> set[int]:
    pids: set[int] = set()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        status = status_of(pid)
        pid = status.parent if status else 0
    return pids


def boot() -> str:
    """The boot id of the machine; after a reboot each pid means another process."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


MARK: Final = "VOLERY_STATE"
COMPACT_LINES: Final = 20_000
_UNSUMMED: Final = re.compile(rb"boot [0-9a-f-]{36}\n")
"""The first line of a ledger of an earlier version, without a checksum."""
WAIT_S: Final = 5.0


class ProcessLedger:
    """The running process groups of an agent, in `FOLDER/processes`; a new ledger first kills those of an earlier one.

    A line ends with its CRC-32. It is written at once but not synced: it has to survive the agent, and a machine that
    fails takes the processes along. `killed` holds the pids that were ended on opening.

    Args:
        folder: folder of the agent alone, which is made where it is missing.

    Raises:
        InputError: another agent uses the folder, or it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = opened_lock(folder / "lock")
        except OSError as error:
            raise InputError(str(folder), f"the state folder cannot be used: {error.strerror}") from None

        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InputError(str(folder), "another node agent uses this state folder; give each its own") from None

        self.folder = folder
        self.mark = (MARK, str(folder.resolve()))
        self._path = folder / "processes"
        self._start_ticks: dict[int, int] = {}
        self._lines = 0
        self._is_behind = False

        running, damages = read_ledger(self._path)
        for damage in damages:
            log.error("%s %s: processes of an earlier agent that have left no other mark may go on", self._path, damage)

        self.killed = kill_orphans(running, self.mark, agent_mark(folder))
        self._file = self._rewrite()

    def add(self, pid: int) -> None:
        """Record a process group that has begun; one that is gone already needs no record."""
        status = status_of(pid)
        if status is not None:
            self._start_ticks[pid] = status.started
            self._write(f"+{pid} {status.started}")

    def remove(self, pid: int) -> None:
        if self._start_ticks.pop(pid, None) is not None:
            self._write(f"-{pid}")

    def close(self) -> None:
        """Release the folder; the next agent kills whatever is still recorded."""
        os.close(self._file)
        os.close(self._lock)

    def _write(self, line: str) -> None:
        """Append a line, or begin the file anew; without room for either, it is written with a later one.

        Until then a mark and the environment tell what runs here: a task is not to fail for its record.
        """
        try:
            if self._is_behind or self._lines > COMPACT_LINES + 2 * len(self._start_ticks):
                rewritten = self._rewrite()
                os.close(self._file)
                self._file = rewritten
            else:
                record = with_checksum(line)
                self._is_behind = os.write(self._file, record) < len(record)
                self._lines += 1
        except OSError as error:
            if not self._is_behind:
                log.warning("%s lacks what runs here until it can be written: %s", self._path, error.strerror)
            self._is_behind = True

    def _rewrite(self) -> int:
        new_path = self._path.with_suffix(".new")
        lines = [f"boot {boot()}"] + [f"+{pid} {started}" for pid, started in self._start_ticks.items()]

        new_path.unlink(missing_ok=True)
        with os.fdopen(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.writelines(map(with_checksum, lines))  # no other account may see which processes are whose

        new_path.replace(self._path)
        self._lines, self._is_behind = 0, False
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def with_checksum(line: str) -> bytes:
    """A line of a ledger, with its checksum."""
    return f"{line} {zlib.crc32(line.encode()):08x}\n".encode()


def _checked(line: bytes) -> str | None:
    """The words of a line before its checksum; None where it has another."""
    words, _, _ = line.rpartition(b" ")
    text = words.decode("ascii", "replace")
    return text if with_checksum(text) == line else None


def read_ledger(path: Path) -> tuple[dict[int, int], list[str]]:
    """The processes that ran when the last agent ended, and the damages of a ledger.

    An incomplete last line is a damage: it is written in one piece. A ledger of an earlier version has no checksums.

    Returns:
        Pid -> start time; and each damage with its line.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}, []

    if not content:
        return {}, []

    *lines, last = (line + b"\n" for line in content.split(b"\n"))
    if last != b"\n":
        lines.append(last[:-1])  # a line without its end has another checksum

    first = _checked(lines[0])
    if first is None and _UNSUMMED.fullmatch(lines[0]) is None:
        return {}, ["is damaged in line 1: it does not name the machine's boot, so that no other line is of use"]

    checked_lines = [
        line.decode("ascii", "replace").rstrip("\n") if first is None else _checked(line) for line in lines
    ]
    damages = [f"is damaged in line {number}" for number, line in enumerate(checked_lines, 1) if line is None]

    # After a reboot each pid means another process: nothing of the last agent runs.
    if checked_lines[0] != f"boot {boot()}":
        return {}, damages

    running: dict[int, int] = {}
    for line in filter(None, checked_lines[1:]):
        words = line[1:].split()
        if not words or not all(word.isdigit() for word in words):
            continue
        if line[0] == "+" and len(words) == 2:
            running[int(words[0])] = int(words[1])
        elif line[0] == "-":
            running.pop(int(words[0]), None)

    return running, damages


def kill_orphans(recorded: dict[int, int], mark: tuple[str, str], agent: int) -> list[int]:
    """End every process of the recorded groups, and every one that carries a mark, and wait until they are gone.

    Args:
        recorded: pid of a group's first process -> its start time.
        mark: name and value of an environment variable.
        agent: see `agent_mark`; it is kept where the environment was cleared.

    Returns:
        The pids that were killed.
    """
    sessions = {pid for pid, started in recorded.items() if (now := status_of(pid)) and now.started == started}
    variable = f"{mark[0]}={mark[1]}".encode()

    spared_pids = ancestors(os.getpid())
    killed_pids: list[int] = []
    deadline = time.monotonic() + WAIT_S

    # Whoever forks while we look is found in the next round.
    while time.monotonic() < deadline:
        ours = [
            status
            for status in processes()
            if status.lives
            and status.pid not in spared_pids
            and (_in(status, sessions) or carries(status.pid, variable) or is_marked(status.pid, agent))
        ]
        if not ours:
            break

        for status in ours:
            kill_and_wait(status, deadline)
            killed_pids.append(status.pid)

    return killed_pids


def _in(status: ProcessStatus, sessions: set[int]) -> bool:
    return status.session in sessions or status.group in sessions


def kill_and_wait(status: ProcessStatus, deadline: float) -> None:
    """SIGKILL exactly this process, never one that has taken over its pid, and wait until it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(status.pid)
        try:
            now = status_of(status.pid)
            if now is not None and now.started == status.started:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                end = select.poll()
                end.register(handle, select.POLLIN)
                end.poll(max(deadline - time.monotonic(), 0) * 1000)
        finally:
            os.close(handle)
