"""Comparisons and single runs: each call is one study, as a command or a study file would make it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Unpack

from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.lab.comparison import Comparison, Simulation
from volery.lab.design import Definitions, Design, chosen_designs
from volery.lab.errors import CALLS, arguments_named, check_files, check_known, check_type, plain
from volery.lab.inputs import TRACE_FIELDS, ClusterSource, TraceSource
from volery.lab.inputs import trace as trace_source
from volery.lab.owntable import is_arrow, kept_tables
from volery.lab.progress import LiveProgress
from volery.setting import SettingFields, SettingOptions
from volery.study import PlannedRun, RunOutcome, compare_spec, load_results, run_study
from volery.study.runner import run_alone

COMPARE: Final = "volery.compare in Python"
"""The command that manifests name."""


class ComparisonOptions(SettingOptions, total=False):
    """Further arguments of `compare`: the fields of a setting, limits of added seeds, and what is done with a folder.

    Attributes:
        seeds_max, budget_s: with seeds="auto", the largest number of seeds (30), and CPU seconds of all runs.
        force: true lets a folder that holds another study be taken over.
        progress: false draws none; else it is drawn on a terminal and in a notebook.
    """

    seeds_max: int | None
    budget_s: float | None
    force: bool
    progress: bool


class RunOptions(SettingOptions, total=False):
    """Further arguments of `simulate`: the fields of a setting, and `progress` as in `ComparisonOptions`."""

    progress: bool


class _Watch(LiveProgress):
    """Keeps the columns of jobs of runs that end, beside drawing the progress."""

    def __init__(self, silent: bool) -> None:
        super().__init__(silent)
        self.columns: dict[str, Mapping[str, Any]] = {}

    def ended(self, run: PlannedRun, outcome: RunOutcome) -> None:
        """Keep the jobs of a run."""
        self.columns[run.key] = outcome.jobs
        super().ended(run, outcome)


def compare(
    *designs: str | Design | Architecture,
    trace: object = None,
    workers: int | None = None,
    cluster: ClusterSource | None = None,
    seeds: int | Sequence[int] | Literal["auto"] = 1,
    axes: Mapping[str, Sequence[Any]] | None = None,
    baseline: str = "",
    folder: str | Path | None = None,
    processes: int = 1,
    **options: Unpack[ComparisonOptions],
) -> Comparison:
    """Run designs on the same jobs and machines, seed by seed, and compare them.

    It is the study of the command `volery compare`, or of a study file: the same digests and errors. A call from
    another thread waits until this one ends.

    Args:
        designs: names as "pigeon:weight=20", results of `architecture`, or an `Architecture` of the program.
        trace: file, spec, result of `volery.trace`, or a table in memory.
        workers: number of machines; or a cluster.
        cluster: result of `volery.cluster`, in place of `workers` and the fields that describe machines.
        seeds: number of seeds, a list of them, or "auto": seeds are added until every comparison is decided.
        axes: values per field of a setting, or per "design.parameter", as [axes] of a study file: every combination is
            run.
        baseline: name or label of the design that the others are compared with; empty: the first.
        folder: folder for tables, report and digests, as the command's -o; a study that was stopped there is continued.
        processes: runs at once, each in a process of its own; 1 runs in this process. Designs and policies of the
            program are in forked copies of this process.
        options: see `ComparisonOptions`; `volery.setting.Setting` has the meanings of the fields.

    Raises:
        InputError: an argument is wrong; the error names it and the fix.
        LostRunError: the process of a run ended without an answer.
        KeyboardInterrupt: Ctrl-C; finished runs stay in the folder, and the same call continues there.
    """
    check_known(options, [*SettingFields.__annotations__, *ComparisonOptions.__annotations__])
    setting: dict[str, Any] = dict(options)
    limits = {name: plain(setting.pop(name, None)) for name in ("seeds_max", "budget_s")}
    force = check_type("force", setting.pop("force", False), bool, "True or False")
    progress = check_type("progress", setting.pop("progress", True), bool, "True or False")

    check_type("baseline", baseline, str, "the name of a design")
    results_folder = _folder(folder) if folder is not None else None
    processes = check_type("processes", processes, int, "a number >= 1")
    labels, definitions = chosen_designs(designs, "designs")
    axes = _axes(axes or {}, setting)
    setting = _setting(setting, trace, workers, cluster, axes)
    named = setting | {"designs": labels, "folder": results_folder} | {f"axes.{name}": axes[name] for name in axes}

    with (
        _call(named, definitions),
        kept_tables(results_folder, setting, axes, named),
        _Watch(silent=not progress) as watcher,
    ):
        study = compare_spec(labels, setting, plain(seeds), _place, baseline=baseline, axes=axes, **limits)
        results = run_study(
            study, folder=results_folder, processes=processes, force=force, watcher=watcher, command=COMPARE
        )

    if results.interrupted:
        raise KeyboardInterrupt
    return Comparison(results, watcher.columns, definitions, is_silent=not progress)


def simulate(
    design: str | Design | Architecture,
    *,
    trace: object = None,
    workers: int | None = None,
    cluster: ClusterSource | None = None,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> Simulation:
    """Run one design once, with all records in memory.

    Args:
        design: name, result of `architecture`, or an `Architecture` of the program.
        trace, workers, cluster: see `compare`.
        seed: seed of all random streams.
        options: fields of a setting, and `progress`; see `compare`.

    Raises:
        InputError: an argument is wrong; the error names it and the fix.
    """
    check_known(options, [*SettingFields.__annotations__, *RunOptions.__annotations__])
    setting: dict[str, Any] = dict(options)
    progress = check_type("progress", setting.pop("progress", True), bool, "True or False")
    seed = check_type("seed", seed, int, "a whole number")
    labels, definitions = chosen_designs([design], "design")
    setting = _setting(setting, trace, workers, cluster, {})

    with _call(setting | {"design": labels[0]}, definitions), _Watch(silent=not progress) as watcher:
        results, execution = run_alone(compare_spec(labels, setting, [seed], _place_in_run), watcher)
    return Simulation(results, watcher.columns, definitions, execution.records, execution.inputs.cluster)


def load(folder: str | Path, baseline: str = "") -> Comparison:
    """Read a results folder of `compare`, or of the commands `volery compare` and `volery run`.

    Args:
        folder: folder of the results; a study that has not ended gives what is finished.
        baseline: design that the others are compared with; empty: that of the study.

    Raises:
        InputError: it is no results folder, a file of it is damaged, or it has no such design.
    """
    results_folder = _folder(folder)
    check_type("baseline", baseline, str, "the name of a design")
    with _call({"folder": results_folder}, Definitions()):
        return Comparison(load_results(results_folder, baseline), {}, Definitions())


def _folder(folder: object) -> Path:
    return Path(check_type("folder", folder, (str, Path), "the name of a folder")).absolute()


def _place(field: str) -> str:
    return "designs" if field == "architectures" else field


def _place_in_run(field: str) -> str:
    return {"architectures": "design", "seeds": "seed"}.get(field, field)


@contextmanager
def _call(arguments: Mapping[str, Any], definitions: Definitions) -> Iterator[None]:
    """One call at a time, with the definitions of the program, and errors that name its arguments."""
    with arguments_named(arguments), CALLS, definitions.handed_over():
        yield


def _axes(given: object, setting: Mapping[str, Any]) -> dict[str, Any]:
    """The axes with plain values, of traces the files and specs.

    Raises:
        InputError: an axis has no name, a file is missing, or a trace stands for more than a file.
    """
    axes: dict[Any, Any] = check_type("axes", given, Mapping, "a table of lists, as {'load': [0.5, 0.9]}")
    for name in axes:
        check_type("axes", name, str, "names of fields, or of parameters as 'pigeon.weight'")
    axes = {name: plain(values) for name, values in axes.items()}

    for name, values in axes.items():
        for number, value in enumerate(values if isinstance(values, list) else ()):
            place = f"axes.{name}[{number}]"
            if name == "trace":
                fields = _of_trace(value, place, setting)
                if len(fields) > 1:
                    others = ", ".join(fields.keys() - {"trace"})
                    raise InputError(place, f"states {others}, too; read it without, and give that to the call")
                values[number] = value = fields["trace"]
            check_files({name: value}, **{name: place})
    return axes


def _of_trace(trace: object, place: str, setting: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a setting that a trace stands for.

    Args:
        setting: fields of the call; a table in memory is read as they say.

    Raises:
        InputError: at the place; it is no trace.
    """
    if is_arrow(trace):
        try:
            reading: Any = {name: setting[name] for name in setting if name in TRACE_FIELDS}
            return {"trace": trace_source(trace, **reading).setting["trace"]}
        except InputError as error:
            raise InputError(error.place.replace("source", place, 1), error.problem) from None
    if isinstance(trace, TraceSource):
        return trace.setting
    check_type(place, trace, (str, Path), "a file, a spec, a table or the result of volery.trace")
    return {"trace": trace}


def _setting(
    fields: Mapping[str, Any],
    trace: object,
    workers: int | None,
    cluster: ClusterSource | None,
    axes: Mapping[str, Any],
) -> dict[str, Any]:
    """The setting that fields, a trace and a cluster make together, as a study has it.

    Raises:
        InputError: an argument is given twice, is missing, or names no file.
    """
    check_type("cluster", cluster, (ClusterSource, type(None)), "the result of volery.cluster")

    setting = {name: plain(value) for name, value in fields.items() if value is not None}
    givers = dict.fromkeys(setting, "the call itself") | dict.fromkeys(axes, "axes")
    parts: list[tuple[str, Mapping[str, Any]]] = [
        ("trace", _of_trace(trace, "trace", fields) if trace is not None else {}),
        ("cluster", cluster.setting if cluster is not None else {}),
        ("workers", {"workers": plain(workers)}),
    ]
    for argument, part in parts:
        for name, value in part.items():
            if value is None:
                continue
            if name in givers:
                raise InputError(name, f"is given twice, in {givers[name]} and in {argument}; leave one out")
            setting[name], givers[name] = value, argument

    for name, example in (("trace", "a file, or 'syn:250x300'"), ("workers", "a number of machines, or a cluster")):
        if name not in setting and name not in axes:
            raise InputError(name, f"is missing; give {example}")
    check_files(setting)
    return setting
