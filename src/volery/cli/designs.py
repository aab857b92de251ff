"""`volery architectures`, `flow`, `stages` and `policy`: the designs, their messages, stages and policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from volery.cli.options import AsJson, Picture, argument, option
from volery.cli.output import bold, print_answer, print_json, print_table, terminal, write_svg
from volery.core.errors import InputError, suggestion
from volery.core.stages import BY_GROUP, GROUPS, MODE_IN_TEXT, POLICIES, STAGES, Realisation, Stage

if TYPE_CHECKING:
    from rich.console import Console

    from volery.core.component import Architecture
    from volery.core.flow import Flow
    from volery.report.mappings import MappingRow

PLACES = {True: "slots, amounts", False: "slots"}
"""The units that a design gives to tasks, by whether it places amounts."""


def show_architectures(
    name: Annotated[str | None, argument("One of them, with its parameters.", "[NAME | slurm:conf=FILE]")] = None,
    pages: Annotated[Path | None, option("Write their pages there, with pictures.", form="FOLDER")] = None,
    as_json: AsJson = False,
) -> None:
    """List the architectures, or describe one with its parameters, defaults and source."""
    from volery import architectures

    if pages is not None:
        _write_pages(pages, name, as_json)
        return
    if name is None:
        entries = [architectures.lookup(registered) for registered in architectures.names()]
        if as_json:
            fields = ("name", "summary", "source", "vectors", "graphs")
            print_json([{field: getattr(entry, field) for field in fields} for entry in entries])
        else:
            _print_designs(entries)
    elif ":" in name:
        _show_conf(name, as_json)
    elif as_json:
        print_json(_design(architectures.lookup(name)))
    else:
        _print_design(architectures.lookup(name))


def _show_conf(text: str, as_json: bool) -> None:
    """Print what each line of a slurm.conf is used for."""
    from volery.study.slurmconf import CONF, read_conf
    from volery.study.spec import parse_architecture

    choice = parse_architecture(text, "ARCH")
    if CONF not in choice.parameters:
        raise InputError("ARCH", f"{text!r} names no file whose lines could be shown; give NAME, or slurm:conf=FILE")
    given = {name: value for name, value in choice.parameters.items() if name != CONF}
    reading = read_conf(Path(str(choice.parameters[CONF])), given)

    if as_json:
        print_json({"parameters": reading.parameters | given, "lines": reading.uses})
        return
    for use in reading.uses:
        typer.echo(use.text())
    typer.echo("parameters: " + " ".join(f"{name}={value}" for name, value in (reading.parameters | given).items()))


def _write_pages(folder: Path, name: str | None, as_json: bool) -> None:
    """Write the pages of one design, or of all that come with this package."""
    from volery import architectures
    from volery.study import designs

    texts = designs.all_pages() if name is None else designs.pages([architectures.lookup(name)])
    written = [str(path) for path in designs.write_pages(folder, texts)]
    print_answer({"written": written}, as_json, f"{len(written)} files in {folder}")


def _design(entry: Architecture) -> dict[str, Any]:
    from volery import architectures

    return {
        "name": entry.name,
        "summary": entry.summary,
        "source": entry.source,
        "hops": entry.conformance.hops,
        "tolerates": sorted(entry.conformance.tolerates),
        "bearing": dict(entry.conformance.fault_parameters),
        "vectors": entry.vectors,
        "graphs": entry.graphs,
        "parameters": [msgspec.structs.asdict(parameter) for parameter in architectures.parameters(entry)],
        "stages": {
            stage.value: {"method": realisation.method, "extent": realisation.extent, "how": realisation.how}
            for stage, realisation in entry.stages.items()
        },
    }


def _print_designs(entries: list[Architecture]) -> None:
    rows = ((bold(entry.name), entry.summary, PLACES[entry.vectors], entry.source) for entry in entries)
    print_table(("name", "summary", "places", "source"), rows)
    typer.echo("volery architectures NAME describes one with its parameters.")


def _print_design(entry: Architecture) -> None:
    from rich.text import Text

    from volery import architectures

    console = terminal()
    console.print(bold(entry.name), Text(entry.summary), sep=": ")
    console.print(Text(f"source:    {entry.source}"))
    claims = entry.conformance
    console.print(Text(f"hops:      {claims.hops} link delays from submission to the answer on an idle cluster"))
    console.print(Text(f"tolerates: {', '.join(sorted(claims.tolerates)) or 'a reliable network only'}"))

    if claims.fault_parameters:
        parameters = ", ".join(f"{name}={value}" for name, value in claims.fault_parameters.items())
        console.print(Text(f"           with {parameters}"))
    console.print(Text(f"places:    {PLACES[entry.vectors]}"))
    console.print(Text(f"workflows: {'whole' if entry.graphs else 'sent task by task as they may start'}"))

    rows = (
        (
            bold(parameter.name),
            parameter.type,
            "none" if parameter.default is None else str(parameter.default),
            parameter.description,
        )
        for parameter in architectures.parameters(entry)
    )
    print_table(("parameter", "values", "default", "meaning"), rows)


def flow(
    name: Annotated[str, argument("Which, and how.", "ARCH[:PARAMETER=VALUE,...]")],
    output: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Show the roles of an architecture and the messages between them, or draw them as a picture."""
    from volery import architectures
    from volery.study.designs import example_flow
    from volery.study.spec import parse_architecture

    choice = parse_architecture(name, "ARCH")
    shown_flow = example_flow(*architectures.choose(choice.name, choice.parameters))

    if output is not None:
        from volery.report.flowplot import flow_svg

        write_svg(output, flow_svg(shown_flow))

    if as_json:
        print_json(msgspec.to_builtins(shown_flow) | ({"picture": str(output)} if output is not None else {}))
    elif output is not None:
        typer.echo(str(output))
    else:
        _print_flow(shown_flow)


def _print_flow(shown_flow: Flow) -> None:
    roles = (
        (bold(role.name), ", ".join(role.kinds), str(role.count), ", ".join(role.driver)) for role in shown_flow.roles
    )
    print_table(("role", "class", "components", "told by the driver"), roles)
    hops = ((hop.source, bold(hop.message), hop.to, hop.meaning) for hop in shown_flow.hops)
    print_table(("from", "message", "to", "meaning"), hops)
    console = terminal()
    if shown_flow.linked:
        console.print("All of this travels in numbered frames that are acknowledged and repeated.")
    console.print("-o FILE.svg draws it.")


DRAWN_MAX = 2
"""Architectures of one picture."""
LEGEND = "F full match   ~ partial match   . no match   ? undetermined (the text to be had has lost the columns)"


def show_stages(
    names: Annotated[list[str] | None, argument("These, with methods.", "[ARCH[:PARAMETER=VALUE,...] ...]")] = None,
    with_paper: Annotated[
        bool, typer.Option("--paper", help="Put the fourteen mappings of Andreadis et al., SC18, beside ours.")
    ] = False,
    html: Annotated[Path | None, option("Write a heat map as a page.", form="FILE")] = None,
    output: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Show which of the 33 stages of the reference architecture for datacenter scheduling each design has."""
    from volery import architectures
    from volery.report import mappings

    entries = [_configured(name) for name in dict.fromkeys(names or architectures.names())]
    design_rows = [mappings.declared(entry) for entry in entries]
    paper_rows = mappings.from_paper() if with_paper else []

    if html is not None:
        from volery.report.page import write_page

        write_page(html, mappings.render(design_rows, paper_rows))
    if output is not None:
        _draw_stages(output, design_rows if names else [])
    if as_json:
        print_json(_stages_content(design_rows, paper_rows, with_paper))
        return

    console = terminal()
    _print_stage_matrix(console, design_rows, paper_rows)
    if names:
        _print_stage_methods(console, design_rows)
    else:
        console.print("volery stages ARCH ... names the methods and the policies.")
    if html is not None:
        console.print(f"heat map: {html}", soft_wrap=True)


def _draw_stages(output: Path, design_rows: Sequence[MappingRow]) -> None:
    """Draw the named architectures, each behind the paper's mapping of that name."""
    from volery.report import mappings

    if not 1 <= len(design_rows) <= DRAWN_MAX:
        raise InputError("--output", f"a picture shows from 1 to {DRAWN_MAX} architectures; name them, as borg")

    paper_rows = {row.name.lower(): row for row in mappings.from_paper()}
    rows = [drawn_row for row in design_rows for drawn_row in (paper_rows.get(row.name), row) if drawn_row is not None]
    write_svg(output, mappings.stages_svg(rows))


def _configured(text: str) -> Architecture:
    """The architecture that `NAME[:parameter=value,...]` means, with the stages of that configuration."""
    from volery import architectures
    from volery.study.spec import parse_architecture

    choice = parse_architecture(text, "ARCH")
    entry, config = architectures.choose(choice.name, choice.parameters)
    return msgspec.structs.replace(entry, name=text, stages=architectures.realised(entry, config))


def _stages_content(
    design_rows: Sequence[MappingRow], paper_rows: Sequence[MappingRow], with_paper: bool
) -> dict[str, Any]:
    from volery.report import mappings

    content: dict[str, Any] = {
        "stages": [_stage_content(stage) for stage in Stage],
        "architectures": [_row_content(row) for row in design_rows],
    }

    if with_paper:
        printed = {scheduler.name: scheduler for scheduler in mappings.paper().scheduler}
        content["paper"] = [
            {
                **_row_content(row),
                "designed": printed[row.name].designed,
                "published": printed[row.name].published,
                "clusters": printed[row.name].clusters,
                "percent_printed": printed[row.name].percent,
                "symbols_printed": printed[row.name].printed,
            }
            for row in paper_rows
        ]
    return content


def _stage_content(stage: Stage) -> dict[str, Any]:
    description = STAGES[stage]
    return {
        "id": stage.value,
        "name": description.name,
        "group": stage.group,
        "mode": description.mode,
        "mode_by": "the paper" if stage in MODE_IN_TEXT else "us",
        "takes": description.takes,
        "gives": description.gives,
        "stateful": description.stateful,
        "policies": POLICIES.get(stage, ()),
    }


def _row_content(row: MappingRow) -> dict[str, Any]:
    stages: dict[str, Any] = {}
    for stage in Stage:
        stages[stage.value] = {"match": row.marks[stage]}
        realisation = row.methods.get(stage)
        if realisation is not None:
            stages[stage.value] |= {"method": realisation.method, "how": realisation.how, "when": realisation.when}
    return {"name": row.name, "source": row.source, "percent": row.percent, "stages": stages}


def _print_stage_matrix(console: Console, design_rows: Sequence[MappingRow], paper_rows: Sequence[MappingRow]) -> None:
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

    for rows in (design_rows, paper_rows):
        for row in rows:
            symbols = [Text(row.symbols(group)) for group in BY_GROUP]
            percents = [str(mappings.whole(row.percent[group])) for group in BY_GROUP]
            table.add_row(Text(row.name, "bold" if row.methods else ""), *symbols, *percents)
        table.add_section()

    console.print(table)
    console.print(Text(LEGEND if paper_rows else LEGEND.partition("   ?")[0]))

    if paper_rows:
        console.print("Below the line: as the paper rates what publications describe. Above it: what the code does.")
        console.print(f"The paper's table II cuts what it rounds elsewhere: {', '.join(mappings.cut())}.")


def _print_stage_methods(console: Console, design_rows: Sequence[MappingRow]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "stage", *(row.name for row in design_rows))
    previous = Stage.J1.group
    for stage in (stage for stages in BY_GROUP.values() for stage in stages):
        if stage.group != previous:
            table.add_section()
        previous = stage.group
        cells = (_method_cell(row.methods.get(stage)) for row in design_rows)
        table.add_row(stage.value, STAGES[stage].name, *(Text(cell) for cell in cells))

    console.print(table)


def _method_cell(realisation: Realisation | None) -> str:
    if realisation is None:
        return "."
    head = f"{'F' if realisation.extent == 'full' else '~'} {realisation.method}"

    head += f" with {realisation.when}" if realisation.when else ""
    return f"{head}: {realisation.how}" if realisation.how else head


policy_app = typer.Typer(
    name="policy", help="Policies of the stages that `pipeline` is assembled from.", no_args_is_help=True
)
STAGE_IDS = [stage.value for stage in Stage]


@policy_app.command("list")
def list_policies(
    stage: Annotated[str | None, argument("Of this stage alone, as R5.", "[STAGE]")] = None,
    as_json: AsJson = False,
) -> None:
    """List the policies of the stages, those of other packages included, with their parameters."""
    from volery.architectures.pipeline.policies import METHODS

    stages = [_stage_named(stage)] if stage else list(METHODS)
    if as_json:
        print_json({listed_stage.value: _policies_of(listed_stage) for listed_stage in stages})
    else:
        _print_policies(stages)


@policy_app.command("check")
def check_policies(
    name: Annotated[str, typer.Argument(metavar="[STAGE=]NAME[/PARAMETER:VALUE...]", help="As in a configuration.")],
    budget_us: Annotated[float, typer.Option(metavar="US", help="CPU time that a decision may take.")] = 1000.0,
    as_json: AsJson = False,
) -> None:
    """Check that a policy is deterministic and pure, and quick enough; status 1 when it is not."""
    from volery.study.policycheck import check_policy, find_stage

    stage_id, equals, policy_text = name.partition("=")
    # A policy's name may have parameters with `=` of its own: only a stage's id before it names the stage.
    stages = [_stage_named(stage_id)] if equals and stage_id in STAGE_IDS else find_stage(name)
    text = policy_text if equals and stage_id in STAGE_IDS else name
    findings_of = {stage: check_policy(stage, text, budget_us) for stage in stages}

    if as_json:
        print_json(
            {
                stage.value: [msgspec.structs.asdict(finding) for finding in findings]
                for stage, findings in findings_of.items()
            }
        )
    else:
        for stage, findings in findings_of.items():
            typer.echo(f"{stage.value} {text}")
            for finding in findings:
                typer.echo(f"  {'passed' if finding.passed else 'FAILED'}  {finding.check:<12} {finding.detail}")

    if not all(finding.passed for findings in findings_of.values() for finding in findings):
        raise typer.Exit(1)


def _stage_named(name: str) -> Stage:
    from volery.architectures.pipeline.policies import METHODS

    stage_ids = [stage.value for stage in METHODS]
    if name not in stage_ids:
        raise InputError("stage", f"{name!r} has no policies by name" + suggestion(name, stage_ids))
    return Stage(name)


def _policies_of(stage: Stage) -> list[dict[str, Any]]:
    from volery.architectures.pipeline.policies import parameters, policies, summary

    return [
        {
            "name": name,
            "summary": summary(policy),
            "package": policy.__module__.partition(".")[0],
            "parameters": [msgspec.structs.asdict(parameter) for parameter in parameters(policy)],
        }
        for name, policy in policies(stage).items()
    ]


def _print_policies(stages: list[Stage]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("stage", "policy", "what it does", "parameters")
    for stage in stages:
        table.add_section()
        for place, policy in enumerate(_policies_of(stage)):
            defaults = "\n".join(f"{parameter['name']}:{parameter['default']}" for parameter in policy["parameters"])
            head = f"{stage.value} {STAGES[stage].name}" if not place else ""
            table.add_row(Text(head), bold(policy["name"]), Text(policy["summary"]), Text(defaults))

    terminal().print(table)
    typer.echo("pipeline:STAGE=POLICY/parameter:value,... takes them; volery policy check NAME judges one.")
