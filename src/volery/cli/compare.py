"""`volery compare`: architectures side by side on one workload and one cluster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volery.cli.options import (
    Architectures,
    Arrivals,
    AsJson,
    Baseline,
    BudgetS,
    Capacity,
    Constraints,
    CostFile,
    Costs,
    Cutoff,
    Dask,
    DelayUs,
    Durations,
    Estimates,
    Force,
    History,
    JitterUs,
    Jobs,
    KeepIn,
    Links,
    Load,
    LoadBy,
    Machines,
    MeasuredWindow,
    Only,
    PopulationSeed,
    Processes,
    Profile,
    Racks,
    ReferenceMhz,
    Requests,
    Seeds,
    SeedsMax,
    SlotRequest,
    Slots,
    Strict,
    Users,
    Warmup,
    Why,
    Workers,
    Workload,
    measured_window,
    moment,
    seeds_given,
    whole_numbers,
)
from volery.cli.output import print_results
from volery.cli.progress import LiveProgress

if TYPE_CHECKING:
    from volery.study import StudySpec

_OPTIONS = {
    "architectures": "ARCH", "trace": "--trace", "workers": "--workers", "slots": "--slots", "jobs": "--jobs",
    "constraints": "--constraints", "machines": "--machines", "population": "--population", "cutoff_s": "--cutoff",
    "seeds": "--seeds", "seeds_max": "--seeds-max", "budget_s": "--budget-s",
    "only": "--only", "durations": "--durations", "arrivals": "--arrivals",
    "estimates": "--estimates", "users": "--users",
    "load": "--load", "load_by": "--load-by", "warmup": "--warmup", "window": "--window",
    "baseline": "--baseline",
    "delay_us": "--delay-us", "jitter_us": "--jitter-us", "links": "--link", "costs": "--cost", "hosts": "--costs",
    "frames": "--costs",
    "requests": "--requests", "capacity": "--capacity", "slot_request": "--slot-request",
    "racks": "--racks",
    "reference_mhz": "--reference-mhz", "history": "--history",
}  # fmt: skip
"""What the command line calls the fields of a setting."""


def compare(
    architectures: Architectures,
    trace: Workload,
    workers: Workers,
    load: Load = None,
    load_by: LoadBy = "arrivals",
    slots: Slots = 1,
    constraints: Constraints = "none",
    machines: Machines = None,
    population: PopulationSeed = None,
    cutoff: Cutoff = None,
    seeds: Seeds = "1",
    seeds_max: SeedsMax = None,
    budget_s: BudgetS = None,
    jobs: Jobs = None,
    only: Only = "ran",
    durations: Durations = "exact",
    arrivals: Arrivals = "exact",
    estimates: Estimates = "mean",
    users: Users = None,
    delay_us: DelayUs = None,
    jitter_us: JitterUs = 0,
    link: Links = None,
    cost: Costs = None,
    costs: CostFile = None,
    requests: Requests = "none",
    capacity: Capacity = "",
    slot_request: SlotRequest = "",
    racks: Racks = 1,
    reference_mhz: ReferenceMhz = 0,
    history: History = "",
    warmup: Warmup = None,
    window: MeasuredWindow = None,
    baseline: Baseline = "",
    processes: Processes = 1,
    dask: Dask = None,
    output: KeepIn = None,
    force: Force = False,
    why: Why = False,
    profile: Profile = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Run architectures on the same workload with common random numbers, and see which is better."""
    from volery.study import compare_spec

    network = _network(costs, delay_us, whole_numbers(link or (), "--link", "FROM:TO=US"))
    network["costs"] |= whole_numbers(cost or (), "--cost", "ROLE=US")
    study = compare_spec(
        architectures,
        {
            "trace": trace, "workers": workers, "slots": slots, "constraints": constraints, "machines": machines,
            "population": population, "cutoff_s": cutoff, "jobs": jobs, "only": only, "durations": durations,
            "arrivals": arrivals, "estimates": estimates, "users": users, "jitter_us": jitter_us,
            "requests": requests, "capacity": capacity, "slot_request": slot_request,
            "reference_mhz": reference_mhz, "racks": racks, "history": history,
            "load": load, "load_by": load_by, "warmup": moment(warmup or "0"), "window": measured_window(window),
            **network,
        },
        seeds_given(seeds),
        place=lambda field: _OPTIONS.get(field, field),
        baseline=baseline,
        seeds_max=seeds_max,
        budget_s=budget_s,
    )  # fmt: skip
    run_and_print(study, output, processes, force, as_json, dask=dask, why=why, profile=profile, strict=strict)


def _network(costs: Path | None, delay_us: int | None, links: dict[str, int]) -> dict[str, Any]:
    """What a file of costs says, and what the options say against it."""
    from volery.study.costs import read_costs, settings

    network: dict[str, Any] = {"links": {}, "costs": {}, "hosts": {}}
    network |= settings(read_costs(costs)) if costs is not None else {}
    network["links"] |= links
    if delay_us is not None:
        network["delay_us"] = delay_us
    return network


def run_and_print(
    study: StudySpec,
    output: Path | None,
    processes: int,
    force: bool,
    as_json: bool,
    *,
    dask: str | None = None,
    why: bool = False,
    profile: str | None = None,
    strict: bool = False,
) -> None:
    """Run a study with live progress, print its table, and leave with status 130 if Ctrl-C cut it short."""
    from volery.study import run_study
    from volery.study.stagetime import keep_stage_times, profile_stages
    from volery.study.why import explaining

    if why:
        study = explaining(study)
    command = shlex.join(["volery", *sys.argv[1:]])
    with LiveProgress(silent=as_json) as watcher:
        results = run_study(
            study, folder=output, processes=processes, dask=dask, force=force, watcher=watcher, command=command
        )
    stage_times = profile_stages(study) if profile and not results.interrupted else []
    if stage_times and results.folder is not None:
        keep_stage_times(results.folder, stage_times)
    print_results(results, as_json, stage_times, strict=strict)
