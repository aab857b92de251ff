"""Runs under a tracer: a kept run repeated, and the demonstration of Megha.

A results folder has no messages. So a kept run is repeated under a tracer, and its digest must be that of the folder.
The demonstration is a small cluster with a little work and a machine that crashes. Only work and crash are staged: its
captions are read from the messages of the components.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, Final

import msgspec

from volery import architectures, sim
from volery.core.component import Architecture, Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster, Time
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.playback.run_log import RunLog
from volery.playback.tracer import Tracer
from volery.sim.faults import Crash, FaultPlan
from volery.study.plan import plan
from volery.study.results import ResultsFolder
from volery.study.runs import Watch, build, chosen_design, drive, read_inputs, with_cutoff
from volery.study.spec import RunSpec

NAME: Final = "megha"
WORKERS: Final = 18
"""Three clusters, each with a partition of two machines per Global Master."""
PARAMETERS: Final[dict[str, Any]] = {
    "gms": 3,
    "lms": 3,
    "heartbeat_s": 2.0,
    "reliable": True,
    "detection_s": 0.3,
    "why": True,
}
WORK: Final = (
    (0.4, "ada", 3, 2.0),
    (1.6, "bob", 4, 5.0),
    (2.4, "eve", 9, 5.0),
    (2.9, "ada", 5, 5.0),
    (3.5, "bob", 9, 2.5),
    (6.0, "eve", 4, 2.0),
    (9.0, "ada", 3, 2.0),
)
"""Per job: arrival (seconds), user, number of tasks, and duration of each task (seconds)."""
CRASH: Final = Crash(round(6.5 * SECOND), "node/4", round(9.5 * SECOND))
LENGTH_US: Final[Time] = round(13.5 * SECOND)
DELAY_US: Final[Time] = 40_000
"""The delay of every message between components: as long as between continents on a bad day, to be seen."""


class TracedRun(msgspec.Struct, frozen=True, eq=False):
    """A run and its log."""

    architecture: Architecture
    cluster: Cluster
    deployment: Deployment
    log: RunLog


def kept_run(folder: Path, label: str, seed: int) -> tuple[RunSpec, str]:
    """A run of a results folder, and its digest.

    Raises:
        InputError: there is no such run.
    """
    manifest = ResultsFolder(folder).manifest()
    planned = next((run for run in plan(manifest.config) if (run.spec.label, run.spec.seed) == (label, seed)), None)
    recorded = next((run for run in manifest.runs if (run.label, run.seed) == (label, seed)), None)
    if planned is None or recorded is None:
        raise InputError(str(folder), f"holds no run {label!r} with seed {seed}")
    return planned.spec, recorded.digest


def trace_run(
    folder: Path, label: str, seed: int, begin_us: Time, end_us: Time, *, part: bool = False, watch: Watch | None = None
) -> TracedRun:
    """Repeat a kept run under a tracer, which is slower and gives the same result.

    Args:
        part: the recording ends before the run, which still runs to its end for its digest.
        watch: called with the facts of the input once, then with the progress of the run.

    Raises:
        InputError: there is no such run, an input is gone, or the digest is not that of the folder.
    """
    spec, digest = kept_run(folder, label, seed)

    inputs = read_inputs(spec)
    spec = with_cutoff(spec, inputs.facts)

    if watch is not None:
        watch(inputs.facts)

    design, _ = chosen_design(spec, inputs.cluster)
    architecture, deployment = design.architecture, build(spec, inputs.cluster, design)
    tracer = Tracer(begin_us, end_us, inputs.cluster.slots, deployment.machines, architecture.captions(), part=part)
    deployment = tracer.on(deployment)

    if drive(spec, inputs, design, deployment, watch).records.digest() != digest:
        raise InputError(str(folder), f"{label}, seed {seed}, does not run as it did; `volery verify` says more")

    return TracedRun(architecture, inputs.cluster, deployment, tracer.log())


def work() -> Trace:
    first, durations = [0], array("q")
    for _, _, tasks, takes_s in WORK:
        durations.extend([round(takes_s * SECOND)] * tasks)
        first.append(len(durations))
    arrivals = array("q", [round(at_s * SECOND) for at_s, *_ in WORK])
    estimates = array("q", [round(takes_s * SECOND) for *_, takes_s in WORK])
    return Trace("demonstration", arrivals, array("q", first), durations, estimates, user=tuple(w[1] for w in WORK))


def demonstration(begin_us: Time = 0, end_us: Time = LENGTH_US, *, part: bool = False) -> TracedRun:
    """Run the demonstration under a tracer.

    Args:
        part: the recording ends before the run does.
    """
    architecture, config = architectures.choose(NAME, PARAMETERS)
    cluster = Cluster.uniform(WORKERS)
    deployment = architecture.build(cluster, config, Streams(0))
    crashes = ((CRASH.at_us, CRASH.address),)
    tracer = Tracer(begin_us, end_us, cluster.slots, deployment.machines, architecture.captions(), crashes, part)
    deployment = tracer.on(deployment)
    plan = FaultPlan(crashes=(CRASH,))
    sim.simulate(deployment, work(), cluster, network=sim.Network(DELAY_US), options=sim.Options(plan=plan))
    return TracedRun(architecture, cluster, deployment, tracer.log())
