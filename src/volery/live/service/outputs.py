"""The output of tasks: a file of this host, or one of the node's host that is asked for piece by piece; and answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from starlette.responses import Response, StreamingResponse

from volery.core.errors import InputError
from volery.core.model import Address
from volery.live.messages import AGENT, OutputReply, OutputRequest, Send
from volery.live.node.output import PIECE_BYTES_MAX, Extent, blocks, extent, open_output, piece_from, piece_in
from volery.live.status import LOG_OFFSET, TaskStatus

MEDIA_TYPE = "application/octet-stream"
ANSWER_S: Final = 5.0
"""Longest wait for the answer of a host that is asked for a piece."""
ASKING_MAX: Final = 16
"""Requests for pieces under way at a time, to all hosts; further ones wait for their turn."""
AGAIN_S: Final = 0.1
"""Time after which a host that reads for many others is asked again."""


class AwayError(InputError):
    """A host that alone could answer does not."""


class TaskOutput(Protocol):
    """An output that exists.

    Attributes:
        extent: extent of what exists of it.
    """

    extent: Extent

    def content(self, start: int, end: int) -> AsyncIterator[bytes]:
        """The content between two offsets, in pieces; once, and then it is closed."""

    def close(self) -> None:
        """Release the output without reading it."""


class FileOutput:
    """An output in a file of this host.

    Args:
        file: descriptor of the file.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self.extent = extent(file)

    def content(self, start: int, end: int) -> AsyncIterator[bytes]:
        return blocks(self._file, start, end)

    def close(self) -> None:
        os.close(self._file)


class OutputRequests:
    """Questions to the hosts of nodes.

    Args:
        agents: node -> the reporter of its host, where that is another one.
    """

    def __init__(self, send: Send, agents: Mapping[Address, Address]) -> None:
        self._send = send
        self.agents = agents
        self._number = 0
        self._open: dict[int, tuple[Address, asyncio.Future[OutputReply]]] = {}
        self._turns = asyncio.Semaphore(ASKING_MAX)

    async def ask(self, node: Address, folder: str, stream: str, offset: int, limit: int) -> OutputReply:
        """Ask the host of a node for a piece of an output.

        Raises:
            AwayError: it does not answer.
        """
        agent = self.agents[node]
        try:
            async with asyncio.timeout(ANSWER_S), self._turns:
                while (reply := await self._once(agent, folder, stream, offset, limit)).found == "busy":
                    await asyncio.sleep(AGAIN_S)
                return reply
        except TimeoutError:
            host = agent.removeprefix(f"{AGENT}/")
            problem = f"host {host}, which has the output, does not answer; the output is kept there, try again later"
            raise AwayError(node, problem) from None

    async def _once(self, agent: Address, folder: str, stream: str, offset: int, limit: int) -> OutputReply:
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._open[number] = agent, answer
        try:
            self._send(agent, OutputRequest(number, folder, stream, offset, limit))
            return await answer  # type: ignore[no-any-return]  # the answer that `receive` has put there
        finally:
            del self._open[number]

    def receive(self, reply: OutputReply, source: Address) -> None:
        """Take an answer, which may come too late."""
        agent, answer = self._open.get(reply.number, ("", None))
        # Another host than the one that was asked cannot answer for it.
        if answer is not None and agent == source and not answer.done():
            answer.set_result(reply)


class RemoteOutput:
    """An output in a file of a node's host.

    Args:
        extent: extent of what existed when it was opened.
    """

    def __init__(self, requests: OutputRequests, task: TaskStatus, stream: str, available: Extent) -> None:
        self._requests = requests
        self._task = task
        self._stream = stream
        self.extent = available

    async def content(self, start: int, end: int) -> AsyncIterator[bytes]:
        """Ask for the content piece by piece; a host that goes away meanwhile breaks the answer off."""
        while start < end:
            limit = min(PIECE_BYTES_MAX, end - start)
            reply = await self._requests.ask(self._task.node, self._task.folder, self._stream, start, limit)
            if not reply.piece:
                return
            yield reply.piece
            start += len(reply.piece)

    def close(self) -> None:
        """Do nothing: no file is open on this host."""


class Outputs:
    """Finds the outputs of tasks.

    Args:
        root: the folder of the folders of attempts on this host.
    """

    def __init__(self, root: Path, requests: OutputRequests) -> None:
        self._root = root.resolve()
        self._requests = requests

    async def open(self, task: TaskStatus, stream: str) -> TaskOutput | None:
        """The output of a task's last attempt; None: it is neither here nor on its node's host.

        Raises:
            AwayError: the node's host does not answer.
        """
        if Path(task.folder).parent.name != str(task.job):
            return None  # a node may report folders of its own job only

        file = await asyncio.to_thread(open_output, self._root, task.folder, stream)
        if file is not None:
            return FileOutput(file)

        if task.node not in self._requests.agents:
            return None

        reply = await self._requests.ask(task.node, task.folder, stream, 0, 0)
        if reply.found != "here":
            return None

        return RemoteOutput(self._requests, task, stream, Extent(reply.size, reply.kept))


def output_answer(output: TaskOutput, offset: int, range_header: str | None, headers: Mapping[str, str]) -> Response:
    """A piece of an output.

    Args:
        output: it is closed when the answer has been sent.
        offset: earliest beginning of the piece; dropped bytes are passed over.
        range_header: the header Range, which goes before the offset.
        headers: further ones of the answer.
    """
    piece = piece_from(output.extent, offset)
    status = 200

    if range_header is not None:
        # One that is no single range of bytes is as if it were not there (RFC 9110, 14.2).
        with suppress(ValueError):
            requested_piece = piece_in(output.extent, range_header)
            if requested_piece is None:
                output.close()
                return Response(status_code=416, headers={**headers, "content-range": f"bytes */{piece.size}"})
            piece, status = requested_piece, 206
            headers = {**headers, "content-range": f"bytes {piece.start}-{piece.end - 1}/{piece.size}"}

    headers = {**headers, "accept-ranges": "bytes", LOG_OFFSET: str(piece.start)}
    return StreamingResponse(output.content(piece.start, piece.end), status, headers, media_type=MEDIA_TYPE)
