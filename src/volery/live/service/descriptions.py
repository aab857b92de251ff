"""Descriptions of jobs, from requests and in the store: read and written in pieces where long, so that nobody waits.

A list of 100,000 different tasks has 50 MB as JSON, and to encode, digest or decode it takes half a second. It is
encoded in slices; SQLite writes it and takes it apart in threads, where it does not hold the interpreter. To read and
check the body of a request of that size would hold the interpreter for as long, so that a process of its own does it.
It hands back what it has checked in pieces, each of which is decoded within a millisecond or two.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from volery.core.model import JobId, TaskId
from volery.live.clock import in_slices
from volery.live.jobs import JobDescription, TaskDescription, job_from_json, jobs_from_json
from volery.live.service.outputs import AwayError
from volery.live.service.rows import digest_of, encoded, reading, sound_content

LONG_BYTES: Final = 256 << 10
"""Longest description that is decoded in one turn of the loop, in about 3 ms."""
PIECE_TASKS: Final = 250
PIECE_BYTES: Final = 256 << 10
PARTS_MAX: Final = 1_000
"""Parts of long descriptions that are cached."""
PART_BYTES_MAX: Final = 16 << 10
"""Largest part that is cached."""

DESCRIBED: Final = "FROM jobs JOIN descriptions ON descriptions.id = description WHERE jobs.id = ?"
_TEXT: Final = f"(SELECT CAST(content AS TEXT) AS text, tasks AS count {DESCRIBED})"
_IS_LIST: Final = "json_type(text, '$.tasks') = 'array'"
_PART: Final = (
    f"SELECT iif({_IS_LIST}, json_remove(text, '$.tasks'), text), "  # noqa: S608 - ours
    f"iif({_IS_LIST}, json_array_length(text, '$.tasks') = count, NULL), "
    f"json_extract(text, '$.tasks[' || ? || ']') FROM {_TEXT}"
)
_RUN: Final = (
    "WITH listed AS (SELECT value, sum(coalesce(json_extract(value, '$.count'), 1)) OVER (ORDER BY key) AS end "  # noqa: S608 - ours
    f"FROM {_TEXT}, json_each(text, '$.tasks')) SELECT value, end FROM listed WHERE end > ? ORDER BY end LIMIT 1"
)
_LIST: Final = f"SELECT value FROM {_TEXT}, json_each(text, '$.tasks')"  # noqa: S608 - ours
_SIZE: Final = f"SELECT first_task, length(content) {DESCRIBED}"
_CONTENT: Final = f"SELECT digest, content {DESCRIBED}"

_decode: Final = msgspec.json.Decoder(JobDescription).decode
_decode_task: Final = msgspec.json.Decoder(TaskDescription).decode
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class EncodedDescription(NamedTuple):
    """A merged description as it is stored, and its digest, under which it is stored once."""

    content: bytes
    digest: bytes

    @property
    def is_long(self) -> bool:
        """True if SQLite takes too long to write it in the loop's thread."""
        return len(self.content) > LONG_BYTES


class PartialDescription(NamedTuple):
    """A description with one of its tasks, or with all that are equal.

    Args:
        first_task: the number of the first task of the job.
        description: description of the job; in place of a long list of tasks it has one of them.
        first: the place in the job of the first task that it has.
        is_whole: true if it has all tasks of the job.
    """

    first_task: TaskId
    description: JobDescription
    first: int
    is_whole: bool


def in_pieces(tasks: Sequence[TaskDescription]) -> Iterator[Sequence[TaskDescription]]:
    """Tasks in pieces, each of which takes a millisecond or two to encode or decode."""
    first, size = 0, 0
    for at, task in enumerate(tasks, 1):
        size += len(task.stdin) + len(task.call) + sum(map(len, task.command)) + 100
        if size > PIECE_BYTES or at - first == PIECE_TASKS or at == len(tasks):
            yield tasks[first:at]
            first, size = at, 0


def encoded_at_once(description: JobDescription) -> EncodedDescription:
    """A description as it is stored."""
    content = encoded(description)
    return EncodedDescription(content, digest_of(content))


async def encoded_in_slices(description: JobDescription) -> EncodedDescription:
    """A description as it is stored; other coroutines have turns meanwhile."""
    if isinstance(description.tasks, int):
        return encoded_at_once(description)

    digest, pieces = hashlib.sha256(), bytearray()
    async for piece in in_slices(_pieces(description)):
        digest.update(piece)
        pieces += piece
    return EncodedDescription(bytes(pieces), digest.digest())


def _pieces(description: JobDescription) -> Iterator[bytes]:
    """The JSON of a description, in pieces; the list of tasks is the last of its fields."""
    assert not isinstance(description.tasks, int)
    head = encoded(replace(description, tasks=1))
    yield head[:-1] + (b"" if head == b"{}" else b",") + b'"tasks":['

    comma = b""
    for piece in in_pieces(description.tasks):
        yield comma + _encode(piece)[1:-1]
        comma = b","
    yield b"]}"


class DescriptionReader:
    """Reads descriptions of jobs.

    Args:
        path: path of the store, which threads open for themselves.
        sql: connection that sees what is committed.
    """

    def __init__(self, path: Path, sql: sqlite3.Connection) -> None:
        self._path = path
        self._sql = sql
        self._parts: OrderedDict[tuple[JobId, int], PartialDescription] = OrderedDict()

    async def part(self, number: JobId, place: int) -> PartialDescription | None:
        """The description of a job with at least the task at a place; None where there is no such job."""
        row = self._sql.execute(_SIZE, (number,)).fetchone()
        if row is None:
            return None

        if row[1] <= LONG_BYTES:
            content = sound_content(*self._sql.execute(_CONTENT, (number,)).fetchone())
            return PartialDescription(row[0], _decode(content), 0, is_whole=True)
        if (number, place) in self._parts:
            return self._parts[number, place]

        part, size = await asyncio.to_thread(self._read_part, row[0], number, place)
        if size <= PART_BYTES_MAX:
            self._parts[number, place] = part
            if len(self._parts) > PARTS_MAX:
                self._parts.popitem(last=False)

        return part

    def _read_part(self, first_task: TaskId, number: JobId, place: int) -> tuple[PartialDescription, int]:
        sql = reading(self._path)
        try:
            # The digest is checked before a part is taken: it covers the whole content.
            sound_content(*sql.execute(_CONTENT, (number,)).fetchone())

            head, is_by_place, task = sql.execute(_PART, (place, number)).fetchone()
            job = _decode(head)
            first = place
            if is_by_place is None:
                return PartialDescription(first_task, job, 0, is_whole=True), len(head)

            # Entries of the list may stand for several tasks: the sum of their counts leads to the one with this place.
            if not is_by_place:
                task, end = sql.execute(_RUN, (number, place)).fetchone()
                first = end - _decode_task(task).count
        finally:
            sql.close()

        part = PartialDescription(first_task, replace(job, tasks=(_decode_task(task),)), first, is_whole=False)
        return part, len(head) + len(task)

    async def whole(self, number: JobId) -> JobDescription | None:
        """The description of a job with all its tasks; None where there is no such job."""
        part = await self.part(number, 0)
        if part is None or part.is_whole:
            return None if part is None else part.description

        sql = reading(self._path)
        try:
            rows = await asyncio.to_thread(sql.execute, _LIST, (number,))
            tasks = list[TaskDescription]()
            while piece := await asyncio.to_thread(rows.fetchmany, PIECE_TASKS):
                tasks += [_decode_task(text) async for (text,) in in_slices(piece)]
        finally:
            sql.close()

        return replace(part.description, tasks=tuple(tasks))


HERE_BYTES_MAX: Final = 32 << 10
"""Size of bodies that are read here, within about 20 ms in the worst case."""
REQUESTS_PER_PROCESS: Final = 100
"""Large bodies after which the process is replaced, and its memory given back."""
NICE: Final = 5

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack_head: Final = msgspec.msgpack.Decoder(JobDescription).decode
_unpack_piece: Final = msgspec.msgpack.Decoder(tuple[TaskDescription, ...]).decode

T = TypeVar("T")
Packed = tuple[bytes, list[bytes]]
"""A job without its list of tasks, and that list in pieces."""


class Intake:
    """Reads jobs from the bodies of requests."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._requests_left = 0

    async def job(self, body: bytearray, place: str) -> JobDescription:
        """The job that a body describes.

        Raises:
            InputError: it is none.
            AwayError: the process that reads it was ended, for example for want of memory.
        """
        if len(body) <= HERE_BYTES_MAX:
            return job_from_json(body, place)
        return await _unpacked(await self._apart(_read_job, body, place))

    async def jobs(self, body: bytearray, place: str) -> list[JobDescription]:
        """The list of jobs that a body describes; as `job`."""
        if len(body) <= HERE_BYTES_MAX:
            return jobs_from_json(body, place)
        return [await _unpacked(packed) for packed in await self._apart(_read_jobs, body, place)]

    async def _apart(self, read: Callable[[str, str], T], body: bytearray, place: str) -> T:
        # Through a file: to write it does not hold the interpreter, as the copies of the pool's queue do.
        with tempfile.NamedTemporaryFile(buffering=0) as file:
            await asyncio.to_thread(_write, file.fileno(), body)
            return await self._asked(read, file.name, place)

    async def _asked(self, read: Callable[[str, str], T], path: str, place: str) -> T:
        if not self._requests_left and self._pool is not None:
            # Not by max_tasks_per_child, with which a pool can stop for good while requests wait for it.
            self._pool.shutdown(wait=False)
            self._pool = None

        if self._pool is None:
            context = get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=os.nice, initargs=(NICE,))
            self._requests_left = REQUESTS_PER_PROCESS

        self._requests_left -= 1

        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, read, path, place)
        except BrokenProcessPool:
            # Another request may have found the pool broken first, and have replaced it already.
            if self._pool is pool:
                self._pool = None
            problem = "the process that reads large bodies was ended, perhaps for want of memory"
            raise AwayError("body", f"{problem}; submit smaller jobs") from None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _write(file: int, body: bytearray) -> None:
    remaining = memoryview(body)
    while remaining:
        remaining = remaining[os.write(file, remaining) :]


def _read_job(path: str, place: str) -> Packed:
    return _packed(job_from_json(Path(path).read_bytes(), place))


def _read_jobs(path: str, place: str) -> list[Packed]:
    return [_packed(job) for job in jobs_from_json(Path(path).read_bytes(), place)]


def _packed(job: JobDescription) -> Packed:
    if isinstance(job.tasks, int):
        return _pack(job), []
    return _pack(replace(job, tasks=1)), [_pack(piece) for piece in in_pieces(job.tasks)]


async def _unpacked(packed: Packed) -> JobDescription:
    head, pieces = packed
    job = _unpack_head(head)
    tasks = list[TaskDescription]()
    async for piece in in_slices(map(_unpack_piece, pieces)):
        tasks += piece
    return replace(job, tasks=tuple(tasks)) if tasks else job
