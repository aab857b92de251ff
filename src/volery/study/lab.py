"""Runs a study or a comparison: what its results folder has is taken from there, and nothing finished is lost.

A study that adds seeds looks at its comparisons after each. Those that decide when it ends are of median, mean and p99
delay of all jobs, of the baseline with each other architecture in each setting. A comparison is decided at a look when
its interval excludes "no difference", with the confidence of that look and after Holm's correction; when every pair of
values is equal; or when nothing is random.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal, Unpack, get_type_hints

import msgspec

from volery.report.schema import BUDGET, DECIDED, LIMIT, Reason, StudyEnd, StudyLook
from volery.setting import Setting, SettingFields
from volery.statistics import IDENTICAL, NOT_RANDOM, ComparedMeans
from volery.study.plan import PlannedRun, plan
from volery.study.pool import check_places, each_outcome
from volery.study.results import sole_writer
from volery.study.runs import check_roles, rehearse
from volery.study.seeds import read_seeds
from volery.study.spec import DEFAULTS, StudySpec, is_file, is_synthetic, make_study, parse_architecture
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
        keep.forget_end()
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


DECIDING: Final = frozenset({"median delay", "mean delay", "p99 delay"})


def deciding(compared: Sequence[ComparedMeans]) -> list[ComparedMeans]:
    """The comparisons that decide when a study stops."""
    return [one for one in compared if one.jobs == "all" and one.quantity in DECIDING]


def is_decided(compared: ComparedMeans) -> bool:
    """True if more seeds are not needed to tell the two apart, or cannot."""
    return compared.difference.is_shown or compared.difference.verdict in (IDENTICAL, NOT_RANDOM)


def by_seed(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs seed by seed, so that a budget that ends leaves as many whole seeds as it can."""
    return sorted(runs, key=lambda run: run.spec.seed)


def grown(keep: ResultsWriter) -> StudySpec | None:
    """The study with the seeds of its next look; None where it adds none.

    It adds none where its seeds are given, a budget has ended, every comparison is decided, or the limit is reached.
    """
    study = keep.study
    if not study.auto or not is_whole(keep) or len(study.seeds) >= study.auto.seeds_max:
        return None
    return with_count(study, len(study.seeds) + 1) if undecided(keep.differences()) else None


def undecided(compared: Sequence[ComparedMeans]) -> int:
    """The number of comparisons that decide when to stop, and are not decided."""
    return sum(not is_decided(one) for one in deciding(compared))


def with_count(study: StudySpec, seeds: int) -> StudySpec:
    """The study with the seeds of the first look at or after a number of seeds."""
    assert study.auto, "a study whose seeds are given has no looks"
    return msgspec.structs.replace(study, seeds=tuple(range(study.auto.look_from(seeds))))


def may_begin(keep: ResultsWriter) -> bool:
    """True while the runs of a study have not used up its budget; always true without one."""
    budget_s = keep.study.auto.budget_s if keep.study.auto else None
    return budget_s is None or sum(stored.summary.cpu_s for stored in keep.done.values()) < budget_s


def is_whole(keep: ResultsWriter) -> bool:
    """True if every run of the study is finished."""
    return all(run.key in keep.done for run in keep.planned)


def whole_seeds(keep: ResultsWriter) -> StudySpec:
    """The study with the seeds before the first of which a run is missing; with one seed where there is none.

    The look at these seeds is remembered.
    """
    lacking = {run.spec.seed for run in keep.planned if run.key not in keep.done}
    count = max(min(lacking, default=len(keep.study.seeds)), 1)
    auto = keep.study.auto.ended_at(count) if keep.study.auto else keep.study.auto
    return msgspec.structs.replace(keep.study, seeds=tuple(range(count)), auto=auto)


def study_end(keep: ResultsWriter, baseline: str = "") -> StudyEnd:
    """The end of a study that adds seeds: its reason, and all looks.

    Args:
        keep: every run of the study is finished.
        baseline: label of the architecture that the others were compared with; empty: the study's.
    """
    auto, count = keep.study.auto, len(keep.study.seeds)
    assert auto, "a study whose seeds are given has no reason to stop"
    looks = auto.looks_of(count)
    counts = [one for one in looks.counts if one <= count]
    found = [deciding(keep.differences(one, baseline)) for one in counts]
    told = [
        StudyLook(one, looks.confidence_at(one), undecided=undecided(at)) for one, at in zip(counts, found, strict=True)
    ]
    reason: Reason = DECIDED if not told[-1].undecided else LIMIT if count >= auto.seeds_max else BUDGET
    against = baseline or keep.study.baseline or keep.study.choices()[0].label
    return StudyEnd(reason, against, len(found[-1]), tuple(told), auto.seeds_max, auto.budget_s)


def compare(
    *architectures: str,
    seeds: int | Sequence[int] | Literal["auto"] = 1,
    seeds_max: int | None = None,
    budget_s: float | None = None,
    baseline: str = "",
    processes: int = 1,
    folder: Path | None = None,
    force: bool = False,
    watcher: Watcher | None = None,
    **setting: Unpack[SettingFields],
) -> Results:
    """Run every architecture on the same jobs, task constraints and machines, seed by seed.

    Args:
        architectures: `NAME` or `NAME:parameter=value,...`.
        seeds: how many (0, 1, ...), or which; "auto" adds seeds until every comparison is decided.
        seeds_max, budget_s: with "auto": the largest number of seeds (30), and CPU seconds of all runs together.
        baseline: the one that the others are compared with; empty: the first.
        processes, folder, force, watcher: as in `run_study`.
        setting: the fields of `volery.setting.Setting`, of which `trace` and `workers` are needed.

    Raises:
        InputError: when anything that is named here is wrong.
        LostRunError: when a run's process died.
    """
    given = {name: _builtin(value) for name, value in setting.items() if value is not None}
    study = compare_spec(architectures, given, seeds, baseline=baseline, seeds_max=seeds_max, budget_s=budget_s)
    return run_study(
        study, folder=folder, processes=processes, force=force, watcher=watcher, command="volery.study.compare"
    )


def _builtin(value: Any) -> Any:
    """A value as a study file has it: tables, lists and texts; a path stays, and is made absolute."""
    if isinstance(value, Mapping):
        return msgspec.to_builtins(dict(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value


def _with_setting(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function with the fields of `Setting` in place of `**setting`, for `help`."""
    signature, hints = inspect.signature(function), get_type_hints(SettingFields)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    fields = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.required else DEFAULTS[field.name],
            annotation=hints[field.name],
        )
        for field in msgspec.structs.fields(Setting)
    ]
    return signature.replace(parameters=[own[0], *fields, *own[1:]])


compare.__signature__ = _with_setting(compare)  # type: ignore[attr-defined]  # functions have one; typeshed lacks it


def compare_spec(
    architectures: Sequence[str],
    setting: Mapping[str, Any],
    seeds: int | Sequence[int] | str,
    place: Callable[[str], str] = str,
    *,
    baseline: str = "",
    seeds_max: int | None = None,
    budget_s: float | None = None,
) -> StudySpec:
    """The study that a comparison is: one setting.

    Args:
        architectures: as for `compare`.
        setting: value per field of `Setting`; file names are made absolute, so that the results can be verified from
            anywhere.
        place: from a field's name to what the caller calls it, for error messages.
        baseline, seeds_max, budget_s: as for `compare`.

    Raises:
        InputError: naming the first value that is wrong.
    """
    chosen = [parse_architecture(text, place("architectures")) for text in architectures]
    axes = {name: [absolute(value) if is_file(name, value) else value] for name, value in setting.items()}
    first, auto = read_seeds(seeds, seeds_max, budget_s, place)
    return make_study("comparison", chosen, axes, first, lambda axis, _: place(axis), baseline=baseline, auto=auto)


def absolute(name: str | Path | None) -> str | None:
    """A file's absolute name; what stands for synthetic work, and None, stay."""
    if name is None or (is_synthetic(str(name)) and not Path(name).exists()):
        return None if name is None else str(name)
    return str(Path(name).absolute())
