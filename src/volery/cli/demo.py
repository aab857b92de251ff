"""`volery demo`: the lab's main job on bundled synthetic work, in well under a minute."""

from __future__ import annotations

import typer

from volery.cli.compare import run_and_print
from volery.cli.options import AsJson, Force, KeepIn, Processes

ARCHITECTURES = ("megha", "pigeonc", "pigeonc:constraint_counting=published-code")
SETTING = {"trace": "syn:250x300", "workers": 2000, "constraints": "sharma2011"}
SEEDS = 3
SCENE = (
    "300 jobs of 250 one-second tasks, one job a second, on 2,000 workers; tasks and machines with the placement "
    "constraints of Sharma et al. (2011); three seeds."
)


def demo(output: KeepIn = None, processes: Processes = 1, force: Force = False, as_json: AsJson = False) -> None:
    """Compare Megha with PigeonC, with and without its published code's way of counting, on bundled synthetic work."""
    from volery.study import compare_spec

    if not as_json:
        typer.echo(SCENE)
    run_and_print(compare_spec(ARCHITECTURES, SETTING, SEEDS), output, processes, force, as_json)
