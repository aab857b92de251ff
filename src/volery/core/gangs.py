"""Gangs: jobs whose tasks run only together, as rigid jobs of HPC and training jobs do.

The driver alone decides that a gang has begun, ended or is held. A launched member holds what it has taken; the gang
begins at the moment at which its last member is launched, and durations count from then. A member that is killed, fails
or dies with its machine ends the attempt of all members that run or are held; one that has reached its end leaves the
others. After such an end the members that have not finished form the gang.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from volery.core.capabilities import ClusterParts, GangPlacement, Replication
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.locality import racks_of
from volery.core.model import AMOUNT_MAX, PREFERS_RACK, REQUIRES_RACK, Amounts, Cluster, Gang, Job, JobId
from volery.core.trace import NO_GANG, Trace

NO_REQUEST: Final = -1
"""Place of the request of tasks that ask for a slot."""


def has_gangs(trace: Trace) -> bool:
    """True if the tasks of some job run only together."""
    return any(nodes != NO_GANG for nodes in trace.gang_nodes)


def with_gangs(trace: Trace, nodes: Sequence[int], racks: Sequence[int] = ()) -> Trace:
    """The trace with gangs.

    Args:
        trace: Workload; gangs that it has are replaced.
        nodes: Count of machines over which the tasks of each job are spread; 0: any machines; NO_GANG: no gang.
        racks: Rack of each gang, as `Gang.rack`; empty: they may lie in any racks.

    Raises:
        InputError: see `check_gangs`.
    """
    wishes = array("b", racks if any(racks) else ())
    ganged = msgspec.structs.replace(trace, gang_nodes=array("i", nodes), gang_racks=wishes)
    check_gangs(ganged)
    without_gangs = {"gang_nodes": array("i"), "gang_racks": array("b")}
    return ganged if has_gangs(ganged) else msgspec.structs.replace(trace, **without_gangs)


def check_gangs(trace: Trace) -> None:
    """Refuse gangs that cannot be.

    Raises:
        InputError: Names the job: its tasks wait for each other or come one after another, or it has more machines than
            tasks.
    """
    if not trace.gang_nodes:
        return
    if len(trace.gang_nodes) != trace.job_count:
        problem = f"{len(trace.gang_nodes)} counts of machines of gangs for {trace.job_count} jobs; give one each"
        raise InputError(trace.name, problem)

    if trace.gang_racks and len(trace.gang_racks) != trace.job_count:
        problem = f"{len(trace.gang_racks)} racks of gangs for {trace.job_count} jobs; give one each, or none"
        raise InputError(trace.name, problem)

    for job, nodes in enumerate(trace.gang_nodes):
        if nodes == NO_GANG:
            continue
        low, high = trace.first[job], trace.first[job + 1]

        if trace.gang_racks and trace.gang_racks[job] not in (0, PREFERS_RACK, REQUIRES_RACK):
            problem = f"the rack of gang {job} is {trace.gang_racks[job]}; give 0, {PREFERS_RACK} or {REQUIRES_RACK}"
            raise InputError(trace.name, problem)
        if nodes < NO_GANG or nodes > high - low:
            problem = (
                f"job {job} is a gang of {high - low} tasks on {nodes} machines; give from 1 to {high - low}, or 0"
            )
            raise InputError(trace.name, problem)
        if trace.parent_first and trace.parent_first[low] < trace.parent_first[high]:
            problem = f"job {job} is a gang, and tasks of it wait for each other; a gang runs at once: drop either"
            raise InputError(trace.name, problem)
        if trace.submit_us and any(at != trace.arrival_us[job] for at in trace.submit_us[low:high]):
            problem = f"job {job} is a gang, and tasks of it are submitted later; a gang is submitted at once"
            raise InputError(trace.name, problem)


def check_gang_placement(trace: Trace, deployment: Deployment, place: str, *, may_hold: bool) -> None:
    """Refuse gangs for a design that does not start them whole, unless its members may wait on their machines.

    Args:
        trace: Workload of the run.
        deployment: Components of the design.
        place: Name of the design, or of the workload.
        may_hold: True if members may hold machines while others of their gang wait.

    Raises:
        InputError: At a place that names the run's design, or its workload.
    """
    if not has_gangs(trace):
        return
    if deployment.capability(Replication) is not None:
        problem = "jobs of the workload are gangs, of which this design would copy tasks; run it without copies"
        raise InputError(place, problem)
    placement = deployment.capability(GangPlacement)
    if placement is not None and not placement.shapes and any(nodes > 0 for nodes in trace.gang_nodes):
        job = next(job for job, nodes in enumerate(trace.gang_nodes) if nodes > 0)
        problem = f"job {job} is a gang with a shape, which this design does not place; take pipeline, slurm or omega"
        raise InputError(place, problem)
    if placement is None and not may_hold:
        problem = (
            "jobs of the workload are gangs, whose tasks run only together, and this design starts tasks one by one; "
            "take a design that starts them whole, as pipeline, or give --gangs hold"
        )
        raise InputError(place, problem)
    for job, room in gangs_beyond_parts(trace, placement) if placement is not None else ():
        problem = (
            f"job {job} is a gang of {trace.first[job + 1] - trace.first[job]} tasks, which runs in one part of the "
            f"cluster, and the largest part holds {room} of them; {placement.remedy if placement is not None else ''}"
        )
        raise InputError(place, problem)


def gangs_beyond_parts(trace: Trace, placement: GangPlacement) -> Iterator[tuple[JobId, int]]:
    """Gangs that are larger than every part into which the design divides the cluster, and the largest room for each.

    Args:
        trace: Workload of the run.
        placement: The capability of the design.
    """
    parts_of = placement.parts
    room_of: dict[tuple[ClusterParts, Gang], int] = {}
    for job, nodes in enumerate(trace.gang_nodes if parts_of is not None else ()):
        if nodes == NO_GANG or parts_of is None:
            continue
        size, shape = trace.first[job + 1] - trace.first[job], trace.gang_of(job) or Gang()
        parts = parts_of(Job(job, size, (), trace.sent_estimate_us(job), gang=shape))
        if (key := (parts, shape)) not in room_of:
            room_of[key] = max([_room(sorted(part.slots, reverse=True), shape) for part in parts.clusters])
        if room_of[key] < size:
            yield job, room_of[key]


def check_gang_racks(trace: Trace, deployment: Deployment, cluster: Cluster, place: str) -> None:
    """Refuse gangs that require one rack of several for a design that does not heed racks.

    Args:
        trace: Workload of the run.
        deployment: Components of the design.
        cluster: Machines of the run.
        place: Name of the design, or of the workload.

    Raises:
        InputError: At a place that names the run's design, or its workload.
    """
    if REQUIRES_RACK not in trace.gang_racks or len(set(cluster.racks)) < 2:
        return
    placement = deployment.capability(GangPlacement)
    if placement is None or not placement.racks:
        problem = (
            f"job {trace.gang_racks.index(REQUIRES_RACK)} is a gang that requires one rack, which this design does not "
            "heed; take pipeline, omega or slurm, let the gang prefer one rack, or give --racks 1"
        )
        raise InputError(place, problem)


def check_gang_sizes(trace: Trace, cluster: Cluster, *, has_shapes: bool) -> None:
    """Refuse gangs for which the empty cluster has too few slots, or too small amounts, whatever they need beside.

    Gangs that fit by size and whose tasks suit no machines are the design's to report, as single tasks are.

    Args:
        trace: Workload of the run.
        cluster: Machines of the run.
        has_shapes: False where members are placed one by one, so that shapes do not count.

    Raises:
        InputError: Names the job, its size, and what the cluster holds.
    """
    room_of: dict[tuple[int, Gang], int] = {}
    racks = racks_of(cluster)
    for job, nodes in enumerate(trace.gang_nodes):
        if nodes == NO_GANG:
            continue
        low, high = trace.first[job], trace.first[job + 1]
        nodes = nodes if has_shapes else 0
        places = set(trace.request[low:high]) if trace.request else {NO_REQUEST}

        # A gang of unlike tasks is measured by the smallest of each: its exact fit is the design's to find.
        shape = (trace.gang_of(job) if has_shapes else None) or Gang()
        room = 0
        for place in places:
            key = place, shape
            if key not in room_of:
                request = trace.requests[place] if place != NO_REQUEST else ()
                room_of[key] = _largest_room(_counts(cluster, request), shape, racks)
            room = max(room, room_of[key])

        if room < high - low:
            spread = f" on {nodes} machines, {shape.tasks_per_node} at most on each" if nodes else ""
            room_where, fix = "the empty cluster holds", "give more or larger machines"
            if shape.rack == REQUIRES_RACK:
                room_where, fix = "no empty rack holds more than", "give fewer or larger racks, let it prefer one"
                spread += " in one rack"
            problem = (
                f"job {job} (from 0, by time of submission) is a gang of {high - low} tasks{spread}, and {room_where} "
                f"{room} of them at once; {fix}, leave the job out, or read its rows as tasks (--gangs task)"
            )
            raise InputError(trace.name, problem)


def _counts(cluster: Cluster, request: Amounts) -> list[int]:
    """The count of tasks with a request that each empty machine holds."""
    if not cluster.resources:
        return list(cluster.slots)
    asked = [(place, amount) for place, amount in enumerate(request) if amount]
    return [
        min([offered[place] // amount for place, amount in asked], default=AMOUNT_MAX) for offered in cluster.capacities
    ]


def _largest_room(counts: Sequence[int], shape: Gang, racks: Sequence[int]) -> int:
    """The count of members for which the machines that may be taken together have room in a shape."""
    parts: dict[int, list[int]] = {}
    for rack, count in zip(racks, counts, strict=True):
        parts.setdefault(rack if shape.rack == REQUIRES_RACK else 0, []).append(count)
    return max([_room(sorted(part, reverse=True), shape) for part in parts.values()])


def _room(counts: Sequence[int], shape: Gang) -> int:
    """The count of members for which machines with such counts, the largest first, have room in a shape."""
    if not shape.nodes:
        return sum(counts)
    largest = counts[: shape.nodes]
    if len(largest) < shape.nodes or not largest[-1]:
        return 0
    return sum([min(count, shape.tasks_per_node) for count in largest])
