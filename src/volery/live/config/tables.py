"""TOML files, with every failure named by file and line, and values that do not fit named by their key."""

from __future__ import annotations

import re
import tomllib
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


def misfit(error: msgspec.ValidationError, place: str, kind: type[msgspec.Struct]) -> InputError:
    """An error of msgspec as place, problem and what is allowed.

    Args:
        error: as "Expected `int`, got `str` - at `$.tasks[0].count`".
        place: of the whole, as `job.toml`.
        kind: of struct that was expected there.
    """
    problem, _, path = str(error).partition(" - at ")
    path = path.strip("`").removeprefix("$")
    place += path
    if missing := _MISSING.fullmatch(problem):
        return InputError(f"{place}.{missing.group(1)}", "is missing")
    found = _kind_at(kind, path)
    if unknown := _UNKNOWN.fullmatch(problem):
        known = [one.encode_name for one in getattr(found, "fields", ())]
        return InputError(f"{place}.{shortened(unknown.group(1))}", f"unknown key{suggestion(unknown.group(1), known)}")
    if isinstance(found, msgspec.inspect.LiteralType):
        allowed = ", ".join(map(repr, found.values))
        return InputError(place, f"{problem[:1].lower()}{problem[1:]}; allowed are {allowed}")
    return InputError(place, problem[:1].lower() + problem[1:].replace("`", ""))


def _kind_at(kind: type[msgspec.Struct], path: str) -> Any:
    """The type that a struct has at a path as `.isolation.cgroups`; None where it is no struct's field."""
    found: Any = msgspec.inspect.type_info(kind)
    for name in re.findall(r"\w+|\[\d*\.*\]", path):
        within = [found, *getattr(found, "types", ())]
        if name[:1] == "[":
            found = next((one.item_type for one in within if hasattr(one, "item_type")), None)
            continue
        fields = [field for one in within for field in getattr(one, "fields", ())]
        found = next((field.type for field in fields if field.encode_name == name), None)
        if isinstance(found, msgspec.inspect.Metadata):
            found = found.type
    return found
