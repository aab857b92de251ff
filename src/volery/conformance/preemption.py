"""The check of preemption: no user loses a running task within its share, judged from the records alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from volery.conformance.cases import MACHINES, Case, trace_of
from volery.conformance.outcomes import attempts, demand_all_finished
from volery.conformance.verdict import check, demand, run
from volery.core.capabilities import DueShares
from volery.core.component import Architecture
from volery.core.model import SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams

SLOTS = 2
CLUSTER = Cluster.uniform(MACHINES, SLOTS)
TASKS = 600
"""Of each user: six times what the machines run at once."""
JOBS = 10
IN_FLIGHT_US = 2_000
"""An end within this time before a preemption may be unknown to the scheduler that decided on it: four hops."""


def contended_case(users: Sequence[str], seed: int = 0) -> Case:
    """Each user wants the whole cluster for a while; the second comes when the first has it, and so on."""
    stream = Streams(seed).of("conformance/contended")
    came, durations = [], []
    for place in range(len(users) * JOBS):
        came.append(place // JOBS * SECOND // 2 + place % JOBS * 1000)
        durations.append([int((0.25 + stream.random() / 2) * SECOND) for _ in range(TASKS // JOBS)])
    trace = trace_of("contended", came, durations)
    owners = tuple(user for user in users for _ in range(JOBS))
    return Case("contended", seed, msgspec.structs.replace(trace, user=owners), CLUSTER)


@check
def check_nobody_loses_what_it_is_due(architecture: Architecture) -> None:
    """No user loses a running task within its share, and no two users take tasks from each other.

    Concerns designs whose deployment declares guaranteed shares.
    """
    shares = architecture.build(CLUSTER, architecture.defaults, Streams(0)).capability(DueShares)
    due = shares.guaranteed if shares is not None else {}
    for seed in range(3 if due else 0):
        case = contended_case(list(due), seed)
        records = run(architecture, case, seed=seed)
        demand_all_finished(case, records)
        demand(bool(records.preemptions), f"nothing was preempted in case {case.name!r}, where some lack their share")
        user_of_task = [case.trace.user[job] for job in case.trace.job_of_task()]
        for user, share in due.items():
            _demand_kept(records, user_of_task, user, share * CLUSTER.slot_count)
        _demand_no_return(records, user_of_task)


def _demand_kept(records: Records, user_of_task: Sequence[str], user: str, due: Fraction) -> None:
    """After each of its losses the user has its slots; tasks count whose ends were not known yet."""
    killed = {(task, at) for (task, _), at in records.killed.items()}
    stays = [
        (start, end if (task, end) in killed else end + IN_FLIGHT_US)
        for intervals in attempts(records).values()
        for start, end, task in intervals
        if user_of_task[task] == user
    ]
    for lost in records.preemptions:
        if user_of_task[lost.task] == user:
            left = sum(start <= lost.at_us < end for start, end in stays)
            what = f"task {lost.task} was preempted at {lost.at_us} us for task {lost.beneficiary}"
            demand(left >= due, f"{what}: {user!r} is due {float(due):g} slots and was left with {left}")


def _demand_no_return(records: Records, user_of_task: Sequence[str]) -> None:
    """No two users take tasks from each other, though each always wants more."""
    pairs = {(user_of_task[lost.task], user_of_task[lost.beneficiary]): lost for lost in records.preemptions}
    for (loser, winner), lost in pairs.items():
        demand(loser != winner, f"{loser!r} lost task {lost.task} to its own task {lost.beneficiary}")
        demand((winner, loser) not in pairs, f"{loser!r} and {winner!r} have taken tasks from each other")
