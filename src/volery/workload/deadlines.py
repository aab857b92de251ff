"""Synthetic jobs with deadlines: gangs, and recurring jobs.

Gangs come in mixes after TetriSched's (EuroSys 2016). Published are the shares of jobs with a deadline and of GPU and
MPI jobs (as recalled). Everything else is ours: gangs of 1 to 24 tasks, run times of 20 s to 5 min where a job prefers
to run, twice that elsewhere, and deadlines of 1.2 to 4 run times after the arrival. GPU jobs prefer machines with GPUs,
MPI jobs to have all tasks in a rack, whichever. The machines are those of the constraint model `gpu-racks`.

Recurring jobs are graphs of stages that run again and again, on other input and with other luck, after the jobs of
Jockey's evaluation (EuroSys 2012), of whose 21 not much more is known than their deadlines of about half an hour to an
hour. Everything here is ours. A recurring job has 3 to 8 stages, each with a number of tasks and a mean run time of its
own; a stage waits for one or two before it, whole (a barrier) or task for task. Each run of it takes longer or shorter
as a whole (`noise`: other input), some take much longer (`surprise`), tasks differ among each other, some straggle, and
some fail and are run again: the time of failed attempts is part of their duration. Other jobs without deadlines, bags
of tasks of the user "other", come beside them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.model import INDIFFERENT, NEVER, SECOND, Preference, Time
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.workload.arrays import Integers, Reals, column, generator, made_trace, microseconds, ranks, view
from volery.workload.constraints import GPU, RACKS
from volery.workload.distributions import exponential, geometric, log_normal_factors
from volery.workload.spec import Spec


class Mix(msgspec.Struct, frozen=True):
    """A published mix.

    Args:
        deadlines: share of the jobs that have one.
        heterogeneous: half of the jobs prefer GPUs, half one rack; otherwise all are as fast anywhere.
    """

    deadlines: float
    heterogeneous: bool


MIXES: Final = {
    "gr-slo": Mix(1.0, False),
    "gr-mix": Mix(0.52, False),
    "gs-mix": Mix(0.70, False),
    "gs-het": Mix(0.75, True),
}
SIZES: Final = (1, 2, 4, 8, 12, 16, 24)
RUN_MEAN_S: Final = 60.0
RUN_MIN_S: Final = 20.0
RUN_MAX_S: Final = 300.0
SLACK_MIN: Final = 1.2
SLACK_MAX: Final = 4.0
"""A deadline is so many run times on preferred machines after the arrival."""
SLOWER: Final = 2.0
GANGS_KEYS: Final = ("jobs", "load", "workers", "slower", "error", "burst", "services", "service_tasks")
SERVICE_SLACK_US: Final = 60 * SECOND
"""A service is desired to run so long after its arrival."""
GANGS_SPEC: Final = "PRESET, for example gangs:gs-het,load=0.8"


def gangs(text: str, seed: int) -> Trace:
    """`gangs`: the load on `workers` machines is `load` exactly, if every job runs where it prefers to.

    Args:
        text: the spec: a mix, `jobs`, `load`, `workers`, `slower` (how many times longer jobs take where they do not
            prefer to run), `error` (percent by which estimates are above, or with a minus below, the truth), `burst`
            (jobs that come together), `services` (jobs that run on when all others are done), `service_tasks`.

    Raises:
        InputError: the spec is wrong; the message names the key.
    """
    spec = Spec(text, GANGS_KEYS, word=GANGS_SPEC)
    if spec.word not in MIXES:
        raise InputError(text, f"{spec.word!r} is not a mix{suggestion(spec.word, MIXES)}")

    mix = MIXES[spec.word]
    jobs = spec.count("jobs", 400, least=2)

    u = generator(seed, "workload/jobs").random((jobs, 5))
    sizes = np.array(SIZES)[np.floor(u[:, 0] * len(SIZES)).astype(np.int64)]
    run_s = np.clip(RUN_MIN_S + exponential(u[:, 1]) * (RUN_MEAN_S - RUN_MIN_S), RUN_MIN_S, RUN_MAX_S)
    run_us = microseconds(run_s)

    work_s = float((run_s * sizes).sum())
    span_s = work_s / (spec.positive("load", 0.8, most=100) * spec.count("workers", 256))
    # The jobs of a burst share one arrival.
    burst = spec.count("burst", 1, most=jobs // 2)
    arrival_us = _arrivals(generator(seed, "workload/arrivals").random(-(-jobs // burst)), span_s)
    arrival_us = np.repeat(arrival_us, burst)[:jobs]

    slack = SLACK_MIN + u[:, 2] * (SLACK_MAX - SLACK_MIN)
    due_us = arrival_us + np.rint(run_us * slack).astype(np.int64)
    preferences = _preferences(mix, spec.positive("slower", SLOWER, most=100))

    batch = Trace(
        text,
        column(arrival_us),
        column(np.concatenate(([0], np.cumsum(sizes)))),
        column(np.repeat(run_us, sizes)),
        column(np.maximum(np.rint(run_us * (1 + _error(spec) / 100)).astype(np.int64), 1)),
        deadline_us=column(np.where(_first(u[:, 3], mix.deadlines), due_us, NEVER)),
        preferences=preferences,
        preference=array("H", _first(u[:, 4], 0.5).astype(int).tolist() if len(preferences) > 1 else []),
    )

    count = spec.count("services", 0, least=0)
    return _beside_services(batch, count, spec.count("service_tasks", 16)) if count else batch


def _beside_services(batch: Trace, count: int, tasks: int) -> Trace:
    """Gangs, with services of priority 1 between them, in equal steps, that run until twice their span is over."""
    span_us = batch.arrival_us[-1]
    at_us = np.arange(1, count + 1) * span_us // (count + 1)
    run_us = 2 * span_us - at_us
    order = np.argsort(np.concatenate((view(batch.arrival_us), at_us)), kind="stable")

    first = view(batch.first)

    def merged(batch_values: Integers, services: Integers) -> Integers:
        return np.concatenate((batch_values, services))[order]

    sizes = merged(np.diff(first), np.full(count, tasks))
    indifferent = len(batch.preferences)
    preference = [*batch.preference, *[indifferent] * count]

    return Trace(
        batch.name,
        column(merged(view(batch.arrival_us), at_us)),
        column(np.concatenate(([0], np.cumsum(sizes)))),
        column(np.repeat(merged(view(batch.duration_us)[first[:-1]], run_us), sizes)),
        column(merged(view(batch.estimate_us), run_us)),
        user=tuple(["batch" if job < batch.job_count else "service" for job in order.tolist()]),
        priority=column((order >= batch.job_count).astype(np.int64)),
        deadline_us=column(merged(view(batch.deadline_us), at_us + SERVICE_SLACK_US + run_us)),
        preferences=(*batch.preferences, INDIFFERENT) if indifferent else (),
        preference=array("H", [preference[job] for job in order.tolist()] if indifferent else []),
    )


def _preferences(mix: Mix, slower: float) -> tuple[Preference, ...]:
    if not mix.heterogeneous:
        return ()
    percent = max(100, round(100 * slower))
    return Preference(0, RACKS, percent), Preference(GPU, 0, percent)


def _first(u: Reals, share: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """A mask of the smallest draws, exactly this share of them."""
    return np.asarray(ranks(u) < round(share * len(u)))


def _arrivals(u: Reals, span_s: float) -> Integers:
    """Poisson arrivals from 0 to the end of the span."""
    gaps = exponential(u)
    at = np.cumsum(gaps) - gaps[0]
    return microseconds(at * (span_s / at[-1]))


def _error(spec: Spec) -> float:
    text = spec.text_of("error", "0")
    if not re.fullmatch(r"-?[0-9]{1,4}(\.[0-9]+)?", text) or float(text) <= -100:
        raise spec.refusal("error", f"{text!r} is no percentage above -100; for example error=-20")
    return float(text)


RECURRING_KEYS: Final = (
    "tasks",
    "mean",
    "load",
    "workers",
    "population",
    "deadline",
    "tokens",
    "noise",
    "surprise",
    "times",
    "fail",
    "other",
    "other_tasks",
    "other_s",
)
RECURRING_SPEC: Final = "JOBSxRUNS, for example recurring:8x5,workers=100"
OTHER: Final = "other"
STAGES: Final = (3, 8)
BARRIERS: Final = 0.5
"""Share of the edges between stages that are barriers."""
TASK_SPREAD: Final = 0.4
"""Standard deviation of a task's run time, of the mean of its stage."""
STRAGGLERS: Final = 0.02
STRAGGLE: Final = 3.0
Draw = Callable[[], float]


class Template(NamedTuple):
    """A recurring job.

    Args:
        sizes, mean_s: per stage, its tasks, and how long they take on average.
        parents: per task, places of the tasks that it waits for.
        typical_s: duration with the tokens of the spec, by Amdahl's law.
    """

    sizes: list[int]
    mean_s: list[float]
    parents: list[tuple[int, ...]]
    typical_s: float

    @property
    def work_s(self) -> float:
        """The expected work of a run."""
        return sum([size * mean for size, mean in zip(self.sizes, self.mean_s, strict=True)])


def recurring(text: str, seed: int) -> Trace:
    """The workload of a spec `recurring:JOBSxRUNS,key=value,...`.

    The jobs depend on `population` alone, their runs on the seed: a workload of the same spec under another seed holds
    earlier runs of the same jobs.

    Raises:
        InputError: the spec is wrong; the message names the key.
    """
    spec = Spec(text, RECURRING_KEYS, word=RECURRING_SPEC)

    shape = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})", spec.word)
    if shape is None:
        raise InputError(text, f"{spec.word!r} is not {RECURRING_SPEC}")
    kinds, runs = int(shape[1]), int(shape[2])

    spec.check_size(kinds * runs * spec.count("tasks", 200, least=STAGES[1]))
    templates = [_template(spec, kind) for kind in range(kinds)]
    # Every job has the same number of runs, in a random order.
    order = np.argsort(generator(seed, "workload/order").random(kinds * runs), kind="stable") % kinds

    load = spec.positive("load", 0.4, most=100)
    workers = spec.count("workers", 200)
    span_s = runs * sum([template.work_s for template in templates]) / (load * workers)
    at_s = np.sort(generator(seed, "workload/arrivals").random(kinds * runs)) * span_s

    jobs = [
        (at, f"job{kind}", _durations(spec, templates[kind], seed, number), templates[kind])
        for number, (at, kind) in enumerate(zip(at_s.tolist(), order.tolist(), strict=True))
    ]
    jobs += [(at, OTHER, durations, None) for at, durations in _others(spec, span_s, seed)]

    return _trace(text, sorted(jobs, key=lambda job: job[0]), spec.positive("deadline", 1.5, most=1000))


def _template(spec: Spec, kind: int) -> Template:
    draw = Streams(spec.count("population", 0, least=0)).of(f"workload/recurring/{kind}").random
    stages = STAGES[0] + int(draw() * (STAGES[1] - STAGES[0] + 1))

    weights = [np.exp(2 * draw()) for _ in range(stages)]
    tasks = spec.count("tasks", 200, least=STAGES[1]) * (0.5 + draw())
    sizes = [max(1, round(tasks * weight / sum(weights))) for weight in weights]
    mean_s = [spec.positive("mean", 60.0) * float(np.exp(1.2 * (draw() - 0.5))) for _ in range(stages)]
    parent_stages = [_above(stage, draw) for stage in range(stages)]

    path_s = [0.0] * stages
    # Parents have smaller numbers than their children, so that their paths are known here.
    for stage, parents in enumerate(parent_stages):
        path_s[stage] = mean_s[stage] + max([path_s[parent] for parent, _ in parents], default=0.0)

    work_s = sum([size * mean for size, mean in zip(sizes, mean_s, strict=True)])
    typical_s = max(path_s) + work_s / spec.count("tokens", 20)
    return Template(sizes, mean_s, _edges(sizes, parent_stages), typical_s)


def _above(stage: int, draw: Draw) -> list[tuple[int, bool]]:
    """Parents of a stage, each with True for a barrier: the stage before it, and sometimes another."""
    if not stage:
        return []

    barriers = {stage - 1: draw() < BARRIERS}
    if draw() < 1 / 3:
        barriers.setdefault(int(draw() * stage), draw() < BARRIERS)
    return sorted(barriers.items())


def _edges(sizes: list[int], parent_stages: list[list[tuple[int, bool]]]) -> list[tuple[int, ...]]:
    """Per task, its parents: all of a stage, or those of the same place in it."""
    starts = np.concatenate(([0], np.cumsum(sizes))).tolist()
    parents_of_tasks: list[tuple[int, ...]] = []
    for size, parents in zip(sizes, parent_stages, strict=True):
        for task in range(size):
            waits: list[int] = []
            for parent, barrier in parents:
                count, low = sizes[parent], starts[parent]
                first, last = (0, count) if barrier else (task * count // size, -(-(task + 1) * count // size))
                waits += range(low + first, low + last)

            parents_of_tasks.append(tuple(sorted(waits)))
    return parents_of_tasks


def _durations(spec: Spec, template: Template, seed: int, number: int) -> Reals:
    """The durations of the tasks of one run, seconds."""
    size = sum(template.sizes)
    u = generator(seed, f"workload/run/{number}").random((size + 1, 4))
    factor = float(log_normal_factors(u[:1, 0], u[:1, 1], spec.at_least_zero("noise", 0.2, most=10))[0])

    if u[0, 2] < spec.at_least_zero("surprise", 0.05, most=1):
        factor *= spec.positive("times", 2.0, most=1000)

    tasks = u[1:]
    once_s = np.repeat(template.mean_s, template.sizes) * log_normal_factors(tasks[:, 0], tasks[:, 1], TASK_SPREAD)
    once_s = np.where(tasks[:, 2] < STRAGGLERS, STRAGGLE, 1.0) * once_s * factor

    fail = spec.at_least_zero("fail", 0.02, most=0.9)
    # an attempt that fails has run for half of its time, on average; the number of them is geometric
    failed = np.floor(np.log1p(-tasks[:, 3]) / np.log(fail)) if fail else np.zeros(size)
    return np.asarray(once_s * (1 + failed / 2))


def _others(spec: Spec, span_s: float, seed: int) -> list[tuple[float, Reals]]:
    """Arrivals and durations of the other jobs, whose expected load on the workers is `other`."""
    load = spec.at_least_zero("other", 0.4, most=100)
    if not load:
        return []

    tasks, mean_s = spec.positive("other_tasks", 50.0, most=1e6), spec.positive("other_s", 30.0)
    gap_s = tasks * mean_s / (load * spec.count("workers", 200))
    draw = generator(seed, "workload/other")
    jobs: list[tuple[float, Reals]] = []
    at = 0.0

    while True:
        at += float(exponential(draw.random(1))[0]) * gap_s
        if at >= span_s:
            return jobs
        size = int(geometric(draw.random(1), tasks)[0]) if tasks > 1 else 1
        jobs.append((at, exponential(draw.random(size)) * mean_s))


def _trace(text: str, jobs: list[tuple[float, str, Reals, Template | None]], factor: float) -> Trace:
    at_us = [round((at - jobs[0][0]) * SECOND) for at, *_ in jobs]
    sizes = np.array([len(durations) for _, _, durations, _ in jobs])
    duration_us = np.maximum(microseconds(np.concatenate([durations for _, _, durations, _ in jobs])), 1)
    trace = made_trace(text, np.array(at_us), sizes, duration_us)

    due_us: list[Time] = []
    parents: list[tuple[int, ...]] = []
    for at, (_, _, durations, template) in zip(at_us, jobs, strict=True):
        low = len(parents)
        due_us.append(NEVER if template is None else at + round(factor * template.typical_s * SECOND))
        own = [()] * len(durations) if template is None else template.parents
        parents += [tuple([low + place for place in places]) for places in own]

    users = tuple([name for _, name, *_ in jobs])
    return with_parents(msgspec.structs.replace(trace, user=users, deadline_us=column(np.array(due_us))), parents)
