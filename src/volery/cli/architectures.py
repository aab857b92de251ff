"""`volery architectures`: the designs that can be compared, and their parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json, terminal

if TYPE_CHECKING:
    from volery.core.component import Architecture

PLACES = {True: "slots, amounts", False: "slots"}
"""What a design gives to tasks."""


def show_architectures(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of them, with its parameters.", show_default=False)
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write their pages there, with pictures.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the architectures, or describe one with its parameters, defaults and source."""
    from volery import architectures

    if pages is not None:
        _write_pages(pages, name, as_json)
        return
    if name is None:
        entries = [architectures.lookup(known) for known in architectures.names()]
        if as_json:
            fields = ("name", "summary", "source", "vectors", "graphs")
            print_json([{field: getattr(entry, field) for field in fields} for entry in entries])
        else:
            _print_list(entries)
    elif as_json:
        print_json(_described(architectures.lookup(name)))
    else:
        _print_one(architectures.lookup(name))


def _write_pages(folder: Path, name: str | None, as_json: bool) -> None:
    """Of one, or of all that come with this package."""
    from volery import architectures
    from volery.study import designs

    texts = designs.all_pages() if name is None else designs.pages([architectures.lookup(name)])
    written = [str(path) for path in designs.write_pages(folder, texts)]
    if as_json:
        print_json({"written": written})
    else:
        typer.echo(f"{len(written)} files in {folder}")


def _described(entry: Architecture) -> dict[str, Any]:
    from volery import architectures

    return {
        "name": entry.name,
        "summary": entry.summary,
        "source": entry.source,
        "hops": entry.hops,
        "tolerates": sorted(entry.tolerates),
        "bearing": dict(entry.bearing),
        "vectors": entry.vectors,
        "graphs": entry.graphs,
        "parameters": [msgspec.structs.asdict(parameter) for parameter in architectures.parameters(entry)],
        "stages": {
            stage.value: {"method": found.method, "extent": found.extent, "how": found.how}
            for stage, found in entry.stages.items()
        },
    }


def _print_list(entries: list[Architecture]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "summary", "places", "source")
    for entry in entries:
        table.add_row(Text(entry.name, "bold"), Text(entry.summary), Text(PLACES[entry.vectors]), Text(entry.source))
    terminal().print(table)
    typer.echo("volery architectures NAME describes one with its parameters.")


def _print_one(entry: Architecture) -> None:
    from rich.table import Table
    from rich.text import Text

    from volery import architectures

    console = terminal()
    console.print(Text(entry.name, "bold"), Text(entry.summary), sep=": ")
    console.print(Text(f"source:    {entry.source}"))
    console.print(Text(f"hops:      {entry.hops} link delays from submission to the answer on an idle cluster"))
    console.print(Text(f"tolerates: {', '.join(sorted(entry.tolerates)) or 'a reliable network only'}"))
    if entry.bearing:
        console.print(Text(f"           with {', '.join(f'{name}={value}' for name, value in entry.bearing.items())}"))
    console.print(Text(f"places:    {PLACES[entry.vectors]}"))
    console.print(Text(f"workflows: {'whole' if entry.graphs else 'sent task by task as they may start'}"))
    table = Table("parameter", "values", "default", "meaning")
    for parameter in architectures.parameters(entry):
        default = "none" if parameter.default is None else str(parameter.default)
        table.add_row(Text(parameter.name, "bold"), Text(parameter.type), Text(default), Text(parameter.description))
    console.print(table)
