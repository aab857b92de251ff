"""Forks of a live federation in the lab: simulations that start from its state and run to the end of one job.

Running tasks are placed first, each on its own machine where the constraint sets have room for a bit per machine, else
on a machine of the same kind, for their remaining durations. After they have settled, waiting tasks arrive in the order
of submission, then the job in question. No other job arrives. Each run draws new durations from fixed seeds, and yields
the times at which tasks of the job start and end, and the tasks that they preempt.

A job's number decides its scheduler. So empty jobs are inserted until each job has a number with the scheduler that it
has live. The phase of heartbeats is unknown, and drawn in each run.

Tasks of one job resemble each other more than tasks of two. So an earlier job of the kind is drawn for each job, and
the durations of its tasks from that one. Earlier jobs are weighted by their likelihood, given the elapsed times of
running tasks and the durations of ended ones. The next job is rarely one of the few in the past, so a smooth kernel is
laid around each (Silverman, Density Estimation, 1986, section 6.4: the smoothed bootstrap). A running task draws among
longer durations; one that has run longer than all takes up to as long again.
"""

from __future__ import annotations

import math
import statistics
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from volery.core.component import Architecture
from volery.core.forecast import (
    ActiveJob,
    DurationBases,
    FederationState,
    ForecastResult,
    Lifetime,
    MomentQuantiles,
    PreemptedJob,
    Quantiles,
)
from volery.core.model import CONSTRAINT_BITS_MAX, NEVER, SECOND, Address, Amounts, Cluster, JobId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import Options, Progress, simulate
from volery.sim.kernel import Enough
from volery.sim.orders import Drained, Reweighed

RUNS_MAX: Final = 40
RUNS_MIN: Final = 5
"""Fewer runs show nothing of the variation."""
SETTLED_US: Final = SECOND
"""Running tasks are placed within this time in most designs; slower designs get more."""
SETTLED_MAX_US: Final = 4096 * SECOND
PHASE_US: Final = 10 * SECOND
"""Periods of heartbeats and cycles are shorter."""
FILLERS_MAX: Final = 64
RESOLUTION_US: Final = 100_000
"""Commits, frames and starts of processes are not simulated: an interval ends so much later."""
LOW, HIGH = 0.1, 0.9


class _Part(NamedTuple):
    """Tasks of a job that arrive together: (duration, constraints, request) each."""

    arrival_us: Time
    job: ActiveJob | None
    tasks: list[tuple[Time, int, Amounts]]


class _Fork(NamedTuple):
    architecture: Architecture
    config: Any
    cluster: Cluster
    bits: Sequence[int]
    state: FederationState
    kinds: Sequence[TaskKind]


class _Run(NamedTuple):
    """The result of one run for the job in question; a moment is None where the run ended before it.

    Tasks that were running run again at `settled_us`.
    """

    moments: tuple[Time | None, ...]
    reached_us: Time
    settled_us: Time
    preempted: dict[JobId, int]
    whole: bool


def forecast(
    architecture: Architecture,
    config: Any,
    cluster: Cluster,
    state: FederationState,
    budget_s: float,
    runs_max: int = RUNS_MAX,
) -> ForecastResult:
    """Forecast the times at which tasks of the job in question start and end, as far as they have not yet.

    Args:
        architecture, config, cluster, state: Design, parameters, machines and present state of the federation.
        budget_s: processor time after which no further run begins, and the current one ends early.
        runs_max: number of runs when time suffices.

    Raises:
        InputError: the design cannot be built so.
        BrokenRule, Stalled: it fails in the lab.
    """
    fork = _Fork(architecture, config, *_pinned(cluster, state), state, [*map(TaskKind, state.lifetimes)])
    began, settled_us = time.process_time(), SETTLED_US
    played_runs: list[_Run] = []
    while len(played_runs) < runs_max and (not played_runs or time.process_time() - began < budget_s):
        run = _play(fork, len(played_runs), settled_us, began + budget_s)
        if run.whole and run.settled_us > settled_us // 2 and settled_us < SETTLED_MAX_US:
            settled_us *= 4
        else:
            played_runs.append(run)
    whole_runs = [run for run in played_runs if run.whole]
    return ForecastResult(
        runs=len(whole_runs),
        moments=_moments(whole_runs or played_runs),
        known=_known(state),
        preempts=_preempts(whole_runs or played_runs, state),
        cpu_s=time.process_time() - began,
    )


def _pinned(cluster: Cluster, state: FederationState) -> tuple[Cluster, Sequence[int]]:
    """The cluster with further constraint bits, and per machine those that keep its running tasks there."""
    count = len(cluster.constraints)
    no_use = (0,) * count
    if not any(job.running for job in state.jobs):
        return cluster, no_use
    used = 0
    for mask in cluster.constraints:
        used |= mask
    room = CONSTRAINT_BITS_MAX - used.bit_length()
    kinds: list[Any] = list(range(count))
    if count > room:
        drained = set(state.drained)
        capacities = cluster.capacities or no_use
        slots = cluster.slots
        kinds = [(cluster.constraints[m], slots[m], capacities[m], m in drained) for m in range(count)]
    numbers = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    if not 1 < len(numbers) <= room:
        return cluster, cluster.constraints
    bits = tuple([1 << used.bit_length() + numbers[kind] for kind in kinds])
    masks = tuple([mask | bit for mask, bit in zip(cluster.constraints, bits, strict=True)])
    return msgspec.structs.replace(cluster, constraints=masks), bits


def _play(fork: _Fork, seed: int, settled_us: Time, deadline_s: float) -> _Run:
    state, stream = fork.state, Random(f"lifetimes {seed}")
    settled_us += stream.randrange(PHASE_US)
    deployment = fork.architecture.build(fork.cluster, fork.config, Streams(seed))
    parts: list[_Part] = []
    for part in _parts(state, fork.kinds, fork.bits, settled_us, stream):
        parts += _fillers(part, len(parts), deployment.entry_for)
        parts.append(part)
    reached: list[Time] = []

    def progress(so_far: Progress) -> None:
        if time.process_time() > deadline_s and so_far.jobs_done < len(parts):
            reached.append(so_far.now_us)
            raise Enough

    drains = tuple(Drained(machine, settled_us // 2) for machine in state.drained)
    reweighs = tuple(Reweighed(name, weight) for name, weight in state.weights)
    options = Options(graphs=fork.architecture.graphs, drains=drains, reweighs=reweighs)
    records = simulate(
        deployment, _trace(parts, fork.cluster), fork.cluster, seed=seed, options=options, progress=progress
    )
    since_us = settled_us if state.planned is None else parts[-1].arrival_us
    return _read(records, parts, state.questioned, since_us, reached[0] if reached else None)


def _parts(
    state: FederationState, kinds: Sequence[TaskKind], bits: Sequence[int], settled_us: Time, stream: Random
) -> Iterable[_Part]:
    """Arrivals: running tasks, those that the fewest machines can hold first; then waiting tasks."""
    drawn: list[dict[int, JobLifetimes]] = []
    for job in state.all:
        met: dict[int, list[Time]] = {group.lifetime: [] for group in job.waiting}
        for task in job.running:
            met.setdefault(task.lifetime, []).append(task.elapsed_us)
        drawn.append(
            {kind: kinds[kind].job(stream, elapsed_us, job.took_us) for kind, elapsed_us in sorted(met.items())}
        )
    running_parts: dict[tuple[int, int], _Part] = {}
    for place, job in enumerate(state.jobs):
        for task in job.running:
            left_us = max(1, drawn[place][task.lifetime].total_us(task.elapsed_us) - task.elapsed_us)
            pin = bits[task.machine]
            part = running_parts.setdefault((-pin.bit_count(), place), _Part(0, job, []))
            part.tasks.append((settled_us + left_us, pin, task.request))
    yield from (running_parts[key] for key in sorted(running_parts))
    for place, job in enumerate(state.all):
        tasks = [
            (drawn[place][group.lifetime].total_us(), group.mask, group.request)
            for group in job.waiting
            for _ in range(group.count)
        ]
        if tasks:
            yield _Part(settled_us + place, job, tasks)


def _fillers(part: _Part, number: int, entry_for: Callable[[JobId, str], Address]) -> list[_Part]:
    """Empty jobs that give the next job its live scheduler; none where no number does."""
    assert part.job is not None
    user = part.job.user
    scheduler = entry_for(part.job.number, user)
    fitting = (count for count in range(FILLERS_MAX) if entry_for(number + count, user) == scheduler)
    return [_Part(part.arrival_us, None, [])] * next(fitting, 0)


def _trace(parts: Sequence[_Part], cluster: Cluster) -> Trace:
    tasks = [task for part in parts for task in part.tasks]
    jobs = [part.job for part in parts]
    first = array("q", [0])
    for part in parts:
        first.append(first[-1] + len(part.tasks))
    request_places: dict[Amounts, int] = {}
    if cluster.resources:
        request_places = {
            request: place for place, request in enumerate(dict.fromkeys(request for _, _, request in tasks))
        }
    return Trace(
        "fork",
        array("q", [part.arrival_us for part in parts]),
        first,
        duration_us=array("q", [task[0] for task in tasks]),
        estimate_us=array("q", [job.estimate_us if job else 0 for job in jobs]),
        constraints=array("q", [task[1] for task in tasks]),
        user=tuple([job.user if job else "" for job in jobs]),
        resources=cluster.resources,
        requests=tuple(request_places),
        request=array("I", [request_places[task[2]] for task in tasks] if request_places else []),
    )


def _read(
    records: Records, parts: Sequence[_Part], questioned_job: ActiveJob, since_us: Time, reached_us: Time | None
) -> _Run:
    trace = records.trace
    places = [place for place, part in enumerate(parts) if part.job is questioned_job]
    own = [task for place in places for task in range(trace.first[place], trace.first[place + 1])]
    # Tasks that were running run again before the question: their starts do not count.
    places = [place for place in places if parts[place].arrival_us > 0]
    waited = [task for place in places for task in range(trace.first[place], trace.first[place + 1])]
    started, ended = _reached(records.start_us, waited, since_us), _reached(records.finish_us, own, since_us)
    moments = (
        min(started, default=None),
        min(ended, default=None),
        max(started, default=None) if len(started) == len(waited) else None,
        max(ended, default=None) if len(ended) == len(own) else None,
    )
    lost: dict[JobId, int] = {}
    jobs = trace.job_of_task() if records.preemptions else ()
    gaining = set(waited) if records.preemptions else ()
    for preemption in records.preemptions:
        if preemption.beneficiary in gaining:
            loser = parts[jobs[preemption.task]].job
            assert loser is not None
            lost[loser.number] = lost.get(loser.number, 0) + 1
    whole = reached_us is None or len(ended) == len(own)
    held = trace.first[sum(part.arrival_us == 0 for part in parts)]
    settled_us = max(records.start_us[:held], default=0)
    return _Run(moments, 0 if reached_us is None else max(0, reached_us - since_us), settled_us, lost, whole)


def _reached(column: Sequence[Time], tasks: Sequence[int], since_us: Time) -> list[Time]:
    return [column[task] - since_us for task in tasks if column[task] != NEVER]


def _moments(runs: Sequence[_Run]) -> MomentQuantiles:
    columns = zip(*(run.moments for run in runs), strict=True)
    reached = [run.reached_us for run in runs]
    return MomentQuantiles(*(_interval(list(zip(column, reached, strict=True))) for column in columns))


def _interval(moments: Sequence[tuple[Time | None, Time]]) -> Quantiles:
    """Quantiles of a moment; a run that ended early is a lower bound. Few runs have a median alone."""
    if not any(reached_us for _, reached_us in moments) and all(at is None for at, _ in moments):
        return Quantiles(None, None, None)  # no such moment is to come
    lows = sorted(reached_us if at is None else at for at, reached_us in moments)
    highs = sorted(math.inf if at is None else at for at, _ in moments)
    last = len(moments) - 1
    low, median, high = lows[math.floor(LOW * last)], highs[last // 2], highs[math.ceil(HIGH * last)]
    if last + 1 < RUNS_MIN and median != math.inf:
        return Quantiles(None, round(median), None)
    return Quantiles(
        max(0, low),
        None if median == math.inf else round(median),
        None if high == math.inf else round(high) + RESOLUTION_US,
    )


def _known(state: FederationState) -> DurationBases:
    counts = dict.fromkeys(DurationBases.__struct_fields__, 0)
    for job in state.all:
        for task in job.running:
            counts[state.lifetimes[task.lifetime].basis] += 1
        for group in job.waiting:
            counts[state.lifetimes[group.lifetime].basis] += group.count
    return DurationBases(**counts)


def _preempts(runs: Sequence[_Run], state: FederationState) -> tuple[PreemptedJob, ...]:
    """Jobs that lose tasks, the largest loss first."""
    users = {job.number: job.user for job in state.jobs}
    losers = sorted({job for run in runs for job in run.preempted})
    losses = [
        PreemptedJob(
            job=job,
            user=users[job],
            tasks=sum(run.preempted.get(job, 0) for run in runs) / len(runs),
            runs=sum(job in run.preempted for run in runs),
        )
        for job in losers
    ]
    return tuple(sorted(losses, key=lambda one: -one.tasks))


ESTIMATE_OFF: Final = 2.0
"""Without past estimates, a task takes between a half and twice its estimate."""
NOT_STARTED: Final = -1
SAMPLE_MAX: Final = 20
"""Tasks of a job that enter its likelihood."""
DEVIATION_MIN: Final = 0.1
"""The least deviation of logarithms of durations."""
IMPOSSIBLE: Final = 1e-12
UNKNOWN_US: Final = (SECOND, 3600 * SECOND)
"""Bounds of durations of a kind without past."""
BANDWIDTH: Final = 1.06
"""Of the kernel, in standard deviations, for one job; it shrinks with the fifth root of their number."""


class TaskKind:
    """Distribution of durations of a kind of tasks.

    Attributes:
        spread: standard deviation of the logarithm of the next job's durations around an earlier job's. With one
            earlier job, it comes from that job's tasks.
    """

    def __init__(self, lifetime: Lifetime) -> None:
        self.lifetime = lifetime
        estimate_us, past = lifetime.estimate_us, lifetime.past
        if not past and estimate_us:  # estimates are wrong by job
            past = tuple((max(1, estimate_us * ratio // 1000),) for ratio in lifetime.ratios)
        self.past = past
        logs = [math.log(max(1, statistics.fmean(took))) for took in past]
        if len(past) == 1:
            logs = [math.log(max(1, took)) for took in past[0]]
        self._shapes = [_shape(took) for took in past]
        self.spread = BANDWIDTH * statistics.stdev(logs) * len(past) ** -0.2 if len(logs) > 1 else 0.0

    def job(self, stream: Random, elapsed_us: Sequence[Time] = (), took_us: Sequence[Time] = ()) -> JobLifetimes:
        """A job of this kind, given elapsed times of running tasks and durations of ended ones."""
        past, factor = self.past, math.exp(stream.gauss(0.0, self.spread))
        if not past and self.lifetime.estimate_us:
            off = math.log(ESTIMATE_OFF)
            past, factor = ((self.lifetime.estimate_us,),), math.exp(stream.uniform(-off, off))
        if len(past) < 2 or not (elapsed_us or took_us):
            return JobLifetimes(past, stream.choice(past) if past else (), factor, stream)
        running, ended = _some(elapsed_us, stream), _some(took_us, stream)
        shift = math.log(factor)
        likely = [_likelihood(mean + shift, deviation, running, ended) for mean, deviation in self._shapes]
        most = max(likely)
        return JobLifetimes(past, stream.choices(past, [math.exp(one - most) for one in likely])[0], factor, stream)


def _shape(took_us: Sequence[Time]) -> tuple[float, float]:
    logs = [math.log(max(1, took)) for took in took_us]
    return statistics.fmean(logs), max(DEVIATION_MIN, statistics.pstdev(logs))


def _some(times_us: Sequence[Time], stream: Random) -> list[float]:
    sample = times_us if len(times_us) <= SAMPLE_MAX else stream.sample(times_us, SAMPLE_MAX)
    return [math.log(max(1, time_us)) for time_us in sample]


def _likelihood(mean: float, deviation: float, running: Sequence[float], ended: Sequence[float]) -> float:
    """Log-likelihood of elapsed times and durations under a log-normal distribution.

    Only this weight assumes a distribution; draws come from past durations.
    """
    still = (math.erfc((one - mean) / deviation / math.sqrt(2)) / 2 for one in running)
    off = ((one - mean) / deviation for one in ended)
    return sum(math.log(max(one, IMPOSSIBLE)) for one in still) - sum(
        one * one / 2 + math.log(deviation) for one in off
    )


class JobLifetimes:
    """The durations of one job's tasks in one run.

    Args:
        jobs: durations of earlier jobs' tasks, each in order; empty: there are none.
        past: durations of the earlier job that was drawn.
        factor: Ratio of this job's durations to that job's.
    """

    def __init__(self, jobs: Sequence[Sequence[Time]], past: Sequence[Time], factor: float, stream: Random) -> None:
        self._jobs = jobs
        self._past = past
        self._factor = factor
        self._stream = stream

    def total_us(self, elapsed_us: Time = NOT_STARTED) -> Time:
        """The duration of a task, longer than its elapsed time."""
        if not self._past:
            low, high = UNKNOWN_US
            return max(0, elapsed_us) + round(math.exp(self._stream.uniform(math.log(low), math.log(high))))
        found = self._longer(self._past, elapsed_us)
        if found is None:
            longer = [past for past in self._jobs if past[-1] * self._factor > elapsed_us]
            found = self._longer(self._stream.choice(longer), elapsed_us) if longer else None
        return found if found is not None else elapsed_us + 1 + round(elapsed_us * self._stream.random())

    def _longer(self, past: Sequence[Time], elapsed_us: Time) -> Time | None:
        at = bisect_right(past, elapsed_us / self._factor)
        if at == len(past):
            return None
        return max(elapsed_us + 1, round(past[self._stream.randrange(at, len(past))] * self._factor))
