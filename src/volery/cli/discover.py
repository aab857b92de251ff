"""`volery discover`: what this machine is and has, as the table of a federation's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json


def discover(
    folder: Annotated[Path, typer.Option("-o", "--folder", help="Where tasks will run.")] = Path("federation"),
    as_json: AsJson = False,
) -> None:
    """Say what this machine is and has, as a table "machines" for a federation's file."""
    import msgspec

    from volery.live.config import machine
    from volery.live.node.confinement import permitted

    found = machine.discover(folder=folder)
    capacity, disk, gpus = machine.amounts(folder), machine.disk_of(folder), machine.installed_gpus()
    groups = permitted()
    if as_json:
        content = {"machine": msgspec.to_builtins(found), "capacity": capacity, "control_groups": groups}
        print_json(content | {"gpus": [gpu._asdict() for gpu in gpus], "disk": disk._asdict()})
        return
    typer.echo("[[machines]]")
    for name in machine.ATTRIBUTES:
        value = getattr(found, name)
        typer.echo(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}")
    typer.echo(f"capacity = {{ {', '.join(f'{name} = {amount}' for name, amount in capacity.items())} }}")
    typer.echo(f"# disk of {folder}: {disk.kind}, {disk.free_mb:,} of {disk.size_mb:,} MB free")
    for gpu in gpus:
        typer.echo(f"# GPU {gpu.name}: {gpu.model}")
    typer.echo(f"# {groups}")
