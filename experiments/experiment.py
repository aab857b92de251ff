"""Reads experiments: one TOML file per published figure or table, with what to run and the claims to judge.

title, paper, figure, seeds, pictures     what is reproduced, and how often it is run
[[population]]                            machine populations: a file of machines, or the seed of drawn ones
[[workload]]                              a trace on a cluster; `stands_for` names the one that is not to be had
[architectures]                           label = "NAME:parameter=value,...", or a table of readings of the paper
[settled]                                 see `volery.metrics.windows`
[[claim]]                                 see `experiments.claims`
[quick]                                   the cheap variant: so many jobs, seeds and populations
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from experiments.claims import Claim, Name, Side, check_demands
from experiments.closed_forms import parse_analysis
from experiments.measures import SETTLED, check_metric
from volery.core.costs import Frames, HostCosts
from volery.core.errors import InputError, suggestion
from volery.metrics.windows import SettledWindow
from volery.setting import Arrivals, AtLeastOne, AtLeastZero, ConstraintModel, Durations, Gangs, Load, Only
from volery.study.file import read_tables
from volery.study.spec import is_synthetic
from volery.workload import parse_estimates
from volery.workload.models import PLAIN

Picture = Literal[
    "delay_cdf", "utilisation_cdf", "utilisation_ratio", "constraint_load", "conflicts", "analysis", "stage_times",
    "task_response", "makespan", "demand", "slowdown",
]  # fmt: skip
RESULTS, PAPERS, FINDINGS = "results", "papers.toml", "findings.toml"
TRACES_VARIABLE: Final = "VOLERY_TRACES"
EXPERIMENTS_VARIABLE: Final = "VOLERY_EXPERIMENTS"


class MachinePopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Machines and what they satisfy.

    Args:
        label: what tables call it.
        seed: Seed of drawn machine constraints.
        machines: file of machines in the traces folder, or beside the experiments; a workload with another number of
            workers than `machine_count` has its machines drawn from `seed` instead.
        machine_count: how many the file holds.
    """

    label: Name
    seed: AtLeastZero = 0
    machines: Name | None = None
    machine_count: AtLeastOne | None = None


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A trace on a cluster.

    Args:
        label: what tables call it.
        trace: file in the traces folder, or a synthetic workload.
        workers: machines of the cluster.
        stands_for: the workload of the source that this one, made here, stands in for.
        is_source: where the source defines this workload completely, although a generator of ours makes it.
        constraints, load, cutoff_s, jobs, only, durations, arrivals, estimates: as in a study's file.
        requests, capacity, slot_request, users, slots, racks, blocks, reference_mhz, variability, outages, history: as
            in a study's file; a file of requests may lie beside the experiments.
        gangs: as in a study's file, for a trace with rigid jobs; the reading of each is named, and does not depend on
            the designs that run it.
        delay_us: Delay of this workload's messages, in place of the network's.
        hosts: costs of these hosts, in place of those of the same name in the network: for a sweep over costs.
        crashes: Crashes of components, as in a study's file.
    """

    label: Name
    trace: Name
    workers: AtLeastOne
    stands_for: str = ""
    is_source: str = ""
    constraints: ConstraintModel = "sharma2011"
    load: Load | None = None
    cutoff_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    jobs: AtLeastOne | None = None
    only: Only = "ran"
    durations: Durations = "exact"
    arrivals: Arrivals = "exact"
    estimates: str = "mean"
    requests: Name = "none"
    capacity: str = ""
    slot_request: str = ""
    users: Name | None = None
    slots: AtLeastOne = 1
    racks: AtLeastOne = 1
    blocks: str = ""
    reference_mhz: AtLeastZero = 0
    variability: str = ""
    outages: str = ""
    history: str = ""
    gangs: Gangs = "task"
    delay_us: AtLeastZero | None = None
    hosts: dict[str, HostCosts] = {}
    crashes: str = ""


class NetworkCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The costs of messages and work in every run of an experiment.

    Args:
        delay_us, links, costs, hosts, frames: as in a study's file.
    """

    delay_us: AtLeastZero = 500
    links: dict[str, AtLeastZero] = {}
    costs: dict[str, AtLeastZero] = {}
    hosts: dict[str, HostCosts] = {}
    frames: Frames | None = None


class Quick(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The cheap variant.

    Args:
        jobs: only the first so many of each trace.
        seeds: only the first so many.
        populations: only the first so many.
    """

    jobs: AtLeastOne
    seeds: AtLeastOne = 1
    populations: AtLeastOne = 1


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One published figure or table.

    Args:
        title: what it shows.
        paper: key in papers.toml.
        figure: what the paper calls it.
        quick: the cheap variant.
        workload: traces on clusters, at least one.
        population: machines, at least one.
        claim: what is judged, at least one.
        seeds: one run of everything per seed.
        pictures: which pictures are drawn.
        architectures: label -> architecture, or reading of the paper -> architecture.
        network: Costs in every run; a workload may have a delay of its own.
        unseeded: labels of architectures that draw nothing: run under the first seed, which stands for all.
        table: whether the record keeps what was measured beside the claims; another experiment may have it already.
        columns: metrics of a run that the table shows, in place of the usual ones.
        settled: which jobs count in `settled` measures.
        name: Name of the file, set on reading.
        folder: Folder of the file, set on reading.
    """

    title: Name
    paper: Name
    figure: Name
    quick: Quick
    workload: Annotated[tuple[Workload, ...], msgspec.Meta(min_length=1)]
    population: Annotated[tuple[MachinePopulation, ...], msgspec.Meta(min_length=1)]
    claim: Annotated[tuple[Claim, ...], msgspec.Meta(min_length=1)]
    architectures: dict[Name, Name | dict[Name, Name]] = {}
    seeds: Annotated[tuple[AtLeastZero, ...], msgspec.Meta(min_length=1)] = (0, 1, 2)
    unseeded: tuple[Name, ...] = ()
    pictures: tuple[Picture, ...] = ()
    table: bool = True
    columns: tuple[Name, ...] = ()
    settled: SettledWindow | None = None
    network: NetworkCosts = NetworkCosts()
    name: str = ""
    folder: str = ""

    @property
    def stand_ins(self) -> dict[str, str]:
        """Workload -> what it stands for."""
        return {workload.label: workload.stands_for for workload in self.workload if workload.stands_for}

    @property
    def drawn_workloads(self) -> list[str]:
        """The workloads that the seed of a run draws, in whole or in part."""
        return [
            workload.label
            for workload in self.workload
            if is_synthetic(workload.trace)
            or workload.constraints != "none"
            or workload.requests != "none"
            or workload.users is not None
            or workload.blocks
            or workload.estimates not in PLAIN
        ]

    def variants(self) -> Iterator[tuple[str, str, str]]:
        """Label, reading (empty where there is one only) and architecture of all that is run."""
        for label, architecture_or_readings in self.architectures.items():
            if isinstance(architecture_or_readings, dict):
                yield from (
                    (label, reading, architecture) for reading, architecture in architecture_or_readings.items()
                )
            else:
                yield label, "", architecture_or_readings

    def architecture_names(self) -> list[str]:
        """The registered names of all that is run."""
        return sorted({text.partition(":")[0].strip() for _, _, text in self.variants()})

    def readings(self, claim: Claim) -> list[str]:
        """The readings under which a claim is judged: those of the architectures that it names."""
        named = [self.architectures[label] for side in claim.sides for label in side.labels if label]
        readings = [reading for architecture in named if isinstance(architecture, dict) for reading in architecture]
        return list(dict.fromkeys(readings)) or [""]

    def cheap(self) -> Experiment:
        """The quick variant; claims about populations that it leaves out are left out."""
        populations = [population.label for population in self.population[: self.quick.populations]]
        return msgspec.structs.replace(
            self,
            claim=tuple(claim for claim in self.claim if set(claim.populations) <= set(populations)),
            workload=tuple(
                msgspec.structs.replace(workload, jobs=min(workload.jobs or self.quick.jobs, self.quick.jobs))
                for workload in self.workload
            ),
            population=self.population[: self.quick.populations],
            seeds=self.seeds[: self.quick.seeds],
        )


def experiments_folder(named: Path | None = None) -> Path:
    """The folder of experiments: given, from the environment, or the one of this package.

    Raises:
        InputError: the folder that is named does not exist.
    """
    folder = named or Path(os.environ.get(EXPERIMENTS_VARIABLE, Path(__file__).parent))
    if not folder.is_dir():
        raise InputError(str(folder), "is no folder; give the one that holds the experiments")
    return folder


def traces_folder(experiments: Path, named: Path | None = None) -> Path:
    """The folder of traces: given, from the environment, or beside the source tree. It need not exist."""
    if named is not None:
        return named
    if TRACES_VARIABLE in os.environ:
        return Path(os.environ[TRACES_VARIABLE])
    return experiments.absolute().parent.parent / "shared" / "traces"


def names(folder: Path) -> list[str]:
    """The experiments of a folder, in order."""
    return sorted(path.stem for path in folder.glob("*.toml") if path.name not in (PAPERS, FINDINGS))


def claim_id(experiment: str, claim: str) -> str:
    """The id of a claim in the whole lab book."""
    return f"{experiment}/{claim}"


def read_experiment(folder: Path, name: str) -> Experiment:
    """Read an experiment by name.

    Raises:
        InputError: when there is none of that name, or naming the key that is wrong, as `figure06.claim[2].factor`.
    """
    path = folder / f"{name}.toml"
    if not path.exists() or path.name in (PAPERS, FINDINGS):
        raise InputError("experiment", f"{name!r} is none{suggestion(name, names(folder))}")
    experiment: Experiment = read_toml(path, Experiment)
    experiment = msgspec.structs.replace(experiment, name=name, folder=str(folder))
    _check(experiment)
    return experiment


def read_toml(path: Path, kind: type[Any]) -> Any:
    """A TOML file as a type.

    Raises:
        InputError: naming the key that is wrong.
    """
    table = read_tables(path)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        problem, _, path_in_file = str(error).partition(" - at ")
        place = path.stem + path_in_file.strip("`").removeprefix("$")
        unknown_field = re.search(r"unknown field `(\w+)`", problem)
        hint = suggestion(unknown_field.group(1), _fields_at(kind, path_in_file)) if unknown_field else ""
        hint = hint or ("; add it" if "missing required field" in problem else "")
        problem = problem.replace("`", "")
        raise InputError(place, f"{problem[:1].lower()}{problem[1:]}{hint}") from None


def _fields_at(kind: Any, path_in_file: str) -> list[str]:
    """The fields that a table may have, by its path in the file."""
    for part in re.findall(r"\.(\w+)", path_in_file):
        kinds = {field.name: field.type for field in msgspec.structs.fields(kind)}
        kind = next(struct for struct in _structs(kinds[part]))
    return list(kind.__struct_fields__)


def _structs(kind: Any) -> Iterator[Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs(inner)


def _check(experiment: Experiment) -> None:
    """Refuse what the types cannot: names that nothing bears, or that stand twice."""
    root = experiment.name
    for field in ("workload", "population", "claim"):
        key = "id" if field == "claim" else "label"
        labels: list[str] = []
        for i, entry in enumerate(getattr(experiment, field)):
            label_or_id = getattr(entry, key)
            if label_or_id in labels:
                raise InputError(f"{root}.{field}[{i}].{key}", f"{label_or_id!r} stands here twice; call one otherwise")
            labels.append(label_or_id)
    for i, workload in enumerate(experiment.workload):
        parse_estimates(workload.estimates, f"{root}.workload[{i}].estimates")
    for i, metric in enumerate(experiment.columns):
        if check_metric(metric, f"{root}.columns[{i}]"):
            raise InputError(f"{root}.columns[{i}]", f"{metric!r} is measured on the input; take a measure of a run")
        _check_window(experiment, metric, f"{root}.columns[{i}]")
    drawn = experiment.drawn_workloads
    for i, label in enumerate(experiment.unseeded):
        _check_known(label, "architecture", experiment.architectures, f"{root}.unseeded[{i}]")
        if drawn:
            raise InputError(
                f"{root}.unseeded[{i}]", f"workload {drawn[0]!r} is drawn anew for every seed; leave it out"
            )
    for i, population in enumerate(experiment.population):
        if (population.machines is None) != (population.machine_count is None):
            raise InputError(
                f"{root}.population[{i}]", "a file of machines goes with machine_count, and without neither"
            )
    for i, claim in enumerate(experiment.claim):
        _check_claim(experiment, claim, f"{root}.claim[{i}]")
    for i, workload in enumerate(experiment.workload):
        _check_source(workload, f"{root}.workload[{i}]")
    for i, claim in enumerate(experiment.claim):
        check_demands(claim, f"{root}.claim[{i}]")


def _check_source(workload: Workload, place: str) -> None:
    """Refuse a workload that was made for the experiment and does not name the one that it stands for."""
    if workload.stands_for and workload.is_source:
        raise InputError(f"{place}.is_source", "stands_for is given as well; leave one of them out")
    if workload.stands_for or workload.is_source:
        return
    if is_synthetic(workload.trace):
        raise InputError(
            f"{place}.stands_for",
            f"is missing: {workload.trace!r} is made here. Name the workload that it stands for, "
            'or is_source = "section ..." where the source defines it completely',
        )
    if workload.jobs is not None:
        raise InputError(
            f"{place}.stands_for",
            f"is missing: the first {workload.jobs} jobs are a slice. Name the workload that it stands for, "
            'or is_source = "section ..." where the source ran this slice',
        )


def _check_known(name: str, kind: str, names_here: Collection[str], place: str) -> None:
    if name not in names_here:
        raise InputError(place, f"no {kind} {name!r} here{suggestion(name, names_here)}")


def _check_claim(experiment: Experiment, claim: Claim, place: str) -> None:
    workloads = [workload.label for workload in experiment.workload]
    for name in claim.on:
        _check_known(name, "workload", workloads, f"{place}.on")
    populations = [population.label for population in experiment.population]
    for name in claim.populations:
        _check_known(name, "population", populations, f"{place}.populations")
    sizes = []
    for key, side in zip(("left", "right"), claim.sides, strict=False):
        if side.on:
            _check_known(side.on, "workload", workloads, f"{place}.{key}.on")
        of_input = check_metric(side.metric, f"{place}.{key}.metric")
        sizes.append(len(side.labels))
        for label in side.labels:
            if of_input and label:
                raise InputError(f"{place}.{key}.of", f"{side.metric} is measured on the input; leave it out")
            if not of_input:
                _check_known(label, "architecture", experiment.architectures, f"{place}.{key}.of")
    _check_theory(experiment, claim, place)
    if not sizes[0] or any(size not in (1, max(sizes)) for size in sizes):
        raise InputError(f"{place}.left.of", "name as many architectures as on the right, or one on either side")
    if claim.relation == "within" and not (claim.percent or claim.margin):
        raise InputError(f"{place}.relation", "'within' needs a percent or a margin")


def _check_theory(experiment: Experiment, claim: Claim, place: str) -> None:
    """Refuse a closed form that is none, and measures of a window that the experiment does not have."""
    metrics = {f"{place}.left.metric": claim.left.metric}
    if isinstance(claim.right, Side):
        metrics[f"{place}.right.metric"] = claim.right.metric
    elif isinstance(claim.right, str):
        measured = parse_analysis(claim.right, f"{place}.right").measured
        metrics |= {f"{place}.right.{name}": metric for name, metric in measured.items()}
        if any(check_metric(metric, f"{place}.right.{name}") for name, metric in measured.items()):
            raise InputError(f"{place}.right", "takes measures of a run, not of the input")
    for metric_place, metric in metrics.items():
        _check_window(experiment, metric, metric_place)


def _check_window(experiment: Experiment, metric: str, place: str) -> None:
    if experiment.settled is None and metric.partition(".")[0] == SETTLED:
        raise InputError(place, f"{metric!r} needs a table [settled] that says how long the warm-up is")


def find_input(name: str, *folders: Path) -> Path | str | None:
    """A file of one of the folders, a synthetic workload by its name, or None when the file is not here."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    return name if is_synthetic(name) else None
