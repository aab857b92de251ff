"""The keys of a struct with type, default and meaning, in the words of TOML and JSON."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

_ITEM: Final = re.compile(r"^    ( *)([\w, *]+): (.*)$")


def keys(struct: type[msgspec.Struct]) -> list[tuple[str, ...]]:
    """Key, type, default and meaning per field; the meaning from its metadata or the docstring's Args."""
    meanings = args(struct)
    rows: list[tuple[str, ...]] = []
    for field in msgspec.structs.fields(struct):
        hint = field.type
        meaning = meanings.get(field.name, "")
        if get_origin(hint) is Annotated:
            meaning = next((e.description for e in get_args(hint)[1:] if getattr(e, "description", None)), meaning)
        default = "required" if field.required else _default(field)
        rows.append((f"`{field.encode_name}`", kind(hint), default, cell(meaning).replace("None:", "left out:")))

    return rows


def structs_in(struct: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """The structs inside it, each once, in the order in which they are met."""
    structs: dict[type[msgspec.Struct], None] = {}
    _gather(struct, structs)
    return list(structs)


def _gather(struct: type[msgspec.Struct], structs: dict[type[msgspec.Struct], None]) -> None:
    for hint in get_type_hints(struct, include_extras=True).values():
        for inner_struct in _inner(hint):
            if inner_struct not in structs:
                structs[inner_struct] = None
                _gather(inner_struct, structs)


def _inner(hint: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that a type is made of."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in get_args(hint):
        yield from _inner(part)


def _default(field: Any) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return "" if value is None or value is msgspec.UNSET else f"`{msgspec.json.encode(value).decode()}`"


def kind(hint: Any) -> str:
    """A type in the words of TOML and JSON."""
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated:
        return kind(parts[0])

    if origin is Literal:
        return " | ".join(f"`{part}`" for part in parts)
    if origin in (Union, type(int | None)):
        return " | ".join(kind(part) for part in parts if part is not type(None))
    if origin in (list, tuple):
        return f"list of {kind(parts[0])}" if parts else "list"
    if origin is dict:
        return f"table of {kind(parts[1])}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"`{hint.__name__}`"

    names = {str: "text", bytes: "base64", bool: "true, false", int: "whole number", float: "number", Any: "anything"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def summary(struct: type) -> str:
    """The first paragraph of its docstring."""
    return inspect.cleandoc(_doc(struct)).split("\n\n")[0]


def args(struct: type) -> dict[str, str]:
    """The entries of a docstring under Args, by name, after those of the structs that it extends."""
    _, _, text = _doc(struct).partition("Args:\n")
    bases = [base for base in getattr(struct, "__bases__", ()) if base is not msgspec.Struct]

    meanings = {name: meaning for base in bases for name, meaning in args(base).items()}
    names: list[str] = []

    for line in text.splitlines():
        item = _ITEM.match(line)
        if item and len(item[1]) == 4:
            names = [name.strip() for name in item[2].split(",")]
            meanings |= dict.fromkeys(names, item[3])
        elif line.startswith(" " * 12):
            meanings |= {name: f"{meanings[name]} {line.strip()}" for name in names}
        elif line.strip():
            break

    return meanings


def _doc(struct: Any) -> str:
    """The docstring of a struct, or of a generic one whose parameters are given."""
    return (get_origin(struct) or struct).__doc__ or ""


def cell(text: str) -> str:
    """Text on one line that stays text."""
    return re.sub(r"\s+", " ", text).strip().replace("<", "&lt;")
