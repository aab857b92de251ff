"""Measures of a run in its steady state, as closed forms have them: without the jobs of the start.

A run begins with an empty cluster, which no steady state is. What was submitted during the warm-up is left out, and so
is the time after the last submission, when the queues run empty. Everything is taken from the columns that a finished
run keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.core.model import NEVER, SECOND
from volery.core.records import Records
from volery.metrics import measured_whole, window_of
from volery.metrics.columns import Longs, largest_per_job, ready_us, view

AtLeastZero = Annotated[float, msgspec.Meta(ge=0)]
ROUNDING_S = 1e-9
"""Times are whole microseconds, told in seconds."""


def longest_wait_us(records: Records) -> Longs:
    """Per job, the longest time for which one of its tasks was ready and had not started; `NEVER` where none did."""
    start_us = view(records.start_us)
    waits_us = np.where(start_us == NEVER, NEVER, start_us - ready_us(records))
    return largest_per_job(waits_us, records.trace, NEVER)


class SettledWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs that count, and the part of their delay that is no queueing.

    Args:
        warm_up_s: jobs that were submitted earlier, counted from the first one, are left out.
        start_s: from submission to start of a task that meets an idle worker: messages alone.
        answer_s: from the end of the longest task to the answer, beside `start_s`.
    """

    warm_up_s: AtLeastZero
    start_s: AtLeastZero = 0.0
    answer_s: AtLeastZero = 0.0


class SteadyState(msgspec.Struct, frozen=True):
    """Measures of a window.

    Args:
        jobs: how many count.
        load: busy slots / slots, on average from the end of the warm-up to the last submission (0 to 1).
        never_waits: share of jobs of which no task waited.
        never_delayed: share of jobs that took no longer than their longest task, messages apart; a shorter task may
            have waited (the "job-zero-queuing probability" of Pigeon, section 3).
        delay_s: mean of how much longer jobs took than their longest task (the "average job waiting time" there).
        queueing_s: the same, messages apart.
    """

    jobs: int
    load: float
    never_waits: float
    never_delayed: float
    delay_s: float
    queueing_s: float


def settle(jobs: Mapping[str, Any], curve: Mapping[str, Any], window: SettledWindow, place: str) -> SteadyState:
    """Work out the measures of a run.

    Args:
        jobs, curve: its columns (see `volery.study.runs.Outcome`).
        window: what counts.
        place: names the run in an error.

    Raises:
        InputError: no job was submitted after the warm-up, or one was never finished.
    """
    submit_s = jobs["submit_s"]
    submit_us = np.rint(submit_s * SECOND).astype(np.int64)
    try:
        measured = window_of(submit_us, window.warm_up_s, None) or measured_whole(submit_us)
    except InputError as error:
        raise InputError(place, f"no job was submitted after {window.warm_up_s:g} s of warm-up; shorten it") from error
    counted, begin_s = measured.holds(submit_us), measured.begin_us / SECOND
    delay_s, wait_s = jobs["delay_s"][counted], jobs["wait_s"][counted]
    if (wait_s < 0).any() or (jobs["jrt_s"][counted] < 0).any():
        raise InputError(place, "some jobs did not finish; nothing has settled")
    times_s = curve["time_s"]
    steady = (times_s >= begin_s - ROUNDING_S) & (times_s < submit_s[-1])
    messages_s = window.start_s + window.answer_s
    return SteadyState(
        jobs=int(counted.sum()),
        load=float(curve["utilisation"][steady].mean()) if steady.any() else 0.0,
        never_waits=float(np.mean(wait_s <= window.start_s + ROUNDING_S)),
        never_delayed=float(np.mean(delay_s <= messages_s + ROUNDING_S)),
        delay_s=float(np.mean(delay_s)),
        queueing_s=float(np.mean(delay_s)) - messages_s,
    )
