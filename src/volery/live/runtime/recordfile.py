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
    line = f"volery {kind} {version}".encode()
    return b"%s %08x\n" % (line, zlib.crc32(line))


def write_record(file: BinaryIO | AppendedFile, record: bytes, previous_checksum: int = 0) -> int:
    """Append a record; an empty one is allowed.

    Args:
        previous_checksum: Checksum of the record before; 0 for the first.

    Returns:
        The record's checksum.

    Raises:
        OSError: the disk is full, for example.
    """
    crc = zlib.crc32(record, previous_checksum)
    summed_head = _SUMMED.pack(len(record), crc)
    file.write(summed_head + zlib.crc32(summed_head).to_bytes(4, "little"))
    file.write(record)
    return crc


class RecordReader:
    """Reads the records of an open file.

    Args:
        path: Path of the file, for errors.
        previous_checksum: Checksum of the record before the first that is read; 0 at the beginning of a file.

    Attributes:
        checksum: Checksum of the last record that was read.
        torn_bytes: Length of an incomplete last record, once it was met.
    """

    def __init__(self, file: BinaryIO, path: Path, previous_checksum: int = 0) -> None:
        self._file = file
        self._path = path
        self.checksum = previous_checksum
        self.torn_bytes = 0

    def demand(self, kind: str, version: int) -> None:
        """Read the first line.

        Raises:
            OtherVersionError: the file has the format in another version.
            UnbegunError: the file ends within the line.
            DamagedError: the line is damaged, or the file is something else.
            InputError: the file has another format.
        """
        expected_line = first_line(kind, version)
        line = self._file.readline(LINE_BYTES_MAX)
        if line == expected_line:
            return
        if expected_line.startswith(line):
            raise UnbegunError(str(self._path), "holds no complete first line: a crash came before it was written")

        match = _LINE.fullmatch(line)
        is_whole = match is not None and zlib.crc32(match[1]) == int(match[2], 16)
        if not is_whole and line not in _UNSUMMED:
            expected_text = expected_line.decode().strip()
            problem = f"is no volery {kind}, or is damaged at byte 0: its first line is not {expected_text!r}"
            raise DamagedError(str(self._path), problem)

        kind_in_file = line.split()[1].decode()
        if kind_in_file != kind:
            raise InputError(str(self._path), f"is a volery {kind_in_file}, no {kind}")
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
        # Without this sum a damaged length would look like a record that a crash has torn.
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
        remaining_bytes = self._file.seek(0, os.SEEK_END) - at
        problem = f"is damaged in the record at byte {at}; the {remaining_bytes} bytes after it are not proved"
        return DamagedError(str(self._path), problem)
