"""Reference pages of what is declared in code. The documentation is built with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import typer

from docs.pages.files import files, results
from docs.pages.measures import measures
from docs.pages.messages import messages
from docs.pages.structs import cell
from volery.architectures.pipeline.policies import METHODS, parameters
from volery.architectures.pipeline.policies import policies as policies_of
from volery.architectures.pipeline.policies import summary as summary_of
from volery.core.stages import STAGES
from volery.look.text import markdown_table


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    from volery.cli.main import app

    yield from ("# Commands", "", "As `volery COMMAND --help` shows them.", "")
    yield from _command(typer.main.get_command(app), "volery")


def _command(command: Any, name: str) -> Iterator[str]:
    """The command's own part, and those of the commands below it.

    The library's classes of commands are its own matter; only what every Click command has is asked for.
    """
    subcommands: Mapping[str, Any] = getattr(command, "commands", {})

    if name != "volery":
        context = command.context_class(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context)).replace("[[", "[").replace("]]", "]")
        yield from (f"{'#' * (name.count(' ') + 1)} {name}", "", cell(command.help or ""), "")
        if not subcommands:
            yield from (f"    {name} {usage}".rstrip(), "")

        options = [option for option in command.params if option.name != "help"]
        if options:
            yield from markdown_table(("option", "value", "default", "meaning"), map(_option, options))

    for word in sorted(subcommands):
        yield from _command(subcommands[word], f"{name} {word}")


def _option(option: Any) -> tuple[str, ...]:
    is_argument = option.param_type_name == "argument"
    names = option.metavar or option.name.upper() if is_argument else ", ".join(option.opts + option.secondary_opts)
    value = "" if is_argument or option.is_flag else option.metavar or option.name.upper()
    default = option.default() if callable(option.default) else option.default
    shown = "" if default in (None, (), [], "", False) or option.required else f"`{default}`"
    return f"`{names}`", f"`{value}`" if value else "", shown, cell(option.help or "")


def api() -> Iterator[str]:
    """The requests of the HTTP API and their answers."""
    from volery.live.service.api import operations
    from volery.live.service.forecaster import Forecaster
    from volery.live.service.job_service import JobService
    from volery.live.service.requests import Traffic, describe

    service = SimpleNamespace(queries=None)  # nothing is asked of it here
    api_operations = operations(cast(JobService, service), None, Traffic(), cast(Forecaster, object()))

    description = describe(api_operations)
    yield from (
        "# The API over HTTP",
        "",
        "A running API describes itself at `/openapi.json`.",
        "",
    )

    rows = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parameter_names = ", ".join(f"`{parameter['name']}`" for parameter in operation.get("parameters", ()))
            rows.append((f"`{method.upper()} {path}`", cell(operation["summary"]), parameter_names))
    yield from markdown_table(("request", "what it does", "parameters"), rows)

    yield from ("## What is sent", "")
    for name, schema in description["components"]["schemas"].items():
        if "properties" in schema:
            yield from (f"### {name}", "", cell(schema.get("description", "")), "")

            shown = [
                (f"`{key}`", cell(_schema(property_schema)), cell(property_schema.get("description", "")))
                for key, property_schema in schema["properties"].items()
            ]
            yield from markdown_table(("key", "type", "meaning"), shown)


def _schema(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " | ".join(_schema(alternative) for alternative in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_schema(schema.get('items', {}))}"
    return " | ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "anything"))


def policies() -> Iterator[str]:
    """The policies of each stage that `pipeline` is assembled from."""
    link = "As `volery policy list` shows them; [the pipeline](../pipeline.md) explains the stages."
    yield from ("# Policies of the stages", "", link, "")
    for stage in METHODS:
        yield from (f"## {stage.value}: {STAGES[stage].name}", "")
        rows = (
            (
                f"`{name}`",
                cell(summary_of(policy)),
                "; ".join(f"`{p.name}:{p.default}` {cell(p.description)}" for p in parameters(policy)) or "-",
            )
            for name, policy in policies_of(stage).items()
        )
        yield from markdown_table(("policy", "what it does", "parameters"), rows)


PAGES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "commands": commands,
    "files": files,
    "api": api,
    "measures": measures,
    "results": results,
    "messages": messages,
    "policies": policies,
}


def write_pages(folder: Path) -> None:
    """Write them all; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / f"{name}.md").write_text("\n".join(make()) + "\n", encoding="utf-8")
