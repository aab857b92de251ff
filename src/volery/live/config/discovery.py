"""Discovery of this machine: usable processors and memory, GPUs, and the disk of a folder.

A program in a container may have fewer processors and less memory than the machine: by its affinity, and by the limits
of its control group and of all those above it, of version 2 (cpu.max, memory.max) or 1 (cpu.cfs_quota_us,
memory.limit_in_bytes).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

MB: Final = 1 << 20
MILLI: Final = 1000
ROOT: Final = Path("/")
AMD: Final = "0x1002"
UNKNOWN_DISK: Final = "unknown"
_BUS: Final = re.compile(r"[0-9a-f]+(:[0-9a-f]+)*[.:][0-9a-f]+", re.IGNORECASE)


class Gpu(NamedTuple):
    """One GPU: the name that CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES takes, and what it is."""

    name: str
    model: str


class Disk(NamedTuple):
    """The disk of a folder: `kind` is ssd, hdd or unknown; MB are 2^20 bytes."""

    kind: str
    size_mb: int
    free_mb: int


def cpu_milli(root: Path = ROOT) -> int:
    """Thousandths of processors that this program may use."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min([mine * MILLI, *_cpu_limits(root)]), 1)


def memory_mb(root: Path = ROOT) -> int:
    """Main memory that this program may use, in MB."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([installed, *_memory_limits(root)]) // MB


def gpus_of_host(root: Path = ROOT) -> tuple[str, ...]:
    """Names of the GPUs that tasks can be given."""
    return tuple(gpu.name for gpu in gpus(root))


def gpus(root: Path = ROOT) -> tuple[Gpu, ...]:
    """NVIDIA's, in order of the bus; where there is none, AMD's."""
    return tuple(Gpu(str(number), model) for number, model in enumerate([*_nvidia(root)] or [*_amd(root)]))


def disk_of(folder: Path, root: Path = ROOT) -> Disk:
    """The disk that a folder lies on, or will: what does not exist yet lies where the nearest folder above does.

    Args:
        folder: anywhere.
        root: of the kernel's tree /sys.
    """
    at = folder.resolve()
    while not at.exists():
        at = at.parent
    sizes, device = os.statvfs(at), at.stat().st_dev
    kind = _kind(root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}")
    return Disk(kind, sizes.f_blocks * sizes.f_frsize // MB, sizes.f_bavail * sizes.f_frsize // MB)


def _kind(block: Path) -> str:
    """Of a disk, or of the one that a partition is on."""
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
        for device in sorted(cards, key=lambda card: _bus(card)):
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
            for mount, mounted in mounts:
                at = path.removeprefix(mounted.rstrip("/")).strip("/")
                while at:
                    yield root / mount.lstrip("/") / at
                    at = at.rpartition("/")[0]
                yield root / mount.lstrip("/")


def _mounts(root: Path, controller: str) -> list[tuple[str, str]]:
    """The mount point of a hierarchy, and the group that is mounted."""
    found = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, behind = line.partition(" - ")
        kind, *_, options = behind.split(" ") if behind else [""]
        if kind == ("cgroup" if controller else "cgroup2") and (not controller or controller in options.split(",")):
            words = before.split(" ")
            found.append((words[4], words[3]))
    return found


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
