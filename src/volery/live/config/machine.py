"""A machine of the federation: what it says of itself, and what its owner says of it.

Discovered: `arch`, `os`, `kernel`, `cores`, `memory_mb`, `gpus`, `gpu`, `disk`. Declared: labels, named `label.NAME` in
constraints.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError, suggestion
from volery.live.config import discovery
from volery.live.status import AttributeValue

LABEL: Final = "label."
MEMORY_STEP_MB: Final = 256
"""Kernels keep a few MB more or less for themselves on equal machines, which are to look equal."""
SYSTEM_PART: Final = 16
"""One part in so many of a machine's memory is left to its system, where its amounts are discovered."""
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The attributes of a machine.

    Args:
        arch: instruction set, as `uname -m` calls it.
        os: operating system in lower case, for example `linux`.
        kernel: major and minor version of its kernel, for example `6.1`.
        cores: processors that its tasks may use, part of one left out.
        memory_mb: main memory in MB (2^20 bytes) that they may use, rounded down to a multiple of 256.
        labels: whatever its owner says of it.
        gpus: how many GPUs it has.
        gpu: what they are, as their driver calls the first; empty where there is none.
        disk: what the folder of its tasks lies on: ssd, hdd or unknown.
    """

    arch: str
    os: str
    kernel: str
    cores: int
    memory_mb: int
    labels: Mapping[str, AttributeValue] = {}
    gpus: int = 0
    gpu: str = ""
    disk: str = discovery.UNKNOWN_DISK

    def attributes(self) -> dict[str, AttributeValue]:
        """Everything that a constraint can ask for, by name."""
        found: dict[str, AttributeValue] = {name: getattr(self, name) for name in ATTRIBUTES}
        return found | {LABEL + name: value for name, value in self.labels.items()}


ATTRIBUTES: Final = ("arch", "os", "kernel", "cores", "memory_mb", "gpus", "gpu", "disk")
"""What every machine has."""
MAY_BE_ZERO: Final = frozenset({"gpus"})


def discover(
    labels: Mapping[str, AttributeValue] | None = None, folder: Path | None = None, root: Path = discovery.ROOT
) -> Machine:
    """The attributes of this machine.

    Args:
        labels: what is said besides.
        folder: of its tasks; by default the one that we are in.
        root: of the kernel's trees /proc and /sys.
    """
    version = re.match(r"\d+(\.\d+)?", platform.release())
    memory_mb, gpus = discovery.memory_mb(root), discovery.gpus(root)
    return Machine(
        arch=platform.machine(),
        os=platform.system().lower(),
        kernel=version.group() if version else platform.release(),
        cores=max(discovery.cpu_milli(root) // discovery.MILLI, 1),
        memory_mb=max(memory_mb // MEMORY_STEP_MB * MEMORY_STEP_MB, 1),
        labels=dict(labels or {}),
        gpus=len(gpus),
        gpu=gpus[0].model if gpus else "",
        disk=discovery.disk_of(folder or Path(), root).kind,
    )


def amounts(folder: Path, parts: int = 1, root: Path = discovery.ROOT) -> dict[str, int]:
    """The amounts that this machine offers to tasks, or each of so many equal parts of it.

    Args:
        folder: of its tasks; its disk has so much free now.
        parts: nodes that share the machine.
        root: of the kernel's trees /proc and /sys.
    """
    memory_mb = discovery.memory_mb(root)
    whole = {
        "cpu_milli": discovery.cpu_milli(root),
        "memory_mb": memory_mb - memory_mb // SYSTEM_PART,
        "gpus": len(discovery.gpus(root)),
        "disk_mb": discovery.disk_of(folder, root).free_mb,
    }
    return {name: amount // parts for name, amount in whole.items()}


def check_labels(labels: Mapping[str, object], place: str) -> dict[str, AttributeValue]:
    """Labels as they may be declared: names without blanks or dots, values that are text or whole numbers.

    Raises:
        InputError: naming the label.
    """
    found: dict[str, AttributeValue] = {}
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name):
            raise InputError(f"{place}.{name}", "a label's name has letters, digits, - and _, and begins with a letter")
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError(f"{place}.{name}", f"a label is text or a whole number, not {value!r}; write it in quotes")
        found[name] = value
    return found


def machine_from_table(table: Mapping[str, object], place: str, base: Machine | None = None) -> Machine:
    """A machine as a file declares it; what is left out is taken from `base`, by default this machine.

    Raises:
        InputError: an unknown key or a value of the wrong kind.
    """
    base = base or discover()
    known = (*ATTRIBUTES, "labels")
    for key in table:
        if key not in known:
            raise InputError(f"{place}.{key}", f"unknown key{suggestion(key, known)}")
    labels = table.get("labels", {})
    if not isinstance(labels, Mapping):
        raise InputError(f"{place}.labels", f'is a table, as labels = {{ zone = "a" }}, not {labels!r}')
    content = {name: table.get(name, getattr(base, name)) for name in ATTRIBUTES}
    for name, value in content.items():
        kind = type(getattr(base, name))
        least = 0 if name in MAY_BE_ZERO else 1
        if type(value) is not kind or (kind is int and int(value) < least):  # type: ignore[call-overload] # kind is int
            wanted = f"a whole number >= {least}" if kind is int else "text in quotes"
            raise InputError(f"{place}.{name}", f"expected {wanted}, not {value!r}")
    return msgspec.convert(content | {"labels": dict(base.labels) | check_labels(labels, f"{place}.labels")}, Machine)
