"""Forecasts as the API sends them: when a job would start and end, and how good earlier ones were."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from volery.core.standing import Known, Moments, Preempted
from volery.live.status import UnixMicroseconds


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a job would start and end if it were submitted now, and whom it would preempt; nobody else being submitted.

    The interval holds what came over four of five times where durations are known well; `volery plan --record` says
    how often it did.
    """

    made_us: UnixMicroseconds
    tasks: int
    runs: Annotated[int, Meta(description="of the lab, over durations drawn anew; 0: the time did not suffice for one")]
    moments: Moments | None = None
    known: Known = Known()
    preempts: tuple[Preempted, ...] = ()
    problem: Annotated[str, Meta(description="why there is no forecast; empty where there is one")] = ""


class Came(msgspec.Struct, frozen=True):
    """When what was foretold of a job has come to pass, microseconds after its submission; null: never."""

    first_start: int | None
    first_end: int | None
    last_start: int | None
    last_end: int | None


class Foretold(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast and what came."""

    job: int
    made_us: UnixMicroseconds
    delay_us: Annotated[int, Meta(description="microseconds from the forecast to the submission of the job")]
    moments: Moments
    came: Came


class MomentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How good forecasts of one moment were."""

    moment: str
    settled: Annotated[int, Meta(description="forecasts whose moment has come")]
    covered: Annotated[int, Meta(description="of these, that came within the interval")]
    off_us: Annotated[int | None, Meta(description="the median of how far the foretold median was off; null: of none")]


class ForecastRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How good forecasts were."""

    expected: Annotated[float, Meta(description="part of all moments that intervals are meant to cover")] = 0.8
    open: Annotated[int, Meta(description="forecasts whose job has not ended, or may still be submitted")]
    moments: tuple[MomentRecord, ...]
    last: tuple[Foretold, ...]
