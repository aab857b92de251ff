"""Keeps what a study has finished: in memory, and in its results folder run by run."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

import volery
from volery.core.errors import InputError
from volery.integrity import SUMS, remove_sums
from volery.metrics import RunSummary
from volery.report.schema import (
    CONFLICTS,
    CONSTRAINT_LOAD,
    FLOWS,
    HEAT,
    JOBS,
    MANIFEST,
    REPORT,
    SUMMARY,
    TASK_RUNS,
    UTILISATION,
    FinishedRun,
    StoredRun,
    StudyEnd,
    StudySummary,
    TraceFacts,
)
from volery.statistics import ComparedJobs, ComparedMeans
from volery.study.designs import write_flows
from volery.study.differences import JobTimes, differences, on_days_like_this
from volery.study.plan import (
    PlannedRun,
    content_digest,
    in_table_order,
    inputs_key,
    outline,
    recorded_parameters,
    study_digest,
)
from volery.study.results import (
    ResultsFolder,
    StudyManifest,
    write_conflicts,
    write_constraint_load,
    write_json,
    write_sums,
    write_tables,
)
from volery.study.runs import RunOutcome
from volery.study.spec import RunSpec, StudySpec, is_drawn, is_file, with_baseline


class Results(msgspec.Struct):
    """The results of a study: runs, comparisons, and their folder.

    Args:
        runs: measures of the finished runs, by setting, architecture and seed.
        differences: the baseline against the others, over the seeds.
        on_days_like_this: the same for single runs of the first seed, job by job: the chance of the workload. Empty
            where every seed draws a workload of its own, so that `differences` cover both kinds of chance.
        planned: number of runs of the study.
        reused: number of finished runs that the results folder held before.
        traces: facts of the inputs, by digest.
        folder: the folder of the results; None without one.
        stopping: the reason why a study that adds seeds has ended; None for other studies, and while it has not.
        keys: (label, seed) of each finished run -> its key.
    """

    study: StudySpec
    runs: list[RunSummary]
    differences: list[ComparedMeans]
    on_days_like_this: list[ComparedJobs]
    planned: int
    reused: int = 0
    traces: dict[str, TraceFacts] = {}
    folder: Path | None = None
    interrupted: bool = False
    stopping: StudyEnd | None = None
    keys: dict[tuple[str, int], str] = {}


class ResultsWriter:
    """Holds what is finished, in memory and in the folder."""

    def __init__(
        self,
        manifest: StudyManifest,
        planned: Sequence[PlannedRun],
        folder: ResultsFolder | None,
        stored_runs: dict[str, StoredRun],
    ) -> None:
        self.study = manifest.config
        self.planned = in_table_order(planned, self.study)
        self.folder = folder
        self.manifest = manifest
        self.done = stored_runs
        self.reused = len(stored_runs)
        self.seeds_before = 0
        """Seeds that an earlier call of a study that adds seeds has begun."""

        self._takes_over = False
        self._comparisons_of: dict[tuple[int, int, str], list[ComparedMeans]] = {}
        self._jobs: dict[str, JobTimes] = {}
        self._on_days: dict[tuple[str, ...], list[ComparedJobs]] = {}

    @classmethod
    def begin(
        cls, study: StudySpec, planned: Sequence[PlannedRun], path: Path | None, force: bool, command: str
    ) -> ResultsWriter:
        """Begin a study, or go on with one that its folder holds.

        Raises:
            InputError: when the folder cannot be used (see `ResultsFolder.open`).
        """
        manifest = new_manifest(study, len(planned), command)
        if path is None:
            return cls(manifest, planned, None, {})

        folder = ResultsFolder(path)
        earlier = folder.open(study, force)

        if earlier is not None:
            manifest = msgspec.structs.replace(manifest, created=earlier.created, command=earlier.command)
            if study.auto and earlier.config.auto:
                auto = msgspec.structs.replace(study.auto, budget_looks=earlier.config.auto.budget_looks)
                manifest = msgspec.structs.replace(manifest, config=msgspec.structs.replace(study, auto=auto))

        writer = cls(manifest, planned, folder, _stored(folder, planned))

        writer.seeds_before = len(earlier.config.seeds) if earlier is not None else 0
        writer._takes_over = earlier is None
        return writer

    @classmethod
    def reopen(cls, path: Path, baseline: str = "") -> ResultsWriter:
        """The writer of a folder, whether or not its inputs and the code that made it are still there.

        Args:
            baseline: the architecture that the others are compared with; empty: the study's.

        Raises:
            InputError: when it is no results folder, a finished run in it is missing or damaged, or the study has no
                such architecture.
        """
        folder = ResultsFolder(path)

        manifest = folder.manifest()
        if baseline:
            config = with_baseline(manifest.config, baseline, "--baseline")
            manifest = msgspec.structs.replace(manifest, config=config)

        # The keys of the manifest, not those of today: inputs may have moved, and the code may have changed.
        keys = {(line.label, line.seed): line.key for line in manifest.runs}
        planned = [
            msgspec.structs.replace(run, key=keys.get((run.spec.label, run.spec.seed), ""))
            for run in outline(manifest.config, recorded_parameters)
        ]
        stored_runs = _stored(folder, [run for run in planned if run.key])

        lost_run = next((line for line in manifest.runs if line.key not in stored_runs), None)
        if lost_run is not None:
            raise InputError(
                str(path),
                f"the run {lost_run.label!r} with seed {lost_run.seed} is missing or damaged; run the study again",
            )

        return cls(manifest, planned, folder, stored_runs)

    def add(self, run: PlannedRun, outcome: RunOutcome) -> None:
        """Keep a finished run; in a folder it is safe when this returns."""
        if self.folder is None:
            self.done[run.key] = StoredRun(run.key, outcome.summary, outcome.trace)
            if self._may_be_compared_by_job(run):
                self._jobs[run.key] = JobTimes.of(run.spec.seed, outcome.jobs)
            return
        self.done[run.key] = self.folder.write_run(run.key, outcome)
        self.write_manifest()

    def extend(self, study: StudySpec, planned: Sequence[PlannedRun]) -> None:
        """Go on with more seeds of the same study; what the folder holds of their runs is not run again."""
        self.take(study, planned)
        if self.folder is not None:
            stored_runs = _stored(self.folder, [run for run in planned if run.key not in self.done])
            self.done |= stored_runs
            self.reused += len(stored_runs)

    def take(self, study: StudySpec, planned: Sequence[PlannedRun]) -> None:
        """Change the seeds of the study; finished runs of other seeds stay in the folder."""
        self.study = study
        self.planned = in_table_order(planned, study)
        self.manifest = msgspec.structs.replace(self.manifest, config=study, seeds=study.seeds, planned=len(planned))

    def write_tables(self) -> None:
        """Write what is derived from the finished runs alone."""
        if self.folder is None or not self.done:
            return
        self.write_manifest()
        remove_sums(self.folder.path)
        results = self.results()
        summary = StudySummary(results.runs, results.differences, results.on_days_like_this)
        write_json(self.folder.path / SUMMARY, summary)
        write_tables(self.folder, [run for run, _ in self._finished()], self.study)
        write_sums(self.folder.path)

    def complete(self) -> None:
        """All runs are finished: write the rest, and forget what belongs to no run of the study."""
        if self.folder is None:
            return
        remove_sums(self.folder.path)
        write_constraint_load(self.folder, self.planned)
        write_conflicts(self.folder, self.planned)
        write_flows(self.folder.path, (run.spec for run in self.planned))
        inputs = {inputs_key(run.spec) for run in self.planned}
        self.folder.forget_others({run.key for run in self.planned} | self.done.keys() | inputs)
        self.write_report()

    def forget_end(self) -> None:
        """Remove what an earlier end has written: a study that goes on to add seeds has no page until it ends again.

        Of another study, whose folder is taken over, nothing stays but runs and what was measured of them.
        """
        derived = (SUMMARY, SUMS, JOBS, UTILISATION, TASK_RUNS, HEAT) if self._takes_over else ()
        if self.folder is not None and (self.study.auto or self._takes_over):
            for name in (*derived, CONSTRAINT_LOAD, CONFLICTS, FLOWS, REPORT):
                (self.folder.path / name).unlink(missing_ok=True)
        self._takes_over = False

    def write_report(self) -> Path:
        """Write report.html.

        Raises:
            ValueError: when nothing is kept on disk.
        """
        from volery.report.html import write_report
        from volery.study.answers import Explanations

        if self.folder is None:
            raise ValueError("a study without a folder has no report")
        remove_sums(self.folder.path)
        page = write_report(self.folder.path, Explanations(self.folder.path).longest())
        write_sums(self.folder.path)
        return page

    def results(self) -> Results:
        """The finished runs in the order of the tables."""
        finished = self._finished()
        return Results(
            self.study,
            [stored.summary for _, stored in finished],
            self.differences(),
            self._on_days_like_this([run for run, _ in finished]),
            len(self.planned),
            min(self.reused, len(self.planned)),
            {stored.trace.sha256: stored.trace for _, stored in finished},
            None if self.folder is None else self.folder.path,
            stopping=self.manifest.stopping or None,
            keys={(run.spec.label, run.spec.seed): run.key for run, _ in finished},
        )

    def differences(self, seeds: int | None = None, baseline: str = "") -> list[ComparedMeans]:
        """The comparisons of the finished runs.

        Args:
            seeds: only the first so many, with the confidence of a look at them; None: all.
            baseline: label of the architecture that the others are compared with; empty: the study's.
        """
        among = self.study.seeds[:seeds]
        baseline = baseline or self.study.baseline

        # Each new run asks again after every comparison: equal questions have equal answers until the next run ends.
        state = len(self.done), len(among), baseline
        if state in self._comparisons_of:
            return self._comparisons_of[state]

        confidence = msgspec.structs.replace(self.study, seeds=among).confidence
        settings: dict[int, dict[str, list[RunSummary]]] = {}
        for run, stored in self._finished():
            if run.spec.seed in among:
                settings.setdefault(run.point, {}).setdefault(run.spec.label, []).append(stored.summary)

        self._comparisons_of[state] = differences(list(settings.values()), self._baselines(baseline), confidence)
        return self._comparisons_of[state]

    def _is_compared_by_job(self, run: PlannedRun) -> bool:
        """True for runs of the first seed, unless every seed draws a workload of its own."""
        seeds = self.study.seeds
        return run.spec.seed == seeds[0] and (len(seeds) == 1 or not is_drawn(run.spec.trace))

    def _may_be_compared_by_job(self, run: PlannedRun) -> bool:
        """True for runs that are compared by job, and for those that will be if a budget leaves one seed."""
        return run.spec.seed == self.study.seeds[0] and (bool(self.study.auto) or self._is_compared_by_job(run))

    def _on_days_like_this(self, finished: Sequence[PlannedRun]) -> list[ComparedJobs]:
        settings: dict[int, dict[str, str]] = {}
        for run in filter(self._is_compared_by_job, finished):
            settings.setdefault(run.point, {})[run.spec.label] = run.key

        comparisons: list[ComparedJobs] = []
        for keys in (keys for keys in settings.values() if len(keys) > 1):
            keys_of_setting = tuple(keys.values())
            if keys_of_setting not in self._on_days:
                jobs = {label: self._job_times(key) for label, key in keys.items()}
                self._on_days[keys_of_setting] = on_days_like_this(jobs, self._baselines(self.study.baseline))
            comparisons += self._on_days[keys_of_setting]
        return comparisons

    def _job_times(self, key: str) -> JobTimes:
        if self.folder is None:
            return self._jobs[key]
        return JobTimes.of(self.study.seeds[0], self.folder.columns(key, "jobs"))

    def _baselines(self, baseline: str) -> frozenset[str]:
        """The labels, one per setting, of the architecture that the others are compared with."""
        return frozenset(run.spec.label for run in self.planned if run.choice.label == baseline)

    def _finished(self) -> list[tuple[PlannedRun, StoredRun]]:
        """The finished runs under the names of this study: another may have called an equal run otherwise."""
        finished = [(run, self.done[run.key]) for run in self.planned if run.key in self.done]
        return [
            (run, msgspec.structs.replace(stored, summary=self._named(stored.summary, run.spec)))
            for run, stored in finished
        ]

    def _named(self, summary: RunSummary, spec: RunSpec) -> RunSummary:
        axes = self.study.axis_values(spec)
        return msgspec.structs.replace(summary, label=spec.label, parameters=spec.parameters, axes=axes)

    def write_manifest(self) -> None:
        """Write the manifest with the runs that are finished now."""
        if self.folder is None:
            return
        finished = self._finished()

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

        trace = finished[0][1].trace if finished else None
        write_json(self.folder.path / MANIFEST, msgspec.structs.replace(self.manifest, trace=trace, runs=lines))


def _stored(folder: ResultsFolder, planned: Sequence[PlannedRun]) -> dict[str, StoredRun]:
    stored_runs = ((run, folder.finished(run.key)) for run in planned)
    return {run.key: stored for run, stored in stored_runs if stored is not None}


def new_manifest(study: StudySpec, planned: int, command: str) -> StudyManifest:
    """The manifest of a study of which nothing has been run."""
    first = next(study.settings())
    return StudyManifest(
        volery_version=volery.__version__,
        code_sha256=study_digest(study),
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
            **({"capacity": first.capacity} if first.capacity else {}),
            **({"load_by": first.load_by} if first.load is not None else {}),
        },
        seeds=study.seeds,
        planned=planned,
        inputs=_digests(study),
    )


def _digests(study: StudySpec) -> dict[str, str]:
    """SHA-256 of the files that a study names and that are there."""
    names = [str(value) for axis, values in study.axes.items() for value in values if is_file(axis, value)]
    return {name: content_digest(name) for name in names if Path(name).is_file()}


def load_results(path: Path, baseline: str = "") -> Results:
    """The results in a folder, of a study that is finished or not.

    Args:
        baseline: the architecture that the others are compared with; empty: the study's.

    Raises:
        InputError: when it is no results folder, or damaged.
    """
    return ResultsWriter.reopen(path, baseline).results()


def write_results_report(path: Path, baseline: str = "") -> Path:
    """Write report.html of a results folder, and before it whatever it is derived from; the path of the report.

    Args:
        baseline: the architecture that the others are compared with from now on; empty: the study's.

    Raises:
        InputError: when it is no results folder, is damaged or cannot be written, or no run in it has finished.
    """
    writer = ResultsWriter.reopen(path, baseline)
    if not writer.done:
        raise InputError(str(path), "no run of this study has finished; there is nothing to report")
    writer.write_tables()
    return writer.write_report()
