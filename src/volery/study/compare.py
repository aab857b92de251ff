"""`compare`: architectures side by side on one workload and one cluster, with common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from volery.study.keeper import Results
from volery.study.lab import run_study
from volery.study.pool import Watcher
from volery.study.seeds import read_seeds
from volery.study.spec import (
    Arrivals,
    ConstraintModel,
    Durations,
    LoadBy,
    Only,
    StudySpec,
    is_file,
    is_synthetic,
    make_study,
    parse_architecture,
)


def compare(
    *architectures: str,
    trace: str | Path,
    workers: int,
    load: float | None = None,
    load_by: LoadBy = "arrivals",
    slots: int = 1,
    constraints: ConstraintModel = "none",
    machines: str | Path | None = None,
    population: int | None = None,
    cutoff_s: float | None = None,
    seeds: int | Sequence[int] | Literal["auto"] = 1,
    seeds_max: int | None = None,
    budget_s: float | None = None,
    jobs: int | None = None,
    only: Only = "ran",
    durations: Durations = "exact",
    arrivals: Arrivals = "exact",
    estimates: str = "mean",
    users: str | None = None,
    delay_us: int = 500,
    jitter_us: int = 0,
    links: Mapping[str, int] | None = None,
    costs: Mapping[str, int] | None = None,
    hosts: Mapping[str, Any] | None = None,
    frames: Mapping[str, Any] | None = None,
    requests: str = "none",
    capacity: str = "",
    slot_request: str = "",
    racks: int = 1,
    reference_mhz: int = 0,
    history: str = "",
    warmup: str | float = 0.0,
    window: Sequence[str | float] | None = None,
    baseline: str = "",
    processes: int = 1,
    folder: Path | None = None,
    force: bool = False,
    watcher: Watcher | None = None,
) -> Results:
    """Run every architecture on the same jobs, task constraints and machines, seed by seed.

    Args:
        architectures: `NAME` or `NAME:parameter=value,...`.
        baseline: the one that the others are compared with; empty: the first.
        seeds: how many (0, 1, ...), or which; "auto" adds seeds until every comparison is decided.
        seeds_max, budget_s: with "auto": the largest number of seeds (30), and CPU seconds of all runs together.
        trace ... window: all others as in `volery.study.spec.Setting`; processes ... watcher: as in `run_study`.

    Raises:
        InputError: when anything that is named here is wrong.
        LostRunError: when a run's process died.
    """
    study = compare_spec(
        architectures,
        {
            "trace": trace, "workers": workers, "slots": slots, "constraints": constraints, "machines": machines,
            "population": population, "cutoff_s": cutoff_s, "jobs": jobs, "only": only, "durations": durations,
            "arrivals": arrivals, "estimates": estimates, "load": load, "load_by": load_by, "warmup": warmup,
            "window": None if window is None else list(window), "users": users, "delay_us": delay_us,
            "jitter_us": jitter_us, "links": dict(links or {}), "costs": dict(costs or {}),
            "hosts": msgspec.to_builtins(dict(hosts or {})), "frames": msgspec.to_builtins(frames),
            "requests": requests, "capacity": capacity, "slot_request": slot_request, "reference_mhz": reference_mhz,
            "racks": racks, "history": history,
        },
        seeds, baseline=baseline, seeds_max=seeds_max, budget_s=budget_s,
    )  # fmt: skip
    return run_study(
        study, folder=folder, processes=processes, force=force, watcher=watcher, command="volery.study.compare"
    )


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
