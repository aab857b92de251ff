"""Synthetic workloads from a spec string: constant, Poisson, heavy-tailed, workflows, and one that asks for resources.

A workload depends on its spec and seed alone. Its parts come from streams of their own, so that changing the load
moves the arrivals and leaves the jobs as they are.

Random layers of workflows are after the generator of Topcuoglu, Hariri and Wu (HEFT, IEEE TPDS 2002, section 5.1): a
graph of n tasks has about sqrt(n) / shape levels, so that a small shape makes it deep and a large one wide, and a task
waits for at most `degree` tasks of the level above it. In the paper the width of each level is drawn and the number of
tasks follows; here that number is given, and tasks beyond one for each level are thrown at the levels at random.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.model import SECOND, split_evenly
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.workload.arrays import Integers, Reals, arrivals, column, generator, made_trace, microseconds, ranks, view
from volery.workload.cell import cell
from volery.workload.deadlines import gangs, recurring
from volery.workload.distributions import (
    BoundedPareto,
    CutLogNormal,
    DiscretePareto,
    exponential,
    geometric,
    log_normal_factors,
)
from volery.workload.hdfs import hdfs
from volery.workload.medea import medea
from volery.workload.models import ask
from volery.workload.spec import Spec


class Preset(msgspec.Struct, frozen=True, dict=True):
    """A preset of the heavy-tailed mixes: a trace of table 1 in Pigeon (Wang et al., SoCC 2019), in a few numbers.

    A preset has two classes of jobs. In each class a job's mean task duration and its fanout are drawn independently:

    - short jobs: mean duration log-normal, cut at the published cutoff; long jobs: bounded Pareto from the cutoff to
      the published longest task;
    - fanout: a discrete bounded Pareto from 1 to the published largest fanout.

    Their means follow from the published ones. With long share p, mean fanout F and mean duration D (both per job: over
    the 16,272 Yahoo jobs whose mean task duration is public, the plain average of those is 127 s, and table 1 says
    118.78 s), long jobs' share w of the task-seconds and mean short duration d:

        D_long = (D - (1 - p) d) / p
        F_long = F_short * w / (1 - w) * (1 - p) d / (p D_long)
        F      = p F_long + (1 - p) F_short

    Args:
        fanout_mean, fanout_max: tasks per job, table 1.
        duration_mean_s, duration_max_s: average over jobs and longest task, table 1.
        cutoff_s: a job with a larger mean task duration is long; section 4.1 of the same paper.
        long_share, long_work: long jobs' share of the jobs and of the task-seconds, as Hawk (Delgado et al., ATC 2015)
            is quoted; slices of the Yahoo and Google traces give 9.5 % / 98.5 % and 9.1 % / 78.6 %.
        short_mean_s: mean over short jobs of their mean task duration; measured on those slices, for Cloudera our
            choice in the same proportion to its cutoff.
        short_sigma: spread of the logarithm of it, from the same slices.
        task_spread: standard deviation over mean of the task durations within a job: their median there.
    """

    fanout_mean: float
    fanout_max: int
    duration_mean_s: float
    duration_max_s: float
    cutoff_s: float
    long_share: float
    long_work: float
    short_mean_s: float
    short_sigma: float
    task_spread: float

    @property
    def long_mean_s(self) -> float:
        """Mean over long jobs of their mean task duration."""
        return (self.duration_mean_s - (1 - self.long_share) * self.short_mean_s) / self.long_share

    @property
    def short_fanout_mean(self) -> float:
        """Tasks in a short job, on average."""
        odds = self.long_work / (1 - self.long_work)
        times_p = odds * (1 - self.long_share) * self.short_mean_s / self.long_mean_s
        return self.fanout_mean / (times_p + 1 - self.long_share)

    @property
    def long_fanout_mean(self) -> float:
        """Tasks in a long job, on average."""
        return (self.fanout_mean - (1 - self.long_share) * self.short_fanout_mean) / self.long_share

    @cached_property
    def short_duration(self) -> CutLogNormal:
        """Mean task duration of a short job, seconds."""
        return CutLogNormal.with_mean(self.cutoff_s, self.short_mean_s, self.short_sigma)

    @cached_property
    def long_duration(self) -> BoundedPareto:
        """Mean task duration of a long job, seconds."""
        return BoundedPareto.with_mean(self.cutoff_s, self.duration_max_s, self.long_mean_s)

    @cached_property
    def short_fanout(self) -> DiscretePareto:
        """Tasks in a short job."""
        return DiscretePareto.with_mean(self.fanout_max, self.short_fanout_mean)

    @cached_property
    def long_fanout(self) -> DiscretePareto:
        """Tasks in a long job."""
        return DiscretePareto.with_mean(self.fanout_max, self.long_fanout_mean)


PRESETS: Final = {
    "yahoo": Preset(39.91, 5_900, 118.78, 21_259.9, 90.5811, 0.094, 0.983, 19.0, 1.2, 0.33),
    "cloudera": Preset(272.93, 51_834, 162.19, 97_941.8, 272.783, 0.05, 0.928, 50.0, 1.1, 0.2),
    "google": Preset(35.32, 49_960, 661.74, 774_922.0, 1_129.532, 0.10, 0.837, 162.0, 1.0, 0.06),
}
ALIBABA: Final = Preset(80.33, 36_326, 42.69, 3_628.8, 100.0, 0.135, 0.675, 19.9, 1.24, 0.3)
"""Batch tasks of Alibaba's cluster trace v2017 with their instances, as numbers of the public mean-duration table."""


Draw = Callable[[], float]
"""The next number of a stream, from 0 up to 1."""
Parents = list[tuple[int, ...]]
"""Per task of a job, places of those that it waits for."""


def is_spec(text: str) -> bool:
    """True for text that names a synthetic workload rather than a file."""
    return text.partition(":")[0] in KINDS and ":" in text


def synthesize(spec: str, seed: int = 0) -> Trace:
    """Make the workload that a spec describes; its first job arrives at 0.

    Args:
        spec: `syn:TASKSxJOBS,...`, `poisson:...`, `mix:PRESET,...`, `alibaba:...`, `cell:...`,
            `workflow:SHAPE,...`, `hdfs:...`, `recurring:JOBSxRUNS,...`, `medea:APPLICATIONS,...`;
            docs/reference/workloads.md lists the keys.
        seed: seed of the run; the streams are `workload/...`.

    Raises:
        InputError: the spec is wrong; the message names the key.
    """
    kind = spec.partition(":")[0]
    if not is_spec(spec):
        raise InputError(spec, f"{kind!r} is not a kind of synthetic workload{suggestion(kind, KINDS)}")
    return KINDS[kind](spec, seed)


def _constant(text: str, seed: int) -> Trace:  # noqa: ARG001 (every kind has the same signature)
    """`syn`: equal jobs at equal distances, as the published syn_250, syn_500 and syn_1000."""
    spec = Spec(text, ("duration", "interval"), word="TASKSxJOBS, for example syn:250x2000")
    shape = re.fullmatch(r"([0-9]{1,12})x([0-9]{1,12})", spec.word)
    if shape is None or not int(shape[1]) or not int(shape[2]):
        raise InputError(text, f"{spec.word!r} is not TASKSxJOBS, for example syn:250x2000")

    tasks, jobs = int(shape[1]), int(shape[2])
    spec.check_size(tasks * jobs)

    duration_us = round(spec.positive("duration", 1.0) * SECOND)
    interval_us = round(spec.positive("interval", 1.0) * SECOND)
    durations = np.full(tasks * jobs, duration_us, dtype=np.int64)
    return made_trace(text, np.arange(jobs) * interval_us, np.full(jobs, tasks), durations)


def _poisson(text: str, seed: int) -> Trace:
    """`poisson`: jobs arrive at random, tasks are exponential; the expected load on `workers` is `load`."""
    spec = Spec(text, ("load", "workers", "fanout", "mean", "jobs"))
    return _random_jobs(spec, seed, jobs=5_000, workers=1_000)[0]


def _random_jobs(spec: Spec, seed: int, *, jobs: int, workers: int) -> tuple[Trace, Integers]:
    """Jobs of exponential tasks that arrive at random, with their sizes; `jobs` and `workers` are the defaults."""
    count = spec.count("jobs", jobs)
    sizes, fanout_mean = _fanouts(spec, generator(seed, "workload/fanout").random(count))
    spec.check_size(int(sizes.sum()))
    mean_s = spec.positive("mean", 1.0)
    gap_s = fanout_mean * mean_s / (spec.positive("load", 0.8, most=100) * spec.count("workers", workers))
    gaps = exponential(generator(seed, "workload/arrivals").random(count)) * gap_s
    durations = exponential(generator(seed, "workload/durations").random(int(sizes.sum()))) * mean_s
    return made_trace(spec.text, arrivals(gaps), sizes, np.maximum(microseconds(durations), 1)), sizes


def _fanouts(spec: Spec, u: Reals) -> tuple[Integers, float]:
    """Tasks per job, and what is expected of them: `fanout=10`, `geometric:10` or `uniform:1-19`."""
    text = spec.text_of("fanout", "10")
    law, _, numbers = text.partition(":")
    if law.isdigit():
        fixed = spec.parsed_count("fanout", text)
        return np.full(len(u), fixed, dtype=np.int64), float(fixed)

    if law == "geometric":
        mean = float(numbers) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", numbers) else 0.0
        if mean < 1:
            raise spec.refusal("fanout", f"{text!r} needs a mean of at least 1; for example fanout=geometric:10")
        return geometric(u, mean), mean

    if law == "uniform":
        bounds = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", numbers)
        if bounds is None or not 1 <= int(bounds[1]) <= int(bounds[2]):
            raise spec.refusal("fanout", f"{text!r} needs bounds LOW-HIGH from 1; for example fanout=uniform:1-19")
        low, high = int(bounds[1]), int(bounds[2])
        return low + np.floor(u * (high - low + 1)).astype(np.int64), (low + high) / 2

    closest_laws = suggestion(law, ("geometric", "uniform"))
    raise spec.refusal("fanout", f"{text!r} is neither a number nor a law{closest_laws}; for example fanout=10")


def _mix(text: str, seed: int) -> Trace:
    """`mix`: short and long jobs with heavy tails, after published statistics; `load` holds exactly on `workers`."""
    spec = Spec(text, ("jobs", "load", "workers", "spread"), word="PRESET, for example mix:google,load=0.8")
    if spec.word not in PRESETS:
        raise InputError(text, f"{spec.word!r} is not a preset{suggestion(spec.word, PRESETS)}")
    jobs = spec.count("jobs", 2_000, least=2)
    sizes, durations = _classes(spec, PRESETS[spec.word], jobs, seed)
    span_s = float(durations.sum()) / (spec.positive("load", 0.8, most=100) * spec.count("workers", 10_000))
    return made_trace(text, _random_arrivals(jobs, span_s, seed), sizes, np.maximum(microseconds(durations), 1))


def _alibaba(text: str, seed: int) -> Trace:
    """`alibaba`: jobs and requests after Alibaba's trace v2017; the load on machines of `cpu_milli` holds exactly."""
    spec = Spec(text, ("jobs", "load", "workers", "cpu_milli", "fanout_max", "spread"))
    jobs = spec.count("jobs", 500, least=2)
    preset = msgspec.structs.replace(ALIBABA, fanout_max=spec.count("fanout_max", ALIBABA.fanout_max, least=1_000))

    sizes, durations = _classes(spec, preset, jobs, seed)
    duration_us = np.maximum(microseconds(durations), 1)
    trace = ask(made_trace(text, np.zeros(jobs, dtype=np.int64), sizes, duration_us), "alibaba-like", seed)

    cpu = np.array([request[0] for request in trace.requests], dtype=np.float64)[view(trace.request)]
    supply = spec.count("workers", 10_000) * spec.count("cpu_milli", 64_000)
    span_s = float((durations * cpu).sum()) / (spec.positive("load", 0.5, most=100) * supply)

    return msgspec.structs.replace(trace, arrival_us=column(_random_arrivals(jobs, span_s, seed)))


def chain(size: int) -> Parents:
    """Tasks one after the other."""
    return [(place - 1,) if place else () for place in range(size)]


def fork_join(size: int) -> Parents:
    """A first task, then all others but the last side by side, then the last."""
    if size <= 2:
        return chain(size)
    return [(), *[(0,)] * (size - 2), tuple(range(1, size - 1))]


def layered(size: int, draw: Draw, shape: float, degree: int) -> Parents:
    """Random levels; each task waits for 1 to `degree` tasks of the level above it.

    Args:
        shape: a small number makes it deep, a large one wide (see the module).
        degree: parents of a task at most; fewer where one is drawn twice.
    """
    depth = min(size, max(1, round(math.sqrt(size) / shape)))

    # No level is empty; the other tasks fall on levels at random.
    widths = [1] * depth
    for _ in range(size - depth):
        widths[int(draw() * depth)] += 1

    parents: Parents = [()] * widths[0]
    row_above = 0
    above_width = widths[0]

    for width in widths[1:]:
        for _ in range(width):
            count = 1 + int(draw() * degree)
            parents.append(tuple(sorted({row_above + int(draw() * above_width) for _ in range(count)})))
        row_above, above_width = row_above + above_width, width
    return parents


def expanded(outer: Sequence[Sequence[int]], inner: Sequence[Parents]) -> Parents:
    """A workflow whose tasks are workflows themselves, as one graph of the innermost tasks.

    The first tasks of each wait for the last tasks of those for which it waits as a whole.

    Args:
        outer: per task of the higher level, the tasks that it waits for, which come before it.
        inner: per task of the higher level, the workflow that it is.
    """
    parents: Parents = []
    last: list[tuple[int, ...]] = []

    for waits, graph in zip(outer, inner, strict=True):
        low = len(parents)
        awaited_tasks = tuple([task for outer_task in waits for task in last[outer_task]])
        parents += [tuple([low + place for place in places]) or awaited_tasks for places in graph]
        awaited = {place for places in graph for place in places}
        last.append(tuple([low + place for place in range(len(graph)) if place not in awaited]))

    return parents


def nested(size: int, levels: int, flat_workflow: Callable[[int], Parents]) -> Parents:
    """A hierarchical workflow of a size: each level has about the same number of tasks in a workflow.

    Args:
        flat_workflow: makes a flat workflow of a size.
    """
    if levels <= 1 or size <= 1:
        return flat_workflow(size)

    parts = split_evenly(size, max(1, round(size ** (1 / levels))))
    return expanded(flat_workflow(len(parts)), [nested(len(part), levels - 1, flat_workflow) for part in parts])


SHAPES: Final[dict[str, Callable[[int, Draw, float, int], Parents]]] = {
    "chain": lambda size, *_: chain(size),
    "fork-join": lambda size, *_: fork_join(size),
    "layered": layered,
}


def _workflow(text: str, seed: int) -> Trace:
    """`workflow`: jobs arrive at random, their tasks wait for each other; the expected load on `workers` is `load`."""
    keys = ("jobs", "fanout", "mean", "load", "workers", "shape", "degree", "levels")
    spec = Spec(text, keys, word="SHAPE, for example workflow:layered,fanout=20")
    if spec.word not in SHAPES:
        raise InputError(text, f"{spec.word!r} is not a shape{suggestion(spec.word, SHAPES)}")

    without_waits, sizes = _random_jobs(spec, seed, jobs=500, workers=100)
    shape = spec.positive("shape", 1.0)
    degree = spec.count("degree", 3)
    levels = spec.count("levels", 1, most=10)
    draw = Streams(seed).of("workload/graph").random
    parents = list[tuple[int, ...]]()

    for size in sizes.tolist():
        graph = nested(size, levels, lambda count: SHAPES[spec.word](count, draw, shape, degree))
        low = len(parents)
        parents += [tuple([low + place for place in places]) for places in graph]

    return with_parents(without_waits, parents)


def _random_arrivals(jobs: int, span_s: float, seed: int) -> Integers:
    gaps = exponential(generator(seed, "workload/arrivals").random(jobs))
    return arrivals(gaps * (span_s / gaps[1:].sum()))


def _classes(spec: Spec, preset: Preset, jobs: int, seed: int) -> tuple[Integers, Reals]:
    """Tasks per job, and their durations in seconds, of short and long jobs."""
    u = generator(seed, "workload/jobs").random((jobs, 5))
    is_long = ranks(u[:, 0]) < max(1, round(preset.long_share * jobs))

    sizes, means = np.zeros(jobs, dtype=np.int64), np.zeros(jobs)
    classes = (
        (~is_long, preset.short_fanout, preset.short_duration),
        (is_long, preset.long_fanout, preset.long_duration),
    )

    for member, fanout, duration in classes:
        sizes[member] = fanout.quantile(_stratified(u[member, 1], u[member, 2]))
        means[member] = duration.quantile(_stratified(u[member, 3], u[member, 4]))

    tasks = int(sizes.sum())
    spec.check_size(tasks)
    v = generator(seed, "workload/durations").random((tasks, 2))
    spread = spec.at_least_zero("spread", preset.task_spread, most=100)
    factors = log_normal_factors(v[:, 0], v[:, 1], spread)

    starts = np.cumsum(sizes) - sizes
    # dividing by the job's own mean factor keeps its mean duration, and with it its class, as drawn
    scale = means * sizes / np.add.reduceat(factors, starts)
    return sizes, np.minimum(factors * np.repeat(scale, sizes), preset.duration_max_s)


def _stratified(u: Reals, v: Reals) -> Reals:
    """One share from each of as many equal strata as there are draws, in random order.

    Heavy tails need it: with independent draws the mean fanout of 10,000 jobs often misses its expectation by a third.
    """
    return np.asarray((ranks(u) + v) / len(u))


KINDS: Final[dict[str, Callable[[str, int], Trace]]] = {
    "syn": _constant,
    "poisson": _poisson,
    "mix": _mix,
    "alibaba": _alibaba,
    "gangs": gangs,
    "cell": cell,
    "hdfs": hdfs,
    "recurring": recurring,
    "medea": medea,
    "workflow": _workflow,
}
