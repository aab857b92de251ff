"""Runs a study: what is finished is taken from its results folder, the rest is run, and nothing finished is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from volery.study.keeper import Keeper, Results
from volery.study.plan import PlannedRun, plan
from volery.study.pool import Outcomes, Watcher, check_places, each_outcome
from volery.study.results import sole_writer
from volery.study.runs import check_roles, rehearse
from volery.study.spec import StudySpec


def run_study(
    study: StudySpec,
    *,
    folder: Path | None = None,
    processes: int = 1,
    dask: str | None = None,
    force: bool = False,
    watcher: Watcher | None = None,
    command: str = "",
) -> Results:
    """Run a study and return its results; Ctrl-C returns those of the runs that are finished, `interrupted`.

    Args:
        study: what to run.
        folder: where to keep the results; a study that was stopped there is continued.
        processes: 1 runs here; more: each run in a fresh process of its own, so many at once. A script that asks for
            more than one must guard its own start with `if __name__ == "__main__":`.
        dask: address of the scheduler of a Dask cluster that runs them instead, tcp://HOST:PORT.
        force: whether a folder that holds another study may be taken over.
        watcher: told how far the runs are.
        command: what the manifest says that the study was called by.

    Raises:
        InputError: when anything that the study names is wrong, before the first run where that can be known.
        LostRunError: when a run's process or worker died.
    """
    check_places(processes, dask)
    planned = plan(study)
    with sole_writer(folder):
        return _run(study, planned, folder, force, command, lambda runs: each_outcome(runs, processes, watcher, dask))


def _run(
    study: StudySpec,
    planned: Sequence[PlannedRun],
    folder: Path | None,
    force: bool,
    command: str,
    run_each: Callable[[Sequence[PlannedRun]], Outcomes],
) -> Results:
    keep = Keeper.begin(study, planned, folder, force, command)
    waiting = list({run.key: run for run in planned if run.key not in keep.done}.values())
    _rehearse(waiting)
    interrupted = False
    try:
        with closing(run_each(waiting)) as outcomes:
            keep.write_manifest()
            for run, outcome in outcomes:
                keep.add(run, outcome)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        keep.write_tables()
    if not interrupted:
        try:
            keep.complete()
        except KeyboardInterrupt:
            interrupted = True
    results = keep.results()
    results.interrupted = interrupted
    return results


def _rehearse(runs: Sequence[PlannedRun]) -> None:
    """Build each distinct configuration once, so that a wrong one does not come to light hours into a study."""
    built: dict[tuple[Any, ...], frozenset[str]] = {}
    for run in runs:
        spec = run.spec
        key = (run.choice.label, spec.workers, spec.slots, spec.cutoff_s, spec.capacity, spec.slot_request)
        if key not in built:
            built[key] = rehearse(spec)
    roles = frozenset().union(*built.values())
    for spec in {run.point: run.spec for run in runs}.values():
        check_roles(spec, roles)
