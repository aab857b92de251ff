"""The journal of a host: every event that its components have handled, in order, and a checksum of what they answered.

A file is a first line and records, see `recordfile`. The first record is the `Header`, every further one a turn: its
time and its entries. A record that was torn by a crash is the last thing in a file, and is passed over, so that a file
ends with the last turn that was committed. Every other damage is an error.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from volery.core.component import Component
from volery.core.errors import InputError
from volery.core.events import DRIVER_EVENTS, SUBMITTER_MESSAGES, Computed, TaskFinished
from volery.core.model import SECOND, Address, Cluster, Key, Message, Task, TaskId, Time
from volery.live.config.limits import Durability
from volery.live.files import AppendedFile, file_identity
from volery.live.messages import HostName
from volery.live.node.shortage import lack_of
from volery.live.runtime.recordfile import OtherVersionError, RecordReader, UnbegunError, first_line, write_record
from volery.live.transport.delivery import union

KIND: Final = "journal"
VERSION: Final = 3
SUFFIX: Final = ".journal"
RAISED: Final = -1
"""Stands for the checksum of an event whose handler raised: the last entry of a host that failed."""
BUFFER_BYTES: Final = 1 << 20
STALL_S: Final = 0.5
"""Time between two tries to write a journal for which the machine lacks something."""

log = logging.getLogger(__name__)


class Started(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Stands for the call of `start`, the first entry of every component."""


class Header(msgspec.Struct, frozen=True):
    """Header of a journal: what a replay needs to build the same components.

    Args:
        incarnation: Number of the host's incarnation, from 1.
        cluster: Machines as schedulers see them.
        addresses: Addresses of the components on this host, in the order in which they were started.
        configuration: SHA-256 of architecture, parameters and cluster, equal on all hosts of a federation.
        origin_unix_us: Wall clock at time 0 of this journal.
        segment: Place of this file among those of the incarnation, from 0; the others begin with a snapshot.
    """

    federation: str
    host: str
    incarnation: int
    seed: int
    architecture: str
    parameters: dict[str, Any]
    cluster: Cluster
    addresses: tuple[Address, ...]
    configuration: str
    origin_unix_us: int
    segment: int = 0


Entry = tuple[Address, Address, Any, int]
"""Component, source, event, checksum of the effects."""


class JournalTurn(NamedTuple):
    """Events that were handled at one time and committed together."""

    now: Time
    entries: Sequence[Entry]


def journal_path(folder: Path, host: str, incarnation: int, segment: int = 0) -> Path:
    """A file of one incarnation of a host: HOST-3.journal, then HOST-3.000001.journal."""
    place = f".{segment:06}" if segment else ""
    return folder / f"{host}-{incarnation}{place}{SUFFIX}"


def journal_order(path: Path) -> tuple[str, int, int]:
    """Host, incarnation and segment in a file's name; files of other names come first."""
    host, _, numbers = path.name.removesuffix(SUFFIX).rpartition("-")
    incarnation, _, segment = numbers.partition(".")
    if not (incarnation.isdecimal() and (segment or "0").isdecimal()):
        return path.name, -1, 0
    return host, int(incarnation), int(segment or 0)


def snapshot_path(path: Path) -> Path:
    """The snapshot with which a journal's file begins, unless it is the first of its incarnation."""
    return path.with_suffix(".snapshot")


def journalled_incarnation(folder: Path, host: str) -> int:
    """One more than the last incarnation that has a journal in the folder; 1 where there is none."""
    numbers = [journal_order(path) for path in folder.glob(f"{host}-*{SUFFIX}")]
    return 1 + max((number for name, number, _ in numbers if name == host), default=0)


class JournalWriter:
    """Appends turns.

    Args:
        durability: Durability of turns; "none" writes a megabyte at a time.

    Raises:
        InputError: the file exists or cannot be written.

    Attributes:
        path: Path of the file that is written now.
    """

    def __init__(self, path: Path, header: Header, durability: Durability) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._durability = durability
        self._launched_payloads: dict[tuple[Address, TaskId, int], bytes] = {}
        self._checked_us: Time = 0
        self._begin(path, header)

    def _begin(self, path: Path, header: Header) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # It holds commands and their environment, which nobody else may read.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise InputError(str(path), f"the journal cannot be written: {error.strerror}") from None

        self.path = path
        self.size = 0
        # A replay of this file computes its own launches alone, so only their payloads may be left out.
        self._launched_payloads.clear()
        self._checksum = 0

        self._file = AppendedFile(descriptor)
        self._file.write(first_line(KIND, VERSION))
        self._write(self._encode(header))

    def launched(self, node: Address, task: Task, attempt: int) -> None:
        """Note a launch, whose payload a replay of this file computes again."""
        if task.payload:
            self._launched_payloads[node, task.id, attempt] = task.payload

    def event(self, address: Address, event: Any) -> Any:
        """The event of a component as this file holds it.

        What a replay computes again is left out: answers of `compute`, and the payload of a task that has ended, if the
        component has launched it since this file was begun.
        """
        if type(event) is Computed:
            return Computed(event.key, None)
        if type(event) is TaskFinished:
            task = event.task
            if task.payload and self._launched_payloads.pop((address, task.id, event.attempt), None) == task.payload:
                return msgspec.structs.replace(event, task=msgspec.structs.replace(task, payload=b""))
        return event

    def append(self, now: Time, entries: Iterable[Entry]) -> None:
        """Write a turn; it is as durable as was asked for when this returns.

        Raises:
            OSError: it is not, and `flush` tries again; or the file was removed or replaced, so that nobody finds it.
        """
        # Once a second and not with every turn: it takes two system calls.
        if now >= self._checked_us + SECOND:
            self._checked_us = now
            if file_identity(self.path) != file_identity(self._file.fileno()):
                raise FileNotFoundError(errno.ENOENT, "the journal was removed or replaced", str(self.path))

        self._write(self._encode((now, entries)))

    def _write(self, record: bytes) -> None:
        self._checksum = write_record(self._file, record, self._checksum)
        self.size += len(record)
        self.flush()

    def flush(self) -> None:
        """Make all turns as durable as was asked for.

        Raises:
            OSError: the disk is full, for example; nothing is lost, and another call goes on.
        """
        file = self._file

        if self._durability != "none" or file.unwritten_bytes >= BUFFER_BYTES:
            file.flush()

        if self._durability == "fsync":
            try:
                os.fdatasync(file.fileno())
            except OSError as error:  # the kernel may have dropped what it could not write, and another call be well
                raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({error.strerror})", str(self.path)) from error

    @property
    def is_full(self) -> bool:
        """True if another file is due; a journal of one file never needs one."""
        return False

    def rotate(self, components: Mapping[Address, Component], problems: Mapping[tuple[Address, Key], Any]) -> None:
        """Go on in another file, once `is_full`; called between two turns."""

    def close(self) -> None:
        self._file.close()


class JournalStall:
    """The wait of a host for room for its journal; meanwhile it handles nothing and releases no effect.

    Args:
        host: Name of the host.
        on_written: Called when the journal is written.
        on_failure: Called with an error that is no shortage.

    Attributes:
        words: Shortage of the machine, in words; empty: none.
    """

    def __init__(self, host: HostName, on_written: Callable[[], None], on_failure: Callable[[OSError], None]) -> None:
        self._host = host
        self._on_written = on_written
        self._on_failure = on_failure
        self._timer: asyncio.TimerHandle | None = None
        self.words = ""

    @property
    def lasts(self) -> bool:
        return self._timer is not None

    def begin(self, journal: JournalWriter, error: OSError) -> None:
        """Wait because of an error, and try again."""
        lack = lack_of(error)
        if not lack:
            self._on_failure(error)
            return

        self.words = f"short of {lack}: its journal cannot be written ({error.strerror})"
        if self._timer is None:
            log.error("host %s waits, %s", self._host, self.words)
        else:
            self._timer.cancel()

        self._timer = asyncio.get_running_loop().call_later(STALL_S, self._try_again, journal)

    def _try_again(self, journal: JournalWriter) -> None:
        try:
            journal.flush()
        except OSError as error:
            self.begin(journal, error)
            return

        self._timer, self.words = None, ""
        log.warning("host %s goes on: its journal can be written again", self._host)
        self._on_written()

    def close(self) -> None:
        """Give the wait up."""
        if self._timer is not None:
            self._timer.cancel()


class JournalReader:
    """Reads a journal.

    Attributes:
        torn_bytes: Length of the end of the file that was torn, once all turns have been read.

    Raises:
        OtherVersionError: another version wrote it.
        UnbegunError: it ends within its header.
        DamagedError: it is damaged, or no journal.
        InputError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn_bytes = 0
        with self._open() as file:
            records = RecordReader(file, path)
            records.demand(KIND, VERSION)
            record = records.record()
            self._first_turn = file.tell()
            self._header_checksum = records.checksum

        if record is None:
            raise UnbegunError(str(path), "holds no complete header: the host ended before it began")

        try:
            self.header = msgspec.msgpack.decode(record, type=Header)
        except msgspec.MsgspecError as error:  # the record has its checksum, so it is not damaged
            raise OtherVersionError(str(path), f"has another header: {error}") from None

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise InputError(str(self.path), f"cannot be read: {error.strerror}") from None

    def turns(self, messages: Iterable[type[Message]]) -> Iterator[JournalTurn]:
        """All turns, in order.

        Args:
            messages: Messages that the header's architecture declares.

        Raises:
            DamagedError: a record is damaged.
            OtherVersionError: it holds an event that this version of the architecture does not have.
        """
        event_types = sorted({*messages, *SUBMITTER_MESSAGES, *DRIVER_EVENTS, Started}, key=lambda kind: kind.__name__)

        event = union(event_types)
        decoder = msgspec.msgpack.Decoder(
            tuple[Time, list[tuple[Address, Address, event, int]]]  # type: ignore[valid-type] # made at run time
        )
        for record in self._records():
            try:
                yield JournalTurn(*decoder.decode(record))
            except msgspec.MsgspecError as error:
                raise OtherVersionError(str(self.path), f"holds an event that is not known here: {error}") from None

    def times(self) -> tuple[Time, Time] | None:
        """The times of the first turn and of the last; None where there is none.

        Raises:
            DamagedError: a record is damaged.
        """
        decoder = msgspec.msgpack.Decoder(tuple[Time, msgspec.Raw])
        # The entries stay encoded: only the times are needed.
        first = last = None
        for record in self._records():
            last = decoder.decode(record)[0]
            first = last if first is None else first
        return None if first is None or last is None else (first, last)

    def _records(self) -> Iterator[bytes]:
        with self._open() as file:
            file.seek(self._first_turn)
            records = RecordReader(file, self.path, self._header_checksum)
            while (record := records.record()) is not None:
                yield record
            self.torn_bytes = records.torn_bytes
