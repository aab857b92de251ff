"""A kept run, run once more under a camera: what its folder does not hold, who said what to whom and when."""

from __future__ import annotations

from pathlib import Path

from volery.core.errors import InputError
from volery.core.film import Filmed
from volery.core.model import Time
from volery.metrics.filming import Camera
from volery.study.plan import plan
from volery.study.results import ResultsFolder
from volery.study.runs import build, drive, read_inputs


def film_run(folder: Path, label: str, seed: int, begin_us: Time, end_us: Time) -> Filmed:
    """Run it again and look on; slower than without a camera, and the result is the same.

    Args:
        folder: of the results.
        label, seed: of the run.
        begin_us, end_us: of the film.

    Raises:
        InputError: it is not there, an input is gone, or today's code gives another result than the folder holds.
    """
    manifest = ResultsFolder(folder).manifest()
    planned = next((run for run in plan(manifest.config) if (run.spec.label, run.spec.seed) == (label, seed)), None)
    recorded = next((run for run in manifest.runs if (run.label, run.seed) == (label, seed)), None)
    if planned is None or recorded is None:
        raise InputError(str(folder), f"holds no run {label!r} with seed {seed}")
    inputs = read_inputs(planned.spec)
    deployment = build(planned.spec, inputs.cluster)
    camera = Camera(begin_us, end_us, inputs.cluster.slots, deployment.machines)
    camera.watch(deployment.components)
    if drive(planned.spec, inputs, deployment).records.digest() != recorded.digest:
        raise InputError(str(folder), f"{label}, seed {seed}, does not run as it did; `volery verify` says more")
    return camera.filmed()
