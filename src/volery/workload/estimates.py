"""Estimates of task durations that schedulers see, and models of their errors.

    mean           the trace's own estimate of a job, or the mean of its durations where the trace has none
    exact          each task's duration
    requested      the trace's own estimate, of a trace that has one (requested times of an SWF log)
    lognormal:S    mean duration of the job x exp(S z), z standard normal: the median is exact, S = 0.5 is off by 1.65
                   times upwards or downwards in a third of the jobs
    f:F            mean duration of the job x (1 + F u), u uniform from 0 to 1: the f-model of users who ask for too
                   much (Mu'alem and Feitelson, IEEE TPDS 2001)

An error is drawn once per job, in order of arrival, from the stream `workload/estimates` of the run's seed. Jobs stay
short or long by the trace's own estimate, so that measures of a class are of the same jobs under every model.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec
import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.model import SECOND
from volery.core.trace import Trace
from volery.workload.columns import Integers, Reals, column, generator, job_means, unlike_means, view
from volery.workload.distributions import normal_quantiles
from volery.workload.quirks import with_exact_estimates

PLAIN: Final = ("mean", "exact", "requested")
WITH_SIZE: Final = {"lognormal": 10.0, "f": 1000.0}
"""Models that take a number, with the largest."""
FORMS: Final = "mean, exact, requested, lognormal:S or f:F"
LONGEST_US: Final = 2_000_000_000 * SECOND


class ErrorModel(NamedTuple):
    """A model of estimation errors; `size` is S or F where the model has one."""

    name: str
    size: float = 0.0


def parse_estimates(text: str, place: str) -> ErrorModel:
    """Read `mean`, `exact`, `requested`, `lognormal:S` or `f:F`.

    Raises:
        InputError: at `place`, when it is none of these.
    """
    name, colon, number = text.partition(":")
    if text in PLAIN:
        return ErrorModel(name)
    if name not in WITH_SIZE:
        raise InputError(place, f"there is no {text!r}{suggestion(name, (*PLAIN, *WITH_SIZE))}; give {FORMS}")
    try:
        size = float(number)
    except ValueError:
        size = math.nan
    if not (colon and 0 <= size <= WITH_SIZE[name]):
        raise InputError(place, f"{text!r} needs a number from 0 to {WITH_SIZE[name]:g}; for example {name}:0.5")
    return ErrorModel(name, size)


def with_estimates(trace: Trace, text: str, seed: int, place: str = "estimates") -> Trace:
    """The trace with estimates of this model for its schedulers.

    Args:
        trace: the workload.
        text: as for `parse_estimates`.
        seed: of the run.
        place: names the option in an error.

    Raises:
        InputError: there is no such model, or `requested` of a trace that has no estimates of its own.
    """
    model = parse_estimates(text, place)
    if model.name == "mean":
        return trace
    if model.name == "exact":
        return with_exact_estimates(trace)
    if model.name == "requested":
        if not unlike_means(trace).any():
            fix = "give mean, exact, lognormal:S or f:F"
            raise InputError(place, f"the trace {trace.name!r} has no requested times; {fix}")
        return trace
    drawn = _drawn(model, job_means(view(trace.duration_us), view(trace.first)), seed)
    return msgspec.structs.replace(trace, told_estimate_us=column(drawn))


def _drawn(model: ErrorModel, means: Reals, seed: int) -> Integers:
    u = generator(seed, "workload/estimates").random(len(means))
    if model.name == "f":
        factors: Reals = 1 + model.size * u
    else:
        factors = np.exp(model.size * normal_quantiles(u))
    return np.clip(np.rint(means * factors), 1, LONGEST_US).astype(np.int64)
