"""Output that is read from afar: the API's host asks the host of the node, which reads a bounded piece of its own file.

What is asked for is a file of `output`: a folder that the node has told of and one of two names, nothing else. Only the
submitter is answered; who may see what of a job is decided where users are known, by the API.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from volery.live.messages import OutputReply, OutputRequest
from volery.live.node.output import extent, open_output

PIECE_BYTES_MAX: Final = 256 << 10
"""Of one answer: a quarter of what the broker takes in one message."""
READS_MAX: Final = 8
"""At a time on one host; whoever asks for more is told to come again."""


class OutputReader:
    """Answers for one host.

    Args:
        root: the folder of the folders of attempts.
        tell: sends an answer.
    """

    def __init__(self, root: Path, tell: Callable[[OutputReply], None]) -> None:
        self._root = root
        self._tell = tell
        self._reading: set[asyncio.Task[None]] = set()

    def asked(self, question: OutputRequest) -> None:
        """Read beside the event loop, and answer."""
        if len(self._reading) >= READS_MAX:
            self._tell(OutputReply(question.number, "busy"))
            return
        reading = asyncio.get_running_loop().create_task(self._answer(question))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _answer(self, question: OutputRequest) -> None:
        self._tell(await asyncio.to_thread(read, self._root, question))


def read(root: Path, question: OutputRequest) -> OutputReply:
    """The answer to a question."""
    file = open_output(root, question.folder, question.stream)
    if file is None:
        return OutputReply(question.number, "not here")
    try:
        there = extent(file)
        limit = max(0, min(question.limit, PIECE_BYTES_MAX))
        piece = os.pread(file, limit, max(0, question.offset))
    except OSError:
        return OutputReply(question.number, "not here")
    finally:
        os.close(file)
    return OutputReply(question.number, "here", there.size, there.kept, piece)
