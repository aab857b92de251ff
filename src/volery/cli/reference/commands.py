"""The page of the commands, from the options that they declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from volery.cli.reference.structs import cell
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
    below: Mapping[str, Any] = getattr(command, "commands", {})
    if name != "volery":
        context = command.context_class(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context)).replace("[[", "[").replace("]]", "]")
        yield from (f"{'#' * (name.count(' ') + 1)} {name}", "", cell(command.help or ""), "")
        if not below:
            yield from (f"    {name} {usage}".rstrip(), "")
        options = [option for option in command.params if option.name != "help"]
        if options:
            yield from markdown_table(("option", "value", "default", "meaning"), map(_option, options))
    for word in sorted(below):
        yield from _command(below[word], f"{name} {word}")


def _option(option: Any) -> tuple[str, ...]:
    is_argument = option.param_type_name == "argument"
    names = option.metavar or option.name.upper() if is_argument else ", ".join(option.opts + option.secondary_opts)
    value = "" if is_argument or option.is_flag else option.metavar or option.name.upper()
    default = option.default() if callable(option.default) else option.default
    shown = "" if default in (None, (), [], "", False) or option.required else f"`{default}`"
    return f"`{names}`", f"`{value}`" if value else "", shown, cell(option.help or "")
