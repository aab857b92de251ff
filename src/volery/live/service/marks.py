"""Marks of a store of jobs: how far it has come, kept where a restored or emptied folder does not take them along.

A copy of a folder is as good a folder as any, but what was promised since it was made is not in it. So the file
`jobs.mark` beside the store, and every other host of the federation, keep the last mark of the store. A store that is
behind one of them is refused, unless what it lacks is given up (docs/decisions/0065).

A mark names changes that the disk has: a machine that loses its power loses none of them.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.events import Reassignment
from volery.core.model import SECOND, Address, TaskId
from volery.live.clock import unix_now_us
from volery.live.messages import NUMBER_BITS, HostName, number_of
from volery.live.service.ledgers import ArchivedKey, ArchiveLedger, AssignmentLedger, ShareHistory

SUFFIX: Final = ".mark"
FLAG: Final = "--give-up-jobs"
JOB_MAX: Final = 1 << 31
NUMBER_MAX: Final = 1 << 62
"""The largest numbers in a mark of another host; beyond them no numbers would be left."""
ORIGIN_S: Final = 1_767_225_600
"""Start of 2026: origins count seconds from there, in 31 bits."""
ORIGIN_STEP: Final = 1_024

log = logging.getLogger(__name__)


def first_of_start(task: TaskId) -> TaskId:
    """The first task of a start of the API: after the last of the store, with an origin of its own.

    The time keeps origins apart where the store cannot, because it was emptied or an older one was restored; the random
    part does so where the clock stands.
    """
    origin = max(task >> NUMBER_BITS, unix_now_us() // SECOND - ORIGIN_S) + 1 + secrets.randbelow(ORIGIN_STEP)
    return origin << NUMBER_BITS | number_of(task)


class StoreMark(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a store, with the orders in it that schedulers follow.

    Args:
        store: name of the store; a store that replaces another continues it.
        first: the first numbers that it has not given to a job and a task, and its last revision.
        moves: moves of jobs between schedulers.
        reweighs: number of changes of weights.
        weights: changed weights by name.
        drained: drained nodes.
    """

    store: str
    first: ArchivedKey
    moves: tuple[Reassignment, ...] = ()
    reweighs: int = 0
    weights: dict[str, int] = {}
    drained: tuple[Address, ...] = ()

    def is_ahead_of(self, mark: StoreMark) -> bool:
        """True if a store with that mark lacks something that this one names."""
        own, theirs = self.first, mark.first
        return (
            own.revision > theirs.revision
            or own.job > theirs.job
            or len(self.moves) > len(mark.moves)
            or self.reweighs > mark.reweighs
        )


def mark_of(sql: sqlite3.Connection, store: str, history: ShareHistory, revision: int | None = None) -> StoreMark:
    """The mark of a store in the rows that a connection sees.

    Args:
        store: its name.
        history: history of its weights.
        revision: revision up to which rows are on the disk; None: all are.
    """
    free_numbers = ArchiveLedger(sql, sql).free()
    reweighs, weights = history.weights(sql)
    drained = sorted(node for (node,) in sql.execute("SELECT node FROM drained"))
    first = free_numbers if revision is None else free_numbers._replace(revision=revision)
    return StoreMark(store, first, tuple(AssignmentLedger(sql, sql).moves()), reweighs, weights, tuple(drained))


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(StoreMark).decode


def read_mark(path: Path) -> StoreMark | None:
    """The mark beside a store; None where there is none.

    Raises:
        InputError: it cannot be read, or is damaged.
    """
    try:
        line, _, _ = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}; restore it, or remove it") from None

    checksum, _, content = line.partition(b" ")
    try:
        if int(checksum, 16) == zlib.crc32(content):
            return _decode(content)
    except (ValueError, msgspec.MsgspecError):
        pass

    problem = "is damaged, so that it does not show whether jobs.sqlite is the newest"
    raise InputError(str(path), f"{problem}; remove {path.name} if you know that it is")


def decode_marks(kept_marks: Mapping[HostName, bytes]) -> dict[str, StoreMark]:
    """The marks that other hosts have kept, by what they are called in an error."""
    marks = {}
    for host, content in kept_marks.items():
        try:
            mark = _decode(content)
        except msgspec.MsgspecError as error:
            log.error("the mark of the store of jobs that host %s keeps is none: %s", host, error)
            continue

        # Such a mark, of a host that is damaged or hostile, would use up all numbers.
        if mark.first.job >= JOB_MAX or max(mark.first) > NUMBER_MAX:
            log.error("the mark of the store of jobs that host %s keeps is none: it names %s", host, mark.first)
            continue

        marks[f"host {host}"] = mark

    return marks


def demand_newest(path: Path, own: StoreMark | None, marks: Mapping[str, StoreMark]) -> None:
    """Refuse a store that is behind a mark, or is not the one that the mark is of.

    Args:
        own: the mark of the store as it is; None: it is missing.
        marks: marks by the name of their keeper.

    Raises:
        InputError: it is, with what to do.
    """
    for keeper, mark in marks.items():
        knowledge = f"{keeper} knows {mark.first.job} jobs, up to change {mark.first.revision}"
        if own is None:
            state = f"is missing, but {knowledge} of it"
            lost = "those jobs and the ends of their tasks"
        elif own.store != mark.store:
            state, lost = (
                f"is another store than the one of which {knowledge}",
                "those jobs and the ends of their tasks",
            )
        elif mark.is_ahead_of(own):
            state = (
                f"is older than it was: it has {own.first.job} jobs, up to change {own.first.revision}, but {knowledge}"
            )
            lost = "the jobs and ends of tasks since"
        else:
            continue

        raise InputError(str(path), f"{state}. Put the newest there, or start with {FLAG}, which gives up {lost}")


class MarkKeeper:
    """Writes the mark of a store beside it, and announces it, whenever the disk has more changes.

    Args:
        path: path of the store.
        mark: makes the mark at a revision.
        announce: sends it to the other hosts.
    """

    def __init__(self, path: Path, mark: Callable[[int], StoreMark], announce: Callable[[bytes], None]) -> None:
        self._path = path.with_suffix(SUFFIX)
        self._mark = mark
        self._announce = announce

    def note(self, revision: int) -> None:
        """Keep the mark of all changes up to a revision; the disk has them."""
        try:
            content = _encode(self._mark(revision))
        except sqlite3.Error as error:  # the store has failed, and takes nothing more
            log.error("the store of jobs has no mark any more: %s", error)
            return

        self._announce(content)

        try:
            # One write in place: it is complete or not begun when this process is killed, and what is left of a longer
            # one stands behind the end of the line. It need not be on the disk: an older mark forbids nothing.
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, b"%08x %s\n" % (zlib.crc32(content), content))
            finally:
                os.close(file)
        except OSError as error:
            log.error("%s cannot be written, and does not protect the store of jobs: %s", self._path, error.strerror)
