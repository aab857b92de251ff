"""The scenarios: five seeded workloads, each with the lines of slurm.conf that it is about.

Sizes, limits, priorities and loads were fixed before the lab's result of any of them was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

NODES = 8
CPUS = 4
INTERVAL_S = 1
"""Period of the main loop of Slurm and of its backfill loop."""

SHAPES = {
    (1, 1): 20, (1, 2): 20, (1, 4): 10, (2, 2): 15, (2, 4): 8, (3, 1): 8, (4, 2): 6, (4, 4): 4, (8, 1): 4, (8, 4): 1,
}  # fmt: skip
"""Nodes and tasks per node of jobs, with weights."""
SMALL_SHAPES = {(1, 1): 2, (1, 2): 3, (1, 4): 2, (2, 2): 2}
LIMITS_MIN = (1, 2, 3, 5, 10)
"""Slurm counts limits in minutes: a job states from 7 to 600 times what it runs."""
RUN_S = (1.0, 9.0)

BACKFILL = (
    "SchedulerType=sched/backfill",
    f"SchedulerParameters=sched_interval={INTERVAL_S},bf_interval={INTERVAL_S},bf_resolution=1,bf_window=1440",
)
BY_SIZE = ("PriorityType=priority/multifactor", "PriorityWeightJobSize=1000")
"""Large jobs first. Without slurmdbd Slurm 22.05 ignores ages."""
BY_SHARE = (
    "PriorityType=priority/multifactor", "PriorityCalcPeriod=1", "PriorityDecayHalfLife=2",
    "PriorityWeightFairshare=10000", "PriorityWeightAge=500", "PriorityMaxAge=5",
)  # fmt: skip
"""Slurm computes ages and usage anew each minute; the half-life and the largest age are minutes, too."""
ONE_PARTITION = f"PartitionName=main Nodes=n[0-{NODES - 1}] Default=YES MaxTime=60 State=UP"


class Submission(msgspec.Struct, frozen=True, array_like=True):
    """One call of sbatch.

    Args:
        at_s: Time of submission after the first, in seconds.
        runs_s: Seconds that the job sleeps, or each task of an array.
        limit_min: Time limit in minutes.
        nodes: Count of nodes.
        tasks: Count of tasks on each node, each of one CPU.
        nice: Points that are taken off the priority; below 0 (only root may), they are added.
        partition: Name of the partition.
        account: Account, empty where nothing is accounted.
        throttle: Count of tasks of an array that may run at once; 0: all, or no array.
        dependency: Kind of the dependency, empty where there is none.
        parent: Place of the submission that this one waits for, among all.
    """

    at_s: float
    runs_s: tuple[float, ...]
    limit_min: int
    nodes: int
    tasks: int
    nice: int = 0
    partition: str = "main"
    account: str = ""
    throttle: int = 0
    dependency: str = ""
    parent: int = -1

    @property
    def work_s(self) -> float:
        """CPU seconds of all its tasks."""
        return sum(self.runs_s) * self.nodes * self.tasks


class Scenario(msgspec.Struct, frozen=True):
    """A workload and the part of slurm.conf that it is about.

    Args:
        title: Noun phrase for tables.
        conf: Lines of slurm.conf beside those of every scenario.
        load: Work of all jobs over what the nodes can do while they arrive.
        draw: Draws the submissions, with a time of submission in [0, 1).
        shares: Accounts with their shares; nothing: no accounting.
    """

    title: str
    conf: tuple[str, ...]
    load: float
    draw: Callable[[Random], list[Submission]]
    shares: dict[str, int] = {}

    def workload(self, seed: int) -> list[Submission]:
        """All submissions in order of time, the load of which is the scenario's."""
        drawn = self.draw(Random(seed))
        span_s = sum(job.work_s for job in drawn) / (NODES * CPUS * self.load)
        return [msgspec.structs.replace(job, at_s=round(job.at_s * span_s, 2)) for job in drawn]


def _jobs(
    stream: Random, count: int, eager_most: int = 0, shapes: dict[tuple[int, int], int] = SHAPES
) -> list[Submission]:
    """Jobs alike but for their draws, in order of time; nice is below 0, since Slurm knows no priority below 1."""
    times = sorted(stream.random() for _ in range(count))
    drawn = stream.choices(list(shapes), list(shapes.values()), k=count)
    return [
        Submission(
            at - times[0],
            (round(stream.uniform(*RUN_S), 1),),
            stream.choice(LIMITS_MIN),
            *shape,
            nice=-stream.randint(0, eager_most),
        )
        for at, shape in zip(times, drawn, strict=True)
    ]


def _fifo(stream: Random) -> list[Submission]:
    return _jobs(stream, 220)


def _backfill(stream: Random) -> list[Submission]:
    return _jobs(stream, 220, 800)


def _fairshare(stream: Random) -> list[Submission]:
    return [msgspec.structs.replace(job, account=stream.choice("abcd")) for job in _jobs(stream, 360)]


def _preemption(stream: Random) -> list[Submission]:
    """Urgent jobs are narrow; what they end is requeued in one partition and cancelled in the other."""
    jobs = []
    for job in _jobs(stream, 220, 800):
        partition = stream.choices(("urgent", "main", "spare"), (3, 5, 2))[0]
        nodes = min(job.nodes, 2) if partition == "urgent" else job.nodes
        jobs.append(msgspec.structs.replace(job, partition=partition, nodes=nodes))
    return jobs


def _arrays(stream: Random) -> list[Submission]:
    """Two of five submissions are arrays, some of them throttled; one of four waits for one of the eight before."""
    jobs: list[Submission] = []
    for place, job in enumerate(_jobs(stream, 120, 800, SMALL_SHAPES)):
        if stream.random() < 0.4:
            runs_s = tuple([round(stream.uniform(*RUN_S), 1) for _ in range(stream.randint(3, 10))])
            job = msgspec.structs.replace(job, runs_s=runs_s, throttle=stream.choice((0, 0, 0, 3)))

        if place and stream.random() < 0.25:
            parent = stream.randrange(max(0, place - 8), place)
            kind = stream.choice(("afterok", "afterany"))
            if len(job.runs_s) > 1 and len(jobs[parent].runs_s) >= len(job.runs_s):
                kind = "aftercorr"
            job = msgspec.structs.replace(job, dependency=kind, parent=parent)
        jobs.append(job)
    return jobs


SCENARIOS = {
    "fifo": Scenario(
        "first come, first served",
        ("SchedulerType=sched/builtin", f"SchedulerParameters=sched_interval={INTERVAL_S}",
         "PriorityType=priority/basic", ONE_PARTITION),
        1.5, _fifo,
    ),
    "backfill": Scenario(
        "backfilling by size and nice",
        (*BACKFILL, *BY_SIZE, ONE_PARTITION), 1.8, _backfill,
    ),
    "preemption": Scenario(
        "partitions with preemption",
        (*BACKFILL, *BY_SIZE, "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE",
         f"PartitionName=urgent Nodes=n[0-{NODES - 1}] PriorityTier=10 PreemptMode=OFF MaxTime=60 State=UP",
         f"PartitionName=main Nodes=n[0-{NODES - 1}] PriorityTier=1 Default=YES MaxTime=60 State=UP",
         f"PartitionName=spare Nodes=n[0-{NODES - 1}] PriorityTier=1 PreemptMode=CANCEL MaxTime=60 State=UP"),
        2.0, _preemption,
    ),
    "arrays": Scenario(
        "arrays and dependencies",
        (*BACKFILL, *BY_SIZE, ONE_PARTITION), 3.0, _arrays,
    ),
    "fairshare": Scenario(
        "fairshare between accounts, and age",
        (*BACKFILL, *BY_SHARE, ONE_PARTITION), 1.8, _fairshare, {"a": 1, "b": 2, "c": 4, "d": 8},
    ),
}  # fmt: skip
