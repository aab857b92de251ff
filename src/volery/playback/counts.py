"""Counts of a recording at a moment, each made on first use."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np

from volery.core.model import Time
from volery.live.status import JobState
from volery.playback.recording import Longs, Recording
from volery.playback.run_log import FAILED, FINISHED

STATES: Final[tuple[JobState, ...]] = ("pending", "running", "done", "failed", "cancelled")
PENDING, BUSY, DONE, FAULTY, CANCELLED = range(len(STATES))


class Counts:
    """Counts of one moment.

    Args:
        recording: of the counts.
        time_us: the moment, by the clock of the recording.
    """

    def __init__(self, recording: Recording, time_us: Time) -> None:
        self.recording, self.time_us = recording, time_us
        self._begun = int(np.searchsorted(recording.attempts.start_us, time_us, side="right"))

    @functools.cached_property
    def runs(self) -> Longs:
        """Rows of attempts that run."""
        found: Longs = np.flatnonzero(self.recording.attempts.finish_us[: self._begun] > self.time_us)
        return found

    @functools.cached_property
    def over(self) -> Longs:
        """Rows of attempts that are over."""
        found: Longs = np.flatnonzero(self.recording.attempts.finish_us[: self._begun] <= self.time_us)
        return found

    def _per_job(self, rows: Longs) -> Longs:
        return np.bincount(self.recording.attempts.job[rows], minlength=len(self.recording.jobs.of))

    @functools.cached_property
    def running(self) -> Longs:
        """Per job, tasks that run."""
        return self._per_job(self.runs)

    def _ended(self, outcome: int) -> Longs:
        rows = self.over
        return self._per_job(rows[self.recording.attempts.outcome[rows] == outcome])

    @functools.cached_property
    def finished(self) -> Longs:
        """Per job, tasks that have finished."""
        return self._ended(FINISHED)

    @functools.cached_property
    def failed(self) -> Longs:
        """Per job, tasks that have failed."""
        return self._ended(FAILED)

    @functools.cached_property
    def states(self) -> Longs:
        """Per job, the place of its state in `STATES`; -1: it has not been submitted."""
        jobs, now = self.recording.jobs, self.time_us
        done = jobs.done_us <= now
        states = np.where(jobs.started_us <= now, BUSY, PENDING)
        states = np.where(done, np.where(self.failed > 0, FAULTY, DONE), states)
        states = np.where(done & (jobs.cancelled_us <= now), CANCELLED, states)
        found: Longs = np.where(jobs.submitted_us <= now, states, -1)
        return found

    @functools.cached_property
    def pending(self) -> Longs:
        """Per job, tasks that wait."""
        jobs = self.recording.jobs
        left = jobs.tasks - self.running - self.finished - self.failed - jobs.unsatisfiable
        found: Longs = np.where((self.states == PENDING) | (self.states == BUSY), np.maximum(left, 0), 0)
        return found

    @functools.cached_property
    def on_machine(self) -> Longs:
        """Per machine, tasks that run there."""
        machines = self.recording.attempts.machine[self.runs]
        return np.bincount(machines, minlength=len(self.recording.source.cluster.slots))
