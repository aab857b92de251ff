"""`volery nodes`, `drain` and `undrain`: what those need who operate a federation."""

from __future__ import annotations

from typing import Annotated

import typer

from volery.cli.jobs import Api, connected
from volery.cli.options import AsJson
from volery.cli.output import print_json, terminal

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Its address, as node/3.", show_default=False)]


def nodes(api: Api = None, as_json: AsJson = False) -> None:
    """List the nodes and what runs there."""
    with connected(api, as_json) as client:
        found = client.nodes()
    if as_json:
        print_json(found)
        return
    from rich.table import Column, Table
    from rich.text import Text

    first = [Column(heading, no_wrap=True) for heading in ("node", "running", "state")]
    table = Table(*first, "arch", "os", "kernel", "cores", "memory", "labels")
    for node in found:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(node.labels.items()))
        table.add_row(
            Text(node.address), f"{node.running}/{node.slots}", "drained" if node.drained else "", Text(node.arch),
            Text(node.os), Text(node.kernel), str(node.cores), f"{node.memory_mb:,} MB", Text(labels),
        )  # fmt: skip
    terminal().print(table)


def drain(node: NodeName, api: Api = None, as_json: AsJson = False) -> None:
    """Place nothing more on a node; what runs there goes on."""
    _change(node, True, api, as_json)


def undrain(node: NodeName, api: Api = None, as_json: AsJson = False) -> None:
    """Use a node again."""
    _change(node, False, api, as_json)


def _change(node: str, drained: bool, api: str | None, as_json: bool) -> None:
    with connected(api, as_json) as client:
        status = client.drain(node) if drained else client.undrain(node)
    if as_json:
        print_json(status)
    elif drained:
        typer.echo(f"{node} gets nothing more; {status.running} of its {status.slots} slots still work")
    else:
        typer.echo(f"{node} is used again")
