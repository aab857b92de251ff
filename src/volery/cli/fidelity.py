"""`volery fidelity`: a model of a cluster's scheduler against the starts in the cluster's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from volery.cli import options
from volery.cli.compare import given_setting, place_of
from volery.cli.options import argument
from volery.cli.output import print_json, print_omissions, print_table
from volery.lab.progress import LiveProgress

if TYPE_CHECKING:
    from volery.study.fidelity import Fidelity


def fidelity(
    architecture: Annotated[
        str,
        argument("Model of the scheduler that made the log, as slurm:conf=FILE.", "ARCH[:PARAMETER=VALUE,...]"),
    ],
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
    as_json: options.AsJson = False,
    cost_file: options.CostFile = None,
    **setting: Any,  # an option for each field of `volery.setting.Setting` that has a form there; see `with_setting`
) -> None:
    """Hold a model of a cluster's scheduler against the starts in its log; status 1: compare nothing with it."""
    from volery.study.fidelity import fidelity as fidelity_of

    with LiveProgress(silent=as_json) as watcher:
        fidelity = fidelity_of(architecture, given_setting(setting, cost_file), seed, place_of, watcher)

    if as_json:
        print_json(fidelity)
    else:
        _print_fidelity(fidelity)
    if fidelity.shortfalls:
        raise typer.Exit(1)


def _print_fidelity(fidelity: Fidelity) -> None:
    print_omissions(fidelity.left_out)
    designs = (fidelity.model, fidelity.plain_fifo)
    heads = ("record", "model", "plain FIFO")
    mean_waits_s = (fidelity.mean_wait_s, *(design.mean_wait_s for design in designs))
    rows = [
        ("tau of the order of starts", "", *(f"{design.tau:.2f}" for design in designs)),
        ("error of a start, median (s)", "", *(f"{design.median_s:,.1f}" for design in designs)),
        ("error of a start, p95 (s)", "", *(f"{design.p95_s:,.1f}" for design in designs)),
        ("mean wait (s)", *(f"{mean_s:,.1f}" for mean_s in mean_waits_s)),
    ]
    title = f"Starts of the {fidelity.waited:,} jobs of {fidelity.jobs:,} that waited; mean wait of all"
    print_table(("", *heads), rows, title=title, right=heads)
    typer.echo(f"model: {fidelity.model.design}; plain FIFO: {fidelity.plain_fifo.design}")

    if not fidelity.shortfalls:
        typer.echo("worth making: a comparison of this model with other schedulers, on this log and these machines")
    for shortfall in fidelity.shortfalls:
        typer.echo(f"not worth making: {shortfall}")
