"""Load of a workload on a cluster, and two ways to set it: other distances between arrivals, or fewer machines.

The load is the offered load: the work of all tasks / (what the machines can do at once x the span of arrivals), where
the span lies between the first and the last arrival (D. Feitelson, Workload Modeling for Computer Systems Performance
Evaluation, Cambridge 2015, on load manipulation; at 1 the work equals what the machines can do in that time). Work and
machines are counted in slots, or in the resource of which the workload asks for the largest share. Tasks that fit no
machine count, so that two designs on one trace have one load. Work beyond a limit that is enforced does not count.

Scaled distances leave jobs, tasks and machines alone. Fewer machines leave the jobs and their arrivals alone, as in the
evaluations of Hawk (Delgado et al., USENIX ATC 2015) and Eagle (SoCC 2016), which vary the number of nodes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec
import numpy as np

from volery.core.bounds import SECONDS_MAX
from volery.core.errors import InputError
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.resources import units_per_processor, work_resource
from volery.core.trace import Trace, longs
from volery.workload.arrays import Integers, Reals, column, view
from volery.workload.limits import bounded_durations_us

SPAN_MAX_US: Final = 2_000_000_000 * SECOND
"""The latest arrival of a job in a trace file."""
_OWN_LOAD: Final = re.compile(r"[:,]\s*load\s*=\s*([^,]*)")
PLACE: Final = "load"
PROCESSORS: Final = ("cpu", "core", "gpu")
"""Names of resources of which a machine has one, where no more is known of it."""
SHORT_SHARE: Final = 0.9
"""The share of the jobs that are short."""


def check_load_of_spec(trace: str, load_by: str, place: str) -> None:
    """Refuse a load for synthetic work that has one of its own.

    Raises:
        InputError: the spec has `load=`, and the arrivals were to be scaled; or its work fills the machines.
    """
    if trace.startswith("cell:"):
        raise InputError(place, f"{trace!r} fills its machines from the beginning to the end; vary its rate=N instead")
    own = _OWN_LOAD.search(trace)
    if own is not None and load_by == "arrivals":
        fix = 'leave load= out of the spec, or set load_by = "machines"'
        raise InputError(place, f"{trace!r} has a load of its own, {own[1].strip()}; {fix}")


def offered_load(trace: Trace, cluster: Cluster) -> float | None:
    """The load of a workload on a cluster; None where all jobs arrive at once."""
    span_us = trace.arrival_us[-1] - trace.arrival_us[0]
    return float(_loads_of_first(trace, cluster, span_us)[-1]) if span_us else None


class Basis(NamedTuple):
    """The resource in which load is counted: that of which the workload asks for the largest share.

    Attributes:
        resource: name of the resource; empty: slots.
        asked: per task, the units that it asks for.
        offered: units that the machines have together; where machines are faster than the reference, more than that.
    """

    resource: str
    asked: Integers
    offered: float


def basis(trace: Trace, cluster: Cluster) -> Basis:
    """The resource in which the load of a workload on a cluster is counted.

    Raises:
        InputError: no machine has any of it.
    """
    if not cluster.resources:
        return Basis("", np.ones(trace.task_count, np.int64), float((np.array(cluster.slots) * _speeds(cluster)).sum()))
    place = int(np.argmax(_shares_of_first(trace, cluster, 1)[-1]))
    offered = np.array(cluster.capacities, dtype=np.float64)[:, place] * _speeds(cluster)
    if not offered.any():
        name = cluster.resources[place]
        raise InputError("capacity", f"no machine has any {name}, so there is no load of it; give more of it than 0")
    return Basis(cluster.resources[place], _requests(trace, cluster)[:, place], float(offered.sum()))


def processors_alone(trace: Trace, workers: int, processors: int | None) -> Cluster:
    """Machines of which no more is known than their processors, to take a load over; designs cannot run on all of them.

    Args:
        trace: trace whose tasks ask for resources; a trace of GPUs alone has machines of GPUs.
        processors: number of processors of all machines together; None: each has one.

    Raises:
        InputError: no worker, or no task asks for processors.
    """
    if workers < 1:
        raise InputError("workers", f"{workers} workers cannot run anything; give at least 1")

    name = trace.resources[work_resource(trace.resources)]
    if not name.startswith(PROCESSORS):
        names_asked = ", ".join(trace.resources)
        raise InputError(
            "capacity", f"is not given, and tasks ask for no processors but {names_asked}; give --capacity {name}=N"
        )

    units = units_per_processor(trace.resources) * (workers if processors is None else processors)
    units_each, units_over = divmod(units, workers)

    capacities = tuple([(units_each + (machine < units_over),) for machine in range(workers)])
    return Cluster((0,) * workers, (1,) * workers, f"{workers} workers", (name,), capacities)


def _loads_of_first(trace: Trace, cluster: Cluster, span_us: int) -> Reals:
    """Load on the first machine, the first two, and so on to all."""
    if cluster.resources:
        return np.asarray(_shares_of_first(trace, cluster, span_us).max(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        work_us = bounded_durations_us(trace).astype(np.float64).sum()
        return np.asarray(work_us / (np.cumsum(np.array(cluster.slots) * _speeds(cluster)) * span_us))


def _shares_of_first(trace: Trace, cluster: Cluster, span_us: int) -> Reals:
    """Per number of machines, the load of each resource."""
    duration_us = bounded_durations_us(trace).astype(np.float64)
    work = (_requests(trace, cluster) * duration_us[:, None]).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        capacities = np.array(cluster.capacities, dtype=np.float64)
        offered = np.cumsum(capacities * _speeds(cluster)[:, None], axis=0) * span_us
        return np.asarray(np.nan_to_num(work / offered, nan=0.0, posinf=np.inf))


def _requests(trace: Trace, cluster: Cluster) -> Integers:
    """Per task, what it asks for of each resource of the machines."""
    places = [trace.resources.index(name) for name in cluster.resources]
    return np.asarray(np.array(trace.requests, dtype=np.int64)[:, places][np.asarray(trace.request)])


def _speeds(cluster: Cluster) -> Reals:
    if not cluster.speeds:
        return np.ones(len(cluster.constraints))
    return np.array(cluster.speeds, dtype=np.float64) / cluster.reference_speed


def at_load(trace: Trace, cluster: Cluster, load: float) -> Trace:
    """The trace with all distances between arrivals multiplied by one number, so that its load is `load`.

    Jobs keep their tasks. Deadlines and later submissions of tasks keep their distance to the arrival of the job.
    Arrivals are rounded to whole microseconds.

    Raises:
        InputError: all jobs arrive at once, or the arrivals would lie too far apart.
    """
    load_found = offered_load(trace, cluster)

    if load_found is None:
        raise InputError(PLACE, "all jobs of the trace arrive at once, so no distance can be scaled; leave it out")
    _refuse_lacking(load_found)

    arrival_us = view(trace.arrival_us)
    factor = load_found / load
    begin_us = int(arrival_us[0])
    if (int(arrival_us[-1]) - begin_us) * factor > SPAN_MAX_US:
        raise InputError(PLACE, f"{load:g} is so little that the last job would arrive after 2e9 s; give more")

    moved = begin_us + np.rint((arrival_us - begin_us) * factor).astype(np.int64)
    later = moved - arrival_us

    submit_us = longs()
    if trace.submit_us:
        submit_us = column(view(trace.submit_us) + np.repeat(later, np.diff(view(trace.first))))

    deadline_us = longs()
    if trace.deadline_us:
        due = view(trace.deadline_us)
        deadline_us = column(np.where(due == NEVER, NEVER, due + later))

    return msgspec.structs.replace(trace, arrival_us=column(moved), submit_us=submit_us, deadline_us=deadline_us)


def machines_for(trace: Trace, cluster: Cluster, load: float) -> Cluster:
    """The first machines of a cluster, as many as bring the load nearest to `load`; each keeps its constraints.

    Raises:
        InputError: all jobs arrive at once, the cluster is too small, or a part of it is no cluster of its kind.
    """
    if trace.replicas or cluster.racks:
        problem = "machines are in racks, or hold input of tasks, so that a part of them is another kind of cluster"
        raise InputError(PLACE, f'{problem}; set load_by = "arrivals"')

    span_us = trace.arrival_us[-1] - trace.arrival_us[0]
    if not span_us:
        raise InputError(PLACE, "all jobs of the trace arrive at once, so no number of machines has a load")

    loads = _loads_of_first(trace, cluster, span_us)
    machine_count = len(cluster.constraints)
    _refuse_lacking(loads[-1])
    # Rounded to the nearest number of machines the whole cluster would still be too small.
    if loads[-1] * machine_count > load * (machine_count + 0.5):
        needed = int(np.ceil(loads[-1] * machine_count / load))
        raise InputError(
            PLACE,
            f"{load:g} takes about {needed:,} machines, and workers is {machine_count:,}; set workers to that or more",
        )

    return first_machines(cluster, 1 + int(np.argmin(np.abs(loads - load))))


def _refuse_lacking(load: float) -> None:
    if not np.isfinite(load):
        raise InputError(
            PLACE, "tasks ask for a resource that no machine has, so no load can be set; add it to capacity"
        )


def first_machines(cluster: Cluster, count: int) -> Cluster:
    """The first `count` machines of a cluster, as they are."""
    return msgspec.structs.replace(
        cluster,
        constraints=cluster.constraints[:count],
        slots=cluster.slots[:count],
        capacities=cluster.capacities[:count],
        speeds=cluster.speeds[:count],
        name=f"{count} of {cluster.name}",
    )


def cutoff_of(trace: Trace) -> float:
    """The mean task time, in seconds, that 90 % of the jobs do not exceed, by the estimates of schedulers.

    It is at most what a parameter may be, so that designs take it: longer tasks are long.
    """
    cutoff_s = float(np.quantile(view(trace.estimate_us), SHORT_SHARE, method="inverted_cdf")) / SECOND
    return min(cutoff_s, SECONDS_MAX)
