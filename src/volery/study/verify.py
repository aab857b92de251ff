"""Are the results what the code gives? Runs everything in a results folder again and compares digests."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec

from volery.core.errors import InputError
from volery.study.plan import PlannedRun, plan
from volery.study.pool import Watcher, check_places, each_outcome
from volery.study.results import FinishedRun, ResultsFolder
from volery.study.sources import study_digest


class Verified(msgspec.Struct, frozen=True):
    """One run, then and now.

    Args:
        label, seed: which run.
        recorded: digest in the manifest.
        found: digest of the run of today.
        same_input: whether the trace is what it was.
    """

    label: str
    seed: int
    recorded: str
    found: str
    same_input: bool

    @property
    def agrees(self) -> bool:
        """Whether the digests are equal."""
        return self.recorded == self.found


class Verification(msgspec.Struct, frozen=True):
    """All runs of a folder, and whether the code is the one that made them."""

    same_code: bool
    planned: int
    runs: tuple[Verified, ...]

    @property
    def agrees(self) -> bool:
        """Whether every digest agrees."""
        return all(run.agrees for run in self.runs)


def verify(
    folder: Path, *, processes: int = 1, dask: str | None = None, watcher: Watcher | None = None
) -> Verification:
    """Run again every run that the folder's manifest calls finished.

    Raises:
        InputError: when the folder holds no results, holds none that are finished, or an input is gone.
    """
    check_places(processes, dask)
    manifest = ResultsFolder(folder).manifest()
    if not manifest.runs:
        raise InputError(str(folder), "no run of this study has finished; there is nothing to verify")
    recorded = {(run.label, run.seed): run for run in manifest.runs}
    planned = {(run.spec.label, run.spec.seed): run for run in plan(manifest.config)}
    strange = next((run for run in recorded if run not in planned), None)
    if strange is not None:
        raise InputError(
            str(folder), f"its manifest lists {strange[0]!r} with seed {strange[1]}, which is no part of its study"
        )
    again = [run for run in planned.values() if (run.spec.label, run.spec.seed) in recorded]
    found = {}
    with closing(each_outcome(again, processes, watcher, dask)) as outcomes:
        for run, outcome in outcomes:
            before = recorded[run.spec.label, run.spec.seed]
            found[run.spec.label, run.spec.seed] = _verified(run, before, outcome.summary.digest, outcome.trace.sha256)
    return Verification(
        manifest.code_sha256 == study_digest(manifest.config), manifest.planned, tuple(found[name] for name in recorded)
    )


def _verified(run: PlannedRun, before: FinishedRun, digest: str, trace_sha256: str) -> Verified:
    return Verified(run.spec.label, run.spec.seed, before.digest, digest, trace_sha256 == before.trace_sha256)
