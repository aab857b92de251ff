"""Keeps what a study has finished: in memory, and in its results folder run by run."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import volery
from volery.metrics import RunSummary
from volery.study.differences import StudyDifference, differences
from volery.study.plan import PlannedRun, code_digest, in_table_order, inputs_key
from volery.study.results import MANIFEST, SUMMARY, FinishedRun, Manifest, ResultsFolder, StoredRun, write_json
from volery.study.runs import Outcome, TraceFacts
from volery.study.spec import StudySpec
from volery.study.tables import write_constraint_load, write_tables


class Results(msgspec.Struct):
    """What a study gave.

    Args:
        study: what was run.
        runs: measures of the finished runs, by setting, architecture and seed.
        differences: the first architecture against the others.
        planned: how many runs the study has.
        reused: how many of the finished ones were in the results folder already.
        traces: the inputs, by digest.
        folder: where the results are, if anywhere.
        interrupted: whether Ctrl-C ended it early.
    """

    study: StudySpec
    runs: list[RunSummary]
    differences: list[StudyDifference]
    planned: int
    reused: int = 0
    traces: dict[str, TraceFacts] = {}
    folder: Path | None = None
    interrupted: bool = False


class Keeper:
    """Holds what is finished, in memory and in the folder."""

    def __init__(
        self, study: StudySpec, planned: Sequence[PlannedRun], folder: Path | None, force: bool, command: str
    ) -> None:
        self.study = study
        self.planned = in_table_order(planned, study)
        self.done: dict[str, StoredRun] = {}
        self.folder = None if folder is None else ResultsFolder(folder)
        self.manifest = new_manifest(study, len(planned), command)
        if self.folder is not None:
            earlier = self.folder.open(study, force)
            if earlier is not None:
                self.manifest = msgspec.structs.replace(self.manifest, created=earlier.created, command=earlier.command)
            for run in self.planned:
                found = self.folder.finished(run.key)
                if found is not None:
                    self.done[run.key] = _relabelled(found, run)
            write_json(self.folder.path / MANIFEST, self.current_manifest())
        self.reused = len(self.done)

    def add(self, run: PlannedRun, outcome: Outcome) -> None:
        """Keep a finished run; in a folder it is safe when this returns."""
        outcome.summary = msgspec.structs.replace(outcome.summary, label=run.spec.label)
        if self.folder is None:
            self.done[run.key] = StoredRun(run.key, run.spec.label, outcome.summary, outcome.trace)
            return
        self.done[run.key] = self.folder.write_run(run.key, run.spec.label, outcome)
        write_json(self.folder.path / MANIFEST, self.current_manifest())

    def close(self, whole: bool) -> None:
        """Write what is derived from the finished runs."""
        if self.folder is None or not self.done:
            return
        write_json(self.folder.path / MANIFEST, self.current_manifest())
        results = self.results()
        write_json(self.folder.path / SUMMARY, {"runs": results.runs, "differences": results.differences})
        finished = [run for run in self.planned if run.key in self.done]
        write_tables(self.folder, finished)
        if whole:
            write_constraint_load(self.folder, finished)
            self.folder.forget_others({key for run in self.planned for key in (run.key, inputs_key(run.spec))})
            from volery.report.html import write_report

            write_report(self.folder.path)

    def results(self) -> Results:
        """What is finished, in the order of the tables."""
        finished = [(run, self.done[run.key]) for run in self.planned if run.key in self.done]
        settings: dict[int, dict[str, list[RunSummary]]] = {}
        for run, stored in finished:
            settings.setdefault(run.point, {}).setdefault(run.spec.label, []).append(stored.summary)
        return Results(
            self.study,
            [stored.summary for _, stored in finished],
            differences(list(settings.values())),
            len(self.planned),
            self.reused,
            {stored.trace.sha256: stored.trace for _, stored in finished},
            None if self.folder is None else self.folder.path,
        )

    def current_manifest(self) -> Manifest:
        """The manifest with the runs that are finished now."""
        finished = [(run, self.done[run.key]) for run in self.planned if run.key in self.done]
        lines = tuple(
            FinishedRun(
                run.key,
                run.spec.architecture,
                run.spec.parameters,
                run.spec.label,
                run.spec.seed,
                stored.summary.digest,
                stored.trace.sha256,
            )
            for run, stored in finished
        )
        return msgspec.structs.replace(self.manifest, trace=finished[0][1].trace if finished else None, runs=lines)


def _relabelled(stored: StoredRun, run: PlannedRun) -> StoredRun:
    """A run that an earlier study called otherwise."""
    summary = msgspec.structs.replace(stored.summary, label=run.spec.label, parameters=run.spec.parameters)
    return StoredRun(run.key, run.spec.label, summary, stored.trace)


def new_manifest(study: StudySpec, planned: int, command: str) -> Manifest:
    """The manifest of a study of which nothing has been run."""
    import numpy as np

    first = next(study.settings())
    return Manifest(
        volery_version=volery.__version__,
        code_sha256=code_digest(),
        python=platform.python_version(),
        numpy=np.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        config=study,
        cluster={
            "workers": first.workers,
            "slots": first.slots,
            "constraints": first.constraints,
            "machines": first.machines,
        },
        seeds=study.seeds,
        planned=planned,
    )
