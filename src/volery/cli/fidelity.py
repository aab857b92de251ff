"""`volery fidelity`: a model of a cluster's scheduler against the starts in the cluster's log."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from volery.cli import options
from volery.cli.compare import given_setting, place_of
from volery.cli.options import argument
from volery.cli.output import print_json, print_omissions, print_table
from volery.lab.progress import LiveProgress

HEADS: Final = ("record", "model", "plain FIFO")
WORTH_MAKING: Final = "worth making: a comparison of this model with other schedulers, on this log and these machines"


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
    model, plain_fifo, waits = fidelity.model, fidelity.plain_fifo, f"{fidelity.mean_wait_s:,.1f}"

    if as_json:
        print_json(fidelity)
    else:
        print_omissions(fidelity.left_out)
        title = f"Starts of the {fidelity.waited:,} jobs of {fidelity.jobs:,} that waited; mean wait of all"
        rows = [
            ("tau of the order of starts", "", f"{model.tau:.2f}", f"{plain_fifo.tau:.2f}"),
            ("error of a start, median (s)", "", f"{model.median_s:,.1f}", f"{plain_fifo.median_s:,.1f}"),
            ("error of a start, p95 (s)", "", f"{model.p95_s:,.1f}", f"{plain_fifo.p95_s:,.1f}"),
            ("mean wait (s)", waits, f"{model.mean_wait_s:,.1f}", f"{plain_fifo.mean_wait_s:,.1f}"),
        ]
        print_table(("", *HEADS), rows, title=title, right=HEADS)
        typer.echo(f"model: {model.design}; plain FIFO: {plain_fifo.design}")
        for line in [f"not worth making: {shortfall}" for shortfall in fidelity.shortfalls] or [WORTH_MAKING]:
            typer.echo(line)

    if fidelity.shortfalls:
        raise typer.Exit(1)
