"""A live federation forked into the lab: the same components, put into the same state, play on from there.

What runs is placed first, each task on its own machine where the constraint sets have room for a bit per machine, else
on one of its kind, and lasts for what it still has to run. When all that has settled arrives what waits, in the order
of its submission, and at last the job in question. That is repeated over durations drawn anew, with seeds that are
always the same, and read off: when its tasks start and end, and whom they preempt. Nobody else arrives.

Components tell from a job's number who is in charge of it. Empty jobs between the others see to it that each gets a
number for which that is who it is live. How long ago somebody's last heartbeat was is not known, and drawn, too.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from volery.core.component import Architecture
from volery.core.forecast import Interval, Known, Moments, Outlook, Preempted, Standing, StandingJob
from volery.core.model import CONSTRAINT_BITS_MAX, NEVER, SECOND, Address, Amounts, Cluster, JobId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import Options, Progress, simulate
from volery.sim.options import Enough
from volery.sim.orders import Drained, Reweighed
from volery.whatif.lifetimes import JobLifetimes, Kind

RUNS_MAX: Final = 40
RUNS_MIN: Final = 5
"""Fewer say nothing of how far apart they could be."""
SETTLED_US: Final = SECOND
"""Within this time all that runs is where it runs, as a rule; designs that take longer to decide get more."""
SETTLED_MAX_US: Final = 4096 * SECOND
PHASE_US: Final = 10 * SECOND
"""Periods of heartbeats and cycles are shorter."""
FILLERS_MAX: Final = 64
RESOLUTION_US: Final = 100_000
"""What commits, frames and the start of a process take is not played: an interval ends so much later."""
LOW, HIGH = 0.1, 0.9


class _Part(NamedTuple):
    """What of a job arrives together: (duration, constraints, request) per task."""

    arrival_us: Time
    job: StandingJob | None
    tasks: list[tuple[Time, int, Amounts]]


class _Fork(NamedTuple):
    """What is played, always the same but for the seed."""

    architecture: Architecture
    config: Any
    cluster: Cluster
    bits: Sequence[int]
    standing: Standing
    kinds: Sequence[Kind]


class _Run(NamedTuple):
    """What one run says of the job in question; a moment is None where the run did not come so far.

    What was running has been running again by `settled_us`.
    """

    moments: tuple[Time | None, ...]
    reached_us: Time
    settled_us: Time
    preempted: dict[JobId, int]
    whole: bool


def foretell(
    architecture: Architecture, config: Any, cluster: Cluster, standing: Standing, budget_s: float,
    runs_max: int = RUNS_MAX,
) -> Outlook:  # fmt: skip
    """When the tasks of the job in question start and end; of one under way, those that have not yet.

    Args:
        architecture, config, cluster: of the federation.
        standing: how it stands.
        budget_s: processor time after which no further run begins, and one that is under way ends early.
        runs_max: how many there are when time suffices.

    Raises:
        InputError: the design cannot be built so.
        BrokenRule, Stalled: it fails in the lab.
    """
    fork = _Fork(architecture, config, *_pinned(cluster, standing), standing, [*map(Kind, standing.lifetimes)])
    began, settled_us = time.process_time(), SETTLED_US
    found: list[_Run] = []
    while len(found) < runs_max and (not found or time.process_time() - began < budget_s):
        run = _play(fork, len(found), settled_us, began + budget_s)
        if run.whole and run.settled_us > settled_us // 2 and settled_us < SETTLED_MAX_US:
            settled_us *= 4
        else:
            found.append(run)
    whole = [run for run in found if run.whole]
    return Outlook(
        runs=len(whole), moments=_moments(whole or found), known=_known(standing),
        preempts=_preempts(whole or found, standing), cpu_s=time.process_time() - began,
    )  # fmt: skip


def _pinned(cluster: Cluster, standing: Standing) -> tuple[Cluster, Sequence[int]]:
    """The cluster with further constraint bits, and per machine those that keep what runs there where it is."""
    count = len(cluster.constraints)
    none = (0,) * count
    if not any(job.running for job in standing.jobs):
        return cluster, none
    used = 0
    for mask in cluster.constraints:
        used |= mask
    room = CONSTRAINT_BITS_MAX - used.bit_length()
    kinds: list[Any] = list(range(count))
    if count > room:
        drained = set(standing.drained)
        capacities = cluster.capacities or none
        slots = cluster.slots
        kinds = [(cluster.constraints[m], slots[m], capacities[m], m in drained) for m in range(count)]
    numbers = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    if not 1 < len(numbers) <= room:
        return cluster, cluster.constraints
    bits = tuple([1 << used.bit_length() + numbers[kind] for kind in kinds])
    masks = tuple([mask | bit for mask, bit in zip(cluster.constraints, bits, strict=True)])
    return msgspec.structs.replace(cluster, constraints=masks), bits


def _play(fork: _Fork, seed: int, settled_us: Time, deadline_s: float) -> _Run:
    standing, stream = fork.standing, Random(f"lifetimes {seed}")
    settled_us += stream.randrange(PHASE_US)
    deployment = fork.architecture.build(fork.cluster, fork.config, Streams(seed))
    parts: list[_Part] = []
    for part in _parts(standing, fork.kinds, fork.bits, settled_us, stream):
        parts += _fillers(part, len(parts), deployment.entry_for)
        parts.append(part)
    reached: list[Time] = []

    def progress(so_far: Progress) -> None:
        if time.process_time() > deadline_s and so_far.jobs_done < len(parts):
            reached.append(so_far.now_us)
            raise Enough

    drains = tuple(Drained(machine, settled_us // 2) for machine in standing.drained)
    reweighs = tuple(Reweighed(name, weight) for name, weight in standing.weights)
    options = Options(graphs=fork.architecture.graphs, drains=drains, reweighs=reweighs)
    records = simulate(
        deployment, _trace(parts, fork.cluster), fork.cluster, seed=seed, options=options, progress=progress
    )
    since_us = settled_us if standing.planned is None else parts[-1].arrival_us
    return _read(records, parts, standing.questioned, since_us, reached[0] if reached else None)


def _parts(
    standing: Standing, kinds: Sequence[Kind], bits: Sequence[int], settled_us: Time, stream: Random
) -> Iterable[_Part]:
    """What arrives: first what runs, what the fewest machines can hold before the rest; then what waits."""
    drawn: list[dict[int, JobLifetimes]] = []
    for job in standing.all:
        met: dict[int, list[Time]] = {some.lifetime: [] for some in job.waiting}
        for task in job.running:
            met.setdefault(task.lifetime, []).append(task.elapsed_us)
        drawn.append({
            kind: kinds[kind].job(stream, elapsed_us, job.took_us)
            for kind, elapsed_us in sorted(met.items())
        })  # fmt: skip
    held: dict[tuple[int, int], _Part] = {}
    for place, job in enumerate(standing.jobs):
        for task in job.running:
            left_us = max(1, drawn[place][task.lifetime].total_us(task.elapsed_us) - task.elapsed_us)
            pin = bits[task.machine]
            part = held.setdefault((-pin.bit_count(), place), _Part(0, job, []))
            part.tasks.append((settled_us + left_us, pin, task.request))
    yield from (held[key] for key in sorted(held))
    for place, job in enumerate(standing.all):
        tasks = [
            (drawn[place][some.lifetime].total_us(), some.mask, some.request)
            for some in job.waiting
            for _ in range(some.count)
        ]
        if tasks:
            yield _Part(settled_us + place, job, tasks)


def _fillers(part: _Part, number: int, entry_for: Callable[[JobId, str], Address]) -> list[_Part]:
    """As many empty jobs as give the next one its live master; none where no number does."""
    assert part.job is not None
    user = part.job.user
    wanted = entry_for(part.job.number, user)
    fitting = (count for count in range(FILLERS_MAX) if entry_for(number + count, user) == wanted)
    return [_Part(part.arrival_us, None, [])] * next(fitting, 0)


def _trace(parts: Sequence[_Part], cluster: Cluster) -> Trace:
    tasks = [task for part in parts for task in part.tasks]
    jobs = [part.job for part in parts]
    first = array("q", [0])
    for part in parts:
        first.append(first[-1] + len(part.tasks))
    asked: dict[Amounts, int] = {}
    if cluster.resources:
        asked = {request: place for place, request in enumerate(dict.fromkeys(request for _, _, request in tasks))}
    return Trace(
        "fork", array("q", [part.arrival_us for part in parts]), first,
        duration_us=array("q", [task[0] for task in tasks]),
        estimate_us=array("q", [job.estimate_us if job else 0 for job in jobs]),
        constraints=array("q", [task[1] for task in tasks]), user=tuple([job.user if job else "" for job in jobs]),
        resources=cluster.resources, requests=tuple(asked),
        request=array("I", [asked[task[2]] for task in tasks] if asked else []),
    )  # fmt: skip


def _read(
    records: Records, parts: Sequence[_Part], asked: StandingJob, since_us: Time, reached_us: Time | None
) -> _Run:
    trace = records.trace
    places = [place for place, part in enumerate(parts) if part.job is asked]
    own = [task for place in places for task in range(trace.first[place], trace.first[place + 1])]
    # What was running runs again before the question: it starts no more.
    places = [place for place in places if parts[place].arrival_us > 0]
    waited = [task for place in places for task in range(trace.first[place], trace.first[place + 1])]
    started, ended = _reached(records.start_us, waited, since_us), _reached(records.finish_us, own, since_us)
    moments = (
        min(started, default=None), min(ended, default=None),
        max(started, default=None) if len(started) == len(waited) else None,
        max(ended, default=None) if len(ended) == len(own) else None,
    )  # fmt: skip
    lost: dict[JobId, int] = {}
    jobs = trace.job_of_task() if records.preemptions else ()
    gaining = set(waited) if records.preemptions else ()
    for one in records.preemptions:
        if one.beneficiary in gaining:
            loser = parts[jobs[one.task]].job
            assert loser is not None
            lost[loser.number] = lost.get(loser.number, 0) + 1
    whole = reached_us is None or len(ended) == len(own)
    held = trace.first[sum(part.arrival_us == 0 for part in parts)]
    settled_us = max(records.start_us[:held], default=0)
    return _Run(moments, 0 if reached_us is None else max(0, reached_us - since_us), settled_us, lost, whole)


def _reached(column: Sequence[Time], tasks: Sequence[int], since_us: Time) -> list[Time]:
    return [column[task] - since_us for task in tasks if column[task] != NEVER]


def _moments(runs: Sequence[_Run]) -> Moments:
    columns = zip(*(run.moments for run in runs), strict=True)
    reached = [run.reached_us for run in runs]
    return Moments(*(_interval(list(zip(column, reached, strict=True))) for column in columns))


def _interval(found: Sequence[tuple[Time | None, Time]]) -> Interval:
    """Of a moment; where runs ended early, all that is known is that it had not come until then.

    From few runs there is a median alone.
    """
    if not any(reached_us for _, reached_us in found) and all(at is None for at, _ in found):
        return Interval(None, None, None)  # nothing of the kind is to come
    lows = sorted(reached_us if at is None else at for at, reached_us in found)
    highs = sorted(math.inf if at is None else at for at, _ in found)
    last = len(found) - 1
    low, median, high = lows[math.floor(LOW * last)], highs[last // 2], highs[math.ceil(HIGH * last)]
    if last + 1 < RUNS_MIN and median != math.inf:
        return Interval(None, round(median), None)
    return Interval(
        max(0, low), None if median == math.inf else round(median),
        None if high == math.inf else round(high) + RESOLUTION_US,
    )  # fmt: skip


def _known(standing: Standing) -> Known:
    counts = dict.fromkeys(Known.__struct_fields__, 0)
    for job in standing.all:
        for task in job.running:
            counts[standing.lifetimes[task.lifetime].basis] += 1
        for some in job.waiting:
            counts[standing.lifetimes[some.lifetime].basis] += some.count
    return Known(**counts)


def _preempts(runs: Sequence[_Run], standing: Standing) -> tuple[Preempted, ...]:
    """Who loses tasks, the most first."""
    users = {job.number: job.user for job in standing.jobs}
    losers = sorted({job for run in runs for job in run.preempted})
    found = [
        Preempted(
            job=job, user=users[job], tasks=sum(run.preempted.get(job, 0) for run in runs) / len(runs),
            runs=sum(job in run.preempted for run in runs),
        )
        for job in losers
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: -one.tasks))
