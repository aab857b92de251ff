"""Lines of a plain or gzip-compressed file, one at a time, with every failure named by file and line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from volery.core.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
READ_AHEAD_BYTES = 1 << 17
"""GzipFile alone reads 8 KiB at a time, which costs a Python call each."""


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
            # GzipFile has all that BufferedReader asks of a raw stream
            stream = BufferedReader(gzip.GzipFile(fileobj=raw), READ_AHEAD_BYTES) if packed else raw
            for number, line in enumerate(stream, start=1):
                yield number, line
    except FileNotFoundError:
        raise InputError(str(path), "no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(str(path), "is a directory; name a file in it") from None
    except EOFError:
        problem = "the gzip stream ends early (a truncated copy?); fetch the file again"
        raise InputError(f"{path}:{number + 1}", problem) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path}:{number + 1}", f"the gzip stream is damaged ({error}); fetch the file again"
        ) from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error}); check its permissions") from None
    if number == 0:
        raise InputError(str(path), "the file is empty; check that it was copied whole")


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
