"""Files of studies, and of costs: what is wrong in one is named by its place.

STUDY.toml    tables [study], [workload], [network] and [axes]; `costs` in [network] is a table of roles, or a file
COSTS.toml    what `volery calibrate` has measured, written here, and read by `--costs FILE`
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from volery import architectures
from volery.core.costs import CostModel, EventCost
from volery.core.errors import InputError, suggestion
from volery.setting import DECLARED, StudyOptions
from volery.study.spec import (
    SETTING_FIELDS,
    ArchitectureChoice,
    StudySpec,
    Value,
    is_file,
    is_synthetic,
    make_study,
    parse_architecture,
    read_seeds,
    split_parameters,
)
from volery.workload.files import atomic_output

_NETWORK: Final = tuple(name for name in SETTING_FIELDS if DECLARED[name]["group"] == "Network and costs")
STUDY_AXES: Final = ("architectures", "seeds")
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "study": tuple(name for name in StudyOptions.__struct_fields__ if name not in STUDY_AXES),
    "workload": tuple(name for name in SETTING_FIELDS if name not in _NETWORK),
    "network": _NETWORK,
    "axes": (*STUDY_AXES, *SETTING_FIELDS),
}
"""Which keys each table of a study file may hold: [workload] and [network] one value, [axes] a list of them, and lists
of values of parameters by `design.parameter`. `seeds_max` and `budget_s` go with `seeds = "auto"`."""


def read_tables(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        InputError: when it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not TOML: {error}") from None


def read_study(path: Path) -> StudySpec:
    """The study that a TOML file describes; file names in it are relative to the file's own folder.

    Raises:
        InputError: when the file cannot be read, or naming the key, as `study.axes.workers[2]`.
    """
    return study_from_tables(read_tables(path), path.parent, f"{path.name}: study", path.stem)


def study_from_tables(table: Mapping[str, Any], folder: Path, root: str, name: str) -> StudySpec:
    """A study from parsed tables.

    Args:
        folder: the folder that relative file names start from.
        root: beginning of every place in an error message.
        name: the study's name where [study] gives none.

    Raises:
        InputError: naming the place of the first key or value that is wrong.
    """
    _check_keys(table, root)

    parameters: dict[str, Any] = {}
    if "axes" in table:
        setting_axes, parameters = split_parameters(table["axes"])
        table = {**table, "axes": setting_axes}

    section_of = {axis: section for section in ("axes", "network", "workload") for axis in table.get(section, {})}

    def place(axis: str, i: int | None) -> str:
        section = section_of.get(axis, "axes" if axis in (*STUDY_AXES, *parameters) else "workload")

        swept_values = {**table.get("axes", {}), **parameters}
        numbered = section == "axes" and i is not None and isinstance(swept_values.get(axis), list)

        if axis in TABLES["study"]:
            return f"{root}.study.{axis}"
        return f"{root}.{section}.{axis}[{i}]" if numbered else f"{root}.{section}.{axis}"

    table = _with_costs(table, folder)

    lists = dict(table.get("axes", {}))
    study_table = table.get("study", {})
    limits = study_table.get("seeds_max"), study_table.get("budget_s")
    seeds, auto = read_seeds(lists.pop("seeds", 1), *limits, lambda name: place(name, None))
    architectures = _architectures(lists.pop("architectures", None), place)
    axes = {axis: _as_list(values, place(axis, None)) for axis, values in lists.items()}

    for section in ("workload", "network"):
        for axis, value in table.get(section, {}).items():
            if axis in axes:
                raise InputError(f"{root}.{section}.{axis}", "is given under [axes] as well; leave one out")
            _check_single(axis, value, f"{root}.{section}.{axis}")
            axes[axis] = [value]

    for axis in axes:
        axes[axis] = [_relative(value, folder) if is_file(axis, value) else value for value in axes[axis]]

    title = study_table.get("name", name)
    if not isinstance(title, str) or not title:
        raise InputError(f"{root}.name", f"expected a name, not {title!r}")

    baseline = study_table.get("baseline", "")
    if not isinstance(baseline, str):
        raise InputError(place("baseline", None), f"expected an architecture's name, not {baseline!r}")

    swept = {axis: _as_list(values, place(axis, None)) for axis, values in parameters.items()}
    return make_study(title, architectures, axes, seeds, place, parameters=swept, baseline=baseline, auto=auto)


def _check_keys(table: Mapping[str, Any], root: str) -> None:
    """Refuse tables and keys that a study file does not have."""
    for key, content in table.items():
        if key not in TABLES:
            raise InputError(f"{root}.{key}", f"unknown table{suggestion(key, TABLES)}")
        if not isinstance(content, dict):
            raise InputError(f"{root}.{key}", f"is a table: write [{key}]")

        keys = split_parameters(content)[0] if key == "axes" else content
        for inner_key in keys:
            if inner_key not in TABLES[key]:
                raise InputError(f"{root}.{key}.{inner_key}", f"unknown key{_belongs(inner_key, key)}")


def _check_single(axis: str, value: Any, place: str) -> None:
    """Refuse several values of a key outside [axes]; a window is a list of two bounds itself."""
    several = isinstance(value, list) and (axis != "window" or any(isinstance(bound, list) for bound in value))
    if several:
        raise InputError(place, f"expected one value, not {value!r}; a list of values belongs under [axes]")


def _belongs(key: str, table: str) -> str:
    """The table that a key belongs to, or what may have been meant by it."""
    homes = [name for name in ("workload", "network", "study") if key in TABLES[name] and name != table]
    design = key.partition(".")[0]
    homes = homes or ["axes"] * (key in TABLES["axes"] or design in architectures.names())
    return f"; it belongs under [{homes[0]}]" if homes else suggestion(key, TABLES[table])


def _with_costs(table: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The tables with what the file in `network.costs` says; what stands beside it is stronger."""
    network = table.get("network", {})
    named = network.get("costs")
    if not isinstance(named, str):
        return table

    own_values = {name: value for name, value in network.items() if name != "costs"}
    measured = settings(read_costs(folder / named))
    file_values = {name: value for name, value in measured.items() if name not in table.get("axes", {})}
    # An axis of the study is stronger as well: with both, the setting would have two values.
    return {**table, "network": file_values | own_values}


def _as_list(values: Any, place: str) -> list[Any]:
    if not isinstance(values, list):
        raise InputError(place, f"an axis is a list, as [{values!r}]")
    return values


def _architectures(listed: Any, place: Any) -> list[ArchitectureChoice]:
    """Each is a string as on the command line, or { name = "pigeon", parameters = { weight = 20 } }."""
    if listed is None:
        raise InputError(place("architectures", None), 'is missing; for example ["megha", "pigeonc"]')
    choices = []

    for i, item in enumerate(_as_list(listed, place("architectures", None))):
        item_place = place("architectures", i)
        if isinstance(item, str):
            choices.append(parse_architecture(item, item_place))
        elif isinstance(item, dict):
            choices.append(_architecture_table(item, item_place))
        else:
            raise InputError(item_place, f"expected an architecture's name, not {item!r}")
    return choices


def _architecture_table(item: Mapping[str, Any], place: str) -> ArchitectureChoice:
    keys = ("name", "parameters")
    for key in item:
        if key not in keys:
            raise InputError(f"{place}.{key}", f"unknown key{suggestion(key, keys)}")

    name, parameters = item.get("name"), item.get("parameters", {})
    if not isinstance(name, str):
        raise InputError(f"{place}.name", f"expected an architecture's name, not {name!r}")
    if not isinstance(parameters, dict):
        raise InputError(f"{place}.parameters", f"expected a table of parameters, not {parameters!r}")

    values: dict[str, Value] = {}
    for key, value in parameters.items():
        if not isinstance(value, str | int | float | bool):
            raise InputError(f"{place}.parameters.{key}", f"expected a single value, not {value!r}")
        values[key] = value
    return ArchitectureChoice(name, values)


def _relative(value: Any, folder: Path) -> Any:
    """A file beside the study file; a synthetic workload's name is left as it is."""
    if not isinstance(value, str) or not value:
        return value
    path = folder.absolute() / value
    return value if is_synthetic(value) and not path.exists() else os.path.normpath(path)


NETWORK: Final = tuple(CostModel.__struct_fields__)
"""What a file of costs says is a setting of the same name."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def read_costs(path: Path) -> CostModel:
    """The costs in a TOML file.

    Raises:
        InputError: naming the file and the key.
    """
    table = read_tables(path)

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
    fields = msgspec.to_builtins(model)
    return {name: fields[name] for name in NETWORK if fields[name] not in (None, {})}


def write_costs(model: CostModel, path: Path, heading: str, *, force: bool) -> None:
    """Write a file of costs, whole or not at all.

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
    inner_tables = {}

    for key, value in table.items():
        if not isinstance(value, Mapping):
            if value is not None:
                yield f"{_key(key)} = {_number(value)}"
        elif value and set(value) <= costs:
            yield f"{_key(key)} = {{ {', '.join(f'{name} = {_number(value[name])}' for name in value)} }}"
        elif value:
            inner_tables[key] = value

    for key, value in inner_tables.items():
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
