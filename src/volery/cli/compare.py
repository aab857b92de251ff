"""`volery compare`: architectures side by side on one workload and one cluster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volery.cli.options import AsJson, Force, KeepIn, Processes, whole_numbers
from volery.cli.output import print_results
from volery.cli.progress import LiveProgress

if TYPE_CHECKING:
    from volery.study import StudySpec

_OPTIONS = {
    "architectures": "ARCH", "trace": "--trace", "workers": "--workers", "slots": "--slots", "jobs": "--jobs",
    "constraints": "--constraints", "machines": "--machines", "population": "--population", "cutoff_s": "--cutoff",
    "seeds": "--seeds", "durations": "--durations", "arrivals": "--arrivals", "delay_us": "--delay-us",
    "jitter_us": "--jitter-us", "links": "--link", "costs": "--cost", "hosts": "--costs",
}  # fmt: skip
"""What the command line calls the fields of a setting."""


def compare(
    architectures: Annotated[
        list[str],
        typer.Argument(
            metavar="ARCH[:PARAMETER=VALUE,...]",
            help="Registry names, see `volery architectures`; the others are compared with the first.",
            show_default=False,
        ),
    ],
    trace: Annotated[
        str,
        typer.Option(
            metavar="FILE|SPEC", help="A .tr or .tr.gz file, or synthetic work as syn:250x2000.", show_default=False
        ),
    ],
    workers: Annotated[int, typer.Option(metavar="N", help="Machines of the cluster.", show_default=False)],
    slots: Annotated[int, typer.Option(metavar="K", help="Tasks that a machine runs at once.")] = 1,
    constraints: Annotated[
        str, typer.Option(metavar="sharma2011|none", help="Draw placement constraints of tasks and machines.")
    ] = "none",
    machines: Annotated[
        str | None, typer.Option(metavar="FILE.csv.gz", help="Read machine constraints from here.", show_default=False)
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(
            metavar="SEED", help="Seed of drawn machine constraints (else each run's own).", show_default=False
        ),
    ] = None,
    cutoff: Annotated[
        float | None,
        typer.Option(metavar="S", help="Jobs whose mean task is at most this long are short.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="K", help="Repeat everything under seeds 0 to K-1.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Only the first N jobs of the trace.", show_default=False)
    ] = None,
    durations: Annotated[
        str, typer.Option(metavar="exact|whole-seconds", help="Cut durations as the published simulators do.")
    ] = "exact",
    arrivals: Annotated[
        str,
        typer.Option(metavar="exact|dephased", help="Shift equal arrivals by 10 ms as the published simulators do."),
    ] = "exact",
    delay_us: Annotated[
        int | None, typer.Option(metavar="US", help="Delay of a message on any link. (500)", show_default=False)
    ] = None,
    jitter_us: Annotated[int, typer.Option(metavar="US", help="Mean of an exponential extra delay.")] = 0,
    link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM:TO=US", help="Delay of one link class, as lm:node=1000; repeatable.", show_default=False
        ),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=US", help="Time that a role takes to serve a message; repeatable.", show_default=False
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Costs that `volery calibrate` has measured; options beside it are stronger.",
            show_default=False,
        ),
    ] = None,
    processes: Processes = 1,
    output: KeepIn = None,
    force: Force = False,
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
            "population": population, "cutoff_s": cutoff, "jobs": jobs, "durations": durations, "arrivals": arrivals,
            "jitter_us": jitter_us, **network,
        },
        seeds,
        place=lambda field: _OPTIONS.get(field, field),
    )  # fmt: skip
    run_and_print(study, output, processes, force, as_json)


def _network(costs: Path | None, delay_us: int | None, links: dict[str, int]) -> dict[str, Any]:
    """What a file of costs says, and what the options say against it."""
    from volery.study.costs import read_costs, settings

    network: dict[str, Any] = {"links": {}, "costs": {}, "hosts": {}}
    network |= settings(read_costs(costs)) if costs is not None else {}
    network["links"] |= links
    if delay_us is not None:
        network["delay_us"] = delay_us
    return network


def run_and_print(study: StudySpec, output: Path | None, processes: int, force: bool, as_json: bool) -> None:
    """Run a study with live progress, print its table, and leave with status 130 if Ctrl-C cut it short."""
    from volery.study import run_study

    command = shlex.join(["volery", *sys.argv[1:]])
    with LiveProgress(silent=as_json) as watcher:
        results = run_study(study, folder=output, processes=processes, force=force, watcher=watcher, command=command)
    print_results(results, as_json)
