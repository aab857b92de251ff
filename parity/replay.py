"""The lab's replay of a recorded run: the same jobs, with the run times and submissions that were recorded."""

from __future__ import annotations

import bisect
import statistics
import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from parity.records import Attempt, RanJob, Record
from parity.scenarios import CPUS, INTERVAL_S, NODES, SCENARIOS, Submission
from volery.architectures import configure, lookup
from volery.architectures.slurm import build_with
from volery.architectures.slurm.controller import BACKFILL, END, FULL, Controller
from volery.architectures.slurm.jobs import QueuedJob, StartedJob, Throttle
from volery.architectures.slurm.parameters import SlurmConfig
from volery.core.errors import InputError
from volery.core.model import NEVER, Cluster, Job, Task, TaskId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import Network, simulate
from volery.study.slurmconf import read_conf

MS = 1_000
MINUTE_US = 60_000_000
MINUTE_MS = 60_000
LATER_PASSES = 1800
ROUNDS_MAX = 300
"""Each round fixes at least one release that earlier ones decide."""


class LabStart(NamedTuple):
    """The start of a job in the lab, in milliseconds after the first submission, and its nodes."""

    start_ms: int
    nodes: tuple[int, ...]


class Design(NamedTuple):
    """A design of the lab with its parameters.

    Args:
        name: Name in the registry.
        parameters: Parameters of the design.
        is_pool: True if it sees one machine with all CPUs and each job as one task; else nodes, and gangs.
    """

    name: str
    parameters: Mapping[str, Any]
    is_pool: bool = False


PLAIN_FIFO = Design("pipeline", {"T3": "strict"}, is_pool=True)
"""First come, first served, on a pool of CPUs: no order but that of submission, and nobody passes."""


def lab_design(record: Record) -> Design:
    """The design `slurm` with the slurm.conf that the real one had."""
    shares = SCENARIOS[record.scenario].shares
    accounts = "+".join(["root:1", *[f"{name}:{share}" for name, share in shares.items()]])
    given = {"accounts": accounts} if shares else {}
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        conf = Path(folder) / "slurm.conf"
        conf.write_text("\n".join([*record.conf, f"NodeName=n[0-{NODES - 1}] CPUs={CPUS}", ""]))
        return Design("slurm", read_conf(conf, given).parameters | given)


class RecordedTimes(NamedTuple):
    """Times of a recorded run that depend on the machine and not on the scheduler, on the clock of the lab.

    Args:
        passes_us: Begins of passes by the key of the loop's timer.
        answers_us: For each job in the order of the lab the times from its end to the answers of its nodes, and the
            same for each attempt that was ended for another job.
        killed_us: Median of the latter, for an attempt that only the lab has ended.
        cuts: Counts of jobs after which backfill passes ended, by the begins of those that did not come to the end.
        computations_us: Times at which priorities were computed.
        submitted_us: For each of these jobs the time of its submission.
        numbers: For each of these jobs its place in the record.
        submissions: For each of these jobs the place of its submission, and the submission.
    """

    passes_us: Mapping[str, Sequence[Time]]
    answers_us: Sequence[tuple[Sequence[Time], Sequence[Sequence[Time]]]]
    killed_us: Time
    cuts: Mapping[Time, int]
    computations_us: Sequence[Time]
    submitted_us: Sequence[Time]
    numbers: Sequence[int]
    submissions: Sequence[tuple[int, Submission]]


class RecordedController(Controller):
    """The lab's controller with the passes of a recorded run; submissions and ends start none of their own."""

    def __init__(self, times: RecordedTimes, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._times = times
        self._arrays: dict[int, QueuedJob] = {}
        self._throttles: dict[int, Throttle] = {}
        self._kills: Counter[int] = Counter()

    def _enqueue(self, job: Job, tasks: Sequence[Task], now: Time) -> list[QueuedJob]:
        """Queue a job, or a task of an array: all that wait of an array are elements of one job, as in Slurm."""
        place, submission = self._times.submissions[job.id]
        queued = self._arrays.get(place)
        if queued is not None and queued.elements:
            queued.elements.append(tuple(tasks))
            return []

        # The queue is ordered by the submission, which came before the job might start.
        self._submitted_us[job.id] = self._times.submitted_us[job.id]
        self._job_count = self._times.numbers[job.id]
        (queued,) = super()._enqueue(job, tasks, now)
        # Slurm splits tasks off that wait each for another.
        queued.is_array = len(submission.runs_s) > 1 and submission.dependency != "aftercorr"
        if queued.is_array:
            self._arrays[place] = queued
        if submission.throttle:
            queued.throttle = self._throttles.setdefault(place, Throttle(submission.throttle))
        return [queued]

    def _computation_us(self, now: Time) -> Time:
        place = bisect.bisect_right(self._times.computations_us, now)
        return self._times.computations_us[place]

    def _arm_loops(self, now: Time) -> None:
        for key, passes_us in self._times.passes_us.items():
            place = bisect.bisect_right(passes_us, now)
            if place < len(passes_us):
                self._arm(key, passes_us[place])

    def _attempt_count(self, now: Time) -> int | None:
        return self._times.cuts.get(now)

    def _plan_pass(self, now: Time) -> None:
        """The passes are those of the record."""

    def _pass_at_end(self, now: Time) -> None:
        """The passes are those of the record."""

    def _answers(self, running: StartedJob, now: Time) -> list[tuple[Time, int]]:
        whole_us, killed_us = self._times.answers_us[running.id]
        answers_us = whole_us
        if running.preempted_tasks:
            count = self._kills[running.id]
            self._kills[running.id] += 1
            answers_us = killed_us[count] if count < len(killed_us) else (self._times.killed_us,)
        # The first node has the script of the job, and answers last. In the lab a job may have other nodes than it had.
        first, *others = sorted([part.node for part in running.parts])
        return [
            (now + answers_us[max(0, len(answers_us) - 1 - place)], 1 << node)
            for place, node in enumerate([first, *reversed(others)])
        ]


def offset_ms(record: Record) -> int:
    """The time of the first submission in the lab: the same second of the minute, which decides for Slurm's plans."""
    return record.hour_ms % MINUTE_MS + MINUTE_MS


def recorded_times(record: Record, order: Sequence[int]) -> RecordedTimes:
    """The recorded times for the jobs of the lab.

    Args:
        record: Recorded run.
        order: Places of jobs in the record in the order of the lab.
    """
    offset = offset_ms(record)

    def passes_us(times_ms: Sequence[float]) -> list[Time]:
        # A run that takes longer in the lab goes on at the interval.
        later_ms = [times_ms[-1] + 1000 * INTERVAL_S * count for count in range(1, LATER_PASSES)] if times_ms else []
        return [round((at_ms + offset) * MS) for at_ms in (*times_ms, *later_ms)]

    passes = {FULL: passes_us(record.main_ms), BACKFILL: passes_us(record.backfill_ms)}
    passes[END] = [round((at_ms + offset) * MS) for at_ms in record.short_ms]
    jobs = [record.jobs[place] for place in order]
    submissions = [(job.submission, record.submissions[job.submission]) for job in jobs]
    passes_ms = _passes_ms(record)
    answers_us = [
        (
            _answers_us(job.attempts[-1], 0.0),
            # A job that is ended for another ends in the lab when the pass begins.
            [_answers_us(ended, ended.end_ms - _begin_ms(passes_ms, ended.end_ms)) for ended in job.killed_attempts],
        )
        for job in jobs
    ]
    last_us = [times_us[-1] for _, killed in answers_us for times_us in killed]
    submitted_us = [round((job.submit_ms + offset) * MS) for job in jobs]
    # Each minute from its start on; a computation waits for the end of a pass.
    computations_ms = list(record.computations_ms) or [record.begun_ms]
    computations_ms += [computations_ms[-1] + MINUTE_MS * count for count in range(1, LATER_PASSES)]
    computations_us = [round((at_ms + offset) * MS) for at_ms in computations_ms]
    killed_us = statistics.median_high([0, *last_us])
    cuts = {round((at_ms + offset) * MS): count for at_ms, count in record.cuts}
    return RecordedTimes(passes, answers_us, killed_us, cuts, computations_us, submitted_us, order, submissions)


def _answers_us(attempt: Attempt, late_ms: float) -> list[Time]:
    return [round((at_ms + late_ms) * MS) for at_ms in attempt.answers_ms or (0.0,)]


def replay(record: Record, design: Design) -> list[LabStart]:
    """The starts of the jobs of a record in the lab, in the record's order.

    A job that waits for others, or for room in its throttled array, is submitted when these have ended *in the lab*:
    runs are repeated with the releases that the last one gave, until none moves.

    Raises:
        InputError: if the releases do not settle.
    """
    # The recorded ends are a good first guess; what the rounds settle on does not depend on it.
    offset_us = offset_ms(record) * MS
    ends_us = [round(job.attempts[-1].end_ms * MS) + offset_us for job in record.jobs]
    releases_us = _releases_us(record, ends_us, design)
    for _ in range(ROUNDS_MAX):
        starts_us, ends_us, nodes = _run(record, design, releases_us)
        settled_us = _releases_us(record, ends_us, design)
        if settled_us == releases_us:
            starts_ms = [round((start_us - offset_us) / MS) for start_us in starts_us]
            return list(map(LabStart, starts_ms, nodes))
        releases_us = settled_us
    raise InputError(f"{record.scenario}-{record.seed}", f"releases do not settle in {ROUNDS_MAX} rounds")


def run_times_us(record: Record) -> list[Time]:
    """The run time of each job: as recorded, or what was meant and the usual overhead, where it was cancelled.

    It counts from the begin of the pass that started the job, since a pass of the lab takes no time.
    """
    overhead_us = round(statistics.median(overheads_ms(record)) * MS)
    passes_ms = _passes_ms(record)
    return [
        round((job.attempts[-1].end_ms - _begin_ms(passes_ms, job.start_ms)) * MS)
        if job.attempts[-1].is_whole
        else round(meant_ms(record, job) * MS) + overhead_us
        for job in record.jobs
    ]


def _passes_ms(record: Record) -> list[float]:
    return sorted([*record.main_ms, *record.short_ms, *record.backfill_ms])


def _begin_ms(passes_ms: Sequence[float], start_ms: float) -> float:
    """The begin of the pass in which a job started."""
    place = bisect.bisect_right(passes_ms, start_ms)
    return passes_ms[place - 1] if place else start_ms


def meant_ms(record: Record, job: RanJob) -> float:
    """The milliseconds for which a job was told to sleep."""
    runs_s = record.submissions[job.submission].runs_s
    return 1000 * runs_s[job.index]


def overheads_ms(record: Record) -> list[float]:
    """Milliseconds that each job that ran to its end took longer than it was told to sleep."""
    return [
        job.attempts[-1].end_ms - job.start_ms - meant_ms(record, job)
        for job in record.jobs
        if job.attempts[-1].is_whole
    ]


def _releases_us(record: Record, ends_us: Sequence[Time], design: Design) -> list[Time]:
    """The time at which each job may start, when all end at given times; a pool knows no throttled arrays."""
    members: dict[int, list[int]] = defaultdict(list)
    for place, job in enumerate(record.jobs):
        members[job.submission].append(place)

    releases = []
    offset = offset_ms(record)
    for job in record.jobs:
        submission = record.submissions[job.submission]
        release_us = round((job.submit_ms + offset) * MS)
        if submission.dependency:
            parents = members[submission.parent]
            awaited = parents[job.index : job.index + 1] if submission.dependency == "aftercorr" else parents
            release_us = max(release_us, *[ends_us[parent] for parent in awaited])
        if design.is_pool and 0 < submission.throttle <= job.index:
            earlier_ends_us = sorted(ends_us[place] for place in members[job.submission][: job.index])
            release_us = max(release_us, earlier_ends_us[job.index - submission.throttle])
        releases.append(release_us)
    return releases


def _run(
    record: Record, design: Design, releases_us: Sequence[Time]
) -> tuple[list[Time], list[Time], list[tuple[int, ...]]]:
    """Starts, ends and nodes of all jobs in one run of the lab."""
    order = sorted(range(len(releases_us)), key=lambda place: (releases_us[place], place))
    trace = (_pool_trace if design.is_pool else gang_trace)(record, order, releases_us)
    cluster = (
        Cluster((0,), (1,), "pool", resources=("cpus",), capacities=((NODES * CPUS,),))
        if design.is_pool
        else Cluster((0,) * NODES, (CPUS,) * NODES, "nodes")
    )

    entry = lookup(design.name)
    config = configure(entry, dict(design.parameters))
    if isinstance(config, SlurmConfig):
        deployment = build_with(partial(RecordedController, recorded_times(record, order)), cluster, config)
    else:
        deployment = entry.build(cluster, config, Streams(0))
    records = simulate(deployment, trace, cluster, network=Network(delay_us=0))

    starts_us, ends_us = [NEVER] * len(order), [NEVER] * len(order)
    nodes: list[tuple[int, ...]] = [()] * len(order)
    for number, place in enumerate(order):
        tasks = range(trace.first[number], trace.first[number + 1])
        starts_us[place] = max(records.start_us[task] for task in tasks)
        ends_us[place] = max(records.finish_us[task] for task in tasks)
        nodes[place] = _machines(records, tasks)
    return starts_us, ends_us, nodes


def _machines(records: Records, tasks: Sequence[TaskId]) -> tuple[int, ...]:
    return tuple(sorted({records.worker[task] for task in tasks}))


def gang_trace(record: Record, order: Sequence[int], releases_us: Sequence[Time]) -> Trace:
    """Each job as a gang of one task per CPU on its count of nodes, with its limit, partition, account and nice.

    Args:
        record: Recorded run.
        order: Places of jobs in the record in the order of their releases.
        releases_us: Time of release of each job of the record.
    """
    jobs = [record.submissions[record.jobs[place].submission] for place in order]
    trace = _trace(record, order, releases_us, [job.nodes * job.tasks for job in jobs])
    return msgspec.structs.replace(
        trace,
        user=tuple([job.account for job in jobs]),
        priority=array("q", [-job.nice for job in jobs]),
        limit_us=array("q", [job.limit_min * MINUTE_US for job in jobs]),
        gang_nodes=array("i", [job.nodes for job in jobs]),
        partition=tuple([job.partition for job in jobs]),
    )


def _pool_trace(record: Record, order: Sequence[int], releases_us: Sequence[Time]) -> Trace:
    """Each job as one task that takes its count of CPUs."""
    jobs = [record.submissions[record.jobs[place].submission] for place in order]
    trace = _trace(record, order, releases_us, [1] * len(jobs))
    sizes = sorted({job.nodes * job.tasks for job in jobs})
    return msgspec.structs.replace(
        trace,
        resources=("cpus",),
        requests=tuple([(size,) for size in sizes]),
        request=array("H", [sizes.index(job.nodes * job.tasks) for job in jobs]),
    )


def _trace(record: Record, order: Sequence[int], releases_us: Sequence[Time], sizes: Sequence[int]) -> Trace:
    run_times = run_times_us(record)
    durations_us = [run_times[place] for place in order]
    arrivals_us = [releases_us[place] for place in order]
    first, flat = array("q", [0]), array("q")
    for duration_us, size in zip(durations_us, sizes, strict=True):
        first.append(first[-1] + size)
        flat.extend([duration_us] * size)
    name = f"{record.scenario}-{record.seed}"
    return Trace(name, array("q", arrivals_us), first, flat, array("q", durations_us))
