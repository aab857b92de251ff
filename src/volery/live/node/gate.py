"""A process that waits to be held before it becomes the program of a task.

A process can be put into a control group, or be given limits, only once it exists, and by then it may have started
others, which are not in it. So what is started is a shell that reads one line and then becomes the program: the line is
written when it is held. (A new process can also begin in a group, by clone3, which nothing in Python offers.)
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from volery.live.config.accounts import SHELL

_WAIT: Final = 'read -r go && {limit}exec "$@" <"$0"'
_KB_PER_MB: Final = 1024


class StartGate:
    """The gate of one process.

    Args:
        stdin: path of what the program is to read; nothing by default.
        memory_mb: what it and each process that it starts may have in data segments; 0: no limit.

    Attributes:
        outside: a descriptor, the standard input of the process that waits.
    """

    __slots__ = ("_inside", "_script", "_stdin", "outside")

    def __init__(self, stdin: Path | None = None, memory_mb: int = 0) -> None:
        # The process sets its own limit: another account's processes can be limited by few.
        self._script = _WAIT.format(limit=f"ulimit -d {memory_mb * _KB_PER_MB} && " if memory_mb else "")
        self.outside, self._inside = os.pipe()
        self._stdin = os.devnull if stdin is None else str(stdin)

    def words(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Program and arguments of the process that waits, and becomes this program."""
        return (SHELL, "-c", self._script, self._stdin, *argv)

    def open(self) -> None:
        """Let the process become its program."""
        with suppress(BrokenPipeError):  # it has ended already
            os.write(self._inside, b"\n")

    def close(self) -> None:
        """End the process that still waits."""
        os.close(self.outside)
        os.close(self._inside)


def demand_program(name: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Refuse a program with the error of the kernel, instead of the shell's.

    Args:
        name: as it was given; it is not on any absolute path.

    Raises:
        OSError: it is not there, or nobody may execute it.
    """
    if not folder.is_dir():
        return  # that error is of the folder
    places = [folder / part for part in environment.get("PATH", os.defpath).split(":") if not part.startswith("/")]
    tried = [folder / name] if "/" in name else [place / name for place in places]
    modes = [path.stat().st_mode for path in tried if path.exists()]
    if not any(stat.S_ISREG(mode) and mode & 0o111 for mode in modes):
        number = errno.EACCES if modes else errno.ENOENT
        raise OSError(number, os.strerror(number), name)
