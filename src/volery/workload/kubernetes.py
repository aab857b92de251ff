"""Nodes of Kubernetes as `kubectl get nodes -o json` prints them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.workload.formats.columns.kubernetes import GPU_SUFFIX, MEBIBYTE, quantity, share
from volery.workload.formats.source import document
from volery.workload.inventory import GPU, MEMORY, Inventory, ListedMachine, machine_uses

GPU_LABEL: Final = "nvidia.com/gpu.product"
CONTROL: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Taints of nodes that run the cluster itself."""
SPARING: Final = ("NoSchedule", "NoExecute")


class KubeTaint(msgspec.Struct):
    """A taint of a node."""

    key: str
    effect: str = ""


class KubeCondition(msgspec.Struct):
    """A condition of a node."""

    type: str
    status: str


class KubeMetadata(msgspec.Struct):
    """The part of an object's metadata that is read."""

    name: str
    labels: dict[str, str] = {}


class KubeNodeSpec(msgspec.Struct):
    """The part of a node's specification that is read."""

    unschedulable: bool = False
    taints: list[KubeTaint] = []


class KubeNodeStatus(msgspec.Struct):
    """The part of a node's status that is read."""

    allocatable: dict[str, str] = {}
    conditions: list[KubeCondition] = []


class KubeNode(msgspec.Struct):
    """A node of a cluster."""

    metadata: KubeMetadata
    spec: KubeNodeSpec = msgspec.field(default_factory=KubeNodeSpec)
    status: KubeNodeStatus = msgspec.field(default_factory=KubeNodeStatus)
    kind: str = "Node"


class KubeNodes(msgspec.Struct):
    """The document of `kubectl get nodes -o json`."""

    items: list[KubeNode]


def read_nodes(path: Path) -> Inventory:
    """The nodes of a cluster with what pods may ask of them (`allocatable`); labels and most taints are not heeded.

    A node takes no work if it is not ready, cordoned, or tainted as one of the control plane.

    Raises:
        InputError: the file is no such list, or a node states no processors or a wrong quantity.
    """
    entries = []
    names = set[str]()
    for node in document(path, KubeNodes, "list of nodes, as `kubectl get nodes -o json` prints it").items:
        place = f"{path}: node {node.metadata.name}"
        if node.kind != "Node":
            raise InputError(place, f"is a {node.kind[:40]}; print nodes, by kubectl get nodes -o json")

        if node.metadata.name in names:
            raise InputError(place, "is listed twice; keep one")
        names.add(node.metadata.name)

        control = [taint.key for taint in node.spec.taints if taint.key in CONTROL and taint.effect in SPARING]
        is_ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
        states = [] if is_ready else ["NotReady"]
        states += ["cordoned"] if node.spec.unschedulable else []
        states += ["control plane"] if control else []

        taints = {taint.key for taint in node.spec.taints if taint.effect in SPARING} - set(control)
        ignored = tuple([f"taint {key} (which pods tolerate it is not known)" for key in sorted(taints)])
        amounts, other_names = _amounts(node, place)
        model = node.metadata.labels.get(GPU_LABEL, "") if GPU in amounts else ""
        listed = ListedMachine(node.metadata.name, amounts, model, state=", ".join(states))
        entries.append((place, listed, (*ignored, *[f"{name} (no resource here)" for name in other_names])))

    machines = tuple([listed for _, listed, _ in entries])
    return Inventory("nodes of Kubernetes", machines, machine_uses(entries))


PODS: Final = "pods"
STORAGE: Final = "ephemeral-storage"


def _amounts(node: KubeNode, place: str) -> tuple[dict[str, int], list[str]]:
    """Whole units that pods may ask of a node, rounded down, and the names of resources that are not read."""
    gpus, other_names = Decimal(0), []
    units = {"cpu": ("cpu_milli", Decimal("0.001")), "memory": (MEMORY, MEBIBYTE), STORAGE: ("disk_mb", MEBIBYTE)}
    amounts: dict[str, int] = {}
    for name, text in node.status.allocatable.items():
        try:
            value = quantity(text)
        except ValueError as error:
            raise InputError(place, f"status.allocatable.{name}: {error}; mend it") from None
        if value < 0 or (name == "memory" and not value):
            raise InputError(place, f"status.allocatable.{name}: {text[:40]!r} is no offer above 0; mend it")
        if name in units:
            resource, unit = units[name]
            amounts[resource] = int(value / unit)
        elif gpu_share := share(GPU_SUFFIX, name):
            gpus += value * gpu_share
        elif value and name != PODS:
            other_names.append(name)

    if not amounts.get("cpu_milli"):
        raise InputError(place, "states no status.allocatable.cpu; print whole nodes, by kubectl get nodes -o json")
    return amounts | ({GPU: int(gpus * 1000)} if gpus else {}), other_names
