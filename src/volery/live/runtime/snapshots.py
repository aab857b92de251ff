"""Snapshots of components, and the journals in segments that begin with them.

A snapshot is the state of a host's components between two turns, from which a segment of its journal is replayed: a
pickle of the components, in which addresses replace their ports, and of the problems that are being computed. A child
process writes it, forked between two turns, while the host goes on; the file gets its name once it is on the disk. To
load one runs what it names, so only classes and functions of Volery, of the design, and of a short list are taken:
whoever replays the journal of somebody else trusts them, nevertheless, as far as their design goes.

A full segment is followed by another that begins with a snapshot, and the oldest are deleted. Nothing is deleted before
the snapshot that makes it dispensable is on the disk. So what is kept can always be replayed, from its first segment
on; each further snapshot is compared with the state to which the segment before it leads.
"""

from __future__ import annotations

import array
import functools
import gc
import io
import itertools
import logging
import operator
import os
import pickle
import random
import signal
import time
import types
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, get_args

import msgspec
import numpy as np

from volery.core.component import Architecture, Component
from volery.core.errors import DamagedError, InputError
from volery.core.model import Address, Key
from volery.live.config.limits import Durability, JournalSize
from volery.live.files import UNFINISHED, replacing
from volery.live.runtime.journal import (
    SUFFIX,
    Header,
    JournalWriter,
    journal_order,
    journal_path,
    snapshot_path,
)
from volery.live.runtime.port import Effect, LivePort
from volery.live.runtime.recordfile import OtherVersionError, RecordReader, UnbegunError, first_line, write_record

KIND: Final = "snapshot"
VERSION: Final = 2
NICE: Final = 5
LIMIT_S: Final = 300
"""A process that has not written a snapshot by then is ended by the kernel, with its host or without."""
REASON_BYTES: Final = 500
_ALLOWED_NAMES: Final = frozenset(
    {
        "builtins.set",
        "builtins.frozenset",
        "builtins.bytearray",
        "builtins.range",
        "builtins.slice",
        "builtins.bytes",
        "builtins.complex",
        "random.Random",
        "collections.deque",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.Counter",
        "fractions.Fraction",
        "functools.partial",
        "array.array",
        "array._array_reconstructor",
        "itertools.count",
        "numpy.ndarray",
        "numpy.dtype",
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        "numpy._core.numeric._frombuffer",
        "numpy.core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy.core.numeric._frombuffer",
        "copyreg._reconstructor",
        "builtins.object",
        "_codecs.encode",
    }
)
"""Names that a snapshot may load beside those of Volery and of the design."""

Problems = Mapping[tuple[Address, Key], Any]
Hosted = tuple[dict[Address, Component], dict[tuple[Address, Key], Any]]
"""Components by address, and the problems whose answers have not been handled."""


class _Pickler(pickle.Pickler):
    def persistent_id(self, part: Any) -> Address | None:
        return part.address if isinstance(part, LivePort) else None

    def reducer_override(self, part: Any) -> Any:
        """Take a decoder without hooks, which pickle cannot, for the types that it decodes."""
        if not isinstance(part, msgspec.msgpack.Decoder) or part.dec_hook or part.ext_hook or not part.strict:
            return NotImplemented
        return _decoder, (get_args(part.type) or (part.type,),)


def _decoder(kinds: tuple[type, ...]) -> msgspec.msgpack.Decoder[Any]:
    union: Any = functools.reduce(operator.or_, kinds)
    return msgspec.msgpack.Decoder(union)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, roots: frozenset[str], effects: list[Effect]) -> None:
        super().__init__(file)
        self._roots = roots
        self._effects = effects
        self._ports: dict[Address, LivePort] = {}

    def persistent_load(self, address: Any) -> LivePort:
        return self._ports.setdefault(address, LivePort(address, self._effects))

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return self._method

        if f"{module}.{name}" not in _ALLOWED_NAMES and module.partition(".")[0] not in self._roots:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a snapshot")

        # The name may lead elsewhere, to a module that an allowed one imports: the origin is checked, too.
        class_or_function = super().find_class(module, name)
        if (
            f"{module}.{name}" not in _ALLOWED_NAMES
            and class_or_function.__module__.partition(".")[0] not in self._roots
        ):
            raise pickle.UnpicklingError(f"{class_or_function.__module__}.{name} has no place in a snapshot")
        return class_or_function

    def _method(self, owner: Any, name: str) -> Any:
        """A bound method, the only thing for which components need `getattr`."""
        method = getattr(owner, name)
        if name.startswith("__") or not isinstance(method, types.MethodType | types.BuiltinMethodType | type):
            raise pickle.UnpicklingError(f"{name} is no method")
        return method


class _Records:
    """A file to a pickler, each piece of which becomes a record."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._checksum = 0

    def write(self, piece: Any) -> int:
        record = bytes(piece)
        self._checksum = write_record(self._file, record, self._checksum)
        return len(record)


def write_snapshot(file: BinaryIO, components: Mapping[Address, Component], problems: Problems) -> None:
    """Write the state of components; an empty record ends it.

    Raises:
        Exception: something in it cannot be pickled, for example a function without a name.
    """
    file.write(first_line(KIND, VERSION))
    records = _Records(file)
    _Pickler(records, pickle.HIGHEST_PROTOCOL).dump((dict(components), dict(problems)))
    records.write(b"")


def pickle_of(path: Path) -> io.BytesIO:
    """The pickle in a snapshot; nothing of it is loaded.

    Raises:
        OtherVersionError: the snapshot has another format.
        DamagedError: it is damaged, or incomplete: a snapshot gets its name once it is complete.
        InputError: it cannot be read.
    """
    content = io.BytesIO()
    try:
        with path.open("rb") as file:
            records = RecordReader(file, path)
            records.demand(KIND, VERSION)
            while record := records.record():
                content.write(record)
            at = file.tell()

            if record is None or file.read(1):
                raise DamagedError(str(path), f"is damaged at byte {at}: it does not end where its content ends")
    except UnbegunError as error:
        raise DamagedError(str(path), f"is damaged at byte 0: it {error.problem}") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    content.seek(0)
    return content


def read_snapshot(path: Path, architecture: Architecture, effects: list[Effect]) -> Hosted:
    """The state in a file, its ports bound to a list of effects.

    Raises:
        OtherVersionError: it has another format, or this version of the architecture cannot load it.
        DamagedError: it is damaged.
        InputError: it cannot be read.
    """
    roots = frozenset({"volery", getattr(architecture.build, "__module__", "volery").partition(".")[0]})
    content = pickle_of(path)

    try:
        state: Hosted = _Unpickler(content, roots, effects).load()
    except Exception as error:
        problem = f"cannot be loaded by this version of {architecture.name}: {error}"
        raise OtherVersionError(str(path), problem) from None
    return state


def obstacle(components: Mapping[Address, Component]) -> str:
    """Why no snapshot of these components can be made; empty where one can."""
    try:
        write_snapshot(io.BytesIO(), components, {})
    except Exception as error:
        return str(error)
    return ""


def snapshot_apart(path: Path, full_path: Path, components: Mapping[Address, Component], problems: Problems) -> int:
    """Begin to write the state of components as it is now; the number of the process that does.

    Args:
        full_path: File of the journal that leads to this state; it is on the disk before the snapshot is.

    Raises:
        OSError: there can be no further process.
    """
    unfinished_path = path.with_suffix(UNFINISHED)
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the child has none of its own

    try:
        child = os.fork()
        if not child:
            _write_and_exit(unfinished_path, path, full_path, components, problems)
        return child
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)


def _write_and_exit(
    unfinished_path: Path, path: Path, full_path: Path, components: Mapping[Address, Component], problems: Problems
) -> NoReturn:
    """Run to the end of this process: nothing that the host has begun may go on in its copy."""
    status = 1

    try:
        # A collection would touch every object, and so copy the host's memory.
        gc.disable()
        _leave_host()
        descriptor = os.open(full_path, os.O_RDONLY)
        os.fsync(descriptor)
        with replacing(path) as file:  # nobody else may read the commands and their environment that it holds
            write_snapshot(file, components, problems)
        status = 0
    except BaseException as error:
        unfinished_path.write_text(repr(error)[:REASON_BYTES])
    finally:
        os._exit(status)


def _leave_host() -> None:
    """Give up all that a host shares with its copy, and have the kernel end this process where it hangs.

    A copy that outlives a killed host would keep the host's locks and its port from the next one.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    null_device = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null_device, descriptor)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.nice(NICE)


def failure_of(path: Path) -> str:
    """Why the process that was to write a snapshot has failed; what it left is removed."""
    unfinished_path = path.with_suffix(UNFINISHED)
    try:
        reason = unfinished_path.read_bytes()[:REASON_BYTES].decode("utf-8", "replace")
        unfinished_path.unlink()
    except OSError:
        return "it was ended"
    return reason if reason.isprintable() else "it was ended"


def first_difference(expected: Any, actual: Any) -> str:
    """The first difference of two states, as a path of fields; empty where they are equal, in order."""
    pairs = [("", expected, actual)]
    compared = dict[tuple[int, int], tuple[Any, Any]]()
    while pairs:
        place, first, second = pairs.pop()
        if first is second or (id(first), id(second)) in compared:
            continue
        if type(first) is not type(second):
            return place or "."

        compared[id(first), id(second)] = first, second  # kept, so that nothing else gets their numbers
        parts = _parts(first), _parts(second)
        # Compared as a whole: numbers, texts, and sets, whose order is not part of the state.
        if parts[0] is None or parts[1] is None:
            if first != second:
                return place or "."
            continue

        first_parts, other_parts = list(parts[0]), list(parts[1])
        if len(first_parts) != len(other_parts):
            return place or "."

        pairs += [
            (f"{place}{part[0]}", part[1], other_part[1])
            for part, other_part in zip(first_parts, other_parts, strict=True)
        ][::-1]
    return ""


def _parts(state: Any) -> Iterator[tuple[str, Any]] | None:
    """The named parts of an object, in order; None: it is compared as a whole."""
    if isinstance(state, dict):
        return itertools.chain(((".keys()", key) for key in state), ((f"[{key!r}]", state[key]) for key in state))
    if isinstance(state, list | tuple | deque):
        return ((f"[{at}]", element) for at, element in enumerate(state))
    if isinstance(state, random.Random):
        return iter([(".getstate()", state.getstate())])
    if isinstance(state, LivePort):
        return iter([(".address", state.address)])
    if isinstance(state, np.ndarray):
        return iter([(".dtype", state.dtype), (".shape", state.shape), (".tobytes()", state.tobytes())])
    if isinstance(state, types.MethodType):
        return iter([(".__func__", state.__func__), (".__self__", state.__self__)])
    if isinstance(state, types.BuiltinMethodType):
        return iter([(".__name__", state.__name__), (".__self__", state.__self__)])
    if isinstance(state, msgspec.msgpack.Decoder):
        return iter([(".type", state.type)])
    if isinstance(state, partial):
        return iter([(".func", state.func), (".args", state.args), (".keywords", state.keywords)])
    if isinstance(state, itertools.count):
        return iter([("", repr(state))])
    if isinstance(state, str | bytes | int | float | set | frozenset | array.array | type | types.FunctionType):
        return None
    if isinstance(state, msgspec.Struct):
        return ((f".{name}", getattr(state, name)) for name in state.__struct_fields__)

    slots = [name for kind in type(state).__mro__ for name in _slots(kind) if hasattr(state, name)]
    fields = {name: getattr(state, name) for name in slots} | getattr(state, "__dict__", {})
    if not fields and any("__eq__" in vars(kind) for kind in type(state).__mro__[:-1]):
        return None
    return ((f".{name}", value) for name, value in fields.items())


def _slots(kind: type) -> tuple[str, ...]:
    declared = kind.__dict__.get("__slots__", ())
    names = (declared,) if isinstance(declared, str) else tuple(declared)
    return tuple(f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") else name for name in names)


MB: Final = 1_000_000
CLOSE_S: Final = 10.0
"""A host that ends waits so long for a snapshot that is being written."""

log = logging.getLogger(__name__)


class SegmentedJournal(JournalWriter):
    """Appends turns to one file after the other.

    Args:
        header: First record of the first file.
        components: Components of the host, as they were built, to try whether snapshots can be made.

    Raises:
        InputError: the file exists or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        durability: Durability,
        size: JournalSize,
        components: Mapping[Address, Component],
    ) -> None:
        super().__init__(journal_path(folder, header.host, header.incarnation), header, durability)
        self._folder = folder
        self._header = header
        self._limit = size.segment_mb * MB
        self._keep = size.keep_mb * MB
        self._writer_process = 0

        if problem := obstacle(components):
            self._limit = 0
            log.warning("the journal of host %s grows without end, no snapshot can be made: %s", header.host, problem)

        prune(folder, header.host, self._keep, self.path)

    @property
    def is_full(self) -> bool:
        if self._writer_process:
            self._reap()
        # One process at a time: a snapshot that takes longer than a segment delays the next file.
        return 0 < self._limit <= self.size and not self._writer_process

    def rotate(self, components: Mapping[Address, Component], problems: Mapping[tuple[Address, Key], Any]) -> None:
        header = msgspec.structs.replace(self._header, segment=self._header.segment + 1)
        path = journal_path(self._folder, header.host, header.incarnation, header.segment)

        # The file before stays as it is until the new one has its header: a crash between them leaves a whole
        # journal.
        full_file, full_path, size, checksum = self._file, self.path, self.size, self._checksum
        try:
            full_file.flush()
            self._begin(path, header)
            self._file.flush()
            self._header = header
            full_file.close()
        except (OSError, InputError) as error:
            if self._file is not full_file:  # there is no room for its header
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    self._file.close()
                self._file, self.path, self.size, self._checksum = full_file, full_path, size, checksum
            # Another try is made when the file has doubled, not at each turn.
            self._limit *= 2
            log.error("the journal of host %s stays in one file for now: %s", header.host, error)
            return

        try:
            self._writer_process = snapshot_apart(snapshot_path(path), full_path, components, problems)
        except OSError as error:
            log.error("no snapshot of host %s could be written, earlier files are kept: %s", header.host, error)

    def close(self) -> None:
        super().close()
        until_s = time.monotonic() + CLOSE_S
        while self._writer_process and time.monotonic() < until_s:
            self._reap()
            time.sleep(0.001 if self._writer_process else 0)

    def _reap(self) -> None:
        """Delete what is dispensable, once the snapshot is written."""
        try:
            child, status = os.waitpid(self._writer_process, os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for it
            child, status = self._writer_process, 0

        if not child:
            return
        self._writer_process = 0

        snapshot = snapshot_path(self.path)
        if status or not snapshot.exists():
            host = self._header.host
            reason = failure_of(snapshot)
            log.error("no snapshot of host %s could be written, earlier files are kept: %s", host, reason)
        else:
            prune(self._folder, self._header.host, self._keep, self.path)


def prune(folder: Path, host: str, keep_bytes: int, current: Path) -> None:
    """Delete the oldest files of a host's journals, of all its incarnations, beyond so many bytes.

    A file that continues another and has no snapshot is deleted together with the other one. The file that is written
    now stays, and so do those before it that its replay needs.
    """
    paths = sorted(
        (path for path in folder.glob(f"{host}-*{SUFFIX}") if journal_order(path)[0] == host), key=journal_order
    )
    for leftover in (*folder.glob(f"{host}-*.snapshot"), *folder.glob(f"{host}-*{UNFINISHED}")):
        journal = leftover.with_suffix(SUFFIX)
        if journal_order(journal)[0] == host and (leftover.suffix == UNFINISHED or not journal.exists()):
            leftover.unlink(missing_ok=True)

    groups: list[list[Path]] = []
    for path in paths:
        if groups and journal_order(path)[2] and not snapshot_path(path).exists():
            groups[-1].append(path)
        else:
            groups.append([path])

    sizes = [sum(_size(path) + _size(snapshot_path(path)) for path in files) for files in groups]
    total = sum(sizes)

    for files, size in zip(groups, sizes, strict=True):
        if total <= keep_bytes or current in files:
            return
        # The last first: after a crash in between, what is left can still be replayed from its beginning.
        for path in reversed(files):
            path.unlink(missing_ok=True)
            snapshot_path(path).unlink(missing_ok=True)
        total -= size


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
