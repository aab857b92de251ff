"""The measurement window of a run: the jobs that count, and the time over which utilisation is taken.

A run begins with empty machines and ends with a tail; neither is a steady state. A job counts when it was submitted
within the window, bounds included. Times are counted from the first submission.

Closed forms speak of the steady state: a settled window leaves out the warm-up, and the time after the last submission,
when the queues run empty. Its measures come from the columns that a finished run keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from volery.core.bounds import SECONDS_MAX
from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.core.trace import Trace
from volery.metrics.arrays import Flags, Longs, view

Moment = str | int | float
"""Seconds, or a share of the time from the first to the last submission as "10%"."""
_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
FORM: Final = 'give seconds from 0 to 1e9, or a percentage of the submissions\' span as "10%"'


class Window(msgspec.Struct, frozen=True):
    """Bounds on the clock of the run, microseconds; both count."""

    begin_us: int
    end_us: int

    def holds(self, submit_us: Longs) -> Flags:
        """A mask of the submissions within the window."""
        return (submit_us >= self.begin_us) & (submit_us <= self.end_us)


class WindowSummary(msgspec.Struct, frozen=True):
    """A window as reports state it.

    Args:
        begin_s, end_s: Bounds of the window, seconds since the first submission.
        jobs: Count of jobs that were submitted within it.
    """

    begin_s: float
    end_s: float
    jobs: int


def check_moment(value: Any, place: str) -> Moment:
    """A moment as it was given: a number of seconds, or a percentage.

    Raises:
        InputError: at `place`, when it is neither.
    """
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if percent is not None and float(percent[1]) <= 100:
        return str(value).strip()

    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= SECONDS_MAX:  # nor is NaN
        raise InputError(place, f"{value!r} is no moment; {FORM}")
    return float(value)


def check_window(value: Any, place: str) -> list[Moment]:
    """A window [from, to] as it was given.

    Raises:
        InputError: at `place`, when it is not two moments, the first before the second.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise InputError(place, f"{value!r} is no window; give [from, to], each in seconds or as a percentage")

    begin, end = (check_moment(moment, place) for moment in value)
    # A percentage and a time cannot be compared before the trace is known.
    same_kind = isinstance(begin, str) == isinstance(end, str)
    if same_kind and _resolved(begin, 1.0) >= _resolved(end, 1.0):
        raise InputError(place, f"ends at {end}, not after its beginning at {begin}; give [from, to] in that order")
    return [begin, end]


def _resolved(moment: Moment, span: float) -> float:
    if isinstance(moment, str):
        return float(moment.strip().rstrip("%")) / 100 * span
    return float(moment)


def submissions_us(trace: Trace) -> Longs:
    """The submission time of each job, microseconds on the clock of the run."""
    return view(trace.arrival_us)


def window_of(submit_us: Longs, warmup: Moment, window: Sequence[Moment] | None) -> Window | None:
    """The window of a run; None where all jobs count and utilisation is over the whole run.

    Args:
        submit_us: Submission of each job, not decreasing.
        warmup: Time before which jobs are left out; the window ends with the last submission.
        window: Bounds of the window instead.

    Raises:
        InputError: no job was submitted within it, or it has no length.
    """
    if window is None and not _resolved(warmup, 1.0):
        return None
    place = "warmup" if window is None else "window"

    first, last = int(submit_us[0]), int(submit_us[-1])
    span_s = (last - first) / SECOND
    begin_s, end_s = (_resolved(moment, span_s) for moment in (window or (warmup, span_s)))
    begin_us, end_us = first + round(begin_s * SECOND), first + round(end_s * SECOND)
    measured = Window(begin_us, end_us)

    if begin_us >= end_us or begin_us > last or not measured.holds(submit_us).any():
        raise InputError(
            place,
            f"no job was submitted from {begin_s:g} s to {end_s:g} s; the trace's jobs are submitted from 0 s to "
            f"{span_s:g} s, so give a window within that",
        )
    return measured


def measured_whole(submit_us: Longs) -> Window:
    """The window from the first to the last submission, in which all jobs count."""
    return Window(int(submit_us[0]), int(submit_us[-1]))


def window_summary(window: Window | None, submit_us: Longs) -> WindowSummary | None:
    """The window as reports state it; None where all jobs count."""
    if window is None:
        return None
    first = int(submit_us[0])
    begin_s, end_s = ((at - first) / SECOND for at in (window.begin_us, window.end_us))
    return WindowSummary(begin_s, end_s, int(np.count_nonzero(window.holds(submit_us))))


AtLeastZero = Annotated[float, msgspec.Meta(ge=0)]
ROUNDING_S = 1e-9
"""Times are whole microseconds, told in seconds."""


class SettledWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs that count, and the part of their delay that is no queueing.

    Args:
        warm_up_s: Time from the first submission, before which jobs are left out.
        start_s: Time from submission to start of a task that meets an idle worker: messages alone.
        answer_s: Time from the end of the longest task to the answer, beside `start_s`.
    """

    warm_up_s: AtLeastZero
    start_s: AtLeastZero = 0.0
    answer_s: AtLeastZero = 0.0


class SteadyState(msgspec.Struct, frozen=True):
    """Measures of a window.

    Args:
        jobs: Count of jobs in the window.
        load: Busy slots / slots, on average from the end of the warm-up to the last submission (0 to 1).
        idle: 1 - load. Where every queue is full, that is the price of all that a free slot waits for.
        never_waits: Share of jobs of which no task waited.
        never_delayed: Share of jobs that took no longer than their longest task, messages apart; a shorter task may
            have waited (the "job-zero-queuing probability" of Pigeon, section 3).
        delay_s: Mean of the time that jobs took beyond their longest task (the "average job waiting time" there).
        queueing_s: The same, messages apart.
    """

    jobs: int
    load: float
    idle: float
    never_waits: float
    never_delayed: float
    delay_s: float
    queueing_s: float


def settle(jobs: Mapping[str, Any], curve: Mapping[str, Any], window: SettledWindow, place: str) -> SteadyState:
    """Work out the measures of a run.

    Args:
        jobs, curve: Columns of the run (see `volery.study.runs.RunOutcome`).
        place: Name of the run in an error.

    Raises:
        InputError: no job was submitted after the warm-up, or one was never finished.
    """
    submit_s = jobs["submit_s"]
    submit_us = np.rint(submit_s * SECOND).astype(np.int64)
    try:
        measured = window_of(submit_us, window.warm_up_s, None) or measured_whole(submit_us)
    except InputError as error:
        raise InputError(place, f"no job was submitted after {window.warm_up_s:g} s of warm-up; shorten it") from error

    counted = measured.holds(submit_us)
    begin_s = measured.begin_us / SECOND
    delay_s, wait_s = jobs["delay_s"][counted], jobs["wait_s"][counted]
    if (wait_s < 0).any() or (jobs["jrt_s"][counted] < 0).any():
        raise InputError(place, "some jobs did not finish; nothing has settled")

    times_s = curve["time_s"]
    is_steady = (times_s >= begin_s - ROUNDING_S) & (times_s < submit_s[-1])
    messages_s = window.start_s + window.answer_s
    load = float(curve["utilisation"][is_steady].mean()) if is_steady.any() else 0.0
    return SteadyState(
        jobs=int(counted.sum()),
        load=load,
        idle=1.0 - load,
        never_waits=float(np.mean(wait_s <= window.start_s + ROUNDING_S)),
        never_delayed=float(np.mean(delay_s <= messages_s + ROUNDING_S)),
        delay_s=float(np.mean(delay_s)),
        queueing_s=float(np.mean(delay_s)) - messages_s,
    )
