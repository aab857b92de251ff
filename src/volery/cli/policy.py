"""`volery policy`: the policies of the stages by name, and whether one keeps what every policy has to."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json, terminal
from volery.core.errors import InputError, suggestion
from volery.core.stages import STAGES, Stage

policy_app = typer.Typer(
    name="policy", help="Policies of the stages that `pipeline` is assembled from.", no_args_is_help=True
)
STAGE_IDS = [stage.value for stage in Stage]


@policy_app.command("list")
def list_policies(
    stage: Annotated[
        str | None, typer.Argument(metavar="[STAGE]", help="Of this stage alone, as R5.", show_default=False)
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of the reference page.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the policies of the stages, those of other packages included, with their parameters."""
    from volery.architectures.pipeline.policies import METHODS

    stages = [_stage(stage)] if stage else list(METHODS)
    if as_json:
        print_json({one.value: _described(one) for one in stages})
    elif markdown:
        typer.echo("\n".join(_markdown(stages)))
    else:
        _print_tables(stages)


@policy_app.command("check")
def check(
    name: Annotated[str, typer.Argument(metavar="[STAGE=]NAME[/PARAMETER:VALUE...]", help="As in a configuration.")],
    budget_us: Annotated[float, typer.Option(metavar="US", help="CPU time that a decision may take.")] = 1000.0,
    as_json: AsJson = False,
) -> None:
    """Check that a policy is deterministic and pure, and quick enough; status 1 when it is not."""
    from volery.study.policycheck import check_policy, find_stage

    before, equals, after = name.partition("=")
    stages = [_stage(before)] if equals and before in STAGE_IDS else find_stage(name)
    text = after if equals and before in STAGE_IDS else name
    found = {stage: check_policy(stage, text, budget_us) for stage in stages}
    if as_json:
        print_json(
            {stage.value: [msgspec.structs.asdict(one) for one in findings] for stage, findings in found.items()}
        )
    else:
        for stage, findings in found.items():
            typer.echo(f"{stage.value} {text}")
            for one in findings:
                typer.echo(f"  {'passed' if one.passed else 'FAILED'}  {one.check:<12} {one.detail}")
    if not all(one.passed for findings in found.values() for one in findings):
        raise typer.Exit(1)


def _stage(name: str) -> Stage:
    from volery.architectures.pipeline.policies import METHODS

    known = [stage.value for stage in METHODS]
    if name not in known:
        raise InputError("stage", f"{name!r} has no policies by name" + suggestion(name, known))
    return Stage(name)


def _described(stage: Stage) -> list[dict[str, Any]]:
    from volery.architectures.pipeline.policies import parameters, policies, summary

    return [
        {
            "name": name,
            "summary": summary(policy),
            "package": policy.__module__.partition(".")[0],
            "parameters": [msgspec.structs.asdict(one) for one in parameters(policy)],
        }
        for name, policy in policies(stage).items()
    ]


def _print_tables(stages: list[Stage]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("stage", "policy", "what it does", "parameters")
    for stage in stages:
        table.add_section()
        for place, one in enumerate(_described(stage)):
            given = "\n".join(f"{each['name']}:{each['default']}" for each in one["parameters"])
            head = f"{stage.value} {STAGES[stage].name}" if not place else ""
            table.add_row(Text(head), Text(one["name"], "bold"), Text(one["summary"]), Text(given))
    terminal().print(table)
    typer.echo("pipeline:STAGE=POLICY/parameter:value,... takes them; volery policy check NAME judges one.")


def _markdown(stages: list[Stage]) -> list[str]:
    lines = []
    for stage in stages:
        lines += [
            f"### {stage.value}: {STAGES[stage].name}",
            "",
            "| policy | what it does | parameters |",
            "|---|---|---|",
        ]
        for one in _described(stage):
            given = "; ".join(f"`{each['name']}:{each['default']}` {each['description']}" for each in one["parameters"])
            lines.append(f"| `{one['name']}` | {one['summary']} | {given or '-'} |")
        lines.append("")
    return lines[:-1]
