"""Loads of federations, in this process or behind an API: set up, run, and boiled down to a report."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from volery import metrics
from volery.cli.federation import choose, sizes_of
from volery.core.errors import InputError
from volery.core.model import NEVER, SECOND, Cluster, TaskId
from volery.core.trace import Trace
from volery.live.clock import run_loop
from volery.live.command import Command, encode_payload
from volery.live.config.federation import Federation, FederationFile, resolve
from volery.live.load import Loaded, LoadProgress, Work, command, load_by_api
from volery.live.load import load as load_federation
from volery.live.node.agent import NodeAgent
from volery.live.node.sleep import SleepExecutor
from volery.live.runtime.journal import SUFFIX
from volery.metrics import Distribution
from volery.metrics.tasks import allocation_parts


class LoadReport(msgspec.Struct, kw_only=True):
    """The result of a load test: its jobs, tasks and times.

    Args:
        architecture: architecture of the federation; empty where only its API is known.
        nodes, slots: size of the federation; 0 where only its API is known.
        trace: name of the trace.
        speedup: factor by which it was sped up.
        executor: the work of the tasks, "sleep" or "spin".
        jobs, tasks: counts of the trace.
        finished, failed, unsatisfiable: tasks by what became of them.
        span_s: first submission to last answer.
        tasks_per_s: finished tasks over the span.
        utilisation_mean: busy slot time over slot time; 0 where the slots are not known.
        late_s: delay of submissions behind their plan.
        allocation_s: part -> seconds per task that started, and the total.
        jrt_s: submission to answer.
        cpu_s: processor time of this process meanwhile.
        journal: folder of the journal; empty where none was kept.
    """

    architecture: str
    nodes: int
    slots: int
    trace: str
    speedup: float
    executor: Work
    jobs: int
    tasks: int
    finished: int
    failed: int
    unsatisfiable: int
    span_s: float
    tasks_per_s: float
    utilisation_mean: float
    late_s: Distribution
    allocation_s: dict[str, Distribution]
    jrt_s: Distribution
    cpu_s: float
    journal: str


@contextmanager
def kept_in(folder: Path | None) -> Iterator[Path]:
    """The folder, or one that is gone afterwards.

    Raises:
        InputError: it holds journals already; the jobs of each load have the same numbers.
    """
    if folder is not None:
        if any((folder / "journal").glob(f"*{SUFFIX}")):
            raise InputError(str(folder), "holds the journal of another federation; give an empty folder")
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="volery-") as name:
        yield Path(name)


def federation_of(
    architecture: str, nodes: int, slots: int, clusters: int, gms: int, folder: Path, seed: int
) -> Federation:
    """A federation for load tests, in one process.

    Raises:
        InputError: the architecture does not exist, or cannot be built so.
    """
    file = FederationFile(
        machines=[{"count": nodes, "slots": slots}],
        architecture=architecture,
        seed=seed,
        reports=False,
        parameters=sizes_of(architecture, clusters, gms, nodes),
        folder=str(folder.absolute()),
    )

    return resolve(file, Path(), choose)


def load_here(federation: Federation, trace: Trace, work: Work, watch: Callable[[LoadProgress], None]) -> Loaded:
    """Replay the trace against a federation in this process."""
    loads: list[Loaded] = []
    durations = trace.duration_us

    def spinning(task: TaskId) -> bytes:
        return encode_payload(Command(command("spin", durations[task])))

    async def main() -> None:
        if work == "spin":
            agent = NodeAgent(federation.folder / "tasks")
            loads.append(await load_federation(federation, trace, agent, spinning, watch))
        else:
            sleeping = SleepExecutor(lambda task: durations[task.id])
            loads.append(await load_federation(federation, trace, sleeping, None, watch))

    run_loop(main())
    return loads[0]


def load_there(api: str, trace: Trace, work: Work, watch: Callable[[LoadProgress], None]) -> Loaded:
    """Replay the trace through the API of a running federation."""
    loads: list[Loaded] = []

    async def main() -> None:
        loads.append(await load_by_api(api, trace, work, watch))

    run_loop(main())
    return loads[0]


def report_of(loaded: Loaded, federation: Federation | None, trace: Trace, work: Work, speedup: float) -> LoadReport:
    """The figures of a load."""
    records = loaded.records
    cluster: Cluster | None = federation.fleet.cluster if federation is not None else None

    table = metrics.job_table(records, None)
    span_s = (max(records.answered_us) - records.trace.arrival_us[0]) / SECOND
    finished = sum(finish_us != NEVER for finish_us in records.finish_us)

    return LoadReport(
        architecture=federation.plan.architecture.name if federation is not None else "",
        nodes=len(cluster.slots) if cluster is not None else 0,
        slots=cluster.slot_count if cluster is not None else 0,
        trace=trace.name,
        speedup=speedup,
        executor=work,
        jobs=trace.job_count,
        tasks=trace.task_count,
        finished=finished,
        failed=loaded.failed,
        unsatisfiable=sum(records.unsatisfiable),
        span_s=span_s,
        tasks_per_s=finished / span_s if span_s > 0 else 0.0,
        utilisation_mean=metrics.mean_utilisation(records, cluster) if cluster is not None else 0.0,
        late_s=metrics.distribution(np.array(loaded.late_us), unit=SECOND),
        allocation_s={name: metrics.distribution(part, unit=SECOND) for name, part in allocation_parts(records)},
        jrt_s=metrics.distribution(table.jrt_us[table.measured], unit=SECOND),
        cpu_s=loaded.cpu_s,
        journal=loaded.journal,
    )
