"""Parameters of the design `slurm`, by their names in slurm.conf.

Times are written as in slurm.conf: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]],
or UNLIMITED.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from volery.core.bounds import Count, Parameters, PositiveCount, param
from volery.core.errors import InputError

PLACE: Final = "slurm:"
MINUTE: Final = 60
UNLIMITED: Final = ("UNLIMITED", "INFINITE", "-1")
TIME: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)


class SlurmConfig(Parameters, frozen=True):
    """Parameters by their names in slurm.conf; those of SchedulerParameters stand beside the others."""

    conf: str = param("", "slurm.conf that is read; parameters beside it go before it")
    PriorityType: Literal["priority/basic", "priority/multifactor"] = param(
        "priority/basic", "order of jobs: first come first served, or by weighted factors"
    )
    PriorityWeightAge: Count = param(0, "weight of the time for which a job has waited")
    PriorityWeightFairshare: Count = param(0, "weight of what a user's share has left; needs accounts")
    PriorityWeightJobSize: Count = param(0, "weight of the nodes and cores of a job")
    PriorityWeightPartition: Count = param(0, "weight of PriorityJobFactor of a job's partition")
    PriorityWeightQOS: Count = param(0, "weight of the priority of a user's QOS; needs qos")
    PriorityMaxAge: str = param("7-0", "time after which the age of a job counts in full")
    PriorityFavorSmall: bool = param(False, "small jobs have the larger size factor")
    PriorityFlags: Literal["", "SMALL_RELATIVE_TO_TIME"] = param("", "the size factor is divided by the limit")
    PriorityDecayHalfLife: str = param("7-0", "time in which what a user has used is halved; 0: never")
    PriorityCalcPeriod: str = param("5", "time between two computations of priorities")
    AccountingStorageEnforce: str = param(
        "limits", "with limits, safe or all, what a job has used counts that ends between two computations; else not"
    )
    started_s: Count = param(0, "second at which the controller starts: it computes priorities whole periods later")
    SchedulerType: Literal["sched/backfill", "sched/builtin"] = param(
        "sched/backfill", "whether jobs start early on nodes that jobs before them do not need yet"
    )
    SelectType: Literal["select/cons_tres", "select/cons_res", "select/linear"] = param(
        "select/cons_tres", "what a job takes: cores (cons_tres, cons_res) or whole nodes (linear)"
    )
    PreemptType: Literal["preempt/none", "preempt/partition_prio", "preempt/qos"] = param(
        "preempt/none", "who preempts: jobs of a higher PriorityTier, or of a QOS that may preempt another"
    )
    PreemptMode: Literal["OFF", "REQUEUE", "CANCEL"] = param("OFF", "what becomes of a preempted job")
    KillWait: Count = param(30, "seconds until a job that has reached its limit is expected to have ended")
    MessageTimeout: Count = param(10, "seconds, with KillWait, after which a job that preempts may end more jobs")
    PartitionName: str = param("", "partitions, as debug/Nodes:0-3/PriorityTier:2+batch/Nodes:ALL; empty: one of all")
    Weight: str = param("", "weights of nodes, of which the lowest is taken first, as 0-3:5+4:2; others have 1")
    accounts: str = param("", "shares of accounts and users, as physics:3(ann:1+bob:2)+cid:1; needs multifactor")
    qos: str = param("", "QOS of users, as high/Priority:9/Preempt:low/Users:ann_bob+low/Users:cid")
    reservations: str = param(
        "", "nodes kept for a time, as r1/Nodes:0-3/StartTime:2:00:00/Duration:60/Users:ann; times since the start"
    )
    cred_expire: Count = param(120, "seconds, and one, for which a requeued job is not eligible (AuthInfo)")
    default_queue_depth: Count = param(100, "jobs that the main loop considers, but for its run over the full queue")
    partition_job_depth: Count = param(0, "jobs of a partition that the main loop considers; 0: all")
    sched_interval: PositiveCount = param(60, "seconds between two runs of the main loop over the full queue")
    sched_min_interval: Count = param(2, "microseconds between two runs of the main loop")
    sched_max_job_start: Count = param(0, "jobs that a run of the main loop starts at most; 0: all")
    batch_sched_delay: Count = param(3, "seconds from one run of the main loop to the next because of submissions")
    defer: bool = param(False, "jobs are not tried at their submission, nor the main loop run at each end")
    Epilog: bool = param(False, "whether an Epilog runs at the end of jobs, after which the main loop runs at once")
    interactive: bool = param(False, "jobs come from salloc or srun, which are tried at once, and not from sbatch")
    completing_ms: Count = param(0, "milliseconds from the end of a job until its nodes answer and start others")
    array_throttle: Count = param(0, "elements of an array that run at once, as by sbatch -a 0-99%N; 0: all")
    bf_interval: PositiveCount = param(30, "seconds between two runs of the backfill loop")
    bf_window: PositiveCount = param(1440, "minutes for which the backfill loop plans")
    bf_resolution: PositiveCount = param(60, "seconds to which the times of the plan are rounded")
    bf_max_job_test: PositiveCount = param(500, "jobs that a run of the backfill loop tests")
    bf_max_job_start: Count = param(0, "jobs that a run of the backfill loop starts; 0: all")
    bf_max_job_user: Count = param(0, "jobs of a user that a run of the backfill loop tests; 0: all")
    bf_max_job_part: Count = param(0, "jobs of a partition that a run of the backfill loop tests; 0: all")
    bf_max_job_user_part: Count = param(0, "jobs of a user in a partition that such a run tests; 0: all")
    bf_max_job_array_resv: Count = param(20, "elements of an array for which the plan reserves nodes")
    bf_job_part_count_reserve: Count = param(0, "jobs of a partition for which the plan reserves nodes; 0: all")
    bf_node_space_size: Count = param(0, "windows of the plan; 0: as many as bf_max_job_test")
    bf_window_linear: Count = param(0, "seconds by which ends are grouped coarser, the farther away; 0: it doubles")
    bf_min_age_reserve: Count = param(0, "seconds that a job waits before it keeps others from its nodes")
    bf_min_prio_reserve: Count = param(0, "priority below which a job keeps no others from its nodes")
    bf_continue: bool = param(True, "no effect: here a run of the backfill loop is never interrupted")
    preempt_youngest_first: bool = param(False, "of the jobs that may be preempted, the last to start is first")


def seconds(text: str, place: str) -> int:
    """The seconds of a time as slurm.conf has it; 0: it is unlimited.

    Raises:
        InputError: at the place, where it is no time.
    """
    if text.upper() in UNLIMITED:
        return 0
    match = TIME.fullmatch(text)
    if match is None:
        raise InputError(place, f"{text[:40]!r} is no time; write minutes, hours:minutes:seconds or days-hours")

    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part]
    if days is not None:
        hours, minutes, rest_s = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, rest_s = numbers
    else:
        hours, minutes, rest_s = 0, *(*numbers, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * MINUTE + rest_s
