"""The message flow of each architecture of a study, kept beside its results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from volery import architectures
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.flow import Flow, flow_of
from volery.core.model import Cluster
from volery.core.streams import Streams
from volery.report.schema import FLOWS, Flows, LabelledFlow
from volery.study.results import write_json
from volery.study.spec import RunSpec

MACHINES = 40
"""Of the cluster for which a design is built to look at its components."""


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
    chosen = {spec.label: spec for spec in specs}
    found = []
    for label, spec in chosen.items():
        try:
            entry = architectures.lookup(spec.architecture)
            found.append(LabelledFlow(label, example_flow(entry, architectures.configure(entry, spec.parameters))))
        except InputError:
            continue
    write_json(folder / FLOWS, Flows(found))
