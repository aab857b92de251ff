"""`volery trace machines`: a file of machines of what a cluster's manager says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from volery.cli.options import AsJson, Replace, argument, option, trace_name
from volery.cli.output import print_json

NAMES_SHOWN: Final = 8
"""Names of machines that a line lists."""


def list_machines(
    source: Annotated[
        str,
        argument(
            "A slurm.conf, or output of sinfo, scontrol --json or kubectl get nodes -o json; -: standard input.",
            "FILE",
            callback=trace_name,
        ),
    ],
    output: Annotated[
        Path | None,
        option("The file of machines to write; without it, they are listed alone.", "-o", "--output", form="OUT.csv"),
    ] = None,
    partition: Annotated[str, option("Partition of Slurm whose machines are taken.", form="NAME")] = "",
    down: Annotated[
        bool, typer.Option("--down", help="Take machines that are down, drained or cordoned, too.")
    ] = False,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Turn a cluster as Slurm or Kubernetes states it into a file of machines, and account for each line."""
    from volery.workload.clusters import read_inventory
    from volery.workload.inventory import columns_of, machine_count, offer_text, write_machines

    inventory = read_inventory(Path(source))
    machines = inventory.working(Path(source), partition, down=down)
    if output is not None:
        write_machines(machines, output, force=force)

    idle = [listed for listed in inventory.machines if listed.state and listed not in machines]
    offers = {name: sum(listed.amounts.get(name, 0) for listed in machines) for name in columns_of(machines)}
    if as_json:
        content = {"form": inventory.form, "file": output and str(output), "machines": machines, "offers": offers}
        print_json(content | {"left_out": idle, "lines": inventory.uses})
        return

    for use in inventory.uses:
        parts = [use.meaning, f"not read: {', '.join(use.ignored)}" if use.ignored else ""]
        typer.echo(f"{use.place}: {'; '.join(filter(None, parts))}")
    for state in dict.fromkeys(listed.state for listed in idle):
        names = [listed.name for listed in idle if listed.state == state]
        more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
        typer.echo(f"left out: {machine_count(len(names))}, {state}: {', '.join(names[:NAMES_SHOWN])}{more}")
    total = ", ".join(offer_text(name, amount) for name, amount in offers.items())
    typer.echo(f"{output or source}: {machine_count(len(machines))} with {total} together")
    if output is not None:
        typer.echo(f"try:  volery compare oracle backfill --trace TRACE --workers {len(machines)} --machines {output}")
