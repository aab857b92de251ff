"""The registry of published designs, one folder each; other packages add theirs by entry point."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from volery.architectures.hfs import HFS
from volery.architectures.hybrid import EAGLE, HAWK, PHOENIX
from volery.architectures.hydra import HYDRA
from volery.architectures.jockey import JOCKEY
from volery.architectures.megha.designs import CENTRAL, MEGHA, MEGHA_2021, MEGHA_2021_PRINTED
from volery.architectures.mercury import MERCURY
from volery.architectures.omega import MESOS, MONOLITHIC, OMEGA
from volery.architectures.oracle import ORACLE
from volery.architectures.pigeon import PIGEON, PIGEONC
from volery.architectures.pipeline import PIPELINE
from volery.architectures.pipeline.presets import PRESETS
from volery.architectures.quincy import FIRMAMENT, QUINCY
from volery.architectures.slurm import SLURM
from volery.architectures.sparrow import SPARROW
from volery.architectures.tetrisched import ALSCHED, TETRISCHED
from volery.core.bounds import check_finite
from volery.core.component import Architecture, PolicyNames
from volery.core.errors import InputError, suggestion
from volery.core.stages import Realisation, Stage

GROUP = "volery.architectures"
FLOCK = (SPARROW, HAWK, EAGLE, PHOENIX, MERCURY)
FEDERATED = (MEGHA, CENTRAL, MEGHA_2021, MEGHA_2021_PRINTED, PIGEON, PIGEONC, HYDRA)
SHARED = (OMEGA, MONOLITHIC, MESOS)
PLANNERS = (ALSCHED, TETRISCHED, QUINCY, FIRMAMENT)
ENTRIES = (*FEDERATED, ORACLE, *FLOCK, HFS, JOCKEY, PIPELINE, *PRESETS, SLURM, *SHARED, *PLANNERS)
REGISTRY: dict[str, Architecture] = {entry.name: entry for entry in ENTRIES}
SESSION: ContextVar[Mapping[str, Architecture]] = ContextVar("designs of a session", default=MappingProxyType({}))
"""Designs by name that a program has defined itself and handed to the call that runs now.

They belong to the calling context, not to the process: two threads may give one name to different designs.
"""


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of an architecture, as users set it."""

    name: str
    type: str
    default: Any
    description: str


def registry() -> dict[str, Architecture]:
    """The designs of this package, of a session, and of others (entry point group `volery.architectures`), by name."""
    designs = {**SESSION.get(), **REGISTRY}
    for point in entry_points(group=GROUP):
        if point.name not in designs:
            architecture = point.load()
            if not isinstance(architecture, Architecture):
                raise InputError(
                    f"entry point {point.value}",
                    "is not a volery.core.component.Architecture; name an object of that class",
                )
            designs[point.name] = architecture
    return designs


def names() -> tuple[str, ...]:
    return tuple(registry())


def lookup(name: str) -> Architecture:
    """The architecture of that name.

    Raises:
        InputError: with a suggestion, when there is none.
    """
    if name in REGISTRY:
        return REGISTRY[name]  # a look at all installed packages takes ten milliseconds
    if name in SESSION.get():
        return SESSION.get()[name]
    designs = registry()
    if name not in designs:
        raise InputError("architecture", f"there is no {name!r}" + suggestion(name, designs))
    return designs[name]


class ConfiguredDesign(NamedTuple):
    """A design with the configuration that was chosen for it."""

    architecture: Architecture
    config: msgspec.Struct


def choose(name: str, parameters: Mapping[str, Any]) -> ConfiguredDesign:
    """The design of that name with some parameters set.

    Raises:
        InputError: there is none, or a parameter does not fit.
    """
    architecture = lookup(name)
    return ConfiguredDesign(architecture, configure(architecture, parameters))


def takes(name: str, parameter: str) -> bool:
    """True if the design of that name has the parameter."""
    return parameter in lookup(name).defaults.__struct_fields__


def parameters(architecture: Architecture) -> list[Parameter]:
    """The parameters with their types, defaults and descriptions."""
    hints = get_type_hints(type(architecture.defaults), include_extras=True)
    rows = []
    for field in architecture.defaults.__struct_fields__:
        hint, description = hints[field], ""
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            description = next((e.description for e in extras if isinstance(e, msgspec.Meta) and e.description), "")
        choices = get_args(hint)
        shown: str = getattr(hint, "__name__", str(hint))
        if get_origin(hint) is Literal:
            shown = " | ".join(str(choice) for choice in choices)
        elif choices:
            shown = str(hint)
        rows.append(Parameter(field, shown, getattr(architecture.defaults, field), description))
    return rows


def realised(architecture: Architecture, config: msgspec.Struct) -> Mapping[Stage, Realisation]:
    """The realisation of each stage under a configuration, with the policies that the configuration names."""
    policies = architecture.capability(PolicyNames)
    names = policies.of(config) if policies else {}
    return {
        stage: msgspec.structs.replace(realisation, how=names[stage]) if stage in names else realisation
        for stage, realisation in architecture.stages.items()
    }


def configure(architecture: Architecture, given: Mapping[str, Any]) -> msgspec.Struct:
    """The architecture's configuration with some parameters set; strings are read as the parameter's type.

    Raises:
        InputError: for an unknown parameter (with a suggestion) or a value that does not fit.
    """
    field_names = architecture.defaults.__struct_fields__
    for name in given:
        if name not in field_names:
            raise InputError(
                f"{architecture.name}:{name}", "there is no such parameter" + suggestion(name, field_names)
            )
    defaults = msgspec.to_builtins(architecture.defaults)
    for name, value in given.items():
        try:
            msgspec.convert({**defaults, name: value}, type(architecture.defaults), strict=False)
        except msgspec.ValidationError as error:
            hint = get_type_hints(type(architecture.defaults))[name]
            problem = f"does not fit: {str(error).split(' - at')[0]}"
            if get_origin(hint) is Literal:
                problem = "is not one of its values" + suggestion(str(value), get_args(hint))
            raise InputError(f"{architecture.name}:{name}", f"{value!r} {problem}") from None
    config: msgspec.Struct = msgspec.convert({**defaults, **given}, type(architecture.defaults), strict=False)
    for name in given:
        check_finite(f"{architecture.name}:{name}", getattr(config, name))
    return config
