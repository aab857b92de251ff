"""Reference pages of what is declared in code: commands, files, the API. The documentation is built with them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import typer

from volery.look.markdown import table

_ITEM: Final = re.compile(r"^    ( *)([\w, *]+): (.*)$")


def write_pages(folder: Path) -> None:
    """Write them all; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / f"{name}.md").write_text("\n".join(make()) + "\n", encoding="utf-8")


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
            yield from table(("option", "value", "default", "meaning"), map(_option, options))
    for word in sorted(below):
        yield from _command(below[word], f"{name} {word}")


def _option(option: Any) -> tuple[str, ...]:
    is_argument = option.param_type_name == "argument"
    names = option.metavar or option.name.upper() if is_argument else ", ".join(option.opts + option.secondary_opts)
    value = "" if is_argument or option.is_flag else option.metavar or option.name.upper()
    default = option.default() if callable(option.default) else option.default
    shown = "" if default in (None, (), [], "", False) or option.required else f"`{default}`"
    return f"`{names}`", f"`{value}`" if value else "", shown, cell(option.help or "")


def files() -> Iterator[str]:
    """Studies, federations and jobs: every key of the files that Volery reads."""
    from volery.live.cluster.federation import FederationFile
    from volery.live.jobs import JobDescription, TaskDescription
    from volery.live.wire.tls import BrokerTls, ServerTls
    from volery.study.file import TABLES
    from volery.study.spec import Setting

    yield from (
        "# Files",
        "",
        "Keys of the TOML files that Volery reads, from the structs that they are read into.",
        "",
    )
    yield from (
        "## STUDY.toml",
        "",
        "For `volery run`. Under `[axes]` each key has a list of values; all are combined.",
        "",
    )
    where = {key: section for section, keys in TABLES.items() if section != "axes" for key in keys}
    known = {row[0].strip("`"): row for row in keys(Setting)}
    rows = [(f"`[{where[name]}]`", *row) for name, row in known.items()]
    yield from table(("table", "key", "type", "default", "meaning"), rows)
    for title, struct, use in (
        ("federation.toml", FederationFile, "For `volery up` and `volery serve`."),
        ("federation.toml: `[tls]`", ServerTls, ""),
        ("federation.toml: `[broker_tls]`", BrokerTls, ""),
        ("job.toml", JobDescription, "For `volery submit`, the API and the Python clients."),
        ("job.toml: `[[tasks]]`", TaskDescription, ""),
    ):
        yield from (f"## {title}", "", use or cell(_summary(struct)), "")
        yield from table(("key", "type", "default", "meaning"), keys(struct))


def api() -> Iterator[str]:
    """What can be asked over HTTP, and what is sent back."""
    from volery.live.service.admission import Traffic
    from volery.live.service.api import operations
    from volery.live.service.desk import Desk
    from volery.live.service.foretelling import Foreteller, foretelling
    from volery.live.service.openapi import describe

    desk = cast(Desk, None)  # nothing is asked of it here
    known = operations(desk, Path(), Traffic())
    description = describe((*known, *foretelling(cast(Foreteller, None), desk)))

    yield from (
        "# The API over HTTP",
        "",
        "A running API describes itself at `/openapi.json`.",
        "",
    )
    rows = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            asked = ", ".join(f"`{parameter['name']}`" for parameter in operation.get("parameters", ()))
            rows.append((f"`{method.upper()} {path}`", cell(operation["summary"]), asked))
    yield from table(("request", "what it does", "parameters"), rows)
    yield from ("## What is sent", "")
    for name, schema in description["components"]["schemas"].items():
        if "properties" in schema:
            yield from (f"### {name}", "", cell(schema.get("description", "")), "")
            shown = [
                (f"`{key}`", cell(_schema(each)), cell(each.get("description", "")))
                for key, each in schema["properties"].items()
            ]
            yield from table(("key", "type", "meaning"), shown)


def _schema(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " | ".join(_schema(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_schema(schema.get('items', {}))}"
    return " | ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "anything"))


def keys(struct: type[msgspec.Struct]) -> list[tuple[str, ...]]:
    """Key, type, default and meaning per field; the meaning from its metadata or the docstring's Args."""
    hints = get_type_hints(struct, include_extras=True)
    told = _args(struct)
    found: list[tuple[str, ...]] = []
    for field in msgspec.structs.fields(struct):
        hint, meaning = hints[field.name], told.get(field.name, "")
        if get_origin(hint) is Annotated:
            meaning = next((e.description for e in get_args(hint)[1:] if getattr(e, "description", None)), meaning)
        default = "required" if field.required else _default(field)
        found.append((f"`{field.encode_name}`", _type(hint), default, cell(meaning)))
    return found


def _default(field: Any) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return "" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def _type(hint: Any) -> str:
    """A type in the words of TOML and JSON."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return " | ".join(f"`{part}`" for part in parts)
    if origin in (Union, type(int | None)):
        return " | ".join(_type(part) for part in parts if part is not type(None))
    if origin in (list, tuple):
        return f"list of {_type(parts[0])}" if parts else "list"
    if origin is dict:
        return f"table of {_type(parts[1])}"
    names = {str: "text", bytes: "base64", bool: "true, false", int: "whole number", float: "number", Any: "anything"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _summary(struct: type) -> str:
    return inspect.cleandoc(struct.__doc__ or "").split("\n\n")[0]


def _args(struct: type) -> dict[str, str]:
    """What the docstring says under Args, by name."""
    _, _, text = (struct.__doc__ or "").partition("Args:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        item = _ITEM.match(line)
        if item and len(item[1]) == 4:
            names = [name.strip() for name in item[2].split(",")]
            found |= dict.fromkeys(names, item[3])
        elif line.startswith(" " * 12):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        elif line.strip():
            break
    return found


def cell(text: str) -> str:
    """Text on one line that stays text."""
    return re.sub(r"\s+", " ", text).strip().replace("<", "&lt;")


PAGES: Final[dict[str, Callable[[], Iterator[str]]]] = {"commands": commands, "files": files, "api": api}
