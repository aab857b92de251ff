"""A kept run, run once more under a camera: what its folder does not hold, who said what to whom and when."""

from __future__ import annotations

from pathlib import Path

import msgspec

from volery import architectures
from volery.core.component import Architecture, Deployment
from volery.core.errors import InputError
from volery.core.model import Cluster, Time
from volery.playback.camera import Camera
from volery.playback.film import Filmed
from volery.study.plan import plan
from volery.study.results import ResultsFolder
from volery.study.runs import Watch, build, drive, read_inputs, with_cutoff
from volery.study.spec import RunSpec


class FilmedRun(msgspec.Struct, frozen=True, eq=False):
    """A run that a camera has looked on.

    Args:
        architecture: that ran.
        cluster, deployment: its machines, and who stood where.
        filmed: what was seen.
    """

    architecture: Architecture
    cluster: Cluster
    deployment: Deployment
    filmed: Filmed


def kept_run(folder: Path, label: str, seed: int) -> tuple[RunSpec, str]:
    """A run of a results folder, and its digest.

    Raises:
        InputError: it is not there.
    """
    manifest = ResultsFolder(folder).manifest()
    planned = next((run for run in plan(manifest.config) if (run.spec.label, run.spec.seed) == (label, seed)), None)
    recorded = next((run for run in manifest.runs if (run.label, run.seed) == (label, seed)), None)
    if planned is None or recorded is None:
        raise InputError(str(folder), f"holds no run {label!r} with seed {seed}")
    return planned.spec, recorded.digest


def film_run(
    folder: Path, label: str, seed: int, begin_us: Time, end_us: Time, *, part: bool = False, watch: Watch | None = None
) -> FilmedRun:
    """Run it again and look on; slower than without a camera, and the result is the same.

    Args:
        folder: of the results.
        label, seed: of the run.
        begin_us, end_us: of the film.
        part: whether the film ends before the run does; that is run to its end all the same, for its digest.
        watch: told the input's size once, then how far the run is.

    Raises:
        InputError: it is not there, an input is gone, or today's code gives another result than the folder holds.
    """
    spec, digest = kept_run(folder, label, seed)
    inputs = read_inputs(spec)
    spec = with_cutoff(spec, inputs.facts)
    if watch is not None:
        watch(inputs.facts)
    architecture, deployment = architectures.lookup(spec.architecture), build(spec, inputs.cluster)
    camera = Camera(
        begin_us, end_us, inputs.cluster.slots, deployment.machines, architecture.captions, part=part
    )  # fmt: skip
    deployment = camera.on(deployment)
    if drive(spec, inputs, deployment, watch).records.digest() != digest:
        raise InputError(str(folder), f"{label}, seed {seed}, does not run as it did; `volery verify` says more")
    return FilmedRun(architecture, inputs.cluster, deployment, camera.filmed())
