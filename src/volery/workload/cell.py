"""A cell as in the public simulator of Omega: batch and service jobs on a cell that is filled when the run begins.

The numbers are those of the simulator's example, which its authors call made up (google/cluster-scheduler-simulator):
10,000 machines of 4 CPUs and 16 GB; every task asks for 1 CPU and 2 GB; batch jobs every 10 s with 100 tasks of 100 s,
service jobs every 20 s with 10 tasks of 500 s, on average, gaps, sizes and durations exponential; 60 % of the CPUs are
taken from the beginning to the end. Users are called after the types: "batch", "service" and "fill".
"""

from __future__ import annotations

import math
from array import array
from typing import Final, NamedTuple

import numpy as np

from volery.core.errors import InputError
from volery.core.model import AMOUNT_MAX, SECOND, Amounts
from volery.core.trace import Trace
from volery.workload.arrays import Integers, Reals, column, generator, job_means, microseconds
from volery.workload.distributions import exponential
from volery.workload.spec import TASKS_MAX, Spec

KEYS: Final = (
    "span",
    "workers",
    "cpus",
    "fill",
    "rate",
    "batch_gap",
    "batch_tasks",
    "batch_s",
    "service_gap",
    "service_tasks",
    "service_s",
)
RESOURCES: Final = ("cpu_milli", "memory_mb")
REQUEST: Final[Amounts] = (1000, 2048)
SPREADS: Final = 6
"""The number of standard deviations by which more jobs are drawn than are expected; the last come after the span."""


class JobStream(NamedTuple):
    """One stream: when jobs come, how many tasks they have, and how long these take."""

    user: str
    arrival_us: Integers
    sizes: Integers
    duration_us: Integers


def cell(text: str, seed: int) -> Trace:
    """The workload of a spec `cell:key=value,...`.

    Raises:
        InputError: the spec is wrong; the message names the key.
    """
    spec = Spec(text, KEYS)
    span_s = spec.positive("span", 86_400.0)
    filled = round(
        spec.positive("fill", 0.6, most=1.0) * spec.count("workers", 10_000) * spec.count("cpus", 4, most=1_000)
    )

    if filled < 1:
        raise spec.refusal("fill", "fills less than one CPU; give more of it, or more workers")

    span_us = min(round(span_s * SECOND), AMOUNT_MAX)
    fill = JobStream("fill", np.zeros(1, np.int64), np.array([filled]), np.full(filled, span_us))
    rate = spec.positive("rate", 1.0, most=1_000)
    streams = [
        fill,
        _stream(spec, "batch", span_s, seed, spec.positive("batch_gap", 10.0) / rate, 100.0, 100.0),
        _stream(spec, "service", span_s, seed, spec.positive("service_gap", 20.0), 10.0, 500.0),
    ]

    return _merged(text, streams)


def _stream(
    spec: Spec, user: str, span_s: float, seed: int, gap_s: float, mean_tasks: float, mean_s: float
) -> JobStream:
    """The jobs of one type; each of its quantities has a stream of random numbers of its own."""
    mean_tasks = spec.positive(f"{user}_tasks", mean_tasks, most=1e6)
    mean_s = spec.positive(f"{user}_s", mean_s)

    expected = span_s / gap_s
    if expected * mean_tasks > TASKS_MAX:
        raise InputError(spec.text, f"would have more than {TASKS_MAX} tasks; shorten the span, or ask for fewer tasks")
    count = math.ceil(expected + SPREADS * math.sqrt(expected) + SPREADS)

    def drawn(name: str, size: int) -> Reals:
        return exponential(generator(seed, f"workload/{user}/{name}").random(size))

    # The cut at the span is exact: enough jobs were drawn for the last of them to come after it.
    arrivals = np.cumsum(drawn("arrivals", count)) * gap_s
    jobs = int(np.searchsorted(arrivals, span_s))
    sizes = np.maximum(np.ceil(drawn("tasks", jobs) * mean_tasks), 1).astype(np.int64)
    durations = np.maximum(microseconds(drawn("durations", int(sizes.sum())) * mean_s), 1)
    return JobStream(user, microseconds(arrivals[:jobs]), sizes, durations)


def _merged(name: str, streams: list[JobStream]) -> Trace:
    """All jobs in order of arrival."""
    arrivals = np.concatenate([stream.arrival_us for stream in streams])
    sizes = np.concatenate([stream.sizes for stream in streams])
    durations = np.concatenate([stream.duration_us for stream in streams])
    users = [stream.user for stream in streams for _ in range(len(stream.sizes))]
    order = np.argsort(arrivals, kind="stable")

    ends = np.cumsum(sizes)
    pieces = [durations[ends[job] - sizes[job] : ends[job]] for job in order.tolist()]
    first = np.concatenate(([0], np.cumsum(sizes[order])))
    duration_us = np.concatenate(pieces)

    return Trace(
        name,
        column(arrivals[order]),
        column(first),
        column(duration_us),
        column(np.rint(job_means(duration_us, first)).astype(np.int64)),
        user=tuple([users[job] for job in order.tolist()]),
        resources=RESOURCES,
        requests=(REQUEST,),
        request=array("H", [0]) * len(duration_us),
    )
