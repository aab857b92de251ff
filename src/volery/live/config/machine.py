"""A machine of the federation: its attributes, as discovered or as its owner declares them, and the amounts it offers.

Discovered: `arch`, `os`, `kernel`, `cores`, `memory_mb`, `gpus`, `gpu`, `disk`. Declared: labels, named `label.NAME` in
constraints. A program in a container may have fewer processors and less memory than the machine: by its affinity, and
by the limits of its control group and of all those above it, of version 2 (cpu.max, memory.max) or 1
(cpu.cfs_quota_us, memory.limit_in_bytes).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from volery.core.errors import InputError, suggestion
from volery.live.status import AttributeValue

LABEL: Final = "label."
MEMORY_STEP_MB: Final = 256
"""Step to which memory is rounded: kernels keep a few MB more or less on equal machines, which are to look equal."""
SYSTEM_PART: Final = 16
"""Part of a machine's memory, one in so many, that is left to its system where its amounts are discovered."""
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
MB: Final = 1 << 20
MILLI: Final = 1000
ROOT: Final = Path("/")
AMD: Final = "0x1002"
UNKNOWN_DISK: Final = "unknown"
_BUS: Final = re.compile(r"[0-9a-f]+(:[0-9a-f]+)*[.:][0-9a-f]+", re.IGNORECASE)


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The attributes of a machine.

    Args:
        arch: instruction set, as `uname -m` calls it.
        os: operating system in lower case, for example `linux`.
        kernel: major and minor version of its kernel, for example `6.1`.
        cores: processors that its tasks may use, part of one left out.
        memory_mb: main memory in MB (2^20 bytes) that they may use, rounded down to a multiple of 256.
        labels: further attributes that its owner declares.
        gpu: the first GPU, by the name of its driver; empty where there is none.
        disk: the disk of the folder of its tasks: ssd, hdd or unknown.
    """

    arch: str
    os: str
    kernel: str
    cores: int
    memory_mb: int
    labels: Mapping[str, AttributeValue] = {}
    gpus: int = 0
    gpu: str = ""
    disk: str = UNKNOWN_DISK

    def attributes(self) -> dict[str, AttributeValue]:
        """Everything that a constraint can ask for, by name."""
        attributes: dict[str, AttributeValue] = {name: getattr(self, name) for name in ATTRIBUTES}
        return attributes | {LABEL + name: value for name, value in self.labels.items()}


ATTRIBUTES: Final = ("arch", "os", "kernel", "cores", "memory_mb", "gpus", "gpu", "disk")
"""Attributes that every machine has."""
MAY_BE_ZERO: Final = frozenset({"gpus"})


def discover(
    labels: Mapping[str, AttributeValue] | None = None, folder: Path | None = None, root: Path = ROOT
) -> Machine:
    """The attributes of this machine.

    Args:
        labels: declared labels.
        folder: folder of its tasks; by default the working folder of this process.
        root: root of the kernel's trees /proc and /sys.
    """
    version = re.match(r"\d+(\.\d+)?", platform.release())
    memory_mb = usable_memory_mb(root)
    gpus = installed_gpus(root)
    return Machine(
        arch=platform.machine(),
        os=platform.system().lower(),
        kernel=version.group() if version else platform.release(),
        cores=max(usable_cpu_milli(root) // MILLI, 1),
        memory_mb=max(memory_mb // MEMORY_STEP_MB * MEMORY_STEP_MB, 1),
        labels=dict(labels or {}),
        gpus=len(gpus),
        gpu=gpus[0].model if gpus else "",
        disk=disk_of(folder or Path(), root).kind,
    )


def amounts(folder: Path, parts: int = 1, root: Path = ROOT) -> dict[str, int]:
    """The amounts that this machine offers to tasks, or each of so many equal parts of it.

    Args:
        folder: folder of its tasks; its disk has so much free now.
        parts: nodes that share the machine.
        root: root of the kernel's trees /proc and /sys.
    """
    memory_mb = usable_memory_mb(root)
    machine_amounts = {
        "cpu_milli": usable_cpu_milli(root),
        "memory_mb": memory_mb - memory_mb // SYSTEM_PART,
        "gpus": len(installed_gpus(root)),
        "disk_mb": disk_of(folder, root).free_mb,
    }
    return {name: amount // parts for name, amount in machine_amounts.items()}


def check_labels(labels: Mapping[str, object], place: str) -> dict[str, AttributeValue]:
    """Labels as they may be declared: names without blanks or dots, values that are text or whole numbers.

    Raises:
        InputError: naming the label.
    """
    checked: dict[str, AttributeValue] = {}
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name):
            raise InputError(f"{place}.{name}", "a label's name has letters, digits, - and _, and begins with a letter")
        # To Python true is a number, too: a label `gpu = true` would equal 1.
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError(f"{place}.{name}", f"a label is text or a whole number, not {value!r}; write it in quotes")
        checked[name] = value
    return checked


def machine_from_table(table: Mapping[str, object], place: str, base: Machine | None = None) -> Machine:
    """A machine as a file declares it; what is left out is taken from `base`, by default this machine.

    Raises:
        InputError: an unknown key or a value of the wrong kind.
    """
    base = base or discover()
    known_keys = (*ATTRIBUTES, "labels")
    for key in table:
        if key not in known_keys:
            raise InputError(f"{place}.{key}", f"unknown key{suggestion(key, known_keys)}")

    labels = table.get("labels", {})
    if not isinstance(labels, Mapping):
        raise InputError(f"{place}.labels", f'is a table, as labels = {{ zone = "a" }}, not {labels!r}')

    content = {name: table.get(name, getattr(base, name)) for name in ATTRIBUTES}
    for name, value in content.items():
        kind = type(getattr(base, name))
        least = 0 if name in MAY_BE_ZERO else 1
        # Not isinstance: `cores = true` would pass as 1.
        if type(value) is not kind or (kind is int and int(value) < least):  # type: ignore[call-overload] # kind is int
            expected = f"a whole number >= {least}" if kind is int else "text in quotes"
            raise InputError(f"{place}.{name}", f"expected {expected}, not {value!r}")

    return msgspec.convert(content | {"labels": dict(base.labels) | check_labels(labels, f"{place}.labels")}, Machine)


class Gpu(NamedTuple):
    """One GPU: the name that CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES takes, and what it is."""

    name: str
    model: str


class Disk(NamedTuple):
    """The disk of a folder: `kind` is ssd, hdd or unknown; MB are 2^20 bytes."""

    kind: str
    size_mb: int
    free_mb: int


def usable_cpu_milli(root: Path = ROOT) -> int:
    """Thousandths of processors that this program may use."""
    own_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min([own_cpus * MILLI, *_cpu_limits(root)]), 1)


def usable_memory_mb(root: Path = ROOT) -> int:
    """Main memory that this program may use, in MB."""
    installed_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([installed_bytes, *_memory_limits(root)]) // MB


def process_limits(root: Path = ROOT) -> Iterator[tuple[int, int]]:
    """The limit of processes and threads, and how many there are, of each control group of this program."""
    for controller in ("", "pids"):
        for group in _groups(root, controller):
            with suppress(ValueError):  # "max", or the topmost, which has no limit
                yield int(_text(group / "pids.max")), int(_text(group / "pids.current"))


def gpus_of_host(root: Path = ROOT) -> tuple[str, ...]:
    """Names of the GPUs that tasks can be given."""
    return tuple(gpu.name for gpu in installed_gpus(root))


def installed_gpus(root: Path = ROOT) -> tuple[Gpu, ...]:
    """NVIDIA's, in order of the bus; where there is none, AMD's."""
    return tuple(Gpu(str(number), model) for number, model in enumerate([*_nvidia(root)] or [*_amd(root)]))


def disk_of(folder: Path, root: Path = ROOT) -> Disk:
    """The disk that a folder lies on, or will: what does not exist yet lies where the nearest folder above does.

    Args:
        folder: any folder.
        root: root of the kernel's tree /sys.
    """
    existing = folder.resolve()
    while not existing.exists():
        existing = existing.parent
    sizes = os.statvfs(existing)
    device = existing.stat().st_dev
    kind = _kind(root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}")
    return Disk(kind, sizes.f_blocks * sizes.f_frsize // MB, sizes.f_bavail * sizes.f_frsize // MB)


def _kind(block: Path) -> str:
    """The kind of a disk, or of the one that a partition is on."""
    with suppress(OSError):
        at = block.resolve(strict=True)
        for place in (at, at.parent):
            with suppress(FileNotFoundError):
                return "hdd" if (place / "queue/rotational").read_text().strip() == "1" else "ssd"
    return UNKNOWN_DISK


def _nvidia(root: Path) -> Iterator[str]:
    with suppress(OSError):
        for card in sorted((root / "proc/driver/nvidia/gpus").iterdir()):
            yield _line(card / "information", "Model:") or "NVIDIA"


def _amd(root: Path) -> Iterator[str]:
    with suppress(OSError):
        cards = [card / "device" for card in (root / "sys/class/drm").glob("card[0-9]*") if card.name[4:].isdigit()]
        for device in sorted(cards, key=_bus):
            if _text(device / "vendor") == AMD:
                yield _text(device / "product_name") or "AMD"


def _bus(device: Path) -> tuple[str, int]:
    """The order of the bus; cards are numbered as their drivers were loaded."""
    name = device.resolve().name
    return (name if _BUS.fullmatch(name) else "", int(device.parent.name[4:]))


def _cpu_limits(root: Path) -> Iterator[int]:
    for group in _groups(root, ""):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            yield int(quota) * MILLI // int(period)
    for group in _groups(root, "cpu"):
        with suppress(ValueError, ZeroDivisionError):
            quota_us, period_us = (int(_text(group / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
            if quota_us > 0:
                yield quota_us * MILLI // period_us


def _memory_limits(root: Path) -> Iterator[int]:
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for group in _groups(root, controller):
            with suppress(ValueError):  # "max"
                yield int(_text(group / name))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The control group of this program and those above it; of version 2 where no controller is named."""
    mounts = _mounts(root, controller)
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, names, path = line.split(":", 2)
        if (number == "0" and not controller) or (controller and controller in names.split(",")):
            # The mount may show a part of the hierarchy only, as in a container. Limits of all groups above hold, too.
            for mount, mounted_group in mounts:
                at = path.removeprefix(mounted_group.rstrip("/")).strip("/")
                while at:
                    yield root / mount.lstrip("/") / at
                    at = at.rpartition("/")[0]
                yield root / mount.lstrip("/")


def _mounts(root: Path, controller: str) -> list[tuple[str, str]]:
    """The mount point of a hierarchy, and the group that is mounted."""
    mounts = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        mount_fields, _, type_fields = line.partition(" - ")
        kind, *_, options = type_fields.split(" ") if type_fields else [""]
        if kind == ("cgroup" if controller else "cgroup2") and (not controller or controller in options.split(",")):
            words = mount_fields.split(" ")
            mounts.append((words[4], words[3]))
    return mounts


def _line(path: Path, heading: str) -> str:
    for line in _text(path).splitlines():
        if line.startswith(heading):
            return line.removeprefix(heading).strip()
    return ""


def _text(path: Path) -> str:
    """The content of a file; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
