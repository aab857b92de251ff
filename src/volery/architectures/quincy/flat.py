"""The choice where all slots are alike: tasks that certainly run on, or certainly wait, need no network.

Where all tasks have one arc, to all machines at the same cost, a flow only chooses the tasks that run. Each task is
worth what its wait costs more than its run, and far more while its job has less than its least. What is worth most has
the slots. So a task worth more than the best that is left out runs in every cheapest flow, and one worth less than the
last that runs waits in every one. The network holds the others: those that start or stop, and those that are level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volery.architectures.quincy.network import BELOW_FLOOR, Bounds, NetworkTask
from volery.core.model import JobId

FREE = Bounds(0, 1 << 62)


def undecided(
    members: Sequence[NetworkTask], bounds: Mapping[JobId, Bounds], slots: int
) -> tuple[list[NetworkTask], dict[JobId, Bounds]]:
    """The tasks of which a flow has something to say, and the bounds of jobs without those that run on.

    Args:
        members: Tasks of the network; running ones have the slots that they run on among these slots.
        bounds: Bounds of the jobs that have some.
    """
    if not slots:
        return [], {}

    worths = _worths(members, bounds)
    ranked = sorted([worth for worth in worths if worth is not None], reverse=True)

    least_worth_to_run = ranked[slots - 1] if slots <= len(ranked) else 0
    best_worth_left_out = ranked[slots] if slots < len(ranked) else 0

    undecided_members: list[NetworkTask] = []
    running_on: dict[JobId, int] = {}
    for member, worth in zip(members, worths, strict=True):
        # Worth more than the best that is left out: it runs on in every cheapest flow.
        if member.stay is not None and worth is not None and worth > best_worth_left_out:
            job = member.item.task.job
            running_on[job] = running_on.get(job, 0) + 1
        # A waiting task that is worth less than the last that runs waits in every cheapest flow, and is left out.
        elif member.stay is not None or (worth is not None and worth >= least_worth_to_run):
            undecided_members.append(member)

    return undecided_members, {job: _without(bound, running_on.get(job, 0)) for job, bound in bounds.items()}


def _without(bound: Bounds, count: int) -> Bounds:
    return Bounds(max(0, bound.least - count), max(0, bound.most - count))


def _worths(members: Sequence[NetworkTask], bounds: Mapping[JobId, Bounds]) -> list[int | None]:
    """The worth of each task, at least 1; None: its job may not run as many.

    Of tasks of a job that are worth as much the earlier comes first.
    """
    plain_worths = [member.unscheduled - (member.stay or 0) for member in members]

    if not bounds:
        return list(plain_worths)

    places_of: dict[JobId, list[int]] = {}
    for place, member in enumerate(members):
        places_of.setdefault(member.item.task.job, []).append(place)

    worths: list[int | None] = list(plain_worths)
    for job, places in places_of.items():
        bound = bounds.get(job, FREE)

        if len(places) > 1:
            places.sort(key=plain_worths.__getitem__, reverse=True)

        # As `BELOW_FLOOR` in the network: a job's least number of tasks comes before everything else.
        for place in places[: bound.least]:
            worths[place] = plain_worths[place] + BELOW_FLOOR
        # The job may not run more than this, whatever they are worth.
        for place in places[bound.most :]:
            worths[place] = None

    return worths
