"""Processes that tasks have started, found by descent and by a mark that each of them inherits.

A daemon leaves its session, its parent and its environment behind. It keeps its ancestor: an agent is the subreaper
(PR_SET_CHILD_SUBREAPER) of all that runs below it, and becomes the parent of whatever loses its own. It also keeps its
resource limits, of which one limits nothing (RLIMIT_LOCKS, obsolete since Linux 2.4.25): its value is the mark of an
attempt. A process may change its mark by intent; it has lost nothing but its attempt then, and ends with the agent.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from volery.live.node.proctable import ProcessStatus, children, soft_limit, status_of

MARK_LIMIT: Final = 10
"""RLIMIT_LOCKS, which Python does not name."""
_MARK_TITLE: Final = b"Max file locks"
_SET_CHILD_SUBREAPER: Final = 36
_ATTEMPT_BITS: Final = 32
_AGENT_BITS: Final = 28
LOOK_S: Final = 5.0
"""Between two looks for zombies and for processes of attempts that are over."""
CLOSE_S: Final = 2.0
ROUNDS_MAX: Final = 5
"""How often `adopted` reads the children of this process: a task may start processes that end without a pause."""


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
        self._looking: asyncio.TimerHandle | None = None
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def mark(self) -> int:
        """A mark that no process has yet; `release` ends its use."""
        self._count = (self._count + 1) % (1 << _ATTEMPT_BITS)
        mark = self._agent | self._count
        self._marks.add(mark)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return mark

    def release(self, mark: int) -> None:
        """Kill each process that has this mark from now on."""
        self._marks.discard(mark)

    def began(self, pid: int) -> None:
        """Except a process, whose end its executor waits for: the first of an attempt, or a worker."""
        self._first.add(pid)

    def ended(self, pid: int) -> None:
        self._first.discard(pid)

    def adopted(self) -> dict[int, list[ProcessStatus]]:
        """Processes that lost their parent and have become children of this one, by mark; reaps zombies.

        One that ends after the list was read leaves its children to this process. Then the list is read again,
        `ROUNDS_MAX` times at most.
        """
        found: dict[int, list[ProcessStatus]] = {}
        for _ in range(ROUNDS_MAX):
            found, reaped = {}, 0
            for pid in children(os.getpid()):
                status = None if pid in self._first else status_of(pid)
                if status is None or status.session == self._session:
                    continue
                mark = soft_limit(pid, _MARK_TITLE)
                if mark >> _ATTEMPT_BITS != self._agent >> _ATTEMPT_BITS:
                    continue
                if status.lives:
                    found.setdefault(mark, []).append(status)
                    continue
                with suppress(ChildProcessError):
                    reaped += os.waitpid(pid, os.WNOHANG)[0] == pid
            if not reaped:
                break
        return found

    def left(
        self, mark: int, first: int, adopted: Mapping[int, list[ProcessStatus]] | None = None
    ) -> list[ProcessStatus]:
        """Processes of an attempt besides its first one: below it, and adopted ones with all below them."""
        return _with_all_below((self.adopted() if adopted is None else adopted).get(mark, ()), first)

    def signal(self, mark: int, first: int, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal to what an attempt has started and is not in the group of its first process.

        Returns:
            Whether there was anything.
        """
        return _send(number, [status for status in self.left(mark, first) if status.group != first])

    def kill_all(self, mark: int, first: int) -> bool:
        """Kill all that an attempt has started, without its first process; true if there was anything."""
        return _send(signal.SIGKILL, self.left(mark, first))

    def _look(self) -> None:
        """Kill what is left of attempts that are over."""
        adopted = self.adopted()
        over = [status for mark, listed in adopted.items() if mark not in self._marks for status in listed]
        _send(signal.SIGKILL, _with_all_below(over))
        self._looking = None
        if self._marks or over:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Kill whatever is left of all attempts; nothing of theirs runs any more."""
        if self._looking is not None:
            self._looking.cancel()
        deadline = time.monotonic() + CLOSE_S
        while time.monotonic() < deadline:
            listed = [status for adopted in self.adopted().values() for status in adopted]
            if not _send(signal.SIGKILL, _with_all_below(listed)):
                break
            time.sleep(0.001)


def _with_all_below(roots: Iterable[ProcessStatus], first: int = 0) -> list[ProcessStatus]:
    """Processes and their descendants without zombies; those of `first` as well, without itself."""
    found = list(roots)
    waiting = [status.pid for status in found] + ([first] if first else [])
    seen = {*waiting}
    while waiting:
        for pid in children(waiting.pop()):
            if pid in seen:
                continue
            seen.add(pid)
            waiting.append(pid)
            status = status_of(pid)
            if status is not None and status.lives:
                found.append(status)
    return found


def _send(number: signal.Signals, listed: Iterable[ProcessStatus]) -> bool:
    there = False
    for status in listed:
        there = True
        with suppress(ProcessLookupError, PermissionError):
            os.kill(status.pid, number)
    return there
