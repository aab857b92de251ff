"""Ledger of forecasts: one counts for a job that its user submits within a minute, word for word.

Jobs are found when somebody asks, in the store of jobs, so that a submission costs nothing more than it did. A plan
whose job was never submitted is forgotten; where the same job was planned twice, the later forecast counts.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from volery.core.forecast import MomentQuantiles
from volery.core.model import SECOND, JobId, Time
from volery.live.jobs import JobDescription, merged
from volery.live.service.forecast_inputs import reading
from volery.live.service.listings import digest_of, encoded
from volery.live.service.meters import Meter
from volery.live.status import ActualMoments, ForecastOutcome, ForecastRecord, MomentRecord
from volery.live.times import unix_now_us

COUNTS_US: Final = 60 * SECOND
"""A job that is submitted later finds another federation."""
KEPT: Final = 10_000
SHOWN: Final = 20
NAMES: Final = MomentQuantiles.__struct_fields__
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS forecasts (
  id INTEGER PRIMARY KEY, made_us INTEGER NOT NULL, next_job INTEGER NOT NULL, user TEXT NOT NULL,
  description BLOB NOT NULL, moments BLOB NOT NULL, job INTEGER, delay_us INTEGER, came BLOB)
"""
_JOB: Final = (
    "SELECT id, submitted_us, ended_us FROM jobs WHERE user = ? AND id >= ? AND submitted_us < ? "
    "AND description = (SELECT id FROM descriptions WHERE digest = ?) ORDER BY id LIMIT 1"
)
_CAME: Final = "SELECT min(started_us), min(ended_us), max(started_us), max(ended_us) FROM tasks WHERE job = ?"


class ForecastLedger:
    """The file of forecasts; it may be used by several threads.

    Args:
        path: of the file, made where it is missing.

    Raises:
        sqlite3.Error: it cannot be opened.
    """

    def __init__(self, path: Path, jobs: Path) -> None:
        # It holds commands and their environment, which nobody else may read.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        self._sql = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = NORMAL")
        self._sql.execute(_TABLE)
        self._jobs = reading(jobs)
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._sql.close()
            self._jobs.close()

    def keep(self, made_us: Time, next_job: JobId, job: JobDescription, moments: MomentQuantiles) -> None:
        """Remember a forecast.

        Args:
            made_us: when it was made, microseconds since 1970.
            next_job: the first job number that was free then.
            moments: that were foretold.
        """
        row = (made_us, next_job, job.user, encoded(merged(job)), msgspec.json.encode(moments))
        with self._lock:
            self._sql.execute(
                "INSERT INTO forecasts (made_us, next_job, user, description, moments) VALUES (?, ?, ?, ?, ?)", row
            )
            self._sql.execute("DELETE FROM forecasts WHERE id <= (SELECT max(id) FROM forecasts) - ?", (KEPT,))

    def record(self, user: str | None) -> ForecastRecord:
        """The accuracy of forecasts of one user's jobs or of all."""
        with self._lock:
            self._settle()
            rows = self._sql.execute(
                "SELECT job, made_us, moments, came, delay_us FROM forecasts WHERE came IS NOT NULL "
                "AND (?1 IS NULL OR user = ?1) ORDER BY id DESC",
                (user,),
            ).fetchall()
            query = "SELECT count(*) FROM forecasts WHERE came IS NULL AND (?1 IS NULL OR user = ?1)"
            (still_open,) = self._sql.execute(query, (user,)).fetchone()
        told = [
            ForecastOutcome(
                job=row[0], made_us=row[1], moments=msgspec.json.decode(row[2], type=MomentQuantiles),
                came=msgspec.json.decode(row[3], type=ActualMoments), delay_us=row[4],
            )
            for row in rows
        ]  # fmt: skip
        moments = tuple(_moment(name, told) for name in NAMES)
        return ForecastRecord(open=still_open, moments=moments, last=tuple(told[:SHOWN]))

    def _settle(self) -> None:
        """Find the jobs of forecasts, and what became of those that have ended."""
        now_us = unix_now_us()
        query = "SELECT id, made_us, next_job, user, description FROM forecasts WHERE came IS NULL ORDER BY id DESC"
        for number, made_us, next_job, user, content in self._sql.execute(query).fetchall():
            found = self._jobs.execute(_JOB, (user, next_job, made_us + COUNTS_US, digest_of(content))).fetchone()
            if found is None:
                if now_us > made_us + COUNTS_US:
                    self._sql.execute("DELETE FROM forecasts WHERE id = ?", (number,))
                continue
            job, submitted_us, ended_us = found
            self._sql.execute("DELETE FROM forecasts WHERE job = ? AND id < ?", (job, number))
            if self._sql.execute("SELECT 1 FROM forecasts WHERE job = ? AND id > ?", (job, number)).fetchone():
                self._sql.execute("DELETE FROM forecasts WHERE id = ?", (number,))
                continue
            came = None
            if ended_us is not None:
                at = self._jobs.execute(_CAME, (job,)).fetchone()
                came = msgspec.json.encode(
                    ActualMoments(*(None if one is None else max(0, one - submitted_us) for one in at))
                )
            delay_us = max(0, submitted_us - made_us)
            words = (job, delay_us, came, number)
            self._sql.execute("UPDATE forecasts SET job = ?, delay_us = ?, came = ? WHERE id = ?", words)


def _moment(name: str, told: Iterable[ForecastOutcome]) -> MomentRecord:
    settled, covered, off = 0, 0, []
    for one in told:
        at: int | None = getattr(one.came, name)
        low_us, median_us, high_us = counted_from_submission(one, name)
        if at is None or high_us is None or low_us is None:
            continue
        settled += 1
        covered += low_us <= at <= high_us
        if median_us is not None:
            off.append(abs(median_us - at))
    return MomentRecord(
        moment=name, settled=settled, covered=covered, off_us=round(statistics.median(off)) if off else None
    )


def counted_from_submission(told: ForecastOutcome, moment: str) -> tuple[int | None, ...]:
    """Low, median and high of a moment, for a job that was submitted some time after the forecast was made.

    What was foretold to wait longer than that starts when it was foretold to; what would have started before is so much
    later, to its end.
    """
    found = []
    for bound in ("low_us", "median_us", "high_us"):
        at, start = getattr(getattr(told.moments, moment), bound), getattr(told.moments.first_start, bound)
        late = 0 if start is None else max(0, told.delay_us - start)
        found.append(None if at is None else at + late - told.delay_us)
    return tuple(found)


def meters(record: ForecastRecord) -> list[Meter]:
    """A record as Prometheus has it: name, type, meaning, samples."""
    settled = [({"moment": one.moment}, float(one.settled)) for one in record.moments]
    covered = [({"moment": one.moment}, float(one.covered)) for one in record.moments]
    off = [({"moment": one.moment}, one.off_us / SECOND) for one in record.moments if one.off_us is not None]
    return [
        ("volery_forecasts_settled", "gauge", "forecasts that are kept and whose moment has come", settled),
        ("volery_forecasts_covered", "gauge", "of these, that came within the interval", covered),
        ("volery_forecast_off_seconds", "gauge", "median distance of what came from the foretold median", off),
    ]
