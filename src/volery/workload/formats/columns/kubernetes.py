"""Values of Kubernetes that no unit or pattern describes: quantities, requests of pods, since and until when they ran.

Sources: the API reference (core/v1, Pod; resource.Quantity) and the page on the resources of init containers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, TypeVar

import msgspec

QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))", re.ASCII)
BINARY: Final[dict[str, Decimal]] = {
    f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)
}
DECIMAL: Final[dict[str, Decimal]] = {
    letter: Decimal(1000) ** power for power, letter in enumerate(["n", "u", "m", "", *"kMGTPE"], start=-3)
}
MEBIBYTE: Final = Decimal(1 << 20)
QUANTITY_END: Final = Decimal(10) ** 30
T = TypeVar("T")
GPU_SUFFIX: Final = "/gpu"
"""End of the resource names of GPUs, as nvidia.com/gpu and amd.com/gpu."""
MIG: Final = re.compile(r"nvidia\.com/mig-([1-7])g\..+")
"""Resource names of slices of a GPU (NVIDIA, MIG in Kubernetes, strategy `mixed`), as nvidia.com/mig-3g.20gb."""
ALWAYS: Final = "Always"
"""Restart policy of an init container that goes on beside the containers."""


def quantity(text: str) -> Decimal:
    """A quantity as Kubernetes writes it, as 1500m, 0.5, 16Gi or 2e3.

    Raises:
        ValueError: it is none.
    """
    parts = QUANTITY.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text[:40]!r} is no quantity of Kubernetes, as 1500m, 0.5 or 16Gi")
    try:
        value = Decimal(parts[1] + parts[2]) if parts[2] else Decimal(parts[1]) * (BINARY | DECIMAL)[parts[3]]
    except ArithmeticError:
        value = QUANTITY_END
    if abs(value) >= QUANTITY_END:
        raise ValueError(f"{text[:40]!r} is more than any quantity of Kubernetes")
    return value


def share(kind: str, name: str) -> Decimal:
    """The amount of a kind that one of a resource is: of `cpu` and `memory` 1 or 0, of GPUs also a slice of one.

    A MIG slice is its sevenths of a GPU in thousandths, rounded down so that seven fit.

    Args:
        kind: cpu, memory, or `GPU_SUFFIX` for the GPUs of all vendors.
    """
    if kind == GPU_SUFFIX and (mig := MIG.fullmatch(name)):
        return Decimal(int(mig[1]) * 1000 // 7) / 1000
    return Decimal(name.endswith(GPU_SUFFIX) if kind == GPU_SUFFIX else name == kind)


class ContainerResources(msgspec.Struct):
    """The resources of a container; a limit without a request is a request."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


def _sum(kind: str, amounts: Mapping[str, str | int | float]) -> Decimal:
    shares = {name: share(kind, name) for name in amounts}
    return sum((quantity(str(amounts[name])) * part for name, part in shares.items() if part), Decimal(0))


class PodContainer(msgspec.Struct, rename="camel"):
    """The part of a container's specification that is read."""

    resources: ContainerResources = msgspec.field(default_factory=ContainerResources)
    restart_policy: str = ""

    def request(self, kind: str) -> Decimal:
        """The sum of the requests of resources of a kind, see `share`."""
        return _sum(kind, self.resources.limits | self.resources.requests)


class PodSpec(msgspec.Struct, rename="camel"):
    """The part of a pod's specification that is read."""

    containers: list[PodContainer]
    init_containers: list[PodContainer] = []
    overhead: dict[str, str] = {}

    def request(self, kind: str) -> Decimal:
        """The request that schedulers count: of all containers, or of an init container before them if that is more."""
        together = largest = Decimal(0)
        for container in self.init_containers:
            largest = max(largest, together + container.request(kind))
            together += container.request(kind) if container.restart_policy == ALWAYS else 0

        together += sum(container.request(kind) for container in self.containers)
        return max(largest, together) + _sum(kind, self.overhead)


def _decoded(text: str, kind: type[T], noun: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is no {noun} ({error})") from None


def _request(spec: str, kind: str) -> float:
    return float(_decoded(spec, PodSpec, "specification of a pod").request(kind))


def pod_cpu(spec: str) -> float:
    """The processors of a pod.

    Raises:
        ValueError: the text is no specification of a pod, or a request is no quantity.
    """
    return _request(spec, "cpu")


def pod_memory(spec: str) -> float:
    """The memory of a pod, bytes.

    Raises:
        ValueError: the text is no specification of a pod, or a request is no quantity.
    """
    return _request(spec, "memory")


def pod_gpus(spec: str) -> float:
    """The GPUs of a pod, of all vendors; a MIG slice is a part of one.

    Raises:
        ValueError: the text is no specification of a pod, or a request is no quantity.
    """
    return _request(spec, GPU_SUFFIX)


class PodCondition(msgspec.Struct, rename="camel"):
    """A condition of a pod."""

    type: str
    status: str
    last_transition_time: str | None = None


def pod_start(conditions: str) -> str | None:
    """The time at which a pod was placed on a machine; None where it was not.

    Raises:
        ValueError: the text is no list of conditions.
    """
    placed = _decoded(conditions, list[PodCondition], "list of conditions")
    times = [entry.last_transition_time for entry in placed if (entry.type, entry.status) == ("PodScheduled", "True")]
    return times[0] if times else None


class Terminated(msgspec.Struct, rename="camel"):
    """The end of a container."""

    finished_at: str | None = None


class ContainerState(msgspec.Struct):
    """The state of a container; None where it has not ended."""

    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct):
    """The status of a container."""

    state: ContainerState = msgspec.field(default_factory=ContainerState)


def pod_end(statuses: str) -> str | None:
    """The time at which the last container of a pod ended; None where one has not ended.

    Raises:
        ValueError: the text is no list of statuses.
    """
    containers = _decoded(statuses, list[ContainerStatus], "list of statuses of containers")
    times = [status.state.terminated.finished_at for status in containers if status.state.terminated is not None]
    return max(filter(None, times), default=None) if len(times) == len(containers) else None
