"""Check of a state folder: every file that a host has written there, against its checksums."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from volery.core.errors import DamagedError, InputError
from volery.integrity import CheckedFile, checked
from volery.live.node.descendants import read_ledger
from volery.live.runtime.incarnations import stored_incarnation
from volery.live.runtime.journal import SUFFIX, JournalReader, journal_order
from volery.live.runtime.recordfile import OtherVersionError, UnbegunError
from volery.live.runtime.snapshots import pickle_of
from volery.live.service.archive import demand_digests, digests_path
from volery.live.service.authentication import TokenFile
from volery.live.service.checksums import FORECASTS, readable
from volery.live.service.ledgers import ShareHistory
from volery.live.service.marks import demand_newest, mark_of, read_mark
from volery.live.service.soundness import (
    UNREADABLE,
    damage_of_pages,
    damage_of_table,
    log_soundness,
    opened_quietly,
    store_damage,
)

STORE: Final = "jobs.sqlite"
MARK: Final = "jobs.mark"
Check = Callable[[Path], str | Iterable[str]]
"""Returns a note on a file, or its damages; raises `InputError` for a damage that ends the check of the file."""


def is_state_folder(folder: Path) -> bool:
    """True if a host of a federation has kept its state in a folder."""
    return any((folder / name).exists() for name in (STORE, MARK)) or any(
        (folder / name).is_dir() for name in ("lives", "journal", "agents")
    )


def check_state(folder: Path) -> Iterator[CheckedFile]:
    """All files of a state folder that have checksums; a host may be at work meanwhile. Nothing is written."""
    kinds: tuple[tuple[str, Check], ...] = (
        (STORE, _check_store),
        ("forecasts.sqlite", _check_forecasts),
        ("tokens.json", _check_tokens),
        (MARK, _check_mark),
        ("archive/jobs-*.parquet", _check_archived),
        ("archive/tasks-*.parquet", _check_tasks),
        ("lives/*", _check_incarnation),
        ("agents/*/processes", _check_ledger),
        (f"journal/*{SUFFIX}", _check_journal),
        ("journal/*.snapshot", _check_snapshot),
    )

    for pattern, check in kinds:
        for path in sorted(folder.glob(pattern), key=_order):
            if path.suffix not in (".lock", ".new"):
                file = checked(path, _readable(check))
                if not file.damages or path.exists():  # else a host has deleted it meanwhile, as old journals
                    yield file


def _order(path: Path) -> tuple[str, int, int]:
    return journal_order(path) if path.suffix == SUFFIX else (path.name, 0, 0)


def _readable(check: Check) -> Check:
    def checking(path: Path) -> str | Iterable[str]:
        try:
            outcome = check(path)
            return outcome if isinstance(outcome, str) else tuple(outcome)
        except (OSError, sqlite3.Error) as error:
            raise InputError(str(path), f"cannot be read: {error}") from None

    return checking


def _check_store(path: Path) -> str | Iterable[str]:
    damages, note = list[str](), ""
    if is_free := _is_free(path):
        try:
            if (torn_at := log_soundness(path).torn_at) is not None:
                note = f"its log ends within a change, at byte {torn_at}, as a crash leaves it"
        except InputError as error:
            damages.append(str(error))

    if not is_free or not _is_free(path):  # the lock is not held meanwhile: a start would be refused
        damages, note = [], "a federation is at work with it: its log is checked when that ends"

    try:
        damages += store_damage(path)
    except OtherVersionError as error:
        note = error.problem

    return damages or note


def _is_free(path: Path) -> bool:
    """True if no federation has the lock of a store."""
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy may lack it
        return True

    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)

    return True


def _check_forecasts(path: Path) -> Iterable[str]:
    with closing(opened_quietly(path)) as sql:
        sql.text_factory = readable
        return [*damage_of_pages(sql), *damage_of_table(sql, FORECASTS)]


def _check_tokens(path: Path) -> str:
    TokenFile(path.parent).read()
    return ""


def _check_mark(path: Path) -> str:
    mark = read_mark(path)
    store = path.with_name(STORE)
    if mark is None:
        return ""
    if not store.exists():
        raise DamagedError(str(path), f"names {mark.first.job} jobs, but {STORE} is missing beside it")

    with closing(opened_quietly(store)) as sql:
        try:
            (name,) = sql.execute("SELECT name FROM store").fetchone()
            own_mark = mark_of(sql, name, ShareHistory(sql, sql))
        except (*UNREADABLE, TypeError):
            return f"is not compared with {STORE}, which cannot be read"

    demand_newest(store, own_mark, {MARK: mark})
    return ""


def _check_archived(path: Path) -> str:
    return "" if demand_digests(path) else "has no digest: its pass has not ended"


def _check_tasks(path: Path) -> str | Iterable[str]:
    jobs = path.with_name(path.name.replace("tasks-", "jobs-", 1))
    if jobs.exists():
        return ""  # checked with that
    return [f"has no {jobs.name} beside it"] if digests_path(jobs).exists() else "its pass has not ended"


def _check_incarnation(path: Path) -> str:
    stored_incarnation(path)
    return ""


def _check_ledger(path: Path) -> Iterable[str]:
    return read_ledger(path)[1]


def _check_journal(path: Path) -> str:
    try:
        reader = JournalReader(path)
        reader.times()
    except OtherVersionError as error:
        return error.problem
    except UnbegunError as error:
        return error.problem
    return f"its last record is incomplete, as a crash leaves it: {reader.torn_bytes} bytes" * (reader.torn_bytes > 0)


def _check_snapshot(path: Path) -> str:
    try:
        pickle_of(path)
    except OtherVersionError as error:
        return error.problem
    return ""
