"""Runs an experiment and judges its claims. Finished runs are kept by key and shared between experiments.

FOLDER/runs/KEY.json .npz    one finished run (see `volery.study.results`)
FOLDER/runs/KEY.input        measures of an input
FOLDER/NAME/verdicts.json    what was found (see `experiments.records`)
FOLDER/NAME/*.svg            pictures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from experiments.claims import Judgement
from experiments.experiment import Experiment, MachinePopulation, Workload, find_input
from experiments.judgement import Missing
from experiments.measures import (
    SETTLED,
    STAGE_COSTS,
    InputMeasures,
    StageCosts,
    check_metric,
    constraint_statistics,
    kept_costs,
    measure_costs,
    value,
)
from experiments.values import (
    COUNTERS,
    Absent,
    InputValues,
    Kept,
    Place,
    RunDigest,
    ValueTable,
    claim_metrics,
    full_label,
    kept_metrics,
    rounded,
)
from volery import architectures
from volery.core.errors import InputError
from volery.integrity import unsealed
from volery.metrics import (
    RunSummary,
    conflicts_per_second,
    constraint_load,
    distribution,
    total_load,
)
from volery.metrics.windows import SteadyState, settle
from volery.report.schema import RUNS, StoredRun
from volery.statistics import InterimLook
from volery.study.plan import PlannedRun, inputs_key, plan
from volery.study.pool import check_places, each_outcome
from volery.study.results import ResultsFolder, write_json
from volery.study.runs import read_inputs, rehearse
from volery.study.spec import SETTING_FIELDS, ArchitectureChoice, is_file, make_study, parse_architecture
from volery.study.watcher import Watcher
from volery.workload import states_gangs

CONFLICTS = "conflicts"
IDLE = "oracle"
"""Stands for the architecture where only the input is measured."""

Drawn = Mapping[Place, Sequence[int]]
"""Place -> its seeds, where these are more than the experiment names; the empty architecture stands for the input."""


class ExperimentPlan(msgspec.Struct):
    """The runs of an experiment by place, in order of seeds, and the places that have none with the reason."""

    runs: dict[Place, list[PlannedRun]] = {}
    inputs: dict[tuple[str, str], list[PlannedRun]] = {}
    missing: dict[tuple[str, str], Missing] = {}


def plan_experiment(experiment: Experiment, traces: Path, drawn: Drawn | None = None) -> ExperimentPlan:
    """Work out the runs, with the experiment's seeds, or those drawn for a place.

    Raises:
        InputError: for an unknown architecture or parameter, or a value that is wrong.
    """
    experiment_plan = ExperimentPlan()
    drawn = drawn or {}
    variants = [(full_label(label, reading), text) for label, reading, text in experiment.variants()]
    places = {full_label(label, reading): _place(experiment.name, label, reading) for label, reading, _ in
              experiment.variants()}  # fmt: skip
    choices = {label: _architecture(text, places[label]) for label, text in variants}
    once = {full_label(label, reading) for label, reading, _ in experiment.variants() if label in experiment.unseeded}
    for number, workload in enumerate(experiment.workload):
        for population in experiment.population:
            axes = _axes(workload, population, traces, experiment)
            if isinstance(axes, Missing):
                experiment_plan.missing[workload.label, population.label] = axes
                continue
            network = msgspec.to_builtins(experiment.network)
            axes = {name: [value] for name, value in network.items()} | axes

            def place(axis: str, _: int | None, number: int = number) -> str:
                return f"{experiment.name}.workload[{number}].{axis}"

            idle = [parse_architecture(IDLE, IDLE)]
            place_of_input = (workload.label, population.label)
            study = make_study(experiment.name, idle, axes, drawn.get(("", *place_of_input), experiment.seeds), place)
            experiment_plan.inputs[place_of_input] = plan(study)
            for label, choice in choices.items():
                seeds = experiment.seeds[:1] if label in once else drawn.get((label, *place_of_input), experiment.seeds)
                study = make_study(experiment.name, [choice], axes, seeds, place)
                experiment_plan.runs[(label, *place_of_input)] = [_labelled(run, label) for run in plan(study)]
    return experiment_plan


def _architecture(text: str, place: str) -> ArchitectureChoice:
    choice = parse_architecture(text, place)
    try:
        architectures.choose(choice.name, choice.parameters)
    except InputError as error:
        raise InputError(place, f"{error.place}: {error.problem}") from None
    return choice


def _place(root: str, label: str, reading: str) -> str:
    return f"{root}.architectures.{label}" + (f".{reading}" if reading else "")


def _labelled(run: PlannedRun, label: str) -> PlannedRun:
    return msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, label=label))


def _axes(
    workload: Workload, population: MachinePopulation, traces: Path, experiment: Experiment
) -> dict[str, list[Any]] | Missing:
    """The setting of a workload on a population, as axes of one value each."""
    experiment_folder = Path(experiment.folder)
    trace = find_input(workload.trace, traces)
    if trace is None:
        return Missing(f"trace {workload.trace} is not here")
    setting_values = {name: getattr(workload, name) for name in Workload.__struct_fields__ if name in SETTING_FIELDS}
    if workload.delay_us is None:
        del setting_values["delay_us"]
    if not states_gangs(str(trace)):
        del setting_values["gangs"]  # keys of runs of other work, which the reading does not concern, stay valid
    setting_values["hosts"] = msgspec.to_builtins(experiment.network.hosts | workload.hosts)
    setting_values |= {"trace": str(trace), "population": population.seed, "machines": None}
    if is_file("requests", workload.requests):
        requests = find_input(workload.requests, traces, experiment_folder)
        if requests is None:
            return Missing(f"requests {workload.requests} are not here")
        setting_values["requests"] = str(requests)
    if population.machines is not None and workload.workers == population.machine_count:
        machines = find_input(population.machines, traces, experiment_folder)
        if machines is None:
            return Missing(f"machines {population.machines} are not here")
        setting_values |= {"machines": str(machines), "population": None}
    if workload.constraints == "none" and not workload.reference_mhz:
        setting_values |= {"machines": None, "population": None}
    return {name: [setting] for name, setting in setting_values.items()}


class Reproduction(msgspec.Struct):
    """An experiment as far as it was run.

    Args:
        recorded: Values of a record; where a run's key is the recorded one, its values are taken from there.
        measured: measures of inputs by workload and population, one per seed.
        stages: what stages cost by key, where that is asked for.
        steady: measures without the warm-up by key, where a claim asked for them.
        seeds: Seeds in the order in which they were drawn; the experiment's own come first.
        stopped: why no further seed was drawn; empty where none was asked for.
    """

    experiment: Experiment
    planned: ExperimentPlan
    store: ResultsFolder
    recorded: ValueTable | None = None
    finished: dict[str, StoredRun] = {}
    measured: dict[tuple[str, str], list[InputMeasures]] = {}
    stages: dict[str, StageCosts] = {}
    steady: dict[str, SteadyState] = {}
    interrupted: bool = False
    seeds: tuple[int, ...] = ()
    looks: tuple[InterimLook, ...] = ()
    stopped: str = ""

    @property
    def complete(self) -> bool:
        """True if every run is finished, and every input measured where that is asked for."""
        recorded = self.recorded_runs()
        runs = {run.key for runs in self.planned.runs.values() for run in runs} - recorded.keys()
        unmeasured = False
        if _input_roots(self.experiment):
            recorded_inputs = self.recorded_inputs()
            unmeasured = any(
                place not in self.measured and any(inputs_key(run.spec) not in recorded_inputs for run in inputs)
                for place, inputs in self.planned.inputs.items()
            )
        untimed = self.repetitions().keys() - recorded.keys() - self.stages.keys()
        return not self.interrupted and runs <= self.finished.keys() and not unmeasured and not untimed

    @property
    def begun(self) -> bool:
        """True if any run or input is finished."""
        return bool(self.finished or self.measured or self.recorded_runs())

    @property
    def drawable(self) -> bool:
        """True if every run that counts has its columns here, from which pictures are made."""
        return not self.recorded_runs()

    def repetitions(self) -> dict[str, int]:
        """By key, how often each run with timed stages is timed; seeds that were drawn for other claims are not."""
        if not _asks_for_stages(self.experiment):
            return {}
        seeds = self.experiment.seeds
        timed = [[run.key for run in runs if run.spec.seed in seeds] for runs in self.planned.runs.values()]
        return {key: len(seeds) // len(keys) for keys in timed for key in keys}

    def recorded_runs(self) -> dict[str, RunDigest]:
        """By key, the recorded runs that are not stored here, with the values that are asked for now."""
        if self.recorded is None:
            return {}
        metrics, repetitions = kept_metrics(self.experiment)[0], self.repetitions()
        rows: Iterator[RunDigest] = _with_values(self.recorded.runs, self.recorded.metrics, metrics)
        return {
            row.key: row
            for row in rows
            if row.key not in self.finished and _is_timed(row, metrics, repetitions.get(row.key, 0))
        }

    def recorded_inputs(self) -> dict[str, InputValues]:
        """By key, the recorded inputs, with the values that are asked for now."""
        if self.recorded is None:
            return {}
        metrics = kept_metrics(self.experiment)[1]
        rows: Iterator[InputValues] = _with_values(self.recorded.inputs, self.recorded.input_metrics, metrics)
        with_conflicts = CONFLICTS in _input_roots(self.experiment)
        return {row.key: row for row in rows if _has_conflicts(row, metrics) == with_conflicts}

    def table(self) -> ValueTable:
        """The values of all that is finished or recorded."""
        metrics, input_metrics = kept_metrics(self.experiment)
        runs, recorded = [], self.recorded_runs()
        for place, planned in self.planned.runs.items():
            for run in planned:
                if run.key in self.finished:
                    values = tuple(self._kept(run, metric) for metric in metrics)
                    summary = self.finished[run.key].summary
                    cpu_s = round(summary.cpu_s, 1)
                    runs.append(RunDigest(*place, run.spec.seed, summary.digest, run.key, values, cpu_s))
                elif run.key in recorded:
                    row = recorded[run.key]
                    runs.append(RunDigest(*place, run.spec.seed, row.digest, run.key, row.values, row.cpu_s))
        return ValueTable(
            metrics=metrics,
            input_metrics=input_metrics,
            runs=tuple(runs),
            inputs=tuple(self._inputs(input_metrics)),
            absent=tuple(Absent(*place, missing.why) for place, missing in self.planned.missing.items()),
        )

    def _kept(self, run: PlannedRun, metric: str) -> Kept:
        """The row that a table of values keeps of a finished run."""
        root, _, metric_part = metric.partition(".")
        if root == STAGE_COSTS:
            timed = self.stages.get(run.key)
            return tuple(float(f"{costs[metric_part]:.10g}") for costs in timed.costs) if timed else None
        if metric.startswith(COUNTERS) and metric_part not in self.finished[run.key].summary.counters:
            return None
        return rounded(self.values(metric, [run])[0])

    def _inputs(self, metrics: Sequence[str]) -> Iterator[InputValues]:
        recorded = self.recorded_inputs()
        for place, runs in self.planned.inputs.items():
            measured = self.measured.get(place)
            for number, run in enumerate(runs):
                key, seed = inputs_key(run.spec), run.spec.seed
                if measured is not None:
                    values = [rounded(_input_value(measured[number], metric)) for metric in metrics]
                    yield InputValues(*place, seed, key, tuple(values))
                elif key in recorded:
                    yield InputValues(*place, seed, key, recorded[key].values)

    def summaries(self, runs: Sequence[PlannedRun]) -> list[RunSummary]:
        """The measures of those that are finished."""
        return [self.finished[run.key].summary for run in runs if run.key in self.finished]

    def values(self, metric: str, runs: Sequence[PlannedRun]) -> list[float | None]:
        """A metric of those runs that are finished; None where a run has no such thing."""
        root, _, metric_part = metric.partition(".")
        if root == STAGE_COSTS:
            return [
                measures[metric_part]
                for run in runs
                if run.key in self.stages
                for measures in self.stages[run.key].costs
            ]
        if root == SETTLED:
            return [value(self.settled(run), metric_part) for run in runs if run.key in self.finished]
        return [value(measures, metric) for measures in self.summaries(runs)]

    def settled(self, run: PlannedRun) -> SteadyState:
        """The measures of a finished run without its warm-up."""
        if run.key not in self.steady:
            assert self.experiment.settled is not None, "claims about settled runs come with a window"
            jobs, curve = self.store.columns(run.key, "jobs"), self.store.columns(run.key, "curve")
            self.steady[run.key] = settle(jobs, curve, self.experiment.settled, run.spec.label)
        return self.steady[run.key]

    def judgements(self) -> tuple[Judgement, ...]:
        """Every claim, under every reading."""
        return self.table().judgements(self.experiment, self.looks, self.seeds)


def _with_values(rows: Sequence[Any], recorded_metrics: Sequence[str], metrics: Sequence[str]) -> Iterator[Any]:
    """The recorded rows with the values of these metrics alone; none where one was not recorded."""
    if set(metrics) <= set(recorded_metrics):
        places = [recorded_metrics.index(metric) for metric in metrics]
        yield from (msgspec.structs.replace(row, values=tuple([row.values[at] for at in places])) for row in rows)


def _is_timed(row: RunDigest, metrics: Sequence[str], repetitions: int) -> bool:
    """True if the stages of a recorded run were timed as often as is asked for."""
    return not repetitions or all(
        isinstance(value, tuple) and len(value) == repetitions
        for value, metric in zip(row.values, metrics, strict=True)
        if metric.startswith(f"{STAGE_COSTS}.")
    )


def _has_conflicts(row: InputValues, metrics: Sequence[str]) -> bool:
    """True if conflicts were measured on a recorded input."""
    return any(
        value is not None and metric.startswith(f"{CONFLICTS}.")
        for value, metric in zip(row.values, metrics, strict=True)
    )


def _input_value(measures: InputMeasures, metric: str) -> float | None:
    """A metric of an input; None where it was not measured, as conflicts that nobody asked for."""
    if metric.startswith(f"{CONFLICTS}.") and not measures.conflicts:
        return None
    if metric.startswith("constraint_load.") and not measures.constraint_load:
        return None
    return value(measures, metric)


def reproduce(
    experiment: Experiment,
    *,
    folder: Path,
    traces: Path,
    processes: int = 1,
    dask: str | None = None,
    watcher: Watcher | None = None,
    only_finished: bool = False,
    recorded: ValueTable | None = None,
    drawn: Drawn | None = None,
) -> Reproduction:
    """Run what is not finished yet, and measure the inputs; Ctrl-C returns what is there, `interrupted`.

    Args:
        folder: where finished runs are kept.
        processes, dask, watcher: as in `volery.study.run_study`.
        only_finished: whether to take what is finished, run and measure nothing.
        recorded: Values of an earlier record; what they hold under the same key is not run again.
        drawn: seeds per place, where these are more than the experiment's.

    Raises:
        InputError: when the experiment is wrong or the folder cannot be written.
        LostRunError: when a run's process died.
    """
    check_places(processes, dask)
    planned = plan_experiment(experiment, traces, drawn)
    store = _open(folder)
    reproduction = Reproduction(experiment, planned, store, recorded)
    reproduction.seeds = experiment.seeds
    reproduction.looks = (InterimLook(len(experiment.seeds)),)

    planned_runs = {run.key: run for runs in planned.runs.values() for run in runs}
    for key in planned_runs:
        stored = store.finished(key)
        if stored is not None:
            reproduction.finished[key] = stored

    if only_finished:
        _measure_inputs(reproduction, only_finished)
        _measure_stages(reproduction, only_finished)
        return reproduction

    # A key tells all that a run depends on, so that a value of a record under the same key is the run's own.
    present_keys = reproduction.finished.keys() | reproduction.recorded_runs().keys()
    waiting = [run for run in planned_runs.values() if run.key not in present_keys]
    for spec in {(run.choice.label, run.spec.workers, run.spec.cutoff_s): run.spec for run in waiting}.values():
        rehearse(spec)  # an architecture that refuses its setting does so before the first run, not hours later

    try:
        with closing(each_outcome(_by_input(waiting), processes, watcher, dask)) as outcomes:
            for run, outcome in outcomes:
                reproduction.finished[run.key] = store.write_run(run.key, outcome)
        _measure_inputs(reproduction, only_finished)
        _measure_stages(reproduction, only_finished)
    except KeyboardInterrupt:
        reproduction.interrupted = True
    return reproduction


def _by_input(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Runs that share their input stand together: it is read once."""
    keys = {run.key: inputs_key(run.spec) for run in runs}
    order = {key: place for place, key in enumerate(dict.fromkeys(keys.values()))}
    return sorted(runs, key=lambda run: order[keys[run.key]])


def _open(folder: Path) -> ResultsFolder:
    try:
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror}") from None
    return ResultsFolder(folder)


def _measure_inputs(reproduction: Reproduction, only_finished: bool) -> None:
    """Measure the inputs, where a claim or a picture asks for it; or take those that were measured for every seed."""
    roots = _input_roots(reproduction.experiment)
    if not roots:
        return

    with_conflicts = CONFLICTS in roots
    recorded = reproduction.recorded_inputs()
    for place, runs in reproduction.planned.inputs.items():
        if all(inputs_key(run.spec) in recorded for run in runs):
            continue
        stored_measures = [_kept_measures(run, reproduction.store, with_conflicts) for run in runs]
        if not only_finished:
            stored_measures = [
                measures or _input_measures(run, reproduction.store, with_conflicts)
                for run, measures in zip(runs, stored_measures, strict=True)
            ]
        complete_measures = [measures for measures in stored_measures if measures is not None]
        if len(complete_measures) == len(runs):
            reproduction.measured[place] = complete_measures


def _asks_for_stages(experiment: Experiment) -> bool:
    metrics = {metric for claim in experiment.claim for metric in claim_metrics(claim)} | set(experiment.columns)
    return any(metric.startswith(f"{STAGE_COSTS}.") for metric in metrics) or "stage_times" in experiment.pictures


def _measure_stages(reproduction: Reproduction, only_finished: bool) -> None:
    """Measure what stages cost, where that is asked for, or take what was measured."""
    if not _asks_for_stages(reproduction.experiment):
        return

    folder = reproduction.store.path / RUNS
    repetitions = len(reproduction.experiment.seeds)
    recorded = reproduction.recorded_runs()
    timed = reproduction.repetitions()
    planned = ([run for run in runs if run.key in timed] for runs in reproduction.planned.runs.values())
    groups = [runs for runs in planned if any(run.key not in recorded for run in runs)]

    def missing(group: Sequence[PlannedRun]) -> bool:
        stored_costs = [kept_costs(folder, run.key) for run in group]
        return any(costs is None or len(costs.costs) * len(group) != repetitions for costs in stored_costs)

    if not only_finished:
        measure_costs([group for group in groups if missing(group)], repetitions, folder)
    for run in (run for group in groups if not missing(group) for run in group):
        measured = kept_costs(folder, run.key)
        assert measured is not None, "nothing is missing of this group"
        reproduction.stages[run.key] = measured


def _input_roots(experiment: Experiment) -> set[str]:
    """The measures of the input that claims and pictures need; empty for none."""
    metrics = [side.metric for claim in experiment.claim for side in claim.sides]
    roots = {metric.partition(".")[0] for metric in metrics if check_metric(metric, experiment.name)}
    return roots | (set(experiment.pictures) & {"constraint_load", "conflicts"})


def _measures_path(run: PlannedRun, store: ResultsFolder) -> Path:
    return store.path / RUNS / f"{inputs_key(run.spec)}.input"


def _kept_measures(run: PlannedRun, store: ResultsFolder, with_conflicts: bool) -> InputMeasures | None:
    """The stored measures, unless they are damaged or lack conflicts that are needed.

    So an experiment's record says the same whatever was run before it in the same folder.
    """
    try:
        path = _measures_path(run, store)
        measures = msgspec.json.decode(unsealed(path.read_bytes(), path), type=InputMeasures)
    except (OSError, ValueError):
        return None
    if not with_conflicts:
        return msgspec.structs.replace(measures, conflicts={})
    return measures if measures.conflicts else None


def _input_measures(run: PlannedRun, store: ResultsFolder, with_conflicts: bool) -> InputMeasures:
    inputs = read_inputs(run.spec)
    loads = constraint_load(inputs.trace, inputs.cluster)
    conflicts = {}
    if with_conflicts:
        per_second = conflicts_per_second(inputs.trace, inputs.cluster)
        conflicts = {name: distribution(getattr(per_second, name)) for name in ("waiting", "collisions")}
    measures = InputMeasures(
        total_load(inputs.trace, inputs.cluster), constraint_statistics(loads), conflicts, tuple(loads)
    )
    write_json(_measures_path(run, store), measures)
    return measures
