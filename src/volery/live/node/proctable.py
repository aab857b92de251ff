"""The kernel's table of processes, as Linux shows it under /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_LISTS_CHILDREN: Final = _PROC / "thread-self/children"
_STAT_BYTES: Final = 4096
READS_MAX: Final = 5
"""How often `children` reads the threads of one process."""
_DEAD: Final = ("Z", "X")


class ProcessStatus(NamedTuple):
    """One process as the kernel lists it.

    Args:
        pid: its number, which the kernel gives to another once the process is gone.
        state: of its first thread, one letter; Z is a zombie.
        parent, group, session: numbers of other processes.
        threads: their number, the first one included until the process is reaped.
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
    parent, group, session = int(fields[1]), int(fields[2]), int(fields[3])
    return ProcessStatus(pid, fields[0].decode(), parent, group, session, int(fields[17]), int(fields[19]))


def processes() -> Iterator[ProcessStatus]:
    """All processes, at about 15 us each."""
    for name in os.listdir(_PROC):  # noqa: PTH208 - an object per entry doubles the time
        if name.isdigit() and (found := status_of(int(name))):
            yield found


def children(pid: int) -> list[int]:
    """The processes whose parent is a process, zombies included; none where it is gone.

    A thread that ends leaves its children to another one, which may have been read already. Then all threads are read
    again, `READS_MAX` times at most: a process may start and end threads without a pause.
    """
    found: list[int] = []
    read: list[str] = []
    with suppress(OSError):  # the process is going
        for _ in range(READS_MAX):
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
            if threads == read:
                break
            found, read = [], threads
            for thread in threads:
                try:
                    with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - each end of a task waits
                        found += map(int, file.read().split())
                except FileNotFoundError:
                    if not _LISTS_CHILDREN.exists():
                        return [status.pid for status in processes() if status.parent == pid]
    return found


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
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        status = status_of(pid)
        pid = status.parent if status else 0
    return found


def boot() -> str:
    """The boot id of the machine; after a reboot each pid means another process."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
