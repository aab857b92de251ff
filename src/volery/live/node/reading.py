"""Output that is read from afar: the API's host asks the host of the node, which reads a bounded piece of its own file.

What is asked for is a file of `output`: a folder that the node has told of and one of two names, nothing else. Only the
submitter is answered; who may see what of a job is decided where users are known, by the API.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from volery.core.model import Message
from volery.live.node.output import extent, open_output

PIECE_BYTES_MAX: Final = 256 << 10
"""Of one answer: a quarter of what the broker takes in one message."""
READS_MAX: Final = 8
"""At a time on one host; whoever asks for more is told to come again."""

Found = Literal["here", "not here", "busy"]


class OutputAsked(Message, frozen=True):
    """Submitter > agent: say what is in an output.

    Args:
        number: of the question.
        folder: of the attempt, as its node has told.
        stream: stdout or stderr.
        offset: where the piece begins.
        limit: how many bytes of it, at most; 0: only how large it is.
    """

    number: int
    folder: str
    stream: str
    offset: int
    limit: int


class OutputTold(Message, frozen=True):
    """Agent > submitter: this is in it.

    Args:
        number: of the question.
        found: whether the file is on this host.
        size: of the output, bytes.
        kept: offset from which it is kept.
        piece: what was asked for, as far as it is there.
    """

    number: int
    found: Found
    size: int = 0
    kept: int = 0
    piece: bytes = b""


class OutputReader:
    """Answers for one host.

    Args:
        root: the folder of the folders of attempts.
        tell: sends an answer.
    """

    def __init__(self, root: Path, tell: Callable[[OutputTold], None]) -> None:
        self._root = root
        self._tell = tell
        self._reading: set[asyncio.Task[None]] = set()

    def asked(self, question: OutputAsked) -> None:
        """Read beside the event loop, and answer."""
        if len(self._reading) >= READS_MAX:
            self._tell(OutputTold(question.number, "busy"))
            return
        reading = asyncio.get_running_loop().create_task(self._answer(question))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _answer(self, question: OutputAsked) -> None:
        self._tell(await asyncio.to_thread(read, self._root, question))


def read(root: Path, question: OutputAsked) -> OutputTold:
    """The answer to a question."""
    file = open_output(root, question.folder, question.stream)
    if file is None:
        return OutputTold(question.number, "not here")
    try:
        there = extent(file)
        limit = max(0, min(question.limit, PIECE_BYTES_MAX))
        piece = os.pread(file, limit, max(0, question.offset))
    except OSError:
        return OutputTold(question.number, "not here")
    finally:
        os.close(file)
    return OutputTold(question.number, "here", there.size, there.kept, piece)
