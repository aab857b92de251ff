"""`compare`: architectures side by side on one workload and one cluster, with common random numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, get_type_hints

import msgspec

from volery.setting import Setting, SettingFields
from volery.study.lab import run_study
from volery.study.seeds import read_seeds
from volery.study.spec import DEFAULTS, StudySpec, is_file, is_synthetic, make_study, parse_architecture
from volery.study.watcher import Watcher
from volery.study.writer import Results


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
        seeds: as for `compare`.
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
