"""Designs of the lab: those of the registry by name, and those that a program defines itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import pyarrow as pa
from rich.console import RenderableType
from rich.table import Table

from volery import architectures
from volery.architectures.pipeline import policies
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.stages import Stage
from volery.lab.errors import arguments_named, check_type
from volery.lab.shown import Shown
from volery.study.definitions import one_call
from volery.study.spec import parse_architecture, written

Policies = Mapping[Stage, Mapping[str, type[policies.Policy]]]
HEADS: Final = ("name", "type", "value", "default", "description")
STAGES: Final = {stage.value: stage for stage in policies.METHODS}


class Definitions(msgspec.Struct, frozen=True):
    """Designs and policies that the program defines itself, for one call."""

    designs: Mapping[str, Architecture] = {}
    policies: Policies = {}

    @contextmanager
    def handed_over(self) -> Iterator[None]:
        """Let the names stand for the definitions while the context lasts, in this thread alone."""
        designs = architectures.SESSION.set(self.designs)
        session_policies = policies.SESSION.set(self.policies)
        try:
            with one_call():
                yield
        finally:
            architectures.SESSION.reset(designs)
            policies.SESSION.reset(session_policies)


class Design(Shown):
    """A design with the parameters that differ from its defaults; see `volery.architecture`.

    Attributes:
        label: text that names the design in tables and in commands, as `pigeon:weight=20`.
        definitions: definitions of the program that it needs.
    """

    def __init__(self, label: str, definitions: Definitions) -> None:
        self.label = label
        self.definitions = definitions

        choice = parse_architecture(label, "design")
        self._name = choice.name
        with definitions.handed_over():
            self._configured = architectures.choose(choice.name, choice.parameters)
            for name, stage in STAGES.items():
                if hasattr(self._configured.config, name):
                    policies.parse(stage, getattr(self._configured.config, name), name)

    @property
    def parameters(self) -> pa.Table:
        """The parameters as an Arrow table: name, type, value and default as text, description."""
        entry, config = self._configured
        rows = [
            (row.name, row.type, written(getattr(config, row.name)), written(row.default), row.description)
            for row in architectures.parameters(entry)
        ]
        return pa.table({head: pa.array([row[i] for row in rows], pa.string()) for i, head in enumerate(HEADS)})

    def _rendered(self, width: int) -> RenderableType:
        entry = self._configured.architecture
        title = f"{self.label}: {entry.summary} ({entry.source})"
        table = Table(*HEADS, title=title, title_justify="left", width=width)
        for row in self.parameters.to_pylist():
            table.add_row(*row.values())
        return table

    def __repr__(self) -> str:
        return f"volery.architecture({self.label!r})"


def architecture(design: str | Architecture, **parameters: object) -> Design:
    """A design with its parameters, for `compare` and `simulate`, which take a plain name, too.

    Args:
        design: name in the registry, as "pigeon" or "pigeon:weight=20"; or an `Architecture` that the program has
            defined itself, in a notebook, a script or a module.
        parameters: parameters that differ from the defaults. A parameter of `pipeline` that names a stage, as R5, may
            be a policy that the program has defined itself: a subclass of `Policy`, or an object of it.

    Raises:
        InputError: there is no such design or parameter, or a value does not fit.
    """
    check_type("design", design, (str, Architecture), "the name of a design, or an Architecture")
    designs: dict[str, Architecture] = {}
    if isinstance(design, Architecture):
        known_design = architectures.REGISTRY.get(design.name)
        if known_design is not None and known_design is not design:
            raise InputError("design", f"{design.name!r} is a design of volery; give yours another name")
        designs = {} if known_design else {design.name: design}

    label = design.name if isinstance(design, Architecture) else design
    session_policies: dict[Stage, dict[str, type[policies.Policy]]] = {}
    texts = []

    for name, value in parameters.items():
        if isinstance(value, policies.Policy) or (isinstance(value, type) and issubclass(value, policies.Policy)):
            kind = value if isinstance(value, type) else type(value)
            text = _policy_name(kind)
            session_policies[_stage_of(name, kind, text)] = {text: kind}
            text += "" if isinstance(value, type) else _settings_of(value)
        else:
            text = written(check_type(name, value, (str, int, float, bool), "a text, a number, or a policy of a stage"))
        if "," in text or not text:
            raise InputError(name, f"{text!r} is empty or holds a comma, which separates parameters; give one value")
        texts.append(f"{name}={text}")

    joint = "," if ":" in label else ":"
    definitions = Definitions(designs, session_policies)
    try:
        with arguments_named({"design": label}):
            return Design(label + (joint + ",".join(texts) if texts else ""), definitions)
    except InputError as error:
        parameter = error.place.rpartition(":")[2]
        raise InputError(parameter if parameter in parameters else error.place, error.problem) from None


def _stage_of(name: str, kind: type[policies.Policy], text: str) -> Stage:
    """The stage that a parameter names, of which a class is a policy.

    Raises:
        InputError: it names none, the class lacks a method, or its name is one of volery.
    """
    if name not in STAGES:
        raise InputError(name, f"is no stage with policies; {kind.__name__} can be one of {', '.join(STAGES)}")
    stage = STAGES[name]
    policies.checked_policy(stage, kind, name)
    known_policy = policies.OURS.get(stage, {}).get(text)
    if known_policy not in (None, kind):
        raise InputError(name, f"{text!r} is a policy of volery; give the class {kind.__name__} another name")
    return stage


def _policy_name(kind: type[policies.Policy]) -> str:
    """The name of a policy from that of its class: LeastHeat is least-heat."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def _settings_of(policy: policies.Policy) -> str:
    """The parameters of a policy that differ from their defaults, as `/look_at:5`."""
    defaults = type(policy)()
    changed = {
        field: getattr(policy, field)
        for field in policy.__struct_fields__
        if getattr(policy, field) != getattr(defaults, field)
    }
    return "".join(f"/{field}:{written(value)}" for field, value in changed.items())


def chosen_designs(given: Sequence[object], place: str) -> tuple[list[str], Definitions]:
    """The labels of designs, and the definitions that they need together.

    Args:
        given: names, designs, and architectures.
        place: name of the argument, for error messages.

    Raises:
        InputError: one is nothing of these, or two define one name differently.
    """
    labels: list[str] = []
    designs: dict[str, Architecture] = {}
    merged_policies: dict[Stage, dict[str, type[policies.Policy]]] = {}

    for number, design in enumerate(given):
        place_of_design = f"{place}[{number}]" if len(given) > 1 else place
        check_type(place_of_design, design, (str, Design, Architecture), "a name, an architecture(..) or Architecture")
        if isinstance(design, str):
            labels.append(design)
            continue

        choice = architecture(design) if isinstance(design, Architecture) else design
        assert isinstance(choice, Design)
        labels.append(choice.label)
        pairs = [(designs, choice.definitions.designs)]
        for stage, stage_policies in choice.definitions.policies.items():
            pairs.append((merged_policies.setdefault(stage, {}), stage_policies))  # type: ignore[arg-type]  # both are names
        for merged, added in pairs:
            for name, definition in added.items():
                if merged.setdefault(name, definition) is not definition:
                    problem = f"defines {name!r} otherwise than one before it; give one of them another name"
                    raise InputError(place_of_design, problem)

    return labels, Definitions(designs, merged_policies)
