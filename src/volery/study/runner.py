"""Runs a study or a comparison: what its results folder has is taken from there, and nothing finished is lost.

A study that adds seeds looks at its comparisons after each. Those that decide when it ends are of median, mean and p99
delay of all jobs, of the baseline with each other architecture in each setting. A comparison is decided at a look when
its interval excludes "no difference", with the confidence of that look and after Holm's correction; when every pair of
values is equal; or when nothing is random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError
from volery.report.schema import BUDGET, DECIDED, LIMIT, Reason, StudyEnd, StudyLook
from volery.statistics import IDENTICAL, NOT_RANDOM, ComparedMeans
from volery.study.plan import PlannedRun, plan
from volery.study.pool import check_places, each_outcome
from volery.study.results import sole_writer
from volery.study.runs import Execution, check_roles, execution, rehearse
from volery.study.spec import (
    StudySpec,
    is_file,
    is_synthetic,
    make_study,
    parse_architecture,
    read_seeds,
    split_parameters,
)
from volery.study.watcher import LookWatcher, Outcomes, Watcher, tell
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
        folder: folder for the results; a study that was stopped there is continued.
        processes: 1 runs in this process; a larger number runs so many fresh processes at once, one per run. A script
            that asks for more than one must guard its own start with `if __name__ == "__main__":`.
        dask: address of the scheduler of a Dask cluster that runs them instead, tcp://HOST:PORT.
        force: true lets a folder that holds another study be taken over.
        watcher: receives the progress of the runs.
        command: the command that the manifest names.

    Raises:
        InputError: when anything that the study names is wrong, before the first run where that can be known.
        LostRunError: when a run's process or worker died.
    """
    check_places(processes, dask)
    planned = plan(study)

    with sole_writer(folder):
        writer = ResultsWriter.begin(study, planned, folder, force, command)

        def run_each(runs: Sequence[PlannedRun]) -> Outcomes:
            return each_outcome(runs, processes, watcher, dask, partial(may_begin, writer))

        return _run(writer, watcher, run_each)


def _run(
    writer: ResultsWriter, watcher: Watcher | None, run_each: Callable[[Sequence[PlannedRun]], Outcomes]
) -> Results:
    # A study that was stopped between two looks continues with the seeds that its folder holds, not with the first
    # ones.
    if writer.study.auto and writer.seeds_before not in (0, len(writer.study.seeds)):
        _extend(writer, with_count(writer.study, writer.seeds_before))
    # Every run is built once before the first one runs: a wrong parameter shows at once, not after hours.
    _rehearse(_waiting(writer))

    interrupted = False

    try:
        _run_waiting(writer, run_each)
        while (following := grown(writer)) is not None:
            if isinstance(watcher, LookWatcher) and writer.study.auto:
                watcher.looked(len(writer.study.seeds), writer.study.auto.seeds_max, undecided(writer.differences()))
            _extend(writer, following)
            _run_waiting(writer, run_each)
        _end_adding(writer)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        # What is finished stays usable after Ctrl-C or an error of one run.
        writer.write_tables()

    if not interrupted and is_whole(writer):
        try:
            writer.complete()
        except KeyboardInterrupt:
            interrupted = True

    results = writer.results()
    results.interrupted = interrupted
    return results


def _waiting(writer: ResultsWriter) -> list[PlannedRun]:
    """The runs that are not finished, each once."""
    waiting = list({run.key: run for run in writer.planned if run.key not in writer.done}.values())
    return by_seed(waiting) if writer.study.auto else waiting


def _run_waiting(writer: ResultsWriter, run_each: Callable[[Sequence[PlannedRun]], Outcomes]) -> None:
    with closing(run_each(_waiting(writer))) as outcomes:
        writer.forget_end()
        writer.write_manifest()
        for run, outcome in outcomes:
            writer.add(run, outcome)


def _extend(writer: ResultsWriter, study: StudySpec) -> None:
    writer.extend(study, plan(study))


def _end_adding(writer: ResultsWriter) -> None:
    """Keep the whole seeds of a study that adds seeds, and the reason of its end."""
    if not writer.study.auto:
        return
    if not is_whole(writer):  # the budget has ended
        study = whole_seeds(writer)
        writer.take(study, plan(study))
    if is_whole(writer):
        writer.manifest = msgspec.structs.replace(writer.manifest, stopping=study_end(writer))


def run_alone(study: StudySpec, watcher: Watcher | None = None) -> tuple[Results, Execution]:
    """Run the only run of a study in this process, with its records in memory.

    Args:
        study: a study of one architecture, setting and seed.
        watcher: receives the progress of the run.

    Raises:
        InputError: when anything that the study names is wrong.
    """
    (run,) = planned = plan(study)
    _rehearse(planned)
    writer = ResultsWriter.begin(study, planned, None, force=False, command="")
    run_execution = again(run, watcher)
    writer.add(run, run_execution.outcome)
    return writer.results(), run_execution


def again(run: PlannedRun, watcher: Watcher | None = None) -> Execution:
    """Run a planned run in this process, and keep its records."""
    if watcher is not None:
        watcher.expected(1)
        watcher.started(run)
    run_execution = execution(run.spec, partial(tell, watcher, run))
    tell(watcher, run, run_execution.outcome)
    return run_execution


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


DECIDING: Final = frozenset({"median delay", "mean delay", "p99 delay"})


def deciding(compared: Sequence[ComparedMeans]) -> list[ComparedMeans]:
    """The comparisons that decide when a study stops."""
    return [difference for difference in compared if difference.jobs == "all" and difference.quantity in DECIDING]


def is_decided(compared: ComparedMeans) -> bool:
    """True if more seeds are not needed to tell the two apart, or cannot."""
    return compared.difference.is_shown or compared.difference.verdict in (IDENTICAL, NOT_RANDOM)


def by_seed(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs seed by seed, so that a budget that ends leaves as many whole seeds as it can."""
    return sorted(runs, key=lambda run: run.spec.seed)


def grown(writer: ResultsWriter) -> StudySpec | None:
    """The study with the seeds of its next look; None where it adds none.

    It adds none where its seeds are given, a budget has ended, every comparison is decided, or the limit is reached.
    """
    study = writer.study
    if not study.auto or not is_whole(writer) or len(study.seeds) >= study.auto.seeds_max:
        return None
    return with_count(study, len(study.seeds) + 1) if undecided(writer.differences()) else None


def undecided(compared: Sequence[ComparedMeans]) -> int:
    """The number of comparisons that decide when to stop, and are not decided."""
    return sum(not is_decided(difference) for difference in deciding(compared))


def with_count(study: StudySpec, seeds: int) -> StudySpec:
    """The study with the seeds of the first look at or after a number of seeds."""
    assert study.auto, "a study whose seeds are given has no looks"
    return msgspec.structs.replace(study, seeds=tuple(range(study.auto.look_from(seeds))))


def may_begin(writer: ResultsWriter) -> bool:
    """True while the runs of a study have not used up its budget; always true without one."""
    budget_s = writer.study.auto.budget_s if writer.study.auto else None
    return budget_s is None or sum(stored.summary.cpu_s for stored in writer.done.values()) < budget_s


def is_whole(writer: ResultsWriter) -> bool:
    """True if every run of the study is finished."""
    return all(run.key in writer.done for run in writer.planned)


def whole_seeds(writer: ResultsWriter) -> StudySpec:
    """The study with the seeds before the first of which a run is missing; with one seed where there is none.

    The look at these seeds is remembered.
    """
    lacking = {run.spec.seed for run in writer.planned if run.key not in writer.done}
    count = max(min(lacking, default=len(writer.study.seeds)), 1)
    auto = writer.study.auto.ended_at(count) if writer.study.auto else writer.study.auto
    return msgspec.structs.replace(writer.study, seeds=tuple(range(count)), auto=auto)


def study_end(writer: ResultsWriter, baseline: str = "") -> StudyEnd:
    """The end of a study that adds seeds: its reason, and all looks.

    Args:
        writer: every run of the study is finished.
        baseline: label of the architecture that the others were compared with; empty: the study's.
    """
    auto, count = writer.study.auto, len(writer.study.seeds)
    assert auto, "a study whose seeds are given has no reason to stop"

    looks = auto.looks_of(count)
    seed_counts = [count_of_look for count_of_look in looks.counts if count_of_look <= count]
    comparisons = [deciding(writer.differences(count_of_look, baseline)) for count_of_look in seed_counts]
    looks_told = [
        StudyLook(count_of_look, looks.confidence_at(count_of_look), undecided=undecided(at))
        for count_of_look, at in zip(seed_counts, comparisons, strict=True)
    ]

    reason: Reason = DECIDED if not looks_told[-1].undecided else LIMIT if count >= auto.seeds_max else BUDGET

    baseline_label = baseline or writer.study.baseline or writer.study.choices()[0].label
    return StudyEnd(reason, baseline_label, len(comparisons[-1]), tuple(looks_told), auto.seeds_max, auto.budget_s)


def compare_spec(
    architectures: Sequence[str],
    setting: Mapping[str, Any],
    seeds: int | Sequence[int] | str,
    place: Callable[[str], str] = str,
    *,
    baseline: str = "",
    seeds_max: int | None = None,
    budget_s: float | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
) -> StudySpec:
    """The study that a comparison is: one setting, or those of its axes.

    Args:
        architectures: `NAME` or `NAME:parameter=value,...`.
        setting: value per field of `Setting`; file names are made absolute, so that the results can be verified from
            anywhere.
        seeds: a number of seeds (0, 1, ...), or a list of them; "auto" adds seeds until every comparison is decided.
        place: maps a field's name to the caller's name of it, for error messages.
        baseline: the one that the others are compared with; empty: the first.
        seeds_max, budget_s: with "auto": the largest number of seeds (30), and CPU seconds of all runs together.
        axes: values per field of the setting, or per `design.parameter`, as [axes] of a study file.

    Raises:
        InputError: naming the first value that is wrong.
    """
    choices = [parse_architecture(text, place("architectures")) for text in architectures]
    setting_axes, parameters = split_parameters(axes or {})

    def place_of(axis: str, number: int | None) -> str:
        if axis not in setting_axes and axis not in parameters:
            return place(axis)
        return f"{place('axes')}.{axis}" + ("" if number is None else f"[{number}]")

    for axis, values in (setting_axes | parameters).items():
        if axis in setting:
            raise InputError(place_of(axis, None), f"is given beside {place('axes')} as well; leave one out")
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputError(place_of(axis, None), f"expected a list of values, not {values!r}; write [{values!r}]")

    points = {name: [value] for name, value in setting.items()} | setting_axes
    points = {
        name: [absolute(value) if is_file(name, value) else value for value in values]
        for name, values in points.items()
    }
    first, auto = read_seeds(seeds, seeds_max, budget_s, place)
    return make_study(
        "comparison", choices, points, first, place_of, parameters=parameters, baseline=baseline, auto=auto
    )


def absolute(name: str | Path | None) -> str | None:
    """A file's absolute name; what stands for synthetic work, and None, stay."""
    if name is None or (is_synthetic(str(name)) and not Path(name).exists()):
        return None if name is None else str(name)
    return str(Path(name).absolute())
