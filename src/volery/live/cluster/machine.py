"""A machine of the federation: what it says of itself, and what its owner says of it.

Discovered: `arch`, `os`, `kernel`, `cores`, `memory_mb`. Declared: labels, named `label.NAME` in constraints.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from volery.core.errors import InputError, suggestion

Value = str | int
LABEL: Final = "label."
MEMORY_STEP_MB: Final = 256
"""Kernels keep a few MB more or less for themselves on equal machines, which are to look equal."""
_MB: Final = 1 << 20
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a machine is.

    Args:
        arch: instruction set, as `uname -m` calls it.
        os: operating system in lower case, for example `linux`.
        kernel: major and minor version of its kernel, for example `6.1`.
        cores: processors that its tasks may use.
        memory_mb: main memory in MB (2^20 bytes), rounded down to a multiple of 256.
        labels: whatever its owner says of it.
    """

    arch: str
    os: str
    kernel: str
    cores: int
    memory_mb: int
    labels: Mapping[str, Value] = {}

    def attributes(self) -> dict[str, Value]:
        """Everything that a constraint can ask for, by name."""
        found: dict[str, Value] = {name: getattr(self, name) for name in ATTRIBUTES}
        return found | {LABEL + name: value for name, value in self.labels.items()}


ATTRIBUTES: Final = ("arch", "os", "kernel", "cores", "memory_mb")
"""What every machine has."""


def discover(labels: Mapping[str, Value] | None = None) -> Machine:
    """What the kernel says of the machine that we run on."""
    version = re.match(r"\d+(\.\d+)?", platform.release())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MB
    return Machine(
        arch=platform.machine(),
        os=platform.system().lower(),
        kernel=version.group() if version else platform.release(),
        cores=cores,
        memory_mb=max(memory_mb // MEMORY_STEP_MB * MEMORY_STEP_MB, 1),
        labels=dict(labels or {}),
    )


def check_labels(labels: Mapping[str, object], place: str) -> dict[str, Value]:
    """Labels as they may be declared: names without blanks or dots, values that are text or whole numbers.

    Raises:
        InputError: naming the label.
    """
    found: dict[str, Value] = {}
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
        if type(value) is not kind or (kind is int and int(value) < 1):  # type: ignore[call-overload] # kind is int
            wanted = "a whole number >= 1" if kind is int else "text in quotes"
            raise InputError(f"{place}.{name}", f"expected {wanted}, not {value!r}")
    return msgspec.convert(content | {"labels": dict(base.labels) | check_labels(labels, f"{place}.labels")}, Machine)
