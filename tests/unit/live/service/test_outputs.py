"""Output of other hosts is asked for piece by piece; answers are of the host that was asked; ranges are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from starlette.responses import Response, StreamingResponse

from volery.core.model import Address, Message
from volery.live.messages import OutputReply, OutputRequest
from volery.live.node.output import Extent
from volery.live.service import outputs
from volery.live.service.outputs import AwayError, OutputRequests, Outputs, output_answer
from volery.live.status import LOG_OFFSET, TaskStatus

CONTENT = b"0123456789" * 5
TASK = TaskStatus(job=4, index=0, node="node/1", folder="/there/4/0.0")

Answer = Callable[[OutputRequest], OutputReply | None]


class Host:
    """The reporter of another host; it answers as it is told to."""

    def __init__(self, answer: Answer, source: Address = "agent/there") -> None:
        self.asked: list[OutputRequest] = []
        self.requests = OutputRequests(self._take, {"node/1": "agent/there"})
        self._answer, self._source = answer, source

    def _take(self, to: Address, message: Message) -> None:
        assert to == "agent/there"
        assert isinstance(message, OutputRequest)
        self.asked.append(message)
        if (reply := self._answer(message)) is not None:
            asyncio.get_running_loop().call_soon(self.requests.receive, reply, self._source)


def kept(asked: OutputRequest) -> OutputReply:
    piece = CONTENT[asked.offset : asked.offset + asked.limit]
    return OutputReply(asked.number, "here", len(CONTENT), 10, piece)


def test_an_output_of_another_host_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "PIECE_BYTES_MAX", 16)
    host = Host(kept)

    async def scenario() -> bytes:
        found = await Outputs(tmp_path, host.requests).open(TASK, "stdout")
        assert found is not None
        assert found.extent == Extent(50, 10)
        return b"".join([piece async for piece in found.content(10, 50)])

    assert asyncio.run(scenario()) == CONTENT[10:]
    assert [(asked.offset, asked.limit) for asked in host.asked] == [(0, 0), (10, 16), (26, 16), (42, 8)]


def test_a_host_that_reads_for_many_others_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "AGAIN_S", 0.0)
    host = Host(lambda asked: kept(asked) if asked.number == 3 else OutputReply(asked.number, "busy"))
    told = asyncio.run(host.requests.ask("node/1", TASK.folder, "stdout", 0, 5))
    assert told.piece == b"01234"
    assert len(host.asked) == 3


@pytest.mark.parametrize("host", [Host(lambda _: None), Host(kept, source="agent/other")])
def test_a_host_that_does_not_answer_itself_is_away(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "ANSWER_S", 0.02)
    with pytest.raises(AwayError, match="host there, which has the output, does not answer"):
        asyncio.run(host.requests.ask("node/1", TASK.folder, "stdout", 0, 5))


def test_an_output_is_looked_for_only_where_it_can_be(tmp_path: Path) -> None:
    host = Host(lambda asked: OutputReply(asked.number, "not here"))
    found = Outputs(tmp_path, host.requests)

    async def scenario() -> None:
        other_job = TaskStatus(job=5, index=0, node="node/1", folder=TASK.folder)
        assert await found.open(other_job, "stdout") is None, "a node reports folders of its own job"
        unknown = TaskStatus(job=4, index=0, node="node/9", folder=TASK.folder)
        assert await found.open(unknown, "stdout") is None
        assert not host.asked
        assert await found.open(TASK, "stdout") is None
        assert len(host.asked) == 1

    asyncio.run(scenario())


class Kept:
    """An output that is there."""

    def __init__(self) -> None:
        self.extent = Extent(50, 10)
        self.closed = False

    async def content(self, start: int, end: int) -> AsyncIterator[bytes]:
        yield CONTENT[start:end]

    def close(self) -> None:
        self.closed = True


def body_of(answer: Response) -> bytes:
    async def read() -> bytes:
        assert isinstance(answer, StreamingResponse)
        return b"".join([bytes(piece) async for piece in answer.body_iterator if isinstance(piece, bytes)])

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("offset", "wanted", "status", "start", "end"),
    [
        (0, None, 200, 10, 50),
        (30, None, 200, 30, 50),
        (0, "bytes=20-24", 206, 20, 25),
        (0, "bytes=-5", 206, 45, 50),
        (0, "bytes=1-2,4-5", 200, 10, 50),
    ],
)
def test_a_piece_begins_where_it_is_asked_to_or_where_output_is_kept(
    offset: int, wanted: str | None, status: int, start: int, end: int
) -> None:
    answer = output_answer(Kept(), offset, wanted, {})
    assert (answer.status_code, answer.headers[LOG_OFFSET]) == (status, str(start))
    assert body_of(answer) == CONTENT[start:end]
    if status == 206:
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/50"


def test_a_range_behind_the_end_is_refused_and_the_output_closed() -> None:
    output = Kept()
    answer = output_answer(output, 0, "bytes=70-80", {"volery-task-state": "running"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */50")
    assert output.closed
