"""The message flow of each design: kept beside a study's results, and drawn on the documentation pages of designs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from volery import architectures
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.flow import Flow, flow_of
from volery.core.model import Cluster
from volery.core.streams import Streams
from volery.report.designpage import DescribedDesign, design_page, index_page, states_pages
from volery.report.flowplot import flow_svg
from volery.report.page import write_page
from volery.report.schema import FLOWS, Flows, LabelledFlow
from volery.roles.recovery import leadership
from volery.study.results import write_json
from volery.study.spec import RunSpec

INDEX = "index.md"
LEADERSHIP: Mapping[str, Mapping[Any, Any]] = {
    "Leader": leadership.LEADER,
    "Node": leadership.NODE,
    "Contact": leadership.CONTACT,
}


def pages(entries: Iterable[Architecture]) -> dict[str, str]:
    """The text of each file, by name: a page per entry, with its pictures."""
    texts = {}

    for entry in entries:
        design = _described(entry)
        base = _base_of(entry)
        is_alike = base is not None and base.flow == design.flow
        pictures = [(f"{base.entry.name if base and is_alike else entry.name}.svg", "")]
        if not is_alike:
            texts[f"{entry.name}.svg"] = flow_svg(design.flow)

        if fault_parameters := entry.conformance.fault_parameters:
            flow_under_faults = example_flow(entry, architectures.configure(entry, fault_parameters))
            if flow_under_faults != design.flow:
                parameters = ",".join(f"{name}={str(value).lower()}" for name, value in fault_parameters.items())
                pictures.append((f"{entry.name}-bearing.svg", parameters))
                texts[f"{entry.name}-bearing.svg"] = flow_svg(flow_under_faults)

        texts[f"{entry.name}.md"] = design_page(design, base, pictures)
    return texts


def _described(entry: Architecture) -> DescribedDesign:
    rows = [
        (parameter.name, parameter.type, parameter.default, parameter.description)
        for parameter in architectures.parameters(entry)
    ]
    return DescribedDesign(entry, rows, example_flow(entry, entry.defaults))


def _base_of(entry: Architecture) -> DescribedDesign | None:
    """The first design of the registry that is built by the same module, or None if it is this one."""
    module = entry.build.__module__
    designs = architectures.REGISTRY.values()
    first = next((design for design in designs if design.build.__module__ == module), entry)
    return None if first.name == entry.name else _described(first)


def all_pages() -> dict[str, str]:
    """The pages of all designs of this package, a list of them, and the states of leadership in some of them."""
    entries = list(architectures.REGISTRY.values())
    texts = pages(entries) | {INDEX: index_page([_described(entry) for entry in entries])}
    return texts | states_pages(leadership, LEADERSHIP)


def write_pages(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write pages into a folder and return their paths; what else is there stays.

    Raises:
        InputError: when they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made: {error.strerror}") from None
    written = []
    for name, text in texts.items():
        write_page(folder / name, text)
        written.append(folder / name)
    return written


MACHINES = 40
"""The number of machines of the cluster for which a design is built to look at its components."""


def example_flow(architecture: Architecture, config: Any) -> Flow:
    """The declared message flow of a design, built for a small cluster of machines with one slot.

    Raises:
        InputError: when it cannot be built for such a cluster.
    """
    return flow_of(architecture.build(Cluster.uniform(MACHINES), config, Streams(0)))


def write_flows(folder: Path, specs: Iterable[RunSpec]) -> None:
    """Write flows.json into a results folder; a design that needs another cluster is left out.

    Raises:
        InputError: when it cannot be written.
    """
    specs_by_label = {spec.label: spec for spec in specs}
    flows = []

    for label, spec in specs_by_label.items():
        try:
            design = architectures.choose(spec.architecture, spec.parameters)
            flows.append(LabelledFlow(label, example_flow(*design)))
        except InputError:
            continue

    write_json(folder / FLOWS, Flows(flows))
