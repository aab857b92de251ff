"""Small workloads on a scheduler that is assembled from stages, without network delays."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from volery.architectures import configure, lookup
from volery.core.model import NEVER, SECOND, Cluster, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.sim import Options, simulate
from volery.sim.network import Network

Row = tuple[float, int, float] | tuple[float, int, float, float]
"""A job of one task: arrival, cores, duration and, where it is another, estimate, in seconds."""


def cores_cluster(*cores: int, speeds: tuple[int, ...] = (), reference_speed: int = 1) -> Cluster:
    """Machines with so many cores each."""
    count = len(cores)
    capacities = tuple((each,) for each in cores)
    return Cluster(
        (0,) * count,
        (1,) * count,
        "cores",
        ("cores",),
        capacities,
        speeds=speeds,
        reference_speed=reference_speed if speeds else 0,
    )


def trace_of_rows(
    rows: Sequence[Row],
    users: Sequence[str] = (),
    priority: Sequence[int] = (),
    deadline_s: Sequence[int] = (),
    limit_s: Sequence[float] = (),
) -> Trace:
    """One task a job."""
    return Trace(
        "rows",
        array("q", [round(row[0] * SECOND) for row in rows]),
        array("q", range(len(rows) + 1)),
        array("q", [round(row[2] * SECOND) for row in rows]),
        array("q", [round(row[-1] * SECOND) for row in rows]),
        resources=("cores",),
        requests=tuple((k,) for k in range(65)),
        request=array("H", [row[1] for row in rows]),
        user=tuple(users),
        priority=array("q", priority),
        deadline_us=array("q", [at * SECOND if at >= 0 else at for at in deadline_s]),
        limit_us=array("q", [round(at * SECOND) if at >= 0 else NEVER for at in limit_s]),
    )


def job_of(durations_s: Sequence[float], parents: Sequence[Sequence[int]] = ()) -> Trace:
    """One job whose tasks take a slot each, and wait for each other."""
    trace = Trace(
        "job",
        array("q", [0]),
        array("q", [0, len(durations_s)]),
        array("q", [round(each * SECOND) for each in durations_s]),
        array("q", [SECOND]),
    )
    return with_parents(trace, parents) if parents else trace


def run(design: str, trace: Trace, cluster: Cluster, seed: int = 0, /, **parameters: str) -> Records:
    """Play it, checking invariants after each event."""
    entry = lookup(design)
    deployment = entry.build(cluster, configure(entry, parameters), Streams(seed))
    options = Options(check=True, graphs=entry.graphs)
    return simulate(deployment, trace, cluster, network=Network(delay_us=0), options=options)


def starts(records: Records) -> list[float]:
    """Per task, when it started, in seconds."""
    return [seconds(at) for at in records.start_us]


def seconds(at: Time) -> float:
    """Seconds, to the millisecond."""
    return round(at / SECOND, 3)
