"""Worker processes of the call executor, as a node agent has them: a process, and the socket on which it is called."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from volery.core.model import JobId
from volery.live.clock import is_set_within
from volery.live.command import Call
from volery.live.node.worker import ANSWER_BYTES_MAX, HEADER, MAGIC, CallAnswer, CallRequest, frame

_END_S: Final = 1.0
"""Time in which a process whose socket has ended may end by itself."""
_READ_S: Final = 0.5
"""Time in which the last output of a worker is read, though a process that it left may hold the socket."""
_PROGRAM_MAX: Final = 200
_GROWN_PART: Final = 4
"""Part of a call's memory, one in so many, that earlier calls of other jobs may keep in its worker."""


class WrongAnswerError(Exception):
    """A worker process has sent what is no answer, or that of another call."""


class WorkerProcess:
    """A worker process, and the socket on which it is called.

    Args:
        words: command line of the process.
        mark: mark that the process and all that it starts carry.
        user: user whose calls it makes.
        reader, writer: this end of the socket.
    """

    __slots__ = (
        "_calls_made",
        "_exit",
        "_words",
        "ended",
        "grown_mb",
        "job",
        "mark",
        "pid",
        "popen",
        "reader",
        "user",
        "writer",
    )

    def __init__(
        self,
        words: Sequence[str],
        popen: subprocess.Popen[bytes],
        mark: int,
        user: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.popen = popen
        self._words = words
        self.pid = popen.pid
        self.mark = mark
        self.user = user
        self.reader = reader
        self.writer = writer
        self.job: JobId | None = None
        self.grown_mb = 0
        self.ended = asyncio.Event()
        self._calls_made = 0
        self._exit = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._exit, self._on_exit)

    def _on_exit(self) -> None:
        """Note the end of the process. A copy of it may hold the socket open, which then has no end of its own."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._exit)
        self.ended.set()
        loop.call_later(_READ_S, self.reader.feed_eof)

    @property
    def lives(self) -> bool:
        """True if the process has not ended, also where the loop had no turn yet to note its end."""
        if self.ended.is_set():
            return False
        end = select.poll()
        end.register(self._exit, select.POLLIN)
        return not end.poll(0)

    async def ask(self, request: CallRequest) -> CallAnswer:
        """Make a call in the process.

        Raises:
            asyncio.IncompleteReadError, ConnectionError: the process has ended.
            WrongAnswerError: it answers anything else.
        """
        self._calls_made += 1
        self.writer.write(frame(self._calls_made, request))
        await self.writer.drain()

        magic, number, length = HEADER.unpack(await self.reader.readexactly(HEADER.size))

        # An answer to another call comes from a copy of the process, which a call has forked.
        if (magic, number) != (MAGIC, self._calls_made) or length > ANSWER_BYTES_MAX:
            raise WrongAnswerError

        try:
            answer = msgspec.msgpack.decode(await self.reader.readexactly(length), type=CallAnswer)
        except msgspec.MsgspecError:
            raise WrongAnswerError from None

        self.grown_mb = answer.grown_mb
        return answer

    def can_make(self, job: JobId, call: Call) -> bool:
        """True if a call may be made here: what one user's code, or another job, has left may be in its way."""
        is_small = not call.memory_mb or self.grown_mb * _GROWN_PART <= call.memory_mb or self.job == job
        return self.user == call.user and is_small and self.lives

    def is_worn(self, calls_max: int) -> bool:
        return 0 < calls_max <= self._calls_made

    def program(self) -> str:
        """The command line of what it has become; empty where it is still a worker."""
        with suppress(OSError):
            line = Path(f"/proc/{self.pid}/cmdline").read_bytes()
            if line != b"".join(os.fsencode(word) + b"\0" for word in self._words):
                return line.replace(b"\0", b" ").decode(errors="replace").strip()[:_PROGRAM_MAX]
        return ""

    def kill(self) -> None:
        if self.popen.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def ends(self) -> bool:
        """True if the process ends by itself, which it does soon after its socket."""
        return await is_set_within(self.ended, _END_S)

    async def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        if self.popen.returncode is None:
            await self.ended.wait()
            self.popen.wait()
            os.close(self._exit)
            self.writer.close()
        return int(self.popen.returncode)
