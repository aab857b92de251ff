"""Errors of the Python calls: the place is the argument, and what a command calls an option is an argument, too."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from volery.core.errors import InputError, suggestion
from volery.study.runner import absolute
from volery.study.spec import is_file, is_synthetic

CALLS: Final = threading.RLock()
"""Held by the call that runs: a second one from another thread waits, since runs of one process share their inputs."""
OPTION: Final = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
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
        problem = OPTION.sub(lambda option: _argument(option[1]), error.problem).replace("force to", "force=True to")
        raise type(error)(_place(error.place, arguments), problem) from None


def _argument(option: str) -> str:
    name = option.replace("-", "_")
    return NAMES.get(name, name)


def _place(place: str, arguments: Mapping[str, Any]) -> str:
    if place.startswith("--"):
        return _argument(place[2:])
    if place == "architecture":
        return next((name for name in DESIGNS if name in arguments), place)
    for label in arguments.get("designs", ()):
        if label.startswith(place):
            return f"designs={place}"
    for name, value in arguments.items():
        if isinstance(value, str | Path) and str(value):
            texts = (str(value), str(absolute(value)))
            if name != place and place.startswith(texts):
                return f"{name}={place}"
    return place


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


def check_type(name: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> None:
    """Refuse an argument of another type; a truth value is no number.

    Raises:
        InputError: with what is expected.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise InputError(name, f"expected {expected}, not {value!r}")


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
