"""Jobs from the bodies of requests: small bodies are read at once, large ones in a process of their own.

To read and check a body of 64 MB takes seconds. A thread would hold the interpreter for as long. The process hands back
what it has checked in pieces, each of which is decoded within a millisecond or two.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from volery.live.clock import in_slices
from volery.live.jobs import JobDescription, TaskDescription, job_from_json, jobs_from_json
from volery.live.service.descriptions import in_pieces
from volery.live.service.outputs import AwayError

HERE_BYTES_MAX: Final = 32 << 10
"""Size of bodies that are read here, within about 20 ms in the worst case."""
REQUESTS_PER_PROCESS: Final = 100
"""Large bodies after which the process is replaced, and its memory given back."""
NICE: Final = 5

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_head: Final = msgspec.msgpack.Decoder(JobDescription).decode
_decode_piece: Final = msgspec.msgpack.Decoder(tuple[TaskDescription, ...]).decode

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
        return _encode(job), []
    return _encode(msgspec.structs.replace(job, tasks=1)), [_encode(piece) for piece in in_pieces(job.tasks)]


async def _unpacked(packed: Packed) -> JobDescription:
    head, pieces = packed
    job = _decode_head(head)
    tasks = list[TaskDescription]()
    async for piece in in_slices(map(_decode_piece, pieces)):
        tasks += piece
    return msgspec.structs.replace(job, tasks=tuple(tasks)) if tasks else job
