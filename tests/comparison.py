"""A comparison in one call, as most tests of results need it; users have `volery.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from volery.lab.errors import plain
from volery.setting import SettingFields
from volery.study import Results, Watcher, compare_spec, run_study


def compare(
    *architectures: str,
    seeds: int | Sequence[int] | Literal["auto"] = 1,
    seeds_max: int | None = None,
    budget_s: float | None = None,
    baseline: str = "",
    axes: Mapping[str, Sequence[Any]] | None = None,
    processes: int = 1,
    folder: Path | None = None,
    force: bool = False,
    watcher: Watcher | None = None,
    **setting: Unpack[SettingFields],
) -> Results:
    """The results of a study of one setting, or of its axes."""
    values = {name: plain(value) for name, value in setting.items() if value is not None}
    study = compare_spec(
        architectures, values, seeds, baseline=baseline, seeds_max=seeds_max, budget_s=budget_s, axes=axes
    )
    return run_study(study, folder=folder, processes=processes, force=force, watcher=watcher, command="a test")
