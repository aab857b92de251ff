"""Arguments of the Python calls: their plain values, and errors that name them where a command names its options."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError, suggestion
from volery.study.runner import absolute
from volery.study.spec import is_file, is_synthetic

CALLS: Final = threading.RLock()
"""Held by the call that runs: a second one from another thread waits, since runs of one process share their inputs."""
OPTION: Final = re.compile(r"`volery [^`]*`|(?<![\w-])--([a-z][a-z-]*)")
"""An option of the same call as a command, or another command, whose options stay."""
NAMES: Final = {"cutoff": "cutoff_s", "link": "links", "cost": "costs"}
"""Arguments that an option calls otherwise."""
DESIGNS: Final = ("designs", "design")
"""Arguments that give an architecture."""


@contextmanager
def arguments_named(arguments: Mapping[str, Any]) -> Iterator[None]:
    """Name the argument in every error about what was given.

    Args:
        arguments: arguments by name; an error about a file, or a part of a text, gets the name of its argument. Of
            `designs` the labels.

    Raises:
        InputError: in place of the one that was raised inside.
    """
    try:
        yield
    except InputError as error:
        problem = OPTION.sub(lambda matches: _argument(matches[1]) if matches[1] else matches[0], error.problem)
        problem = problem.replace("force to", "force=True to")
        raise type(error)(_place(error.place, arguments), problem) from None


def _argument(option: str) -> str:
    name = option.replace("-", "_")
    return NAMES.get(name, name)


def _place(place: str, arguments: Mapping[str, Any]) -> str:
    """The argument that a place is about: an option, a line of a file, a design, or a key of a text."""
    if place.startswith("--"):
        place = _argument(place[2:])
    if place == "architecture":
        return next((name for name in DESIGNS if name in arguments), place)
    if place in arguments or f"axes.{place}" in arguments:
        return place if place in arguments else f"axes.{place}"

    for name, value in arguments.items():
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str | Path):
                continue
            # A design, or a text KIND:key=value, by name and key; a file, or a folder, with what is in it.
            whole = str(text if name in DESIGNS else absolute(text))
            kind, colon, _ = whole.partition(":")
            is_named = place in (kind, whole) and (name in DESIGNS or bool(colon))
            if place == whole or is_named or place.startswith((f"{kind}:", f"{whole}/")):
                return f"{name}={place}"
    return place


def plain(value: Any) -> Any:
    """A value as a study file has it: numbers and arrays of libraries become numbers and lists; paths stay."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {plain(key): plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(part) for part in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value


def check_known(names: Iterable[str], known_names: Iterable[str]) -> None:
    """Refuse an argument that a call does not have.

    Args:
        names: names that are given.
        known_names: names that the call has; one may stand there twice.

    Raises:
        InputError: with a suggestion.
    """
    for name in names:
        if name not in known_names:
            raise InputError(name, f"there is no such argument{suggestion(name, dict.fromkeys(known_names))}")


def check_type(name: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> Any:
    """The plain value of an argument of these types. A truth value is no number, and no file has an empty name.

    Raises:
        InputError: with what is expected.
    """
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    value = value if isinstance(value, kinds) else plain(value)
    if not isinstance(value, kinds) or (type(value) is bool and bool not in kinds) or (value == "" and Path in kinds):
        raise InputError(name, f"expected {expected}, not {value!r}")
    return value


def check_files(setting: Mapping[str, Any], **arguments: str) -> None:
    """Refuse a file that is not there, in the fields of a setting that name files.

    Args:
        setting: values by field.
        arguments: names of the arguments that give fields, where they are not those of the fields.

    Raises:
        InputError: with the fix.
    """
    for field, value in setting.items():
        if value is None or not is_file(field, value):
            continue
        name = arguments.get(field, field)
        check_type(name, value, (str, Path), "the name of a file")
        if not is_synthetic(str(value)) and not Path(value).exists():
            choice = ", or give synthetic work as 'syn:250x300'" if field in ("trace", "history") else ""
            raise InputError(name, f"there is no file {str(value)!r}; check its path{choice}")
