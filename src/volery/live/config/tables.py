"""TOML files and JSON bodies: a failure names file and line, and a value that does not fit is named by its key."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError, shortened, suggestion

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


def read_table(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        InputError: it cannot be read, or is no TOML; where a line is known, the place is FILE:LINE:COLUMN.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text: {error.reason}") from None
    except tomllib.TOMLDecodeError as error:
        problem, _, at = str(error).partition(" (at ")
        numbers = re.findall(r"\d+", at) or [str(text.count("\n") + 1)]
        raise InputError(":".join((str(path), *numbers)), f"is not TOML: {problem}") from None


def toml_of(table: Mapping[str, Any]) -> str:
    """A table of texts, numbers, lists and tables as TOML that `read_table` reads; lists of tables come last."""
    rows = {key: value for key, value in table.items() if isinstance(value, list | tuple) and value}
    rows = {key: value for key, value in rows.items() if isinstance(value[0], Mapping)}
    lines = [f"{_toml(key)} = {_toml(value, is_key=False)}" for key, value in table.items() if key not in rows]
    for key, tables in rows.items():
        lines += [f"\n[[{_toml(key)}]]\n{toml_of(row)}".rstrip() for row in tables]
    return "".join(f"{line}\n" for line in lines)


def _toml(value: Any, *, is_key: bool = True) -> str:
    match value:
        case str() if is_key and re.fullmatch(r"[A-Za-z0-9_-]+", value):
            return value
        case str():  # escapes of JSON are escapes of TOML, but for this one character
            return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")
        case Mapping():
            pairs = ", ".join(f"{_toml(key)} = {_toml(item, is_key=False)}" for key, item in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case list() | tuple():
            return f"[{', '.join(_toml(item, is_key=False) for item in value)}]"
        case bool():
            return str(value).lower()
        case _:
            return repr(value)


def json_of(text: bytes | bytearray) -> Any:
    """The value in the body of a request.

    Raises:
        InputError: it is no JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        problem = f"is not JSON: {error}"
    try:  # it takes halves of surrogate pairs, so that their place can be named
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InputError("body", problem) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def misfit(
    error: msgspec.ValidationError,
    place: str,
    kind: type[msgspec.Struct],
    table: Any = None,
    answer: Callable[[str], str] | None = None,
) -> InputError:
    """An error of msgspec as place, problem and what is allowed.

    Args:
        error: as "Expected `int`, got `str` - at `$.tasks[0].count`".
        place: place of the whole, as `job.toml`.
        kind: kind of struct that was expected there.
        table: value that was given, for the names of keys that the error leaves out.
        answer: gives a sentence about a key that is not known, or an empty text.
    """
    problem, _, path = str(error).partition(" - at ")
    if path.startswith("`key`"):
        problem = f"a key: {problem}"
        path = path.removeprefix("`key` in ")

    path = path.strip("`").removeprefix("$")
    place += _named(path, kind, table)
    if missing := _MISSING.fullmatch(problem):
        return InputError(f"{place}.{missing.group(1)}", "is missing")

    type_there = _kind_at(kind, path)
    if unknown_key := _UNKNOWN.fullmatch(problem):
        key = unknown_key.group(1)
        known_keys = [field.encode_name for field in getattr(type_there, "fields", ())]
        hint = answer(key) if answer is not None else ""
        problem = f"unknown key; {hint}" if hint else f"unknown key{suggestion(key, known_keys)}"
        return InputError(f"{place}.{shortened(key)}", problem)

    if isinstance(type_there, msgspec.inspect.LiteralType):
        allowed = ", ".join(map(repr, type_there.values))
        return InputError(place, f"{problem[:1].lower()}{problem[1:]}; allowed are {allowed}")

    return InputError(place, problem[:1].lower() + problem[1:].replace("`", ""))


def _named(path: str, kind: type[msgspec.Struct], table: Any) -> str:
    """A path as `.tasks[0].env[...]` with the key that does not fit in place of the dots."""
    prefix, dots, suffix = path.partition("[...]")
    if not dots:
        return path

    mapping_type = _kind_at(kind, prefix)
    value = table
    # The error has dots in place of the key: the value itself shows which of its entries does not fit.
    for name in re.findall(r"\w+|\[\d+\]", prefix):
        value = value[int(name[1:-1])] if name[0] == "[" else value.get(name) if isinstance(value, dict) else None

    alternatives = [mapping_type, *getattr(mapping_type, "types", ())]
    value_type = next((item.value_type for item in alternatives if isinstance(item, msgspec.inspect.DictType)), None)
    keys = [key for key, item in value.items() if not _fits(item, value_type)] if isinstance(value, dict) else []
    return prefix + (f".{shortened(str(keys[0]))}" if keys else dots) + suffix


def _fits(value: Any, kind: Any) -> bool:
    """True unless a value is none of a kind of texts or numbers."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _fits(value, kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_fits(value, item) for item in kind.types)
    if isinstance(kind, msgspec.inspect.StrType):
        return isinstance(value, str) and len(value) <= (kind.max_length or len(value))
    if isinstance(kind, msgspec.inspect.IntType):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)

    return True


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def refuse_surrogates(content: Any, place: str) -> None:
    """Refuse texts with characters that UTF-8 does not have: bytes of other encodings, and halves of characters.

    Raises:
        InputError: naming the place of the first one.
    """
    if isinstance(content, str):
        if half := _SURROGATE.search(content):
            problem = f"holds {half[0]!r} at character {half.start()}, half a character that UTF-8 does not have"
            raise InputError(place, f"{problem}; write the text in UTF-8")
    elif isinstance(content, dict):
        for key, value in content.items():
            refuse_surrogates(key, f"{place}.{ascii(key)[1:-1]}")
            refuse_surrogates(value, f"{place}.{key}")
    elif isinstance(content, list | tuple):
        for at, value in enumerate(content):
            refuse_surrogates(value, f"{place}[{at}]")


def _kind_at(kind: type[msgspec.Struct], path: str) -> Any:
    """The type that a struct has at a path as `.isolation.cgroups`; None where it is no struct's field."""
    type_there: Any = msgspec.inspect.type_info(kind)
    for name in re.findall(r"\w+|\[\d*\.*\]", path):
        alternatives = [type_there, *getattr(type_there, "types", ())]
        if name[:1] == "[":
            type_there = next((item.item_type for item in alternatives if hasattr(item, "item_type")), None)
            continue
        fields = [field for item in alternatives for field in getattr(item, "fields", ())]
        type_there = next((field.type for field in fields if field.encode_name == name), None)
        if isinstance(type_there, msgspec.inspect.Metadata):
            type_there = type_there.type

    return type_there
