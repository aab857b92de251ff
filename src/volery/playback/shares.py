"""Shares and preemptions of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from volery.core.model import JobId, Time
from volery.core.shares import ShareChange
from volery.live.service.user_shares import WHY
from volery.live.status import PreemptionStatus, SharePart, ShareStatus, WeightChange
from volery.playback.recording import Recording

MILLIONTHS: Final = 1_000_000


class RecordedShares:
    """Shares and preemptions at a moment.

    Args:
        recording: of the shares.
        time_us: the moment, by the clock of the recording.
    """

    def __init__(self, recording: Recording, time_us: Time) -> None:
        self._recording, self._time_us = recording, time_us

    def due(self) -> Mapping[str, Fraction]:
        """Guaranteed shares by user."""
        return self._recording.source.due

    def listed(self, user: str | None = None) -> list[ShareStatus]:
        """All shares, in the order of the tree."""
        return [
            ShareStatus(
                name=one.name, within=one.within, organisation=one.members > 0, weight=one.weight, share=float(one.due)
            )
            for one in self._recording.source.shares
            if user in (None, one.name)
        ]

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        """None: weights do not change in a recording."""
        return []

    def preemptions(
        self, user: str | None, job: JobId | None, before: int | None, limit: int, sees: str | None = None
    ) -> list[PreemptionStatus]:  # fmt: skip
        """Preemptions so far, the last first."""
        found: list[PreemptionStatus] = []
        known = self._recording.log.preemptions
        for number in range(len(known) if before is None else min(before, len(known)), 0, -1):
            if known[number - 1][0] <= self._time_us and len(found) < limit:
                one = self._status(number)
                if user in (None, one.user, one.for_user) and job in (None, one.job, one.for_job):
                    found.append(one)
        return found

    def _status(self, number: int) -> PreemptionStatus:
        at_us, by, fact = self._recording.log.preemptions[number - 1]
        jobs = self._recording.jobs
        row, place = self._recording.where(fact.task)
        for_row, for_place = self._recording.where(fact.beneficiary)
        return PreemptionStatus(
            number=number, at_us=self._recording.source.origin_us + at_us, by=by, reason=fact.reason,
            job=jobs.of[row].id if row >= 0 else -1, index=place, attempt=fact.attempt,
            user=jobs.of[row].user if row >= 0 else "", for_job=jobs.of[for_row].id if for_row >= 0 else -1,
            for_index=for_place, for_user=jobs.of[for_row].user if for_row >= 0 else "",
            loss=_part(fact.loser), gain=_part(fact.winner),
        )  # fmt: skip

    def why_again(self, row: int, place: int, attempt: int) -> str:
        """The reason for which an attempt was preempted; empty where it was not."""
        task = self._recording.jobs.of[row].first + place
        lost = [
            fact for at_us, _, fact in self._recording.log.preemptions
            if at_us <= self._time_us and (fact.task, fact.attempt) == (task, attempt)
        ]  # fmt: skip
        if not lost:
            return ""
        return f"attempt {attempt} was preempted: {WHY[lost[-1].reason]}; the task runs again when there is room"


def _part(change: ShareChange | None) -> SharePart | None:
    if change is None:
        return None
    return SharePart(*(amount / MILLIONTHS for amount in (change.due, change.before, change.after)))
