"""Files of records, journals and snapshots: a line that names the format, then records of bytes, all under checksums.

The first line holds the kind of the file, its version and the CRC-32 of both, so that no damage makes a file one of
another version. A record is its head and its content. The head is the length of the content, its CRC-32, begun with
that of the record before, and the CRC-32 of these two: three unsigned integers of 4 bytes, little endian. So a reader
can trust the length, misses no record, and tells an incomplete last one, which a crash leaves, from a damage, which may
be anywhere.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from volery.core.errors import DamagedError, InputError
from volery.live.files import AppendedFile

LINE_BYTES_MAX: Final = 100
_HEAD: Final = struct.Struct("<III")
_SUMMED: Final = struct.Struct("<II")
_LINE: Final = re.compile(rb"(volery [a-z]+ [0-9]+) ([0-9a-f]{8})\n")
_UNSUMMED: Final = frozenset({b"volery journal 1\n", b"volery journal 2\n", b"volery snapshot 1\n"})
"""First lines of earlier versions, which have no checksum."""


class OtherVersionError(InputError):
    """A file is whole, but another version of Volery or of the design wrote it."""


class UnbegunError(InputError):
    """A file ends before its content begins: a crash came first."""


def first_line(kind: str, version: int) -> bytes:
    """The line with which a file of records begins."""
    named = f"volery {kind} {version}".encode()
    return b"%s %08x\n" % (named, zlib.crc32(named))


def write_record(file: BinaryIO | AppendedFile, record: bytes, before: int = 0) -> int:
    """Append a record; an empty one is allowed.

    Args:
        before: the checksum of the record before; 0 for the first.

    Returns:
        The record's checksum.

    Raises:
        OSError: the disk is full, for example.
    """
    crc = zlib.crc32(record, before)
    summed = _SUMMED.pack(len(record), crc)
    file.write(summed + zlib.crc32(summed).to_bytes(4, "little"))
    file.write(record)
    return crc


class RecordReader:
    """Reads the records of an open file.

    Args:
        path: in errors.
        before: the checksum of the record before the first that is read; 0 at the beginning of a file.

    Attributes:
        checksum: of the last record that was read.
        torn_bytes: the length of an incomplete last record, once it was met.
    """

    def __init__(self, file: BinaryIO, path: Path, before: int = 0) -> None:
        self._file = file
        self._path = path
        self.checksum = before
        self.torn_bytes = 0

    def demand(self, kind: str, version: int) -> None:
        """Read the first line.

        Raises:
            OtherVersionError: the file has the format in another version.
            UnbegunError: the file ends within the line.
            DamagedError: the line is damaged, or the file is something else.
            InputError: the file has another format.
        """
        wanted = first_line(kind, version)
        line = self._file.readline(LINE_BYTES_MAX)
        if line == wanted:
            return
        if wanted.startswith(line):
            raise UnbegunError(str(self._path), "holds no complete first line: a crash came before it was written")

        summed = _LINE.fullmatch(line)
        is_whole = summed is not None and zlib.crc32(summed[1]) == int(summed[2], 16)
        if not is_whole and line not in _UNSUMMED:
            problem = f"is no volery {kind}, or is damaged at byte 0: its first line is not {wanted.decode().strip()!r}"
            raise DamagedError(str(self._path), problem)
        found = line.split()[1].decode()
        if found != kind:
            raise InputError(str(self._path), f"is a volery {found}, no {kind}")
        raise OtherVersionError(str(self._path), f"is a volery {kind} of another version")

    def record(self) -> bytes | None:
        """The next record; None at the end of the file, and where the last one is incomplete.

        Raises:
            DamagedError: the record is damaged.
        """
        file = self._file
        at = file.tell()
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            self.torn_bytes = len(head)
            return None
        length, crc, head_crc = _HEAD.unpack(head)
        if zlib.crc32(head[: _SUMMED.size]) != head_crc:
            raise self._damaged(at)
        record = file.read(length)
        if len(record) < length:
            self.torn_bytes = len(head) + len(record)
            return None
        if zlib.crc32(record, self.checksum) != crc:
            raise self._damaged(at)
        self.checksum = crc
        return record

    def _damaged(self, at: int) -> DamagedError:
        rest = self._file.seek(0, os.SEEK_END) - at
        problem = f"is damaged in the record at byte {at}; the {rest} bytes after it are not proved"
        return DamagedError(str(self._path), problem)
