"""Lines of a plain or gzip-compressed file, one at a time, with every failure named by file and line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from volery.core.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
PACKED_READ_BYTES = 1 << 10
"""Deflate expands at most 1,032 times, so that one read of this size gives at most a megabyte of text."""
GZIP_FORMAT = 31
"""What zlib calls a stream with gzip's header and checksum."""


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1; compression is told by the content, not by the name.

    Raises:
        InputError: the file is missing, unreadable, empty, or its compressed part is damaged or ends early.
    """
    number = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            lines = _split(_unpacked(raw)) if packed else raw
            for number, line in enumerate(lines, start=1):
                yield number, line
    except FileNotFoundError:
        raise InputError(str(path), "no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(str(path), "is a directory; name a file in it") from None
    except EOFError:
        problem = "the gzip stream ends early (a truncated copy?); fetch the file again"
        raise InputError(f"{path}:{number + 1}", problem) from None
    except zlib.error as error:
        raise InputError(
            f"{path}:{number + 1}", f"the gzip stream is damaged ({error}); fetch the file again"
        ) from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error}); check its permissions") from None
    if number == 0:
        raise InputError(str(path), "the file is empty; check that it was copied whole")


def _unpacked(raw: BinaryIO) -> Iterator[bytes]:
    """The text of a gzip file in blocks; all that comes before a damaged place is given before the error.

    Python's own reader drops the lines in its buffer then, and the line of the damage could not be named.
    """
    packed = raw.read(PACKED_READ_BYTES)
    while packed:
        engine = zlib.decompressobj(wbits=GZIP_FORMAT)
        while not engine.eof:
            if not packed:
                raise EOFError
            yield engine.decompress(packed)
            packed = engine.unused_data if engine.eof else raw.read(PACKED_READ_BYTES)
        # another member may follow, or zeros that fill the last block of a tape
        while not (packed := packed.lstrip(b"\0")) and (more := raw.read(PACKED_READ_BYTES)):
            packed = more


def _split(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines from blocks of text, without their ends."""
    parts: list[bytes] = []
    for block in blocks:
        head, *others = block.split(b"\n")
        parts.append(head)
        if others:
            yield b"".join(parts)
            *whole, rest = others
            yield from whole
            parts = [rest]
    if last := b"".join(parts):
        yield last


@contextmanager
def atomic_output(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is whole; gzip-compressed when the name ends in `.gz`.

    The compressed form holds neither name nor time, so equal content gives equal bytes.

    Raises:
        InputError: the file exists and `force` is off, or it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists() and not force:
            raise InputError(str(path), "exists already; give --force to replace it, or another name")
        with part.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield raw
        part.replace(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror or error}); choose another place") from None
    finally:
        with suppress(OSError):
            part.unlink()
