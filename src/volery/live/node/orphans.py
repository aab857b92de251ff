"""No process outlives its node agent for good: what runs is written down, and killed when the agent comes back.

A record is pid and start time, so that a pid which the kernel has given to another process is never touched. What the
record does not have (a process started in the instant before the agent died, or one that left its group) carries the
state folder's name in its environment, and its mark (see `descendants`).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from volery.core.errors import InputError
from volery.live.files import opened_lock
from volery.live.node.descendants import agent_mark, is_marked
from volery.live.node.proctable import ProcessStatus, ancestors, boot, carries, processes, status_of

MARK: Final = "VOLERY_STATE"
COMPACT_LINES: Final = 20_000
WAIT_S: Final = 5.0


class ProcessLedger:
    """The running process groups of an agent, in `FOLDER/processes`; a new ledger first kills those of an earlier one.

    A line is written at once but not synced: it has to survive the agent, and a machine that fails takes the processes
    along. `killed` holds the pids that were ended on opening.

    Args:
        folder: the agent's own; made where it is missing.

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
        self._running: dict[int, int] = {}
        self._lines = 0
        self.killed = kill_orphans(_read(self._path), self.mark, agent_mark(folder))
        self._file = self._rewritten()

    def add(self, pid: int) -> None:
        """Record a process group that has begun; one that is gone already needs no record."""
        status = status_of(pid)
        if status is not None:
            self._running[pid] = status.started
            self._write(f"+{pid} {status.started}\n")

    def remove(self, pid: int) -> None:
        if self._running.pop(pid, None) is not None:
            self._write(f"-{pid}\n")

    def close(self) -> None:
        """Release the folder; the next agent kills whatever is still recorded."""
        os.close(self._file)
        os.close(self._lock)

    def _write(self, line: str) -> None:
        os.write(self._file, line.encode())
        self._lines += 1
        if self._lines > COMPACT_LINES + 2 * len(self._running):
            os.close(self._file)
            self._file = self._rewritten()

    def _rewritten(self) -> int:
        fresh = self._path.with_suffix(".new")
        lines = [f"boot {boot()}\n"] + [f"+{pid} {started}\n" for pid, started in self._running.items()]
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.writelines(lines)  # no other account may see which processes are whose
        fresh.replace(self._path)
        self._lines = 0
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def _read(path: Path) -> dict[int, int]:
    """Pid -> start time of what ran when the last agent ended; a torn last line is no record."""
    try:
        lines = path.read_text(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    if not lines or lines[0] != f"boot {boot()}\n":
        return {}
    running: dict[int, int] = {}
    for line in lines[1:]:
        words = line[1:].split()
        if not line.endswith("\n") or not words or not all(word.isdigit() for word in words):
            continue
        if line[0] == "+" and len(words) == 2:
            running[int(words[0])] = int(words[1])
        elif line[0] == "-":
            running.pop(int(words[0]), None)
    return running


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
    spared = ancestors(os.getpid())
    killed: list[int] = []
    deadline = time.monotonic() + WAIT_S
    # Whoever forks while we look is found in the next round.
    while time.monotonic() < deadline:
        ours = [
            status
            for status in processes()
            if status.lives
            and status.pid not in spared
            and (_in(status, sessions) or carries(status.pid, variable) or is_marked(status.pid, agent))
        ]
        if not ours:
            break
        for status in ours:
            kill_and_wait(status, deadline)
            killed.append(status.pid)
    return killed


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
