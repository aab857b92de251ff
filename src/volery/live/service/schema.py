"""Database of the job service: SQLite in WAL mode, one program at a time, and the formats of its file.

A commit appends to the write-ahead log and, where it is durable, waits for the disk once. Checkpoints move the log to
its place and wait for the disk twice; they have a connection of their own, so that they run in another thread, beside
commits, and no submission waits for them. A file of another format than this one's is refused.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from volery.core.errors import InputError
from volery.live.files import file_identity, opened_lock
from volery.live.service import ledgers
from volery.live.service.checksums import FORMATS_TABLE, add_triggers, earlier_format, schema_checksum, schema_damage
from volery.live.service.rows import USAGES_TABLE, digest_of
from volery.live.service.soundness import UNREADABLE, demand_sound, log_soundness

VERSION: Final = 3
OTHER_VERSION_REMEDY: Final = "let its jobs end under that version, and begin with another folder under this one"
REMEDY: Final = "`volery check` lists what is damaged; put the newest copy of the file in its place"
LOG_BYTES: Final = 64 << 20
"""Size to which the file of a longer log is cut when it is used again."""
BUSY_MS: Final = 50
"""Time after which a checkpoint that readers hinder is given up, and tried again later: commits wait for it."""
TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS descriptions (
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, content BLOB NOT NULL, checksum INTEGER)
""",
    # Rows of jobs change with each report, so descriptions, perhaps of many megabytes, have a table of their own.
    """
CREATE TABLE IF NOT EXISTS jobs (
  id INTEGER PRIMARY KEY, key TEXT UNIQUE, description INTEGER NOT NULL, first_task INTEGER NOT NULL,
  answered INTEGER NOT NULL DEFAULT 0, cancelling INTEGER NOT NULL DEFAULT 0,
  name TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
  tasks INTEGER NOT NULL, running INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0, killed INTEGER NOT NULL DEFAULT 0, unsatisfiable INTEGER NOT NULL DEFAULT 0,
  submitted_us INTEGER NOT NULL, started_us INTEGER, ended_us INTEGER, revision INTEGER NOT NULL,
  checksum INTEGER)
""",
    "CREATE INDEX IF NOT EXISTS jobs_by_revision ON jobs (revision)",
    "CREATE INDEX IF NOT EXISTS jobs_by_description ON jobs (description)",
    "CREATE INDEX IF NOT EXISTS jobs_by_user ON jobs (user, id)",
    "CREATE INDEX IF NOT EXISTS jobs_open ON jobs (user) WHERE ended_us IS NULL",
    "CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs (ended_us) WHERE ended_us IS NOT NULL",
    """
CREATE TABLE IF NOT EXISTS tasks (
  job INTEGER NOT NULL, place INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL DEFAULT 0, node TEXT NOT NULL DEFAULT '', exit_code INTEGER,
  started_us INTEGER, ended_us INTEGER, folder TEXT NOT NULL DEFAULT '', revision INTEGER NOT NULL,
  result BLOB NOT NULL DEFAULT x'', launched INTEGER NOT NULL DEFAULT -1, checksum INTEGER,
  PRIMARY KEY (job, place)) WITHOUT ROWID
""",
    "CREATE INDEX IF NOT EXISTS tasks_by_revision ON tasks (revision)",
    "CREATE TABLE IF NOT EXISTS drained (node TEXT PRIMARY KEY, checksum INTEGER) WITHOUT ROWID",
    FORMATS_TABLE,
    USAGES_TABLE,
    *ledgers.TABLES,
    "CREATE TABLE IF NOT EXISTS store (name TEXT NOT NULL, checksum INTEGER)",
)

log = logging.getLogger(__name__)


class OtherFormatError(sqlite3.DatabaseError):
    """A file has the format of another version."""


class Database:
    """The connections to a file that nobody else has open.

    Args:
        path: path of the file, which is made where it is missing.

    Attributes:
        store: the name of the store, which a copy has as well; no other store has it.
        write: the connection that writes; its commits never checkpoint.
        read: connection that sees what is committed.
        damage: open jobs of which something is damaged.

    Raises:
        InputError: it cannot be opened, is in use, is damaged, or was written by another version.
    """

    def __init__(self, path: Path) -> None:
        self._log = path.with_name(path.name + "-wal")
        self._opened_files: dict[Path, tuple[int, int]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # It holds commands and their environment, which nobody else may read.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._lock = opened_lock(path.with_suffix(".lock"))
        except OSError as error:
            problem = f"the store of jobs cannot be opened: {error.strerror}"
            raise InputError(str(error.filename or path), f"{problem}; restore what should be there") from None

        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (torn_at := log_soundness(path).torn_at) is not None:
                log.warning("the log of %s ends within a change, at byte %d, as a crash leaves it", path, torn_at)

            self.write = _connected(path, "synchronous = FULL")
            _prepare(self.write)
            self.damage = demand_sound(self.write)

            # Checkpoints have a connection of their own, so that no commit makes one.
            self.write.execute("PRAGMA wal_autocheckpoint = 0")
            self.write.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")

            self.read = _connected(path, "query_only = 1")
            self._checkpointer = _connected(path, "synchronous = FULL")
            self._checkpointer.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

            self.store = self._name()
            files = (path, path.with_suffix(".lock"), self._log, path.with_name(path.name + "-shm"))
            self._opened_files = {file: identity for file in files if (identity := file_identity(file)) is not None}
        except OSError:
            os.close(self._lock)
            raise InputError(str(path), "another federation uses this store of jobs; give each its own") from None
        except InputError:
            os.close(self._lock)
            raise
        except UNREADABLE as error:
            os.close(self._lock)
            remedy = OTHER_VERSION_REMEDY if isinstance(error, OtherFormatError) else REMEDY
            raise InputError(str(path), f"the store of jobs cannot be opened: {error}; {remedy}") from None

    def _name(self) -> str:
        row = self.write.execute("SELECT name FROM store").fetchone()
        if row is None:
            row = (secrets.token_hex(8),)
            self.write.execute("INSERT INTO store (name) VALUES (?)", row)
        return str(row[0])

    def continue_store(self, name: str) -> None:
        """Take the name of the store that this one continues, in the batch that is under way."""
        self.write.execute("UPDATE store SET name = ?", (name,))
        self.store = name

    def demand_files(self) -> None:
        """Refuse to write to files that nobody would find again.

        Raises:
            sqlite3.OperationalError: one was removed or replaced. It may come back: the connections have the old one.
        """
        for file, identity in self._opened_files.items():
            if file_identity(file) != identity:
                problem = f"{file} was removed or replaced while this program uses it"
                raise sqlite3.OperationalError(f"{problem}; put it back, or stop the API and restore a backup")

    def checkpoint(self, empties_file: bool) -> int:
        """Move the log to its place; in any thread, but one at a time.

        Args:
            empties_file: move all of it, and empty the log's file; nothing may be written meanwhile.

        Returns:
            Pages in the log; where the file was to be emptied, those that readers still need.

        Raises:
            sqlite3.OperationalError: the disk is full, for example; everything stays in the log.
        """
        kind = "TRUNCATE" if empties_file else "PASSIVE"
        pages: int = self._checkpointer.execute(f"PRAGMA wal_checkpoint({kind})").fetchone()[1]
        return pages

    def sync(self) -> None:
        """Sync all that is committed to the disk; in any thread. A commit that is durable need not be followed by it.

        Checkpoints bring what they move to the disk themselves, so that what is not there is in the log.

        Raises:
            OSError: the disk refuses.
        """
        with suppress(FileNotFoundError):
            log = os.open(self._log, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fdatasync(log)
            finally:
                os.close(log)

    def close(self) -> None:
        """Move everything to one file; what is not committed is lost."""
        self._checkpointer.close()
        self.read.close()
        self.write.close()
        os.close(self._lock)


def _connected(path: Path, pragma: str) -> sqlite3.Connection:
    """A connection to a file.

    Raises:
        sqlite3.Error: the file is something else.
    """
    sql = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    try:
        sql.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        sql.close()
        raise
    return sql


def _prepare(sql: sqlite3.Connection) -> None:
    """Make the tables where there are none.

    Raises:
        sqlite3.Error: another version has written the file, it is damaged, or the disk is full; the file is as it was.
    """
    if _version(sql) == 0:
        sql.execute("PRAGMA auto_vacuum = INCREMENTAL")
        sql.execute("PRAGMA journal_mode = WAL")

    sql.execute("BEGIN IMMEDIATE")
    try:
        for statement in TABLES:
            sql.execute(statement)

        add_triggers(sql)

        stored_format = VERSION, schema_checksum(sql)
        if sql.execute("SELECT max(format), tables FROM formats").fetchone() != stored_format:
            sql.execute("INSERT OR REPLACE INTO formats (format, tables) VALUES (?, ?)", stored_format)
            sql.execute(f"PRAGMA user_version = {VERSION}")

        sql.execute("COMMIT")
    except BaseException:
        sql.execute("ROLLBACK")
        raise


def _version(sql: sqlite3.Connection) -> int:
    """The format of a file; 0: it is new.

    Raises:
        OtherFormatError: another version has written the file.
        sqlite3.DatabaseError: its format or its schema is damaged.
    """
    (version,) = sql.execute("PRAGMA user_version").fetchone()
    if problem := earlier_format(sql, version):
        raise OtherFormatError(problem)
    if problem := schema_damage(sql, version):
        raise sqlite3.DatabaseError(problem)
    if version not in (0, VERSION):
        raise OtherFormatError(f"it was written by another version (format {version}, this one writes {VERSION})")
    return int(version)


def stored_description(sql: sqlite3.Connection, content: bytes, digest: bytes = b"") -> int:
    """The number of an encoded description among those of the store, into which it is written if it is new."""
    digest = digest or digest_of(content)
    row = sql.execute("SELECT id FROM descriptions WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        row = sql.execute(
            "INSERT INTO descriptions (digest, content) VALUES (?, ?) RETURNING id", (digest, content)
        ).fetchone()
    return int(row[0])
