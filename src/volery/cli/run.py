"""`volery run`: a study from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from volery.cli.compare import run_and_print
from volery.cli.options import (
    AsJson,
    Baseline,
    BudgetS,
    Dask,
    Force,
    KeepIn,
    Processes,
    Profile,
    SeedsMax,
    SeedsOfFile,
    Strict,
    Why,
    seeds_given,
)


def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study.", show_default=False)],
    output: KeepIn = None,
    baseline: Baseline = "",
    seeds: SeedsOfFile = None,
    seeds_max: SeedsMax = None,
    budget_s: BudgetS = None,
    processes: Processes = 1,
    dask: Dask = None,
    force: Force = False,
    why: Why = False,
    profile: Profile = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Run a study from a file: architectures x settings x seeds; what is finished is not run again."""
    from volery.study import read_study
    from volery.study.spec import with_baseline, with_seeds

    read = with_baseline(read_study(study), baseline, "--baseline")
    given = None if seeds is None else seeds_given(seeds)
    read = with_seeds(read, given, seeds_max, budget_s, lambda name: f"--{name.replace('_', '-')}")
    run_and_print(read, output, processes, force, as_json, dask=dask, why=why, profile=profile, strict=strict)
