"""Lines of a plain or compressed file, one at a time, with every failure named by file and line."""

from __future__ import annotations

import atexit
import bz2
import gzip
import lzma
import os
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from volery.core.errors import InputError

PACKED_READ_BYTES = 1 << 10
"""Deflate expands at most 1,032 times, so that one read of this size gives at most a megabyte of text."""
BLOCK_BYTES: Final = 1 << 20
GZIP_FORMAT = 31
"""The number by which zlib names a stream with gzip's header and checksum."""
PACKED_SUFFIXES: Final = (".gz", ".zst", ".bz2", ".xz", ".zip")
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
STDIN: Final = "-"
MAC_EXTRAS: Final = "__MACOSX/"
"""Folder that macOS adds to the archives that it makes."""


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1, without a byte order mark.

    Compression (gzip, zstandard, bzip2, xz, a zip archive of one file) is recognised by the content, not by the name.

    Raises:
        InputError: the file is missing, unreadable, empty, UTF-16, or its compressed part is damaged or ends early.
    """
    number, packing = 0, ""
    try:
        with path.open("rb") as raw:
            start = raw.read(MAGIC_BYTES)
            raw.seek(0)

            packing_found = next(
                (known_packing for known_packing in PACKINGS if known_packing.magic.match(start)), None
            )
            packing = "" if packing_found is None else packing_found.name
            lines = raw if packing_found is None else _split(packing_found.blocks(raw))

            for number, line in enumerate(lines, start=1):
                if number == 1 and line.startswith(UTF_16):
                    raise InputError(str(path), "is UTF-16 text; save it as UTF-8")
                yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
    except FileNotFoundError:
        raise InputError(str(path), "no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(str(path), "is a directory; name a file in it") from None
    except EOFError:
        problem = f"the {packing} stream ends early (a truncated copy?); fetch the file again"
        raise InputError(f"{path}:{number + 1}", problem) from None
    except (zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, _DamagedError) as error:
        raise InputError(
            f"{path}:{number + 1}", f"the {packing} stream is damaged ({error}); fetch the file again"
        ) from None
    except _UnreadableError as error:
        raise InputError(str(path), str(error)) from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error}); check its permissions") from None

    if number == 0:
        raise InputError(str(path), "the file is empty; check that it was copied whole")


def lacks_last_line_end(path: Path) -> bool:
    """True for a plain file of lines that ends within one; a compressed stream and a document tell their ends."""
    with path.open("rb") as file:
        start = file.read(MAGIC_BYTES)
        if start.lstrip()[:1] in (b"{", b"[") or any(packing.magic.match(start) for packing in PACKINGS):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) not in b"\r\n"


class _DamagedError(Exception):
    """A compressed stream cannot be read further."""


class _UnreadableError(Exception):
    """An archive is whole, but is not one that is read."""


def _gzip_blocks(raw: BinaryIO) -> Iterator[bytes]:
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
        while not (packed := packed.lstrip(b"\0")) and (next_piece := raw.read(PACKED_READ_BYTES)):
            packed = next_piece


def _stream_blocks(new_engine: Callable[[], Any]) -> Callable[[BinaryIO], Iterator[bytes]]:
    """A reader of bzip2 or xz, which give at most a megabyte at a time however far they expand."""

    def blocks(raw: BinaryIO) -> Iterator[bytes]:
        packed = raw.read(BLOCK_BYTES)
        while packed:
            engine = new_engine()
            while not engine.eof:
                if engine.needs_input and not packed:
                    raise EOFError
                try:
                    yield engine.decompress(packed, BLOCK_BYTES)
                except OSError as error:  # what bzip2 calls damage
                    raise _DamagedError(error) from None
                packed = raw.read(BLOCK_BYTES) if engine.needs_input and not engine.eof else b""

            packed = (engine.unused_data or raw.read(BLOCK_BYTES)).lstrip(b"\0")

    return blocks


def _zstd_blocks(raw: BinaryIO) -> Iterator[bytes]:
    """The text of a zstandard file in blocks, read by Arrow; frames may follow each other."""
    import pyarrow as pa

    with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd") as stream:
        while True:
            try:
                block = stream.read(BLOCK_BYTES)
            except OSError as error:
                if "truncated" in str(error).lower():
                    raise EOFError from None
                raise _DamagedError(str(error).splitlines()[0]) from None

            if not block:
                return
            yield block


def _zip_blocks(raw: BinaryIO) -> Iterator[bytes]:
    """The text of the only file of a zip archive, in blocks."""
    with zipfile.ZipFile(raw) as archive:
        files = (listed_entry.filename for listed_entry in archive.infolist() if not listed_entry.is_dir())
        names = [name for name in files if not name.startswith(MAC_EXTRAS)]

        if len(names) != 1:
            raise _UnreadableError(f"the archive holds {len(names)} files where one is expected; unpack it")

        try:
            member = archive.open(names[0])
        except (RuntimeError, NotImplementedError) as error:  # it is encrypted, or packed by another method
            raise _UnreadableError(f"the archive cannot be opened ({error}); unpack it") from None

        with member as stream:
            while block := stream.read(BLOCK_BYTES):
                yield block


class _Packing(NamedTuple):
    """A way to compress a file: its name, its first bytes, and a reader."""

    name: str
    magic: re.Pattern[bytes]
    blocks: Callable[[BinaryIO], Iterator[bytes]]


PACKINGS: Final = (
    _Packing("gzip", re.compile(rb"\x1f\x8b"), _gzip_blocks),
    # a frame, or one that readers skip (RFC 8878, section 3.1.2), with which parallel packers begin
    _Packing("zstandard", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _zstd_blocks),
    _Packing("bzip2", re.compile(rb"BZh"), _stream_blocks(bz2.BZ2Decompressor)),
    _Packing("xz", re.compile(rb"\xfd7zXZ\0"), _stream_blocks(lzma.LZMADecompressor)),
    _Packing("zip", re.compile(rb"PK\x03\x04"), _zip_blocks),
)
MAGIC_BYTES: Final = 6
"""First bytes that distinguish all of them."""


def bare_name(path: Path) -> str:
    """The name of a file without the ending of its compression."""
    return path.name.removesuffix(path.suffix) if path.suffix in PACKED_SUFFIXES else path.name


def spooled_stdin() -> str:
    """The name of a file that holds what standard input gives.

    A trace is read more than once, and by other processes. The file is removed when this process ends.

    Raises:
        InputError: standard input is closed or a terminal, or there is no room for what it gives.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(STDIN, "standard input is closed or a terminal; pipe a trace into it, or name a file")

    folder = tempfile.mkdtemp(prefix="volery-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "stdin"

    try:
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as error:
        raise InputError(STDIN, f"cannot be kept in {path} ({error.strerror or error}); make room there") from None
    return str(path)


def _split(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines from blocks of text, without their ends."""
    parts: list[bytes] = []

    for block in blocks:
        head, *further_lines = block.split(b"\n")
        parts.append(head)

        if further_lines:
            yield b"".join(parts)
            *whole_lines, last_part = further_lines
            yield from whole_lines
            parts = [last_part]

    if last := b"".join(parts):
        yield last


@contextmanager
def atomic_output(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is whole; gzip-compressed when the name ends in `.gz`.

    The compressed form holds neither name nor time, so equal content gives equal bytes.

    Raises:
        InputError: the path names no file, the file exists and `force` is off, or it cannot be written.
    """
    if not path.name:
        raise InputError("output", f"{str(path)!r} names no file; give the name of one")

    # Beside the output, so that the rename stays within one file system and is atomic.
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
        with suppress(OSError):  # after the rename it is not there any more
            part.unlink()
