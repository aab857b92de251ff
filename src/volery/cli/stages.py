"""`volery stages`: which stages of the reference architecture each design has, and by which method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json, terminal
from volery.core.stages import BY_GROUP, GROUPS, MODE_IN_TEXT, POLICIES, STAGES, Realisation, Stage

if TYPE_CHECKING:
    from rich.console import Console

    from volery.core.component import Architecture
    from volery.report.mappings import MappingRow

LEGEND = "F full match   ~ partial match   . no match   ? undetermined (the text to be had has lost the columns)"


def show_stages(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARCH[:PARAMETER=VALUE,...] ...]", help="These, with methods.", show_default=False),
    ] = None,
    with_paper: Annotated[
        bool, typer.Option("--paper", help="Put the fourteen mappings of Andreadis et al., SC18, beside ours.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a heat map as a page.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which of the 33 stages of the reference architecture for datacenter scheduling each design has."""
    from volery import architectures
    from volery.report import mappings

    entries = [_configured(name) for name in dict.fromkeys(names or architectures.names())]
    ours = [mappings.declared(entry) for entry in entries]
    theirs = mappings.from_paper() if with_paper else []
    if html is not None:
        from volery.report.page import write_page

        write_page(html, mappings.render(ours, theirs))
    if as_json:
        print_json(_content(ours, theirs, with_paper))
        return

    console = terminal()
    _print_matrix(console, ours, theirs)
    if names:
        _print_methods(console, ours)
    else:
        console.print("volery stages ARCH ... names the methods and the policies.")
    if html is not None:
        console.print(f"heat map: {html}", soft_wrap=True)


def _configured(text: str) -> Architecture:
    """The architecture that `NAME[:parameter=value,...]` means, with the stages of that configuration."""
    from volery import architectures
    from volery.study.spec import parse_architecture

    choice = parse_architecture(text, "ARCH")
    entry = architectures.lookup(choice.name)
    config = architectures.configure(entry, choice.parameters)
    return msgspec.structs.replace(entry, name=text, stages=architectures.realised(entry, config))


def _content(ours: Sequence[MappingRow], theirs: Sequence[MappingRow], with_paper: bool) -> dict[str, Any]:
    from volery.report import mappings

    content: dict[str, Any] = {
        "stages": [_described(stage) for stage in Stage],
        "architectures": [_marked(row) for row in ours],
    }
    if with_paper:
        printed = {found.name: found for found in mappings.paper().scheduler}
        content["paper"] = [
            {
                **_marked(row),
                "designed": printed[row.name].designed,
                "published": printed[row.name].published,
                "clusters": printed[row.name].clusters,
                "percent_printed": printed[row.name].percent,
                "symbols_printed": printed[row.name].printed,
            }
            for row in theirs
        ]
    return content


def _described(stage: Stage) -> dict[str, Any]:
    said = STAGES[stage]
    return {
        "id": stage.value,
        "name": said.name,
        "group": stage.group,
        "mode": said.mode,
        "mode_by": "the paper" if stage in MODE_IN_TEXT else "us",
        "takes": said.takes,
        "gives": said.gives,
        "stateful": said.stateful,
        "policies": POLICIES.get(stage, ()),
    }


def _marked(row: MappingRow) -> dict[str, Any]:
    stages: dict[str, Any] = {}
    for stage in Stage:
        stages[stage.value] = {"match": row.marks[stage]}
        found = row.methods.get(stage)
        if found is not None:
            stages[stage.value] |= {"method": found.method, "how": found.how, "when": found.when}
    return {"name": row.name, "source": row.source, "percent": row.percent, "stages": stages}


def _print_matrix(console: Console, ours: Sequence[MappingRow], theirs: Sequence[MappingRow]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from volery.report import mappings

    table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False)  # 80 columns hold it: a cell that is cut says nothing
    table.add_column("", no_wrap=True)
    for group, stages in BY_GROUP.items():
        numbers = "".join(stage.value.lstrip("JTMR")[-1] for stage in stages)
        table.add_column(Text(f"{GROUPS[group]}\n{group}\n{numbers}"), min_width=len(numbers))
    for group in BY_GROUP:
        table.add_column(f"\n\n{group} %", justify="right", no_wrap=True)
    for rows in (ours, theirs):
        for row in rows:
            symbols = [Text(row.symbols(group)) for group in BY_GROUP]
            percents = [str(mappings.whole(row.percent[group])) for group in BY_GROUP]
            table.add_row(Text(row.name, "bold" if row.methods else ""), *symbols, *percents)
        table.add_section()
    console.print(table)
    console.print(Text(LEGEND if theirs else LEGEND.partition("   ?")[0]))
    if theirs:
        console.print("Below the line: as the paper rates what publications describe. Above it: what the code does.")
        console.print(f"The paper's table II cuts what it rounds elsewhere: {', '.join(mappings.cut())}.")


def _print_methods(console: Console, ours: Sequence[MappingRow]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "stage", *(row.name for row in ours))
    previous = Stage.J1.group
    for stage in (stage for stages in BY_GROUP.values() for stage in stages):
        if stage.group != previous:
            table.add_section()
        previous = stage.group
        said = (_said(row.methods.get(stage)) for row in ours)
        table.add_row(stage.value, STAGES[stage].name, *(Text(cell) for cell in said))
    console.print(table)


def _said(found: Realisation | None) -> str:
    if found is None:
        return "."
    head = f"{'F' if found.extent == 'full' else '~'} {found.method}"
    head += f" with {found.when}" if found.when else ""
    return f"{head}: {found.how}" if found.how else head
