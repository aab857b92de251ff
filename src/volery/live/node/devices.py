"""The GPUs of a host: each is given to one attempt at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NONE_VISIBLE: Final = "-1"
"""Neither CUDA nor HIP finds a device under this number, nor looks at those behind it."""


class Devices:
    """Which GPUs are free.

    Args:
        names: as CUDA_VISIBLE_DEVICES takes them: numbers in order of the bus, or UUIDs.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._free = set(names)

    def take(self, count: int) -> tuple[str, ...]:
        """So many, the first ones that are free.

        Raises:
            ValueError: there are fewer.
        """
        chosen = tuple([name for name in self._names if name in self._free][:count])
        if len(chosen) < count:
            problem = f"it asks for {count} GPUs, and {len(chosen)} of the {len(self._names)} of this host are free"
            raise ValueError(problem + "; does the federation's file promise more than there are?")
        self._free.difference_update(chosen)
        return chosen

    def give_back(self, chosen: tuple[str, ...]) -> None:
        """What was taken."""
        self._free.update(chosen)


def gpu_environment(devices: tuple[str, ...]) -> dict[str, str]:
    """Variables that show a task these devices alone."""
    visible = ",".join(devices) or NONE_VISIBLE
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible,
        "HIP_VISIBLE_DEVICES": visible,
        "VOLERY_GPUS": ",".join(devices),
    }
