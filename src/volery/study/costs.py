"""Files of costs: what `volery calibrate` has measured, read by `--costs FILE` and by `costs = "FILE"` in a study."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.costs import CostModel, EventCost
from volery.core.errors import InputError, suggestion
from volery.workload.files import atomic_output

NETWORK: Final = tuple(CostModel.__struct_fields__)
"""What a file of costs says is a setting of the same name."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def read_costs(path: Path) -> CostModel:
    """The costs in a TOML file.

    Raises:
        InputError: naming the file and the key.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not TOML: {error}") from None
    for key in table:
        if key not in NETWORK:
            raise InputError(f"{path.name}:{key}", "unknown key" + suggestion(key, NETWORK))
    try:
        return msgspec.convert(table, CostModel)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at ")
        place = at.strip("`").removeprefix("$.")
        raise InputError(f"{path.name}:{place}" if place else path.name, problem.replace("`", "")) from None


def settings(model: CostModel) -> dict[str, Any]:
    """The fields of a setting that a file of costs speaks of."""
    found = msgspec.to_builtins(model)
    return {name: found[name] for name in NETWORK if found[name] not in (None, {})}


def write_costs(model: CostModel, path: Path, heading: str, *, force: bool) -> None:
    """Write a file of costs, whole or not at all.

    Args:
        model: what was measured.
        path: of the file.
        heading: lines of comment.
        force: whether a file that exists is replaced.

    Raises:
        InputError: the file exists, or cannot be written.
    """
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    lines += _lines(msgspec.to_builtins(model), ())
    with atomic_output(path, force=force) as output:
        output.writelines(f"{line}\n".encode() for line in lines)


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """A table of TOML: numbers, then tables; costs of an event stand on one line."""
    costs = set(EventCost.__struct_fields__)
    inner = {}
    for key, value in table.items():
        if not isinstance(value, Mapping):
            if value is not None:
                yield f"{_key(key)} = {_number(value)}"
        elif value and set(value) <= costs:
            yield f"{_key(key)} = {{ {', '.join(f'{name} = {_number(value[name])}' for name in value)} }}"
        elif value:
            inner[key] = value
    for key, value in inner.items():
        name = (*path, key)
        content = list(_lines(value, name))
        if content and not content[0].startswith(("[", "\n")) and content[0]:
            yield ""
            yield f"[{'.'.join(map(_key, name))}]"
        yield from content


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def _number(value: float | Sequence[float]) -> str:
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_number, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f"{value:.3f}"
