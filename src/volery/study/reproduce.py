"""Runs an experiment and judges its claims. Finished runs are kept by key and shared between experiments.

FOLDER/runs/KEY.json .npz    one finished run (see `volery.study.results`)
FOLDER/runs/KEY.input        measures of an input
FOLDER/NAME/verdicts.json    what was found (see `volery.study.ledger`)
FOLDER/NAME/*.svg            pictures
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from volery import architectures
from volery.core.errors import InputError
from volery.metrics import (
    RunSummary,
    conflicts_per_second,
    constraint_load,
    distribution,
    total_load,
)
from volery.study.claims import Judgement, Missing, judge
from volery.study.experiments import Experiment, Population, Workload, find_input
from volery.study.measures import SETTLED, InputMeasures, check_metric, constraint_statistics, value
from volery.study.plan import PlannedRun, inputs_key, plan
from volery.study.pool import Watcher, check_places, each_outcome
from volery.study.results import RUNS, ResultsFolder, StoredRun, write_json
from volery.study.runs import read_inputs, rehearse
from volery.study.settled import Settled, settle
from volery.study.spec import SETTING_FIELDS, ArchitectureChoice, make_study, parse_architecture
from volery.study.stagecosts import STAGE_COSTS, Measured, kept_costs, measure_costs

IDLE = "oracle"
"""Stands for the architecture where only the input is measured."""

Place = tuple[str, str, str]
"""Architecture with its reading, workload, population."""


class Plan(msgspec.Struct):
    """The runs of an experiment by place, in order of seeds, and the places that have none with the reason."""

    runs: dict[Place, list[PlannedRun]] = {}
    inputs: dict[tuple[str, str], list[PlannedRun]] = {}
    missing: dict[tuple[str, str], Missing] = {}


def full_label(label: str, reading: str) -> str:
    """What tables call an architecture under a reading."""
    return f"{label} ({reading})" if reading else label


def plan_experiment(experiment: Experiment, traces: Path) -> Plan:
    """Work out the runs.

    Raises:
        InputError: for an unknown architecture or parameter, or a value that is wrong.
    """
    found = Plan()
    variants = [(full_label(label, reading), text) for label, reading, text in experiment.variants()]
    places = {full_label(label, reading): _place(experiment.name, label, reading) for label, reading, _ in
              experiment.variants()}  # fmt: skip
    chosen = {label: _architecture(text, places[label]) for label, text in variants}
    once = {full_label(label, reading) for label, reading, _ in experiment.variants() if label in experiment.unseeded}
    for number, workload in enumerate(experiment.workload):
        for population in experiment.population:
            axes = _axes(workload, population, traces, Path(experiment.folder))
            if isinstance(axes, Missing):
                found.missing[workload.label, population.label] = axes
                continue
            network = msgspec.to_builtins(experiment.network)
            axes |= {name: [value] for name, value in network.items()}

            def place(axis: str, _: int | None, number: int = number) -> str:
                return f"{experiment.name}.workload[{number}].{axis}"

            idle = [parse_architecture(IDLE, IDLE)]
            study = make_study(experiment.name, idle, axes, experiment.seeds, place)
            found.inputs[workload.label, population.label] = plan(study)
            for label, choice in chosen.items():
                seeds = experiment.seeds[:1] if label in once else experiment.seeds
                study = make_study(experiment.name, [choice], axes, seeds, place)
                found.runs[label, workload.label, population.label] = [_labelled(run, label) for run in plan(study)]
    return found


def _architecture(text: str, place: str) -> ArchitectureChoice:
    """What a text names, its parameters checked."""
    choice = parse_architecture(text, place)
    try:
        architectures.configure(architectures.lookup(choice.name), choice.parameters)
    except InputError as error:
        raise InputError(place, f"{error.place}: {error.problem}") from None
    return choice


def _place(root: str, label: str, reading: str) -> str:
    return f"{root}.architectures.{label}" + (f".{reading}" if reading else "")


def _labelled(run: PlannedRun, label: str) -> PlannedRun:
    return msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, label=label))


def _axes(workload: Workload, population: Population, traces: Path, beside: Path) -> dict[str, list[Any]] | Missing:
    """The setting of a workload on a population, as axes of one value each."""
    trace = find_input(workload.trace, traces)
    if trace is None:
        return Missing(f"trace {workload.trace} is not here")
    given = {name: getattr(workload, name) for name in Workload.__struct_fields__ if name in SETTING_FIELDS}
    given |= {"trace": str(trace), "population": population.seed, "machines": None}
    if population.machines is not None and workload.workers == population.machine_count:
        machines = find_input(population.machines, traces, beside)
        if machines is None:
            return Missing(f"machines {population.machines} are not here")
        given |= {"machines": str(machines), "population": None}
    if workload.constraints == "none" and not workload.reference_mhz:
        given |= {"machines": None, "population": None}
    return {name: [setting] for name, setting in given.items()}


class Reproduction(msgspec.Struct):
    """An experiment as far as it was run.

    Args:
        finished: runs by key.
        measured: measures of inputs by workload and population, one per seed.
        stages: what stages cost by key, where that is asked for.
        steady: measures without the warm-up by key, where a claim asked for them.
        interrupted: whether Ctrl-C ended it early.
    """

    experiment: Experiment
    planned: Plan
    store: ResultsFolder
    finished: dict[str, StoredRun] = {}
    measured: dict[tuple[str, str], list[InputMeasures]] = {}
    stages: dict[str, Measured] = {}
    steady: dict[str, Settled] = {}
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every run is finished, and every input measured where that is asked for."""
        runs = {run.key for runs in self.planned.runs.values() for run in runs}
        unmeasured = self.planned.inputs.keys() - self.measured.keys() if _input_roots(self.experiment) else ()
        timed = not _asks_for_stages(self.experiment) or runs <= self.stages.keys()
        return not self.interrupted and runs <= self.finished.keys() and not unmeasured and timed

    @property
    def begun(self) -> bool:
        """Whether anything is finished."""
        return bool(self.finished or self.measured)

    def lookup(self, reading: str) -> Callable[[str, str, str, str], Sequence[float] | Missing]:
        """A lookup for claims, under a reading of the architectures that have several."""

        def found(metric: str, label: str, workload: str, population: str) -> Sequence[float] | Missing:
            missing = self.planned.missing.get((workload, population))
            if missing is not None:
                return missing
            if label:
                several = isinstance(self.experiment.architectures[label], dict)
                runs = self.planned.runs[full_label(label, reading if several else ""), workload, population]
                if any(run.key not in self.finished for run in runs):
                    return Missing("not all runs are finished")
                values = self.values(metric, runs)
                if len(values) == 1:  # what draws nothing gives the same under every seed
                    values *= len(self.experiment.seeds)
                if not values:
                    return Missing("its stages were not measured")
            else:
                measures = self.measured.get((workload, population), [])
                if not measures:
                    return Missing("the input was not measured")
                values = [value(one, metric) for one in measures]
            if any(one is None for one in values):
                return Missing(f"{workload} has no {metric}")
            return [one for one in values if one is not None]

        return found

    def summaries(self, runs: Sequence[PlannedRun]) -> list[RunSummary]:
        """The measures of those that are finished."""
        return [self.finished[run.key].summary for run in runs if run.key in self.finished]

    def values(self, metric: str, runs: Sequence[PlannedRun]) -> list[float | None]:
        """A metric of those runs that are finished; None where a run has no such thing."""
        root, _, rest = metric.partition(".")
        if root == STAGE_COSTS:
            return [one[rest] for run in runs if run.key in self.stages for one in self.stages[run.key].costs]
        if root == SETTLED:
            return [value(self.settled(run), rest) for run in runs if run.key in self.finished]
        return [value(one, metric) for one in self.summaries(runs)]

    def settled(self, run: PlannedRun) -> Settled:
        """The measures of a finished run without its warm-up."""
        if run.key not in self.steady:
            assert self.experiment.settled is not None, "claims about settled runs come with a window"
            jobs, curve = self.store.columns(run.key, "jobs"), self.store.columns(run.key, "curve")
            self.steady[run.key] = settle(jobs, curve, self.experiment.settled, run.spec.label)
        return self.steady[run.key]

    def judgements(self) -> tuple[Judgement, ...]:
        """Every claim, under every reading."""
        experiment = self.experiment
        workloads = [workload.label for workload in experiment.workload]
        populations = [population.label for population in experiment.population]
        return tuple(
            judge(claim, workloads, populations, self.lookup(reading), reading=reading, stand_ins=experiment.stand_ins)
            for claim in experiment.claim
            for reading in experiment.readings(claim)
        )


def reproduce(
    experiment: Experiment,
    *,
    folder: Path,
    traces: Path,
    processes: int = 1,
    dask: str | None = None,
    watcher: Watcher | None = None,
    only_finished: bool = False,
) -> Reproduction:
    """Run what is not finished yet, and measure the inputs; Ctrl-C returns what is there, `interrupted`.

    Args:
        experiment: what to run.
        folder: where finished runs are kept.
        traces: where traces are.
        processes, dask, watcher: as in `volery.study.run_study`.
        only_finished: whether to take what is finished, run and measure nothing.

    Raises:
        InputError: when the experiment is wrong or the folder cannot be written.
        LostRunError: when a run's process died.
    """
    check_places(processes, dask)
    planned = plan_experiment(experiment, traces)
    store = _open(folder)
    found = Reproduction(experiment, planned, store)
    everything = {run.key: run for runs in planned.runs.values() for run in runs}
    for key in everything:
        stored = store.finished(key)
        if stored is not None:
            found.finished[key] = stored
    if only_finished:
        _measure_inputs(found, only_finished)
        _measure_stages(found, only_finished)
        return found
    waiting = [run for run in everything.values() if run.key not in found.finished]
    for spec in {(run.choice.label, run.spec.workers, run.spec.cutoff_s): run.spec for run in waiting}.values():
        rehearse(spec)
    try:
        with closing(each_outcome(_by_input(waiting), processes, watcher, dask)) as outcomes:
            for run, outcome in outcomes:
                found.finished[run.key] = store.write_run(run.key, outcome)
        _measure_inputs(found, only_finished)
        _measure_stages(found, only_finished)
    except KeyboardInterrupt:
        found.interrupted = True
    return found


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


def _measure_inputs(found: Reproduction, only_finished: bool) -> None:
    """Measure the inputs, where a claim or a picture asks for it; or take those that were measured for every seed."""
    roots = _input_roots(found.experiment)
    if not roots:
        return
    with_conflicts = "conflicts" in roots
    for place, runs in found.planned.inputs.items():
        kept = [_kept_measures(run, found.store, with_conflicts) for run in runs]
        if not only_finished:
            kept = [
                one or _input_measures(run, found.store, with_conflicts) for run, one in zip(runs, kept, strict=True)
            ]
        whole = [one for one in kept if one is not None]
        if len(whole) == len(runs):
            found.measured[place] = whole


def _asks_for_stages(experiment: Experiment) -> bool:
    metrics = {side.metric for claim in experiment.claim for side in claim.sides} | set(experiment.columns)
    return any(metric.startswith(f"{STAGE_COSTS}.") for metric in metrics) or "stage_times" in experiment.pictures


def _measure_stages(found: Reproduction, only_finished: bool) -> None:
    """Measure what stages cost, where that is asked for, or take what was measured."""
    if not _asks_for_stages(found.experiment):
        return
    folder, repetitions = found.store.path / RUNS, len(found.experiment.seeds)
    groups = list(found.planned.runs.values())

    def missing(group: Sequence[PlannedRun]) -> bool:
        kept = [kept_costs(folder, run.key) for run in group]
        return any(one is None or len(one.costs) * len(group) != repetitions for one in kept)

    if not only_finished:
        measure_costs([group for group in groups if missing(group)], repetitions, folder)
    for run in (run for group in groups if not missing(group) for run in group):
        measured = kept_costs(folder, run.key)
        assert measured is not None, "nothing is missing of this group"
        found.stages[run.key] = measured


def _input_roots(experiment: Experiment) -> set[str]:
    """Which measures of the input claims and pictures ask for; what is empty asks for none."""
    metrics = [side.metric for claim in experiment.claim for side in claim.sides]
    roots = {metric.partition(".")[0] for metric in metrics if check_metric(metric, experiment.name)}
    return roots | (set(experiment.pictures) & {"constraint_load", "conflicts"})


def _measures_path(run: PlannedRun, store: ResultsFolder) -> Path:
    return store.path / RUNS / f"{inputs_key(run.spec)}.input"


def _kept_measures(run: PlannedRun, store: ResultsFolder, with_conflicts: bool) -> InputMeasures | None:
    """What was measured earlier, unless it is damaged or lacks the conflicts; without them where nobody asks for them.

    So an experiment's record says the same whatever was run before it in the same folder.
    """
    try:
        kept = msgspec.json.decode(_measures_path(run, store).read_bytes(), type=InputMeasures)
    except (OSError, msgspec.DecodeError):
        return None
    if not with_conflicts:
        return msgspec.structs.replace(kept, conflicts={})
    return kept if kept.conflicts else None


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
