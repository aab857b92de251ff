"""Synthetic long-running applications with tag constraints, beside batch jobs (after Medea, EuroSys 2018).

The constraints are those of the applications of its evaluation (section 7.1): tasks of a service on machines of their
own, workers in the rack of the cache that they use, and at most so many of them on a machine. All numbers are ours.

Every second application is a service of some tasks; the others are a cache of one task, and its workers, which arrive
a little later and end before it. Each application has a tag of its own, besides that of its kind.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from volery.core.errors import InputError
from volery.core.model import TagConstraint
from volery.core.tags import with_tags
from volery.core.trace import Trace
from volery.workload.arrays import generator, made_trace, microseconds
from volery.workload.distributions import exponential
from volery.workload.spec import Spec

KEYS: Final = ("gap", "service", "tasks", "per_rack", "worker", "workers", "per_node", "batch", "batch_tasks", "mean")
APPLICATIONS_MAX: Final = 10_000
SERVICE, CACHE, WORKER = "service", "cache", "worker"


class _PlannedJob(NamedTuple):
    """A job of an application, or of the batch."""

    arrival_s: float
    tasks: int
    duration_s: float
    tags: tuple[str, ...] = ()


def medea(text: str, seed: int) -> Trace:
    """`medea`: so many applications with tag constraints, and batch jobs without any.

    Raises:
        InputError: the spec is wrong; the message names the key.
    """
    spec = Spec(text, KEYS, word="APPLICATIONS, for example medea:20,batch=200")
    if not (spec.word.isdigit() and spec.word.isascii() and 0 < int(spec.word) <= APPLICATIONS_MAX):
        problem = f"{spec.word!r} is not a number of applications from 1 to {APPLICATIONS_MAX}; for example medea:20"
        raise InputError(text, problem)

    count = int(spec.word)
    gap_s = spec.positive("gap", 10.0)
    at_s = np.cumsum(exponential(generator(seed, "workload/arrivals").random(count))) * gap_s
    rows = list[_PlannedJob]()
    constraints = list[TagConstraint]()
    per_node = spec.count("per_node", 2)

    for number, begin_s in enumerate((at_s - at_s[0]).tolist()):
        application = _service(spec, number, begin_s) if number % 2 == 0 else _cached(spec, number, begin_s)
        rows += application[0]
        constraints += application[1]

    constraints.append(TagConstraint((WORKER,), (WORKER,), 0, per_node - 1, "node"))
    rows += _batch(spec, float(at_s[-1] - at_s[0]) + gap_s, seed)
    spec.check_size(sum([row.tasks for row in rows]))

    rows.sort(key=lambda row: row.arrival_s)
    return with_tags(_trace(text, rows), [row.tags for row in rows], constraints)


def _service(spec: Spec, number: int, begin_s: float) -> tuple[list[_PlannedJob], list[TagConstraint]]:
    """A service: its tasks are on machines of their own, and at most so many of them in a rack."""
    tags = (SERVICE, f"app-{number}")
    apart = [TagConstraint(tags, tags, 0, 0, "node")]
    most = spec.count("per_rack", 0, least=0)
    if most:
        apart.append(TagConstraint(tags, tags, 0, most - 1, "rack"))
    return [_PlannedJob(begin_s, spec.count("tasks", 4), spec.positive("service", 600.0), tags)], apart


def _cached(spec: Spec, number: int, begin_s: float) -> tuple[list[_PlannedJob], list[TagConstraint]]:
    """A cache, which runs three times as long as its workers; these are in its rack."""
    run_s, name = spec.positive("worker", 60.0), f"app-{number}"
    cache, worker = (CACHE, name), (WORKER, name)
    later = _PlannedJob(begin_s + run_s / 10, spec.count("workers", 8), run_s, worker)
    return [_PlannedJob(begin_s, 1, 3 * run_s, cache), later], [TagConstraint(worker, cache, 1, group="rack")]


def _batch(spec: Spec, span_s: float, seed: int) -> list[_PlannedJob]:
    """Jobs without tags, over the whole span."""
    jobs = spec.count("batch", 100, least=0)
    tasks = spec.count("batch_tasks", 10)
    mean_s = spec.positive("mean", 10.0)
    u = generator(seed, "workload/batch").random((jobs, 2))
    durations = np.maximum(exponential(u[:, 1]) * mean_s, 0.001)
    return [
        _PlannedJob(at, tasks, run) for at, run in zip((u[:, 0] * span_s).tolist(), durations.tolist(), strict=True)
    ]


def _trace(text: str, rows: list[_PlannedJob]) -> Trace:
    sizes = np.array([row.tasks for row in rows], dtype=np.int64)
    durations = microseconds(np.repeat(np.array([row.duration_s for row in rows]), sizes))
    at_us = microseconds(np.array([row.arrival_s for row in rows]))
    return made_trace(text, at_us - at_us[0], sizes, np.maximum(durations, 1))
