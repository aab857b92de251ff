"""`volery flow`: the messages between the roles of an architecture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json, terminal
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.core.flow import Flow


def flow(
    name: Annotated[
        str, typer.Argument(metavar="ARCH[:PARAMETER=VALUE,...]", help="Which, and how.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="Draw it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the roles of an architecture and the messages between them, or draw them as a picture."""
    from volery import architectures
    from volery.study.designs import example_flow
    from volery.study.spec import parse_architecture

    choice = parse_architecture(name, "ARCH")
    entry = architectures.lookup(choice.name)
    found = example_flow(entry, architectures.configure(entry, choice.parameters))
    if output is not None:
        _draw(found, output)
    if as_json:
        print_json(msgspec.to_builtins(found) | ({"picture": str(output)} if output is not None else {}))
    elif output is not None:
        typer.echo(str(output))
    else:
        _print(found)


def _draw(found: Flow, path: Path) -> None:
    from volery.report.flowplot import flow_svg
    from volery.report.page import write_page

    if path.suffix != ".svg":
        raise InputError(str(path), "a picture's name must end in .svg")
    write_page(path, flow_svg(found))


def _print(found: Flow) -> None:
    from rich.table import Table
    from rich.text import Text

    console = terminal()
    roles = Table("role", "class", "components", "told by the driver")
    for role in found.roles:
        cells = (", ".join(role.kinds), str(role.count), ", ".join(role.driver))
        roles.add_row(Text(role.name, "bold"), *map(Text, cells))
    console.print(roles)
    messages = Table("from", "message", "to", "meaning")
    for hop in found.hops:
        messages.add_row(Text(hop.source), Text(hop.message, "bold"), Text(hop.to), Text(hop.meaning))
    console.print(messages)
    if found.linked:
        console.print("All of this travels in numbered frames that are acknowledged and repeated.")
    console.print("-o FILE.svg draws it.")
