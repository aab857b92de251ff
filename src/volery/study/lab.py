"""Runs a study: what is finished is taken from its results folder, the rest is run, and nothing finished is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from volery.study.looks import (
    by_seed,
    grown,
    is_whole,
    may_begin,
    study_end,
    undecided,
    whole_seeds,
    with_count,
)
from volery.study.plan import PlannedRun, plan
from volery.study.pool import check_places, each_outcome
from volery.study.results import sole_writer
from volery.study.runs import check_roles, rehearse
from volery.study.spec import StudySpec
from volery.study.watcher import LookWatcher, Outcomes, Watcher
from volery.study.writer import Results, ResultsWriter


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
        keep = ResultsWriter.begin(study, planned, folder, force, command)
        return _run(keep, watcher, lambda runs: each_outcome(runs, processes, watcher, dask, lambda: may_begin(keep)))


def _run(keep: ResultsWriter, watcher: Watcher | None, run_each: Callable[[Sequence[PlannedRun]], Outcomes]) -> Results:
    if keep.study.auto and keep.seeds_before not in (0, len(keep.study.seeds)):
        _extend(keep, with_count(keep.study, keep.seeds_before))
    _rehearse(_waiting(keep))
    interrupted = False
    try:
        if keep.study.auto:
            keep.forget_end()
        _run_waiting(keep, run_each)
        while (following := grown(keep)) is not None:
            if isinstance(watcher, LookWatcher) and keep.study.auto:
                watcher.looked(len(keep.study.seeds), keep.study.auto.seeds_max, undecided(keep.differences()))
            _extend(keep, following)
            _run_waiting(keep, run_each)
        _end_adding(keep)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        keep.write_tables()
    if not interrupted and is_whole(keep):
        try:
            keep.complete()
        except KeyboardInterrupt:
            interrupted = True
    results = keep.results()
    results.interrupted = interrupted
    return results


def _waiting(keep: ResultsWriter) -> list[PlannedRun]:
    """The runs that are not finished, each once."""
    waiting = list({run.key: run for run in keep.planned if run.key not in keep.done}.values())
    return by_seed(waiting) if keep.study.auto else waiting


def _run_waiting(keep: ResultsWriter, run_each: Callable[[Sequence[PlannedRun]], Outcomes]) -> None:
    with closing(run_each(_waiting(keep))) as outcomes:
        keep.write_manifest()
        for run, outcome in outcomes:
            keep.add(run, outcome)


def _extend(keep: ResultsWriter, study: StudySpec) -> None:
    keep.extend(study, plan(study))


def _end_adding(keep: ResultsWriter) -> None:
    """Keep the whole seeds of a study that adds seeds, and the reason of its end."""
    if not keep.study.auto:
        return
    if not is_whole(keep):  # the budget has ended
        study = whole_seeds(keep)
        keep.take(study, plan(study))
    if is_whole(keep):
        keep.manifest = msgspec.structs.replace(keep.manifest, stopping=study_end(keep))


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
